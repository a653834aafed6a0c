//! The record of one call: sixteen bytes, committed when the call ends.
//!
//! One large event instead of an entry and an exit event (request-tracking-drops-2006, 3.2.4,
//! rule 2): the pair is of no use apart, and one commit is half the cost of two.

/// Bits of [`CallRecord::start_and_id_high`] and [`CallRecord::ticks_and_id_low`] that hold a
/// half of the function identifier.
pub const ID_HALF_BITS: u32 = 12;

/// Most functions of one session: identifiers have 24 bits, and 0 is not one, so that the last word
/// of a record is never zero (the low half of an identifier is never 0).
pub const ID_MAX: u32 = (1 << (2 * ID_HALF_BITS)) - 1;

/// One call of a probed function.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CallRecord {
    /// Time-stamp counter at entry in the upper 52 bits (its own upper 12 are cut off: it wraps
    /// after weeks, and the consumer knows the time), upper half of the identifier below.
    pub start_and_id_high: u64,
    /// Ticks from entry to exit in the upper 52 bits, lower half of the identifier below.
    pub ticks_and_id_low: u64,
}

const _: () = assert!(size_of::<CallRecord>() == 16);

/// Function identifier with the bits that a record's two words hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(u32);

impl FunctionId {
    /// The `index`-th identifier (from 0). Identifiers whose lower half would be zero are left
    /// out, so there are 4095 to every 4096 numbers.
    ///
    /// Returns `None` past [`ID_MAX`].
    pub const fn from_index(index: u32) -> Option<FunctionId> {
        let n = index / 4095 * 4096 + index % 4095 + 1;
        if index >= 4095 * 4096 || n > ID_MAX { None } else { Some(FunctionId(n)) }
    }

    /// The inverse of [`FunctionId::from_index`].
    pub const fn index(self) -> u32 {
        self.0 / 4096 * 4095 + self.0 % 4096 - 1
    }

    /// The upper half, which is in the first word of a record.
    pub const fn high(self) -> u32 {
        self.0 >> ID_HALF_BITS
    }

    /// The lower half, which is in the last word of a record; never 0.
    pub const fn low(self) -> u32 {
        self.0 & ((1 << ID_HALF_BITS) - 1)
    }
}

impl CallRecord {
    /// The record of a call of `id` that began at `start` and took `ticks`.
    pub const fn new(id: FunctionId, start: u64, ticks: u64) -> CallRecord {
        CallRecord {
            start_and_id_high: start << ID_HALF_BITS | id.high() as u64,
            ticks_and_id_low: ticks << ID_HALF_BITS | id.low() as u64,
        }
    }

    /// The function, or `None` for a word that no producer can have stored.
    pub const fn id(self) -> Option<FunctionId> {
        let low = (self.ticks_and_id_low & 0xfff) as u32;
        let high = (self.start_and_id_high & 0xfff) as u32;
        if low == 0 { None } else { Some(FunctionId(high << ID_HALF_BITS | low)) }
    }

    /// Time-stamp counter at entry, modulo 2^52.
    pub const fn start(self) -> u64 {
        self.start_and_id_high >> ID_HALF_BITS
    }

    /// Ticks from entry to exit.
    pub const fn ticks(self) -> u64 {
        self.ticks_and_id_low >> ID_HALF_BITS
    }
}

/// A cell of a ring that is not a call: part of the arguments or the result of one.
///
/// Cells have a record's size. Their last word is never zero, as a record's, but its lower twelve
/// bits are, which a record's never are. A [`ValueCell::Head`] comes first, then each value,
/// which a text follows in [`TEXT_CELLS`] pieces. The head is stored last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueCell {
    /// Values of the call of `function` that began at `start` follow.
    Head {
        /// Number of the function ([`FunctionId::index`]).
        function: u32,
        /// Time-stamp counter at entry, all 64 bits.
        start: u64,
    },
    /// One value, as it was in its register.
    Value {
        /// Which argument, from 0; [`RESULT`] for the result.
        index: u8,
        /// Its bits.
        bits: u64,
    },
    /// Eight bytes of the text that the value before points to.
    Text {
        /// How much of `bytes` is text.
        piece: Piece,
        /// The bytes.
        bytes: [u8; 8],
    },
}

/// [`ValueCell::Value`]'s index of a result.
pub const RESULT: u8 = 255;
/// Cells that a text takes.
pub const TEXT_CELLS: usize = 8;
/// Most arguments that are recorded of one call.
pub const ARGUMENTS_MAX: usize = 15;

/// How much of a [`ValueCell::Text`] is text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// So many bytes, and the text ends there.
    End(u8),
    /// All bytes, and there is more.
    More,
    /// None: the value does not point to mapped memory.
    Fault,
}

impl ValueCell {
    /// The cell of two words; `None` if no producer can have stored them.
    pub fn decode(first: u64, last: u64) -> Option<ValueCell> {
        if last & 0xfff != 0 {
            return None;
        }
        let (kind, detail) = (last >> 12 & 0xf, (last >> 16) as u8);
        Some(match kind {
            1 => ValueCell::Head { function: (last >> 24 & 0xff_ffff) as u32, start: first },
            2 => ValueCell::Value { index: detail, bits: first },
            3 => ValueCell::Text {
                piece: match detail {
                    n @ 0..=8 => Piece::End(n),
                    9 => Piece::More,
                    _ => Piece::Fault,
                },
                bytes: first.to_le_bytes(),
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_survive_the_split() {
        for index in [0, 1, 4094, 4095, 4096, 1 << 20, 4095 * 4096 - 1] {
            let id = FunctionId::from_index(index).unwrap();
            assert_eq!(id.index(), index);
            assert_ne!(id.low(), 0);
            let record = CallRecord::new(id, 0x000f_1234_5678_9abc, 77);
            assert_eq!(record.id(), Some(id));
            assert_eq!(record.start(), 0x000f_1234_5678_9abc);
            assert_eq!(record.ticks(), 77);
        }
        assert_eq!(FunctionId::from_index(4095 * 4096), None);
    }
}
