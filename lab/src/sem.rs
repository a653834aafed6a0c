//! Semaphores for user mode.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cpu::local;
use crate::lock::{Class, Role, Spin};
use crate::thread::{self, NONE};

const COUNT: usize = 64;

struct Semaphore {
    lock: Spin,
    value: i64,
    first: u32,
    last: u32,
}

const SEMAPHORE: Semaphore = Semaphore {
    lock: Spin::new(Class::Semaphore, Role::Common),
    value: 0,
    first: NONE,
    last: NONE,
};
static mut TABLE: [Semaphore; COUNT] = [SEMAPHORE; COUNT];
/// Claims, and how many of them blocked.
pub static CLAIMS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn semaphore(id: u64) -> &'static mut Semaphore {
    // SAFETY: its lock protects it.
    unsafe { &mut (*(&raw mut TABLE))[id as usize % COUNT] }
}

/// Gives a semaphore a value. Nothing may wait for it.
pub fn set(id: u64, value: i64) {
    let semaphore = semaphore(id);
    semaphore.lock.with(|| {
        semaphore.value = value;
        semaphore.first = NONE;
    });
}

/// Claims it, and blocks the running thread if it is not to be had.
pub fn claim(id: u64) {
    CLAIMS[0].fetch_add(1, Ordering::Relaxed);
    let semaphore = semaphore(id);
    semaphore.lock.lock();
    if semaphore.value > 0 {
        semaphore.value -= 1;
    } else {
        CLAIMS[1].fetch_add(1, Ordering::Relaxed);
        let me = local().current;
        thread::thread(me).waits_for = (id as usize % COUNT) as u32;
        thread::thread(me).next = NONE;
        match semaphore.first {
            NONE => semaphore.first = me,
            _ => thread::thread(semaphore.last).next = me,
        }
        semaphore.last = me;
        thread::block_current();
    }
    semaphore.lock.unlock();
}

/// Gives it back: to the thread that has waited longest, if there is one.
pub fn give(id: u64) {
    let semaphore = semaphore(id);
    semaphore.lock.lock();
    let waiting = semaphore.first;
    match waiting {
        NONE => semaphore.value += 1,
        _ => semaphore.first = thread::thread(waiting).next,
    }
    semaphore.lock.unlock();
    if waiting != NONE {
        thread::wake(waiting, 0);
    }
}

/// Takes a thread out of the queue that it waits in. Whether it waited in one.
pub fn forget(id: u32) -> bool {
    let of = thread::thread(id).waits_for;
    if of == NONE {
        return true;
    }
    let semaphore = semaphore(u64::from(of));
    semaphore.lock.with(|| {
        let (mut before, mut at) = (NONE, semaphore.first);
        while at != NONE && at != id {
            (before, at) = (at, thread::thread(at).next);
        }
        if at == NONE {
            return false;
        }
        let next = thread::thread(id).next;
        match before {
            NONE => semaphore.first = next,
            _ => thread::thread(before).next = next,
        }
        if semaphore.last == id {
            semaphore.last = before;
        }
        true
    })
}
