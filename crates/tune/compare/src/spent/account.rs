//! Where the time of a program's run goes: at each moment, what the program is doing as it sees that itself,
//! and who runs for it on this machine. Moments add up to the run.
//!
//! The threads that the program's code runs in are known by one of them, which begins the run: they descend
//! from it, or, where a tracer serves their calls (User-Mode Linux, gVisor), they are what is traced. Such a
//! thread never enters the kernel with its calls: it is stopped at the entry, and goes on once it was served.
//! Whatever call it does enter, its tracer has made it do.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Serialize, Serializer};

use super::records::{Cost, Records};

/// Requests to `ptrace` by which a thread goes on until it is about to enter the kernel with a call, which the
/// tracer then serves (`PTRACE_SYSEMU`, `PTRACE_SYSEMU_SINGLESTEP`).
const SERVE_CALLS: [u32; 2] = [31, 32];
/// Those by which it goes on for the tracer's own ends, or enters its call (`PTRACE_CONT`, `PTRACE_SINGLESTEP`,
/// `PTRACE_SYSCALL`).
const GO_ON: [u32; 3] = [7, 9, 24];

/// `wait4`, which our program in the system makes itself to wait for the user's.
const WAIT4: u32 = 61;

/// Something that the kernel has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub(super) time_ns: u64,
    pub(super) cpu: u32,
    /// The thread that ran.
    pub(super) task: u32,
    /// Its process.
    pub(super) process: u32,
    pub(super) what: What,
}

/// What was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A processor goes over to another thread, if that is observed.
    Switch { next: Option<u32>, out: Option<Out> },
    /// A system call begins.
    Begin(u32),
    /// It is `ptrace`, which is asked for that.
    Asked(u32),
    /// It ends.
    End,
    /// A thread is made.
    Fork { task: u32, process: u32 },
    /// The thread ends.
    Gone,
    /// A thread is woken.
    Woken(u32),
}

/// How an observed thread was switched out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Out {
    /// It could go on.
    pub(super) ready: bool,
    /// The system call that it is in, or at the entry of.
    pub(super) call: Option<u32>,
}

/// The system's processes before a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    /// By number: its parent, and the process that traces it.
    pub(super) processes: HashMap<u32, (u32, Option<u32>)>,
    /// Processes by thread.
    pub(super) threads: HashMap<u32, u32>,
}

/// What the program does, as it sees that itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doing {
    /// It runs its own code.
    Code,
    /// It is stopped without a call: memory that is not there yet, a signal.
    Fault,
    /// It is in a system call, by its number.
    Call(u32),
}

impl Doing {
    /// In words: a call by its name.
    pub fn name(self) -> String {
        match self {
            Doing::Code => "own code".to_owned(),
            Doing::Fault => "faults and signals".to_owned(),
            Doing::Call(number) => call_name(number),
        }
    }
}

impl Serialize for Doing {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.name())
    }
}

/// The name of a system call.
pub(super) fn call_name(number: u32) -> String {
    let name = fettle_import::name_of_call(number.into());
    name.map_or_else(|| format!("call {number}"), str::to_owned)
}

/// Who runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// Threads of the program.
    Program,
    /// Those and the system's.
    Both,
    /// Threads of the system.
    System,
    /// None, though one could: other programs have the processors.
    Ready,
    /// None: all wait.
    Blocked,
}

/// System calls of this kernel that the system makes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct OfHost {
    pub(super) count: f64,
    /// While a thread runs in it.
    pub(super) running_ns: f64,
    /// While that is all that goes on.
    pub(super) alone_ns: f64,
}

/// Where a run's time went.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Spent {
    pub(super) time: BTreeMap<(Doing, Who), f64>,
    /// Records that were written meanwhile.
    pub(super) records: BTreeMap<(Doing, Who), Records>,
    /// Calls of the program, by number.
    pub(super) calls: BTreeMap<u32, f64>,
    /// Calls of this kernel that the system made, by number.
    pub(super) host: BTreeMap<u32, OfHost>,
    /// Whether the system serves the program's calls, rather than this kernel.
    pub(super) serves: bool,
}

