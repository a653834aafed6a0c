//! What [`Run::apply`] does for rules that only start, stop and bind, when at most one request is
//! involved: most of what is left by [`Run::plain`].
//!
//! Everything is looked at before anything is done, so whatever is unusual can still be left to
//! [`Run::apply`].

use crate::engine::Options;
use crate::program::{Bind, Rule};
use crate::run::{Now, Run, Setting};
use crate::sections::{NOBODY, Section};
use crate::steps::Step;
use crate::syntax::Role;

/// What a binding finds.
#[derive(Clone, Copy, Default)]
struct Found {
    place: u32,
    open: bool,
    /// Whether it opens a section, which ends one that is open.
    opens: bool,
}

/// What a binding does, as a number that code can be made for.
const START: u32 = 0;
const BASIC: u32 = 1;
const STOP: u32 = 2;
/// The binding says what it does.
const ANY: u32 = 3;

/// Does to an event what [`Run::apply`] would. Returns `false`, and has done nothing, if more may be
/// involved than a request.
pub(crate) type Simple = fn(&mut Run, &Setting<'_>, &Step) -> bool;

/// The code for a rule. Nearly each list of what bindings do has code of its own: which comes next
/// cannot be foreseen, so the processor should have to guess once, not at each binding.
pub(crate) fn simple(rule: &Rule, options: &Options) -> Option<Simple> {
    let role = |bind: &Bind| match bind.role {
        Role::Start => START,
        Role::Stop => STOP,
        Role::Basic if !bind.implicit => BASIC,
        _ => ANY,
    };
    let roles: Vec<u32> = rule.binds.iter().map(role).collect();
    Some(match roles.as_slice() {
        _ if !rule.simple || options.sharers_max == 0 => return None,
        [START] => Run::one::<START>,
        [BASIC] => Run::one::<BASIC>,
        [STOP] => Run::one::<STOP>,
        [START, START] => Run::two::<START, START>,
        [START, BASIC] => Run::two::<START, BASIC>,
        [START, STOP] => Run::two::<START, STOP>,
        [BASIC, START] => Run::two::<BASIC, START>,
        [BASIC, BASIC] => Run::two::<BASIC, BASIC>,
        [BASIC, STOP] => Run::two::<BASIC, STOP>,
        [STOP, START] => Run::two::<STOP, START>,
        [STOP, BASIC] => Run::two::<STOP, BASIC>,
        [STOP, STOP] => Run::two::<STOP, STOP>,
        [_] => Run::one::<ANY>,
        [_, _] => Run::two::<ANY, ANY>,
        [_, _, _] => Run::three,
        _ => return None,
    })
}

/// A binding, what it does, and what it finds.
#[derive(Clone, Copy)]
struct Simply<'a> {
    bind: &'a Bind,
    role: Role,
    found: Found,
}

impl Run {
    fn one<const A: u32>(&mut self, setting: &Setting<'_>, step: &Step) -> bool {
        self.simply(setting, step, [A])
    }

    fn two<const A: u32, const B: u32>(&mut self, setting: &Setting<'_>, step: &Step) -> bool {
        self.simply(setting, step, [A, B])
    }

    fn three(&mut self, setting: &Setting<'_>, step: &Step) -> bool {
        self.simply(setting, step, [ANY; 3])
    }

