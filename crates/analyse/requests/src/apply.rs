//! What a rule does to an event, whatever the rule and whatever is open.

use crate::certainty::{Certainty, Choice};
use crate::counts::SchemaCounts;
use crate::handles::PeerMark;
use crate::keys::UNFIT;
use crate::options::Options;
use crate::piece::{Piece, scope};
use crate::program::{
    Answered, Bind, ContextTransfer, Expr, Mark, Rule, Scope, SectionEnd, Seed, Traffic, When,
};
use crate::request::LinkKind;
use crate::requests::{Arrival, Requests};
use crate::run::{Now, Run, UNBOUND, begin};
use crate::sections::{EventOrdinal, Member, NOBODY};
use crate::small_set::SmallSet;
use crate::state::{Change, Code, State};
use crate::steps::Places;
use crate::streams::{Odd, Range, Sent, Transfer};
use crate::syntax::Role;

/// What is known of an event before anything is done.
#[derive(Clone, Copy)]
struct Looked<'a> {
    /// The places of its keys, by [`crate::program::KeyId`].
    places: Places<'a>,
    /// Its fields.
    scope: &'a Scope<'a>,
}

impl Run {
    /// What a rule does to an event. The order matters, and is the meaning of the language.
    pub(crate) fn apply(
        &mut self,
        rule: &Rule,
        options: &Options,
        now: Now,
        (places, piece, row): (Places<'_>, Piece<'_>, usize),
    ) {
        let mut locals = std::mem::take(&mut self.locals);
        let scope = match rule.values {
            true => scope(rule, piece, row, &mut locals),
            false => Scope { columns: &[], row: 0, locals: &[] },
        };
        self.flood(rule, options, now, &Looked { places, scope: &scope });
        self.locals = locals;
    }

