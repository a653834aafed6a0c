//! What an event can do to sections, as far as the event alone says.
//!
//! Most events of a busy machine are of threads that work on nothing that is asked about: their sections
//! are not open, and the engine forgets such an event at once. Whether a section can be open follows
//! from the events of its key alone, so it can be found out for each key apart, on as many machines as
//! there are, before the one pass that needs all keys together. That pass then gets the events that may
//! matter to it, and finds what it would have found with all of them.
//!
//! All of this is on the safe side: a section may be taken to be open that is not, never the other
//! way round.

use std::collections::HashMap;

use crate::event::Batch;
use crate::program::{Program, Schema, Scope, Traffic};
use crate::syntax::Role;

/// What an event does to the section of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It opens one, if there is none.
    Opens,
    /// It may open one if any of the event's other sections is open, and does nothing else if this
    /// one is not.
    Receives,
    /// It does something if one is open.
    Touches,
    /// The same, and afterwards none is open.
    Closes,
}

/// A section that an event names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Place of its timeline in [`Schema::timelines`].
    pub timeline: usize,
    /// Its key, packed.
    pub key: u128,
    /// What happens to it.
    pub effect: Effect,
}

/// What an event can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Whether it does something whatever is open: it seeds, moves bytes, or notes a fact.
    pub always: bool,
    /// The sections that it names, in the order in which it names them.
    pub references: Vec<Reference>,
}

impl Program {
    /// What an event of a batch can do in a schema; `false` if none of its rules takes it, and then
    /// it does nothing.
    pub fn footprint(&self, schema: usize, batch: &Batch, row: usize, out: &mut Footprint) -> bool {
        out.always = false;
        out.references.clear();
        let Some(schema) = self.schemas.get(schema) else { return false };
        schema.footprint(batch, row, out)
    }
}

impl Schema {
    fn footprint(&self, batch: &Batch, row: usize, out: &mut Footprint) -> bool {
        let columns = &batch.columns;
        let Some((first, end)) = self.by_event.get(batch.kinds[row].index()) else { return false };
        let rules = &self.rules[*first as usize..*end as usize];
        let Some(rule) = rules.iter().find(|rule| rule.takes(columns, row)) else { return false };
        let mut locals = Vec::new();
        for local in &rule.locals {
            let value = local.of(&Scope { columns, row, locals: &locals });
            locals.push(value);
        }
        let scope = Scope { columns, row, locals: &locals };
        // What a stream forgets at START or STOP is nothing to any section, but perhaps the last hold of one.
        let moves = |transfer: &crate::program::Transfer| match &transfer.what {
            Traffic::Send { bytes, .. } | Traffic::Receive { bytes, .. } => bytes.of(&scope) > 0,
            Traffic::Reset { .. } => true,
        };
        out.always =
            rule.seed.is_some() || !rule.marks.is_empty() || rule.transfers.iter().any(moves);
        let mut add = |timeline: usize, key: Option<u128>, effect: Effect| {
            // A value that does not fit its key binds nothing.
            out.references.extend(key.map(|key| Reference { timeline, key, effect }));
        };
        for bind in &rule.binds {
            let effect = match bind.role {
                Role::Start => Effect::Opens,
                Role::Basic | Role::Join if bind.implicit => Effect::Opens,
                // A condition may keep it from closing.
                Role::Stop if bind.when.is_empty() => Effect::Closes,
                Role::Stop | Role::Basic | Role::Join | Role::Note => Effect::Touches,
            };
            add(bind.timeline, rule.keys[bind.key].1.of(&scope), effect);
        }
        for dropped in &rule.drops {
            let certain = dropped.when.is_empty() && !dropped.settled;
            let effect = if certain { Effect::Closes } else { Effect::Touches };
            add(dropped.timeline, rule.keys[dropped.key].1.of(&scope), effect);
        }
        for context_transfer in &rule.lends {
            add(
                context_transfer.timeline,
                rule.keys[context_transfer.to].1.of(&scope),
                Effect::Opens,
            );
        }
        for handoff in &rule.handoffs {
            add(handoff.timeline, rule.keys[handoff.key].1.of(&scope), Effect::Receives);
        }
        true
    }
}

/// Which sections may be open, for some of the keys.
#[derive(Debug, Default)]
pub struct MayBeOpen {
    /// For each that may be, until when it stays so whatever closes it.
    open: HashMap<(usize, u128), u64>,
}

impl MayBeOpen {
    /// Takes in what an event does to one key, in order of time; says whether the event may matter
    /// because of it.
    pub fn matters(&mut self, reference: &Reference, now_ns: u64) -> bool {
        let name = (reference.timeline, reference.key);
        match reference.effect {
            Effect::Opens => {
                self.open.entry(name).or_insert(0);
                true
            }
            Effect::Receives => {
                let was_open = self.open.contains_key(&name);
                self.open.entry(name).or_insert(0);
                was_open
            }
            Effect::Touches => self.open.contains_key(&name),
            Effect::Closes => match self.open.get(&name) {
                None => false,
                Some(until_ns) => {
                    if *until_ns <= now_ns {
                        self.open.remove(&name);
                    }
                    true
                }
            },
        }
    }

    /// An event of that time may turn out to have happened before; if it opens the section, that may
    /// be open from now on.
    pub fn foresee(&mut self, reference: &Reference, at_ns: u64) {
        if matches!(reference.effect, Effect::Opens | Effect::Receives) {
            let until_ns = self.open.entry((reference.timeline, reference.key)).or_insert(0);
            *until_ns = (*until_ns).max(at_ns);
        }
    }

    /// Sections that may be open: what memory depends on.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none can be.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}