    #[inline(always)]
    fn simply<const N: usize>(
        &mut self,
        setting: &Setting<'_>,
        step: &Step,
        roles: [u32; N],
    ) -> bool {
        let (rule, options) = (setting.rule(step), setting.options);
        let places = setting.places(step);
        let Some(binds) = rule.binds.first_chunk::<N>() else { return false };
        let role = |n: usize| match roles[n] {
            START => Role::Start,
            BASIC => Role::Basic,
            STOP => Role::Stop,
            _ => binds[n].role,
        };
        let mut all: [Simply; N] = std::array::from_fn(|n| Simply {
            bind: &binds[n],
            role: role(n),
            found: Found::default(),
        });
        let mut owner = NOBODY;
        for n in 0..N {
            let Simply { bind, role, .. } = all[n];
            let place = places.of(bind.key);
            // A key that does not fit has a place where no section is.
            let Some(section) = self.sections.all.get(place as usize) else { return false };
            let opens = opens(bind, role, roles[n], section);
            let twice = all[..n].iter().any(|other| other.found.place == place);
            all[n].found = Found { place, open: section.is_open(), opens };
            // Who is in a section that ends here has nothing to do with the event.
            let slot = if opens { NOBODY } else { section.slot() };
            if twice | ((slot != owner) & (slot.max(owner) != NOBODY)) {
                return false;
            }
            // Whoever there is comes before nobody.
            owner = owner.min(slot);
        }
        if self.sections.len() + N > options.sections_max {
            return false;
        }
        let now = setting.now(step);
        for one in &mut all {
            self.enter_simply(one, now);
        }
        if let (Some(seed), NOBODY) = (&rule.seed, owner) {
            owner = self.seed((usize::from(seed.class), None), options, now).unwrap_or(owner);
        }
        for one in &all {
            self.spread_simply(one, owner, options, now);
        }
        if owner != NOBODY {
            self.record_simply(&all, owner, options, now);
        }
        for Simply { role, found, .. } in &all {
            if *role == Role::Stop && found.open {
                self.close(found.place, now.ns);
            }
        }
        true
    }

    #[inline(always)]
    fn enter_simply(&mut self, one: &mut Simply<'_>, now: Now) {
        let Simply { bind, role, found } = one;
        if found.opens {
            if found.open {
                self.counts.restarted += u64::from(bind.after.is_none());
                self.leave(found.place, now.ns);
            }
            self.sections.open(found.place, bind.actor, now.event, now.ns);
            found.open = true;
        } else if !found.open {
            let stop = *role == Role::Stop;
            self.counts.unmatched_stops += u64::from(stop);
            self.counts.unbound += u64::from(!stop);
        }
    }

    /// Puts the event's request, if there is one, into one of its sections.
    #[inline(always)]
    fn spread_simply(&mut self, one: &Simply<'_>, owner: u32, options: &Options, now: Now) {
        let Simply { bind, found, .. } = one;
        if !found.open {
            return;
        }
        let section = &mut self.sections.all[found.place as usize];
        section.touched_ns = now.ns;
        section.last = now.event;
        if owner != NOBODY && section.is_only(NOBODY) {
            self.join(found.place, owner, now.ns);
        }
        if let Some(change) = bind.change {
            self.change(found.place, change, options, now.ns);
        }
    }

    /// Writes the event down for its request.
    #[inline(always)]
    fn record_simply<const N: usize>(
        &mut self,
        all: &[Simply<'_>; N],
        owner: u32,
        options: &Options,
        now: Now,
    ) {
        // Actors come first.
        let mut local = None;
        if let Some(actor) = all.iter().find(|one| one.found.open).filter(|one| one.bind.actor) {
            let place = actor.found.place;
            let member = self.sections.all[place as usize].sole();
            local = member.map(|member| member.local);
            for Simply { bind, found, .. } in all {
                if !bind.actor && found.open {
                    let arrival = self.touch(bind, found.place, place, now);
                    if let (Some(member), Some(arrival)) = (member, arrival) {
                        self.requests.link(member, arrival, now.ns);
                    }
                }
            }
        }
        let event = now.event_of(local, false);
        if self.requests.open(owner).event(event) >= options.events_max {
            self.too_long.push(owner);
        }
    }
}

/// Whether a binding opens a section.
#[inline(always)]
fn opens(bind: &Bind, role: Role, known: u32, section: &Section) -> bool {
    match (role, &bind.after) {
        (Role::Start, None) => true,
        (Role::Start, Some(after)) if section.is_open() => after.events.contains(&section.last),
        (Role::Start, Some(after)) => after.nothing,
        (Role::Basic, _) => known == ANY && bind.implicit && !section.is_open(),
        _ => false,
    }
}
