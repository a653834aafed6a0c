//! What is known of a process, kept in a folder before anything is done to it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fettle_live::{Process, StateLimits, ThreadState};
use fettle_types::{Pid, Tid};

use crate::finding::{Finding, Why};
use crate::look::Look;

/// What `/proc` has of a process.
const OF_PROCESS: [&str; 6] = ["cmdline", "status", "maps", "limits", "cgroup", "io"];
/// What it has of each thread. The kernel's stack needs root.
const OF_THREAD: [&str; 7] = ["comm", "status", "stat", "syscall", "wchan", "stack", "schedstat"];
/// Registers of a thread, by name, one a line.
pub const REGISTERS: &str = "registers";
/// What lies on its stack, from its stack pointer on.
pub const STACK_MEMORY: &str = "stack-memory";
/// Why of some threads, or all, there are none of these.
pub const NO_REGISTERS: &str = "no-registers";
/// What the threads were executing, by name.
pub const CALLERS: &str = "callers.txt";
/// Threads of which it is kept.
const THREADS_MAX: usize = 256;

/// What is taken of registers and stacks: threads wait at most some milliseconds for each other.
const STATES: StateLimits =
    StateLimits { within: Duration::from_millis(10), stack_bytes: 256 << 10, total_bytes: 8 << 20 };

/// What was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where.
    pub folder: PathBuf,
    /// Of how many threads it has the registers, and how long these were stopped for that; or why of none.
    pub threads: Result<(usize, Duration), String>,
}

/// Makes a folder below `place` and writes into it what is known. What cannot be read is left
/// out. The process's threads are stopped briefly for their registers and stacks, unless another program traces them.
///
/// # Errors
///
/// When the folder cannot be made or written to.
pub fn keep(
    place: &Path,
    rule: &str,
    finding: &Finding,
    looks: &[Look],
    at_ms: u64,
) -> io::Result<Kept> {
    let pid = finding.process.pid;
    let folder = folder(place, rule, pid, at_ms)?;
    fs::write(folder.join("finding.json"), serde_json::to_vec_pretty(finding)?)?;
    fs::write(folder.join("looks.json"), serde_json::to_vec(looks)?)?;
    let process = PathBuf::from(format!("/proc/{pid}"));
    for name in OF_PROCESS {
        copy(&process.join(name), &folder.join(name))?;
    }
    let mut sockets = String::new();
    for file in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
        if let (Some(number), Ok(target)) = (file.file_name().to_str(), fs::read_link(file.path()))
        {
            sockets.push_str(&format!("{number} {}\n", target.display()));
        }
    }
    fs::write(folder.join("files"), sockets)?;
    let tasks = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    for task in tasks.take(THREADS_MAX) {
        let thread = folder.join(format!("thread-{}", task.file_name().to_string_lossy()));
        DirBuilder::new().mode(0o700).create(&thread)?;
        for name in OF_THREAD {
            copy(&task.path().join(name), &thread.join(name))?;
        }
    }
    let threads = states(&folder, finding)?;
    Ok(Kept { folder, threads })
}

/// Writes down what threads have in their registers and on their stacks.
fn states(folder: &Path, finding: &Finding) -> io::Result<Result<(usize, Duration), String>> {
    let pid = finding.process.pid;
    let opened = Process::open(pid).map_err(|error| error.to_string());
    let found = opened.and_then(|process| match process.start_time() == finding.process.start {
        true => process.thread_states(&STATES).map_err(|error| error.to_string()),
        false => Err("it has ended".to_owned()),
    });
    let mut states = match found {
        Ok(states) => states,
        Err(why) => {
            fs::write(folder.join(NO_REGISTERS), format!("{why}\n"))?;
            return Ok(Err(why));
        }
    };
    // Those that it is about come first, if there are very many.
    states.threads.sort_by_key(|thread| (!concerns(&finding.why, thread.tid), thread.tid));
    for thread in states.threads.iter().take(THREADS_MAX) {
        write_state(folder, thread)?;
    }
    if !states.missed.is_empty() {
        let tids: Vec<String> = states.missed.iter().map(Tid::to_string).collect();
        let why = "did not stop in time (they wait for a device, or get no processor)";
        fs::write(folder.join(NO_REGISTERS), format!("threads {} {why}\n", tids.join(", ")))?;
    }
    Ok(Ok((states.threads.len(), states.paused_for)))
}

fn write_state(folder: &Path, thread: &ThreadState) -> io::Result<()> {
    let place = folder.join(format!("thread-{}", thread.tid));
    DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
    let mut text = String::new();
    for (name, value) in &thread.registers {
        text.push_str(&format!("{name} {value:#x}\n"));
    }
    fs::write(place.join(REGISTERS), text)?;
    fs::write(place.join(STACK_MEMORY), &thread.stack)
}

/// Whether a finding names a thread.
fn concerns(why: &Why, thread: Tid) -> bool {
    match why {
        Why::Spins { tid, .. } => *tid == thread,
        Why::Cycle { tids } => tids.contains(&thread),
        _ => false,
    }
}

/// The folder of what a rule has found, which is made if need be.
///
/// # Errors
///
/// When it cannot be made.
pub fn folder(place: &Path, rule: &str, pid: Pid, at_ms: u64) -> io::Result<PathBuf> {
    let folder = place.join(format!("{rule}-{pid}-{at_ms}"));
    // It may hold command lines, which other users must not read.
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    // Other programs are run in it.
    fs::canonicalize(folder)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::read(from) {
        Ok(bytes) => fs::write(to, bytes),
        Err(_) => Ok(()),
    }
}
