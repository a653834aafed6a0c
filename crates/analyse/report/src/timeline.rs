//! A trace's calls in the order of time: entries and exits, as they happened.
//!
//! The file holds calls by their ends. Backwards, the stack of open calls tells where entries
//! belong: a call's entry comes right before everything that happened inside it. So each part is
//! walked backwards and its events given out forwards; the calls that are open at the end of a
//! part end in later ones, and a first pass from the last part to the first has noted them.

use fettle_trace::{Call, Part, Trace};
use fettle_types::FunctionIndex;

use crate::error::Result;
use crate::profile::for_each_part_backwards;

/// Something that happened in a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Entry or exit.
    pub kind: Kind,
    /// When, nanoseconds of trace time. Never less than the event before in the same thread.
    pub time_ns: u64,
    /// Function that was entered or left.
    pub function: FunctionIndex,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A function was entered.
    Entry,
    /// A function was left.
    Exit,
}

/// Receives a timeline.
pub trait Sink {
    /// Why it stops.
    type Error: From<crate::Error>;
    /// The events of another thread follow.
    fn thread(&mut self, thread: u32) -> std::result::Result<(), Self::Error>;
    /// Something happened. Within a thread entries and exits are nested.
    fn event(&mut self, event: &Event) -> std::result::Result<(), Self::Error>;
}

/// Which calls of a trace are reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// Calls shorter than this, in nanoseconds, are left out, with all they called.
    pub duration_ns_min: u64,
}

/// A call that is open, seen backwards: its end was passed, its start is to come.
#[derive(Clone, Copy, Debug)]
struct Open {
    start_ns: u64,
    function: FunctionIndex,
}

/// Tells a trace's calls to `sink`, thread after thread, each in order of time. Returns what
/// could not be read, one sentence each. Memory is bounded by one part and the stacks at the
/// parts' ends.
pub fn notify<S: Sink>(
    trace: &Trace,
    filter: Filter,
    sink: &mut S,
) -> std::result::Result<Vec<String>, S::Error> {
    let (ends, warnings) = ends_of_parts(trace, filter)?;
    let (parts, _) = trace.parts().map_err(crate::Error::from)?;
    let mut teller = Reporter { filter, thread: None, last_ns: 0, events: Vec::new() };
    let mut calls = Vec::new();
    let mut ends = ends.into_iter();
    for part in &parts {
        // What cannot be read now could not be read before, and was named.
        if trace.read_part(part, &mut calls).is_err() {
            continue;
        }
        calls.retain(|call| call.duration_ns >= filter.duration_ns_min);
        if calls.is_empty() {
            continue;
        }
        let end = ends.next().unwrap_or_default();
        teller.part(&calls, end, sink)?;
    }
    Ok(warnings)
}

/// For each part that has calls, in order: the calls open at its end.
fn ends_of_parts(trace: &Trace, filter: Filter) -> Result<(Vec<Vec<Open>>, Vec<String>)> {
    let mut ends = Vec::new();
    let mut thread = None;
    let mut open: Vec<Open> = Vec::new();
    let warnings = for_each_part_backwards(trace, |calls| {
        let mut first = true;
        let reported = calls.iter().rev().filter(|call| call.duration_ns >= filter.duration_ns_min);
        for call in reported {
            if thread != Some(call.thread) {
                thread = Some(call.thread);
                open.clear();
            }
            if std::mem::take(&mut first) {
                ends.push(open.clone());
            }
            open.truncate(usize::from(call.depth));
            open.push(Open { start_ns: call.start_ns, function: call.function });
        }
    })?;
    ends.reverse();
    Ok((ends, warnings))
}

struct Reporter {
    filter: Filter,
    thread: Option<u32>,
    last_ns: u64,
    /// Events of one run, last first.
    events: Vec<Event>,
}

impl Reporter {
    /// Tells one part, whose last thread has the calls `end` open at its end.
    fn part<S: Sink>(
        &mut self,
        calls: &[Call],
        end: Vec<Open>,
        sink: &mut S,
    ) -> std::result::Result<(), S::Error> {
        debug_assert!(calls.iter().all(|c| c.duration_ns >= self.filter.duration_ns_min));
        let mut end = Some(end);
        let mut runs = calls.chunk_by(|a, b| a.thread == b.thread).peekable();
        while let Some(run) = runs.next() {
            let Some(first) = run.first() else { continue };
            let continues = self.thread == Some(first.thread);
            if !continues {
                self.thread = Some(first.thread);
                self.last_ns = 0;
                sink.thread(first.thread)?;
            }
            let open = if runs.peek().is_none() { end.take() } else { None };
            self.run(run, open.unwrap_or_default(), continues);
            while let Some(mut event) = self.events.pop() {
                // Rounding never disturbs the order, damage may.
                event.time_ns = event.time_ns.max(self.last_ns);
                self.last_ns = event.time_ns;
                sink.event(&event)?;
            }
        }
        Ok(())
    }

    /// Collects the events of one thread's calls in one part, last first.
    fn run(&mut self, calls: &[Call], mut open: Vec<Open>, continues: bool) {
        let entry = |call: Open| Event {
            kind: Kind::Entry,
            time_ns: call.start_ns,
            function: call.function,
        };
        for call in calls.iter().rev() {
            let depth = usize::from(call.depth).min(open.len());
            self.events.extend(open.drain(depth..).rev().map(entry));
            let (time_ns, function) = (call.end_ns(), call.function);
            self.events.push(Event { kind: Kind::Exit, time_ns, function });
            open.push(Open { start_ns: call.start_ns, function });
        }
        // Calls still open here began in an earlier part of the thread, if it has one: the
        // pass before noted the same calls at that part's end.
        if !continues {
            self.events.extend(open.drain(..).rev().map(entry));
        }
    }
}

/// The number of rows of all parts; used to say how far an export is.
pub fn rows(parts: &[Part]) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.rows))
}
