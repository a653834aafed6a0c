//! All calls and events of a trace in memory, as rows to draw.
//!
//! A thread's calls lie in one track per depth, the times that it was switched out in one more, and
//! its events in others below (`told.rs`). Calls are stored in order of their ends, thread after
//! thread; calls of one depth do not overlap, so each track is in order of time as it comes.

use std::sync::mpsc;

use fettle_report::{NO_FUNCTION, Names};
use fettle_trace::{Call, Part, Thread, Trace};
use fettle_types::FunctionIndex;
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::label::{Label, Named};
use crate::reported::{self, Reporting};
use crate::track::{Span, Track};

/// Calls held at most: sixteen bytes each, and a third more for the pyramid.
const CALLS_MAX: u64 = 1 << 29;

/// Label of a time that a thread waited for something, or was stopped.
pub const WAITED: u32 = 0;
/// Label of a time that a thread could have gone on, while others had its processor.
pub const PREEMPTED: u32 = 1;

/// A trace's calls as rows to draw.
#[derive(Debug, Default)]
pub struct Timelines {
    /// Threads, in order of their index.
    pub threads: Vec<Timeline>,
    /// What spans are called: their labels are places in this list.
    pub labels: Vec<Label>,
    /// Calls held.
    pub calls: u64,
    /// End of the last call or thread, nanoseconds of trace time.
    pub end_ns: u64,
    /// What could not be read or held, one sentence each.
    pub warnings: Vec<String>,
}

/// What one thread did.
#[derive(Debug)]
pub struct Timeline {
    /// The thread.
    pub thread: Thread,
    /// Its calls, by depth.
    pub depths: Vec<Track>,
    /// When it was switched out; labels are [`WAITED`] and [`PREEMPTED`].
    pub off_cpu: Track,
    /// Tracks made from its events: what it did, what lasted, each event.
    pub reported: Vec<Track>,
}

/// Number of the first row of `Timeline::reported`. Rows before it are calls of that depth.
pub const REPORTED: u32 = 1 << 16;

impl Timeline {
    /// A timeline without calls and events.
    pub fn new(thread: Thread) -> Timeline {
        Timeline { thread, depths: Vec::new(), off_cpu: Track::default(), reported: Vec::new() }
    }

    /// All rows from top to bottom, with their numbers.
    pub fn rows(&self) -> impl Iterator<Item = (u32, &Track)> {
        (0..).zip(&self.depths).chain((REPORTED..).zip(&self.reported))
    }

    /// The row of this number.
    pub fn row(&self, number: u32) -> Option<&Track> {
        match number.checked_sub(REPORTED) {
            Some(place) => self.reported.get(place as usize),
            None => self.depths.get(number as usize),
        }
    }
}

impl Timelines {
    /// Reads a trace. What cannot be read is left out and named in the warnings.
    pub fn read(trace: &Trace) -> Result<Timelines> {
        let mut warnings = Vec::new();
        let mut reader = Reader::new(trace.threads().unwrap_or_else(|error| {
            warnings.push(error.to_string());
            Vec::new()
        }));
        reader.calls(trace, &mut warnings)?;
        trace
            .for_each_switch(|switches| {
                for switch in switches {
                    let span = Span {
                        start_ns: switch.off_ns,
                        duration_ns: switch.on_ns.saturating_sub(switch.off_ns),
                        label: if switch.preempted { PREEMPTED } else { WAITED },
                        weight: 1,
                        off_cpu_ns: 0,
                    };
                    let timeline = reader.thread(switch.thread);
                    let pushed = reader.timelines[timeline].off_cpu.push(span);
                    reader.misplaced += u64::from(!pushed);
                }
            })
            .unwrap_or_else(|error| warnings.push(error.to_string()));
        let telling = reader.events(trace).unwrap_or_else(|error| {
            warnings.push(error.to_string());
            Reporting::default()
        });
        Ok(reader.finish(trace, telling, warnings))
    }

    /// The timeline of a thread, by [`Thread::index`].
    pub fn thread(&self, index: u32) -> Option<&Timeline> {
        let at =
            self.threads.binary_search_by_key(&index, |timeline| timeline.thread.index).ok()?;
        self.threads.get(at)
    }

    /// What is shown for a label.
    pub fn name(&self, label: u32) -> &str {
        self.labels.get(label as usize).map_or("?", |label| label.name.as_str())
    }
}

/// Timelines on their way.
struct Reader {
    timelines: Vec<Timeline>,
    by_index: FxHashMap<u32, usize>,
    /// Labels by function.
    labels: FxHashMap<FunctionIndex, u32>,
    functions: Vec<FunctionIndex>,
    calls: u64,
    left_out: u64,
    misplaced: u64,
}

impl Reader {
    fn new(threads: Vec<Thread>) -> Reader {
        let timelines: Vec<Timeline> = threads.into_iter().map(Timeline::new).collect();
        let numbered = timelines.iter().enumerate();
        Reader {
            by_index: numbered.map(|(at, timeline)| (timeline.thread.index, at)).collect(),
            timelines,
            labels: FxHashMap::default(),
            functions: Vec::new(),
            calls: 0,
            left_out: 0,
            misplaced: 0,
        }
    }

    /// Place of a thread's timeline; made if the table of threads does not have it.
    fn thread(&mut self, index: u32) -> usize {
        let next = self.timelines.len();
        let at = *self.by_index.entry(index).or_insert(next);
        if at == next {
            self.timelines.push(Timeline::new(Thread { index, ..Thread::default() }));
        }
        at
    }

