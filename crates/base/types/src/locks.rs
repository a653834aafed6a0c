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
    /// System calls in which it was found with a lock in hand.
    pub held_over: Vec<HeldOver>,
}

/// A lock that a thread had while it waited in a system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldOver {
    /// Number of the lock's row.
    pub row: u32,
    /// The system call.
    pub call: u32,
    /// How often the thread was found there.
    pub looks: u64,
    /// The ticks that these looks stand for.
    pub ticks: u64,
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
