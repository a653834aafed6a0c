//! Calls and switches in order of time.
//!
//! Calls lie thread after thread in order of their ends, so that a program's `main` is the last row of
//! its thread and the first to begin. To give begins and ends in order of time, in little memory, a
//! thread's rows are cut into *windows*, runs of consecutive rows. A call that ends in a window began in
//! it, or before it: the latter were open when the window began, so they are few, no more than the stack
//! was deep. One pass over all rows finds them ([`Plan`]); the second goes forward a window at a time,
//! with the windows' own calls and the few that begin in them and end later.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::path::PathBuf;

use fettle_types::FunctionIndex;

use crate::calls::Call;
use crate::column::open_file;
use crate::error::{Error, Result};
use crate::read::Trace;
use crate::tables::Switch;
use crate::values::Values;

/// Rows of a window.
const WINDOW: usize = 1 << 14;

/// Something that happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, nanoseconds of trace time.
    pub time_ns: u64,
    /// [`crate::Thread::index`].
    pub thread: u32,
    /// What.
    pub what: What,
}

/// What happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A call began.
    Call {
        /// [`crate::Function::id`].
        function: FunctionIndex,
        /// [`Call::depth`].
        depth: u16,
    },
    /// A call ended.
    CallEnd {
        /// [`crate::Function::id`].
        function: FunctionIndex,
        /// [`Call::depth`].
        depth: u16,
    },
    /// The thread was switched out.
    Out {
        /// [`Switch::preempted`].
        preempted: bool,
    },
    /// The thread runs again.
    In,
}

impl Trace {
    /// Calls, switches, or both, in order of time; damaged files are left out and named in the
    /// second list. A call that was still open when the recording ended has no end. Reads all of
    /// the calls once before it returns.
    pub fn moments(&self, calls: bool, switches: bool) -> Result<(Moments, Vec<Error>)> {
        let mut moments = Moments { sources: Vec::new(), heads: BinaryHeap::new() };
        let mut damaged = Vec::new();
        if calls {
            for (thread, plan) in plan_calls(self, &mut damaged)? {
                moments.add(plan.first_ns, Source::Calls(ThreadCalls::new(thread, plan)));
            }
        }
        if switches && self.manifest().switches {
            for (thread, first_ns, segments) in plan_switches(self)? {
                let rows = SegmentReader::new(segments, &["off_ns", "on_ns", "preempted"]);
                let source = ThreadSwitches { thread, rows, next: VecDeque::new() };
                moments.add(first_ns, Source::Switches(source));
            }
        }
        Ok((moments, damaged))
    }
}

/// Rows of one thread that lie together in a row group.
#[derive(Clone, Debug)]
struct Segment {
    path: PathBuf,
    group: usize,
    first: usize,
    rows: usize,
}

/// What is known of a thread's calls before they are read.
#[derive(Default)]
struct Plan {
    /// When the first begins.
    first_ns: u64,
    segments: VecDeque<Segment>,
    /// For each window, how many rows it has, and the end of its last.
    windows: VecDeque<(usize, u64)>,
    /// Calls that begin in an earlier window than the one that they end in.
    early: Vec<Call>,
}

/// Reads all calls once; plans by thread.
fn plan_calls(trace: &Trace, damaged: &mut Vec<Error>) -> Result<BTreeMap<u32, Plan>> {
    let (parts, broken) = trace.parts()?;
    damaged.extend(broken);
    let mut plans: BTreeMap<u32, Plan> = BTreeMap::new();
    let mut calls = Vec::new();
    for part in parts {
        if let Err(error) = trace.read_part(&part, &mut calls) {
            damaged.push(error);
            continue;
        }
        let mut first = 0;
        for run in calls.chunk_by(|a, b| a.thread == b.thread) {
            let plan = plans
                .entry(run[0].thread)
                .or_insert_with(|| Plan { first_ns: u64::MAX, ..Plan::default() });
            let (path, group) = part.place();
            let path = path.to_owned();
            plan.segments.push_back(Segment { path, group, first, rows: run.len() });
            for window in run.chunks(WINDOW) {
                plan.add(window);
            }
            first += run.len();
        }
    }
    for plan in plans.values_mut() {
        plan.early.sort_by_key(order);
    }
    Ok(plans)
}

impl Plan {
    fn add(&mut self, window: &[Call]) {
        let since_ns = self.windows.back().map_or(0, |(_, until_ns)| *until_ns);
        self.early.extend(window.iter().filter(|call| call.start_ns < since_ns));
        let begins = window.iter().map(|call| call.start_ns).min();
        self.first_ns = self.first_ns.min(begins.unwrap_or(u64::MAX));
        let ends = window.iter().map(Call::end_ns).max();
        self.windows.push_back((window.len(), ends.unwrap_or(since_ns).max(since_ns)));
    }
}

