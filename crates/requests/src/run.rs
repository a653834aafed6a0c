//! One schema at work.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::engine::{Options, SchemaCounts};
use crate::event::EventId;
use crate::plain::Plain;
use crate::program::{Lane, Rule, Schema};
use crate::request::{Outcome, Request, RequestEvent};
use crate::requests::{Arrival, Requests};
use crate::sections::{Member, RequestRef, Sections};
use crate::simple::{Simple, simple};
use crate::steps::{PIECE, Piece, Places, Step, Steps};
use crate::streams::Streams;

/// A binding that found no section.
pub(crate) const UNBOUND: u32 = u32::MAX;

/// The event that is being looked at.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub ns: u64,
    pub ordinal: u64,
    pub event: EventId,
}

impl Now {
    /// The event as one of its requests has it.
    #[inline]
    pub fn event_of(self, actor: Option<u32>, shared: bool) -> RequestEvent {
        let Now { ns, ordinal, event } = self;
        RequestEvent::new((ns, ordinal, event), actor, shared)
    }
}

/// What stays the same from event to event of a piece.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub rules: &'a [Rule],
    /// By rule.
    pub ways: &'a [Ways],
    pub steps: &'a Steps,
    pub piece: Piece<'a>,
    /// The place of the piece's first event among all.
    pub ordinal: u64,
    pub options: &'a Options,
}

impl Setting<'_> {
    #[inline]
    pub fn rule(&self, step: &Step) -> &Rule {
        &self.rules[step.rule as usize]
    }

    #[inline]
    pub fn places(&self, step: &Step) -> Places<'_> {
        self.steps.places(step)
    }

    #[inline]
    pub fn now(&self, step: &Step) -> Now {
        let at = step.row as usize;
        let ordinal = self.ordinal + at as u64;
        Now { ns: self.piece.times_ns[at], ordinal, event: self.rule(step).event }
    }
}

/// The ways through an event that are shorter than [`Run::apply`], for rules that do little.
#[derive(Default)]
pub(crate) struct Ways {
    plain: Option<Plain>,
    simple: Option<Simple>,
}

impl Ways {
    fn new(rule: &Rule, options: &Options) -> Ways {
        Ways { plain: Plain::new(rule, options), simple: simple(rule, options) }
    }
}

/// The state of one schema.
pub(crate) struct Run {
    pub(crate) schema: usize,
    pub counts: SchemaCounts,
    pub(crate) sections: Sections,
    pub(crate) streams: Streams,
    pub(crate) requests: Requests,
    /// The short ways of each rule.
    pub(crate) ways: Vec<Ways>,
    /// When to look whether a request is quiet, soonest first.
    pub(crate) alarms: BinaryHeap<Reverse<(u64, RequestRef)>>,
    /// When the first of them is due.
    pub(crate) alarm_ns: u64,
    // What follows is empty between events, and kept to keep its memory.
    steps: Steps,
    pub(crate) locals: Vec<i128>,
    /// The section of each binding, or [`UNBOUND`].
    pub(crate) bound: Vec<u32>,
    /// The requests of the event, by slot.
    pub(crate) owners: Vec<u32>,
    /// Links to the event's actor.
    pub(crate) arrivals: Vec<Arrival>,
    /// Requests that may have no section left.
    pub(crate) loose: Vec<u32>,
    /// Requests with as many events as they may have.
    pub(crate) too_long: Vec<u32>,
}

