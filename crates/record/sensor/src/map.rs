//! A sensor's file in memory: words that another program may change at any time.
//!
//! All access is by atomics at offsets that are checked, so the worst that a producer can do is to
//! store nonsense.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::guard::Guard;

/// A shared mapping of a whole file.
#[derive(Debug)]
pub(crate) struct Map {
    start: *mut u8,
    bytes: usize,
    guard: Guard,
}

// SAFETY: the mapping is not tied to a thread, and its memory is reached by atomics only.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `bytes` bytes of a file.
    pub(crate) fn new(file: &File, bytes: usize) -> io::Result<Map> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(guard) = Guard::new(start as usize, bytes) else {
            // SAFETY: unmaps what was mapped above and is not used yet.
            unsafe { libc::munmap(start, bytes) };
            return Err(io::Error::other("too many sensors are open"));
        };
        Ok(Map { start: start.cast(), bytes, guard })
    }

    /// The word at this offset.
    ///
    /// # Panics
    ///
    /// Past the end, or unaligned. Offsets come from a [`fettle_abi::sensor::Shape`] that was
    /// checked against the mapping's size, never from the memory itself.
    pub(crate) fn u64(&self, offset: u64) -> &AtomicU64 {
        let offset = self.checked(offset, 8);
        // SAFETY: in bounds and aligned (`checked`; mappings start at a page); mapped as long as
        // `self` lives; only ever accessed by atomics.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).cast()) }
    }

    /// The half word at this offset. Panics as [`Map::u64`] does.
    pub(crate) fn u32(&self, offset: u64) -> &AtomicU32 {
        let offset = self.checked(offset, 4);
        // SAFETY: as in `u64`.
        unsafe { AtomicU32::from_ptr(self.start.add(offset).cast()) }
    }

    /// Whether part of the file was found missing.
    pub(crate) fn was_truncated(&self) -> bool {
        self.guard.was_hit()
    }

    fn checked(&self, offset: u64, size: usize) -> usize {
        let offset = offset as usize;
        assert!(offset.is_multiple_of(size) && offset <= self.bytes - size, "offset in a sensor");
        offset
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: unmaps our own mapping; nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
