//! Recorded calls and switches as events, and what calls mean.
//!
//! A call is a `call` and a `call_end`. If its arguments were recorded it is also an `arguments`
//! when it begins and a `result` when it returns, and if the function is one of the C library's for
//! locks, `lock_wait`, `lock_acquired`, `lock_released` or `lock_given_up`.

use std::collections::HashMap;

use fettle_abi::locks::Function;
use fettle_requests::{Batch, Catalog, EventId, Strings};
use fettle_trace::{Moment, Moments, Trace, What};
use fettle_types::FunctionIndex;

use crate::error::Result;
use crate::given::{Given, GivenCalls};
use crate::locking::{Happened, LockEvent, Locks};

const CALL: &[&str] = &["pid", "tid", "function", "depth"];
const RESULT: &[&str] = &[
    "pid",
    "tid",
    "function",
    "argument0",
    "argument1",
    "argument2",
    "argument3",
    "argument4",
    "argument5",
    "value",
];
/// What a call is given is known when it begins.
const ARGUMENTS: &[&str] = RESULT.split_at(RESULT.len() - 1).0;
const OUT: &[&str] = &["tid", "cpu", "runnable"];
const IN: &[&str] = &["tid", "cpu"];
const LOCK: &[&str] = &["pid", "tid", "lock"];

/// An event that a program knows, and which value each of its declared fields is.
struct KnownEvent {
    event: EventId,
    places: Vec<usize>,
}

/// Calls and switches, in order of time.
pub(crate) struct Calls {
    moments: Moments,
    call: Option<KnownEvent>,
    call_end: Option<KnownEvent>,
    switch_out: Option<KnownEvent>,
    switch_in: Option<KnownEvent>,
    /// Codes of functions' names, by number.
    functions: Vec<u64>,
    /// Process and thread, by index.
    threads: Vec<(u64, u64)>,
    meaning: Option<Meaning>,
    values: Vec<u64>,
}

/// What arguments and results mean.
struct Meaning {
    arguments: Option<KnownEvent>,
    result: Option<KnownEvent>,
    wait: Option<KnownEvent>,
    given_up: Option<KnownEvent>,
    acquired: Option<KnownEvent>,
    released: Option<KnownEvent>,
    given: GivenCalls,
    /// Functions of locks, by number.
    locking: HashMap<FunctionIndex, &'static Function>,
    locks: Locks,
    happened: Vec<Happened>,
    /// By thread, what the calls were given that are open, outermost first.
    open: HashMap<u32, Vec<Option<Given>>>,
}

/// Which events a program wants.
struct Wishes<'a> {
    catalog: &'a Catalog,
    wanted: &'a dyn Fn(EventId) -> bool,
    problems: Vec<String>,
}

impl Wishes<'_> {
    /// The event of this name, whose fields may be those of `known`.
    fn find(&mut self, name: &str, known: &[&str]) -> Option<KnownEvent> {
        let event = self.catalog.find(name).filter(|event| (self.wanted)(*event))?;
        let mut places = Vec::new();
        for field in &self.catalog.get(event)?.fields {
            match known.iter().position(|name| *name == field.name) {
                Some(place) => places.push(place),
                None => {
                    self.problems.push(format!(
                        "event `{name}` is left out: the schema declares a field `{}`, and recorded \
                         calls have {}",
                        field.name,
                        known.join(", ")
                    ));
                    return None;
                }
            }
        }
        Some(KnownEvent { event, places })
    }
}