    fn calls(&mut self, trace: &Trace, warnings: &mut Vec<String>) -> Result<()> {
        let (parts, damaged) = trace.parts()?;
        warnings.extend(damaged.iter().map(ToString::to_string));
        for_each_part(trace, &parts, |read| match read {
            Ok(calls) => self.part(calls),
            Err(error) => warnings.push(error.to_string()),
        });
        Ok(())
    }

    fn part(&mut self, calls: &[Call]) {
        if self.calls + calls.len() as u64 > CALLS_MAX {
            self.left_out += calls.len() as u64;
            return;
        }
        // Calls repeat: the thread and function of the call before are usually those of this one.
        let mut last_thread = None;
        let mut last_label = (NO_FUNCTION, 0);
        for call in calls {
            let timeline = match last_thread {
                Some((index, at)) if index == call.thread => at,
                _ => self.thread(call.thread),
            };
            last_thread = Some((call.thread, timeline));
            if last_label.0 != call.function {
                let next = self.functions.len() as u32;
                let label = *self.labels.entry(call.function).or_insert(next);
                if label == next {
                    self.functions.push(call.function);
                }
                last_label = (call.function, label);
            }
            let depths = &mut self.timelines[timeline].depths;
            let depth = usize::from(call.depth);
            if depths.len() <= depth {
                depths.resize_with(depth + 1, Track::default);
            }
            let pushed = depths[depth].push(Span {
                start_ns: call.start_ns,
                duration_ns: call.duration_ns,
                label: last_label.1,
                weight: call.weight,
                off_cpu_ns: call.off_cpu_ns,
            });
            self.calls += u64::from(pushed);
            self.misplaced += u64::from(!pushed);
        }
    }

    /// Adds tracks made from events, with labels behind those of functions.
    fn events(&mut self, trace: &Trace) -> Result<Reporting> {
        let threads: Vec<Thread> = self.timelines.iter().map(|one| one.thread.clone()).collect();
        let mut telling = reported::read(trace, &threads, self.functions.len() as u32)?;
        for thread in telling.unknown.drain(..) {
            self.by_index.insert(thread.index, self.timelines.len());
            self.timelines.push(Timeline::new(thread));
        }
        for (index, reported) in telling.threads.drain() {
            let at = self.thread(index);
            self.timelines[at].reported = reported.rows();
        }
        Ok(telling)
    }

    fn finish(self, trace: &Trace, telling: Reporting, mut warnings: Vec<String>) -> Timelines {
        let mut threads = self.timelines;
        let mut end_ns = trace.manifest().duration_ns;
        for timeline in &mut threads {
            let rows = timeline.depths.iter_mut().chain([&mut timeline.off_cpu]);
            rows.chain(&mut timeline.reported).for_each(Track::finish);
            end_ns = end_ns.max(timeline.thread.end_ns);
            let last = |track: &Track| track.span(track.len().checked_sub(1)?);
            let ends = timeline.depths.first().into_iter().chain(&timeline.reported);
            end_ns = ends.filter_map(last).fold(end_ns, |end_ns, span| end_ns.max(span.end_ns()));
        }
        threads.sort_by_key(|timeline| timeline.thread.index);
        let mut left = |count: u64, what: &str| {
            if count > 0 {
                warnings.push(format!("{} {what}", fettle_report::render::count(count)));
            }
        };
        left(self.left_out, "calls are not in the timelines: there is no room for so many");
        left(self.misplaced, "calls begin before those in front of them: not in the timelines");
        left(telling.left_out, "events are not in the timelines: there is no room for so many");
        let mut labels = named(trace, &self.functions, &mut warnings);
        warnings.extend(telling.warnings);
        labels.extend(telling.labels);
        Timelines { threads, labels, calls: self.calls, end_ns, warnings }
    }
}

/// What functions are called.
fn named(trace: &Trace, ids: &[FunctionIndex], warnings: &mut Vec<String>) -> Vec<Label> {
    let functions = trace.functions().unwrap_or_else(|error| {
        warnings.push(error.to_string());
        Vec::new()
    });
    let modules = trace.modules().unwrap_or_else(|error| {
        warnings.push(error.to_string());
        Vec::new()
    });
    let names = Names::new(&functions, &modules, true);
    let named = ids.iter().map(|&id| {
        let known = names.get(id);
        let module = known.map(|name| name.module.clone()).unwrap_or_default();
        let place = known.and_then(|name| name.place.clone());
        Label { name: names.shown(id), named: Named::Function { id, module, place } }
    });
    named.collect()
}

/// Calls `with` on the calls of each part, in order. Several threads decode; at most two parts
/// of each wait.
fn for_each_part(
    trace: &Trace,
    parts: &[Part],
    mut with: impl FnMut(std::result::Result<&[Call], fettle_trace::Error>),
) {
    let decoders = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(4);
    std::thread::scope(|scope| {
        let mut decoded = Vec::new();
        for decoder in 0..decoders {
            let (send, receive) = mpsc::sync_channel(1);
            decoded.push(receive);
            scope.spawn(move || {
                for part in parts.iter().skip(decoder).step_by(decoders) {
                    let mut calls = Vec::new();
                    let result = trace.read_part(part, &mut calls).map(|()| calls);
                    if send.send(result).is_err() {
                        return;
                    }
                }
            });
        }
        for number in 0..parts.len() {
            match decoded[number % decoders].recv() {
                Ok(Ok(calls)) => with(Ok(&calls)),
                Ok(Err(error)) => with(Err(error)),
                // Its thread is gone, which only a panic can do; the scope passes that on.
                Err(_) => return,
            }
        }
    });
}
