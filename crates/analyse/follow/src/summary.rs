//! All requests of a trace in figures: classes, quantiles, the slowest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fettle_requests::{
    Batch, CERTAIN, Certainty, Counts, EventId, Outcome, Program, Request, SchemaCounts, Strings,
};
use fettle_trace::Manifest;

use crate::JSON_VERSION;
use crate::deferred::ByTraceId;
use crate::error::Result;
use crate::quantile::quantiles;
use crate::session::{Context, Observer, Ran, Session};
use crate::unconnected::Unconnected;
use crate::undecoded::Undecoded;
use crate::view::{ClassSummary, Count, RequestRow, SchemaSummary, SlowRequest, Summary, TimesNs};

/// What is added up of a class.
#[derive(Default)]
struct Class {
    walls_ns: Vec<u64>,
    responses_ns: Vec<u64>,
    times_ns: TimesNs,
}

/// Adds up requests as they come.
pub(crate) struct Summing {
    /// By schema.
    sums: Vec<Sums>,
    /// How many of the slowest are reported.
    slowest: usize,
    unconnected: Unconnected,
    undecoded: Undecoded,
    /// The event of calls whose activity is not seen, and how many there were.
    unseen: (Option<EventId>, u64),
}

/// What is added up of a schema.
#[derive(Default)]
struct Sums {
    classes: BTreeMap<(String, Vec<String>), Class>,
    /// The slowest so far, the least slow of them on top.
    slowest: BinaryHeap<Reverse<Slow>>,
    unfinished: u64,
    shared: u64,
    chosen: u64,
    doubtful: u64,
    only_candidate: u64,
}

/// A request in order of how long its answer took; of two, the later one is the less slow.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Slow {
    response_ns: u64,
    earlier: Reverse<u64>,
    found: Found,
}

struct Found(SlowRequest);

/// Never decides an order: tuples with requests are ordered by what stands before these.
impl PartialEq for Found {
    fn eq(&self, _: &Found) -> bool {
        true
    }
}
impl Eq for Found {}
impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Found) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Found {
    fn cmp(&self, _: &Found) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl Session<'_> {
    /// All requests in figures, and the `slowest` slowest of each schema.
    pub fn summary(&self, slowest: usize) -> Result<Summary> {
        let mut summing = Summing::new(&self.program, slowest);
        let other = Summing::new(&self.program, 0);
        let ran = self.run_with(&|event| other.wants(event), None, &mut summing)?;
        let Ran { counts, schema_counts, problems, by_trace_id, .. } = ran;
        let manifest = self.trace.manifest();
        Ok(summing.finish(
            &self.program,
            manifest,
            (&counts, by_trace_id),
            &schema_counts,
            problems,
        ))
    }
}

impl Observer for Summing {
    fn events(&mut self, _: u64, events: &Batch, context: &Context<'_>) -> bool {
        self.look(events, context.strings);
        true
    }

    fn request(&mut self, request: &Request, context: &Context<'_>) -> bool {
        self.take(request, context);
        true
    }
}

impl Summing {
    pub(crate) fn new(program: &Program, slowest: usize) -> Summing {
        let sums = program.schemas().iter().map(|_| Sums::default()).collect();
        let (unconnected, undecoded) = (Unconnected::new(program), Undecoded::new(program));
        let unseen = (program.catalog().find("io_uring"), 0);
        Summing { sums, slowest, unconnected, undecoded, unseen }
    }

    /// Whether it has to see an event, whatever the schemas do with it.
    pub(crate) fn wants(&self, event: EventId) -> bool {
        self.undecoded.wants(event) || self.unseen.0 == Some(event)
    }

    /// Looks at some events for what is not in requests.
    pub(crate) fn look(&mut self, events: &Batch, strings: &Strings) {
        self.unconnected.look(events, strings);
        self.undecoded.look(events, strings);
        if let (Some(event), count) = &mut self.unseen {
            *count += (0..events.len()).filter(|row| events.kind(*row) == *event).count() as u64;
        }
    }

    /// Adds a request.
    pub(crate) fn take(&mut self, request: &Request, context: &Context<'_>) {
        let row = context.row(request);
        let sums = &mut self.sums[request.schema];
        sums.add(request, &row);
        if sums.is_slow(&row, self.slowest) {
            let found = Found(SlowRequest { critical: context.critical(request), request: row });
            let (response_ns, earlier) = (request.response_ns(), Reverse(request.id));
            sums.slowest.push(Reverse(Slow { response_ns, earlier, found }));
            if sums.slowest.len() > self.slowest {
                sums.slowest.pop();
            }
        }
    }

    /// All of them in figures, of a trace with that manifest.
    pub(crate) fn finish(
        self,
        program: &Program,
        manifest: &Manifest,
        (counts, by_trace_id): (&Counts, ByTraceId),
        schema_counts: &[SchemaCounts],
        problems: Vec<String>,
    ) -> Summary {
        let mut event_counts = event_counts(counts, self.unconnected.messages, self.unseen.1);
        event_counts.extend(self.undecoded.counts());
        event_counts.extend(trace_id_counts(by_trace_id));
        let names = program.schemas().iter().map(|schema| schema.name().to_owned());
        let sums = names.zip(self.sums).zip(schema_counts);
        Summary {
            version: JSON_VERSION,
            command: manifest.command.clone(),
            duration_ns: manifest.duration_ns,
            events: counts.events,
            lost: manifest.events.lost(),
            counts: event_counts,
            schemas: sums.map(|((name, sums), counts)| sums.finish(name, counts)).collect(),
            problems,
        }
    }
}

