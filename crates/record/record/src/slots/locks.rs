//! What threads add up of locks, in their slots and in front of them.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use fettle_abi::locking::{self, Blame, Convoy, Edge, Event, HEAD_WORDS, HeadWord, Row};
use fettle_types::{FunctionIndex, SlotIndex};

use super::Slots;
use crate::locking::ThreadTable;

impl Slots {
    /// Says in front of the slots where threads find each other's tables, if there are any; `slots` were
    /// in use.
    pub(super) fn publish_layout(&self, slots: u32) {
        use std::mem::offset_of;
        if !self.layout.locks {
            return;
        }
        let word = |field: usize, value: u64| {
            let at = locking::HEAD_INFO as usize + field;
            self.head(at).store(value as u32, Ordering::Relaxed);
            self.head(at + 4).store((value >> 32) as u32, Ordering::Relaxed);
        };
        word(offset_of!(locking::Info, stride), self.layout.stride());
        word(offset_of!(locking::Info, slots_at), self.layout.at(SlotIndex(0)));
        word(offset_of!(locking::Info, table_at), u64::from(self.layout.counters_at()));
        let high = locking::HEAD_INFO as usize + offset_of!(locking::Info, slots_high);
        self.head(high).fetch_max(slots, Ordering::Relaxed);
    }

    /// Says what functions do, by their numbers from `first` on.
    ///
    /// # Errors
    ///
    /// When the memory file cannot be written.
    pub fn set_operations(&self, first: FunctionIndex, operations: &[u8]) -> io::Result<()> {
        let end = first.place() + operations.len();
        assert!(self.layout.locks && end <= locking::OPERATIONS as usize);
        self.file.write_all_at(operations, locking::HEAD_OPERATIONS + u64::from(first.get()))
    }

    /// Numbers of the rows of all locks that the thread of a slot has now, but for semaphores, which no thread
    /// has.
    pub fn locks_in_hand(&self, slot: SlotIndex) -> Vec<u32> {
        const SEMAPHORE: u64 = 2;
        let at = self.layout.counters_at() as usize;
        let word = |offset: usize| self.word(slot, at + offset).load(Ordering::Acquire);
        let count = word(HeadWord::HeldCount as usize * 8).min(locking::HELD as u64) as usize;
        let last = std::mem::offset_of!(locking::Held, row);
        let held = |n| word(locking::HELD_AT + n * size_of::<locking::Held>() + last);
        let kept = (0..count).map(held).filter(|word| word >> 48 & SEMAPHORE == 0);
        kept.map(|word| word as u32).collect()
    }

    /// What the thread of a slot has left of locks.
    ///
    /// # Errors
    ///
    /// When the memory file cannot be read.
    pub fn lock_table(&self, slot: SlotIndex) -> io::Result<ThreadTable> {
        let mut table = ThreadTable::default();
        if !self.layout.locks {
            return Ok(table);
        }
        let at = |offset: usize| u64::from(self.layout.counters_at()) + offset as u64;
        for (i, word) in table.head.iter_mut().enumerate() {
            let offset = self.layout.counters_at() as usize + i * 8;
            *word = self.word(slot, offset).load(Ordering::Acquire);
        }
        const _: () = assert!(HEAD_WORDS * 8 <= locking::HELD_AT);
        let rows = (locking::ROWS * size_of::<Row>()) as u64;
        self.nonzero(slot, at(locking::ROWS_AT), rows, |n, words| {
            table.rows.push((n, Row::new(words)));
        })?;
        table.rows.retain(|(_, row)| row.operation != 0);
        let edges = (locking::EDGES * size_of::<Edge>()) as u64;
        self.nonzero(slot, at(locking::EDGES_AT), edges, |_, words| {
            table.edges.push(Edge::of_words(words));
        })?;
        let blames = (locking::BLAMES * size_of::<Blame>()) as u64;
        self.nonzero(slot, at(locking::BLAMES_AT), blames, |_, words| {
            table.blames.push(Blame::of_words(words));
        })?;
        let count = table.word(HeadWord::EventCount).min(locking::EVENTS as u64);
        let events = count * size_of::<Event>() as u64;
        self.nonzero(slot, at(locking::EVENTS_AT), events, |_, words| {
            table.events.push(Event::of_words(words));
        })?;
        Ok(table)
    }

    /// Locks that went from thread to thread while others waited.
    ///
    /// # Errors
    ///
    /// When the memory file cannot be read.
    pub fn convoys(&self) -> io::Result<Vec<Convoy>> {
        let mut found = Vec::new();
        if self.layout.locks {
            let bytes = (locking::CONVOYS * size_of::<Convoy>()) as u64;
            self.nonzero_at(locking::HEAD_CONVOYS, bytes, |_, words| {
                found.push(Convoy::of_words(words));
            })?;
        }
        Ok(found)
    }
}
