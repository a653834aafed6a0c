//! What comes out: plain data. Times are nanoseconds of trace time.

use fettle_requests::{State, Times, Wait};
use serde::Serialize;

/// What time of a request is called in which no actor had to do with it.
pub(crate) const NOBODY: &str = "nobody that is recorded";

/// All requests of a trace, in figures.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// Program and arguments of the recording.
    pub command: Vec<String>,
    /// Length of the recording.
    pub duration_ns: u64,
    /// Events that were followed.
    pub events: u64,
    /// Events that were lost while recording.
    pub lost: u64,
    /// What did not go as it should with the events, if anything.
    pub counts: Vec<Count>,
    /// What could not be read, or not be used, one sentence each.
    pub problems: Vec<String>,
    /// What each schema found.
    pub schemas: Vec<SchemaSummary>,
}

/// A number of things, and what they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Name, as in `docs/user/schemas.md`.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// How many.
    pub count: u64,
}

/// What a schema found.
#[derive(Clone, Debug, Serialize)]
pub struct SchemaSummary {
    /// Its name.
    pub name: String,
    /// Events that it does something with.
    pub matched: u64,
    /// Requests.
    pub requests: u64,
    /// Requests that were still open when the events were over.
    pub unfinished: u64,
    /// Requests whose work could not be distinguished from others' in some place.
    pub shared: u64,
    /// Requests of which something rests on a choice among several.
    pub chosen: u64,
    /// Of these, those whose least certain choice is more likely wrong than right.
    pub doubtful: u64,
    /// Requests that nothing but the only candidate connects in some place.
    pub only_candidate: u64,
    /// From the first event to the last.
    pub wall_ns: Quantiles,
    /// From the first event to the answer, or to the last event where no answer is known.
    pub response_ns: Quantiles,
    /// Time in each state, all requests together.
    pub times_ns: TimesNs,
    /// Its classes, those with most time first.
    pub classes: Vec<ClassSummary>,
    /// The slowest requests, slowest first.
    pub slowest: Vec<SlowRequest>,
    /// What did not go as it should, if anything.
    pub counts: Vec<Count>,
}

/// Requests that began alike and went through the same processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassSummary {
    /// What their seed calls them.
    pub name: String,
    /// The processes that they came to, in the order of the first time.
    pub path: Vec<String>,
    /// How many.
    pub requests: u64,
    /// From the first event to the last.
    pub wall_ns: Quantiles,
    /// From the first event to the answer, or to the last event where no answer is known.
    pub response_ns: Quantiles,
    /// Time in each state, all together.
    pub times_ns: TimesNs,
}

/// A distribution, exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// Number of values.
    pub count: u64,
    /// Their mean, rounded down.
    pub mean: u64,
    /// The smallest.
    pub min: u64,
    /// The smallest that half of them do not exceed.
    pub p50: u64,
    /// The same for 90 %.
    pub p90: u64,
    /// The same for 99 %.
    pub p99: u64,
    /// The same for 99.9 %.
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

/// Nanoseconds in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimesNs {
    /// On a processor.
    pub running: u64,
    /// Could have been, but others were.
    pub runnable: u64,
    /// Sent, or put into a queue, and taken by no actor yet.
    pub queued: u64,
    /// Waiting for a lock that another actor holds.
    pub lock: u64,
    /// Waiting for a disk.
    pub disk: u64,
    /// Waiting for a peer.
    pub network: u64,
    /// Waiting for something else, or time.
    pub sleeping: u64,
}

impl From<Times> for TimesNs {
    fn from(times: Times) -> TimesNs {
        TimesNs {
            running: times.get(State::Running),
            runnable: times.get(State::Runnable),
            queued: times.get(State::Queued),
            lock: times.get(State::Waiting(Wait::Lock)),
            disk: times.get(State::Waiting(Wait::Disk)),
            network: times.get(State::Waiting(Wait::Network)),
            sleeping: times.get(State::Waiting(Wait::Sleeping)),
        }
    }
}

impl TimesNs {
    /// States and their times, in the order of [`State::ALL`].
    pub fn by_state(&self) -> [(State, u64); State::ALL.len()] {
        let TimesNs { running, runnable, queued, lock, disk, network, sleeping } = *self;
        let times = [running, runnable, queued, lock, disk, network, sleeping];
        std::array::from_fn(|n| (State::ALL[n], times[n]))
    }

    /// Adds the times of another.
    pub(crate) fn add(&mut self, other: TimesNs) {
        self.running = self.running.saturating_add(other.running);
        self.runnable = self.runnable.saturating_add(other.runnable);
        self.queued = self.queued.saturating_add(other.queued);
        self.lock = self.lock.saturating_add(other.lock);
        self.disk = self.disk.saturating_add(other.disk);
        self.network = self.network.saturating_add(other.network);
        self.sleeping = self.sleeping.saturating_add(other.sleeping);
    }
}

