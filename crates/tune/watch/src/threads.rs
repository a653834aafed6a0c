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

/// What stands behind a name in a file of the kernel's.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    Some(text.lines().find_map(|line| line.strip_prefix(name))?.trim())
}

/// The number behind a name.
pub(crate) fn number(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.parse().ok()
}

/// The set of signals or the like behind a name: bits, in hexadecimal.
pub(crate) fn mask(text: &str, name: &str) -> Option<u64> {
    u64::from_str_radix(field(text, name)?, 16).ok()
}
