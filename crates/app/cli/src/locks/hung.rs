//! Which thread waits for which in a process that hangs, by what the kernel says of its threads and what
//! lies in its memory. Nothing is written there, and no thread is stopped.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use fettle_live::Mapping;
use fettle_locks::futex::{FutexWait, TID};
use fettle_locks::hung::{Awaited, Waiting, cycles, unowned};
use fettle_locks::{Names, Place};
use fettle_types::Pid;
use serde_json::json;

use crate::locks::names::{Files, is_code};
use crate::locks::stack;
use crate::output::write_to;

/// Callers that are shown.
const CALLERS: usize = 6;
/// Frames that are looked at for them.
const FRAMES: usize = 16;

/// Runs the command.
pub fn run(pid: Pid, as_json: bool, output: Option<&Path>) -> anyhow::Result<ExitCode> {
    let look = Look::open(pid)?;
    let waiting = look.confirmed()?;
    let circles = cycles(&waiting.threads);
    if as_json {
        let value = json!({
            "version": 1,
            "pid": pid,
            "threads": waiting.all,
            "waiting": waiting.threads,
            "deadlocks": circles,
        });
        write_to(output, &format!("{value:#}\n"))?;
    } else {
        write_to(output, &fettle_locks::text::hung(waiting.all, &waiting.threads))?;
    }
    Ok(if circles.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Threads that wait, of all.
struct Found {
    all: u64,
    threads: Vec<Waiting>,
}

fn is_c_library(place: &Place) -> bool {
    ["libc.so", "libc-", "libpthread", "ld-musl"].iter().any(|name| place.module.starts_with(name))
}

struct Look {
    pid: Pid,
    memory: File,
    maps: Vec<Mapping>,
    files: Files,
    threads: BTreeMap<u32, String>,
}

const WAITERS: u32 = 0x8000_0000;

impl Look {
    fn open(pid: Pid) -> anyhow::Result<Look> {
        let what = || format!("cannot look at process {pid}");
        let maps = fettle_live::maps_of(pid).with_context(what)?;
        if maps.is_empty() {
            bail!("process {pid} has no memory: it has ended, or is the kernel's");
        }
        let memory = File::open(format!("/proc/{pid}/mem")).with_context(|| {
            format!(
                "cannot read the memory of process {pid}: it is another user's, or ptrace is not \
                 allowed (kernel.yama.ptrace_scope); as root it can be read"
            )
        })?;
        let mut threads = BTreeMap::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/task")).with_context(what)? {
            let name = entry.with_context(what)?.file_name();
            let Ok(tid) = name.to_string_lossy().parse::<u32>() else { continue };
            let comm = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
            threads.insert(tid, comm.unwrap_or_default().trim_end().to_owned());
        }
        let files = Files::new(&HashMap::from([(pid.unsigned(), maps.clone())]));
        Ok(Look { pid, memory, maps, files, threads })
    }

    /// Which threads wait, and still do shortly after: no holder is named for those that only wait
    /// briefly, as they are in no deadlock.
    fn confirmed(&self) -> anyhow::Result<Found> {
        let before = self.waiting();
        std::thread::sleep(Duration::from_millis(50));
        let mut after = self.waiting();
        for thread in &mut after {
            if !before.contains(thread) {
                thread.holder = None;
            }
        }
        Ok(Found { all: self.threads.len() as u64, threads: after })
    }

    fn waiting(&self) -> Vec<Waiting> {
        let (pid, number) = (self.pid, self.pid.unsigned());
        let mut found = Vec::new();
        for (tid, name) in &self.threads {
            let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
            // A thread that has ended meanwhile does not wait.
            let Ok(text) = text else { continue };
            let Some(call) = FutexWait::parse(&text) else { continue };
            let (mut awaited, holder) = self.awaited(&call);
            let start = stack::Start { pc: call.pc, sp: call.sp, rbp: None, is_next: false };
            let callers = stack::callers(&self.files, number, start, FRAMES, |at| self.word(at));
            let places: Vec<Place> = callers
                .into_iter()
                .filter(|at| is_code(&self.maps, *at))
                .map(|at| self.files.place(number, at))
                .collect();
            if let Awaited::Unknown { kind, .. } = &mut awaited {
                let inside = places.iter().take_while(|place| is_c_library(place));
                *kind = inside.filter_map(|place| unowned(&place.function)).last();
            }
            let own = places.into_iter().filter(|place| !is_c_library(place));
            let stack = own.take(CALLERS).collect();
            found.push(Waiting { tid: *tid, thread: name.clone(), awaited, holder, stack });
        }
        found
    }

    fn half(&self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.memory.read_exact_at(&mut bytes, at).ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The number, if it is that of a thread of the process.
    fn thread(&self, tid: Option<u32>) -> Option<u32> {
        tid.map(|tid| tid & TID).filter(|tid| self.threads.contains_key(tid))
    }

    fn lock(&self, kind: &'static str, address: u64) -> Awaited {
        Awaited::Lock { kind, address, name: self.files.variable(self.pid.unsigned(), address) }
    }

    /// What a thread waits for, by what lies in memory; and which thread has it.
    fn awaited(&self, call: &FutexWait) -> (Awaited, Option<u32>) {
        let (at, value, now) = (call.address, call.value, self.half(call.address));
        let owner = self.thread(call.owner(|at| self.half(at)));
        if call.inherits_priority || owner.is_some() {
            return (self.lock("mutex", at), owner);
        }
        // A robust one, and musl's: the owner's number with a flag for waiters.
        if value & WAITERS != 0
            && let Some(owner) = self.thread(Some(value))
        {
            let robust = self.half(at + 8) == Some(owner);
            return (
                self.lock("mutex", if robust { at } else { at.saturating_sub(4) }),
                Some(owner),
            );
        }
        // glibc's reader-writer lock has two words to wait at, and the writer's number behind them.
        for back in [8, 12] {
            let base = at.saturating_sub(back);
            let writer = self.thread(self.half(base + 24));
            let locked = self.half(base).is_some_and(|readers| readers & 2 != 0);
            if let (Some(writer), true) = (writer, locked) {
                return (self.lock("rwlock", base), Some(writer));
            }
        }
        // A thread's own number, which the kernel clears when it ends: `pthread_join`.
        if let (Some(ended), true) = (self.thread(Some(value)), now == Some(value)) {
            return (Awaited::End, Some(ended));
        }
        let name = self.files.variable(self.pid.unsigned(), at);
        (Awaited::Unknown { kind: None, address: at, name }, None)
    }
}
