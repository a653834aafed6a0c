//! What the page gets, as JSON. Every object that is an answer has a `version`.

use fettle_follow::event_fields;
use fettle_report::{LossRow, Report};
use fettle_trace::{ProbeMode, Trace};
use fettle_types::FunctionIndex;
use serde::Serialize;

use crate::calls::CallId;
use crate::label::{Label, Named};
use crate::range::RangeTree;
use crate::timelines::{Timeline, Timelines};
use crate::track::Span;

/// Version of these objects.
const VERSION: u32 = 1;
/// Frames of a flame graph narrower than one part in this many are left out.
const FRAMES_PER_WIDTH: u64 = 4000;
/// Frames sent at most.
const FRAMES_MAX: usize = 50_000;
/// Direct callees that are listed to show where a call's time was spent.
const CALLEES_MAX: usize = 1 << 21;
/// Callees that are listed.
const CALLEE_ROWS: usize = 12;

/// A trace, as far as the timelines need it.
#[derive(Serialize)]
pub struct TraceView<'a> {
    version: u32,
    command: &'a [String],
    start_time: &'a str,
    /// Length of the timelines.
    end_ns: u64,
    cpu_model: &'a str,
    probe_mode: ProbeMode,
    /// Whether it is known when threads were off-CPU.
    switches: bool,
    /// Whether there are events to follow requests through.
    events: bool,
    /// Whether locks were counted, or each use of one is an event.
    locks: bool,
    /// Whether there are totals of functions.
    totals: bool,
    /// Calls in the timelines.
    calls: u64,
    /// Records that found no room.
    lost: u64,
    /// Whether the recording did not end properly.
    cut_off: bool,
    /// Which state of a recording that goes on this is.
    generation: u32,
    /// Whether it goes on.
    live: bool,
    threads: Vec<ThreadView<'a>>,
    labels: Vec<LabelView<'a>>,
    warnings: &'a [String],
}

/// Whether a recording goes on.
#[derive(Serialize)]
pub struct LiveView {
    version: u32,
    generation: u32,
    live: bool,
}

impl LiveView {
    /// Of its parts.
    pub fn new(generation: u32, live: bool) -> LiveView {
        LiveView { version: VERSION, generation, live }
    }
}

#[derive(Serialize)]
struct ThreadView<'a> {
    index: u32,
    pid: u32,
    tid: u32,
    name: &'a str,
    start_ns: u64,
    end_ns: u64,
    cpu_ns: Option<u64>,
    calls: usize,
    lost: u64,
    /// Rows that its calls take.
    depths: usize,
    /// Rows made from its events.
    reported: usize,
    /// Its events.
    events: usize,
    /// Whether it has off-CPU times.
    off_cpu: bool,
}

#[derive(Serialize)]
struct LabelView<'a> {
    name: &'a str,
    /// `function`, `state`, `lasting` or `event`.
    what: &'static str,
    /// Of a function: its number, module and source.
    id: Option<FunctionIndex>,
    module: &'a str,
    place: Option<&'a str>,
}

impl<'a> LabelView<'a> {
    fn new(Label { name, named }: &'a Label) -> LabelView<'a> {
        let (what, id, module, place) = match named {
            Named::Function { id, module, place } => {
                ("function", Some(*id), module.as_str(), place.as_deref())
            }
            Named::State => ("state", None, "", None),
            Named::Lasting | Named::Span { .. } => ("lasting", None, "", None),
            Named::Event | Named::OfSpan { .. } => ("event", None, "", None),
        };
        LabelView { name, what, id, module, place }
    }
}

impl<'a> TraceView<'a> {
    /// The first answer that the page gets.
    pub fn new(
        trace: &'a Trace,
        timelines: &'a Timelines,
        generation: u32,
        live: bool,
    ) -> TraceView<'a> {
        let manifest = trace.manifest();
        TraceView {
            version: VERSION,
            command: &manifest.command,
            start_time: &manifest.start_time,
            end_ns: timelines.end_ns,
            cpu_model: &manifest.machine.cpu_model,
            probe_mode: manifest.probe_mode,
            switches: manifest.switches,
            events: manifest.events.rows() > 0,
            locks: trace.has_locks() || fettle_follow::has_contention(trace).unwrap_or(false),
            totals: manifest.totals.calls > 0,
            calls: timelines.calls,
            lost: manifest.totals.lost,
            cut_off: manifest.recovery.is_some() && !live,
            generation,
            live,
            threads: timelines.threads.iter().map(ThreadView::new).collect(),
            labels: timelines.labels.iter().map(LabelView::new).collect(),
            warnings: &timelines.warnings,
        }
    }
}

