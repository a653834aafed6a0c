//! What [`Run::apply`] does for rules that only start, stop and bind, when at most one request is
//! involved: most of what is left by [`Run::plain`].
//!
//! Everything is looked at before anything is done, so whatever is unusual can still be left to
//! [`Run::apply`].

use crate::deeds::Deed;
use crate::engine::Options;
use crate::feed::Setting;
use crate::keys::UNFIT;
use crate::log::Entry;
use crate::program::{After, Bind, Rule};
use crate::request::LinkKind;
use crate::requests::{Arrival, Open, Requests};
use crate::run::{Now, Run};
use crate::sections::{Member, NOBODY, PeerMark, Section, Sections};
use crate::state::{Code, State};
use crate::steps::Step;
use crate::syntax::Role;

/// Most bindings of such a rule.
pub(crate) const MOST: usize = 3;

/// A rule that only starts, stops and binds, prepared.
pub(crate) struct Simple {
    way: Way,
    deed: Deed,
    acts: [Act; MOST],
    /// Place of the seed's class, if there is one.
    seed: Option<usize>,
}

/// Does to an event what [`Run::apply`] would. Returns `false`, and has done nothing, if
/// more may be involved than a request.
type Way = fn(&Simple, &mut Run, &Setting<'_>, Now, &Step) -> bool;

/// A binding, prepared.
struct Act {
    role: u32,
    /// When a START is one.
    after: Option<After>,
    actor: bool,
    /// What an actor that touches the section waited for since another did.
    between: State,
    /// What becomes of the section's state and what it expects.
    next: [Code; Code::COUNT],
}

// What a binding does, as a number that code can be made for.
const START: u32 = 0;
const BASIC: u32 = 1;
/// BASIC that opens a section where there is none.
const IMPLICIT: u32 = 2;
const STOP: u32 = 3;
/// There is no such binding.
const NONE: u32 = 4;
/// Code that looks at what the binding does.
const ANY: u32 = 5;

impl Simple {
    /// Prepares a rule; `None` if it does more.
    pub fn new(rule: &Rule, deed: Deed, options: &Options) -> Option<Simple> {
        if !rule.simple || rule.binds.is_empty() || options.sharers_max == 0 {
            return None;
        }
        let acts = std::array::from_fn(|n| Act::new(rule.binds.get(n), options));
        let seed = rule.seed.as_ref().map(|seed| usize::from(seed.class));
        (rule.binds.len() <= MOST).then(|| Simple { way: way(&acts), deed, acts, seed })
    }

    /// Does to an event what [`Run::apply`] would; `false`, if more may be involved than a request.
    #[inline]
    pub fn take(&self, run: &mut Run, setting: &Setting<'_>, now: Now, step: &Step) -> bool {
        (self.way)(self, run, setting, now, step)
    }

    fn simply<const A: u32, const B: u32, const C: u32>(
        &self,
        run: &mut Run,
        setting: &Setting<'_>,
        now: Now,
        step: &Step,
    ) -> bool {
        let [one, two, three] = &self.acts;
        let places = setting.steps.places(step);
        let mut owner = NOBODY;
        let Some(a) = Part::<A>::look(&run.sections, one, places.of(0), &mut owner) else {
            return false;
        };
        let mut b = Part::<B>::none(two);
        if B != NONE {
            match Part::look(&run.sections, two, places.of(1), &mut owner) {
                Some(part) if part.is_apart(&[a.place]) => b = part,
                _ => return false,
            }
        }
        let mut c = Part::<C>::none(three);
        if C != NONE {
            match Part::look(&run.sections, three, places.of(2), &mut owner) {
                Some(part) if part.is_apart(&[a.place, b.place]) => c = part,
                _ => return false,
            }
        }
        let may_open = [A, B, C].iter().any(|role| matches!(*role, START | IMPLICIT | ANY));
        if may_open && run.sections.len() + MOST > setting.options.sections_max {
            return false;
        }
        a.enter(run, now);
        b.enter(run, now);
        c.enter(run, now);
        if let (Some(class), NOBODY) = (self.seed, owner) {
            owner = run.seed((class, None), setting.options, now).unwrap_or(owner);
        }
        if owner == NOBODY {
            a.pass(&mut run.sections, now);
            b.pass(&mut run.sections, now);
            c.pass(&mut run.sections, now);
            return true;
        }
        let Run { sections, requests, loose, too_long, .. } = run;
        let mut event = Owned { open: requests.open(owner), owner, now, actor: None };
        a.spread(sections, &mut event);
        b.spread(sections, &mut event);
        c.spread(sections, &mut event);
        if event.record(self.deed) >= setting.options.events_max {
            too_long.push(owner);
        }
        // Its sections may have ended, or it may have come into none.
        let open = event.open;
        let was_free = open.is_free();
        a.stop(sections, open, now.ns);
        b.stop(sections, open, now.ns);
        c.stop(sections, open, now.ns);
        if was_free | open.is_free() {
            loose.push(owner);
        }
        true
    }
}

impl Act {
    fn new(bind: Option<&Bind>, options: &Options) -> Act {
        let role = match bind {
            None => NONE,
            Some(Bind { role: Role::Start, .. }) => START,
            Some(Bind { role: Role::Stop, .. }) => STOP,
            Some(Bind { implicit: true, .. }) => IMPLICIT,
            Some(_) => BASIC,
        };
        Act {
            role,
            after: bind.and_then(|bind| bind.after.clone()),
            actor: bind.is_some_and(|bind| bind.actor),
            between: State::Waiting(bind.map(|bind| bind.between).unwrap_or_default()),
            next: Code::all_after(bind.and_then(|bind| bind.change), options.switches),
        }
    }
}

/// The code for a rule. Nearly each list of what bindings do has code of its own: which comes next
/// cannot be foreseen, so the processor should have to guess once, not at each binding.
fn way(acts: &[Act; MOST]) -> Way {
    match acts.each_ref().map(|act| act.role) {
        [START, NONE, _] => Simple::simply::<START, NONE, NONE>,
        [BASIC, NONE, _] => Simple::simply::<BASIC, NONE, NONE>,
        [STOP, NONE, _] => Simple::simply::<STOP, NONE, NONE>,
        [START, START, NONE] => Simple::simply::<START, START, NONE>,
        [START, BASIC, NONE] => Simple::simply::<START, BASIC, NONE>,
        [START, STOP, NONE] => Simple::simply::<START, STOP, NONE>,
        [BASIC, START, NONE] => Simple::simply::<BASIC, START, NONE>,
        [BASIC, BASIC, NONE] => Simple::simply::<BASIC, BASIC, NONE>,
        [BASIC, STOP, NONE] => Simple::simply::<BASIC, STOP, NONE>,
        [STOP, START, NONE] => Simple::simply::<STOP, START, NONE>,
        [STOP, BASIC, NONE] => Simple::simply::<STOP, BASIC, NONE>,
        [STOP, STOP, NONE] => Simple::simply::<STOP, STOP, NONE>,
        _ => Simple::simply::<ANY, ANY, ANY>,
    }
}

/// What an event of a request does to it.
struct Owned<'a> {
    open: &'a mut Open,
    owner: u32,
    now: Now,
    actor: Option<Actor>,
}

