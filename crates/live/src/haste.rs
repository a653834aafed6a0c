//! Being quick while a process waits for us, and slow while it works.

use std::time::Duration;

use crate::maps;

const RESET_ON_FORK: i32 = 0x4000_0000;

/// Lets the calling thread run before others, where that is allowed: as a real-time thread, else
/// with the highest weight. Threads that it makes have no part in it.
pub(crate) fn hurry() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure is ours, and read only; 0 is the calling thread. The others take
    // numbers only.
    unsafe {
        if libc::sched_setscheduler(0, libc::SCHED_FIFO | RESET_ON_FORK, &lowest) != 0 {
            let _ = libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        }
        // Sleeps of microseconds are to be just that.
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
}

/// The calling thread [hurries](hurry) as long as this exists: it must not be given to another.
pub(crate) struct Hurry {
    /// What it was before.
    nice: i32,
    /// Not to be sent to another thread.
    _own: std::marker::PhantomData<*const ()>,
}

impl Hurry {
    pub(crate) fn begin() -> Hurry {
        // SAFETY: takes numbers only; 0 is the calling thread.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        hurry();
        Hurry { nice, _own: std::marker::PhantomData }
    }
}

impl Drop for Hurry {
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

/// Has the calling thread leave most of a processor to others that want it: for long work on behalf
/// of a process that is at work itself.
pub fn give_way() {
    const NICE: i32 = 5;
    // SAFETY: takes numbers only; 0 is the calling thread.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
    }
}

/// Gives the processor away for some microseconds: the threads that we wait for may need the one
/// that we are on, and a real-time thread that spins would keep it from them.
pub(crate) fn pause(round: u32) {
    let micros = if round < 40 { 10 } else { 40 };
    std::thread::sleep(Duration::from_micros(micros));
}

/// The letter of a thread's state.
pub(crate) fn task_state(pid: i32, tid: i32) -> Option<u8> {
    let stat = maps::read_proc(&format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    // The name in front may hold anything, but for what is behind its last parenthesis.
    let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
    stat.get(behind..)?.iter().copied().find(|byte| !byte.is_ascii_whitespace())
}
