//! What is known about a sensor before it is made, and whether it is.

use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use fettle_abi::sensor::Shape;

use crate::process::Process;

/// Not made yet.
pub(crate) const UNOPENED: u32 = 0;
/// Made, by this process or by the one that it was forked from.
pub(crate) const ON: u32 = 1;
/// No monitor asked for it, or it could not be made.
pub(crate) const OFF: u32 = 2;
/// Low bits of the state while a thread, whose id stands above, makes the sensor.
pub(crate) const OPENING: u32 = 3;

/// A sensor's name, numbers and sizes, and the way to its memory.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) name: &'static str,
    /// Major, minor, instance.
    pub(crate) numbers: [u32; 3],
    pub(crate) shape: Shape,
    /// The sensor's place in each thread's table; 0 if it has none.
    pub(crate) index: AtomicU32,
    pub(crate) state: AtomicU32,
    pub(crate) process: AtomicPtr<Process>,
    /// Events of signal handlers that interrupted the making.
    pub(crate) lost_opening: AtomicU64,
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
}

/// Sensors of a process for which threads have slots of their own; all others use shared slots.
pub(crate) const TABLE: usize = 64;

/// A place in the threads' tables that no sensor had before; 0 if there is none left.
pub(crate) fn new_index() -> u32 {
    static USED: AtomicU32 = AtomicU32::new(1);
    let next = |used| if used < TABLE as u32 { Some(used + 1) } else { None };
    USED.fetch_update(Relaxed, Relaxed, next).unwrap_or(0)
}
