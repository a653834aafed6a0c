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

/// A plan names a slot or an event that has no room. Plans are made with the room for them, so that no
/// metadata leads here.
pub const NO_PLACE: Stuck = Stuck::Wrong("a value has no place");

/// Elements of all arrays of one event at most.
const ELEMENTS_MAX: usize = 1 << 22;

impl Cursor<'_> {
    /// The value of a role, if it was met.
    pub fn role(&self, role: Role) -> Option<u64> {
        let met = self.met & 1 << role as u16 != 0;
        self.roles.get(role as usize).copied().filter(|_| met)
    }

    #[inline]
    fn get(&self, slot: u16) -> Result<u64, Stuck> {
        self.slots.get(usize::from(slot)).copied().ok_or(NO_PLACE)
    }

    #[inline]
    fn set(&mut self, slot: u16, value: u64) -> Result<(), Stuck> {
        *self.slots.get_mut(usize::from(slot)).ok_or(NO_PLACE)? = value;
        Ok(())
    }

    /// The slots of a run of columns.
    #[inline]
    fn run_of(&mut self, first: u16, width: u16) -> Result<&mut [u64], Stuck> {
        let first = usize::from(first);
        self.slots.get_mut(first..first + usize::from(width)).ok_or(NO_PLACE)
    }

    /// Takes an event's header: the event's number.
    pub fn header(&mut self, plan: &StreamPlan) -> Result<u64, Stuck> {
        if let Some(compact) = &plan.compact
            && let Some((id, time)) = self.now.compact(compact)
        {
            self.set(compact.class_slot, id)?;
            self.set(compact.time_slot, time)?;
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
                Op::Note { slot, size, role } => self.note(*slot, *size, *role)?,
                Op::Text { slot } => {
                    let text = self.now.text()?;
                    self.set(*slot, text)?;
                }
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
            self.set(load.slot, load.value_of(seen))?;
        }
        Ok(())
    }

    #[inline]
    fn note(&mut self, slot: u16, size: u8, role: Role) -> Result<(), Stuck> {
        let value = self.get(slot)?;
        match role {
            Role::Time if size >= 64 => self.now.time = value,
            Role::Time => self.now.tick(value, u32::from(size)),
            _ => {}
        }
        if let Some(known) = self.roles.get_mut(role as usize) {
            *known = value;
        }
        self.met |= 1 << role as u16;
        Ok(())
    }

    #[inline]
    fn choose(&mut self, choose: &Choose) -> Result<(), Stuck> {
        let value = self.get(choose.selector.slot)?;
        if choose.width > 0 {
            self.run_of(choose.first, choose.width)?.fill(0);
        }
        match choose.steps(value) {
            Some(ops) => self.run(ops),
            None if choose.must => {
                Err(Stuck::Wrong("no option of a variant has the selector's value"))
            }
            None => Ok(()),
        }
    }

    fn count(&self, count: CountOf) -> Result<u64, Stuck> {
        match count {
            CountOf::Static(count) => Ok(count),
            CountOf::Slot(slot) => self.get(slot),
        }
    }

    #[cold]
    fn rare(&mut self, op: &Op) -> Result<(), Stuck> {
        match op {
            Op::Bits { slot, size, signed, little } => {
                let value = self.now.bits(u32::from(*size), *signed, *little)?;
                self.set(*slot, value)
            }
            Op::Varint { slot, signed } => {
                let value = self.now.varint(*signed)?;
                self.set(*slot, value)
            }
            Op::Bytes { slot, count } => {
                let place = self.now.take_bytes(self.count(*count)?)?;
                self.set(*slot, place)
            }
            Op::Array { slot, count, body, first, width } => {
                let count = self.count(*count)?;
                if count > self.now.end - self.now.at {
                    return Err(Stuck::Short);
                }
                // Those of arrays within are in between: an element's values come when it is read.
                let mut values = Vec::new();
                for _ in 0..count {
                    self.run(body)?;
                    values.extend_from_slice(self.run_of(*first, *width)?);
                    if values.len() + self.elements.len() - self.elements_before > ELEMENTS_MAX {
                        return Err(Stuck::Wrong("an array has too many elements"));
                    }
                }
                let place = self.elements.len() as u64;
                self.elements.append(&mut values);
                self.set(*slot, place << 32 | count)
            }
            _ => Ok(()),
        }
    }
}