impl Spent {
    /// All of the time.
    pub(super) fn total(&self) -> f64 {
        self.time.values().sum()
    }

    /// The time of each step without what observing took. Where a step has more records than time, the rest is
    /// taken from the program's other steps: a record that ends one step delays the next.
    pub(super) fn without(&self, cost: Cost) -> BTreeMap<(Doing, Who), f64> {
        let mut left = BTreeMap::new();
        let mut over = 0.0;
        for (step, ns) in &self.time {
            let taken = cost.of(self.records.get(step).copied().unwrap_or_default());
            over += (taken - ns).max(0.0);
            left.insert(*step, (ns - taken).max(0.0));
        }
        let all: f64 = left.values().sum();
        let share = if all > 0.0 { (1.0 - over / all).max(0.0) } else { 1.0 };
        left.values_mut().for_each(|ns| *ns *= share);
        left
    }
}

/// How many records of each kind those entries were.
pub(super) fn records(entries: &[Entry]) -> Records {
    let mut all = Records::default();
    for kind in entries.iter().filter_map(|entry| kind_of(&entry.what)) {
        all[kind] += 1.0;
    }
    all
}

/// Which kind of record it was; what goes with another one was none.
fn kind_of(what: &What) -> Option<usize> {
    match what {
        What::Begin(_) | What::End => Some(0),
        What::Asked(_) => None,
        _ => Some(1),
    }
}

/// What it means that a thread is switched out though it could not go on by itself, and in no call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Halt {
    /// It was stopped after a call that it did enter.
    after_call: bool,
    /// It enters the call that it was stopped for.
    enters: bool,
    /// It goes on to a call that it enters.
    leads: bool,
}

#[derive(Debug)]
struct Thread {
    process: u32,
    doing: Doing,
    /// In a call of this kernel.
    entered: Option<u32>,
    /// In `ptrace`, by which another thread is to go on in that way.
    asked: Option<u32>,
    /// How its tracer has let it go on, since it has stopped last.
    resumed: Option<u32>,
    keeps: bool,
    gone: bool,
}

struct State {
    threads: HashMap<u32, Thread>,
    running: HashMap<u32, u32>,
    ready: HashSet<u32>,
    /// The program's processes.
    program: HashSet<u32>,
    /// New children of this process are the program's.
    maker: Option<u32>,
    /// The program's threads that do not run, in the order in which they stopped.
    stopped: Vec<u32>,
    serves: bool,
    spent: Spent,
}

/// Divides the time from `begin_ns`, when our thread ran on the processor `from`, to `end_ns`. Entries are in
/// order of time. `None` if that thread is not known.
pub(super) fn account(
    entries: &[Entry],
    before: &Before,
    from: u32,
    [begin_ns, end_ns]: [f64; 2],
) -> Option<Spent> {
    let begun = entries.partition_point(|entry| (entry.time_ns as f64) <= begin_ns);
    let is_switch = |entry: &&Entry| entry.cpu == from && matches!(entry.what, What::Switch { .. });
    let last = entries[..begun].iter().rev().find(is_switch)?;
    let What::Switch { next: Some(own), .. } = last.what else { return None };
    // A system may have started the thread only now.
    let started = || entries.iter().find(|entry| entry.task == own).map(|entry| entry.process);
    let own_process = before.threads.get(&own).copied().or_else(started)?;
    before.processes.get(&own_process)?;
    let inside = &entries[begun..];
    let is_wait = |entry: &Entry| entry.task == own && entry.what == What::Begin(WAIT4);
    let serves = !inside.iter().any(is_wait);
    let mut state = State::new(before, own_process, serves);
    let halts = halts(entries);
    let mut at = begin_ns;
    for (number, (entry, halt)) in entries.iter().zip(&halts).enumerate() {
        if number >= begun {
            let time = (entry.time_ns as f64).clamp(at, end_ns);
            state.pass(time - at);
            at = time;
            if entry.time_ns as f64 >= end_ns {
                break;
            }
            state.count(entry);
        }
        state.take(entry, *halt);
    }
    state.pass(end_ns - at);
    state.spent.serves = serves;
    Some(state.spent)
}

