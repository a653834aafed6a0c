//! Rings of records: the kernel's programs write, this process reads.
//!
//! A ring is a map of kind `BPF_MAP_TYPE_RINGBUF`, and every processor has its own, so that
//! writers never wait for one another. Memory: a page with the reader's position, one with the
//! writer's, and the records, mapped twice in a row so that none is ever seen in two parts. A
//! record has a head of eight bytes: its length with two flags, and four bytes for the kernel.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use crate::sys::{Map, MapKind};

/// The record is being written.
const BUSY: u32 = 1 << 31;
/// The record was given up.
const DISCARDED: u32 = 1 << 30;
/// Bytes before each record.
pub const HEAD: usize = 8;

/// One processor's ring.
#[derive(Debug)]
pub struct Ring {
    map: Map,
    /// The reader's page.
    reader: MmapRaw,
    /// The writer's page, and the records twice.
    writer: MmapRaw,
    page: usize,
    size: u64,
}

impl Ring {
    /// A ring with room for `size` bytes, a power of two and at least a page.
    ///
    /// # Errors
    ///
    /// When the kernel does not permit it or has no memory.
    pub fn new(size: u32) -> io::Result<Ring> {
        let map = Map::new(MapKind::Ring, 0, 0, size)?;
        // SAFETY: takes a number only.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let file = map.file()?;
        let reader = MmapOptions::new().len(page).map_raw(&file)?;
        let records = 2 * size as usize;
        let writer =
            MmapOptions::new().offset(page as u64).len(page + records).map_raw_read_only(&file)?;
        Ok(Ring { map, reader, writer, page, size: u64::from(size) })
    }

    /// The map.
    pub fn map(&self) -> &Map {
        &self.map
    }

    fn position(map: &MmapRaw) -> &AtomicU64 {
        // SAFETY: a position is at the beginning of either page, which is mapped as long as `map` is,
        // and aligned as pages are. The kernel changes it at any time, which atomics allow; the writer's
        // is on a page that cannot be written and is only loaded.
        unsafe { &*map.as_ptr().cast::<AtomicU64>() }
    }

    /// Hands what has been written since last time to `take`: whole records, each with its head,
    /// one behind the other, as [`records`] reads them. Returns how many bytes that was.
    ///
    /// # Errors
    ///
    /// What `take` answers; then the records stay in the ring.
    pub fn drain<E>(&mut self, take: impl FnOnce(&[u8]) -> Result<(), E>) -> Result<usize, E> {
        let written = Self::position(&self.writer).load(Ordering::Acquire);
        let from = Self::position(&self.reader).load(Ordering::Relaxed);
        let mut to = from;
        while to < written {
            let head = self.head(to).load(Ordering::Acquire);
            if head & BUSY != 0 {
                break;
            }
            let next = to + step(head);
            // Never seen; more than the ring holds cannot be.
            if next - from > self.size {
                break;
            }
            to = next;
        }
        let bytes = (to - from) as usize;
        if bytes == 0 {
            return Ok(0);
        }
        let start = self.page + (from & (self.size - 1)) as usize;
        // SAFETY: the records lie behind the first page, twice in a row, so that `bytes`, which are
        // at most the ring's size, lie within the mapping from any start in the first copy. The
        // kernel has written them (no head is busy) and leaves them alone until the reader's
        // position moves, which only this function does, after `take` has returned.
        let records = unsafe { std::slice::from_raw_parts(self.writer.as_ptr().add(start), bytes) };
        take(records)?;
        Self::position(&self.reader).store(to, Ordering::Release);
        Ok(bytes)
    }

    /// The head of the record at a position.
    fn head(&self, position: u64) -> &AtomicU32 {
        let at = self.page + (position & (self.size - 1) & !7) as usize;
        // SAFETY: in the first copy of the records, aligned to eight bytes; the kernel changes it
        // while the record is being written, which atomics allow, and it is only loaded.
        unsafe { &*self.writer.as_ptr().add(at).cast::<AtomicU32>() }
    }
}

/// Bytes from one record's head to the next one's.
fn step(head: u32) -> u64 {
    (u64::from(head & !(BUSY | DISCARDED)) + HEAD as u64).next_multiple_of(8)
}

/// Where the records lie in what [`Ring::drain`] handed out. Ends early where a length leads
/// outside.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let head = bytes.get(at..at + 4)?;
            let head = u32::from_le_bytes(head.try_into().ok()?);
            let start = at + HEAD;
            let end = start + (head & !(BUSY | DISCARDED)) as usize;
            if end > bytes.len() {
                return None;
            }
            at += step(head) as usize;
            if head & DISCARDED == 0 {
                return Some(start..end);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_one_behind_the_other() {
        let mut bytes = Vec::new();
        for (flags, content) in [(0, &b"abc"[..]), (DISCARDED, b"defgh"), (0, b"12345678")] {
            bytes.extend_from_slice(&(content.len() as u32 | flags).to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(content);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        let found: Vec<_> = records(&bytes).map(|range| bytes[range].to_vec()).collect();
        assert_eq!(found, [b"abc".to_vec(), b"12345678".to_vec()]);
        // A cut record is none.
        assert_eq!(records(&bytes[..bytes.len() - 1]).count(), 1);
        assert_eq!(records(&[0xff; 16]).count(), 0);
    }
}
