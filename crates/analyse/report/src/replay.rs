//! What happened, line by line: entries and exits of all threads in the order of time.
//!
//! A call in which nothing else is shown is one line. So a line is written when it is known what comes
//! behind it, and, where short calls are left out, how long its call was: until then lines wait, no longer
//! than the shortest call that is shown takes.

use std::collections::VecDeque;
use std::io::Write;

use fettle_trace::{Trace, What};
use fettle_types::FunctionIndex;
use serde_json::json;

use crate::error::{Error, Result};
use crate::export::Cast;
use crate::hash::FastMap;
use crate::render::duration as text_of;

/// Which calls are shown, and how.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Only these threads, by the kernel's numbers; all if there is none.
    pub tids: Vec<u32>,
    /// Calls shorter than this, in nanoseconds, are left out, with all they called.
    pub duration_ns_min: u64,
    /// Calls deeper than this are left out; the outermost of a thread have the depth 1.
    pub depth_max: usize,
    /// Whether it is shown when threads were switched out, and in again.
    pub switches: bool,
    /// No more lines than this.
    pub lines_max: u64,
    /// Whether each line is a JSON object.
    pub json: bool,
    /// Whether names are written as their authors wrote them.
    pub demangle: bool,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        ReplayOptions {
            tids: Vec::new(),
            duration_ns_min: 0,
            depth_max: usize::MAX,
            switches: false,
            lines_max: u64::MAX,
            json: false,
            demangle: true,
        }
    }
}

/// Writes a trace's calls in the order of time. Returns what could not be read, one sentence each.
///
/// # Errors
///
/// [`Error::NoRecords`] if the trace has no single calls, [`Error::Output`] if `out` fails, a closed pipe
/// included.
pub fn replay(trace: &Trace, options: &ReplayOptions, out: &mut dyn Write) -> Result<Vec<String>> {
    let manifest = trace.manifest();
    if manifest.totals.records == 0 {
        return Err(Error::NoRecords { what: "a replay", mode: manifest.probe_mode.name() });
    }
    let mut warnings = trace.warnings().to_vec();
    let cast = Cast::read(trace, options.demangle, &mut warnings);
    let (mut moments, damaged) = trace.moments(true, options.switches)?;
    warnings.extend(damaged.iter().map(ToString::to_string));
    if !options.json {
        writeln!(out, "{:>14}  {:>9}  {:>7}  FUNCTION", "TIME", "DURATION", "TID")?;
    }
    let mut replay = Replay {
        options,
        cast,
        out,
        threads: FastMap::default(),
        waiting: VecDeque::new(),
        first: 0,
        lines: 0,
    };
    while replay.lines < options.lines_max {
        match moments.pull() {
            Ok(Some(moment)) => replay.take(moment.time_ns, moment.thread, moment.what)?,
            Ok(None) => break,
            Err(error) => warnings.push(error.to_string()),
        }
    }
    // What is open now was so until the end.
    replay.settle(u64::MAX);
    replay.write(true)?;
    replay.out.flush()?;
    Ok(warnings)
}

/// A call that is open.
struct Open {
    function: FunctionIndex,
    start_ns: u64,
    /// Number of its entry's line.
    line: u64,
}

/// A thread as far as it was replayed.
#[derive(Default)]
struct Thread {
    tid: u32,
    /// It is not among those that were asked for.
    hidden: bool,
    open: Vec<Open>,
}

/// Whether a line is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    NotYetKnown,
    Yes,
    No,
}

/// A line that waits.
#[derive(Clone, Copy)]
struct Line {
    time_ns: u64,
    thread: u32,
    shown: Shown,
    what: Replayed,
}

#[derive(Clone, Copy)]
enum Replayed {
    Entry {
        function: FunctionIndex,
        depth: usize,
    },
    /// With the number of the entry's line.
    Exit {
        function: FunctionIndex,
        depth: usize,
        entry: u64,
        duration_ns: u64,
    },
    Out {
        depth: usize,
        preempted: bool,
    },
    In {
        depth: usize,
    },
}

struct Replay<'a> {
    options: &'a ReplayOptions,
    cast: Cast,
    out: &'a mut dyn Write,
    threads: FastMap<u32, Thread>,
    /// Lines in the order of time; `first` is the first one's number.
    waiting: VecDeque<Line>,
    first: u64,
    lines: u64,
}