/// What each switch of a thread means, by what the thread does before and after.
fn halts(entries: &[Entry]) -> Vec<Halt> {
    let mut halts = vec![Halt::default(); entries.len()];
    // What each thread did last, of its own.
    let mut last: HashMap<u32, usize> = HashMap::new();
    for (number, entry) in entries.iter().enumerate() {
        let before = last.get(&entry.task).copied();
        match entry.what {
            What::Switch { out: Some(Out { ready: false, .. }), .. } => {
                let after_call = before.is_some_and(|at| entries[at].what == What::End);
                halts[number].after_call = after_call;
            }
            What::Begin(call) => {
                if let Some(before) = before
                    && let What::Switch { out: Some(out), .. } = entries[before].what
                {
                    halts[before].enters = out.call == Some(call);
                    halts[before].leads = true;
                }
            }
            What::End => {}
            _ => continue,
        }
        last.insert(entry.task, number);
    }
    // A tracer stops its thread at the entry of a call that it has it make.
    let mut enters: HashMap<u32, bool> = HashMap::new();
    for (number, entry) in entries.iter().enumerate().rev() {
        match entry.what {
            What::Switch { out: Some(Out { ready: false, .. }), .. } => {
                halts[number].leads |= enters.get(&entry.task).copied().unwrap_or(false);
                enters.insert(entry.task, halts[number].enters);
            }
            What::Begin(_) | What::End => {
                enters.insert(entry.task, false);
            }
            _ => {}
        }
    }
    halts
}

impl State {
    fn new(before: &Before, own_process: u32, serves: bool) -> State {
        let mut program = HashSet::from([own_process]);
        let own = before.processes.get(&own_process).copied();
        let is_traced =
            |process: &u32| before.processes.get(process).is_some_and(|p| p.1.is_some());
        let maker = own.filter(|(_, tracer)| serves && tracer.is_some()).map(|(parent, _)| parent);
        if maker.is_some() {
            program.extend(before.processes.keys().copied().filter(is_traced));
        }
        let threads = before.threads.iter().map(|(task, process)| (*task, Thread::new(*process)));
        State {
            threads: threads.collect(),
            running: HashMap::new(),
            ready: HashSet::new(),
            program,
            maker,
            stopped: Vec::new(),
            serves,
            spent: Spent::default(),
        }
    }

    fn is_programs(&self, task: u32) -> bool {
        self.threads.get(&task).is_some_and(|thread| self.program.contains(&thread.process))
    }

    /// What goes on now: what the program does, who runs, and which of those are the system's.
    fn now(&self) -> (Vec<Doing>, Who, Vec<u32>) {
        let (own, others): (Vec<u32>, Vec<u32>) =
            self.running.values().copied().partition(|task| self.is_programs(*task));
        let who = match (own.is_empty(), others.is_empty()) {
            (false, true) => Who::Program,
            (false, false) => Who::Both,
            (true, false) => Who::System,
            (true, true) if self.ready.is_empty() => Who::Blocked,
            (true, true) => Who::Ready,
        };
        let doing = |task: &u32| self.threads.get(task).map_or(Doing::Code, |thread| thread.doing);
        let activities = match own.is_empty() {
            // What was stopped last is what all wait for.
            true => vec![self.stopped.last().map_or(Doing::Code, doing)],
            false => own.iter().map(doing).collect(),
        };
        (activities, who, others)
    }

    /// Time passes.
    fn pass(&mut self, ns: f64) {
        if ns <= 0.0 {
            return;
        }
        let (activities, who, others) = self.now();
        let own_runs = matches!(who, Who::Program | Who::Both);
        for doing in &activities {
            *self.spent.time.entry((*doing, who)).or_default() += ns / activities.len() as f64;
        }
        for task in &others {
            let Some(call) = self.threads.get(task).and_then(|thread| thread.entered) else {
                continue;
            };
            let host = self.spent.host.entry(call).or_default();
            host.running_ns += ns;
            host.alone_ns += if own_runs { 0.0 } else { ns / others.len() as f64 };
        }
    }

