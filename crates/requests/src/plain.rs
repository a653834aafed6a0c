//! What [`Run::apply`] does when nothing new happens, which is nearly always.

use crate::deeds::Deed;
use crate::engine::Options;
use crate::event::EventId;
use crate::feed::Setting;
use crate::log::Entry;
use crate::program::Rule;
use crate::run::Run;
use crate::sections::{Member, Met, NOBODY};
use crate::state::Code;
use crate::steps::Step;

/// A rule that binds an actor by BASIC, and perhaps something that it touches, prepared: both kinds go
/// the same way, without a branch that would depend on which of them the event is.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    event: EventId,
    deed: Deed,
    /// Whether an event of a section that is not open does nothing.
    alone: bool,
    /// What becomes of the actor's state and what it expects.
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
    pub fn new(rule: &Rule, deed: Deed, options: &Options) -> Option<Plain> {
        let (first, second) = match rule.binds.as_slice() {
            [one] if rule.plain => (one, None),
            [one, two] if rule.plain => (one, Some(two)),
            _ => return None,
        };
        first.actor.then(|| Plain {
            event: rule.event,
            deed,
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
        let all = self.sections.all.as_mut_slice();
        // A key that does not fit has a place where no section is.
        let (Some(first), Some(second)) = (all.get(one), all.get(two)) else { return Passed::Not };
        let Member { slot, local } = first.member;
        let owned = slot < NOBODY;
        if second.member.slot != slot || !(owned || slot == NOBODY) {
            // Most events of idle actors end here.
            let nothing = plain.alone & !first.is_open();
            self.counts.unbound += u64::from(nothing);
            return if nothing { Passed::Done } else { Passed::Not };
        }
        let ordinal = setting.ordinal + u64::from(step.row);
        if owned {
            // If it is alone, both are the same.
            if second.touched_by != first.serial {
                return Passed::Not;
            }
            all[two].touched_ns = ns;
        }
        let met = Met::new(plain.event, ordinal);
        all[two].met = met;
        let first = &mut all[one];
        first.met = met;
        first.code = plain.next[first.code.index()];
        if owned {
            let (deed, actor) = (plain.deed, Some(local));
            let event = Entry { ns, ordinal, deed, actor, shared: false };
            if self.requests.open(slot).log.event(event) >= setting.options.events_max {
                return Passed::Full(slot);
            }
        }
        Passed::Done
    }
}