impl Calls {
    /// Those of `trace` that `wanted` lets, or `None` if there are none. What the trace's files of
    /// events have (`recorded`) is not reported again. What cannot be had goes to `problems`.
    pub(crate) fn open(
        trace: &Trace,
        catalog: &Catalog,
        wanted: &dyn Fn(EventId) -> bool,
        recorded: &dyn Fn(&str) -> bool,
        strings: &mut Strings,
        problems: &mut Vec<String>,
    ) -> Result<Option<Calls>> {
        let mut wishes = Wishes { catalog, wanted, problems: Vec::new() };
        let has_calls = trace.manifest().totals.records > 0 && !recorded("call");
        let call = wishes.find("call", CALL).filter(|_| has_calls);
        let call_end = wishes.find("call_end", CALL).filter(|_| has_calls);
        let has_switches = trace.manifest().switches && !recorded("switch_out");
        let switch_out = wishes.find("switch_out", OUT).filter(|_| has_switches);
        let switch_in = wishes.find("switch_in", IN).filter(|_| has_switches);
        let meaning = match has_calls && !trace.parameters()?.is_empty() {
            true => Meaning::open(trace, &mut wishes, recorded)?,
            false => None,
        };
        problems.append(&mut wishes.problems);
        let calls = call.is_some() || call_end.is_some() || meaning.is_some();
        let switches = switch_out.is_some() || switch_in.is_some();
        if !calls && !switches {
            return Ok(None);
        }
        let (moments, damaged) = trace.moments(calls, switches)?;
        problems.extend(damaged.iter().map(ToString::to_string));
        let nobody = u64::from(strings.code(""));
        let mut functions = Vec::new();
        for function in trace.functions()? {
            let name = function.demangled.as_ref().unwrap_or(&function.name);
            put(&mut functions, function.id.place(), u64::from(strings.code(name)), nobody);
        }
        let mut threads = Vec::new();
        for thread in trace.threads()? {
            put(
                &mut threads,
                thread.index as usize,
                (thread.pid.into(), thread.tid.into()),
                (0, 0),
            );
        }
        let values = Vec::new();
        let all = Calls {
            moments,
            call,
            call_end,
            switch_out,
            switch_in,
            functions,
            threads,
            meaning,
            values,
        };
        Ok(Some(all))
    }

    /// Whether switches of threads are reported.
    pub(crate) fn switches(&self) -> bool {
        self.switch_out.is_some() || self.switch_in.is_some()
    }

    /// When the next of them happens; [`u64::MAX`] if there are no more.
    pub(crate) fn next_ns(&self) -> u64 {
        self.moments.next_ns().unwrap_or(u64::MAX)
    }

    /// Adds the events of the next moment, if there is one.
    pub(crate) fn pull(&mut self, batch: &mut Batch) -> Result<()> {
        if let Some(moment) = self.moments.pull()? {
            self.push(moment, batch);
        }
        Ok(())
    }

    fn push(&mut self, moment: Moment, batch: &mut Batch) {
        let (pid, tid) = self.threads.get(moment.thread as usize).copied().unwrap_or((0, 0));
        let mut notify = |reported: &Option<KnownEvent>, values: &[u64]| {
            if let Some(reported) = reported {
                self.values.clear();
                self.values.extend(reported.places.iter().map(|place| values[*place]));
                batch.push(moment.time_ns, reported.event, &self.values);
            }
        };
        let name =
            |function: FunctionIndex| self.functions.get(function.place()).copied().unwrap_or(0);
        match moment.what {
            What::Call { function, depth } => {
                notify(&self.call, &[pid, tid, name(function), depth.into()]);
                if let Some(meaning) = &mut self.meaning {
                    meaning.begin(
                        &moment,
                        function,
                        depth,
                        (pid, tid, name(function)),
                        &mut notify,
                    );
                }
            }
            What::CallEnd { function, depth } => {
                if let Some(meaning) = &mut self.meaning {
                    meaning.end(&moment, function, depth, (pid, tid, name(function)), &mut notify);
                }
                notify(&self.call_end, &[pid, tid, name(function), depth.into()]);
            }
            What::Out { preempted } => notify(&self.switch_out, &[tid, 0, u64::from(preempted)]),
            What::In => notify(&self.switch_in, &[tid, 0]),
        }
    }
}

/// Process, thread, and the function's name.
type Who = (u64, u64, u64);
/// Notified of an event with these values.
type OnEvent<'a> = dyn FnMut(&Option<KnownEvent>, &[u64]) + 'a;

