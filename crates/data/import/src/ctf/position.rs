//! A place in a packet, and how to go on from it.

use std::ffi::CStr;

use super::steps::{Compact, Load};

/// Bytes that a buffer has behind the packet, so that eight can always be loaded.
pub const PADDING: usize = 16;

/// Why a packet cannot be read on: at which bit, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// There are fewer bits than it takes.
    Short,
    /// It makes no sense.
    Wrong(&'static str),
}

/// The next bit of a packet, and the time there.
#[derive(Clone, Copy, Debug)]
pub struct Position<'a> {
    /// The packet, and [`PADDING`] behind it.
    pub bytes: &'a [u8],
    /// The next bit, and the first that is not the packet's.
    pub at: u64,
    pub end: u64,
    /// The clock's value.
    pub time: u64,
}

impl Position<'_> {
    /// Goes to a multiple of so many bits, a power of two.
    #[inline(always)]
    pub fn align(&mut self, to: u32) -> Result<(), Stuck> {
        let mask = u64::from(to) - 1;
        self.at = (self.at + mask) & !mask;
        if self.at > self.end { Err(Stuck::Short) } else { Ok(()) }
    }

    /// Goes beyond a stretch of so many bits, which begins `skip` bits within a byte: that byte.
    /// Eight bytes can be loaded from each byte of the stretch on, and one more.
    #[inline(always)]
    pub fn stretch(&mut self, bits: u32, skip: u32) -> Result<u32, Stuck> {
        let after = self.at + u64::from(bits);
        if after > self.end {
            return Err(Stuck::Short);
        }
        let byte = (self.at - u64::from(skip)) >> 3;
        self.at = after;
        Ok(byte as u32)
    }

    /// The clock's lowest bits: it advances to the next time that has them.
    #[inline]
    pub fn tick(&mut self, value: u64, bits: u32) {
        let mask = (1_u64 << bits) - 1;
        self.time = self.time.wrapping_add(value.wrapping_sub(self.time) & mask);
    }

    /// Takes a header at one go: the event's number, and what the header says of the time. `None` if it
    /// has another form.
    #[inline(always)]
    pub fn compact(&mut self, compact: &Compact) -> Option<(u64, u64)> {
        let mask = u64::from(compact.align) - 1;
        let at = (self.at + mask) & !mask;
        let after = at + u64::from(compact.class_bits + compact.time_bits);
        if after > self.end {
            return None;
        }
        let from = (at >> 3) as usize;
        let word = u64::from_le_bytes(self.bytes.get(from..from + 8)?.try_into().ok()?);
        let id = word & ((1 << compact.class_bits) - 1);
        if id >= compact.extended {
            return None;
        }
        let time = word >> compact.class_bits & ((1 << compact.time_bits) - 1);
        self.tick(time, compact.time_bits);
        self.at = after;
        Some((id, time))
    }

    /// A text that a zero ends: where it is.
    #[inline]
    pub fn text(&mut self) -> Result<u64, Stuck> {
        let (from, to) = ((self.at >> 3) as usize, (self.end >> 3) as usize);
        let rest = self.bytes.get(from..to).ok_or(Stuck::Short)?;
        let length = length(rest).ok_or(Stuck::Short)?;
        self.at += (length as u64 + 1) * 8;
        Ok((from as u64) << 32 | length as u64)
    }

    /// So many bytes: where they are.
    #[inline]
    pub fn take_bytes(&mut self, count: u64) -> Result<u64, Stuck> {
        if count > (self.end - self.at) >> 3 {
            return Err(Stuck::Short);
        }
        let place = (self.at >> 3) << 32 | count;
        self.at += count * 8;
        Ok(place)
    }

    /// An integer bit by bit.
    pub fn bits(&mut self, size: u32, signed: bool, little: bool) -> Result<u64, Stuck> {
        if self.at + u64::from(size) > self.end {
            return Err(Stuck::Short);
        }
        let mut value = 0_u64;
        for n in 0..size {
            let at = self.at + u64::from(n);
            let byte = *self.bytes.get((at >> 3) as usize).ok_or(Stuck::Short)?;
            match little {
                true => value |= u64::from(byte >> (at & 7) & 1) << n,
                false => value = value << 1 | u64::from(byte >> (7 - (at & 7)) & 1),
            }
        }
        self.at += u64::from(size);
        let unused = 64 - size;
        Ok(match signed {
            true => ((value << unused) as i64 >> unused) as u64,
            false => value,
        })
    }

    /// A number of seven bits a byte, the lowest first.
    pub fn varint(&mut self, signed: bool) -> Result<u64, Stuck> {
        let mut value = 0_u64;
        let mut shift = 0;
        loop {
            if self.at + 8 > self.end {
                return Err(Stuck::Short);
            }
            let byte = *self.bytes.get((self.at >> 3) as usize).ok_or(Stuck::Short)?;
            self.at += 8;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            } else if byte & 0x7f != 0 && !(signed && byte & 0x7f == 0x7f) {
                return Err(Stuck::Wrong("a number has more than 64 bits"));
            }
            shift += 7;
            if byte & 0x80 == 0 {
                let unused = 64_u32.saturating_sub(shift);
                return Ok(match signed {
                    true => ((value << unused) as i64 >> unused) as u64,
                    false => value,
                });
            }
        }
    }
}