    /// Counts calls, and what was recorded.
    fn count(&mut self, entry: &Entry) {
        if let Some(kind) = kind_of(&entry.what) {
            let (activities, who, _) = self.now();
            for doing in &activities {
                let records = self.spent.records.entry((*doing, who)).or_default();
                records[kind] += 1.0 / activities.len() as f64;
            }
        }
        let own = self.is_programs(entry.task);
        match entry.what {
            What::Switch { out: Some(out), .. } if own => {
                if let Some(call) = self.served(entry.task, out) {
                    *self.spent.calls.entry(call).or_default() += 1.0;
                }
            }
            What::Begin(call) if !own => self.spent.host.entry(call).or_default().count += 1.0,
            What::Begin(call) if !self.serves => {
                *self.spent.calls.entry(call).or_default() += 1.0;
            }
            _ => {}
        }
    }

    /// The call of the program's that its tracer is about to serve, if that is why the thread stops.
    fn served(&self, task: u32, out: Out) -> Option<u32> {
        let thread = self.threads.get(&task)?;
        let is_served = thread.resumed.is_some_and(|request| SERVE_CALLS.contains(&request));
        let stops = !out.ready && thread.entered.is_none() && !thread.gone;
        out.call.filter(|_| self.serves && is_served && stops)
    }

    fn take(&mut self, entry: &Entry, halt: Halt) {
        match entry.what {
            What::Switch { next, out } => {
                if let Some(out) = out {
                    self.switched_out(entry, out, halt);
                }
                self.switched_in(entry.cpu, next);
            }
            What::Begin(call) => {
                let is_errand = self.serves && self.is_programs(entry.task);
                let thread = self.thread(entry.task, entry.process);
                thread.entered = Some(call);
                thread.asked = None;
                if !is_errand {
                    thread.doing = Doing::Call(call);
                }
            }
            What::Asked(request) => {
                self.thread(entry.task, entry.process).asked = Some(request);
            }
            What::End => {
                let is_errand = self.serves && self.is_programs(entry.task);
                let thread = self.thread(entry.task, entry.process);
                (thread.entered, thread.asked) = (None, None);
                if !is_errand {
                    thread.doing = Doing::Code;
                }
            }
            What::Fork { task, process } => {
                let is_programs = self.program.contains(&entry.process)
                    || (self.maker == Some(entry.process) && process != entry.process);
                if is_programs {
                    self.program.insert(process);
                }
                self.threads.insert(task, Thread::new(process));
                self.ready.insert(task);
            }
            What::Gone => self.thread(entry.task, entry.process).gone = true,
            What::Woken(task) => {
                // By a tracer, which lets it go on.
                let asked = self.threads.get(&entry.task).and_then(|thread| thread.asked);
                let goes_on = asked
                    .filter(|request| SERVE_CALLS.contains(request) || GO_ON.contains(request));
                if let (Some(request), Some(thread)) = (goes_on, self.threads.get_mut(&task)) {
                    thread.resumed = Some(request);
                }
                if self.threads.get(&task).is_some_and(|thread| !thread.gone)
                    && !self.running.values().any(|running| *running == task)
                {
                    self.ready.insert(task);
                }
            }
        }
    }

    fn switched_out(&mut self, entry: &Entry, out: Out, halt: Halt) {
        self.running.remove(&entry.cpu);
        let serves = self.serves;
        let thread = self.thread(entry.task, entry.process);
        if thread.gone {
            self.threads.remove(&entry.task);
            self.stopped.retain(|task| *task != entry.task);
            self.ready.remove(&entry.task);
            return;
        }
        if out.ready || thread.entered.is_some() {
            thread.keeps = true;
        } else {
            // How it was let go on says it, where that was seen.
            let is_errand = match thread.resumed.take().filter(|_| serves) {
                Some(request) => !SERVE_CALLS.contains(&request),
                None => serves && (halt.enters || halt.after_call),
            };
            thread.keeps = halt.enters || (serves && halt.leads);
            if !is_errand || thread.doing == Doing::Code {
                thread.doing = out.call.map_or(Doing::Fault, Doing::Call);
            }
        }
        if out.ready {
            self.ready.insert(entry.task);
        }
        if self.is_programs(entry.task) {
            self.stopped.retain(|task| *task != entry.task);
            self.stopped.push(entry.task);
        }
    }

