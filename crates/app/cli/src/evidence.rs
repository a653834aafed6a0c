//! `fettle watch --evidence`: what a watcher has kept of a process, and what its threads were executing.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use fettle_live::Mapping;
use fettle_locks::{Names, Place};
use fettle_report::render::one_line;
use fettle_types::{Pid, Tid};
use fettle_watch::Finding;
use fettle_watch::evidence::{NO_REGISTERS, REGISTERS, STACK_MEMORY};
use serde::Serialize;
use serde_json::json;

use crate::finding::why;
use crate::locks::names::{Files, is_code};
use crate::locks::stack::{Start, callers};
use crate::output;

/// Frames of a thread that are shown.
const FRAMES: usize = 64;
/// A file of evidence is not larger.
const FILE_MAX: u64 = 64 << 20;

/// A thread as it was kept.
#[derive(Debug, Serialize)]
struct Thread {
    tid: Tid,
    name: String,
    /// The letter of its state, as the kernel has it, before it was stopped for its registers.
    state: String,
    /// The system call that it was in.
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<String>,
    /// What it was executing, innermost first; none where its registers were not kept.
    callers: Vec<Place>,
}

/// Shows the folder.
///
/// # Errors
///
/// When it is none of evidence.
pub fn run(folder: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let finding = read(&folder.join("finding.json"))
        .with_context(|| format!("{} is no folder of evidence", folder.display()))?;
    let finding: Finding = serde_json::from_slice(&finding)
        .with_context(|| format!("{}/finding.json is no finding", folder.display()))?;
    let pid = finding.process.pid;
    let maps = fettle_live::parse_maps(&read(&folder.join("maps")).unwrap_or_default());
    let files = Files::new(&HashMap::from([(pid.unsigned(), maps.clone())]));
    let mut threads = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        let tid = name.to_str().and_then(|name| name.strip_prefix("thread-")?.parse().ok());
        threads.extend(tid.map(|tid| thread(&entry.path(), tid, pid, (&files, &maps))));
    }
    threads.sort_by_key(|thread| thread.tid);
    let missing = read(&folder.join(NO_REGISTERS)).map(|text| line(&text)).ok();
    let command = read(&folder.join("cmdline")).map(|text| line(&text)).unwrap_or_default();
    if as_json {
        let value = json!({
            "version": 1, "finding": finding, "command": command, "threads": threads,
            "no_registers": missing,
        });
        output::print(&format!("{value:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("process {pid}: {command}\n{}\n", why(&finding));
    if let Some(missing) = missing {
        text.push_str(&format!("no registers: {missing}\n"));
    }
    threads.iter().for_each(|thread| thread.show(&mut text));
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

impl Thread {
    fn show(&self, text: &mut String) {
        let call = self.call.as_ref().map_or_else(String::new, |call| format!(", in {call}"));
        text.push_str(&format!("\nthread {} {} ({}{call})\n", self.tid, self.name, self.state));
        for place in &self.callers {
            text.push_str(&format!("    {}\n", one_line(place.text())));
        }
    }
}

fn thread(folder: &Path, tid: Tid, pid: Pid, (files, maps): (&Files, &[Mapping])) -> Thread {
    let text = |name: &str| line(&read(&folder.join(name)).unwrap_or_default());
    let status = read(&folder.join("status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status).into_owned();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    let number = text("syscall").split(' ').next().and_then(|number| number.parse::<u32>().ok());
    let call = number.map(|number| files.system_call(number));
    let registers = read(&folder.join(REGISTERS)).unwrap_or_default();
    let registers = registers_of(&String::from_utf8_lossy(&registers));
    let stack = read(&folder.join(STACK_MEMORY)).unwrap_or_default();
    let places = registers.map(|(start, is_in_call)| {
        let start = Start { is_next: !is_in_call, ..start };
        let word = |at: u64| {
            let from = usize::try_from(at.checked_sub(start.sp)?).ok()?;
            let bytes = stack.get(from..from.checked_add(8)?)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let found = callers(files, pid.unsigned(), start, FRAMES, word);
        let found = found.into_iter().take_while(|at| is_code(maps, at.saturating_sub(1)));
        // A place is that of the instruction before a return address.
        let all = std::iter::once(start.pc.wrapping_add(u64::from(start.is_next))).chain(found);
        all.map(|at| files.place(pid.unsigned(), at)).collect()
    });
    Thread {
        tid,
        name: text("comm"),
        state: state.map(|state| one_line(state.trim().to_owned())).unwrap_or_default(),
        call,
        callers: places.unwrap_or_default(),
    }
}

/// Where a thread is by its registers, and whether it is in a system call.
fn registers_of(text: &str) -> Option<(Start, bool)> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" 0x"))?;
        u64::from_str_radix(line, 16).ok()
    };
    let start = Start { pc: value("rip")?, sp: value("rsp")?, rbp: value("rbp"), is_next: true };
    // -1 where it is in none.
    let is_in_call = value("orig_rax").is_some_and(|number| number as i64 >= 0);
    Some((start, is_in_call))
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// As one line that can be shown.
fn line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).replace('\0', " ");
    one_line(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_read_as_they_are_written() {
        let text = "rip 0x401000\nrsp 0x7ffd0\nrbp 0x0\norig_rax 0xffffffffffffffff\n";
        let (start, is_in_call) = registers_of(text).unwrap();
        assert_eq!(
            (start.pc, start.sp, start.rbp, is_in_call),
            (0x40_1000, 0x7_ffd0, Some(0), false)
        );
        assert!(registers_of("rip 0x1\norig_rax 0x7\n").is_none());
        assert!(registers_of("rip 0x1\nrsp 0x2\norig_rax 0x7\n").unwrap().1);
        for broken in
            ["", "rip", "rip 1\nrsp 2", "rip 0xg\nrsp 0x1", "rip 0x1ffffffffffffffff\nrsp 0x1"]
        {
            assert!(registers_of(broken).is_none(), "{broken}");
        }
    }
}
