//! What [`Run::apply`] does when nothing new happens, which is nearly always.

use std::hint::select_unpredictable;

use crate::engine::Options;
use crate::event::EventId;
use crate::feed::Setting;
use crate::program::Rule;
use crate::request::RequestEvent;
use crate::run::Run;
use crate::sections::NOBODY;
use crate::state::Code;
use crate::steps::Step;

/// A rule with nothing but one or two BASIC bindings, prepared: both kinds go the same way, without a
/// branch that would depend on which of them the event is.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    event: EventId,
    /// Whether the first binding is to an actor.
    acts: bool,
    /// Whether the second is to something that the actor touches.
    touches: bool,
    /// Whether an event of a section that is not open does nothing.
    alone: bool,
    /// What becomes of the first section's state and what it expects.
    next: [Code; Code::COUNT],
}

/// What became of an event.
pub(crate) enum Passed {
    /// Nothing: more may be involved.
    Not,
    Done,
    /// Its request has as many events as it may have.
    Full(u32),
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
        Some(Plain {
            event: rule.event,
            acts: first.actor,
            touches: first.actor && second.is_some_and(|second| !second.actor),
            alone: second.is_none() && !first.implicit,
            next: Code::all_after(first.change, options.switches),
        })
    }
}

impl Run {
    /// Does to an event what [`Run::apply`] would if all sections are open, and have the same request
    /// or none, which they had before.
    #[inline(always)]
    pub(crate) fn plain(
        &mut self,
        plain: &Plain,
        setting: &Setting<'_>,
        step: &Step,
        ns: u64,
    ) -> Passed {
        let [one, two] = step.places.map(|place| place as usize);
        let event = plain.event;
        let all = self.sections.all.as_mut_slice();
        // A key that does not fit has a place where no section is.
        let (Some(first), Some(second)) = (all.get(one), all.get(two)) else { return Passed::Not };
        let member = first.member;
        if second.member.slot != member.slot || member.slot > NOBODY {
            // Most events of idle actors end here.
            let nothing = plain.alone & !first.is_open();
            self.counts.unbound += u64::from(nothing);
            return if nothing { Passed::Done } else { Passed::Not };
        }
        let owned = member.slot != NOBODY;
        if owned {
            // Choices that are computed: branches here would depend on what the event is.
            let by = select_unpredictable(plain.touches, second.touched_by, first.serial);
            if by != first.serial {
                return Passed::Not;
            }
            all[two].since_ns = select_unpredictable(plain.touches, ns, second.since_ns);
        }
        all[two].meet(event, ns);
        let first = &mut all[one];
        first.meet(event, ns);
        let (code, from_ns) = (first.code, first.since_ns);
        let next = plain.next[code.index()];
        let stays = next.is_in_state_of(code);
        first.code = next;
        first.since_ns = select_unpredictable(stays, from_ns, ns);
        if owned {
            let log = &mut self.requests.open(member.slot).log;
            if !stays && from_ns < ns {
                log.state((member.local, code), ns, false);
            }
            let at = (ns, setting.ordinal + u64::from(step.row), event);
            let actor = plain.acts.then_some(member.local);
            if log.event(RequestEvent::new(at, actor, false)) >= setting.options.events_max {
                return Passed::Full(member.slot);
            }
        }
        Passed::Done
    }
}
