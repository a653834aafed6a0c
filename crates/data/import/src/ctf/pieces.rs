//! Events without choices, in pieces: what has to be looked at to find where an event ends, and the
//! fields that can be loaded later, for many events at a time.
//!
//! Most events are fields at fixed places with a text or two between them. Where such an event ends is
//! known from a few additions, so a batch of events is gone through twice: first from event to event,
//! which is noting down where each stretch of fields begins; then field by field, a loop for each that
//! does nothing but load, shift and store. What kind of field it is, is asked once for all of them.

use super::steps::{CountOf, Load, Op};

/// A piece of an event. Values are counted among the event's own.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Goes to a multiple of so many bits.
    Align(u32),
    /// So many bits with fields, which are loaded later.
    Fields { bits: u32, skip: u32, stretch: u32 },
    /// A text that a zero ends.
    Text { value: u16 },
}

/// Fields that lie together.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    /// Their loads, whose slots count from the event's first.
    loads: Vec<Load>,
    /// Texts and sequences, which are given by their place in the bytes.
    spans: Vec<Span>,
}

/// Bytes in a stretch.
#[derive(Clone, Copy, Debug)]
struct Span {
    byte: u32,
    value: u16,
    count: u32,
}

/// Where a stretch of one event is: in the packet, and the event's values among all.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub byte: u32,
    pub values: u32,
}

/// The pieces of an event's steps, if it has no others; its stretches are put to those of the stream.
pub fn of(ops: &[Op], first: usize, stretches: &mut Vec<Stretch>) -> Option<Box<[Piece]>> {
    let mut maker =
        Maker { first, pieces: Vec::new(), stretches: Vec::new(), before: stretches.len() };
    for op in ops {
        maker.add(op)?;
    }
    stretches.append(&mut maker.stretches);
    Some(maker.pieces.into())
}

struct Maker {
    /// The event's first slot.
    first: usize,
    pieces: Vec<Piece>,
    stretches: Vec<Stretch>,
    /// How many the stream has without them.
    before: usize,
}

impl Maker {
    fn add(&mut self, op: &Op) -> Option<()> {
        match op {
            Op::Align(to) => self.pieces.push(Piece::Align(*to)),
            Op::Text { slot } => {
                let value = self.own(*slot)?;
                self.pieces.push(Piece::Text { value });
            }
            Op::Fixed(fixed) => {
                let byte = self.fields(fixed.bits, fixed.skip)?;
                for load in &fixed.loads {
                    let load = Load { slot: self.own(load.slot)?, byte: byte + load.byte, ..*load };
                    self.stretches.last_mut()?.loads.push(load);
                }
            }
            Op::Bytes { slot, count: CountOf::Static(count) } => {
                let bits = u32::try_from(count.checked_mul(8)?).ok()?;
                let (byte, value, count) = (self.fields(bits, 0)?, self.own(*slot)?, bits / 8);
                self.stretches.last_mut()?.spans.push(Span { byte, value, count });
            }
            _ => return None,
        }
        Some(())
    }

    fn own(&self, slot: u16) -> Option<u16> {
        slot.checked_sub(self.first as u16)
    }

    /// Adds so many bits of fields, to the stretch before if that ends where a byte does. Gives the byte
    /// of the stretch in which they begin.
    fn fields(&mut self, more: u32, skip_of_more: u32) -> Option<u32> {
        if let Some(Piece::Fields { bits, skip, .. }) = self.pieces.last_mut() {
            let reach = skip.checked_add(*bits)?;
            if reach % 8 == 0 && skip_of_more == 0 {
                *bits = bits.checked_add(more)?;
                return Some(reach / 8);
            }
        }
        self.stretches.push(Stretch::default());
        let stretch = (self.before + self.stretches.len() - 1) as u32;
        self.pieces.push(Piece::Fields { bits: more, skip: skip_of_more, stretch });
        Some(0)
    }
}

impl Stretch {
    /// Loads all fields of all events that have the stretch.
    pub fn load(&self, starts: &[Start], bytes: &[u8], values: &mut [u64]) {
        for span in &self.spans {
            for start in starts {
                if let Some(to) = values.get_mut(start.values as usize + usize::from(span.value)) {
                    *to = u64::from(start.byte + span.byte) << 32 | u64::from(span.count);
                }
            }
        }
        for load in &self.loads {
            let mut with = Field { load, starts, bytes, values };
            match (load.plain_bits(), load.signed) {
                (Some(8), false) => with.each(|raw| u64::from(raw as u8)),
                (Some(8), true) => with.each(|raw| i64::from(raw as i8) as u64),
                (Some(16), false) => with.each(|raw| u64::from(raw as u16)),
                (Some(16), true) => with.each(|raw| i64::from(raw as i16) as u64),
                (Some(32), false) => with.each(|raw| u64::from(raw as u32)),
                (Some(32), true) => with.each(|raw| i64::from(raw as i32) as u64),
                (Some(64), _) => with.each(|raw| raw),
                _ if load.ninth > 0 => with.each_with_ninth(),
                _ => with.each(|raw| load.value(raw)),
            }
        }
    }
}

/// A field of many events.
struct Field<'a> {
    load: &'a Load,
    starts: &'a [Start],
    bytes: &'a [u8],
    values: &'a mut [u64],
}

impl Field<'_> {
    /// Turns each event's eight bytes, the lowest first, into its value. There are eight, and there
    /// is room for the value: that was checked when the event's start was noted.
    #[inline(always)]
    fn each(&mut self, value: impl Fn(u64) -> u64) {
        let bytes = self.bytes.get(self.load.byte as usize..).unwrap_or_default();
        let values = self.values.get_mut(usize::from(self.load.slot)..).unwrap_or_default();
        for start in self.starts {
            let from = start.byte as usize;
            let eight = bytes.get(from..from + 8).and_then(|eight| eight.try_into().ok());
            if let (Some(eight), Some(to)) = (eight, values.get_mut(start.values as usize)) {
                *to = value(u64::from_le_bytes(eight));
            }
        }
    }

    #[cold]
    fn each_with_ninth(&mut self) {
        let first = self.load.byte as usize;
        for start in self.starts {
            let from = start.byte as usize + first;
            let seen = self.bytes.get(from..from + 9).unwrap_or(&[0; 9]);
            let to = start.values as usize + usize::from(self.load.slot);
            if let Some(to) = self.values.get_mut(to) {
                *to = self.load.value_of(seen);
            }
        }
    }
}
