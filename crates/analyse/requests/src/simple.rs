//! What [`Run::apply`] does for rules that only start, stop and bind, when at most one request is
//! involved: most of what is left by [`Run::plain`].
//!
//! Everything is looked at before anything is done, so whatever is unusual can still be left to
//! [`Run::apply`].

use crate::counts::SchemaCounts;
use crate::event::EventId;
use crate::handles::PeerMark;
use crate::keys::Keys;
use crate::log::Entry;
use crate::options::Options;
use crate::program::{After, Bind, Rule};
use crate::request::LinkKind;
use crate::requests::{Arrival, Open, Requests};
use crate::run::{Now, Run, begin};
use crate::sections::{Member, NOBODY, Opener, Section, Sections};
use crate::setting::Setting;
use crate::state::{Code, State};
use crate::steps::{MOST, Step};
use crate::syntax::Role;
use crate::transitions::Transition;

/// A rule that only starts, stops and binds, prepared. Only its first binding may be to an actor.
pub(crate) struct Simple {
    way: Way,
    event: EventId,
    transition: Transition,
    acts: Box<[Act]>,
    /// Place of the seed's class, if there is one.
    seed: Option<usize>,
}

/// Does to an event what [`Run::apply`] would. Returns `false`, and has done nothing, if
/// more may be involved than a request.
type Way = fn(&Simple, &mut Run, &Setting<'_>, &Step, u64) -> bool;

/// A binding, prepared.
struct Act {
    role: u32,
    /// When a START is one.
    after: Option<After>,
    /// What an actor that touches the section waited for since another did.
    between: State,
    /// What becomes of the section's state and what it expects.
    next: [Code; Code::COUNT],
}

// What a binding does, as a number that code can be made for.
const START: u32 = 1;
const BASIC: u32 = 2;
/// BASIC that opens a section where there is none.
const IMPLICIT: u32 = 3;
const STOP: u32 = 4;
/// Besides: it is to an actor.
const ACTOR: u32 = 8;
/// What all bindings of a rule do is a number of so many bits for each.
const ROLE_BITS: u32 = 4;
/// Code that looks at what bindings do.
const ANY: u32 = 0;

/// What two bindings do.
const fn two(one: u32, other: u32) -> u32 {
    other << ROLE_BITS | one
}

/// Whether bindings that do this may open sections.
const fn may_open(roles: u32) -> bool {
    let mut rest = roles;
    while rest != 0 {
        if matches!(rest & (ACTOR - 1), START | IMPLICIT) {
            return true;
        }
        rest >>= ROLE_BITS;
    }
    roles == ANY
}

/// Does something for each of a few bindings, with code of its own for each.
macro_rules! each {
    ($number:ident, $n:ident => $work:block) => {
        const { assert!($number <= MOST) };
        if $number > 0 {
            let $n = 0;
            $work
        }
        if $number > 1 {
            let $n = 1;
            $work
        }
        if $number > 2 {
            let $n = 2;
            $work
        }
    };
}

impl Simple {
    /// Prepares a rule; `None` if it does more.
    pub fn new(rule: &Rule, transition: Transition, options: &Options) -> Option<Simple> {
        if !rule.simple || rule.binds.len() > MOST || options.sharers_max == 0 {
            return None;
        }
        let acts: Box<[Act]> = rule.binds.iter().map(|bind| Act::new(bind, options)).collect();
        let seed = rule.seed.as_ref().map(|seed| usize::from(seed.class));
        Some(Simple { way: way(&acts)?, event: rule.event, transition, acts, seed })
    }

    /// Does to an event what [`Run::apply`] would; `false`, if more may be involved than a request.
    #[inline]
    pub fn take(&self, run: &mut Run, setting: &Setting<'_>, step: &Step, ns: u64) -> bool {
        (self.way)(self, run, setting, step, ns)
    }

    fn simply<const N: usize, const ROLES: u32>(
        &self,
        run: &mut Run,
        setting: &Setting<'_>,
        step: &Step,
        ns: u64,
    ) -> bool {
        let ordinal = setting.ordinal + u64::from(step.row);
        let now = Now { ns, ordinal, event: self.event };
        let looked = setting.steps.places(step);
        let places: [u32; N] = std::array::from_fn(|n| looked.of(n));
        let Run { sections, requests, counts, alarms, loose, too_long, .. } = run;
        let Sections { all, keys, touches, opener, .. } = sections;
        if const { may_open(ROLES) } && opener.len() + MOST > setting.options.sections_max {
            return false;
        }
        // A key that does not fit has a place where no section is.
        let here = all.get_disjoint_mut(places.map(|place| place as usize));
        let Ok(here) = here else { return false };
        let acts = self.acts.first_chunk().expect("an act for each binding");
        let mut scene = Scene::<N, ROLES> { acts, here, places, now };
        let Some((mut owner, opens)) = scene.look() else { return false };
        scene.enter(opens, opener, counts, |section| leave(section, requests, loose, now.ns));
        if let (Some(class), NOBODY) = (self.seed, owner) {
            let begun = begin(requests, alarms, counts, (class, None), &setting.options, now);
            owner = begun.unwrap_or(owner);
        }
        if owner == NOBODY {
            scene.pass(opener);
            return true;
        }
        let open = requests.open(owner);
        let actor = scene.spread((owner, open), keys, touches);
        let event = Entry { transition: self.transition, ..now.entry(actor, false) };
        if open.log.event(event) >= setting.options.events_max {
            too_long.push(owner);
        }
        // Its sections may have ended, or it may have come into none.
        let was_free = open.is_free();
        scene.stop(open, opener);
        if was_free | open.is_free() {
            loose.push(owner);
        }
        true
    }
}

/// The sections of an event.
struct Scene<'a, const N: usize, const ROLES: u32> {
    acts: &'a [Act; N],
    here: [&'a mut Section; N],
    places: [u32; N],
    now: Now,
}

/// The actor of an event, as its request knows it.
#[derive(Clone, Copy)]
struct Actor {
    place: u32,
    local: u32,
    serial: u64,
}

impl<'a, const N: usize, const ROLES: u32> Scene<'a, N, ROLES> {
    /// A binding, what it does, and whether it is to an actor.
    #[inline(always)]
    fn act(&self, n: usize) -> (&'a Act, u32, bool) {
        let act = &self.acts[n];
        let role = match ROLES {
            ANY => act.role,
            _ => ROLES >> (n as u32 * ROLE_BITS) & ((1 << ROLE_BITS) - 1),
        };
        (act, role & !ACTOR, role & ACTOR != 0)
    }

    /// Whose the event is, and which bindings open a section, which ends one that is open. `None` if
    /// more than one request is in them.
    #[inline(always)]
    fn look(&self) -> Option<(u32, [bool; N])> {
        let (mut owner, mut opens, mut several) = (NOBODY, [false; N], false);
        each!(N, n => {
            let (act, role, _) = self.act(n);
            let section = &*self.here[n];
            opens[n] = match (role, &act.after) {
                (START, None) => true,
                (START, Some(after)) if section.is_open() => {
                    after.events.contains(&section.last_event.event())
                }
                (START, Some(after)) => after.nothing,
                (IMPLICIT, _) => !section.is_open(),
                _ => false,
            };
            // A request in a section that ends here has nothing to do with the event.
            let slot = if opens[n] { section.slot_ending() } else { section.slot() };
            several |= (slot != owner) & (slot.max(owner) != NOBODY);
            // Any request comes before none.
            owner = slot.min(owner);
        });
        (!several).then_some((owner, opens))
    }

    /// Opens sections.
    #[inline(always)]
    fn enter(
        &mut self,
        opens: [bool; N],
        opener: &mut Opener,
        counts: &mut SchemaCounts,
        mut leave: impl FnMut(&mut Section),
    ) {
        each!(N, n => {
            let (act, role, actor) = self.act(n);
            let section = &mut *self.here[n];
            if opens[n] {
                if section.is_open() {
                    counts.restarted += u64::from(act.after.is_none());
                    leave(section);
                }
                opener.open(section, actor, self.now.last_event());
            } else if !section.is_open() {
                let stop = role == STOP;
                counts.unmatched_stops += u64::from(stop);
                counts.unbound += u64::from(!stop);
            }
        });
    }

    /// The event is of no request.
    #[inline(always)]
    fn pass(&mut self, opener: &mut Opener) {
        each!(N, n => {
            let (act, role, _) = self.act(n);
            let section = &mut *self.here[n];
            if section.is_open() {
                section.last_event = self.now.last_event();
                section.code = act.next[section.code.index()];
                if role == STOP {
                    opener.close(section);
                }
            }
        });
    }

    /// The event's request is in its sections from then on. Returns the actor's place among them.
    #[inline(always)]
    fn spread(
        &mut self,
        (owner, open): (u32, &mut Open),
        keys: &Keys,
        touches: &mut [PeerMark],
    ) -> Option<u32> {
        let now = self.now;
        let mut by: Option<Actor> = None;
        each!(N, n => {
            let (act, _, actor) = self.act(n);
            let place = self.places[n];
            let section = &mut *self.here[n];
            if section.is_open() {
                section.last_event = now.last_event();
                if section.is_only(NOBODY) {
                    let local = open.join(section.joined_section(keys.name(place)), place, now.ns);
                    section.member = Member { slot: owner, local };
                }
                section.code = act.next[section.code.index()];
                if actor {
                    let (local, serial) = (section.member.local, section.serial);
                    by = Some(Actor { place, local, serial });
                } else if let Some(actor) = by {
                    let from = &mut touches[place as usize];
                    touch(section, act, (actor, keys.name(actor.place)), from, open, now.ns);
                }
            }
        });
        by.map(|actor| actor.local)
    }

    /// Sections end, and the event's request leaves them.
    #[inline(always)]
    fn stop(&mut self, open: &mut Open, opener: &mut Opener) {
        each!(N, n => {
            let (_, role, _) = self.act(n);
            let section = &mut *self.here[n];
            if role == STOP && section.is_open() {
                section.leave(open, self.now.ns);
                opener.close(section);
            }
        });
    }
}

/// An actor, of that name, touches a section, which another may have touched before.
#[inline(always)]
fn touch(
    section: &mut Section,
    act: &Act,
    (actor, (timeline, key)): (Actor, (u16, u128)),
    from: &mut PeerMark,
    open: &mut Open,
    at_ns: u64,
) {
    let from_ns = std::mem::replace(&mut section.touched_ns, at_ns);
    let before = std::mem::replace(&mut section.touched_by, actor.serial);
    if before == actor.serial {
        return;
    }
    let request = Some(open.log.id());
    let by = PeerMark { serial: actor.serial, key, timeline, request };
    if before != 0 {
        let (kind, between) = (LinkKind::Timeline, act.between);
        open.link(actor.local, Arrival { kind, from: *from, from_ns, between }, at_ns);
    }
    *from = by;
}

impl Act {
    fn new(bind: &Bind, options: &Options) -> Act {
        let role = match bind.role {
            Role::Start => START,
            Role::Stop => STOP,
            _ if bind.implicit => IMPLICIT,
            _ => BASIC,
        };
        Act {
            role: role | if bind.actor { ACTOR } else { 0 },
            after: bind.after.clone(),
            between: bind.between,
            next: Code::all_after(bind.change, options.switches),
        }
    }
}

/// The code for a rule. Nearly each list of what bindings do has code of its own: which comes next
/// cannot be foreseen, so the processor should have to guess once, not at each binding.
fn way(acts: &[Act]) -> Option<Way> {
    const STARTED: u32 = START | ACTOR;
    const MET: u32 = BASIC | ACTOR;
    const STOPPED: u32 = STOP | ACTOR;
    Some(match acts {
        [one] => match one.role {
            STARTED => Simple::simply::<1, STARTED>,
            MET => Simple::simply::<1, MET>,
            STOPPED => Simple::simply::<1, STOPPED>,
            START => Simple::simply::<1, START>,
            BASIC => Simple::simply::<1, BASIC>,
            STOP => Simple::simply::<1, STOP>,
            _ => Simple::simply::<1, ANY>,
        },
        [one, other] => match (one.role, other.role) {
            (STARTED, START) => Simple::simply::<2, { two(STARTED, START) }>,
            (STARTED, BASIC) => Simple::simply::<2, { two(STARTED, BASIC) }>,
            (STARTED, STOP) => Simple::simply::<2, { two(STARTED, STOP) }>,
            (MET, START) => Simple::simply::<2, { two(MET, START) }>,
            (MET, BASIC) => Simple::simply::<2, { two(MET, BASIC) }>,
            (MET, STOP) => Simple::simply::<2, { two(MET, STOP) }>,
            (STOPPED, START) => Simple::simply::<2, { two(STOPPED, START) }>,
            (STOPPED, BASIC) => Simple::simply::<2, { two(STOPPED, BASIC) }>,
            (STOPPED, STOP) => Simple::simply::<2, { two(STOPPED, STOP) }>,
            _ => Simple::simply::<2, ANY>,
        },
        [_, _, _] => Simple::simply::<3, ANY>,
        _ => return None,
    })
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
