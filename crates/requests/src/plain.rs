//! What [`Run::apply`] does when nothing new happens, which is nearly always.

use crate::engine::Options;
use crate::program::{Rule, next_state};
use crate::request::RequestEvent;
use crate::run::{Now, Run};
use crate::sections::NOBODY;
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
        let [one, two] = plain.keys.map(|key| places.of(usize::from(key)) as usize);
        let all = &mut self.sections.all;
        // A key that does not fit has a place where no section is.
        let (Some(first), Some(second)) = (all.get(one), all.get(two)) else { return false };
        let (Some(member), Some(other)) = (first.sole(), second.sole()) else {
            // Most events of idle actors end here.
            let nothing = plain.alone & !first.is_open();
            self.counts.unbound += u64::from(nothing);
            return nothing;
        };
        let owned = member.slot != NOBODY;
        let touches = plain.touches & owned;
        let known = (second.touched_by == first.serial) | !touches;
        if !known | (member.slot != other.slot) {
            return false;
        }
        let second = &mut all[two];
        second.touched_ns = now.ns;
        second.last = now.event;
        // A choice that is computed: a branch here would depend on what the event is.
        let keep = u64::from(touches).wrapping_sub(1);
        second.since_ns = (second.since_ns & keep) | (now.ns & !keep);
        let first = &mut all[one];
        first.touched_ns = now.ns;
        first.last = now.event;
        let (state, next) = (first.state, plain.next[place(first.state, first.expects)]);
        first.expects = plain.expects.unwrap_or(first.expects);
        let since_ns = first.since_ns;
        first.state = next;
        first.since_ns = if next == state { since_ns } else { now.ns };
        if owned & (first.since_ns > since_ns) {
            self.requests.span(member, state.state(), (since_ns, now.ns), false);
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
