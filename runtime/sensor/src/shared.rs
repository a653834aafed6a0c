//! Words in a sensor's memory.

use std::arch::asm;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Start of a sensor or of one of its slots, in memory that stays mapped until the process ends.
///
/// Methods take offsets of fields of the layout that lies there ([`fettle_abi::sensor`]), which is
/// what makes them sound; this type does not leave the crate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared(*mut u8);

impl Shared {
    /// Wraps an address; `None` if it is null.
    #[inline]
    pub(crate) fn new(start: *mut u8) -> Option<Shared> {
        if start.is_null() { None } else { Some(Shared(start)) }
    }

    /// The same memory from here on.
    #[inline]
    pub(crate) fn at(self, offset: u64) -> Shared {
        Shared(self.0.wrapping_add(offset as usize))
    }

    /// Its address.
    #[inline]
    pub(crate) fn start(self) -> *mut u8 {
        self.0
    }

    /// A word.
    #[inline]
    pub(crate) fn word(self, offset: usize) -> &'static AtomicU64 {
        // SAFETY: mapped until the process ends, aligned and inside the layout by this type's
        // contract; other processes access it by atomics too.
        unsafe { AtomicU64::from_ptr(self.0.add(offset).cast()) }
    }

    /// A half word.
    #[inline]
    pub(crate) fn half(self, offset: usize) -> &'static AtomicU32 {
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.0.add(offset).cast()) }
    }

    /// Adds to a word by one instruction: whole for this thread's own signal handlers, not for
    /// other threads.
    #[inline]
    pub(crate) fn add_local(self, offset: usize, value: u64) {
        // SAFETY: writes to a word as `word` would.
        unsafe {
            asm!("add qword ptr [{word}], {value}",
                 word = in(reg) self.0.add(offset), value = in(reg) value, options(nostack));
        }
    }

    /// Stores `to` if the word is `from`, else gives what it is; one instruction, as
    /// [`Shared::add_local`].
    #[inline]
    pub(crate) fn exchange_local(self, offset: usize, from: u64, to: u64) -> Result<(), u64> {
        let found: u64;
        // SAFETY: writes to a word as `word` would. The compiler takes it for a memory barrier.
        unsafe {
            asm!("cmpxchg qword ptr [{word}], {to}",
                 word = in(reg) self.0.add(offset), to = in(reg) to,
                 inlateout("rax") from => found, options(nostack));
        }
        if found == from { Ok(()) } else { Err(found) }
    }
}
