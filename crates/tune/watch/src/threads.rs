//! What `/proc` has of a process's threads.

use std::collections::BTreeSet;
use std::fs;

use fettle_types::{Pid, Tid};

use crate::look::{Progress, ThreadLook};

/// All that there are.
pub(crate) fn tids(pid: Pid) -> BTreeSet<Tid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeSet::new() };
    tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// A look at a thread, by the scheduler's own clock.
pub(crate) fn thread(pid: Pid, tid: Tid) -> Option<ThreadLook> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let cpu_ns = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(ThreadLook { tid, cpu_ns, progress: progress(pid, tid)? })
}

/// What a thread has got done.
pub(crate) fn progress(pid: Pid, tid: Tid) -> Option<Progress> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).ok();
    // Another user's calls are not shown: then its waits are all that is known.
    let io = read("io").unwrap_or_default();
    let calls = number(&io, "syscr:").unwrap_or(0) + number(&io, "syscw:").unwrap_or(0);
    let waits = number(&read("status")?, "voluntary_ctxt_switches:")?;
    Some(Progress { calls, waits })
}

/// The number behind a name in a file of the kernel's.
pub(crate) fn number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}
