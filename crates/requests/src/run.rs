//! One schema at work.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use crate::engine::{Options, SchemaCounts};
use crate::event::EventId;
use crate::few::Few;
use crate::program::{Bind, Mark, Plain, Rule, Schema, Scope, Traffic, When, next_state};
use crate::request::{LinkKind, Outcome, Request, RequestEvent};
use crate::requests::{Arrival, Joined, Requests};
use crate::sections::{Member, PeerMark, RequestRef, Sections, Touch};
use crate::state::{State, Wait};
use crate::streams::{Odd, Range, Sent, Streams, Transfer};
use crate::syntax::{NewState, Role};

/// No request.
const NOBODY: Member = Member { slot: u32::MAX, local: 0 };
/// Most marks; beyond, all are forgotten.
const MARKS_MAX: usize = 1 << 20;
/// Alarms beyond those of open requests that are never too many.
const ALARMS_MIN: usize = 1024;
/// A binding that found no section.
const UNBOUND: u32 = u32::MAX;

/// The event that is being looked at.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub ns: u64,
    pub ordinal: u64,
    pub event: EventId,
}

/// The state of one schema.
pub(crate) struct Run {
    schema: usize,
    pub counts: SchemaCounts,
    sections: Sections,
    streams: Streams,
    requests: Requests,
    /// Timelines and keys of which something was noted.
    marks: HashSet<(usize, u128)>,
    /// When to look whether a request is quiet, soonest first.
    alarms: BinaryHeap<Reverse<(u64, RequestRef)>>,
    /// When the first of them is due.
    alarm_ns: u64,
    // What follows is empty between events, and kept to keep its memory.
    locals: Vec<i128>,
    /// The section of each binding, or [`UNBOUND`].
    bound: Vec<u32>,
    /// The requests of the event, by slot.
    owners: Vec<u32>,
    /// Links to the event's actor.
    arrivals: Vec<Arrival>,
    /// Requests that may have no section left.
    loose: Vec<u32>,
    /// Requests with as many events as they may have.
    too_long: Vec<u32>,
}

impl Run {
    pub fn new(number: usize, schema: &Schema) -> Run {
        Run {
            schema: number,
            counts: SchemaCounts::default(),
            sections: Sections::new(schema.timelines.len()),
            streams: Streams::default(),
            requests: Requests::default(),
            marks: HashSet::new(),
            alarms: BinaryHeap::new(),
            alarm_ns: u64::MAX,
            locals: Vec::new(),
            bound: Vec::new(),
            owners: Vec::new(),
            arrivals: Vec::new(),
            loose: Vec::new(),
            too_long: Vec::new(),
        }
    }

    /// Open sections, open requests, streams with bytes in flight.
    pub fn open(&self) -> (usize, usize, usize) {
        (self.sections.len(), self.requests.len(), self.streams.len())
    }

    /// Takes an event to the first rule that wants it.
    #[inline]
    pub fn event(
        &mut self,
        schema: &Schema,
        options: &Options,
        now: Now,
        columns: &[Vec<u64>],
        row: usize,
        out: &mut dyn FnMut(&Request),
    ) {
        if self.alarm_ns <= now.ns {
            self.give_up_quiet(options, now, out);
        }
        let Some((first, end)) = schema.by_event.get(now.event.index()) else { return };
        let rules = &schema.rules[*first as usize..*end as usize];
        let Some(rule) = rules.iter().find(|rule| rule.takes(columns, row)) else { return };
        self.counts.matched += 1;
        let scope = Scope { columns, row, locals: &[] };
        let plain = match rule.plain {
            Some(Plain::One) => self.apply_plain::<1>(rule, options, now, &scope),
            Some(Plain::Two) => self.apply_plain::<2>(rule, options, now, &scope),
            None => false,
        };
        if plain {
            if !self.too_long.is_empty() {
                self.complete(false, now, out);
            }
            return;
        }
        if rule.locals.is_empty() {
            self.apply(rule, options, now, &scope);
        } else {
            let mut locals = std::mem::take(&mut self.locals);
            locals.clear();
            for local in &rule.locals {
                let value = local.of(&Scope { columns, row, locals: &locals });
                locals.push(value);
            }
            self.apply(rule, options, now, &Scope { columns, row, locals: &locals });
            self.locals = locals;
        }
        self.complete(rule.end, now, out);
    }