/// The order in which calls begin: what began and ended within a tick of the clock comes first of
/// those of one depth.
fn order(call: &Call) -> (u64, u16, u64) {
    (call.start_ns, call.depth, call.duration_ns)
}

/// Threads with the time of their first switch and where their switches lie.
fn plan_switches(trace: &Trace) -> Result<Vec<(u32, u64, VecDeque<Segment>)>> {
    let path = trace.path().join(<Switch as crate::column::Table>::FILE);
    let mut threads: BTreeMap<u32, (u64, VecDeque<Segment>)> = BTreeMap::new();
    let mut group = 0;
    trace.for_each_switch(|rows| {
        let mut first = 0;
        for run in rows.chunk_by(|a, b| a.thread == b.thread) {
            let of = threads.entry(run[0].thread).or_default();
            if of.1.is_empty() {
                of.0 = run[0].off_ns;
            }
            of.1.push_back(Segment { path: path.clone(), group, first, rows: run.len() });
            first += run.len();
        }
        group += 1;
    })?;
    Ok(threads.into_iter().map(|(thread, (ns, segments))| (thread, ns, segments)).collect())
}

/// Reads segment after segment.
struct SegmentReader {
    segments: VecDeque<Segment>,
    names: &'static [&'static str],
    open: Option<Values>,
    columns: Vec<Vec<u64>>,
}

impl SegmentReader {
    fn new(segments: VecDeque<Segment>, names: &'static [&'static str]) -> SegmentReader {
        SegmentReader { segments, names, open: None, columns: vec![Vec::new(); names.len()] }
    }

    /// Reads the next rows into `columns`, at most so many; `false` if there are none.
    fn read(&mut self, rows: usize) -> Result<bool> {
        let Some(segment) = self.segments.front_mut() else { return Ok(false) };
        let reader = match &mut self.open {
            Some(reader) => reader,
            none => {
                let file = open_file(&segment.path)?;
                let mut reader = Values::open(&segment.path, &file, segment.group, self.names)?;
                reader.skip(&segment.path, segment.first)?;
                none.insert(reader)
            }
        };
        let rows = rows.min(segment.rows);
        reader.read(&segment.path, rows, &mut self.columns)?;
        segment.rows -= rows;
        if segment.rows == 0 {
            self.segments.pop_front();
            self.open = None;
        }
        Ok(true)
    }
}

/// Begins and ends of one thread's calls.
struct ThreadCalls {
    thread: u32,
    rows: SegmentReader,
    windows: VecDeque<(usize, u64)>,
    early: VecDeque<Call>,
    /// Calls that begin in the window, in order.
    begins: VecDeque<Call>,
    /// Until when the window's calls end.
    until_ns: u64,
    /// Calls that began and have not ended, outermost first.
    open: Vec<Call>,
}

impl ThreadCalls {
    fn new(thread: u32, plan: Plan) -> ThreadCalls {
        let names = &["function", "start_ns", "duration_ns", "depth", "flags"];
        ThreadCalls {
            thread,
            rows: SegmentReader::new(plan.segments, names),
            windows: plan.windows,
            early: plan.early.into(),
            begins: VecDeque::new(),
            until_ns: 0,
            open: Vec::new(),
        }
    }

    /// Takes the next window; `false` if there is none.
    fn advance(&mut self) -> Result<bool> {
        let Some((rows, until_ns)) = self.windows.pop_front() else { return Ok(false) };
        let since_ns = self.until_ns;
        self.until_ns = until_ns;
        let last = self.windows.is_empty();
        while let Some(call) = self.early.pop_front_if(|call| call.start_ns < until_ns || last) {
            self.begins.push_back(call);
        }
        self.rows.read(rows)?;
        let [functions, starts, durations, depths, flags] = &self.rows.columns[..] else {
            return Ok(false);
        };
        for row in 0..starts.len() {
            if starts[row] < since_ns {
                continue;
            }
            self.begins.push_back(Call {
                thread: self.thread,
                function: FunctionIndex(functions[row] as u32),
                start_ns: starts[row],
                duration_ns: durations[row],
                depth: depths[row] as u16,
                flags: flags[row] as u8,
                ..Call::default()
            });
        }
        self.begins.make_contiguous().sort_by_key(order);
        Ok(true)
    }

