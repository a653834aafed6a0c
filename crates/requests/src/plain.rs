//! What [`Run::apply`] does when nothing new happens, which is nearly always.

use std::hint::select_unpredictable;

use crate::engine::Options;
use crate::event::EventId;
use crate::program::Rule;
use crate::request::Span;
use crate::run::{Now, Run};
use crate::sections::NOBODY;
use crate::state::Code;
use crate::steps::Places;

/// A rule with nothing but one or two BASIC bindings, prepared: both kinds go the same way, without a
/// branch that would depend on which of them the event is.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    event: EventId,
    /// Where the places of its bindings are among those of its keys; the same twice if it has one.
    keys: [u8; 2],
    /// Whether the first binding is to an actor.
    acts: bool,
    /// Whether the second is to something that the actor touches.
    touches: bool,
    /// Whether an event of a section that is not open does nothing.
    alone: bool,
    /// What becomes of the first section's state and what it expects.
    next: [Code; Code::COUNT],
}

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
        Some(Plain {
            event: rule.event,
            keys: [one, two],
            acts: first.actor,
            touches: first.actor && second.is_some_and(|second| !second.actor),
            alone: second.is_none() && !first.implicit,
            next: Code::all_after((first.is, first.expects), options.switches),
        })
    }
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
        (ns, ordinal): (u64, u64),
    ) -> bool {
        let [one, two] = plain.keys.map(|key| places.of(usize::from(key)) as usize);
        let all = &mut self.sections.all;
        // A key that does not fit has a place where no section is.
        let (Some(first), Some(second)) = (all.get(one), all.get(two)) else { return false };
        let Some(member) = first.sole() else {
            // Most events of idle actors end here.
            let nothing = plain.alone & !first.is_open();
            self.counts.unbound += u64::from(nothing);
            return nothing;
        };
        if !second.is_only(member.slot) {
            return false;
        }
        let owned = member.slot != NOBODY;
        if owned {
            if (second.touched_by != first.serial) & plain.touches {
                return false;
            }
            let second = &mut all[two];
            second.since_ns = select_unpredictable(plain.touches, ns, second.since_ns);
        }
        let second = &mut all[two];
        second.touched_ns = ns;
        second.last = plain.event;
        let first = &mut all[one];
        first.touched_ns = ns;
        first.last = plain.event;
        let (code, from_ns) = (first.code, first.since_ns);
        let next = plain.next[code.index()];
        let stays = next.is_in_state_of(code);
        first.code = next;
        first.since_ns = select_unpredictable(stays, from_ns, ns);
        if owned {
            let open = self.requests.open(member.slot);
            if !stays & (from_ns < ns) {
                let (section, state) = (member.local, code.state());
                open.spans.push(Span { section, state, from_ns, to_ns: ns, shared: false });
            }
            let now = Now { ns, ordinal, event: plain.event };
            let event = now.event_of(plain.acts.then_some(member.local), false);
            if open.event(event) >= options.events_max {
                self.too_long.push(member.slot);
            }
        }
        true
    }
}