    /// What [`Run::apply`] does when nothing new happens, which is nearly always: all bindings are
    /// BASIC, all sections are open, and all have the same request or none. Returns `false`, and
    /// has done nothing, if it is not so. `N` is the number of bindings.
    #[inline(always)]
    fn apply_plain<const N: usize>(
        &mut self,
        rule: &Rule,
        options: &Options,
        now: Now,
        scope: &Scope<'_>,
    ) -> bool {
        let Ok(binds) = <&[Bind; N]>::try_from(rule.binds.as_slice()) else { return false };
        let mut places = [UNBOUND; N];
        let mut common = NOBODY;
        let mut actor = 0;
        for n in 0..N {
            let bind = &binds[n];
            let Some(key) = bind.key.of(scope) else { return false };
            let Some(place) = self.sections.find(bind.timeline, key) else {
                if N > 1 || bind.implicit {
                    return false;
                }
                // Most events of idle actors end here.
                self.counts.unbound += 1;
                return true;
            };
            places[n] = place;
            let section = &self.sections.all[place as usize];
            let member = match &section.members {
                Few::Nobody => NOBODY,
                Few::One(member) => *member,
                Few::Several(_) => return false,
            };
            // Actors come first.
            if n == 0 {
                common = member;
                actor = if bind.actor { section.serial } else { 0 };
            } else if member.slot != common.slot {
                return false;
            }
            if !bind.actor && member.slot != NOBODY.slot {
                let touch = &mut self.sections.touches[place as usize];
                if touch.by.serial != actor {
                    return false;
                }
                // Harmless if it comes to nothing: the same actor is about to touch it.
                touch.at_ns = now.ns;
            }
        }
        for n in 0..N {
            let section = &mut self.sections.all[places[n] as usize];
            section.touched_ns = now.ns;
            section.last = now.event;
            if binds[n].is.is_some() || binds[n].expects.is_some() {
                self.change(places[n], (binds[n].is, binds[n].expects), options, now.ns);
            }
        }
        if common.slot != NOBODY.slot {
            let event = RequestEvent {
                time_ns: now.ns,
                ordinal: now.ordinal,
                actor: (actor != 0).then_some(common.local),
                kind: now.event,
                shared: false,
            };
            if self.requests.event(common.slot, event) >= options.events_max {
                self.too_long.push(common.slot);
            }
        }
        true
    }

    /// What a rule does to an event. The order matters, and is the meaning of the language.
    fn apply(&mut self, rule: &Rule, options: &Options, now: Now, scope: &Scope<'_>) {
        self.bound.clear();
        self.owners.clear();
        self.arrivals.clear();
        for mark in &rule.marks {
            self.mark_key(mark, scope);
        }
        // The sections of the event, which START opens, and their requests.
        let mut actor = None;
        for bind in &rule.binds {
            let place = self.bind(bind, options, now, scope);
            self.bound.push(place);
            if place == UNBOUND || bind.role == Role::Note {
                continue;
            }
            if bind.actor {
                actor = actor.or(Some(place));
            }
            if bind.role == Role::Join {
                continue;
            }
            for member in self.sections.all[place as usize].members.all() {
                own(&mut self.owners, member.slot, options, &mut self.counts);
            }
        }
        if !rule.transfers.is_empty() {
            self.receive(rule, options, scope);
        }
        if let (Some(seed), true) = (&rule.seed, self.owners.is_empty()) {
            let label = seed.label.as_ref().and_then(|label| u32::try_from(label.of(scope)).ok());
            self.seed((usize::from(seed.class), label), options, now);
        }
        // From here on they are in all of its sections.
        for (n, bind) in rule.binds.iter().enumerate() {
            let place = self.bound[n];
            if place != UNBOUND {
                self.spread(bind, place, options, now);
            }
        }
        if let (Some(actor), false) = (actor, self.owners.is_empty()) {
            self.touch(rule, actor, now);
        }
        if !rule.handoffs.is_empty() {
            self.hand_off(rule, options, now, scope);
        }
        if !self.owners.is_empty() {
            self.record(actor, options, now);
        }
        if rule.notes {
            self.note(rule, options, now);
        }
        if !rule.transfers.is_empty() {
            let by = actor.map_or_else(PeerMark::default, |place| self.mark(place));
            self.send(rule, options, now, scope, by);
        }
        // STOP closes them.
        if !rule.stops {
            return;
        }
        for (bind, n) in rule.binds.iter().zip(0..) {
            if bind.role == Role::Stop && self.bound[n] != UNBOUND {
                self.close(self.bound[n], now.ns);
            }
        }
    }