impl Replay<'_> {
    fn take(&mut self, time_ns: u64, index: u32, what: What) -> Result<()> {
        let (cast, options) = (&self.cast, self.options);
        let thread = self.threads.entry(index).or_insert_with(|| {
            let tid = cast.thread(index).tid;
            let hidden = !options.tids.is_empty() && !options.tids.contains(&tid);
            Thread { tid, hidden, open: Vec::new() }
        });
        if thread.hidden {
            return Ok(());
        }
        let depth = thread.open.len();
        let number = self.first + self.waiting.len() as u64;
        match what {
            What::Call { function, .. } => {
                thread.open.push(Open { function, start_ns: time_ns, line: number });
                if depth < options.depth_max {
                    let what = Replayed::Entry { function, depth };
                    self.wait(Line { time_ns, thread: index, shown: Shown::NotYetKnown, what });
                }
            }
            What::CallEnd { function, .. } => {
                // Where coroutines are switched, another call may be on top.
                let Some(at) = thread.open.iter().rposition(|open| open.function == function)
                else {
                    return Ok(());
                };
                let open = thread.open.remove(at);
                if at < options.depth_max {
                    let duration_ns = time_ns.saturating_sub(open.start_ns);
                    let long = duration_ns >= options.duration_ns_min;
                    self.decide(open.line, if long { Shown::Yes } else { Shown::No });
                    if long {
                        let what =
                            Replayed::Exit { function, depth: at, entry: open.line, duration_ns };
                        self.wait(Line { time_ns, thread: index, shown: Shown::Yes, what });
                    }
                }
            }
            What::Out { preempted } => {
                let what = Replayed::Out { depth: depth.min(options.depth_max), preempted };
                self.wait(Line { time_ns, thread: index, shown: Shown::Yes, what });
            }
            What::In => {
                let what = Replayed::In { depth: depth.min(options.depth_max) };
                self.wait(Line { time_ns, thread: index, shown: Shown::Yes, what });
            }
        }
        self.settle(time_ns);
        self.write(false)
    }

    fn wait(&mut self, line: Line) {
        self.waiting.push_back(line);
    }

    fn decide(&mut self, number: u64, shown: Shown) {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(line) = at.and_then(|at| self.waiting.get_mut(at))
            && line.shown == Shown::NotYetKnown
        {
            line.shown = shown;
        }
        // Short calls end right behind their entries, mostly.
        while self.waiting.back().is_some_and(|line| line.shown == Shown::No) {
            self.waiting.pop_back();
        }
    }

    /// Calls that are open for long enough now are shown, however they end.
    fn settle(&mut self, now_ns: u64) {
        for line in &mut self.waiting {
            if now_ns.saturating_sub(line.time_ns) < self.options.duration_ns_min {
                break;
            }
            if line.shown == Shown::NotYetKnown {
                line.shown = Shown::Yes;
            }
        }
    }

    /// Writes the lines of which all is known; `all` if nothing comes behind them.
    fn write(&mut self, all: bool) -> Result<()> {
        while let Some(&line) = self.waiting.front() {
            match line.shown {
                Shown::Yes => {}
                Shown::NotYetKnown => break,
                Shown::No => {
                    self.pop();
                    continue;
                }
            }
            let next = self.waiting.iter().skip(1).find(|line| line.shown != Shown::No).copied();
            let mut ends = None;
            if let Replayed::Entry { .. } = line.what {
                match next {
                    // Its exit may come, or what is not shown in the end, and then its exit.
                    None if !all => break,
                    Some(Line { shown: Shown::NotYetKnown, .. }) => break,
                    Some(Line { what: Replayed::Exit { entry, duration_ns, .. }, .. })
                        if entry == self.first =>
                    {
                        ends = Some(duration_ns);
                    }
                    _ => {}
                }
            }
            self.line(line, ends)?;
            self.pop();
            // An exit that is on the same line.
            while ends.is_some() {
                let gone = self.pop();
                if gone.is_none_or(|line| matches!(line.what, Replayed::Exit { .. })) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn pop(&mut self) -> Option<Line> {
        self.first += 1;
        self.waiting.pop_front()
    }

    /// Writes a line; `ends` is how long its call took if that ends on it.
    fn line(&mut self, line: Line, ends: Option<u64>) -> Result<()> {
        let Line { time_ns, thread, what, .. } = line;
        if self.lines >= self.options.lines_max {
            return Ok(());
        }
        self.lines += 1;
        if self.options.json {
            return self.json_line(line, ends);
        }
        let name = |function| self.cast.names.shown(function);
        let call = |function| {
            let name = name(function);
            // Those of C++ have their parameters.
            if name.ends_with(')') { name } else { format!("{name}()") }
        };
        let (depth, duration_ns, text) = match (what, ends) {
            (Replayed::Entry { function, depth }, Some(ns)) => {
                (depth, Some(ns), format!("{};", call(function)))
            }
            (Replayed::Entry { function, depth }, None) => {
                (depth, None, format!("{} {{", call(function)))
            }
            (Replayed::Exit { function, depth, duration_ns, .. }, _) => {
                (depth, Some(duration_ns), format!("}} /* {} */", name(function)))
            }
            (Replayed::Out { depth, preempted: true }, _) => {
                (depth, None, "/* preempted */".into())
            }
            (Replayed::Out { depth, preempted: false }, _) => (depth, None, "/* waits */".into()),
            (Replayed::In { depth }, _) => (depth, None, "/* runs again */".into()),
        };
        let duration = duration_ns.map(text_of).unwrap_or_default();
        let (micros, nanos) = (time_ns / 1000, time_ns % 1000);
        let tid = self.threads.get(&thread).map_or(0, |thread| thread.tid);
        let indent = 2 * depth.min(INDENT_MAX);
        writeln!(
            self.out,
            "{micros:>7}.{nanos:03} µs  {duration:>9}  {tid:>7}  {:indent$}{text}",
            ""
        )?;
        Ok(())
    }

    fn json_line(&mut self, line: Line, ends: Option<u64>) -> Result<()> {
        let function = |id| self.cast.names.shown(id);
        let (what, name, depth, duration_ns) = match line.what {
            Replayed::Entry { function: id, depth } if ends.is_some() => {
                ("call", Some(function(id)), depth, ends)
            }
            Replayed::Entry { function: id, depth } => ("entry", Some(function(id)), depth, None),
            Replayed::Exit { function: id, depth, duration_ns, .. } => {
                ("exit", Some(function(id)), depth, Some(duration_ns))
            }
            Replayed::Out { depth, preempted: true } => ("preempted", None, depth, None),
            Replayed::Out { depth, preempted: false } => ("waits", None, depth, None),
            Replayed::In { depth } => ("runs", None, depth, None),
        };
        let tid = self.threads.get(&line.thread).map_or(0, |thread| thread.tid);
        let value = json!({
            "time_ns": line.time_ns, "tid": tid, "what": what, "function": name, "depth": depth,
            "duration_ns": duration_ns,
        });
        writeln!(self.out, "{value}")?;
        Ok(())
    }
}

/// Deeper calls are no further to the right: lines would get as long as a recursion is deep.
const INDENT_MAX: usize = 100;
