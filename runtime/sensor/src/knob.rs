//! Knobs: numbers that this program reads and others set.
//!
//! A knob is a page of the program's own data. When the knob is made, a page of its file is mapped over it, so that
//! reading never needs more than one load from an address that does not change. A value that no knob has says that
//! this is still to be done.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr};

use fettle_abi::sensor::{Head, KNOB_UNOPENED, Kind, KnobSlot, SLOTS, Shape};

use crate::make;
use crate::origin::{ON, OPENING, Origin, UNOPENED};
use crate::shared::Shared;
use crate::sys::{self, KeepErrno};

/// A number that this program reads, and that `fettle watch` and `fettle sensors set` change.
///
/// ```
/// use fettle::{Knob, Sensor};
///
/// static PATH: Knob = Sensor::knob("put.path", 7, 4).values(0, 0..=3);
///
/// assert_eq!(PATH.get(), 0);
/// ```
#[repr(C)]
#[derive(Debug)]
pub struct Knob {
    page: Page,
    origin: Origin,
    default: i64,
    least: i64,
    greatest: i64,
    /// The knob that was made before this one.
    next: AtomicPtr<Knob>,
    is_listed: AtomicBool,
}

/// A page that belongs to a knob alone, as its memory is replaced.
#[repr(C, align(4096))]
#[derive(Debug)]
struct Page(UnsafeCell<KnobSlot>);

// SAFETY: the page is reached by atomics only.
unsafe impl Sync for Page {}

/// Knobs of this process that were made, the last one first.
static MADE: AtomicPtr<Knob> = AtomicPtr::new(std::ptr::null_mut());

impl Knob {
    pub(crate) const fn new(origin: Origin, values: [i64; 3]) -> Knob {
        let [default, least, greatest] = values;
        assert!(least > KNOB_UNOPENED && least <= default && default <= greatest, "its values");
        let (value, pad0, pad1) = (KNOB_UNOPENED, [0; 7], [0; 498]);
        let (resting, held, sets) = (default, 0, 0);
        let slot = KnobSlot {
            value,
            pad0,
            default_value: default,
            least,
            greatest,
            resting,
            held,
            sets,
            pad1,
        };
        Knob {
            page: Page(UnsafeCell::new(slot)),
            origin,
            default,
            least,
            greatest,
            next: AtomicPtr::new(std::ptr::null_mut()),
            is_listed: AtomicBool::new(false),
        }
    }

    /// The value: one load, and a comparison that fails but once. The first time, the knob's file is made: not in
    /// a signal handler.
    #[inline]
    pub fn get(&'static self) -> i64 {
        match self.value().load(Relaxed) {
            KNOB_UNOPENED => self.open(),
            value => value,
        }
    }

    #[inline]
    fn value(&self) -> &AtomicI64 {
        // SAFETY: in the page, aligned, and only ever reached by atomics.
        unsafe { AtomicI64::from_ptr((&raw mut (*self.page.0.get()).value).cast()) }
    }

    #[cold]
    fn open(&'static self) -> i64 {
        let _errno = KeepErrno::new();
        // Another thread is at it.
        if self.origin.state.compare_exchange(UNOPENED, OPENING, AcqRel, Relaxed).is_err() {
            return self.default;
        }
        if self.list() {
            let _ = make::with_file(&self.origin, |file| self.map(file));
        }
        // Without a file it is the default for good.
        let _ = self.value().compare_exchange(KNOB_UNOPENED, self.default, Relaxed, Relaxed);
        self.origin.state.store(ON, Release);
        self.value().load(Relaxed)
    }

    /// Makes a file a knob, and its page this knob's.
    fn map(&'static self, file: &sys::Fd) -> Option<()> {
        let shape = &self.origin.shape;
        let base = Shared::new(sys::map_file(file, shape.file_bytes())?)?;
        if !sys::populate(base.start(), shape.file_bytes())
            || !sys::can_populate() && !sys::allocate(file, shape.file_bytes())
        {
            return None;
        }
        let slot = base.at(u64::from(SLOTS));
        for (offset, value) in [
            (offset_of!(KnobSlot, value), self.default),
            (offset_of!(KnobSlot, default_value), self.default),
            (offset_of!(KnobSlot, least), self.least),
            (offset_of!(KnobSlot, greatest), self.greatest),
            (offset_of!(KnobSlot, resting), self.default),
        ] {
            slot.word(offset).store(value as u64, Relaxed);
        }
        make::fill_head(&self.origin, base);
        // SAFETY: the page belongs to this knob alone, which is a static and has it as long as the process lives;
        // what is there changes in one step from the unopened value to the default.
        unsafe { sys::map_over(file, u64::from(SLOTS), self.page.0.get().cast()) }?;
        base.word(offset_of!(Head, magic)).store(fettle_abi::MAGIC, Release);
        Some(())
    }

    /// Has a child of a fork know this knob, so that it gets one of its own.
    fn list(&'static self) -> bool {
        static IS_CALLED_BACK: AtomicBool = AtomicBool::new(false);
        if !IS_CALLED_BACK.swap(true, AcqRel) && !sys::at_fork_in_child(forget_parents) {
            IS_CALLED_BACK.store(false, Release);
            return false;
        }
        if !self.is_listed.swap(true, AcqRel) {
            let knob = std::ptr::from_ref(self).cast_mut();
            let mut first = MADE.load(Acquire);
            loop {
                self.next.store(first, Relaxed);
                match MADE.compare_exchange(first, knob, AcqRel, Acquire) {
                    Ok(_) => break,
                    Err(other) => first = other,
                }
            }
        }
        true
    }
}

/// In the child of a fork: what is mapped is the parent's knob; the child's own is made when it is read.
extern "C" fn forget_parents() {
    let mut at = MADE.load(Acquire);
    // SAFETY: null or a knob, which is a static.
    while let Some(knob) = unsafe { at.as_ref() } {
        at = knob.next.load(Acquire);
        // SAFETY: the page belongs to this knob alone; the child has one thread.
        unsafe { sys::renew_page(knob.page.0.get().cast(), KNOB_UNOPENED as u64) };
        knob.origin.state.store(UNOPENED, Release);
    }
}

/// The only shape that knobs have.
pub(crate) const fn shape() -> Shape {
    Shape::checked(Kind::Knob as u32, 0, 1, 0, 0).expect("a knob's sizes")
}