    /// Notes or forgets a fact about a key.
    fn mark_key(&mut self, mark: &Mark, scope: &Scope<'_>) {
        let Some(key) = mark.key.of(scope) else {
            self.counts.unfit += 1;
            return;
        };
        if mark.when.as_ref().is_some_and(|when| !self.holds(when, scope)) {
            return;
        }
        if !mark.set {
            self.marks.remove(&(mark.timeline, key));
            return;
        }
        if self.marks.len() >= MARKS_MAX {
            self.counts.evicted += self.marks.len() as u64;
            self.marks.clear();
        }
        self.marks.insert((mark.timeline, key));
    }

    /// Whether a key is marked, or its section has a request, that has to, or neither that must not.
    fn holds(&self, when: &When, scope: &Scope<'_>) -> bool {
        let has_request = |key| {
            let place = self.sections.find(when.timeline, key);
            place.is_some_and(|place| !self.sections.all[place as usize].members.all().is_empty())
        };
        let marked = |key| self.marks.contains(&(when.timeline, key)) || has_request(key);
        when.key.of(scope).is_some_and(marked) == when.there
    }

    #[inline]
    fn bind(&mut self, bind: &Bind, options: &Options, now: Now, scope: &Scope<'_>) -> u32 {
        let Some(key) = bind.key.of(scope) else {
            self.counts.unfit += 1;
            return UNBOUND;
        };
        if bind.when.as_ref().is_some_and(|when| !self.holds(when, scope)) {
            return UNBOUND;
        }
        let found = self.sections.find(bind.timeline, key);
        let opens = match (bind.role, found) {
            (Role::Start, Some(place)) => {
                let last = self.sections.all[place as usize].last;
                let fresh = bind.after.as_ref().is_none_or(|after| after.events.contains(&last));
                // A second binding of this event to the section it has just opened.
                let again = self.bound.contains(&place);
                if fresh && !again {
                    self.counts.restarted += u64::from(bind.after.is_none());
                    self.close(place, now.ns);
                }
                fresh && !again
            }
            (Role::Start, None) => bind.after.as_ref().is_none_or(|after| after.nothing),
            (Role::Basic | Role::Join, None) => bind.implicit,
            _ => false,
        };
        if opens {
            return self.enter((bind.timeline, key), bind.actor, options, now);
        }
        if found.is_none() {
            let stop = bind.role == Role::Stop;
            self.counts.unmatched_stops += u64::from(stop);
            self.counts.unbound += u64::from(!stop);
        }
        found.unwrap_or(UNBOUND)
    }

    /// Opens a section.
    fn enter(&mut self, name: (usize, u128), actor: bool, options: &Options, now: Now) -> u32 {
        if self.sections.len() >= options.sections_max
            && let Some(stale) = self.sections.stale()
            && !self.bound.contains(&stale)
        {
            self.counts.evicted += 1;
            self.close(stale, now.ns);
        }
        self.sections.open(name, actor, now.event, now.ns)
    }

