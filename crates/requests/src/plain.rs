//! What [`Run::apply`] does when nothing new happens, which is nearly always.

use crate::engine::Options;
use crate::keys::UNFIT;
use crate::program::{Rule, next_state};
use crate::request::RequestEvent;
use crate::run::{Now, Run};
use crate::simple::{NOBODY, sole};
use crate::state::{Code, State, Wait};
use crate::steps::Places;

/// A rule with nothing but one or two BASIC bindings, prepared: both kinds go the same way, without a
/// branch that would depend on which of them the event is.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    /// Where the places of its bindings are among those of its keys; the same twice if it has one.
    keys: [u8; 2],
    /// Whether the first binding is to an actor.
    acts: bool,
    /// Whether the second is to something that the actor touches.
    touches: bool,
    /// Whether an event of a section that is not open does nothing.
    alone: bool,
    /// The first section's next state, by its state and what it expects.
    next: [Code; Code::COUNT * WAITS],
    /// What it expects then, if that changes.
    expects: Option<Wait>,
}

/// Kinds of waits: all states but two.
const WAITS: usize = Code::COUNT - 2;

impl Plain {
    /// Prepares a rule; `None` if it does more.
    pub fn new(rule: &Rule, options: &Options) -> Option<Plain> {
        let (first, second) = match rule.binds.as_slice() {
            [one] if rule.plain => (one, None),
            [one, two] if rule.plain => (one, Some(two)),
            _ => return None,
        };
        if second.is_some_and(|second| second.is.is_some() || second.expects.is_some()) {
            return None;
        }
        let keys = [first.key, second.unwrap_or(first).key].map(u8::try_from);
        let [Ok(one), Ok(two)] = keys else { return None };
        let mut next = [Code::from(State::Running); Code::COUNT * WAITS];
        for state in State::ALL {
            for wait in State::ALL.into_iter().filter_map(State::wait) {
                let then = match (first.is, first.expects) {
                    (Some(is), _) => next_state(is, wait),
                    (None, Some(wait)) if !options.switches => State::Waiting(wait),
                    _ => state,
                };
                next[place(state.into(), wait)] = then.into();
            }
        }
        Some(Plain {
            keys: [one, two],
            acts: first.actor,
            touches: first.actor && second.is_some_and(|second| !second.actor),
            alone: second.is_none() && !first.implicit,
            next,
            expects: first.expects,
        })
    }
}

/// Place of a state and what is expected in it in [`Plain::next`].
#[inline]
fn place(state: Code, expects: Wait) -> usize {
    state.index() * WAITS + expects as usize
}

impl Run {
    /// Does to an event what [`Run::apply`] would if all sections are open, and have the same request
    /// or none, which they had before. Returns `false`, and has done nothing, if it is not so.
    #[inline]
    pub(crate) fn plain(
        &mut self,
        plain: &Plain,
        places: Places<'_>,
        options: &Options,
        now: Now,
    ) -> bool {
        let [one, two] = plain.keys.map(|key| places.of(usize::from(key)));
        if one == UNFIT || two == UNFIT {
            return false;
        }
        let all = &mut self.sections.all;
        let (first, second) = (&all[one as usize], &all[two as usize]);
        let open = first.is_open() & second.is_open();
        if !open {
            // Most events of idle actors end here.
            self.counts.unbound += u64::from(plain.alone);
            return plain.alone;
        }
        let (Some(member), Some(other)) = (sole(first), sole(second)) else { return false };
        let owned = member.slot != NOBODY.slot;
        let touches = plain.touches & owned;
        let known = (second.touched_by == first.serial) | !touches;
        if !known | (member.slot != other.slot) {
            return false;
        }
        let second = &mut all[two as usize];
        second.touched_ns = now.ns;
        second.last = now.event;
        // A choice that is computed: a branch here would depend on what the event is.
        let keep = u64::from(touches).wrapping_sub(1);
        second.since_ns = (second.since_ns & keep) | (now.ns & !keep);
        let first = &mut all[one as usize];
        first.touched_ns = now.ns;
        first.last = now.event;
        let next = plain.next[place(first.state, first.expects)];
        first.expects = plain.expects.unwrap_or(first.expects);
        if next != first.state {
            self.turn(one, next, now.ns);
        }
        if owned {
            let event = RequestEvent {
                time_ns: now.ns,
                ordinal: now.ordinal,
                actor: plain.acts.then_some(member.local),
                kind: now.event,
                shared: false,
            };
            if self.requests.event(member.slot, event) >= options.events_max {
                self.too_long.push(member.slot);
            }
        }
        true
    }
}
