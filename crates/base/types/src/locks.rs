//! What threads add up of locks, between the recorder that reads it and the analyses.

use fettle_abi::locking::{Blame, Edge, Event, HEAD_WORDS, HeadWord, Row};

/// What one thread left of locks.
#[derive(Clone, Debug, Default)]
pub struct ThreadTable {
    /// Its process.
    pub pid: u32,
    /// Its number in the kernel.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Ticks at its start.
    pub start: u64,
    /// Ticks at its end, or at that of the recording.
    pub end: u64,
    /// [`HeadWord`]s.
    pub head: [u64; HEAD_WORDS],
    /// Locks and places, by number.
    pub rows: Vec<(u32, Row)>,
    /// Orders of locks.
    pub edges: Vec<Edge>,
    /// The threads that were waited for.
    pub blames: Vec<Blame>,
    /// Threads that it made or waited for, in order.
    pub events: Vec<Event>,
}

impl ThreadTable {
    /// A word of the head.
    pub fn word(&self, word: HeadWord) -> u64 {
        self.head[word as usize]
    }

    /// Whether it has anything to say.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.events.is_empty() && self.head.iter().all(|word| *word == 0)
    }
}
