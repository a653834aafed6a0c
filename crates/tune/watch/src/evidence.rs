//! What is known of a process, kept in a folder before anything is done to it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fettle_live::{Process, StateLimits, ThreadState};
use fettle_types::{Pid, Tid};
use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::last::{FINDING, Last, concerns};
use crate::scene::Scene;
use crate::threads::{number, tids};

/// What `/proc` has of a process.
const OF_PROCESS: [&str; 6] = ["cmdline", "status", "maps", "limits", "cgroup", "io"];
/// What it has of each thread. The kernel's stack needs root.
const OF_THREAD: [&str; 8] =
    ["comm", "status", "stat", "syscall", "wchan", "stack", "schedstat", "io"];
/// What the kernel counts of threads, and since when they have not got on: a [`Words`].
pub const WORDS: &str = "progress.json";
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

/// What is known of a process's progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// Bytes that lie unread in its connections, if a rule asks for that.
    pub unread: Option<u64>,
    /// Its threads.
    pub threads: Vec<ThreadWords>,
}

/// What the kernel counts of a thread, and since when it has not got on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadWords {
    /// Which one.
    pub tid: Tid,
    /// The number of the system call that it is in.
    pub call: Option<u32>,
    /// For how long it has passed no mark of progress, in nanoseconds, if a rule asks for that.
    pub still_ns: Option<u64>,
    /// CPU time that it has used meanwhile, in nanoseconds.
    pub used_ns: Option<u64>,
    /// Times it has waited for something.
    pub waits: Option<u64>,
    /// System calls that read, and their bytes.
    pub reads: Option<(u64, u64)>,
    /// System calls that write, and their bytes.
    pub writes: Option<(u64, u64)>,
}

/// What was kept.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Where.
    pub folder: PathBuf,
    /// Of how many threads it has the registers, and how long these were stopped for that; or why of none.
    pub threads: Result<(usize, Duration), String>,
    /// What is to become a trace.
    pub(crate) last: Last,
}

/// Makes a folder below `place` and writes into it what is known. What cannot be read is left
/// out. The process's threads are stopped briefly for their registers and stacks, unless another program traces them.
///
/// # Errors
///
/// When the folder cannot be made or written to.
pub(crate) fn keep(place: &Path, rule: &str, scene: &Scene<'_>) -> io::Result<Kept> {
    let finding = scene.finding;
    let pid = finding.process.pid;
    let folder = folder(place, rule, pid, scene.at_ms)?;
    // First, as the process goes on.
    let last = Last::take(&folder, rule, scene);
    fs::write(folder.join(FINDING), serde_json::to_vec_pretty(finding)?)?;
    fs::write(folder.join("looks.json"), serde_json::to_vec(scene.looks)?)?;
    fs::write(folder.join(WORDS), serde_json::to_vec_pretty(&words(scene))?)?;
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
    Ok(Kept { folder, threads, last })
}

/// What the kernel counts of a process's threads.
fn words(scene: &Scene<'_>) -> Words {
    let id = scene.finding.process;
    let looks = scene.looks.iter().rev().flat_map(|look| &look.processes);
    let looks = || looks.clone().filter(move |process| process.id == id);
    let threads = looks().find_map(|process| process.threads.as_ref());
    let words = |tid: Tid| {
        let read = |name: &str| fs::read_to_string(format!("/proc/{}/task/{tid}/{name}", id.pid));
        let [io, status, call] =
            ["io", "status", "syscall"].map(|name| read(name).unwrap_or_default());
        let mark = scene.marks.get(&tid);
        let look = threads.and_then(|threads| threads.iter().find(|look| look.tid == tid));
        ThreadWords {
            tid,
            call: call.split_ascii_whitespace().next().and_then(|word| word.parse().ok()),
            still_ns: mark.map(|(at_ns, _)| scene.at_ns.saturating_sub(*at_ns)),
            used_ns: mark.zip(look).map(|((_, cpu_ns), look)| look.cpu_ns.saturating_sub(*cpu_ns)),
            waits: number(&status, "voluntary_ctxt_switches:"),
            reads: number(&io, "syscr:").zip(number(&io, "rchar:")),
            writes: number(&io, "syscw:").zip(number(&io, "wchar:")),
        }
    };
    let tids = tids(id.pid).into_iter().take(THREADS_MAX);
    Words { unread: looks().find_map(|process| process.unread), threads: tids.map(words).collect() }
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
