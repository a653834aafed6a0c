//! Reading by a plan.

use super::model::Role;
use super::plan::{Choose, Compact, CountOf, Fixed, Load, Op};

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

/// What is read, and where it goes.
#[derive(Debug)]
pub struct Cursor<'a> {
    /// The packet, and [`PADDING`] behind it.
    pub bytes: &'a [u8],
    /// The next bit, and the first that is not the packet's.
    pub at: u64,
    pub end: u64,
    /// The clock's value.
    pub time: u64,
    /// Values of roles, and a bit for each that was met.
    pub roles: &'a mut [u64; Role::COUNT],
    pub met: u16,
    /// Values by slot.
    pub slots: &'a mut [u64],
    /// Values of arrays' elements.
    pub elements: &'a mut Vec<u64>,
}

/// Elements of all arrays of one event at most.
const ELEMENTS_MAX: usize = 1 << 22;

impl Cursor<'_> {
    /// The value of a role, if it was met.
    pub fn role(&self, role: Role) -> Option<u64> {
        (self.met & 1 << role as u16 != 0).then(|| self.roles[role as usize])
    }

    /// Takes the steps.
    #[inline]
    pub fn run(&mut self, ops: &[Op]) -> Result<(), Stuck> {
        for op in ops {
            match op {
                Op::Fixed(fixed) => self.fixed(fixed)?,
                Op::Note { slot, size, role } => self.note(*slot, *size, *role),
                Op::Text { slot } => self.text(*slot)?,
                Op::Choose(choose) => self.choose(choose)?,
                Op::Align(to) => {
                    // A power of two.
                    let mask = u64::from(*to) - 1;
                    self.at = (self.at + mask) & !mask;
                    if self.at > self.end {
                        return Err(Stuck::Short);
                    }
                }
                other => self.rare(other)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn fixed(&mut self, fixed: &Fixed) -> Result<(), Stuck> {
        let Fixed { bits, skip, loads, plain } = fixed;
        let (bits, skip) = (*bits, *skip);
        let after = self.at + u64::from(bits);
        if after > self.end {
            return Err(Stuck::Short);
        }
        let base = ((self.at - u64::from(skip)) >> 3) as usize;
        // The last field begins within `bits`; eight bytes from there are within the padding.
        let last = base + (skip + bits).div_ceil(8) as usize + PADDING - 1;
        let Some(seen) = self.bytes.get(base..last) else { return Err(Stuck::Short) };
        if *plain {
            for load in loads {
                let at = load.byte as usize;
                let Some(eight) = seen.get(at..at + 8) else { return Err(Stuck::Short) };
                let raw: [u8; 8] = eight.try_into().map_err(|_| Stuck::Short)?;
                let value = u64::from_le_bytes(raw) << load.left;
                let (plus, minus) = (value >> load.right, (value as i64 >> load.right) as u64);
                if let Some(slot) = self.slots.get_mut(usize::from(load.slot)) {
                    *slot = if load.signed { minus } else { plus };
                }
            }
            self.at = after;
            return Ok(());
        }
        for load in loads {
            let at = load.byte as usize;
            let Some(eight) = seen.get(at..at + 8) else { return Err(Stuck::Short) };
            let raw: [u8; 8] = eight.try_into().map_err(|_| Stuck::Short)?;
            let mut value = match load.little {
                true => u64::from_le_bytes(raw) << load.left,
                false => u64::from_be_bytes(raw) << load.left,
            };
            value = match load.signed {
                true => (value as i64 >> load.right) as u64,
                false => value >> load.right,
            };
            if load.ninth > 0 {
                value = ninth(load, raw, seen.get(at + 8).copied().unwrap_or(0));
            }
            if let Some(slot) = self.slots.get_mut(usize::from(load.slot)) {
                *slot = value;
            }
        }
        self.at = after;
        Ok(())
    }

    /// The clock's lowest bits: it went on to the next moment that has them.
    #[inline]
    fn tick(&mut self, value: u64, bits: u32) {
        let mask = (1_u64 << bits) - 1;
        let behind = value < self.time & mask;
        let above = (self.time & !mask).wrapping_add(u64::from(behind) << bits);
        self.time = above | value;
    }

    /// Takes a header at one go: the event's number. `None` if it has another form.
    #[inline]
    pub fn compact(&mut self, compact: &Compact) -> Option<u64> {
        let mask = u64::from(compact.align) - 1;
        let at = (self.at + mask) & !mask;
        let bits = compact.class_bits + compact.time_bits;
        if at + u64::from(bits) > self.end {
            return None;
        }
        let from = (at >> 3) as usize;
        let raw: [u8; 8] = self.bytes.get(from..from + 8)?.try_into().ok()?;
        let word = u64::from_le_bytes(raw);
        let id = word & ((1 << compact.class_bits) - 1);
        if id >= compact.extended {
            return None;
        }
        let time = word >> compact.class_bits & ((1 << compact.time_bits) - 1);
        *self.slots.get_mut(usize::from(compact.class_slot))? = id;
        *self.slots.get_mut(usize::from(compact.time_slot))? = time;
        self.tick(time, compact.time_bits);
        self.at = at + u64::from(bits);
        Some(id)
    }

    #[inline]
    fn note(&mut self, slot: u16, size: u8, role: Role) {
        let value = self.slots[usize::from(slot)];
        match role {
            Role::Time if size >= 64 => self.time = value,
            Role::Time => self.tick(value, u32::from(size)),
            _ => {}
        }
        self.roles[role as usize] = value;
        self.met |= 1 << role as u16;
    }

    #[inline]
    fn text(&mut self, slot: u16) -> Result<(), Stuck> {
        let (from, to) = ((self.at >> 3) as usize, (self.end >> 3) as usize);
        let rest = self.bytes.get(from..to).ok_or(Stuck::Short)?;
        let length = rest.iter().position(|byte| *byte == 0).ok_or(Stuck::Short)?;
        self.slots[usize::from(slot)] = (from as u64) << 32 | length as u64;
        self.at += (length as u64 + 1) * 8;
        Ok(())
    }

    #[inline]
    fn choose(&mut self, choose: &Choose) -> Result<(), Stuck> {
        let value = self.slots[usize::from(choose.selector.slot)];
        if choose.width > 0 {
            let first = usize::from(choose.first);
            self.slots[first..first + usize::from(choose.width)].fill(0);
        }
        match choose.steps(value) {
            Some(ops) => self.run(ops),
            None if choose.must => {
                Err(Stuck::Wrong("no option of a variant has the selector's value"))
            }
            None => Ok(()),
        }
    }

    fn count(&self, count: CountOf) -> u64 {
        match count {
            CountOf::Static(count) => count,
            CountOf::Slot(slot) => self.slots[usize::from(slot)],
        }
    }

    #[cold]
    fn rare(&mut self, op: &Op) -> Result<(), Stuck> {
        match op {
            Op::Bits { slot, size, signed, little } => {
                self.slots[usize::from(*slot)] = self.bits(u32::from(*size), *signed, *little)?;
                Ok(())
            }
            Op::Varint { slot, signed } => {
                self.slots[usize::from(*slot)] = self.varint(*signed)?;
                Ok(())
            }
            Op::Bytes { slot, count } => {
                let count = self.count(*count);
                let left = (self.end - self.at) >> 3;
                if count > left {
                    return Err(Stuck::Short);
                }
                self.slots[usize::from(*slot)] = (self.at >> 3) << 32 | count;
                self.at += count * 8;
                Ok(())
            }
            Op::Array { slot, count, body, first, width } => {
                let count = self.count(*count);
                if count > self.end - self.at {
                    return Err(Stuck::Short);
                }
                let (first, width) = (usize::from(*first), usize::from(*width));
                // Those of arrays within are in between: an element's values come when it is read.
                let mut values = Vec::new();
                for _ in 0..count {
                    self.run(body)?;
                    values.extend_from_slice(&self.slots[first..first + width]);
                    if values.len() + self.elements.len() > ELEMENTS_MAX {
                        return Err(Stuck::Wrong("an array has too many elements"));
                    }
                }
                let place = self.elements.len() as u64;
                self.elements.append(&mut values);
                self.slots[usize::from(*slot)] = place << 32 | count;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// An integer bit by bit.
    fn bits(&mut self, size: u32, signed: bool, little: bool) -> Result<u64, Stuck> {
        if self.at + u64::from(size) > self.end {
            return Err(Stuck::Short);
        }
        let mut value = 0_u64;
        for n in 0..size {
            let at = self.at + u64::from(n);
            let byte = self.bytes[(at >> 3) as usize];
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
    fn varint(&mut self, signed: bool) -> Result<u64, Stuck> {
        let mut value = 0_u64;
        let mut shift = 0;
        loop {
            if self.at + 8 > self.end {
                return Err(Stuck::Short);
            }
            let byte = self.bytes[(self.at >> 3) as usize];
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
