//! The kernel's unwind table: where the frame of a function is, instruction by instruction.

use crate::bytes::i32_at;
use crate::error::Error;

/// One row as the kernel has it: `struct orc_entry`, six bytes.
///
/// 6.1 and 6.12 differ in the last two bits only (`end` became a type), which are copied and not
/// looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row(pub [u8; 6]);

/// How the caller's stack pointer is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// By nothing: there is no frame.
    Undefined,
    /// By the stack pointer.
    StackPointer,
    /// By the word that the stack pointer points to.
    StackTop,
    /// By another register, which a push does not change.
    Other,
}

impl Row {
    /// How the caller's stack pointer is found.
    pub fn base(self) -> Base {
        match self.0[4] & 15 {
            0 => Base::Undefined,
            // ORC_REG_SP, ORC_REG_SP_INDIRECT
            5 => Base::StackPointer,
            9 => Base::StackTop,
            _ => Base::Other,
        }
    }

    /// What is added to that base, in bytes.
    pub fn offset(self) -> i16 {
        i16::from_le_bytes([self.0[0], self.0[1]])
    }

    /// The row that holds after `bytes` more were pushed; `None` where that cannot be said.
    pub fn pushed(self, bytes: i16) -> Option<Row> {
        match self.base() {
            Base::Undefined | Base::StackTop => None,
            Base::Other => Some(self),
            Base::StackPointer => {
                let [low, high] = self.offset().checked_add(bytes)?.to_le_bytes();
                let Row([_, _, rest @ ..]) = self;
                Some(Row([low, high, rest[0], rest[1], rest[2], rest[3]]))
            }
        }
    }
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct Orc {
    starts: Vec<u64>,
    rows: Vec<Row>,
}

impl Orc {
    /// Reads the two tables: distances from each entry's own address, which begins at `at`, and rows.
    ///
    /// # Errors
    /// If they do not have the same number of entries, or are not in order.
    pub fn parse(distances: &[u8], at: u64, rows: &[u8]) -> Result<Orc, Error> {
        let (rows, rest) = rows.as_chunks::<6>();
        let count = distances.len() / 4;
        if count != rows.len() || !rest.is_empty() || !distances.len().is_multiple_of(4) {
            return Err(Error::Table("unwind rows"));
        }
        let start = |i: usize| {
            let place = at.wrapping_add(4 * i as u64);
            i32_at(distances, 4 * i).map(|d| place.wrapping_add_signed(d.into()))
        };
        let starts: Vec<u64> = (0..count).filter_map(start).collect();
        if !starts.is_sorted() {
            return Err(Error::Table("unwind rows"));
        }
        Ok(Orc { starts, rows: rows.iter().map(|row| Row(*row)).collect() })
    }

    /// Takes the table of a module in, whose text lies apart.
    pub fn extend(&mut self, other: &Orc) {
        let Some(first) = other.starts.first() else { return };
        let at = self.starts.partition_point(|start| start < first);
        self.starts.splice(at..at, other.starts.iter().copied());
        self.rows.splice(at..at, other.rows.iter().copied());
    }

    /// The row that holds at `address`.
    pub fn at(&self, address: u64) -> Option<Row> {
        let behind = self.starts.partition_point(|start| *start <= address);
        Some(self.rows[behind.checked_sub(1)?])
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: [u8; 6] = [8, 0, 0, 0, 5, 0];

    #[test]
    fn a_row_holds_until_the_next() {
        let at = 0x1000u64;
        let distances = [0x1000i32, 0x1000 + 6];
        let bytes: Vec<u8> = distances.iter().flat_map(|d| d.to_le_bytes()).collect();
        let second = [16, 0, 0, 0, 5, 0];
        let orc = Orc::parse(&bytes, at, &[ROW, second].concat()).unwrap();
        assert_eq!(orc.at(0x1fff), None);
        assert_eq!(orc.at(0x2009), Some(Row(ROW)));
        assert_eq!(orc.at(0x200a), Some(Row(second)));
        assert!(Orc::parse(&bytes, at, &ROW).is_err());
    }

    #[test]
    fn a_push_moves_frames_that_the_stack_pointer_finds() {
        assert_eq!(Row(ROW).pushed(8), Some(Row([16, 0, 0, 0, 5, 0])));
        // By the frame pointer; by nothing.
        let framed = Row([16, 0, 0xf0, 0xff, 0x14, 0]);
        assert_eq!(framed.pushed(8), Some(framed));
        assert_eq!(Row([0; 6]).pushed(8), None);
    }
}