    /// Who touched the event's things before, if it was somebody else: that is where the actor has
    /// its work from. Actors are bound first, so that is known. From now on it was this one.
    #[inline]
    fn touch(&mut self, rule: &Rule, actor: u32, now: Now) {
        let serial = self.sections.all[actor as usize].serial;
        for (n, bind) in rule.binds.iter().enumerate() {
            let place = self.bound[n];
            if bind.actor || place == UNBOUND || bind.role == Role::Note {
                continue;
            }
            let touch = &mut self.sections.touches[place as usize];
            if touch.by.serial == serial {
                touch.at_ns = now.ns;
                continue;
            }
            let Touch { by, at_ns } = *touch;
            let mark = self.mark(actor);
            self.sections.touches[place as usize] = Touch { by: mark, at_ns: now.ns };
            if by.serial != 0 {
                let between = State::Waiting(bind.between);
                let kind = LinkKind::Timeline;
                self.arrivals.push(Arrival { kind, from: by, from_ns: at_ns, between });
            }
        }
    }

    fn receive(&mut self, rule: &Rule, options: &Options, scope: &Scope<'_>) {
        for transfer in &rule.transfers {
            let Traffic::Receive { bytes, at, answers } = &transfer.what else { continue };
            let Some(bytes) = amount(bytes.of(scope)) else { continue };
            let Some(key) = transfer.key.of(scope) else {
                self.counts.unfit += 1;
                continue;
            };
            let at = at.as_ref().map(|at| offset(at.of(scope)));
            let Run { streams, requests, owners, arrivals, loose, counts, .. } = self;
            let mut odd = Odd::default();
            let moved = Transfer { at, bytes };
            let mut any_read = false;
            streams.receive((transfer.stream, key), moved, &mut odd, |range, arrival| {
                any_read |= arrival.read;
                for request in range.refs.all() {
                    if !requests.is_open(*request) {
                        continue;
                    }
                    if arrival.read {
                        own(owners, request.slot, options, counts);
                    }
                    if arrival.over {
                        requests.release(request.slot, loose);
                    }
                }
                if arrival.read && range.from.serial != 0 {
                    arrivals.push(Arrival {
                        kind: LinkKind::Bytes,
                        from: range.from,
                        from_ns: range.sent_ns,
                        between: State::Waiting(Wait::Network),
                    });
                }
            });
            counts.bytes_dropped += odd.dropped;
            let Some(key) = answers.as_ref().map(|(stream, key)| (*stream, key.of(scope))) else {
                counts.bytes_unsent += odd.unsent;
                continue;
            };
            let (stream, Some(key)) = key else {
                counts.unfit += 1;
                continue;
            };
            if odd.unsent == 0 || any_read {
                streams.is_read((stream, key));
                counts.bytes_unsent += odd.unsent;
                continue;
            }
            streams.answer((stream, key), |range| {
                for request in range.refs.all().iter().filter(|r| requests.is_open(**r)) {
                    own(owners, request.slot, options, counts);
                }
            });
        }
    }

    fn seed(&mut self, class: (usize, Option<u32>), options: &Options, now: Now) {
        if self.requests.len() >= options.requests_max {
            self.counts.refused += 1;
            return;
        }
        self.counts.begun += 1;
        let request = self.requests.begin(self.schema, class, now.ns);
        self.owners.push(request.slot);
        self.loose.push(request.slot);
        if let Some(quiet_ns) = options.quiet_ns {
            // Most requests are complete long before they would be quiet: their alarms go when
            // there are as many of these as of others, so memory stays that of open requests.
            if self.alarms.len() > 2 * self.requests.len() + ALARMS_MIN {
                let requests = &self.requests;
                self.alarms.retain(|Reverse((_, request))| requests.is_open(*request));
            }
            let due_ns = now.ns.saturating_add(quiet_ns);
            self.alarm_ns = self.alarm_ns.min(due_ns);
            self.alarms.push(Reverse((due_ns, request)));
        }
    }

    /// An actor's section, to be remembered.
    fn mark(&self, place: u32) -> PeerMark {
        let section = &self.sections.all[place as usize];
        let first = section.members.all().first().map(|member| member.slot);
        let request = first.or(self.owners.first().copied()).map(|slot| self.requests.id(slot));
        PeerMark { serial: section.serial, key: section.key, timeline: section.timeline, request }
    }