/// The actor of an event, as its request knows it.
#[derive(Clone, Copy)]
struct Actor {
    place: u32,
    local: u32,
    serial: u64,
}

/// A binding, and what it found.
#[derive(Clone, Copy)]
struct Part<'a, const ROLE: u32> {
    act: &'a Act,
    place: u32,
    /// Whether it opens a section, which ends one that is open.
    opens: bool,
}

impl<'a, const ROLE: u32> Part<'a, ROLE> {
    /// A binding that there is not.
    fn none(act: &Act) -> Part<'_, ROLE> {
        Part { act, place: UNFIT, opens: false }
    }

    #[inline(always)]
    fn role(&self) -> u32 {
        if ROLE == ANY { self.act.role } else { ROLE }
    }

    /// Whether its section is not one of others.
    #[inline(always)]
    fn is_apart(&self, others: &[u32]) -> bool {
        self.role() == NONE || !others.contains(&self.place)
    }

    /// Looks at a section; `None` if it has other requests than those of the event so far, of which
    /// there may be one.
    #[inline(always)]
    fn look(
        sections: &Sections,
        act: &'a Act,
        place: u32,
        owner: &mut u32,
    ) -> Option<Part<'a, ROLE>> {
        let mut part = Part { act, place, opens: false };
        if part.role() == NONE {
            return Some(Part::none(act));
        }
        // A key that does not fit has a place where no section is.
        let section = sections.all.get(place as usize)?;
        part.opens = match (part.role(), &act.after) {
            (START, None) => true,
            (START, Some(after)) if section.is_open() => {
                after.events.contains(&section.met.event())
            }
            (START, Some(after)) => after.nothing,
            (IMPLICIT, _) => !section.is_open(),
            _ => false,
        };
        // Who is in a section that ends here has nothing to do with the event.
        let slot = if part.opens { section.slot_ending() } else { section.slot() };
        if (slot != *owner) & (slot.max(*owner) != NOBODY) {
            return None;
        }
        // Whoever there is comes before nobody.
        *owner = slot.min(*owner);
        Some(part)
    }

    /// Opens a section.
    #[inline(always)]
    fn enter(&self, run: &mut Run, now: Now) {
        if self.role() == NONE {
            return;
        }
        let Run { sections, requests, counts, loose, .. } = run;
        let section = &mut sections.all[self.place as usize];
        if self.opens {
            if section.is_open() {
                counts.restarted += u64::from(self.act.after.is_none());
                leave(section, requests, loose, now.ns);
            }
            sections.opener.open(section, self.place, self.act.actor, now.met());
        } else if !section.is_open() {
            let stop = self.role() == STOP;
            counts.unmatched_stops += u64::from(stop);
            counts.unbound += u64::from(!stop);
        }
    }

    /// The section that it is bound to.
    #[inline(always)]
    fn section<'s>(&self, sections: &'s mut [Section]) -> Option<&'s mut Section> {
        if self.role() == NONE {
            return None;
        }
        let section = &mut sections[self.place as usize];
        section.is_open().then_some(section)
    }

    /// The event is nobody's.
    #[inline(always)]
    fn pass(&self, sections: &mut Sections, now: Now) {
        let Some(section) = self.section(&mut sections.all) else { return };
        if self.role() == STOP {
            sections.opener.close(section);
            sections.keys.idle(self.place);
            return;
        }
        section.met = now.met();
        section.code = self.act.next[section.code.index()];
    }

    /// The event's request is in the section from then on.
    #[inline(always)]
    fn spread(&self, sections: &mut Sections, event: &mut Owned<'_>) {
        let Sections { all, keys, touches, .. } = sections;
        let Some(section) = self.section(all) else { return };
        let Owned { open, owner, now, actor } = event;
        section.met = now.met();
        if section.is_only(NOBODY) {
            let local = open.join(section.stay(keys.name(self.place)), now.ns);
            section.member = Member { slot: *owner, local };
        }
        section.code = self.act.next[section.code.index()];
        match actor {
            // Actors come first, and touch the others.
            None if self.act.actor => {
                let (local, serial) = (section.member.local, section.serial);
                *actor = Some(Actor { place: self.place, local, serial });
            }
            Some(actor) if !self.act.actor => {
                let from_ns = std::mem::replace(&mut section.touched_ns, now.ns);
                let before = std::mem::replace(&mut section.touched_by, actor.serial);
                if before == actor.serial {
                    return;
                }
                let (timeline, key) = keys.name(actor.place);
                let request = Some(open.log.id());
                let by = PeerMark { serial: actor.serial, key, timeline, request };
                let from = std::mem::replace(&mut touches[self.place as usize], by);
                if before != 0 {
                    let (kind, between) = (LinkKind::Timeline, self.act.between);
                    let arrival = Arrival { kind, from, from_ns, between };
                    open.link(actor.local, arrival, now.ns);
                }
            }
            _ => {}
        }
    }

    /// The section ends, and the event's request leaves it.
    #[inline(always)]
    fn stop(&self, sections: &mut Sections, open: &mut Open, at_ns: u64) {
        if self.role() != STOP {
            return;
        }
        let Some(section) = self.section(&mut sections.all) else { return };
        section.leave(open, at_ns);
        sections.opener.close(section);
        sections.keys.idle(self.place);
    }
}

impl Owned<'_> {
    /// Writes the event down; returns how many its request has.
    #[inline(always)]
    fn record(&mut self, deed: Deed) -> usize {
        let actor = self.actor.map(|actor| actor.local);
        self.open.log.event(Entry { deed, ..self.now.entry(actor, false) })
    }
}

/// The request of a section, if it has one, leaves it, because it ends.
#[inline(always)]
fn leave(section: &mut Section, requests: &mut Requests, loose: &mut Vec<u32>, at_ns: u64) {
    if section.is_only(NOBODY) {
        return;
    }
    let slot = section.member.slot;
    let open = requests.open(slot);
    section.leave(open, at_ns);
    if open.is_free() {
        loose.push(slot);
    }
}