/// A request in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestRow {
    /// Place of its schema.
    pub schema: usize,
    /// Its number within its schema.
    pub id: u64,
    /// What its seed calls it.
    pub class: String,
    /// The processes that it came to, in the order of the first time.
    pub path: Vec<String>,
    /// When its first event was.
    pub begin_ns: u64,
    /// When its last event was.
    pub end_ns: u64,
    /// From the first to the last.
    pub wall_ns: u64,
    /// When it got the last of its answer, if that is known.
    pub answered_ns: Option<u64>,
    /// Until then from the first event; otherwise the wall time. A client that waited for it, waited for
    /// this.
    pub response_ns: u64,
    /// Time of its threads in each state. Threads that work in parallel make this more than the wall
    /// time.
    pub times_ns: TimesNs,
    /// Of these times, what other requests count too.
    pub shared_ns: u64,
    /// Number of its events.
    pub events: u64,
    /// Threads (actors) that worked for it.
    pub actors: u64,
    /// Number of requests that it shared work with.
    pub shared_with: u64,
    /// Why it is complete: `ended`, `drained`, `quiet`, `too long`, `swallowed others`, `unfinished`.
    pub outcome: &'static str,
    /// How certain the least certain of its links is: `seen`, `only candidate`, `chosen`.
    pub certainty: &'static str,
    /// How likely that one is right, in thousandths: 1000 unless it was chosen.
    pub likely: u16,
    /// How many it was chosen among; 1 unless it was chosen.
    pub candidates: u32,
}

/// A slow request and where its time went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlowRequest {
    /// The request.
    pub request: RequestRow,
    /// Its critical path, first step first.
    pub critical: Vec<CriticalStep>,
}

/// A step of a critical path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CriticalStep {
    /// The actor.
    pub actor: String,
    /// What it did: the name of a state.
    pub state: &'static str,
    /// From then on.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
    /// The actor that ended the wait, if it worked on something else.
    pub waited_for: Option<String>,
}

/// A request with everything that belongs to it.
#[derive(Clone, Debug, Serialize)]
pub struct Detail {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// Name of its schema.
    pub schema: String,
    /// The request in one line.
    pub request: RequestRow,
    /// The actors that worked for it, in the order of the first time.
    pub actors: Vec<Actor>,
    /// Its stays in sections of timelines.
    pub sections: Vec<SectionRow>,
    /// What its actors did and when.
    pub spans: Vec<SpanRow>,
    /// Where work or permission to go on came from.
    pub links: Vec<LinkRow>,
    /// Its events, in order of time.
    pub events: Vec<EventRow>,
    /// Its critical path, first step first.
    pub critical: Vec<CriticalStep>,
    /// Of imported traces: the spans that it is made of, each before its children.
    pub named: Vec<NamedSpan>,
    /// Their critical path, first step first.
    pub named_critical: Vec<NamedStep>,
    /// Requests that it shared work with.
    pub shared_with: Vec<u64>,
    /// What could not be read, or not be used, one sentence each.
    pub problems: Vec<String>,
}

/// An actor, which runs and waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Actor {
    /// How it is shown to people: `nginx/812`, or the key where it is no thread.
    pub name: String,
    /// Its process's name, if it is a thread whose process is known.
    pub process: Option<String>,
    /// Its process, if it is known.
    pub pid: Option<u32>,
    /// Its thread, if it is one.
    pub tid: Option<u32>,
    /// Time in each state.
    pub times_ns: TimesNs,
}

/// A stay in a section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SectionRow {
    /// Name of the timeline.
    pub timeline: String,
    /// Timeline and key: `file(pid=7, fd=3)`.
    pub name: String,
    /// Place of its actor in [`Detail::actors`], if it runs and waits.
    pub actor: Option<usize>,
    /// From when on the request was in it.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
}

/// Time of an actor in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpanRow {
    /// Place in [`Detail::actors`].
    pub actor: usize,
    /// The name of the state.
    pub state: &'static str,
    /// From then on.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
    /// Whether for other requests too.
    pub shared: bool,
}

/// Something that one actor did and another went on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkRow {
    /// How: `hand-off`, `timeline`, `bytes`.
    pub kind: &'static str,
    /// The actor that did it.
    pub from: String,
    /// Its place in [`Detail::actors`], if it worked for this request.
    pub from_actor: Option<usize>,
    /// When it was done.
    pub from_ns: u64,
    /// Place in [`Detail::actors`] of the one that went on.
    pub to_actor: usize,
    /// When it got it.
    pub to_ns: u64,
    /// How certain it is that it was for this request: `seen`, `only candidate`, `chosen`.
    pub certainty: &'static str,
    /// How likely, in thousandths.
    pub likely: u16,
    /// How many it was chosen among.
    pub candidates: u32,
}

/// A span that says what it is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamedSpan {
    /// The service that reported it.
    pub service: String,
    /// What was done.
    pub name: String,
    /// When it began.
    pub from_ns: u64,
    /// When it ended; the request's end, if nothing says.
    pub to_ns: u64,
    /// Place of the span that it is a child of.
    pub parent: Option<usize>,
    /// How many are around it.
    pub depth: usize,
    /// `ok`, `error`, or nothing.
    pub status: String,
    /// How many it could be a child of, if that was not said by an id; 0 if it was.
    pub candidates: u32,
    /// How likely the one that was chosen is right, in thousandths.
    pub likely: u16,
}

/// A part of a critical path of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NamedStep {
    /// Place of the span.
    pub span: usize,
    /// From then on it was the one that counted, and none of its children.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventRow {
    /// When it was.
    pub time_ns: u64,
    /// Its kind.
    pub name: String,
    /// Place in [`Detail::actors`] of the one that it happened to, if one is bound.
    pub actor: Option<usize>,
    /// Names and values of its fields.
    pub fields: Vec<(String, String)>,
    /// Whether it belongs to other requests too.
    pub shared: bool,
}
