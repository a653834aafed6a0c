//! System calls that fail with EINTR when their thread is stopped, and how long they wait.
//!
//! The kernel restarts most calls by itself (signal(7), "Interruption of system calls and library functions
//! by stop signals"); these it does not. Those without a timeout a pause has restarted.

use std::time::Duration;

use fettle_types::{Pid, Tid};

use crate::maps;

/// The number of `io_pgetevents`.
const IO_PGETEVENTS: i64 = 333;
/// Of `io_uring_enter`'s flags: its last argument has a time-out.
const IORING_ENTER_EXT_ARG: u64 = 1 << 3;

/// How long a system call waits that fails with EINTR when its thread is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Without a timeout, or until a socket has been silent for long.
    Endless,
    /// With this timeout.
    Limited(Duration),
}

/// The timeout of a system call with this number and these arguments, if it can be restarted.
pub(crate) fn patience_of(number: i64, arguments: [u64; 6]) -> Option<Patience> {
    let [_, _, third, fourth, fifth, _] = arguments;
    let endless = |endless: bool| endless.then_some(Patience::Endless);
    match number {
        // An int of milliseconds, below zero for no limit.
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => match u64::try_from(fourth as i32) {
            Ok(limit_ms) => Some(Patience::Limited(Duration::from_millis(limit_ms))),
            Err(_) => Some(Patience::Endless),
        },
        // No timeout.
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => endless(fourth == 0),
        libc::SYS_rt_sigtimedwait => endless(third == 0),
        libc::SYS_semop => Some(Patience::Endless),
        // No timeout, or none that is known: the extended argument is not read.
        libc::SYS_io_getevents | IO_PGETEVENTS => endless(fifth == 0),
        libc::SYS_io_uring_enter => endless(fourth & IORING_ENTER_EXT_ARG == 0),
        // At a socket with SO_RCVTIMEO or SO_SNDTIMEO, which is a limit for one that is silent.
        libc::SYS_read | libc::SYS_readv | libc::SYS_write | libc::SYS_writev => {
            Some(Patience::Endless)
        }
        libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg => Some(Patience::Endless),
        libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg => Some(Patience::Endless),
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_connect => Some(Patience::Endless),
        libc::SYS_sendfile | libc::SYS_splice => Some(Patience::Endless),
        _ => None,
    }
}

/// The calls that have a timeout, by number and name.
const WITH_LIMIT: [(i64, &str); 8] = [
    (libc::SYS_epoll_wait, "epoll_wait"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_epoll_pwait2, "epoll_pwait2"),
    (libc::SYS_semtimedop, "semtimedop"),
    (libc::SYS_rt_sigtimedwait, "sigtimedwait"),
    (libc::SYS_io_getevents, "io_getevents"),
    (IO_PGETEVENTS, "io_pgetevents"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
];

/// The threads of a process that wait now in a call that a pause would end with EINTR, because it has
/// a time limit: the thread, and the call's name. None where the process may not be looked at.
pub fn limited_waits(pid: Pid) -> Vec<(Tid, &'static str)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse::<Tid>().ok());
    let mut waits: Vec<(Tid, &'static str)> = tids
        .filter_map(|tid| {
            let text = maps::read_proc(&format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
            Some((tid, limited_in(std::str::from_utf8(&text).ok()?)?))
        })
        .collect();
    waits.sort_unstable();
    waits
}

/// The name of the call in a `syscall` file (proc_pid_syscall(5)), if it is such a one.
fn limited_in(text: &str) -> Option<&'static str> {
    let mut fields = text.split_ascii_whitespace();
    let number: i64 = fields.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    let (_, name) = WITH_LIMIT.iter().find(|(known, _)| *known == number)?;
    match patience_of(number, arguments) {
        Some(Patience::Endless) => None,
        // It looks, and does not wait.
        Some(Patience::Limited(Duration::ZERO)) => None,
        Some(Patience::Limited(_)) | None => Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_with_a_limit_are_named() {
        let call = |number: i64, fourth: u64| {
            format!("{number} 0x4 0x7ffc 0x0 {fourth:#x} 0x0 0x8 0x7ffc1 0x7f2")
        };
        let wait = libc::SYS_epoll_wait;
        assert_eq!(limited_in(&call(wait, 500)), Some("epoll_wait"));
        assert_eq!(limited_in(&call(wait, u64::from(u32::MAX))), None, "no limit");
        assert_eq!(limited_in(&call(wait, 0)), None, "no wait");
        assert_eq!(limited_in(&call(libc::SYS_semtimedop, 0)), None);
        assert_eq!(limited_in(&call(libc::SYS_semtimedop, 9)), Some("semtimedop"));
        assert_eq!(limited_in(&call(libc::SYS_read, 9)), None, "it is restarted");
        assert_eq!(limited_in("running"), None);
    }

    #[test]
    fn a_thread_that_waits_is_found() {
        let poll = |epoll: i32| {
            // SAFETY: an epoll instance of ours, and room for no event.
            unsafe {
                let mut event: libc::epoll_event = std::mem::zeroed();
                libc::epoll_wait(epoll, &raw mut event, 1, 3000)
            }
        };
        // SAFETY: takes a number only.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let waiting = std::thread::spawn(move || poll(epoll));
        std::thread::sleep(Duration::from_millis(300));
        let found = limited_waits(Pid::own());
        assert!(found.iter().any(|(_, name)| *name == "epoll_wait"), "{found:?}");
        waiting.join().unwrap();
    }
}