impl Meaning {
    fn open(
        trace: &Trace,
        wishes: &mut Wishes<'_>,
        recorded: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Meaning>> {
        let arguments = wishes.find("arguments", ARGUMENTS).filter(|_| !recorded("arguments"));
        let result = wishes.find("result", RESULT).filter(|_| !recorded("result"));
        let locks = !recorded("lock_acquired");
        let mut lock = |name| wishes.find(name, LOCK).filter(|_| locks);
        let (wait, given_up) = (lock("lock_wait"), lock("lock_given_up"));
        let (acquired, released) = (lock("lock_acquired"), lock("lock_released"));
        let of_locks =
            [&wait, &given_up, &acquired, &released].iter().any(|reported| reported.is_some());
        if arguments.is_none() && result.is_none() && !of_locks {
            return Ok(None);
        }
        let given = match GivenCalls::read(trace) {
            Ok(given) => given,
            // Without them there are the calls alone.
            Err(error) => {
                wishes.problems.push(error.to_string());
                return Ok(None);
            }
        };
        let locking = if of_locks { locking_functions(trace)? } else { HashMap::new() };
        Ok(Some(Meaning {
            arguments,
            result,
            wait,
            given_up,
            acquired,
            released,
            given,
            locking,
            locks: Locks::default(),
            happened: Vec::new(),
            open: HashMap::new(),
        }))
    }

    fn begin(
        &mut self,
        moment: &Moment,
        function: FunctionIndex,
        depth: u16,
        who: Who,
        notify: &mut OnEvent<'_>,
    ) {
        let given = self.given.take(moment.thread, function, moment.time_ns);
        let open = self.open.entry(moment.thread).or_default();
        open.resize(usize::from(depth), None);
        open.push(given);
        let Some(given) = given else { return };
        let (pid, tid, name) = who;
        let [a, b, c, d, e, f] = given.arguments;
        notify(&self.arguments, &[pid, tid, name, a, b, c, d, e, f]);
        if let Some(of) = self.locking.get(&function) {
            self.locks.begin(of, pid, tid, &given, &mut self.happened);
            self.report_locks(pid, notify);
        }
    }

    fn end(
        &mut self,
        moment: &Moment,
        function: FunctionIndex,
        depth: u16,
        who: Who,
        notify: &mut OnEvent<'_>,
    ) {
        let Some(open) = self.open.get_mut(&moment.thread) else { return };
        open.truncate(usize::from(depth) + 1);
        let given = if open.len() > usize::from(depth) { open.pop().flatten() } else { None };
        let Some(given) = given else { return };
        let (pid, tid, name) = who;
        if let Some(value) = given.result {
            let [a, b, c, d, e, f] = given.arguments;
            notify(&self.result, &[pid, tid, name, a, b, c, d, e, f, value]);
        }
        if let Some(of) = self.locking.get(&function) {
            self.locks.end(of, pid, tid, &given, &mut self.happened);
            self.report_locks(pid, notify);
        }
    }

    fn report_locks(&mut self, pid: u64, notify: &mut OnEvent<'_>) {
        for (event, tid, lock) in self.happened.drain(..) {
            let reported = match event {
                LockEvent::Wait => &self.wait,
                LockEvent::GivenUp => &self.given_up,
                LockEvent::Acquired => &self.acquired,
                LockEvent::Released => &self.released,
            };
            notify(reported, &[pid, tid, lock]);
        }
    }
}

/// The trace's functions whose arguments were recorded, and their names.
pub(crate) fn functions_with_arguments(trace: &Trace) -> Result<HashMap<FunctionIndex, String>> {
    let parameters = trace.parameters()?;
    if parameters.is_empty() {
        return Ok(HashMap::new());
    }
    let recorded: std::collections::HashSet<FunctionIndex> =
        parameters.iter().map(|p| p.function).collect();
    let functions = trace.functions()?.into_iter().filter(|f| recorded.contains(&f.id));
    Ok(functions.map(|f| (f.id, f.name)).collect())
}

/// Those of locks.
fn locking_functions(trace: &Trace) -> Result<HashMap<FunctionIndex, &'static Function>> {
    let functions = functions_with_arguments(trace)?;
    Ok(functions
        .iter()
        .filter_map(|(id, name)| Some((*id, fettle_abi::locks::named(name)?)))
        .collect())
}

/// Puts a value at a place, with `nothing` where nothing is.
fn put<T: Clone>(all: &mut Vec<T>, at: usize, value: T, nothing: T) {
    if at >= all.len() {
        all.resize(at + 1, nothing);
    }
    all[at] = value;
}