    /// What happens next: the call on top ends, or one of those that begin does.
    fn peek(&mut self) -> Result<Option<(u64, Next)>> {
        loop {
            let next = self.begins.front();
            match (self.open.last(), next) {
                (None, Some(next)) => return Ok(Some((next.start_ns, Next::Begins(0)))),
                (Some(top), Some(next)) => {
                    if let Some(place) = callee(top, &self.begins) {
                        return Ok(Some((next.start_ns, Next::Begins(place))));
                    }
                    return Ok(Some((top.end_ns(), Next::Ends)));
                }
                // Calls of the next window may begin before this one ends.
                (Some(top), None) if top.end_ns() <= self.until_ns || self.windows.is_empty() => {
                    return Ok(Some((top.end_ns(), Next::Ends)));
                }
                _ => {
                    if !self.advance()? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn next(&mut self) -> Result<Option<Moment>> {
        let Some((time_ns, next)) = self.peek()? else { return Ok(None) };
        let thread = self.thread;
        if let Next::Begins(place) = next {
            let Some(call) = self.begins.remove(place) else { return Ok(None) };
            self.open.push(call);
            let what = What::Call { function: call.function, depth: call.depth };
            return Ok(Some(Moment { time_ns, thread, what }));
        }
        let Some(call) = self.open.pop() else { return Ok(None) };
        if call.flags & Call::OPEN != 0 {
            return Ok(None);
        }
        let what = What::CallEnd { function: call.function, depth: call.depth };
        Ok(Some(Moment { time_ns, thread, what }))
    }
}

/// What happens to a thread next.
#[derive(Clone, Copy)]
enum Next {
    /// The call at this place of those that begin.
    Begins(usize),
    /// The call on top of those that are open.
    Ends,
}

/// Which of the calls that begin next is made by the open call `top`. Of those that begin at one
/// time, some may be of callers that are not open yet: a clock's tick is longer than some calls.
fn callee(top: &Call, begins: &VecDeque<Call>) -> Option<usize> {
    let next = begins.front()?;
    if top.end_ns() < next.start_ns {
        return None;
    }
    let together = begins.iter().take_while(|call| call.start_ns == next.start_ns);
    let made = |call: &Call| {
        u32::from(call.depth) == u32::from(top.depth) + 1 && call.end_ns() <= top.end_ns()
    };
    let place = together.enumerate().find(|(_, call)| made(call)).map(|(place, _)| place);
    // Depths are cut off somewhere, and files may hold anything.
    place.or((next.depth > top.depth).then_some(0))
}

/// Switches of one thread.
struct ThreadSwitches {
    thread: u32,
    rows: SegmentReader,
    next: VecDeque<(u64, What)>,
}

impl ThreadSwitches {
    fn peek(&mut self) -> Result<Option<u64>> {
        while self.next.is_empty() {
            if !self.rows.read(WINDOW)? {
                return Ok(None);
            }
            let [off, on, preempted] = &self.rows.columns[..] else { return Ok(None) };
            for row in 0..off.len() {
                let preempted = preempted[row] != 0;
                self.next.push_back((off[row], What::Out { preempted }));
                self.next.push_back((on[row], What::In));
            }
        }
        Ok(self.next.front().map(|(time_ns, _)| *time_ns))
    }
}

enum Source {
    Calls(ThreadCalls),
    Switches(ThreadSwitches),
}

impl Source {
    fn peek(&mut self) -> Result<Option<u64>> {
        match self {
            Source::Calls(calls) => Ok(calls.peek()?.map(|(time_ns, _)| time_ns)),
            Source::Switches(switches) => switches.peek(),
        }
    }

    fn next(&mut self) -> Result<Option<Moment>> {
        match self {
            Source::Calls(calls) => calls.next(),
            Source::Switches(switches) => {
                let thread = switches.thread;
                let next = switches.next.pop_front();
                Ok(next.map(|(time_ns, what)| Moment { time_ns, thread, what }))
            }
        }
    }
}

/// Calls and switches of a trace in order of time.
///
/// What is in memory is a window of each thread that exists at the time.
pub struct Moments {
    sources: Vec<Source>,
    /// When each source goes on, or earlier.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
}

impl fmt::Debug for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Moments {{ sources: {} }}", self.sources.len())
    }
}

impl Moments {
    fn add(&mut self, first_ns: u64, source: Source) {
        self.heads.push(Reverse((first_ns, self.sources.len())));
        self.sources.push(source);
    }

    /// The time of the next entry or exit, or a time before it.
    pub fn next_ns(&self) -> Option<u64> {
        self.heads.peek().map(|Reverse((ns, _))| *ns)
    }

    /// The next entry or exit; none at the end. After an error, its thread is given up, and those
    /// of the others can still be read.
    pub fn pull(&mut self) -> Result<Option<Moment>> {
        while let Some(Reverse((claimed_ns, at))) = self.heads.pop() {
            let source = &mut self.sources[at];
            let Some(now_ns) = source.peek()? else { continue };
            if now_ns > claimed_ns {
                self.heads.push(Reverse((now_ns, at)));
                continue;
            }
            let moment = source.next()?;
            if let Some(next_ns) = source.peek()? {
                self.heads.push(Reverse((next_ns, at)));
            }
            if moment.is_some() {
                return Ok(moment);
            }
        }
        Ok(None)
    }
}