impl<'a> ThreadView<'a> {
    fn new(timeline: &'a Timeline) -> ThreadView<'a> {
        let thread = &timeline.thread;
        ThreadView {
            index: thread.index,
            pid: thread.pid,
            tid: thread.tid,
            name: &thread.name,
            start_ns: thread.start_ns,
            end_ns: thread.end_ns,
            cpu_ns: thread.cpu_ns,
            calls: timeline.depths.iter().map(super::track::Track::len).sum(),
            lost: thread.lost,
            depths: timeline.depths.len(),
            reported: timeline.reported.len(),
            events: timeline.reported.last().map_or(0, super::track::Track::len),
            off_cpu: !timeline.off_cpu.is_empty(),
        }
    }
}

/// The exact totals, and what was lost.
#[derive(Serialize)]
pub struct ReportView {
    version: u32,
    functions: Vec<fettle_report::FunctionRow>,
    losses: Vec<LossRow>,
    skipped: Vec<fettle_report::SkippedRow>,
    warnings: Vec<String>,
    notes: Vec<String>,
    self_corrected_ns: u64,
}

impl From<Report> for ReportView {
    fn from(report: Report) -> ReportView {
        ReportView {
            version: VERSION,
            functions: report.functions,
            losses: report.losses,
            skipped: report.skipped,
            warnings: report.warnings,
            notes: report.notes,
            self_corrected_ns: report.self_corrected_ns,
        }
    }
}

/// What happened in an interval of time.
#[derive(Serialize)]
pub struct RangeView {
    version: u32,
    total_ns: u64,
    functions: Vec<ShareView>,
    /// The call tree in columns: callers before callees, the first is the root.
    frames: Frames,
    /// Frames too narrow to be seen.
    left_out: usize,
}

#[derive(Serialize)]
struct ShareView {
    label: u32,
    calls: u64,
    total_ns: u64,
    self_ns: u64,
}

#[derive(Default, Serialize)]
struct Frames {
    parent: Vec<usize>,
    label: Vec<u32>,
    calls: Vec<u64>,
    total_ns: Vec<u64>,
    self_ns: Vec<u64>,
}

impl RangeView {
    /// The view of a range.
    pub fn new(tree: &RangeTree) -> RangeView {
        let total_ns = tree.nodes[0].total_ns;
        let narrowest = total_ns / FRAMES_PER_WIDTH;
        let mut frames = Frames::default();
        // The index of each node in the answer; callers come before callees.
        let mut places: Vec<Option<usize>> = Vec::with_capacity(tree.nodes.len());
        for (at, node) in tree.nodes.iter().enumerate() {
            let parent = if at == 0 { Some(0) } else { places[node.parent as usize] };
            let seen = node.total_ns > narrowest || at == 0;
            let kept = parent.filter(|_| seen && frames.parent.len() < FRAMES_MAX);
            places.push(kept.map(|parent| {
                frames.parent.push(parent);
                frames.label.push(node.label);
                frames.calls.push(node.calls);
                frames.total_ns.push(node.total_ns);
                frames.self_ns.push(node.total_ns.saturating_sub(node.in_callees_ns));
                frames.parent.len() - 1
            }));
        }
        let shares = tree.shares();
        let functions = shares.iter().map(|(&label, share)| ShareView {
            label,
            calls: share.calls,
            total_ns: share.total_ns,
            self_ns: share.self_ns,
        });
        let mut functions: Vec<ShareView> = functions.collect();
        functions.sort_by_key(|row| (std::cmp::Reverse(row.self_ns), row.label));
        let left_out = tree.nodes.len() - frames.parent.len();
        RangeView { version: VERSION, total_ns, functions, frames, left_out }
    }
}

/// Where a call is, and what.
#[derive(Serialize)]
pub struct CallView {
    thread: u32,
    depth: u32,
    index: u32,
    label: u32,
    start_ns: u64,
    duration_ns: u64,
    off_cpu_ns: u64,
    /// Calls that it stands for.
    weight: u32,
}

impl CallView {
    /// A call.
    pub fn new(id: CallId, span: Span) -> CallView {
        CallView {
            thread: id.thread,
            depth: id.depth,
            index: id.index,
            label: span.label,
            start_ns: span.start_ns,
            duration_ns: span.duration_ns,
            off_cpu_ns: span.off_cpu_ns,
            weight: span.weight,
        }
    }
}

/// One call with what is around it.
#[derive(Serialize)]
pub struct DetailView {
    version: u32,
    #[serde(flatten)]
    call: CallView,
    /// Nanoseconds outside of recorded callees.
    self_ns: u64,
    /// Calls that it made itself.
    callee_calls: usize,
    /// Outermost first.
    callers: Vec<CallView>,
    /// Most time first.
    callees: Vec<ShareView>,
}

impl DetailView {
    /// The details of a call.
    pub fn new(timelines: &Timelines, id: CallId) -> Option<DetailView> {
        let timeline = timelines.thread(id.thread)?;
        let depth = id.depth as usize;
        let span = timeline.depths.get(depth)?.span(id.index as usize)?;
        let callers = timeline.callers(depth, span).into_iter().filter_map(|(depth, index)| {
            let span = timeline.depths.get(depth)?.span(index)?;
            let id = CallId { thread: id.thread, depth: depth as u32, index: index as u32 };
            Some(CallView::new(id, span))
        });
        let callees = timeline.callees(depth, span);
        let (callee_calls, mut in_callees_ns) = (callees.len(), 0);
        let mut rows: rustc_hash::FxHashMap<u32, ShareView> = Default::default();
        for index in callees.take(CALLEES_MAX) {
            let Some(callee) = timeline.depths.get(depth + 1).and_then(|row| row.span(index))
            else {
                break;
            };
            in_callees_ns += callee.duration_ns;
            let label = callee.label;
            let none = || ShareView { label, calls: 0, total_ns: 0, self_ns: 0 };
            let row = rows.entry(label).or_insert_with(none);
            row.calls += 1;
            row.total_ns += callee.duration_ns;
        }
        let mut callees: Vec<ShareView> = rows.into_values().collect();
        callees.sort_by_key(|row| (std::cmp::Reverse(row.total_ns), row.label));
        callees.truncate(CALLEE_ROWS);
        Some(DetailView {
            version: VERSION,
            call: CallView::new(id, span),
            self_ns: span.duration_ns.saturating_sub(in_callees_ns),
            callee_calls,
            callers: callers.collect(),
            callees,
        })
    }
}

/// What the events of a thread say of one time, with the fields of the event.
#[derive(Serialize)]
pub struct ReportedView {
    version: u32,
    #[serde(flatten)]
    call: CallView,
    /// Of the event, or of that which ended it: names and values.
    fields: Vec<(String, String)>,
    /// What is before and behind it in its row.
    before: Option<CallView>,
    behind: Option<CallView>,
}

impl ReportedView {
    /// The details of a span of such a row.
    pub fn new(
        trace: &Trace,
        timelines: &Timelines,
        id: CallId,
    ) -> fettle_follow::Result<Option<ReportedView>> {
        let Some(timeline) = timelines.thread(id.thread) else { return Ok(None) };
        let Some(row) = timeline.row(id.depth) else { return Ok(None) };
        let Some(span) = row.span(id.index as usize) else { return Ok(None) };
        let near = |index: Option<u32>| {
            let index = index?;
            Some(CallView::new(CallId { index, ..id }, row.span(index as usize)?))
        };
        let time_ns = span.end_ns();
        // Of events at one time, it is that which has as many of its kind before it.
        let earlier = (0..id.index).rev().map_while(|index| row.span(index as usize));
        let alike = earlier.take_while(|before| before.end_ns() == time_ns);
        let kind = |span: &Span| timelines.labels.get(span.label as usize)?.kind();
        let before = alike.filter(|before| kind(before) == kind(&span)).count();
        let fields = match kind(&span) {
            Some(kind) => event_fields(trace, kind, timeline.thread.tid, time_ns, before)?,
            None => None,
        };
        Ok(Some(ReportedView {
            version: VERSION,
            call: CallView::new(id, span),
            fields: fields.unwrap_or_default(),
            before: near(id.index.checked_sub(1)),
            behind: near(id.index.checked_add(1)),
        }))
    }
}

/// Several calls, and how many there are.
#[derive(Serialize)]
pub struct CallsView {
    version: u32,
    /// Calls that are meant.
    count: u64,
    /// Some of them.
    calls: Vec<CallView>,
}

impl CallsView {
    /// Calls in this order.
    pub fn new(calls: Vec<(CallId, Span)>, count: u64) -> CallsView {
        let calls = calls.into_iter().map(|(id, span)| CallView::new(id, span)).collect();
        CallsView { version: VERSION, count, calls }
    }
}

/// How long the calls of a function took.
#[derive(Serialize)]
pub struct DurationsView {
    version: u32,
    calls: u64,
    sum_ns: u64,
    min_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    /// First nanosecond, last nanosecond and calls of each bucket that has some.
    buckets: Vec<(u64, u64, u64)>,
}

impl From<fettle_stats::Distribution> for DurationsView {
    fn from(durations: fettle_stats::Distribution) -> DurationsView {
        DurationsView {
            version: VERSION,
            calls: durations.count(),
            sum_ns: durations.sum(),
            min_ns: durations.min(),
            p50_ns: durations.quantile(0.5),
            p90_ns: durations.quantile(0.9),
            p99_ns: durations.quantile(0.99),
            max_ns: durations.max(),
            buckets: durations.buckets().collect(),
        }
    }
}
