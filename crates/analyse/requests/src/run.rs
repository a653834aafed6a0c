//! One schema at work.

use crate::alarms::Alarms;
use crate::counts::SchemaCounts;
use crate::event::EventId;
use crate::log::Entry;
use crate::options::Options;
use crate::program::{Lane, Schema};
use crate::request::Outcome;
use crate::requests::{Arrival, Complete, Requests};
use crate::sections::{EventOrdinal, Sections};
use crate::streams::Streams;
use crate::transitions::{Transition, Transitions};

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
    /// The event as sections have it.
    #[inline]
    pub fn last_event(self) -> EventOrdinal {
        EventOrdinal::new(self.event, self.ordinal)
    }

    /// The event as one of its requests has it that logs all of its transitions.
    #[inline]
    pub fn entry(self, actor: Option<u32>, shared: bool) -> Entry {
        let Now { ns, ordinal, event } = self;
        Entry { ns, ordinal, transition: Transition::nothing(event), actor, shared }
    }
}

/// The state of one schema.
pub(crate) struct Run {
    pub(crate) schema: usize,
    pub counts: SchemaCounts,
    pub(crate) sections: Sections,
    pub(crate) streams: Streams,
    pub(crate) requests: Requests,
    pub(crate) alarms: Alarms,
    // What follows is empty between events, and kept to keep its memory.
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

/// Begins a request, if there may be one more.
#[inline]
pub(crate) fn begin(
    requests: &mut Requests,
    alarms: &mut Alarms,
    counts: &mut SchemaCounts,
    class: (usize, Option<u32>),
    options: &Options,
    now: Now,
) -> Option<u32> {
    if requests.len() >= options.requests_max {
        counts.refused += 1;
        return None;
    }
    counts.begun += 1;
    let request = requests.begin(class, (now.ns, now.ordinal), options.only);
    if let Some(quiet_ns) = options.quiet_ns {
        alarms.set(now.ns.saturating_add(quiet_ns), request, requests);
    }
    Some(request.slot())
}

impl Run {
    pub fn new(number: usize, schema: &Schema, options: &Options) -> Run {
        Run {
            schema: number,
            counts: SchemaCounts::default(),
            sections: Sections::new(schema.timelines.iter().map(Lane::bits)),
            streams: Streams::new(schema.streams.iter().map(Lane::bits)),
            requests: Requests::new(Transitions::new(schema, options.switches)),
            alarms: Alarms::default(),
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

    /// Gives out the requests that this event completed.
    #[inline(never)]
    pub(crate) fn complete(&mut self, at_ns: u64, out: &mut dyn FnMut(Complete<'_>)) {
        while let Some(slot) = self.too_long.pop() {
            if self.requests.is_slot_open(slot) {
                let swallowed = self.requests.open(slot).has_swallowed();
                let counter = match swallowed {
                    true => &mut self.counts.swallowed,
                    false => &mut self.counts.too_long,
                };
                *counter += 1;
                let outcome = if swallowed { Outcome::Swallowed } else { Outcome::TooLong };
                self.end(slot, outcome, at_ns, out);
            }
        }
        while let Some(slot) = self.loose.pop() {
            // Nothing holds it any more: it has left all of its sections.
            if self.requests.is_loose(slot) {
                self.requests.end((self.schema, slot), Outcome::Drained, out);
            }
        }
    }

    /// Takes a request out of its sections and gives it out.
    pub(crate) fn end(
        &mut self,
        slot: u32,
        outcome: Outcome,
        at_ns: u64,
        out: &mut dyn FnMut(Complete<'_>),
    ) {
        // Nothing is known of the time after its last event when it is over by itself.
        let at_ns = match outcome {
            Outcome::Quiet | Outcome::Unfinished => self.requests.last_ns(slot),
            _ => at_ns,
        };
        // Nothing may hold it any more: then it has left all of its sections.
        if !self.requests.is_loose(slot) {
            let Run { sections, requests, .. } = self;
            let find = |timeline, key| sections.keys.find(timeline, key);
            for (section, place) in requests.open(slot).log.staying(find) {
                if self.sections.members(place).iter().all(|member| member.slot != slot) {
                    continue;
                }
                self.flush(place, at_ns);
                self.requests.open(slot).log.leave(section, at_ns, false);
                self.sections.remove(place, slot);
            }
        }
        self.requests.end((self.schema, slot), outcome, out);
    }

    pub(crate) fn give_up_quiet(
        &mut self,
        options: &Options,
        now_ns: u64,
        out: &mut dyn FnMut(Complete<'_>),
    ) {
        let quiet_ns = options.quiet_ns.unwrap_or(u64::MAX);
        while let Some(request) = self.alarms.due(now_ns) {
            if !self.requests.is_open(request) {
                continue;
            }
            let due_ns = self.requests.last_ns(request.slot()).saturating_add(quiet_ns);
            if due_ns > now_ns {
                self.alarms.set_again(due_ns, request);
            } else {
                self.counts.quiet += 1;
                self.end(request.slot(), Outcome::Quiet, now_ns, out);
            }
        }
        self.alarms.settle();
    }

    /// Gives out all that are open.
    pub fn finish_all(&mut self, outcome: Outcome, out: &mut dyn FnMut(Complete<'_>)) {
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
