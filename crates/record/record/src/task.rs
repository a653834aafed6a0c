//! What the kernel accounts to a thread.

use std::fs;

use fettle_types::{Pid, Tid};

/// Name and CPU time of a thread.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// As `/proc` has it: the program's file name unless the thread named itself.
    pub name: String,
    /// Nanoseconds on a processor since its creation, in user and kernel mode; `None` if the kernel does
    /// not count them.
    pub cpu_ns: Option<u64>,
}

/// The account of a thread that has not been waited for.
pub fn account(pid: Pid, tid: Tid) -> Account {
    let read = |file| fs::read(format!("/proc/{pid}/task/{tid}/{file}")).unwrap_or_default();
    let name = String::from_utf8_lossy(&read("comm")).trim_end_matches('\n').to_owned();
    let text = String::from_utf8_lossy(&read("schedstat")).into_owned();
    let cpu_ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Account { name, cpu_ns }
}

/// The system call that a thread waits in; `None` if it runs, waits for a lock, or is stopped: its tracer keeps it
/// then, in a call that the tracer's own code makes or that is over.
pub fn system_call(pid: Pid, tid: Tid) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    // Elsewhere in the kernel, as in a page fault, the number is -1.
    let call: u32 = text.split_ascii_whitespace().next()?.parse().ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    (i64::from(call) != libc::SYS_futex && !is_stopped(&stat)).then_some(call)
}

/// Whether the line of a thread's `stat` says that it is stopped; its name may have any letters.
fn is_stopped(stat: &str) -> bool {
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('t' | 'T'))
}

/// How much address space a process allows itself, if it does not allow itself all (`RLIMIT_AS`); of
/// one that has ended, too, until it has been waited for.
pub fn address_limit(pid: Pid) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: nothing is set, and the result has room for what is read.
    unsafe { libc::prlimit(pid.get(), libc::RLIMIT_AS, std::ptr::null(), &mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_threads_are_told_by_their_state() {
        assert!(is_stopped("7 (a) S 1) t 1 2") && is_stopped("7 (a) T 1"));
        assert!(!is_stopped("7 (a) t) S 1") && !is_stopped("") && !is_stopped("7 t"));
    }

    #[test]
    fn our_own() {
        let own = Pid::own();
        let account = super::account(own, own.first_thread());
        assert!(!account.name.is_empty());
        let counted = std::path::Path::new("/proc/self/schedstat").exists();
        assert_eq!(account.cpu_ns.is_some(), counted);
    }
}