    /// Puts the event's requests into one of its sections.
    #[inline]
    fn spread(&mut self, bind: &Bind, place: u32, options: &Options, now: Now) {
        let section = &mut self.sections.all[place as usize];
        section.touched_ns = now.ns;
        if bind.role != Role::Note {
            section.last = now.event;
            // Nearly always they are there already.
            let same = match (section.members.all(), self.owners.as_slice()) {
                (_, []) => true,
                ([member], [slot]) => member.slot == *slot,
                _ => false,
            };
            if !same {
                self.join(place, options, now.ns);
            }
        }
        if bind.is.is_some() || bind.expects.is_some() {
            self.change(place, (bind.is, bind.expects), options, now.ns);
        }
    }

    fn join(&mut self, place: u32, options: &Options, at_ns: u64) {
        for n in 0..self.owners.len() {
            let slot = self.owners[n];
            let members = self.sections.all[place as usize].members.all();
            if members.iter().any(|member| member.slot == slot) {
                continue;
            }
            if members.len() >= options.sharers_max {
                self.counts.sharers_cut += 1;
                continue;
            }
            // What was before is not the new one's time.
            self.flush(place, at_ns);
            let section = &mut self.sections.all[place as usize];
            section.since_ns = at_ns;
            let joined = Joined { place, section: &*section, at_ns };
            let local = self.requests.join(slot, joined);
            section.members.add(Member { slot, local });
            if let several @ [_, _, ..] = section.members.all() {
                self.requests.share(several.iter().map(|member| member.slot));
            }
        }
    }

    /// Tells a section's requests how long it was in its state.
    fn flush(&mut self, place: u32, at_ns: u64) {
        let section = &mut self.sections.all[place as usize];
        if section.actor && at_ns > section.since_ns {
            let members = section.members.all();
            for member in members {
                let times = (section.since_ns, at_ns);
                self.requests.span(*member, section.state, times, members.len() > 1);
            }
            section.since_ns = at_ns;
        }
    }

    fn change(
        &mut self,
        place: u32,
        (is, expects): (Option<NewState>, Option<Wait>),
        options: &Options,
        at_ns: u64,
    ) {
        let section = &mut self.sections.all[place as usize];
        let state = match (is, expects) {
            (Some(is), _) => next_state(is, section.expects),
            (None, Some(wait)) if !options.switches => State::Waiting(wait),
            _ => section.state,
        };
        section.expects = expects.unwrap_or(section.expects);
        if state != section.state {
            self.flush(place, at_ns);
            let section = &mut self.sections.all[place as usize];
            section.state = state;
            section.since_ns = at_ns;
        }
    }

    fn hand_off(&mut self, rule: &Rule, options: &Options, now: Now, scope: &Scope<'_>) {
        for handoff in &rule.handoffs {
            let Some(key) = handoff.key.of(scope) else {
                self.counts.unfit += 1;
                continue;
            };
            let from = self.bound[handoff.from];
            let found = self.sections.find(handoff.timeline, key);
            // Who hands off to itself does nothing.
            if found.is_some_and(|place| place == from) {
                continue;
            }
            let target = match found {
                Some(place) if handoff.start && !self.bound.contains(&place) => {
                    self.close(place, now.ns);
                    None
                }
                found => found,
            };
            let place = match target {
                Some(place) => place,
                None if self.owners.is_empty() => continue,
                None => self.enter((handoff.timeline, key), handoff.actor, options, now),
            };
            // Whoever works on something goes on with that, and was only waited for.
            if self.sections.all[place as usize].members.all().is_empty() {
                self.join(place, options, now.ns);
            }
            let section = &mut self.sections.all[place as usize];
            section.touched_ns = now.ns;
            section.last = now.event;
            self.change(place, (handoff.is, handoff.expects), options, now.ns);
            let section = &self.sections.all[place as usize];
            if from != UNBOUND && section.actor && self.sections.all[from as usize].actor {
                let arrival = Arrival {
                    kind: LinkKind::Handoff,
                    from: self.mark(from),
                    from_ns: now.ns,
                    between: State::Runnable,
                };
                for member in section.members.all() {
                    self.requests.link(*member, arrival, now.ns);
                }
            }
        }
    }

