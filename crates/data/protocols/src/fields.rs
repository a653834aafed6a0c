//! Fields of a message, taken one by one. Of numbers, the most significant byte comes first, unless they are called
//! otherwise.

/// What is left of them.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub fn be16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(*self.take(2)?.first_chunk()?))
    }

    pub fn be32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.take(4)?.first_chunk()?))
    }

    pub fn be64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(*self.take(8)?.first_chunk()?))
    }

    /// Bytes behind their length, which is one byte.
    pub fn short_text(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(length.into())
    }

    /// Bytes behind their length, which is two bytes.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.be16()?;
        self.take(length.into())
    }

    /// Bytes behind their length, which is four bytes.
    pub fn long_text(&mut self) -> Option<&'a [u8]> {
        let length = self.be32()?;
        self.take(length as usize)
    }

    fn little(&mut self, bytes: usize) -> Option<u64> {
        let taken = self.take(bytes)?;
        Some(taken.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub fn le16(&mut self) -> Option<u16> {
        self.little(2).map(|number| number as u16)
    }

    pub fn le32(&mut self) -> Option<u32> {
        self.little(4).map(|number| number as u32)
    }

    /// A number of one byte, or of as many as the first says, the least significant ones first: MySQL's.
    pub fn sized_number(&mut self) -> Option<u64> {
        match self.little(1)? {
            small @ 0..=0xfa => Some(small),
            0xfc => self.little(2),
            0xfd => self.little(3),
            0xfe => self.little(8),
            _ => None,
        }
    }

    /// A number of up to five times seven bits, the least significant ones first.
    pub fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for n in 0..5 {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f).wrapping_shl(7 * n);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}
