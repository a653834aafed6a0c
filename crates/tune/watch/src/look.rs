//! What was seen of processes at one moment, as plain data: [`crate::Judge`] decides by nothing else.

use fettle_types::{Pid, Tid};
use serde::{Deserialize, Serialize};

/// A look at all processes that are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// When, in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Those that were looked at.
    pub processes: Vec<ProcessLook>,
    /// What earlier watchers have learned of programs that are seen here for the first time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<LearnedLimit>,
}

/// What is usual for a program's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedLimit {
    /// The program.
    pub program: String,
    /// Marks of progress that were seen.
    pub marks: u64,
    /// CPU time between two of them, in nanoseconds, and how often it was that long.
    pub stretches: Vec<(u64, u64)>,
}

/// Which process: a PID may be used again, with another start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// PID.
    pub pid: Pid,
    /// When it was started, in clock ticks since the boot.
    pub start: u64,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLook {
    /// Which one.
    pub id: ProcessId,
    /// Its program.
    pub program: String,
    /// Whether a watched process has started it.
    pub is_worker: bool,
    /// CPU time of all its threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Whether that, and what its threads have used, is as of now. Otherwise it is as old as the scheduler's last look at
    /// a thread, some milliseconds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_exact: bool,
    /// Why it cannot be expected to get on, if so.
    pub held: Option<Held>,
    /// Its threads were stopped just now, for evidence: that they have waited for that, and were woken, is no progress.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
    /// Its threads, if they were looked at. Looking at all of them each time would cost too much.
    pub threads: Option<Vec<ThreadLook>>,
    /// Threads that wait for a mutex whose owner its memory names, if that was looked at.
    pub waits: Option<Vec<WaitLook>>,
    /// Bytes in TCP connections that it has not read, if that was looked at: while all its threads sleep.
    pub unread: Option<u64>,
    /// It has been woken and waits for a processor: it does not sleep, though it has used no CPU time.
    #[serde(default)]
    pub is_awake: bool,
    /// Scalar sensors, by name, if that was looked at.
    pub scalars: Vec<(String, i64)>,
    /// Histogram sensors, if that was looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histograms: Vec<HistogramLook>,
    /// Requests that it has answered, if that was looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestsLook>,
}

impl ProcessLook {
    /// A look at a process, of which nothing is known yet.
    pub fn new(id: ProcessId, program: String) -> ProcessLook {
        ProcessLook {
            id,
            program,
            is_worker: false,
            cpu_ns: 0,
            is_exact: false,
            held: None,
            disturbed: false,
            threads: None,
            waits: None,
            unread: None,
            is_awake: false,
            scalars: Vec::new(),
            histograms: Vec::new(),
            requests: Vec::new(),
        }
    }

    /// A worker with these threads, for tests.
    #[cfg(test)]
    pub(crate) fn working(first: Tid, threads: Vec<ThreadLook>) -> ProcessLook {
        let id = ProcessId { pid: first.as_process(), start: 1 };
        let cpu_ns = threads.iter().map(|thread| thread.cpu_ns).sum();
        let threads = Some(threads);
        ProcessLook { is_worker: true, cpu_ns, threads, ..ProcessLook::new(id, "app".into()) }
    }
}

/// Requests of a kind that a process has answered so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestsLook {
    /// Which ones, as a rule says it.
    pub pattern: String,
    /// How many of them have failed.
    pub failed: u64,
    /// How many took how long, by the least time of their bucket in nanoseconds, in order.
    pub counts: Vec<(u64, u64)>,
}

/// What a histogram sensor has counted so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramLook {
    /// Its name.
    pub name: String,
    /// How many values there were, by the least value of their bucket, in order.
    pub counts: Vec<(u64, u64)>,
}

/// Why a process does not get on without being at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// SIGSTOP, or the like.
    Stopped,
    /// A debugger, or Fettle itself.
    Traced,
    /// It waits for a device (state D), as when its memory is swapped in or a core dump is written.
    Uninterruptible,
    /// It has ended.
    Ended,
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLook {
    /// Its number.
    pub tid: Tid,
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
    /// What it has got done, as far as the kernel counts.
    pub progress: Progress,
}

/// Marks of progress: what does not change while a thread is in a loop that does nothing but compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// System calls that read or write bytes.
    pub calls: u64,
    /// Times it waited for something.
    pub waits: u64,
}

impl Progress {
    /// Marks that were passed since `before`.
    pub fn since(self, before: Progress) -> u64 {
        self.calls.saturating_sub(before.calls) + self.waits.saturating_sub(before.waits)
    }
}

/// A thread that waits for a mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitLook {
    /// The thread.
    pub tid: Tid,
    /// The mutex's address.
    pub mutex: u64,
    /// The thread that holds it.
    pub owner: Tid,
}
