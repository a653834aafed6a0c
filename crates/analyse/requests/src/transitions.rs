//! What an event does to its actor, by a small number.
//!
//! What an actor does from an event on follows from what it did before and from the rule that took the
//! event. So where an event is of one request alone, its log has the rule's number, and no more: the
//! states are worked out when the request is read, if it is.

use crate::event::EventId;
use crate::program::Schema;
use crate::state::Code;

/// The number of a kind of event, each of whose transitions is distinguished; or, after these, of a rule
/// that changes no state but that of its first binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition(pub u16);

impl Transition {
    /// An event of that kind, and nothing else.
    #[inline]
    pub fn nothing(event: EventId) -> Transition {
        Transition(event.0)
    }

    /// What a rule does; `None` if that cannot be said so.
    pub fn of(schema: &Schema, rule: usize) -> Option<Transition> {
        let binds = &schema.rules[rule].binds;
        let reported = binds.iter().skip(1).all(|bind| !bind.actor && bind.change.is_none())
            && binds.iter().all(|bind| bind.change.is_none_or(|change| change.was.is_none()));
        let number = schema.by_event.len() + rule;
        (reported && number < 1 << TRANSITION_BITS).then_some(Transition(number as u16))
    }
}

/// All that there are.
#[derive(Default)]
pub(crate) struct Transitions(Vec<(EventId, [Code; Code::COUNT])>);

impl Transitions {
    /// Those of a schema.
    pub fn new(schema: &Schema, switches: bool) -> Transitions {
        let kinds = (0..schema.by_event.len()).map(|kind| EventId(kind as u16));
        let kinds = kinds.map(|event| (event, Code::all_after(None, switches)));
        let rules = schema.rules.iter().map(|rule| {
            let change = rule.binds.first().and_then(|bind| bind.change);
            (rule.event, Code::all_after(change, switches))
        });
        Transitions(kinds.chain(rules).collect())
    }

    /// The kind of event, and what becomes of each state.
    #[inline]
    pub fn get(&self, transition: Transition) -> &(EventId, [Code; Code::COUNT]) {
        &self.0[usize::from(transition.0)]
    }
}

// Of an event: what it does comes first, then its actor.
pub(crate) const TRANSITION_BITS: u32 = 12;
