//! Reading by a plan.

use super::model::Role;
use super::plan::StreamPlan;
use super::position::{Position, Stuck};
use super::steps::{Choose, CountOf, Fixed, Op};

/// What is read, and where it goes.
#[derive(Debug)]
pub struct Cursor<'a> {
    pub now: Position<'a>,
    /// Values of roles, and a bit for each that was met.
    pub roles: &'a mut [u64; Role::COUNT],
    pub met: u16,
    /// Values by slot.
    pub slots: &'a mut [u64],
    /// Values of arrays' elements, and how many were there before this event.
    pub elements: Vec<u64>,
    pub elements_before: usize,
}

/// Elements of all arrays of one event at most.
const ELEMENTS_MAX: usize = 1 << 22;

impl Cursor<'_> {
    /// The value of a role, if it was met.
    pub fn role(&self, role: Role) -> Option<u64> {
        (self.met & 1 << role as u16 != 0).then(|| self.roles[role as usize])
    }

    /// Takes an event's header: the event's number.
    pub fn header(&mut self, plan: &StreamPlan) -> Result<u64, Stuck> {
        if let Some(compact) = &plan.compact
            && let Some((id, time)) = self.now.compact(compact)
        {
            self.slots[usize::from(compact.class_slot)] = id;
            self.slots[usize::from(compact.time_slot)] = time;
            return Ok(id);
        }
        self.met = 0;
        self.run(&plan.header)?;
        Ok(self.role(Role::Class).unwrap_or(0))
    }

    /// Takes the steps.
    #[inline]
    pub fn run(&mut self, ops: &[Op]) -> Result<(), Stuck> {
        for op in ops {
            match op {
                Op::Fixed(fixed) => self.fixed(fixed)?,
                Op::Note { slot, size, role } => self.note(*slot, *size, *role),
                Op::Text { slot } => self.slots[usize::from(*slot)] = self.now.text()?,
                Op::Choose(choose) => self.choose(choose)?,
                Op::Align(to) => self.now.align(*to)?,
                other => self.rare(other)?,
            }
        }
        Ok(())
    }

    fn fixed(&mut self, fixed: &Fixed) -> Result<(), Stuck> {
        let from = self.now.stretch(fixed.bits, fixed.skip)? as usize;
        for load in &fixed.loads {
            let at = from + load.byte as usize;
            let seen = self.now.bytes.get(at..at + 9).ok_or(Stuck::Short)?;
            self.slots[usize::from(load.slot)] = load.value_of(seen);
        }
        Ok(())
    }

    #[inline]
    fn note(&mut self, slot: u16, size: u8, role: Role) {
        let value = self.slots[usize::from(slot)];
        match role {
            Role::Time if size >= 64 => self.now.time = value,
            Role::Time => self.now.tick(value, u32::from(size)),
            _ => {}
        }
        self.roles[role as usize] = value;
        self.met |= 1 << role as u16;
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
                self.slots[usize::from(*slot)] =
                    self.now.bits(u32::from(*size), *signed, *little)?;
                Ok(())
            }
            Op::Varint { slot, signed } => {
                self.slots[usize::from(*slot)] = self.now.varint(*signed)?;
                Ok(())
            }
            Op::Bytes { slot, count } => {
                self.slots[usize::from(*slot)] = self.now.take_bytes(self.count(*count))?;
                Ok(())
            }
            Op::Array { slot, count, body, first, width } => {
                let count = self.count(*count);
                if count > self.now.end - self.now.at {
                    return Err(Stuck::Short);
                }
                let (first, width) = (usize::from(*first), usize::from(*width));
                // Those of arrays within are in between: an element's values come when it is read.
                let mut values = Vec::new();
                for _ in 0..count {
                    self.run(body)?;
                    values.extend_from_slice(&self.slots[first..first + width]);
                    if values.len() + self.elements.len() - self.elements_before > ELEMENTS_MAX {
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
}
