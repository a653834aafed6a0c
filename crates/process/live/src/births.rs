//! Threads and processes that were made meanwhile, known without a look at each that there is.
//!
//! In a stop-the-world pause nothing should be read for each of them: a thousand files take milliseconds.
//! The kernel gives numbers in turn, and `/proc/loadavg` has the last one. (Programs that restore others
//! choose numbers themselves; they do so while nothing runs there.)

use fettle_types::{Pid, Tid};

use crate::{maps, process, ptrace};

/// More are not looked at one by one.
const FEW: i32 = 64;

/// A moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Births {
    /// The last number given until then; none where the kernel does not say.
    last: Option<i32>,
}

/// What a process has made since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Born {
    /// No thread, and no child that shares its memory.
    Nothing,
    /// Perhaps either: all have to be looked at.
    Perhaps,
    /// A child that shares its memory.
    Sharing(Tid),
}

impl Births {
    /// Now.
    pub(crate) fn now() -> Births {
        let text = maps::read_proc("/proc/loadavg").unwrap_or_default();
        Births { last: last_number(&text) }
    }

    /// What a process has made since, by the numbers that were given.
    pub(crate) fn of(self, pid: Pid) -> Born {
        let (Some(before), Some(now)) = (self.last, Births::now().last) else {
            return Born::Perhaps;
        };
        // After the highest number the lowest ones follow.
        if now < before || now - before > FEW {
            return Born::Perhaps;
        }
        let mut born = Born::Nothing;
        for tid in (before + 1..=now).filter_map(|number| Tid::try_from(number).ok()) {
            if process::has_task(pid, tid) {
                born = Born::Perhaps;
            } else if ptrace::same_memory(pid.first_thread(), tid) == Some(true) {
                return Born::Sharing(tid);
            }
        }
        born
    }
}

/// A child that runs in the memory of these threads, and is not stopped with them.
pub(crate) fn sharing_child(pid: Pid, threads: impl IntoIterator<Item = Tid>) -> Option<Tid> {
    threads.into_iter().find_map(|tid| {
        let list = format!("/proc/{pid}/task/{tid}/children");
        let list = maps::read_proc(&list).unwrap_or_default();
        let mut children = std::str::from_utf8(&list).unwrap_or("").split_ascii_whitespace();
        children.find_map(|child| {
            let child = child.parse::<Pid>().ok()?.first_thread();
            (ptrace::same_memory(tid, child) == Some(true)).then_some(child)
        })
    })
}

/// The number behind the loads. Some kernels that are none (gVisor) always say 0.
fn last_number(text: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(text).ok()?;
    text.split_ascii_whitespace().nth(4)?.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_last_number_is_read() {
        assert_eq!(last_number(b"0.20 0.18 0.12 1/80 11206\n"), Some(11206));
        assert_eq!(last_number(b"0.00 0.00 0.00 0/0 0\n"), None);
        assert_eq!(last_number(b""), None);
    }

    #[test]
    fn a_thread_that_was_made_is_seen() {
        let before = Births::now();
        let (hold, held) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || held.recv());
        // Other tests make threads, too: more than a few are not told apart.
        assert_eq!(before.of(Pid::own()), Born::Perhaps);
        drop(hold);
        assert!(thread.join().unwrap().is_err());
    }

    #[test]
    fn what_others_make_is_none_of_a_process() {
        let mut sleeping = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::of_child(&sleeping);
        // Once in a while others make too many.
        let none = (0..50).any(|_| {
            let before = Births::now();
            std::process::Command::new("true").status().unwrap();
            before.of(pid) == Born::Nothing
        });
        sleeping.kill().unwrap();
        sleeping.wait().unwrap();
        assert!(none);
    }
}
