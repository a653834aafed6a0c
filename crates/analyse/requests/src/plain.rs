//! What [`Run::apply`] does for most events: an actor goes on, and may touch something, begin it or end
//! it.

use crate::event::EventId;
use crate::handles::PeerMark;
use crate::log::Entry;
use crate::options::Options;
use crate::program::Rule;
use crate::run::Run;
use crate::sections::{EventOrdinal, Member, NOBODY, Section};
use crate::setting::Setting;
use crate::state::Code;
use crate::steps::{Beside, Step};
use crate::syntax::Role;
use crate::transitions::Transition;

/// A rule that binds an actor by BASIC, and perhaps something else by START, BASIC or STOP, prepared.
/// All of these go the same way as far as they can: which of them comes next cannot be foreseen.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    event: EventId,
    transition: Transition,
    pub beside: Beside,
    /// What becomes of the actor's state and what it expects.
    next: [Code; Code::COUNT],
}

impl Default for Plain {
    fn default() -> Plain {
        let next = [Code::FIRST; Code::COUNT];
        Plain { event: EventId(0), transition: Transition(0), beside: Beside::Other, next }
    }
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
    pub fn new(rule: &Rule, transition: Transition, options: &Options) -> Option<Plain> {
        let (first, beside) = match rule.binds.as_slice() {
            [one] if one.implicit => (one, Beside::Known),
            [one] => (one, Beside::Nothing),
            [one, two] => (
                one,
                match two.role {
                    Role::Start if two.after.is_none() => Beside::Begun,
                    Role::Basic => Beside::Known,
                    Role::Stop => Beside::Ended,
                    _ => return None,
                },
            ),
            _ => return None,
        };
        let usual = rule.simple && rule.seed.is_none() && options.sharers_max > 0;
        (usual && first.actor && first.role == Role::Basic).then(|| Plain {
            event: rule.event,
            transition,
            beside,
            next: Code::all_after(first.change, options.switches),
        })
    }

    /// The event is the last one of its sections, whose first is the actor's.
    #[inline(always)]
    fn meet(&self, all: &mut [Section], [one, two]: [usize; 2], last_event: EventOrdinal) {
        all[two].last_event = last_event;
        let first = &mut all[one];
        first.last_event = last_event;
        first.code = self.next[first.code.index()];
    }
}

impl Run {
    /// Does to an event what [`Run::apply`] would if its sections are open, but for one that it begins,
    /// and have the same request or none, which they had before.
    #[inline(always)]
    pub(crate) fn plain(
        &mut self,
        plain: &Plain,
        setting: &Setting<'_>,
        step: &Step,
        ns: u64,
    ) -> Passed {
        let ordinal = setting.ordinal + u64::from(step.row);
        let last_event = EventOrdinal::new(plain.event, ordinal);
        if step.beside == Beside::Begun
            && !self.begin_beside(step, &setting.options, (last_event, ns))
        {
            return Passed::Not;
        }
        let [one, two] = step.places.map(|place| place as usize);
        let all = self.sections.all.as_mut_slice();
        // A key that does not fit has a place where no section is.
        let (Some(first), Some(second)) = (all.get(one), all.get(two)) else { return Passed::Not };
        let Member { slot, local } = first.member;
        if second.member.slot != slot || slot > NOBODY {
            // Most events of idle actors end here.
            let nothing = (step.beside == Beside::Nothing) & !first.is_open();
            self.counts.unbound += u64::from(nothing);
            return if nothing { Passed::Done } else { Passed::Not };
        }
        if slot == NOBODY {
            plain.meet(all, [one, two], last_event);
            if step.beside == Beside::Ended {
                self.end_beside(step, ns);
            }
            return Passed::Done;
        }
        // If it is alone, both are the same.
        if second.touched_by != first.serial {
            return Passed::Not;
        }
        all[two].touched_ns = ns;
        plain.meet(all, [one, two], last_event);
        let (transition, actor) = (plain.transition, Some(local));
        let event = Entry { ns, ordinal, transition, actor, shared: false };
        let events = self.requests.open(slot).log.event(event);
        if step.beside == Beside::Ended {
            self.end_beside(step, ns);
        }
        if events < setting.options.events_max { Passed::Done } else { Passed::Full(slot) }
    }

    /// Opens a section in an event of an actor, whose request comes into it, if it has one. Returns
    /// `false`, and has done nothing, if more may be involved.
    #[inline(never)]
    fn begin_beside(
        &mut self,
        step: &Step,
        options: &Options,
        (last_event, ns): (EventOrdinal, u64),
    ) -> bool {
        let [actor, place] = step.places;
        let Run { sections, requests, .. } = self;
        let both = [actor, place].map(|place| place as usize);
        let Ok([first, second]) = sections.all.get_disjoint_mut(both) else { return false };
        let slot = first.member.slot;
        let is_usual = !second.is_open() & (slot <= NOBODY);
        if !is_usual || sections.opener.len() >= options.sections_max {
            return false;
        }
        sections.opener.open(second, false, last_event);
        if slot == NOBODY {
            return true;
        }
        let open = requests.open(slot);
        let (timeline, key) = sections.keys.name(actor);
        let (serial, request) = (first.serial, Some(open.log.id()));
        sections.touches[place as usize] = PeerMark { serial, key, timeline, request };
        second.touched_by = serial;
        let local = open.join(second.joined_section(sections.keys.name(place)), place, ns);
        second.member = Member { slot, local };
        true
    }

    /// Closes a section in an event of an actor, whose request leaves it, if it has one.
    #[inline(never)]
    fn end_beside(&mut self, step: &Step, ns: u64) {
        let [_, place] = step.places;
        let Run { sections, requests, .. } = self;
        let section = &mut sections.all[place as usize];
        if !section.is_only(NOBODY) {
            // Its actor has it still.
            section.leave(requests.open(section.member.slot), ns);
        }
        sections.opener.close(section);
    }
}
