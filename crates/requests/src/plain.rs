//! What [`Run::apply`] does when nothing new happens, which is nearly always.

use std::hint::select_unpredictable;

use crate::engine::Options;
use crate::event::EventId;
use crate::program::Rule;
use crate::run::{Now, Run, Setting};
use crate::sections::NOBODY;
use crate::state::Code;
use crate::steps::Step;

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
        if second.is_some_and(|second| second.change.is_some()) {
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
            next: Code::all_after(first.change, options.switches),
        })
    }
}

impl Run {
    /// Does to an event what [`Run::apply`] would if all sections are open, and have the same request
    /// or none, which they had before. Returns `false`, and has done nothing, if it is not so.
    #[inline(always)]
    pub(crate) fn plain(
        &mut self,
        plain: &Plain,
        setting: &Setting<'_>,
        step: &Step,
        ns: u64,
    ) -> bool {
        let (places, event) = (setting.places(step), plain.event);
        let [one, two] = plain.keys.map(|key| places.of(usize::from(key)) as usize);
        let all = self.sections.all.as_mut_slice();
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
            // Choices that are computed: branches here would depend on what the event is.
            let by = select_unpredictable(plain.touches, second.touched_by, first.serial);
            if by != first.serial {
                return false;
            }
            all[two].since_ns = select_unpredictable(plain.touches, ns, second.since_ns);
        }
        let second = &mut all[two];
        second.touched_ns = ns;
        second.last = event;
        let first = &mut all[one];
        first.touched_ns = ns;
        first.last = event;
        let (code, from_ns) = (first.code, first.since_ns);
        let next = plain.next[code.index()];
        let stays = next.is_in_state_of(code);
        first.code = next;
        first.since_ns = select_unpredictable(stays, from_ns, ns);
        if owned {
            let open = self.requests.open(member.slot);
            if !stays {
                open.span((member.local, code.state()), (from_ns, ns), false);
            }
            let now = Now { ns, ordinal: setting.ordinal + u64::from(step.row), event };
            let actor = plain.acts.then_some(member.local);
            if open.event(now.event_of(actor, false)) >= setting.options.events_max {
                self.too_long.push(member.slot);
            }
        }
        true
    }
}
