//! Scheduling priority: raised while a process is paused for us, lowered while it works.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use fettle_types::{Pid, Tid};

use crate::maps;

const RESET_ON_FORK: i32 = 0x4000_0000;

/// Raises the calling thread's priority, where that is allowed: to real time, else to the highest
/// weight. Threads that it creates do not inherit it.
pub(crate) fn raise_priority() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure is ours, and read only; 0 is the calling thread. The others take
    // numbers only.
    unsafe {
        if libc::sched_setscheduler(0, libc::SCHED_FIFO | RESET_ON_FORK, &lowest) != 0 {
            let _ = libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        }
        // Sleeps of microseconds must not be rounded up.
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
}

/// As long as this exists, the kernel gives our own memory small pages only. To clear a huge one at
/// its first touch takes some milliseconds where a hypervisor has to find memory for it first.
/// Programs inherit the setting, so none must be started meanwhile.
pub(crate) struct SmallPages(());

/// How many of them there are, and the setting before the first.
static SMALL_PAGES: Mutex<(usize, bool)> = Mutex::new((0, false));

impl SmallPages {
    pub(crate) fn begin() -> SmallPages {
        let mut held = SMALL_PAGES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if held.0 == 0 {
            held.1 = disables_huge_pages();
            disable_huge_pages(true);
        }
        held.0 += 1;
        SmallPages(())
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        let mut held = SMALL_PAGES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        held.0 -= 1;
        if held.0 == 0 {
            disable_huge_pages(held.1);
        }
    }
}

/// Raises the limit on open files to what is allowed: some are needed for each process that is
/// changed. Programs that are started afterwards inherit it.
pub fn open_many_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours; the kernel fills it, and reads it.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Whether the kernel gives this process no huge pages.
fn disables_huge_pages() -> bool {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) != 0 }
}

fn disable_huge_pages(disable: bool) {
    // Where it cannot be set, some pauses take longer.
    // SAFETY: takes numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(disable), 0, 0, 0);
    }
}

/// The calling thread has a higher scheduling priority ([`raise_priority`]) as long as this exists, which
/// must not be given to another thread.
pub(crate) struct Boost {
    /// What it was before.
    nice: i32,
    /// Not to be sent to another thread.
    _own: std::marker::PhantomData<*const ()>,
}

impl Boost {
    pub(crate) fn begin() -> Boost {
        // SAFETY: takes numbers only; 0 is the calling thread.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        raise_priority();
        Boost { nice, _own: std::marker::PhantomData }
    }
}

impl Drop for Boost {
    fn drop(&mut self) {
        let plain = libc::sched_param { sched_priority: 0 };
        // SAFETY: the structure is ours, and read only; 0 is the calling thread. The others take
        // numbers only.
        unsafe {
            libc::sched_setscheduler(0, libc::SCHED_OTHER | RESET_ON_FORK, &plain);
            libc::setpriority(libc::PRIO_PROCESS, 0, self.nice);
        }
    }
}

/// Lowers the calling thread's priority, so that other threads get most of a processor: for long
/// work done for a process that is working itself.
pub fn lower_priority() {
    const NICE: i32 = 5;
    // SAFETY: takes numbers only; 0 is the calling thread.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
    }
}

/// Has this process interrupted (SIGTERM) when the one that started it ends, however that ends.
///
/// # Errors
///
/// When it has ended already.
pub fn end_with_parent() -> io::Result<()> {
    // SAFETY: both take numbers only, or nothing.
    let parent = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong, 0, 0, 0);
        libc::getppid()
    };
    match parent {
        // It ended before we had asked for that.
        1 => Err(io::Error::other("who started this has ended")),
        _ => Ok(()),
    }
}

/// Yields the processor for some microseconds: the threads that we wait for may need the one that
/// we are on, and a real-time thread that spins would keep it from them.
pub(crate) fn pause(round: u32) {
    let micros = if round < 40 { 10 } else { 40 };
    std::thread::sleep(Duration::from_micros(micros));
}

/// The letter of a thread's state.
pub(crate) fn task_state(pid: Pid, tid: Tid) -> Option<u8> {
    let stat = maps::read_proc(&format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    // The name in front may contain anything; what follows its last parenthesis is parsed.
    let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
    stat.get(behind..)?.iter().copied().find(|byte| !byte.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_come_back_with_the_last_pause() {
        // Other tests of this process may hold one, too: only what is certain is checked.
        let first = SmallPages::begin();
        let second = SmallPages::begin();
        drop(first);
        assert!(disables_huge_pages());
        drop(second);
        let held = SMALL_PAGES.lock().unwrap();
        assert_eq!(disables_huge_pages(), held.0 > 0 || held.1);
    }
}