    fn flood(&mut self, rule: &Rule, options: &Options, now: Now, looked: &Looked<'_>) {
        let Looked { places, scope } = *looked;
        self.bound.clear();
        self.owners.clear();
        self.arrivals.clear();
        self.prepare(rule, options, now, places);
        // The sections of the event, which START opens, and their requests.
        let mut actor = None;
        for bind in &rule.binds {
            let place = self.bind(bind, options, now, places);
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
            for member in self.sections.members(place) {
                own(&mut self.owners, member.slot, options, &mut self.counts);
            }
        }
        if !rule.transfers.is_empty() {
            self.receive(rule, options, looked);
        }
        if let (Some(seed), true) = (&rule.seed, self.owners.is_empty()) {
            self.seed(seed, scope, options, now);
        }
        // From here on they are in all of its sections.
        for (n, bind) in rule.binds.iter().enumerate() {
            let place = self.bound[n];
            if place != UNBOUND {
                self.spread(bind, place, options, now);
            }
        }
        if let (Some(actor), false) = (actor, self.owners.is_empty()) {
            self.touch_all(rule, actor, now);
        }
        for settle in &rule.settles {
            self.settle(settle, now, places);
        }
        if !rule.handoffs.is_empty() {
            self.hand_off(rule, options, now, places);
        }
        if !self.owners.is_empty() {
            self.record(actor, options, now);
            self.choose(rule, scope, now);
        }
        if rule.notes {
            self.note(rule, options, now);
        }
        if !rule.transfers.is_empty() {
            let by = actor.map_or_else(PeerMark::default, |place| self.mark(place));
            self.send(rule, options, now, looked, by);
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

    /// What comes before the event is anybody's.
    fn prepare(&mut self, rule: &Rule, options: &Options, now: Now, places: Places<'_>) {
        for dropped in &rule.drops {
            self.drop(dropped, now, places);
        }
        for mark in &rule.marks {
            self.mark_key(mark, places);
        }
        for context_transfer in &rule.lends {
            self.context_transfer(context_transfer, options, now, places);
        }
    }

    /// Ends a section, or takes the settled requests out of it. The event is not theirs.
    fn drop(&mut self, dropped: &SectionEnd, now: Now, places: Places<'_>) {
        let place = places.of(dropped.key);
        if place == UNFIT {
            self.counts.unfit += 1;
            return;
        }
        if !self.all_hold(&dropped.when, places) {
            return;
        }
        match !dropped.settled || self.is_done(place, &[]) {
            true => self.close_as(place, now.ns, true),
            false => self.take_out_settled(place, now.ns),
        }
    }

    /// Of several requests in a section those leave it that are settled.
    fn take_out_settled(&mut self, place: u32, at_ns: u64) {
        let settled = |m: &&Member| self.requests.is_settled(m.slot);
        let settled: Vec<Member> =
            self.sections.members(place).iter().filter(settled).copied().collect();
        if settled.is_empty() {
            return;
        }
        self.flush(place, at_ns);
        for Member { slot, local } in settled {
            self.requests.open(slot).log.leave(local, at_ns, false);
            self.sections.remove(place, slot);
            self.requests.release(slot, &mut self.loose);
        }
    }

    /// Notes or forgets a fact about a key.
    fn mark_key(&mut self, mark: &Mark, places: Places<'_>) {
        let place = places.of(mark.key);
        if place == UNFIT {
            self.counts.unfit += 1;
            return;
        }
        if !self.all_hold(&mark.when, places) {
            return;
        }
        match mark.set {
            true => self.counts.evicted += self.sections.mark(place),
            false => self.sections.unmark(place),
        }
    }

    /// Gives a section's requests to another one, which has nothing else from here on. The event is
    /// not theirs.
    fn context_transfer(
        &mut self,
        context_transfer: &ContextTransfer,
        options: &Options,
        now: Now,
        places: Places<'_>,
    ) {
        let (from, to) = (places.of(context_transfer.from), places.of(context_transfer.to));
        if from == UNFIT || to == UNFIT {
            self.counts.unfit += 1;
            return;
        }
        // A context transfer of an actor to itself does nothing.
        if from == to || !self.all_hold(&context_transfer.when, places) {
            return;
        }
        self.close(to, now.ns);
        self.owners.extend(self.sections.members(from).iter().map(|member| member.slot));
        if !self.owners.is_empty() {
            self.enter(to, context_transfer.actor, options, now);
            self.join_all(to, options, now.ns);
            self.owners.clear();
        }
    }

    #[inline]
    fn all_hold(&self, when: &[When], places: Places<'_>) -> bool {
        when.iter().all(|when| self.holds(when, places))
    }

    /// Whether a key is marked, or its section has a request, that has to, or neither that must not; the
    /// same of settled requests.
    fn holds(&self, when: &When, places: Places<'_>) -> bool {
        let place = places.of(when.key);
        let has_request = || !self.sections.members(place).is_empty();
        let fact = || match when.settled {
            true => self.is_done(place, &[]),
            false => self.sections.is_marked(place) || has_request(),
        };
        (place != UNFIT && fact()) == when.there
    }

    /// Whether all requests that a section has were settled, and none of them is one of these.
    fn is_done(&self, place: u32, but: &[u32]) -> bool {
        let members = self.sections.members(place);
        let done = |m: &Member| self.requests.is_settled(m.slot) && !but.contains(&m.slot);
        !members.is_empty() && members.iter().all(done)
    }

    #[inline]
    fn bind(&mut self, bind: &Bind, options: &Options, now: Now, places: Places<'_>) -> u32 {
        let place = places.of(bind.key);
        if place == UNFIT {
            self.counts.unfit += 1;
            return UNBOUND;
        }
        if !self.all_hold(&bind.when, places) {
            return UNBOUND;
        }
        let section = &self.sections.all[place as usize];
        let open = section.is_open();
        let opens = match (bind.role, open) {
            (Role::Start, true) => {
                let last = section.last_event.event();
                let fresh = bind.after.as_ref().is_none_or(|after| after.events.contains(&last));
                // A second binding of this event to the section it has just opened.
                let again = self.bound.contains(&place);
                if fresh && !again {
                    self.counts.restarted += u64::from(bind.after.is_none());
                    self.close(place, now.ns);
                }
                fresh && !again
            }
            (Role::Start, false) => bind.after.as_ref().is_none_or(|after| after.nothing),
            (Role::Basic | Role::Join, false) => bind.implicit,
            _ => false,
        };
        if opens {
            self.enter(place, bind.actor, options, now);
            return place;
        }
        if !open {
            let stop = bind.role == Role::Stop;
            self.counts.unmatched_stops += u64::from(stop);
            self.counts.unbound += u64::from(!stop);
            return UNBOUND;
        }
        place
    }

    /// Opens a section.
    fn enter(&mut self, place: u32, actor: bool, options: &Options, now: Now) {
        if self.sections.len() >= options.sections_max
            && let Some(stale) = self.sections.stale()
            && !self.bound.contains(&stale)
        {
            self.counts.evicted += 1;
            self.close(stale, now.ns);
        }
        self.sections.open(place, actor, now.last_event());
    }

    /// The actor touches all things of the event. Actors are bound first, so it is known.
    fn touch_all(&mut self, rule: &Rule, actor: u32, now: Now) {
        for (n, bind) in rule.binds.iter().enumerate() {
            let place = self.bound[n];
            if !bind.actor && place != UNBOUND && bind.role != Role::Note {
                let arrival = self.touch(bind, place, actor, now);
                self.arrivals.extend(arrival);
            }
        }
    }

    /// The actor that touched a thing of the event before, if it was another: its work came from there.
    /// From now on it was this one.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        bind: &Bind,
        place: u32,
        actor: u32,
        now: Now,
    ) -> Option<Arrival> {
        let serial = self.sections.all[actor as usize].serial;
        let section = &mut self.sections.all[place as usize];
        let from_ns = std::mem::replace(&mut section.touched_ns, now.ns);
        if section.touched_by == serial {
            return None;
        }
        let before = std::mem::replace(&mut section.touched_by, serial);
        let by = self.mark(actor);
        let from = std::mem::replace(&mut self.sections.touches[place as usize], by);
        let between = bind.between;
        (before != 0).then_some(Arrival { kind: LinkKind::Timeline, from, from_ns, between })
    }

    fn receive(&mut self, rule: &Rule, options: &Options, looked: &Looked<'_>) {
        let Looked { places, scope } = *looked;
        for transfer in &rule.transfers {
            let Traffic::Receive { bytes, at, answers } = &transfer.what else { continue };
            let Some(bytes) = amount(bytes.of(scope)) else { continue };
            let place = places.of(transfer.key);
            if place == UNFIT {
                self.counts.unfit += 1;
                continue;
            }
            let at = at.as_ref().map(|at| offset(at.of(scope)));
            let Run { streams, requests, owners, arrivals, loose, counts, .. } = self;
            let mut odd = Odd::default();
            let moved = Transfer { at, bytes };
            let mut any_read = false;
            streams.receive(place, moved, &mut odd, |range, arrival| {
                any_read |= arrival.read;
                for request in range.refs.all() {
                    if !requests.is_open(*request) {
                        continue;
                    }
                    if arrival.read {
                        own(owners, request.slot(), options, counts);
                    }
                    if arrival.over {
                        requests.release(request.slot(), loose);
                    }
                }
                if arrival.read && range.from.serial != 0 {
                    arrivals.push(Arrival {
                        kind: LinkKind::Bytes,
                        from: range.from,
                        from_ns: range.sent_ns,
                        between: State::Queued,
                    });
                }
            });
            counts.bytes_dropped += odd.dropped;
            let Some(place) = answers.map(|key| places.of(key)) else {
                counts.bytes_unsent += odd.unsent;
                continue;
            };
            if place == UNFIT {
                self.counts.unfit += 1;
                continue;
            }
            if odd.unsent == 0 || any_read {
                streams.is_read(place);
                counts.bytes_unsent += odd.unsent;
                continue;
            }
            streams.answer(place, |range| {
                for request in range.refs.all().iter().filter(|r| requests.is_open(**r)) {
                    own(owners, request.slot(), options, counts);
                }
            });
        }
    }

    /// Begins a request, which is the event's.
    fn seed(&mut self, seed: &Seed, scope: &Scope<'_>, options: &Options, now: Now) {
        let label = seed.label.as_ref().and_then(|label| u32::try_from(label.of(scope)).ok());
        let class = (usize::from(seed.class), label);
        let Run { requests, alarms, counts, .. } = self;
        let begun = begin(requests, alarms, counts, class, options, now);
        let queued_ns = seed.queued.as_ref().and_then(|queued| amount(queued.of(scope)));
        if let (Some(slot), Some(queued_ns)) = (begun, queued_ns) {
            requests.open(slot).queue(queued_ns);
        }
        self.owners.extend(begun);
        // It may come into no section.
        self.loose.extend(begun);
    }

    /// An actor's section, to be remembered.
    fn mark(&self, place: u32) -> PeerMark {
        let section = &self.sections.all[place as usize];
        let first = self.sections.members(place).first().map(|member| member.slot);
        let request = first.or(self.owners.first().copied()).map(|slot| self.requests.id(slot));
        let (timeline, key) = self.sections.keys.name(place);
        PeerMark { serial: section.serial, key, timeline, request }
    }

    /// The event's requests have what they asked for, or have not after all.
    fn settle(&mut self, Answered { set, when }: &Answered, now: Now, places: Places<'_>) {
        if !self.all_hold(when, places) {
            return;
        }
        for slot in &self.owners {
            self.requests.open(*slot).settle(*set);
        }
        for place in self.bound.iter().filter(|place| *set && **place != UNBOUND) {
            if self.sections.all[*place as usize].actor {
                continue;
            }
            let members = self.sections.members(*place).iter();
            for Member { slot, local } in members.filter(|m| self.owners.contains(&m.slot)) {
                self.requests.open(*slot).answer(*local, now.ns);
            }
        }
    }

    /// Puts the event's requests into one of its sections.
    #[inline]
    fn spread(&mut self, bind: &Bind, place: u32, options: &Options, now: Now) {
        let section = &mut self.sections.all[place as usize];
        if bind.role == Role::Note {
            section.last_event = EventOrdinal::new(section.last_event.event(), now.ordinal);
        } else {
            section.last_event = now.last_event();
            // Nearly always they are there already.
            let same = match (self.sections.members(place), self.owners.as_slice()) {
                (_, []) => true,
                ([member], [slot]) => member.slot == *slot,
                _ => false,
            };
            if !same {
                self.join_all(place, options, now.ns);
            }
        }
        if let Some(change) = bind.change {
            self.change(place, change, options, now.ns);
        }
    }

    /// Puts the event's requests into a section.
    fn join_all(&mut self, place: u32, options: &Options, at_ns: u64) {
        for n in 0..self.owners.len() {
            let slot = self.owners[n];
            let members = self.sections.members(place);
            if members.iter().any(|member| member.slot == slot) {
                continue;
            }
            if members.len() >= options.sharers_max {
                self.counts.sharers_cut += 1;
                continue;
            }
            // What was before is not the new one's time.
            self.flush(place, at_ns);
            self.join(place, slot, at_ns);
            if let several @ [_, _, ..] = self.sections.members(place) {
                self.requests.share(several.iter().map(|member| member.slot));
            }
        }
    }

    /// Puts a request into a section.
    pub(crate) fn join(&mut self, place: u32, slot: u32, at_ns: u64) {
        let section = &self.sections.all[place as usize];
        let joined_section = section.joined_section(self.sections.keys.name(place));
        let local = self.requests.open(slot).join(joined_section, place, at_ns);
        self.sections.add(place, Member { slot, local });
    }

    /// Adds the time that a section was in its state to its requests.
    pub(crate) fn flush(&mut self, place: u32, at_ns: u64) {
        self.turn(place, self.sections.all[place as usize].code, at_ns);
    }

    /// Notes in a section's requests what its actor does from then on.
    fn turn(&mut self, place: u32, next: Code, at_ns: u64) {
        if !self.sections.all[place as usize].actor {
            return;
        }
        let members = self.sections.members(place);
        for Member { slot, local } in members {
            let log = &mut self.requests.open(*slot).log;
            log.state((*local, next), at_ns, members.len() > 1);
        }
    }

    pub(crate) fn change(&mut self, place: u32, change: Change, options: &Options, at_ns: u64) {
        let code = self.sections.all[place as usize].code;
        if let Some(wait) = change.was {
            self.turn(place, Code::of_wait(wait), at_ns);
        }
        let next = code.after(change, options.switches);
        if next != code {
            self.turn(place, next, at_ns);
            self.sections.all[place as usize].code = next;
        }
    }

    fn hand_off(&mut self, rule: &Rule, options: &Options, now: Now, places: Places<'_>) {
        for handoff in &rule.handoffs {
            let place = places.of(handoff.key);
            if place == UNFIT {
                self.counts.unfit += 1;
                continue;
            }
            if !self.all_hold(&handoff.when, places) {
                continue;
            }
            let from = self.bound[handoff.from];
            // A hand-off of an actor to itself does nothing.
            if place == from {
                continue;
            }
            let mut open = self.sections.all[place as usize].is_open();
            // What it is handed is not for requests that have what they asked for.
            let done = open && self.is_done(place, &self.owners);
            if open && (handoff.start || done) && !self.bound.contains(&place) {
                self.close_as(place, now.ns, done);
                open = false;
            }
            if !open && self.owners.is_empty() {
                continue;
            }
            if !open {
                self.enter(place, handoff.actor, options, now);
            }
            // An actor that works on something goes on with that, and was only waited for.
            if self.sections.members(place).is_empty() {
                self.join_all(place, options, now.ns);
            }
            let section = &mut self.sections.all[place as usize];
            section.last_event = now.last_event();
            if let Some(change) = handoff.change {
                self.change(place, change, options, now.ns);
            }
            let section = &self.sections.all[place as usize];
            if from != UNBOUND && section.actor && self.sections.all[from as usize].actor {
                // It is not the giver's own section: that was left above.
                let arrival = Arrival {
                    kind: LinkKind::Handoff,
                    from: self.mark(from),
                    from_ns: now.ns,
                    between: State::Runnable,
                };
                for member in self.sections.members(place) {
                    self.requests.open(member.slot).link(member.local, arrival, now.ns);
                }
            }
        }
    }

    /// Writes the event down for its requests, with its links.
    #[inline]
    fn record(&mut self, actor: Option<u32>, options: &Options, now: Now) {
        let shared = self.owners.len() > 1;
        let members = actor.map_or(&[][..], |place| self.sections.members(place));
        let serial = actor.map_or(0, |place| self.sections.all[place as usize].serial);
        let begun = self.requests.begun();
        for slot in &self.owners {
            let member = members.iter().find(|member| member.slot == *slot);
            let event = now.entry(member.map(|member| member.local), shared);
            let open = self.requests.open(*slot);
            let events = open.log.event(event);
            let swallows =
                events >= options.swallow_min && open.swallows(events, begun, now.ordinal);
            if swallows || events >= options.events_max {
                self.too_long.push(*slot);
            }
            if let Some(member) = member {
                let others = self.arrivals.iter().filter(|arrival| arrival.from.serial != serial);
                others.for_each(|arrival| open.link(member.local, *arrival, now.ns));
            }
        }
        if shared {
            self.requests.share(self.owners.iter().copied());
        }
    }

    /// Its requests were chosen, among several perhaps.
    #[inline]
    fn choose(&mut self, rule: &Rule, scope: &Scope<'_>, now: Now) {
        let Some((likely, candidates)) = &rule.choice else { return };
        let number = |expr: &Expr| u64::try_from(expr.of(scope)).unwrap_or(0);
        let certainty = Certainty::new(number(candidates), number(likely));
        if certainty == Certainty::Seen {
            return;
        }
        for slot in &self.owners {
            self.requests.open(*slot).choose(Choice { at_ns: now.ns, certainty });
        }
    }

    /// Writes the event into requests that only note it.
    fn note(&mut self, rule: &Rule, options: &Options, now: Now) {
        for (bind, place) in rule.binds.iter().zip(&self.bound) {
            if bind.role != Role::Note || *place == UNBOUND {
                continue;
            }
            let section = &self.sections.all[*place as usize];
            let members = self.sections.members(*place);
            for member in members {
                if self.owners.contains(&member.slot) {
                    continue;
                }
                let event = now.entry(section.actor.then_some(member.local), members.len() > 1);
                // Two notes of one event to one request are one.
                if self.requests.last_ordinal(member.slot) == Some(now.ordinal) {
                    continue;
                }
                if self.requests.open(member.slot).log.event(event) >= options.events_max {
                    self.too_long.push(member.slot);
                }
            }
        }
    }

    fn send(
        &mut self,
        rule: &Rule,
        options: &Options,
        now: Now,
        looked: &Looked<'_>,
        by: PeerMark,
    ) {
        let Looked { places, scope } = *looked;
        for transfer in &rule.transfers {
            let place = places.of(transfer.key);
            if place == UNFIT {
                self.counts.unfit += 1;
                continue;
            }
            if let Traffic::Reset { when } | Traffic::Send { when, .. } = &transfer.what
                && !self.all_hold(when, places)
            {
                continue;
            }
            let Run { streams, requests, owners, loose, counts, .. } = self;
            match &transfer.what {
                Traffic::Receive { .. } => {}
                Traffic::Reset { .. } => {
                    counts.bytes_unread +=
                        streams.reset(place, |range| let_go(range, requests, loose));
                }
                Traffic::Send { bytes, at, .. } => {
                    let Some(bytes) = amount(bytes.of(scope)) else { continue };
                    if streams.leaves(place) {
                        continue;
                    }
                    streams.take_answered(place, |range| let_go(range, requests, loose));
                    let at = at.as_ref().map(|at| offset(at.of(scope)));
                    let mut refs = SmallSet::Nobody;
                    owners.iter().for_each(|slot| refs.add(requests.reference(*slot)));
                    let mut odd = Odd::default();
                    let most = options.ranges_max;
                    let range = Sent { refs, from: by, sent_ns: now.ns };
                    let moved = Transfer { at, bytes };
                    if let Some(range) = streams.send(place, moved, range, most, &mut odd) {
                        let_go(&range, requests, loose);
                    }
                    counts.bytes_unsent += odd.unsent;
                    counts.bytes_dropped += odd.dropped;
                }
            }
        }
    }

    /// The requests of a section leave it, because it ends; `idle` if what its actor waits for is not
    /// theirs.
    #[inline]
    fn leave(&mut self, place: u32, at_ns: u64, idle: bool) {
        let section = &self.sections.all[place as usize];
        if section.is_only(NOBODY) {
            return;
        }
        let idle = idle && section.actor && matches!(section.code.state(), State::Waiting(_));
        if section.actor && !idle {
            self.flush(place, at_ns);
        }
        for member in self.sections.members(place) {
            self.requests.open(member.slot).log.leave(member.local, at_ns, idle);
            self.requests.release(member.slot, &mut self.loose);
        }
    }

    pub(crate) fn close(&mut self, place: u32, at_ns: u64) {
        self.close_as(place, at_ns, false);
    }

    fn close_as(&mut self, place: u32, at_ns: u64, idle: bool) {
        if self.sections.all[place as usize].is_open() {
            self.leave(place, at_ns, idle);
            self.sections.close(place);
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
            requests.release(request.slot(), loose);
        }
    }
}

/// A number of bytes; `None` for none, and for errors, which are negative.
fn amount(number: i128) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| *number > 0)
}

fn offset(at: i128) -> u64 {
    u64::try_from(at.max(0)).unwrap_or(u64::MAX)
}