/// Bytes before the first zero. Most texts are short: the first eight bytes are looked at together.
#[inline]
fn length(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    if let Some(eight) = bytes.first_chunk::<8>() {
        let word = u64::from_le_bytes(*eight);
        // The lowest byte that is zero gets its highest bit set; those above may, too.
        let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if zeros != 0 {
            return Some((zeros.trailing_zeros() / 8) as usize);
        }
    }
    CStr::from_bytes_until_nul(bytes).ok().map(CStr::count_bytes)
}

impl Load {
    /// The value in the eight bytes from the field's first on, the lowest first.
    #[inline]
    pub fn value(&self, raw: u64) -> u64 {
        let value = if self.little { raw } else { raw.swap_bytes() } << self.left;
        match self.signed {
            true => (value as i64 >> self.right) as u64,
            false => value >> self.right,
        }
    }

    /// The value in the nine bytes from the field's first on; the ninth is rarely of it.
    #[inline]
    pub fn value_of(&self, bytes: &[u8]) -> u64 {
        let Some((eight, rest)) = bytes.split_first_chunk::<8>() else { return 0 };
        match self.ninth {
            0 => self.value(u64::from_le_bytes(*eight)),
            _ => ninth(self, *eight, rest.first().copied().unwrap_or(0)),
        }
    }

    /// How many bits, if it is whole bytes as this machine has them.
    pub fn plain_bits(&self) -> Option<u8> {
        let plain = self.little && self.ninth == 0 && self.left == self.right;
        plain.then_some(64 - self.right)
    }
}

/// A field that reaches into a ninth byte.
#[cold]
fn ninth(load: &Load, raw: [u8; 8], byte: u8) -> u64 {
    let more = u32::from(load.ninth);
    match load.little {
        // The ninth's lowest bits are the field's highest.
        true => {
            let within = u32::from(load.right);
            let size = 64 - within + more;
            let low = u64::from_le_bytes(raw) >> within;
            let value = low | u64::from(byte) << (64 - within);
            extended(value, size, load.signed)
        }
        // The ninth's highest bits are the field's lowest.
        false => {
            let within = u32::from(load.left);
            let size = 64 - within + more;
            let high = u64::from_be_bytes(raw) << within >> within;
            let value = high << more | u64::from(byte) >> (8 - more);
            extended(value, size, load.signed)
        }
    }
}

fn extended(value: u64, size: u32, signed: bool) -> u64 {
    let unused = 64 - size.min(64);
    match signed {
        true => ((value << unused) as i64 >> unused) as u64,
        false => value << unused >> unused,
    }
}