impl Run {
    pub fn new(number: usize, schema: &Schema, options: &Options) -> Run {
        Run {
            schema: number,
            counts: SchemaCounts::default(),
            sections: Sections::new(schema.timelines.iter().map(Lane::bits)),
            streams: Streams::new(schema.streams.iter().map(Lane::bits)),
            requests: Requests::default(),
            ways: schema.rules.iter().map(|rule| Ways::new(rule, options)).collect(),
            alarms: BinaryHeap::new(),
            alarm_ns: u64::MAX,
            steps: Steps::new(schema),
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

    /// Takes each event to the first rule that wants it. `ordinal` is the first one's place among all.
    pub fn feed(
        &mut self,
        schema: &Schema,
        options: &Options,
        events: Piece<'_>,
        ordinal: u64,
        out: &mut dyn FnMut(&Request),
    ) {
        for first in (0..events.kinds.len()).step_by(PIECE) {
            let rows = first..events.kinds.len().min(first + PIECE);
            let piece = Piece {
                times_ns: &events.times_ns[rows.clone()],
                kinds: &events.kinds[rows],
                columns: events.columns,
                first: events.first + first,
            };
            self.piece(schema, options, piece, ordinal + first as u64, out);
        }
    }

    fn piece(
        &mut self,
        schema: &Schema,
        options: &Options,
        piece: Piece<'_>,
        ordinal: u64,
        out: &mut dyn FnMut(&Request),
    ) {
        let mut steps = std::mem::take(&mut self.steps);
        steps.find(schema, piece, &mut self.sections.keys, &mut self.streams.keys);
        self.sections.grow();
        self.streams.grow();
        self.counts.matched += steps.all.len() as u64;
        let ways = std::mem::take(&mut self.ways);
        let rules = &schema.rules;
        self.take(&Setting { rules, ways: &ways, steps: &steps, piece, ordinal, options }, out);
        self.sections.sweep();
        self.streams.sweep();
        self.steps = steps;
        self.ways = ways;
    }

    /// Takes the events of a piece in order of time.
    fn take(&mut self, setting: &Setting<'_>, out: &mut dyn FnMut(&Request)) {
        let Setting { ways, steps, piece, options, .. } = *setting;
        // Events that no rule takes are looked at only when somebody waits for their time.
        let mut passed = 0;
        for step in &steps.all {
            let ns = piece.times_ns[step.row as usize];
            if let Some(plain) = &ways[step.rule as usize].plain
                && self.alarm_ns > ns
                && self.plain(plain, setting, step, ns)
            {
                if !self.too_long.is_empty() {
                    self.complete(ns, out);
                }
                continue;
            }
            self.take_one(setting, step, &mut passed, out);
        }
        if piece.times_ns.last().is_some_and(|last_ns| self.alarm_ns <= *last_ns) {
            self.pass(options, &piece.times_ns[passed..], out);
        }
    }

    /// Takes an event that does more than [`Plain`] can say.
    #[inline(never)]
    fn take_one(
        &mut self,
        setting: &Setting<'_>,
        step: &Step,
        passed: &mut usize,
        out: &mut dyn FnMut(&Request),
    ) {
        let times_ns = setting.piece.times_ns;
        let at = step.row as usize;
        if self.alarm_ns <= times_ns[at] {
            self.pass(setting.options, &times_ns[*passed..=at], out);
            *passed = at + 1;
        }
        let simple = setting.ways[step.rule as usize].simple;
        if simple.is_none_or(|simple| !simple(self, setting, step)) {
            self.generally(setting, step, out);
        }
        if !(self.loose.is_empty() && self.too_long.is_empty()) {
            self.complete(times_ns[at], out);
        }
    }

    /// Time passes, from event to event.
    #[cold]
    fn pass(&mut self, options: &Options, times_ns: &[u64], out: &mut dyn FnMut(&Request)) {
        for now_ns in times_ns {
            if self.alarm_ns <= *now_ns {
                self.give_up_quiet(options, *now_ns, out);
            }
        }
    }

    /// The way that is always right.
    #[inline(never)]
    fn generally(&mut self, setting: &Setting<'_>, step: &Step, out: &mut dyn FnMut(&Request)) {
        let rule = setting.rule(step);
        let now = setting.now(step);
        let looked = (setting.places(step), setting.piece, step.row);
        self.apply(rule, setting.options, now, looked);
        if rule.end {
            for n in 0..self.owners.len() {
                self.end(self.owners[n], Outcome::Ended, now.ns, out);
            }
        }
    }

    /// Gives out the requests that this event completed.
    #[inline(never)]
    fn complete(&mut self, at_ns: u64, out: &mut dyn FnMut(&Request)) {
        while let Some(slot) = self.too_long.pop() {
            if self.requests.is_slot_open(slot) {
                self.counts.too_long += 1;
                self.end(slot, Outcome::TooLong, at_ns, out);
            }
        }
        while let Some(slot) = self.loose.pop() {
            if self.requests.is_loose(slot) {
                self.end(slot, Outcome::Drained, at_ns, out);
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
        // Nothing may hold it any more: then it has left all of its sections.
        let stays = if self.requests.is_loose(slot) { 0 } else { self.requests.stays(slot) };
        for local in 0..stays {
            let stay = Member { slot, local };
            if let Some(place) = self.requests.stays_at(stay) {
                self.flush(place, at_ns);
                self.requests.depart(stay, at_ns);
                self.sections.remove(place, slot);
            }
        }
        self.requests.end((self.schema, slot), outcome, out);
    }

    fn give_up_quiet(&mut self, options: &Options, now_ns: u64, out: &mut dyn FnMut(&Request)) {
        let quiet_ns = options.quiet_ns.unwrap_or(u64::MAX);
        while let Some(Reverse((due_ns, request))) = self.alarms.peek().copied() {
            if due_ns > now_ns {
                break;
            }
            self.alarms.pop();
            if !self.requests.is_open(request) {
                continue;
            }
            let due_ns = self.requests.last_ns(request.slot).saturating_add(quiet_ns);
            if due_ns > now_ns {
                self.alarms.push(Reverse((due_ns, request)));
            } else {
                self.counts.quiet += 1;
                self.end(request.slot, Outcome::Quiet, now_ns, out);
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
