//! What comes out: a request, with everything that was found to belong to it.

use crate::certainty::{Certainty, Choice};
use crate::event::EventId;
use crate::state::{State, Times};

/// Why a request was taken to be complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A rule said `end`.
    Ended,
    /// Its sections were closed, and no bytes of it were on their way.
    Drained,
    /// Nothing happened to it for [`crate::Options::quiet_ns`].
    Quiet,
    /// It has [`crate::Options::events_max`] events.
    TooLong,
    /// It took a large share of all events while many others began: see [`crate::Options::swallow_min`].
    Swallowed,
    /// The events were over.
    #[default]
    Unfinished,
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Its number within its schema, in the order in which requests began.
    pub id: u64,
    /// Place of its schema in [`crate::Program::schemas`].
    pub schema: usize,
    /// Place of what its seed calls it in [`crate::Schema::classes`].
    pub class: usize,
    /// The code of a text that its seed calls it by instead, if a field says.
    pub label: Option<u32>,
    /// When it came: when its first event was, or earlier if its seed says for how long it was queued.
    pub begin_ns: u64,
    /// When its last event was.
    pub end_ns: u64,
    /// When it got the last of its answer: settled by an event in the section that it came to first, which
    /// is where it was asked. None if no rule says so.
    pub answered_ns: Option<u64>,
    /// Why it is complete.
    pub outcome: Outcome,
    /// Its events, in order of time.
    pub events: Vec<RequestEvent>,
    /// The sections it was in, in the order in which it came there.
    pub sections: Vec<RequestSection>,
    /// What its actors did, each in order of time.
    pub spans: Vec<Span>,
    /// Where work or permission to go on came from.
    pub links: Vec<Link>,
    /// Requests whose work could not be distinguished from its own, in some section or event.
    pub shared_with: Vec<u64>,
    /// How certain the least certain of what belongs to it is.
    pub certainty: Certainty,
    /// Events of it that need not be its, in order of time; of very many the first.
    pub choices: Vec<Choice>,
}

/// An event of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEvent {
    /// When it was.
    pub time_ns: u64,
    /// Its place among all events that were fed, from 0.
    pub ordinal: u64,
    /// [`RequestEvent::actor`], or [`NO_ACTOR`]: there are many of these.
    actor: u32,
    /// Its kind.
    pub kind: EventId,
    /// Whether it belongs to other requests too.
    pub shared: bool,
}

const NO_ACTOR: u32 = u32::MAX;

impl RequestEvent {
    #[inline]
    pub(crate) fn new(
        (time_ns, ordinal, kind): (u64, u64, EventId),
        actor: Option<u32>,
        shared: bool,
    ) -> RequestEvent {
        RequestEvent { time_ns, ordinal, actor: actor.unwrap_or(NO_ACTOR), kind, shared }
    }

    /// Place in [`Request::sections`] of the actor that it happened to, if one is bound.
    pub fn actor(&self) -> Option<u32> {
        (self.actor != NO_ACTOR).then_some(self.actor)
    }
}

/// A stay in a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSection {
    /// Place of its timeline in [`crate::Schema::timelines`].
    pub timeline: usize,
    /// Its key, packed; [`crate::Program::describe`] says it in words.
    pub key: u128,
    /// Number of the section among all of its schema: two requests in one section have this in
    /// common, and nothing else has.
    pub serial: u64,
    /// From when on the request was in it.
    pub joined_ns: u64,
    /// When it was closed, or the request complete.
    pub left_ns: u64,
    /// Whether it runs and waits.
    pub actor: bool,
}

/// Time of an actor in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Place in [`Request::sections`].
    pub section: u32,
    /// What it did.
    pub state: State,
    /// From then on.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
    /// Whether for other requests too.
    pub shared: bool,
}

impl Span {
    /// Takes in what follows, if that goes on in the same way; returns whether it does.
    pub(crate) fn goes_on(&mut self, next: &Span) -> bool {
        let goes_on = (self.section, self.state, self.shared, self.to_ns)
            == (next.section, next.state, next.shared, next.from_ns);
        if goes_on {
            self.to_ns = next.to_ns;
        }
        goes_on
    }
}

/// How something came from one actor to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// By a hand-off: a wake-up.
    Handoff,
    /// Over a timeline that both touched: a connection, a queue's item.
    Timeline,
    /// In bytes of a stream.
    Bytes,
}

