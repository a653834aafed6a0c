//! A time that a thread was switched out, as spools hold it.

/// A time that a thread was switched out, as it is spooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwitchedOut {
    /// Time-stamp counter when it stopped running.
    pub(crate) off: u64,
    /// Time-stamp counter when it ran again.
    pub(crate) on: u64,
    /// Ticks that it had been out before.
    pub(crate) before: u64,
    /// Whether it could have gone on.
    pub(crate) preempted: bool,
}

impl SwitchedOut {
    pub(crate) fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let words = [self.off << 1 | u64::from(self.preempted), self.on, self.before];
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        bytes
    }

    pub(crate) fn from_words([off, on, before]: [u64; 3]) -> SwitchedOut {
        SwitchedOut { off: off >> 1, on, before, preempted: off & 1 != 0 }
    }
}
