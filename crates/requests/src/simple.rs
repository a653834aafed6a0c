//! What [`Run::apply`] does for rules that only start, stop and bind, when at most one request is
//! involved: most of what is left by [`Run::plain`].
//!
//! Everything is looked at before anything is done, so whatever is unusual can still be left to
//! [`Run::apply`].

use crate::engine::Options;
use crate::few::Few;
use crate::keys::UNFIT;
use crate::program::{Bind, Rule};
use crate::request::RequestEvent;
use crate::requests::Joined;
use crate::run::{Now, Run};
use crate::sections::{Member, Section};
use crate::steps::Places;
use crate::syntax::Role;

/// No request.
pub(crate) const NOBODY: Member = Member { slot: u32::MAX, local: 0 };

/// The only request of a section, or [`NOBODY`]; `None` if there are several.
#[inline]
pub(crate) fn sole(section: &Section) -> Option<Member> {
    match &section.members {
        Few::Nobody => Some(NOBODY),
        Few::One(member) => Some(*member),
        Few::Several(_) => None,
    }
}

/// What a binding finds.
#[derive(Clone, Copy, Default)]
struct Found {
    place: u32,
    open: bool,
    /// Whether it opens a section, which ends one that is open.
    opens: bool,
}

impl Run {
    /// Does to an event what [`Run::apply`] would. Returns `false`, and has done nothing, if more may
    /// be involved than a request.
    #[inline]
    pub(crate) fn simple(
        &mut self,
        rule: &Rule,
        places: Places<'_>,
        options: &Options,
        now: Now,
    ) -> bool {
        // Each number of bindings has code of its own, without a loop whose end is to be foreseen.
        match rule.binds.as_slice() {
            _ if !rule.simple => false,
            [one] => self.simply(rule, [one], places, options, now),
            [one, two] => self.simply(rule, [one, two], places, options, now),
            [one, two, three] => self.simply(rule, [one, two, three], places, options, now),
            _ => false,
        }
    }

    #[inline]
    fn simply<const N: usize>(
        &mut self,
        rule: &Rule,
        binds: [&Bind; N],
        places: Places<'_>,
        options: &Options,
        now: Now,
    ) -> bool {
        self.arrivals.clear();
        let mut found = [Found::default(); N];
        let mut owner = NOBODY.slot;
        for n in 0..N {
            let place = places.of(binds[n].key);
            if place == UNFIT || found[..n].iter().any(|other| other.place == place) {
                return false;
            }
            let section = &self.sections.all[place as usize];
            let open = section.is_open();
            let opens = self.opens(binds[n], section);
            found[n] = Found { place, open, opens };
            if !opens && open {
                let Some(member) = sole(section) else { return false };
                if owner == NOBODY.slot {
                    owner = member.slot;
                } else if member.slot != owner && member.slot != NOBODY.slot {
                    return false;
                }
            }
        }
        if self.sections.len() + N > options.sections_max || options.sharers_max == 0 {
            return false;
        }
        for n in 0..N {
            self.enter_simply(binds[n], &mut found[n], now);
        }
        if let Some(seed) = &rule.seed
            && owner == NOBODY.slot
        {
            owner = self.seed((usize::from(seed.class), None), options, now).unwrap_or(owner);
        }
        for n in 0..N {
            self.spread_simply(binds[n], found[n], owner, options, now);
        }
        if owner != NOBODY.slot {
            self.record_simply(binds, found, owner, options, now);
        }
        for n in 0..N {
            if binds[n].role == Role::Stop && found[n].open {
                self.close(found[n].place, now.ns);
            }
        }
        true
    }

    /// Whether a binding opens a section.
    #[inline]
    fn opens(&self, bind: &Bind, section: &Section) -> bool {
        match (bind.role, &bind.after) {
            (Role::Start, None) => true,
            (Role::Start, Some(after)) if section.is_open() => after.events.contains(&section.last),
            (Role::Start, Some(after)) => after.nothing,
            (Role::Basic, _) => bind.implicit & !section.is_open(),
            _ => false,
        }
    }

    #[inline]
    fn enter_simply(&mut self, bind: &Bind, found: &mut Found, now: Now) {
        if found.opens {
            if found.open {
                self.counts.restarted += u64::from(bind.after.is_none());
                self.close(found.place, now.ns);
            }
            self.sections.open(found.place, bind.actor, now.event, now.ns);
            found.open = true;
        } else if !found.open {
            let stop = bind.role == Role::Stop;
            self.counts.unmatched_stops += u64::from(stop);
            self.counts.unbound += u64::from(!stop);
        }
    }

    /// Puts the event's request, if there is one, into one of its sections.
    #[inline]
    fn spread_simply(
        &mut self,
        bind: &Bind,
        found: Found,
        owner: u32,
        options: &Options,
        now: Now,
    ) {
        if !found.open {
            return;
        }
        let section = &mut self.sections.all[found.place as usize];
        section.touched_ns = now.ns;
        section.last = now.event;
        if owner != NOBODY.slot && matches!(section.members, Few::Nobody) {
            // What was before is not the request's time.
            if section.actor {
                section.since_ns = now.ns;
            }
            let (timeline, key) = self.sections.keys.name(found.place);
            let (place, at_ns) = (found.place, now.ns);
            let Section { serial, actor, .. } = *section;
            let joined = Joined { place, timeline, key, serial, at_ns, actor };
            let local = self.requests.join(owner, joined);
            section.members = Few::One(Member { slot: owner, local });
        }
        if bind.is.is_some() || bind.expects.is_some() {
            self.change(found.place, (bind.is, bind.expects), options, now.ns);
        }
    }

    /// Writes the event down for its request.
    #[inline]
    fn record_simply<const N: usize>(
        &mut self,
        binds: [&Bind; N],
        found: [Found; N],
        owner: u32,
        options: &Options,
        now: Now,
    ) {
        // Actors come first.
        let mut local = None;
        if let Some(actor) = (0..N).find(|n| found[*n].open).filter(|n| binds[*n].actor) {
            let place = found[actor].place;
            let member = sole(&self.sections.all[place as usize]).unwrap_or(NOBODY);
            local = Some(member.local);
            for n in 0..N {
                if !binds[n].actor && found[n].open {
                    self.touch(binds[n], found[n].place, place, now);
                }
            }
            for arrival in self.arrivals.drain(..) {
                self.requests.link(member, arrival, now.ns);
            }
        }
        let event = RequestEvent {
            time_ns: now.ns,
            ordinal: now.ordinal,
            actor: local,
            kind: now.event,
            shared: false,
        };
        if self.requests.event(owner, event) >= options.events_max {
            self.too_long.push(owner);
        }
    }
}