    /// Writes the event down for its requests, with its links.
    #[inline]
    fn record(&mut self, actor: Option<u32>, options: &Options, now: Now) {
        let shared = self.owners.len() > 1;
        let members =
            actor.map_or(&[][..], |place| self.sections.all[place as usize].members.all());
        for slot in &self.owners {
            let member = members.iter().find(|member| member.slot == *slot);
            let event = RequestEvent {
                time_ns: now.ns,
                ordinal: now.ordinal,
                actor: member.map(|member| member.local),
                kind: now.event,
                shared,
            };
            if self.requests.event(*slot, event) >= options.events_max {
                self.too_long.push(*slot);
            }
            for arrival in &self.arrivals {
                if let Some(member) = member {
                    self.requests.link(*member, *arrival, now.ns);
                }
            }
        }
        if shared {
            self.requests.share(self.owners.iter().copied());
        }
    }

    /// Writes the event down for requests that are only told of it.
    fn note(&mut self, rule: &Rule, options: &Options, now: Now) {
        for (bind, place) in rule.binds.iter().zip(&self.bound) {
            if bind.role != Role::Note || *place == UNBOUND {
                continue;
            }
            let section = &self.sections.all[*place as usize];
            for member in section.members.all() {
                if self.owners.contains(&member.slot) {
                    continue;
                }
                let event = RequestEvent {
                    time_ns: now.ns,
                    ordinal: now.ordinal,
                    actor: section.actor.then_some(member.local),
                    kind: now.event,
                    shared: section.members.all().len() > 1,
                };
                // Two notes of one event to one request are one.
                if self.requests.last_ordinal(member.slot) == Some(now.ordinal) {
                    continue;
                }
                if self.requests.event(member.slot, event) >= options.events_max {
                    self.too_long.push(member.slot);
                }
            }
        }
    }

    fn send(&mut self, rule: &Rule, options: &Options, now: Now, scope: &Scope<'_>, by: PeerMark) {
        for transfer in &rule.transfers {
            let Some(key) = transfer.key.of(scope) else {
                self.counts.unfit += 1;
                continue;
            };
            let name = (transfer.stream, key);
            let Run { streams, requests, owners, loose, counts, .. } = self;
            match &transfer.what {
                Traffic::Receive { .. } => {}
                Traffic::Reset => {
                    counts.bytes_unread +=
                        streams.reset(name, |range| let_go(range, requests, loose));
                }
                Traffic::Send { bytes, at } => {
                    let Some(bytes) = amount(bytes.of(scope)) else { continue };
                    if streams.leaves(name) {
                        continue;
                    }
                    streams.take_answered(name, |range| let_go(range, requests, loose));
                    let at = at.as_ref().map(|at| offset(at.of(scope)));
                    let mut refs = Few::Nobody;
                    owners.iter().for_each(|slot| refs.add(requests.reference(*slot)));
                    let mut odd = Odd::default();
                    let most = options.ranges_max;
                    let range = Sent { refs, from: by, sent_ns: now.ns };
                    let moved = Transfer { at, bytes };
                    if let Some(range) = streams.send(name, moved, range, most, &mut odd) {
                        let_go(&range, requests, loose);
                    }
                    counts.bytes_unsent += odd.unsent;
                    counts.bytes_dropped += odd.dropped;
                }
            }
        }
    }

    fn close(&mut self, place: u32, at_ns: u64) {
        if self.sections.all[place as usize].serial == 0 {
            return;
        }
        self.flush(place, at_ns);
        for member in self.sections.all[place as usize].members.all() {
            self.requests.leave(*member, at_ns, &mut self.loose);
        }
        self.sections.close(place);
    }

