//! A viewport's answer as bytes: what the page draws sixty times a second is not parsed from text.
//!
//! Little-endian. A head of four 32-bit words: version, number of tracks, two spare. Then for each
//! track four words: thread, depth ([`OFF_CPU`] for off-CPU times), number of pieces, a spare one;
//! and its pieces in columns, in this order: starts and ends (64-bit floats, nanoseconds of trace
//! time), labels, spans in each, index of the first (32-bit words), and how much of it is filled, 0
//! to 255 (32-bit words). Everything is aligned to its size, so the page reads columns where they
//! lie.

use crate::track::Piece;

/// Version of this layout.
pub const VERSION: u32 = 1;
/// Depth of the track of a thread's off-CPU times.
pub const OFF_CPU: u32 = u32::MAX;

/// A viewport's answer on its way.
#[derive(Debug)]
pub struct Answer {
    bytes: Vec<u8>,
    tracks: u32,
}

impl Default for Answer {
    fn default() -> Answer {
        let mut answer = Answer { bytes: Vec::new(), tracks: 0 };
        answer.words([VERSION, 0, 0, 0]);
        answer
    }
}

impl Answer {
    fn words(&mut self, words: impl IntoIterator<Item = u32>) {
        self.bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
    }

    fn floats(&mut self, floats: impl Iterator<Item = u64>) {
        self.bytes.extend(floats.flat_map(|n| (n as f64).to_le_bytes()));
    }

    /// Adds a track.
    pub fn track(&mut self, thread: u32, depth: u32, pieces: &[Piece]) {
        self.tracks += 1;
        self.words([thread, depth, pieces.len() as u32, 0]);
        self.floats(pieces.iter().map(|piece| piece.start_ns));
        self.floats(pieces.iter().map(|piece| piece.end_ns));
        self.words(pieces.iter().map(|piece| piece.label));
        self.words(pieces.iter().map(|piece| piece.spans));
        self.words(pieces.iter().map(|piece| piece.index));
        self.words(pieces.iter().map(|piece| (piece.filled * 255.0).round() as u32));
    }

    /// The bytes.
    pub fn done(mut self) -> Vec<u8> {
        self.bytes[4..8].copy_from_slice(&self.tracks.to_le_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let piece =
            Piece { start_ns: 3, end_ns: 1 << 40, label: 7, spans: 2, index: 9, filled: 0.5 };
        let mut answer = Answer::default();
        answer.track(1, 4, &[piece, piece]);
        answer.track(1, OFF_CPU, &[]);
        let bytes = answer.done();
        assert_eq!(bytes.len(), 16 + (16 + 2 * 32) + 16);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let float = |at: usize| f64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!((word(0), word(4)), (VERSION, 2));
        assert_eq!((word(16), word(20), word(24)), (1, 4, 2));
        assert_eq!((float(32), float(48)), (3.0, (1u64 << 40) as f64));
        assert_eq!((word(64), word(72), word(80), word(88)), (7, 2, 9, 128));
        assert_eq!(word(96 + 4), OFF_CPU);
    }
}
