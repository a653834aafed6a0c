//! Rewritten text as the plan has it.

use fettle_isa::{Facts, FactsFactory, Insn};
use fettle_kernel_plan::{OrcRow, Part, Plan, Reference, Target, Value};

/// A place in the plan's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub part: u32,
    pub offset: u32,
}

impl Place {
    pub fn plus(self, bytes: usize) -> Place {
        Place { offset: self.offset.saturating_add(bytes as u32), ..self }
    }
}

/// Where rewritten text leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leads {
    /// On in the same function.
    Own(Place),
    /// To the entry of a function of the plan, which has this address in the original.
    Entry(u64),
    /// To an address of the kernel.
    Kernel(u64),
}

/// An instruction of rewritten text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'p> {
    pub insn: Insn,
    pub facts: Facts,
    pub bytes: &'p [u8],
    /// The only reference in it.
    pub reference: Option<&'p Reference>,
}

/// The rewritten text of one function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New<'p> {
    pub plan: &'p Plan,
    pub function: u32,
}

impl<'p> New<'p> {
    /// The part of a place, if it is one of this function.
    pub fn part(&self, part: u32) -> Option<&'p Part> {
        let found = self.plan.parts.get(part as usize)?;
        (found.function == self.function).then_some(found)
    }

    /// What stands at `place`. Addresses are offsets in the part.
    pub fn at(&self, place: Place, facts: &mut FactsFactory) -> Option<Found<'p>> {
        let part = self.part(place.part)?;
        let (insn, facts) =
            facts.decode(&part.text, place.offset as usize, u64::from(place.offset))?;
        let from = place.offset as usize;
        let bytes = part.text.get(from..from + insn.len())?;
        let end = place.offset + insn.len() as u32;
        let references = &part.references;
        let first = references.partition_point(|reference| reference.at < place.offset);
        let mut inside = references[first..].iter().take_while(|reference| reference.at < end);
        let reference = inside.next();
        // No instruction has two.
        inside.next().is_none().then_some(Found { insn, facts, bytes, reference })
    }

    /// What a target is.
    pub fn leads(&self, target: Target) -> Option<Leads> {
        match target {
            Target::Kernel(address) => Some(Leads::Kernel(address)),
            Target::Part { part, offset } => {
                let found = self.plan.parts.get(part as usize)?;
                if found.function == self.function {
                    return Some(Leads::Own(Place { part, offset }));
                }
                let function = self.plan.functions.get(found.function as usize)?;
                (function.entry == part && offset == 0).then_some(Leads::Entry(function.original))
            }
        }
    }

    /// Where a direct jump or call at `place` leads: by its reference, whose field is the last one, or by
    /// its own distance.
    pub fn branch(&self, place: Place, found: &Found<'p>) -> Option<Leads> {
        match found.reference {
            None => {
                let to = found.insn.near_branch_target();
                Some(Leads::Own(Place { part: place.part, offset: u32::try_from(to).ok()? }))
            }
            Some(reference) => {
                let Value::Relative { target, tail: 0 } = reference.value else { return None };
                let field = place.offset + (found.insn.len() as u32).checked_sub(4)?;
                (reference.at == field && found.insn.len() >= 5).then(|| self.leads(target))?
            }
        }
    }

    /// The unwind row that holds at `place`.
    pub fn row(&self, place: Place) -> Option<[u8; 6]> {
        let rows: &[OrcRow] = &self.part(place.part)?.orc;
        let behind = rows.partition_point(|row| row.at <= place.offset);
        Some(rows[behind.checked_sub(1)?].entry)
    }

    /// What the plan says `place` is in the original.
    pub fn origin(&self, place: Place) -> Option<u64> {
        let origins = &self.part(place.part)?.origins;
        let i = origins.binary_search_by_key(&place.offset, |origin| origin.at).ok()?;
        Some(origins[i].original)
    }
}
