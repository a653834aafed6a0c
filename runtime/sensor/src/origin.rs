//! What is known about a sensor before it is made, and whether it is.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use fettle_abi::sensor::{MAKING_LIMIT_NS, Shape};

use crate::inject::{self, point};
use crate::thread::{self, Process};
use crate::{make, sys};

/// Not made yet.
const UNOPENED: u32 = 0;
/// Made, by this process or by the one that it was forked from.
const ON: u32 = 1;
/// Nobody asked for it, or it could not be made.
const OFF: u32 = 2;
/// Low bits of the state while a thread, whose id stands above, makes the sensor.
const OPENING: u32 = 3;

/// How long to sleep between two looks at a sensor that another thread makes.
const SLEEP_NS: u64 = 20_000;

/// A sensor's name, numbers and sizes, and the way to its memory.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) name: &'static str,
    /// Major, minor, instance.
    pub(crate) numbers: [u32; 3],
    pub(crate) shape: Shape,
    /// The sensor's place in each thread's table; 0 if it has none.
    pub(crate) index: AtomicU32,
    state: AtomicU32,
    process: AtomicPtr<Process>,
    /// Events of signal handlers that interrupted the making.
    lost_opening: AtomicU64,
}

impl Origin {
    /// A sensor that is not made yet.
    pub(crate) const fn new(name: &'static str, numbers: [u32; 3], shape: Shape) -> Origin {
        Origin {
            name,
            numbers,
            shape,
            index: AtomicU32::new(0),
            state: AtomicU32::new(UNOPENED),
            process: AtomicPtr::new(std::ptr::null_mut()),
            lost_opening: AtomicU64::new(0),
        }
    }

    /// Whether it is worth going on.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.state.load(Relaxed) != OFF
    }

    /// The process's part, for a thread that has found its slot.
    #[inline]
    pub(crate) fn process(&self) -> Option<&'static Process> {
        // SAFETY: null, or memory that `make` mapped, that is never unmapped, and that is all
        // zeros or a `Process`, both of which are valid.
        unsafe { self.process.load(Acquire).as_ref() }
    }

    /// The process's part, after making it where that is still to be done; `None` if the sensor
    /// is off, or if we are a signal handler that interrupted the making.
    pub(crate) fn made(&self) -> Option<&'static Process> {
        let mut turns = 0;
        loop {
            let state = self.state.load(Acquire);
            if state == OFF {
                return None;
            }
            if state == ON {
                let process = self.process()?;
                if !process.is_wiped() {
                    return Some(process);
                }
            }
            let tid = sys::tid();
            let opening = tid << 2 | OPENING;
            if state & OPENING == OPENING && sys::thread_lives(state >> 2) {
                // Wait for the other thread; not if it is us, whom a signal handler interrupted,
                // and not for ever, as a handler may have left the making by `siglongjmp`.
                if state != opening && turns < MAKING_LIMIT_NS / SLEEP_NS {
                    turns += 1;
                    sys::sleep_ns(SLEEP_NS as i64);
                    continue;
                }
                self.lost_opening.fetch_add(1, Relaxed);
                return None;
            }
            // Ours to make: never made, or made before a fork, or by a thread that a fork left
            // behind.
            if self.state.compare_exchange(state, opening, AcqRel, Relaxed).is_ok() {
                self.make();
            }
        }
    }

    fn make(&self) {
        let Some(process) = make::process(self) else {
            return self.state.store(OFF, Release);
        };
        point(inject::MAKING);
        if self.index.load(Relaxed) == 0 {
            self.index.store(thread::new_index(), Relaxed);
        }
        self.process.store(std::ptr::from_ref(process).cast_mut(), Release);
        self.state.store(ON, Release);
        // After `ON`, so that from here on no handler adds to it.
        let lost = self.lost_opening.swap(0, Relaxed);
        let head = std::mem::offset_of!(fettle_abi::sensor::Head, lost_opening);
        process.head().word(head).fetch_add(lost, Relaxed);
    }
}
