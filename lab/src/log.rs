//! The event log: what happened, on which CPU, when by the clock that all share. Each CPU writes to its own part,
//! so logging takes no lock; its reader merges by time afterwards.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::cpu::{MOST, local, now};

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A lock was found taken, and is spun for: class, address.
    Spin,
    /// A lock was taken: class, address.
    Lock,
    /// It was let go of: class, address.
    Unlock,
    /// Locks were taken in an order that another place takes the other way round: both classes.
    Order,
    /// A system call begins: number, thread.
    Call,
    /// The kernel is left: thread.
    Leave,
    /// A thread was put into a ready queue: thread, CPU.
    Ready,
    /// A thread was blocked.
    Block,
    /// A thread was loaded.
    Load,
    /// This CPU waits for an interrupt.
    Idle,
    /// A container was reclaimed: container.
    Reclaim,
    /// A timer's handler ran: timer.
    Timer,
    /// An assertion failed: which, of what.
    Failed,
}

const NAMES: [&str; 13] = [
    "spin", "lock", "unlock", "order", "call", "leave", "ready", "block", "load", "idle", "reclaim",
    "timer", "failed",
];

#[derive(Clone, Copy)]
struct Entry {
    time: u64,
    event: u8,
    a: u32,
    b: u32,
}

/// Entries that each CPU keeps: the last ones.
const LENGTH: usize = 16384;

static ON: AtomicBool = AtomicBool::new(false);
static WRITTEN: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
static mut ENTRIES: [[Entry; LENGTH]; MOST] =
    [[Entry { time: 0, event: 0, a: 0, b: 0 }; LENGTH]; MOST];

pub fn switch_on() {
    ON.store(true, Ordering::Relaxed);
}

pub fn switch_off() {
    ON.store(false, Ordering::Relaxed);
}

#[inline]
pub fn log(event: Event, a: u32, b: u32) {
    if !ON.load(Ordering::Relaxed) {
        return;
    }
    let cpu = local().id as usize;
    let at = WRITTEN[cpu].fetch_add(1, Ordering::Relaxed) as usize % LENGTH;
    // SAFETY: a CPU writes its own part only, and nothing interrupts it.
    unsafe { (*(&raw mut ENTRIES))[cpu][at] = Entry { time: now(), event: event as u8, a, b } }
}

/// Prints all parts, CPU by CPU.
pub fn print() {
    for cpu in 0..MOST {
        let written = WRITTEN[cpu].load(Ordering::Acquire) as usize;
        for n in written.saturating_sub(LENGTH)..written {
            // SAFETY: the others do not write any more, or what they write is read as it is.
            let entry = unsafe { (*(&raw const ENTRIES))[cpu][n % LENGTH] };
            let name = NAMES[entry.event as usize];
            crate::say!("E {} {cpu} {name} {} {}\n", entry.time, entry.a, entry.b);
        }
    }
}