/// Something that one actor did and another went on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// How.
    pub kind: LinkKind,
    /// The actor that did it.
    pub from: Peer,
    /// When it was done.
    pub from_ns: u64,
    /// Place in [`Request::sections`] of the actor that went on.
    pub to: u32,
    /// When it got it.
    pub to_ns: u64,
    /// What the time in between is called.
    pub between: State,
    /// How certain it is that what was done was done for this request.
    pub certainty: Certainty,
}

/// An actor, of this request or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Place in [`Request::sections`].
    Section(u32),
    /// It worked on something else.
    Outsider {
        /// Place of its timeline in [`crate::Schema::timelines`].
        timeline: usize,
        /// Its key, packed.
        key: u128,
        /// The request it worked on, or one of them.
        request: Option<u64>,
    },
}

/// A visit to an actor on the request's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Place of the actor's timeline in [`crate::Schema::timelines`].
    pub timeline: usize,
    /// Its key, packed.
    pub key: u128,
    /// When the request came.
    pub from_ns: u64,
    /// When it left.
    pub to_ns: u64,
}

impl Request {
    /// Nanoseconds from when it came to its last event.
    pub fn wall_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    /// Nanoseconds from when it came until it was answered; to its last event where that is not known.
    /// What is done for it behind its answer delays no client.
    pub fn response_ns(&self) -> u64 {
        self.answered_ns.unwrap_or(self.end_ns).saturating_sub(self.begin_ns)
    }

    /// Nanoseconds that its actors spent in each state, all added up. Actors that work in parallel make
    /// this more than [`Request::wall_ns`].
    pub fn times(&self) -> Times {
        let mut times = Times::default();
        for span in &self.spans {
            times.add(span.state, span.to_ns.saturating_sub(span.from_ns));
        }
        times
    }

    /// Nanoseconds from when it came until then, or its last event, in which no actor had to do with
    /// it: neither at work for it nor waiting, as far as it was seen.
    pub fn nobodys_ns(&self, until_ns: u64) -> u64 {
        let until_ns = until_ns.min(self.end_ns);
        let mut spans: Vec<(u64, u64)> = self.spans.iter().map(|s| (s.from_ns, s.to_ns)).collect();
        // Each actor's are in order; actors are not.
        spans.sort_unstable();
        let (mut nobodys_ns, mut covered_ns) = (0, self.begin_ns);
        for (from_ns, to_ns) in spans {
            nobodys_ns += from_ns.min(until_ns).saturating_sub(covered_ns);
            covered_ns = covered_ns.max(to_ns);
        }
        nobodys_ns + until_ns.saturating_sub(covered_ns)
    }

    /// Nanoseconds on processors.
    pub fn cpu_ns(&self) -> u64 {
        self.times().get(State::Running)
    }

    /// Nanoseconds of [`Request::times`] that other requests count too.
    pub fn shared_ns(&self) -> u64 {
        let shared = self.spans.iter().filter(|span| span.shared);
        shared.map(|span| span.to_ns.saturating_sub(span.from_ns)).sum()
    }

    /// Its way through processes and threads: actors in the order in which it came to them.
    /// Sections that follow each other on one actor are one visit.
    pub fn path(&self) -> Vec<Visit> {
        let mut path: Vec<Visit> = Vec::new();
        for section in self.sections.iter().filter(|section| section.actor) {
            let RequestSection { timeline, key, joined_ns, left_ns, .. } = *section;
            match path.last_mut() {
                Some(last) if (last.timeline, last.key) == (timeline, key) => {
                    last.to_ns = last.to_ns.max(left_ns);
                }
                _ => path.push(Visit { timeline, key, from_ns: joined_ns, to_ns: left_ns }),
            }
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Wait;

    fn request(spans: &[(u64, u64)]) -> Request {
        let span = |&(from_ns, to_ns)| {
            let state = State::Waiting(Wait::Network);
            Span { section: 0, state, from_ns, to_ns, shared: false }
        };
        let spans = spans.iter().map(span).collect();
        Request { begin_ns: 100, end_ns: 200, spans, ..Request::default() }
    }

    #[test]
    fn what_is_in_no_span_is_nobodys() {
        // Two actors in parallel, one of which goes on after the last event.
        let of = request(&[(110, 130), (170, 220), (120, 150), (125, 126)]);
        assert_eq!(of.nobodys_ns(u64::MAX), 10 + 20);
        assert_eq!((of.nobodys_ns(160), of.nobodys_ns(105), of.nobodys_ns(0)), (20, 5, 0));
        assert_eq!(request(&[]).nobodys_ns(200), 100);
        assert_eq!(request(&[(90, 300)]).nobodys_ns(200), 0);
    }
}