    fn switched_in(&mut self, cpu: u32, next: Option<u32>) {
        let Some(task) = next else {
            self.running.remove(&cpu);
            return;
        };
        self.running.insert(cpu, task);
        self.ready.remove(&task);
        self.stopped.retain(|stopped| *stopped != task);
        if let Some(thread) = self.threads.get_mut(&task)
            && thread.entered.is_none()
            && !thread.keeps
        {
            thread.doing = Doing::Code;
        }
    }

    fn thread(&mut self, task: u32, process: u32) -> &mut Thread {
        self.threads.entry(task).or_insert_with(|| Thread::new(process))
    }
}

impl Thread {
    fn new(process: u32) -> Thread {
        let doing = Doing::Code;
        Thread {
            process,
            doing,
            entered: None,
            asked: None,
            resumed: None,
            keeps: false,
            gone: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: u32 = 10;
    const CHILD: u32 = 11;
    const TRACER: u32 = 20;
    const READ: u32 = 0;
    const MMAP: u32 = 9;

    fn entry(time_ns: u64, task: u32, what: What) -> Entry {
        Entry { time_ns, cpu: 0, task, process: task, what }
    }

    /// A thread gives the processor to another; `call` is what it stops in, or `None` if it could go on.
    fn switch(time_ns: u64, from: u32, stop: Option<Option<u32>>, to: u32) -> Entry {
        let out = Out { ready: stop.is_none(), call: stop.flatten() };
        let next = (to != 0).then_some(to);
        let out = (from != 0).then_some(out);
        entry(time_ns, from, What::Switch { next, out })
    }

    fn before(tracer: Option<u32>) -> Before {
        Before {
            processes: HashMap::from([(AGENT, (TRACER, tracer)), (TRACER, (1, None))]),
            threads: HashMap::from([(AGENT, AGENT), (TRACER, TRACER)]),
        }
    }

    #[test]
    fn a_program_that_this_kernel_serves() {
        let entries = [
            switch(90, 0, None, AGENT),
            entry(110, AGENT, What::Fork { task: CHILD, process: CHILD }),
            entry(120, AGENT, What::Begin(WAIT4)),
            switch(130, AGENT, Some(Some(WAIT4)), CHILD),
            entry(150, CHILD, What::Begin(READ)),
            switch(155, CHILD, Some(Some(READ)), 0),
            entry(175, 0, What::Woken(CHILD)),
            switch(180, 0, None, CHILD),
            entry(185, CHILD, What::End),
            entry(190, CHILD, What::Gone),
            switch(195, CHILD, Some(None), AGENT),
            entry(197, AGENT, What::End),
        ];
        let found = account(&entries, &before(None), 0, [100.0, 200.0]).unwrap();
        let time = |doing, who| found.time.get(&(doing, who)).copied().unwrap_or(0.0);
        assert!(!found.serves);
        assert_eq!(time(Doing::Call(READ), Who::Program), 10.0);
        assert_eq!(time(Doing::Call(READ), Who::Blocked), 20.0);
        assert_eq!(time(Doing::Call(READ), Who::Ready), 5.0);
        assert_eq!(time(Doing::Call(WAIT4), Who::Program), 12.0);
        assert_eq!((found.total(), found.calls[&READ]), (100.0, 1.0));
        // Two calls begin and end, and seven other things happen: the first switch was before the run.
        let records: [f64; 2] =
            found.records.values().fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
        assert_eq!(records, [4.0, 7.0]);
        let cost = Cost { of_call_ns: 2.0, other_ns: 1.0 };
        let left = found.without(cost);
        assert!((left.values().sum::<f64>() - 85.0).abs() < 1e-9, "{left:?}");
        assert_eq!(left[&(Doing::Call(READ), Who::Blocked)], 20.0 - 1.0);
        assert_eq!(account(&entries, &before(None), 1, [100.0, 200.0]), None);
    }

    #[test]
    fn a_call_that_a_tracer_serves_and_makes_another_for() {
        let entries = [
            switch(90, 0, None, AGENT),
            switch(110, AGENT, Some(Some(READ)), TRACER),
            // Its tracer has it map memory, and stops it before and after that.
            entry(120, TRACER, What::Begin(WAIT4)),
            switch(130, TRACER, Some(Some(WAIT4)), AGENT),
            switch(140, AGENT, Some(Some(MMAP)), TRACER),
            switch(150, TRACER, Some(Some(WAIT4)), AGENT),
            entry(151, AGENT, What::Begin(MMAP)),
            entry(159, AGENT, What::End),
            switch(160, AGENT, Some(Some(MMAP)), TRACER),
            switch(180, TRACER, Some(Some(WAIT4)), AGENT),
            switch(190, AGENT, Some(None), TRACER),
        ];
        let found = account(&entries, &before(Some(TRACER)), 0, [100.0, 200.0]).unwrap();
        let time = |doing, who| found.time.get(&(doing, who)).copied().unwrap_or(0.0);
        assert!(found.serves);
        assert_eq!(time(Doing::Call(READ), Who::System), 50.0);
        assert_eq!(time(Doing::Call(READ), Who::Program), 20.0);
        assert_eq!(time(Doing::Code, Who::Program), 20.0);
        assert_eq!(time(Doing::Fault, Who::System), 10.0);
        assert_eq!(found.total(), 100.0);
        assert_eq!(found.host[&WAIT4].count, 1.0);
        assert_eq!(found.calls, BTreeMap::new());
    }

    #[test]
    fn calls_are_counted_by_how_a_tracer_lets_its_thread_go_on() {
        const PTRACE: u32 = 101;
        let [serve, go_on] = [SERVE_CALLS[0], GO_ON[0]];
        let resume = |time_ns: u64, request: u32| {
            [
                entry(time_ns, TRACER, What::Begin(PTRACE)),
                entry(time_ns, TRACER, What::Asked(request)),
                entry(time_ns + 1, TRACER, What::Woken(AGENT)),
                entry(time_ns + 2, TRACER, What::End),
            ]
        };
        let mut entries = vec![switch(90, 0, None, AGENT), switch(101, AGENT, Some(None), TRACER)];
        // A call that is served; in between the thread maps memory for the tracer, by the same call.
        entries.extend(resume(105, serve));
        entries.push(switch(110, TRACER, Some(Some(WAIT4)), AGENT));
        entries.push(switch(120, AGENT, Some(Some(MMAP)), TRACER));
        entries.extend(resume(125, go_on));
        entries.push(switch(130, TRACER, Some(Some(WAIT4)), AGENT));
        entries.extend([entry(132, AGENT, What::Begin(MMAP)), entry(134, AGENT, What::End)]);
        entries.push(switch(140, AGENT, Some(Some(MMAP)), TRACER));
        // The next one, then a fault.
        entries.extend(resume(145, serve));
        entries.push(switch(150, TRACER, Some(Some(WAIT4)), AGENT));
        // The kernel reports the end of what the thread did not enter.
        entries.push(entry(151, AGENT, What::End));
        entries.push(switch(160, AGENT, Some(Some(READ)), TRACER));
        entries.extend(resume(165, serve));
        entries.push(switch(170, TRACER, Some(Some(WAIT4)), AGENT));
        entries.push(switch(180, AGENT, Some(None), TRACER));
        let found = account(&entries, &before(Some(TRACER)), 0, [100.0, 200.0]).unwrap();
        assert_eq!(found.calls, BTreeMap::from([(READ, 1.0), (MMAP, 1.0)]));
        let time = |doing, who| found.time.get(&(doing, who)).copied().unwrap_or(0.0);
        // 120 to 130 and 140 to 150; that itself is the program's thread's.
        assert_eq!(time(Doing::Call(MMAP), Who::System), 20.0);
        assert_eq!(time(Doing::Call(MMAP), Who::Program), 10.0);
        assert_eq!(time(Doing::Call(READ), Who::System), 10.0);
    }
}
