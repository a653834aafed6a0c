//! What the kernel reports of a system's processes while a program runs in it.

use std::convert::Infallible;
use std::fs;
use std::time::Duration;

use fettle_kernel_events::raw::{self, Kind};
use fettle_kernel_events::{Capture, Options, ring};
use fettle_types::Pid;

use super::account::{Before, Entry, Out, What};
use crate::error::CompareError;
use crate::processes;

/// Bytes of each processor's ring.
const RING: u32 = 32 << 20;
/// How often rings are emptied.
const PERIOD: Duration = Duration::from_millis(5);
/// Most entries of a run.
const MOST: usize = 10_000_000;
/// The number of `ptrace`.
const PTRACE: u32 = 101;
/// Flags of a switch: the thread before could go on, is observed; the one after is.
const READY: u16 = 1;
const BEFORE: u16 = 2;
const AFTER: u16 = 4;

/// A recording that can be begun and ended again and again.
#[derive(Debug)]
pub(super) struct Recorder {
    capture: Capture,
    lost: u64,
}

/// What was recorded of a run.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) before: Before,
    /// In order of time; `None` where they are not whole, with the reason.
    pub(super) entries: Result<Vec<Entry>, String>,
}

impl Recorder {
    /// Puts the programs into the kernel.
    pub(super) fn new() -> Result<Recorder, CompareError> {
        let options = Options { only_calls: true, ring_bytes: RING, ..Options::default() };
        Ok(Recorder { capture: Capture::new(&options)?, lost: 0 })
    }

    /// Runs `work` while a process and all that descend from it are recorded.
    pub(super) fn during<T: Send>(
        &mut self,
        pid: Pid,
        work: impl FnOnce() -> Result<T, CompareError> + Send,
    ) -> Result<(T, Recorded), CompareError> {
        let tree = self.capture.processes().observe_tree(pid)?;
        self.capture.start()?;
        let before = before(tree.into_iter());
        let mut entries = Vec::new();
        let worked = std::thread::scope(|scope| {
            let working = scope.spawn(work);
            while !working.is_finished() {
                self.drain(&mut entries);
                std::thread::sleep(PERIOD);
            }
            working.join().expect("what runs a program does not panic")
        });
        self.capture.stop();
        self.drain(&mut entries);
        let lost = self.capture.losses()?.total();
        let missing = lost - std::mem::replace(&mut self.lost, lost);
        entries.sort_by_key(|entry: &Entry| entry.time_ns);
        let entries = match (missing, entries.len()) {
            (_, MOST..) => {
                Err(format!("a run has more than {MOST} events; a shorter one can be explained"))
            }
            (0, _) => Ok(entries),
            (n, _) => Err(format!("{n} of the kernel's events were lost")),
        };
        Ok((worked?, Recorded { before, entries }))
    }

    fn drain(&mut self, entries: &mut Vec<Entry>) {
        let drained: Result<usize, Infallible> = self.capture.drain(|cpu, bytes| {
            for range in ring::records(bytes) {
                let Some(record) = raw::Record::read(&bytes[range]) else { continue };
                let read = [read(cpu, &record), asked(cpu, &record)];
                let room = MOST.saturating_sub(entries.len());
                entries.extend(read.into_iter().flatten().take(room));
            }
            Ok(())
        });
        let Ok(_) = drained;
    }
}

/// What `ptrace` is asked for, by a call that begins.
fn asked(cpu: u32, raw: &raw::Record<'_>) -> Option<Entry> {
    let is_ptrace = raw.kind == Kind::Call && raw.flags != 0 && raw.number == PTRACE;
    let (time_ns, task, process) = (raw.time_ns, raw.tid, raw.pid);
    is_ptrace.then(|| {
        let what = What::Asked(raw.word(0) as u32);
        Entry { time_ns, cpu, task, process, what }
    })
}

fn read(cpu: u32, raw: &raw::Record<'_>) -> Option<Entry> {
    let what = match raw.kind {
        Kind::Switch => What::Switch {
            next: (raw.flags & AFTER != 0).then_some(raw.word(1) as u32),
            out: (raw.flags & BEFORE != 0).then(|| Out {
                ready: raw.flags & READY != 0,
                // In none: -1.
                call: (raw.number as i32 > 0).then(|| raw.number - 1),
            }),
        },
        Kind::Call if raw.flags != 0 => What::Begin(raw.number),
        Kind::Call => What::End,
        Kind::Fork => What::Fork { task: raw.word(0) as u32, process: raw.word(1) as u32 },
        Kind::Exit => What::Gone,
        Kind::Wake => What::Woken(raw.number),
        _ => return None,
    };
    Some(Entry { time_ns: raw.time_ns, cpu, task: raw.tid, process: raw.pid, what })
}

/// The processes as they are now.
fn before(tree: impl Iterator<Item = Pid>) -> Before {
    let mut found = Before::default();
    for pid in tree {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<u32>().ok().filter(|number| *number != 0)
        };
        let parent = number("PPid:").unwrap_or(0);
        found.processes.insert(pid.unsigned(), (parent, number("TracerPid:")));
        for tid in processes::threads(pid) {
            found.threads.insert(tid.unsigned(), pid.unsigned());
        }
    }
    found
}
