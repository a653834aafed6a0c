//! Timers, and objects that live as long as one.
//!
//! Expired timers are handled by whichever CPU leaves the kernel next. On one CPU that cannot be before the call that
//! added a timer has ended, so code that adds a timer and cancels it in the same call knows that the handler has not
//! run. On several, another CPU may run the handler in between.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cpu::{self, local, now};
use crate::lock::{Class, Role, Spin};
use crate::log::{Event, log};
use crate::thread;

const COUNT: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Set,
    /// Its handler runs on some CPU.
    Running,
}

#[derive(Clone, Copy)]
struct Timer {
    state: State,
    expires: u64,
    object: u32,
}

static LOCK: Spin = Spin::new(Class::Timers, Role::Common);
static mut TABLE: [Timer; COUNT] = [Timer { state: State::Free, expires: 0, object: 0 }; COUNT];
static SET: AtomicU32 = AtomicU32::new(0);

fn timer(id: usize) -> &'static mut Timer {
    // SAFETY: under the lock.
    unsafe { &mut (*(&raw mut TABLE))[id] }
}

/// Time from tick to tick.
const PERIOD: u64 = 20_000;
/// Ticks of a slice: a thread that comes back has to learn anew when the next tick is.
const TICKS_OF_SLICE: u64 = 8;
/// What a tick takes on each CPU: the running thread's account and time slice.
const OWN_WORK: u64 = 260;
/// What a tick takes once in a period, whichever CPU is first: timers and the system's own processes.
const SYSTEM_WORK: u64 = 1_450;
/// When that is to be done next.
static DUE: AtomicU64 = AtomicU64::new(0);

/// The clock of this CPU ticks, if it is time; returns the time until its next tick. Programs ask for it, since the kernel
/// has no interrupts in user mode. CPUs tick at the same moments, or, `staggered`, evenly apart.
pub fn tick(staggered: bool) -> u64 {
    let local = local();
    let time = now();
    if time >= local.next_tick {
        cpu::compute(OWN_WORK);
        let due = DUE.load(Ordering::Relaxed);
        let next = time / PERIOD * PERIOD + PERIOD;
        let claimed = || DUE.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        if due <= time && claimed().is_ok() {
            cpu::compute(SYSTEM_WORK);
        }
        let apart = if staggered { PERIOD / u64::from(crate::call::cpus()) } else { 0 };
        let offset = apart * u64::from(local.id);
        local.next_tick = (now() - offset) / PERIOD * PERIOD + PERIOD + offset;
    }
    local.next_tick.saturating_sub(now())
}

/// Whether a slice ends with the tick that this CPU has had.
pub fn ends_slice() -> bool {
    (local().next_tick / PERIOD).is_multiple_of(TICKS_OF_SLICE)
}

/// Objects with a timer: 1 is live, 0 is free.
static OBJECTS: [AtomicU32; COUNT] = [const { AtomicU32::new(0) }; COUNT];

/// Whether a timer is set.
pub fn pending() -> bool {
    SET.load(Ordering::Relaxed) > 0
}

/// Runs the handlers of timers that have expired: each frees its object.
pub fn run() {
    if !pending() {
        return;
    }
    for id in 0..COUNT {
        let expired = LOCK.with(|| {
            let timer = timer(id);
            let expired = timer.state == State::Set && timer.expires <= now();
            if expired {
                timer.state = State::Running;
            }
            expired
        });
        if expired {
            log(Event::Timer, id as u32, 0);
            free_object(timer(id).object);
            LOCK.with(|| timer(id).state = State::Free);
            SET.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn free_object(object: u32) {
    if OBJECTS[object as usize].swap(0, Ordering::SeqCst) == 0 {
        thread::failed("an object with a timer is freed twice", object);
    }
}

/// A system call that must be done within a time: makes an object with a timer, works, and cancels the timer.
pub fn timed_work(ticks: u64, work: u64) -> u64 {
    let Some(object) = OBJECTS.iter().position(|object| {
        object.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }) else {
        return 0;
    };
    let id = LOCK.with(|| {
        let id = (0..COUNT).find(|&id| timer(id).state == State::Free)?;
        *timer(id) = Timer { state: State::Set, expires: now() + ticks, object: object as u32 };
        Some(id)
    });
    let Some(id) = id else {
        OBJECTS[object].store(0, Ordering::SeqCst);
        return 0;
    };
    SET.fetch_add(1, Ordering::Relaxed);
    cpu::compute(work);
    if cfg!(feature = "race-timer") {
        // As on one CPU: the handler has not run, so the timer is there and the object is ours.
        LOCK.with(|| timer(id).state = State::Free);
        SET.fetch_sub(1, Ordering::Relaxed);
        free_object(object as u32);
        return 1;
    }
    // Cancelling says whether the handler has run or runs. Only one of the two frees the object.
    loop {
        let state = LOCK.with(|| {
            let timer = timer(id);
            let ours = timer.state != State::Free && timer.object == object as u32;
            if ours && timer.state == State::Set {
                timer.state = State::Free;
                return Some(true);
            }
            if ours { None } else { Some(false) }
        });
        match state {
            Some(true) => {
                SET.fetch_sub(1, Ordering::Relaxed);
                free_object(object as u32);
                return 1;
            }
            Some(false) => return 2,
            None => core::hint::spin_loop(),
        }
    }
}