impl Sums {
    fn add(&mut self, request: &Request, row: &RequestRow) {
        self.unfinished += u64::from(request.outcome == Outcome::Unfinished);
        self.shared += u64::from(!request.shared_with.is_empty());
        self.chosen += u64::from(request.certainty.is_choice());
        self.doubtful += u64::from(request.certainty.likely() < CERTAIN / 2);
        self.only_candidate += u64::from(request.certainty == Certainty::OnlyCandidate);
        let key = (row.class.clone(), row.path.clone());
        let class = self.classes.entry(key).or_default();
        class.walls_ns.push(row.wall_ns);
        class.responses_ns.push(row.response_ns);
        class.times_ns.add(row.times_ns);
    }

    fn is_slow(&self, row: &RequestRow, slowest: usize) -> bool {
        let least = self.slowest.peek().map(|Reverse(slow)| (slow.response_ns, slow.earlier));
        let beats = |least| (row.response_ns, Reverse(row.id)) > least;
        slowest > 0 && (self.slowest.len() < slowest || least.is_some_and(beats))
    }

    fn finish(self, name: String, counts: &SchemaCounts) -> SchemaSummary {
        let (mut walls_ns, mut responses_ns) = (Vec::new(), Vec::new());
        let mut times_ns = TimesNs::default();
        let mut classes: Vec<ClassSummary> = Vec::new();
        for ((name, path), mut class) in self.classes {
            walls_ns.extend_from_slice(&class.walls_ns);
            responses_ns.extend_from_slice(&class.responses_ns);
            times_ns.add(class.times_ns);
            classes.push(ClassSummary {
                name,
                path,
                requests: class.walls_ns.len() as u64,
                wall_ns: quantiles(&mut class.walls_ns),
                response_ns: quantiles(&mut class.responses_ns),
                times_ns: class.times_ns,
            });
        }
        let all =
            |class: &ClassSummary| u128::from(class.response_ns.mean) * u128::from(class.requests);
        classes.sort_by_key(|class| Reverse(all(class)));
        let slowest = self.slowest.into_sorted_vec().into_iter();
        SchemaSummary {
            name,
            matched: counts.matched,
            requests: walls_ns.len() as u64,
            unfinished: self.unfinished,
            shared: self.shared,
            chosen: self.chosen,
            doubtful: self.doubtful,
            only_candidate: self.only_candidate,
            wall_ns: quantiles(&mut walls_ns),
            response_ns: quantiles(&mut responses_ns),
            times_ns,
            classes,
            slowest: slowest.map(|Reverse(slow)| slow.found.0).collect(),
            counts: schema_counts(counts),
        }
    }
}

/// Those of some counts that are not 0.
fn not_none(counts: &[(&'static str, &'static str, u64)]) -> Vec<Count> {
    let some = counts.iter().filter(|(.., count)| *count > 0);
    some.map(|&(name, meaning, count)| Count { name, meaning, count }).collect()
}

fn event_counts(counts: &Counts, unconnected: u64, unseen: u64) -> Vec<Count> {
    not_none(&[
        ("out_of_order", "events came too late and were moved", counts.out_of_order),
        ("clock_jumps", "times the clock was set back", counts.clock_jumps),
        ("gaps", "times nothing happened for more than a second", counts.gaps),
        ("unknown", "events of kinds that no schema declares", counts.unknown),
        (
            "unconnected",
            "messages came over sockets that are not connected (UDP): requests of several peers may be one",
            unconnected,
        ),
        (
            "io_uring",
            "calls of io_uring: what was read, written, sent and received through it is in no request",
            unseen,
        ),
    ])
}

fn trace_id_counts(ByTraceId { all, moved }: ByTraceId) -> Vec<Count> {
    not_none(&[
        (
            "by_trace_id",
            "questions are surely for their request: both have the same trace's id in their bytes",
            all,
        ),
        (
            "trace_id_contradicts",
            "of these, questions that the kernel's events alone would give to another request",
            moved,
        ),
    ])
}

fn schema_counts(counts: &SchemaCounts) -> Vec<Count> {
    not_none(&[
        ("refused", "seeds that began no request: too many were open", counts.refused),
        ("unbound", "bindings to sections that were not open", counts.unbound),
        ("unmatched_stops", "stops of sections that were not open", counts.unmatched_stops),
        ("restarted", "sections closed by a start: their stop is missing", counts.restarted),
        ("unfit", "bindings left out: a value does not fit its key", counts.unfit),
        ("evicted", "sections given up: too many were open", counts.evicted),
        ("bytes_unsent", "bytes received that nobody was seen to send", counts.bytes_unsent),
        ("bytes_dropped", "bytes sent twice or given up", counts.bytes_dropped),
        ("bytes_unread", "bytes in flight when their stream ended", counts.bytes_unread),
        ("sharers_cut", "requests left out of a section that too many share", counts.sharers_cut),
        ("too_long", "requests completed because they had too many events", counts.too_long),
        (
            "swallowed",
            "requests cut: each took a quarter of all events or more while others began, which are not its own",
            counts.swallowed,
        ),
        ("quiet", "requests completed because nothing more happened", counts.quiet),
    ])
}
