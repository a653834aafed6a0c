//! `fettle watch --evidence`: what a watcher has kept of a process, and what its threads were executing. The same stands
//! above the report of the trace in the evidence.

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
use fettle_watch::evidence::{NO_REGISTERS, REGISTERS, STACK_MEMORY, ThreadWords, WORDS, Words};
use fettle_watch::last::{FINDING, NO_TRACE, OPEN, OpenRequest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::finding::{ms, why};
use crate::locks::names::{Files, is_code};
use crate::locks::stack::{Start, callers};
use crate::output;

/// Frames of a thread that are shown.
const FRAMES: usize = 64;
/// The last steps of a request that are shown.
const STEPS: usize = 12;
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
    /// What the kernel had counted of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<ThreadWords>,
    /// What it was executing, innermost first; none where its registers were not kept.
    callers: Vec<Place>,
}

/// What is in a folder of evidence.
pub struct Evidence {
    finding: Finding,
    command: String,
    missing: Option<String>,
    unread: Option<u64>,
    threads: Vec<Thread>,
    open: Vec<OpenRequest>,
    no_trace: Option<String>,
}

/// Shows the folder.
///
/// # Errors
///
/// When it is none of evidence.
pub fn run(folder: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let evidence = Evidence::read(folder)?;
    output::print(&match as_json {
        true => format!("{:#}\n", evidence.json()),
        false => evidence.text(),
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Evidence {
    /// Reads a folder.
    ///
    /// # Errors
    ///
    /// When it is none of evidence.
    pub fn read(folder: &Path) -> anyhow::Result<Evidence> {
        let finding = read(&folder.join(FINDING))
            .with_context(|| format!("{} is no folder of evidence", folder.display()))?;
        let finding: Finding = serde_json::from_slice(&finding)
            .with_context(|| format!("{}/{FINDING} is no finding", folder.display()))?;
        let pid = finding.process.pid;
        let maps = fettle_live::parse_maps(&read(&folder.join("maps")).unwrap_or_default());
        let files = Files::new(&HashMap::from([(pid.unsigned(), maps.clone())]));
        let words: Words = parsed(&folder.join(WORDS));
        let mut threads = Vec::new();
        for entry in fs::read_dir(folder)?.flatten() {
            let name = entry.file_name();
            let tid = name.to_str().and_then(|name| name.strip_prefix("thread-")?.parse().ok());
            threads.extend(tid.map(|tid| thread(&entry.path(), tid, pid, (&files, &maps))));
        }
        threads.sort_by_key(|thread| thread.tid);
        for thread in &mut threads {
            thread.counted = words.threads.iter().find(|words| words.tid == thread.tid).cloned();
        }
        let said = |name: &str| read(&folder.join(name)).map(|text| line(&text)).ok();
        Ok(Evidence {
            finding,
            command: said("cmdline").unwrap_or_default(),
            missing: said(NO_REGISTERS),
            unread: words.unread,
            threads,
            open: parsed(&folder.join(OPEN)),
            no_trace: said(NO_TRACE),
        })
    }

    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        let Evidence { finding, command, missing, unread, threads, open, no_trace } = self;
        json!({
            "version": 1, "finding": finding, "command": command, "threads": threads,
            "no_registers": missing, "unread": unread, "requests": open, "no_trace": no_trace,
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let (pid, command) = (self.finding.process.pid, &self.command);
        let mut text = format!("process {pid}: {command}\n{}\n", why(&self.finding));
        if let Some(unread) = self.unread.filter(|unread| *unread > 0) {
            text.push_str(&format!("{unread} bytes lay unread in its connections\n"));
        }
        if let Some(missing) = &self.missing {
            text.push_str(&format!("no registers: {missing}\n"));
        }
        if let Some(why) = &self.no_trace {
            text.push_str(&format!("no trace of what it did last: {why}\n"));
        }
        self.open.iter().for_each(|open| show_request(open, &mut text));
        self.threads.iter().for_each(|thread| thread.show(&mut text));
        text
    }
}

/// A request that was not answered, and the last steps of its thread.
fn show_request(open: &OpenRequest, text: &mut String) {
    let what = one_line(open.what.clone());
    let by = open.tid.map_or_else(String::new, |tid| format!(", read by thread {tid}"));
    text.push_str(&format!("\nrequest {what}: not answered for {}{by}\n", ms(open.open_ns)));
    let first = open.steps.len().saturating_sub(STEPS);
    let earlier = first + open.steps_left_out;
    if earlier > 0 {
        text.push_str(&format!(
            "    {}\n",
            output::plural(earlier as u64, "earlier step", "earlier steps")
        ));
    }
    for step in &open.steps[first..] {
        let field = |(name, value): (&String, &serde_json::Value)| match value.as_str() {
            Some("") => String::new(),
            Some(text) => format!(" {name} {text}"),
            None => format!(" {name} {value}"),
        };
        let fields: String = step.fields.iter().map(field).collect();
        let after = ms(step.after_ns);
        text.push_str(&format!(
            "    {after:>10}  {}\n",
            one_line(format!("{}{fields}", step.event))
        ));
    }
}

impl Thread {
    fn show(&self, text: &mut String) {
        let call = self.call.as_ref().map_or_else(String::new, |call| format!(", in {call}"));
        text.push_str(&format!("\nthread {} {} ({}{call})\n", self.tid, self.name, self.state));
        if let Some(counted) = &self.counted {
            text.push_str(&counted_text(counted));
        }
        for place in &self.callers {
            text.push_str(&format!("    {}\n", one_line(place.text())));
        }
    }
}

/// What the kernel had counted of a thread, in a line; nothing if it said nothing.
fn counted_text(words: &ThreadWords) -> String {
    let mut parts = Vec::new();
    if let Some(still_ns) = words.still_ns {
        let used = words.used_ns.map_or_else(String::new, |ns| format!(", {} of CPU time", ms(ns)));
        parts.push(format!("no progress for {}{used}", ms(still_ns)));
    }
    for (name, counted) in [("reads", words.reads), ("writes", words.writes)] {
        parts.extend(counted.map(|(calls, bytes)| format!("{calls} {name} of {bytes} bytes")));
    }
    parts.extend(words.waits.map(|waits| output::plural(waits, "wait", "waits")));
    match parts.is_empty() {
        true => String::new(),
        false => format!("  {}\n", parts.join("; ")),
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
        counted: None,
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

/// What a file of JSON holds; nothing where there is none, or where it is damaged.
fn parsed<T: DeserializeOwned + Default>(path: &Path) -> T {
    let bytes = read(path).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
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