    /// Gives out the requests that this event completed.
    #[inline]
    fn complete(&mut self, ends: bool, now: Now, out: &mut dyn FnMut(&Request)) {
        if ends {
            for n in 0..self.owners.len() {
                self.end(self.owners[n], Outcome::Ended, now.ns, out);
            }
        }
        while let Some(slot) = self.too_long.pop() {
            if self.requests.is_slot_open(slot) {
                self.counts.too_long += 1;
                self.end(slot, Outcome::TooLong, now.ns, out);
            }
        }
        while let Some(slot) = self.loose.pop() {
            if self.requests.is_loose(slot) {
                self.end(slot, Outcome::Drained, now.ns, out);
            }
        }
    }

    /// Takes a request out of its sections and gives it out.
    fn end(&mut self, slot: u32, outcome: Outcome, at_ns: u64, out: &mut dyn FnMut(&Request)) {
        // Nothing is known of the time after its last event when it is over by itself.
        let at_ns = match outcome {
            Outcome::Quiet | Outcome::Unfinished => self.requests.last_ns(slot),
            _ => at_ns,
        };
        for (place, member) in self.requests.stays(slot) {
            self.flush(place, at_ns);
            self.requests.leave(member, at_ns, &mut Vec::new());
            let section = &mut self.sections.all[place as usize];
            section.members.remove(|other| other.slot == slot);
        }
        self.requests.end(slot, outcome, out);
    }

    fn give_up_quiet(&mut self, options: &Options, now: Now, out: &mut dyn FnMut(&Request)) {
        let quiet_ns = options.quiet_ns.unwrap_or(u64::MAX);
        while let Some(Reverse((due_ns, request))) = self.alarms.peek().copied() {
            if due_ns > now.ns {
                break;
            }
            self.alarms.pop();
            if !self.requests.is_open(request) {
                continue;
            }
            let due_ns = self.requests.last_ns(request.slot).saturating_add(quiet_ns);
            if due_ns > now.ns {
                self.alarms.push(Reverse((due_ns, request)));
            } else {
                self.counts.quiet += 1;
                self.end(request.slot, Outcome::Quiet, now.ns, out);
            }
        }
        self.alarm_ns = self.alarms.peek().map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns);
    }

    /// Gives out all that are open.
    pub fn finish_all(&mut self, outcome: Outcome, out: &mut dyn FnMut(&Request)) {
        for slot in self.requests.slots() {
            self.end(slot, outcome, 0, out);
        }
    }
}

/// Makes a request one of the event's.
#[inline]
fn own(owners: &mut Vec<u32>, slot: u32, options: &Options, counts: &mut SchemaCounts) {
    if owners.contains(&slot) {
        return;
    }
    match owners.len() < options.sharers_max {
        true => owners.push(slot),
        false => counts.sharers_cut += 1,
    }
}

/// A range is no longer on its way.
fn let_go(range: &Range, requests: &mut Requests, loose: &mut Vec<u32>) {
    for request in range.refs.all() {
        if requests.is_open(*request) {
            requests.release(request.slot, loose);
        }
    }
}

/// A number of bytes; `None` for none, and for errors, which are negative.
fn amount(bytes: i128) -> Option<u64> {
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

fn offset(at: i128) -> u64 {
    u64::try_from(at.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use crate::{Batch, Engine, Options, Source, compile};

    #[test]
    fn alarms_of_complete_requests_are_forgotten() {
        let schema = "event open(fd: i32) event close(fd: i32) timeline file(fd: i32)
                      on open { start file(fd) seed } on close { stop file(fd) }";
        let program = compile(&[Source::new("files", schema)], &|_| None).unwrap();
        let kind = |name| program.catalog().find(name).unwrap();
        let (open, close) = (kind("open"), kind("close"));
        let mut batch = Batch::new(program.catalog());
        for n in 0..20_000 {
            batch.push(2 * n, open, &[7]);
            batch.push(2 * n + 1, close, &[7]);
        }
        batch.push(50_000, open, &[8]);
        let mut engine = Engine::new(program, Options::default());
        let mut found = 0;
        engine.feed(&batch, &mut |_| found += 1);
        assert_eq!((found, engine.open().1), (20_000, 1));
        let alarms = engine.run(0).alarms.len();
        assert!((1..2_000).contains(&alarms), "{alarms}");
    }
}
