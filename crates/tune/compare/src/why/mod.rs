//! Why a call costs what it costs on a system: where its time goes on this machine.
//!
//! Inside, the program takes the machine's time-stamp counter before and after each call, and the number of
//! the processor that it runs on, which no system of ours hides. Outside, the kernel's events of all of the
//! system's processes say who ran when. Both are on one clock, so each call is divided into steps that add
//! up to its time (`steps.rs`).
//!
//! Observing takes time itself. What a record costs, and what it costs that each system call of the host is
//! looked at, is measured natively in the same run and subtracted. So the steps of observed calls can be
//! held against the time of calls that were not observed, which [`CallOn::off`] does.

mod distribution;
mod steps;
mod text;
mod trace;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fettle_kernel_events::Tally;
use fettle_types::Tid;
use serde::Serialize;

use crate::agent::{Agent, Stamp};
use crate::clock::Clock;
use crate::compare::{Progress, start};
use crate::error::CompareError;
use crate::folder::Folder;
use crate::processes::{self, Orphans};
use crate::result::Skipped;
use crate::system::{System, Tools};
pub use distribution::Bin;
pub(crate) use steps::trimmed;
use steps::{Call, Steps};
pub use steps::{HostCall, Step};
pub use text::why_text;
use trace::Made;
pub(crate) use watch::Watch;

/// Operations of a turn: as many as take about that time, within bounds.
const TURN: Duration = Duration::from_millis(40);
const LEAST: u64 = 16;
const MOST: u64 = 2000;
/// Turns after which system calls are counted.
const COUNTED: usize = 3;
/// Operations by which it is found out what records cost: one has records of system calls only.
const READS: &str = "read-4k";
/// The one that switches most.
const SWITCHES: &str = "switch";
/// The operation that is a system call and nothing else.
const NULL: &str = "null";

/// Those operations.
const WEIGHING: [&str; 3] = [NULL, READS, SWITCHES];

/// What to explain.
#[derive(Clone, Debug)]
pub struct WhyOptions {
    /// The systems; they are compared with this kernel, which need not be among them.
    pub systems: Vec<System>,
    /// What starts them.
    pub tools: Tools,
    /// Operations, by name.
    pub calls: Vec<String>,
    /// Rounds; each has a turn without and a turn with observation.
    pub rounds: usize,
    /// Let each system use all processors. Otherwise it is held on one: what a call costs changes by a factor
    /// with where the scheduler puts the threads that serve it, from one turn to the next. What passes work
    /// between running threads needs several.
    pub spread: bool,
    /// The folder for a trace of each operation on each system, `NAME-SYSTEM.fettle`: of the first turn.
    pub traces: Option<PathBuf>,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Why {
    /// Of this form of data.
    pub version: u32,
    /// What it costs that a system call is looked at, in nanoseconds.
    pub call_ns: f64,
    /// What a record of a system call costs.
    pub of_call_ns: f64,
    /// What another record costs, in nanoseconds.
    pub record_ns: f64,
    /// Whether each system had all processors, rather than one.
    pub spread: bool,
    /// By operation.
    pub calls: Vec<Explained>,
    /// What could not be measured.
    pub skipped: Vec<Skipped>,
}

/// An operation.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// Its name.
    pub name: String,
    /// On this kernel.
    pub native: CallOn,
    /// On the systems.
    pub systems: Vec<CallOn>,
}

/// An operation on a system. Times are means of calls, but for the quarter that took longest and the quarter
/// that took shortest.
#[derive(Clone, Debug, Serialize)]
pub struct CallOn {
    /// The system.
    pub system: String,
    /// Of calls that were not observed, in nanoseconds.
    pub ns: f64,
    /// Of calls that were not observed: the shortest, a tenth, half, nine tenths, 99 % and all took at most so
    /// long, in nanoseconds.
    pub quantiles_ns: [f64; 6],
    /// Of calls that were not observed: how many took how long.
    pub distribution: Vec<Bin>,
    /// Of observed calls.
    pub observed_ns: f64,
    /// Records of a call.
    pub records: f64,
    /// System calls of this kernel that a call leads to.
    pub host_calls: f64,
    /// Where the time goes, without what observing takes.
    pub steps: Vec<StepTime>,
}

/// A step's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepTime {
    /// The step.
    pub step: Step,
    /// Nanoseconds.
    pub ns: f64,
}

impl CallOn {
    /// What the steps add up to.
    pub fn sum(&self) -> f64 {
        self.steps.iter().map(|step| step.ns).sum()
    }

    /// How far what the steps explain of the difference to native is from the difference that was measured
    /// without observation, as a share of that.
    pub fn off(&self, native: &CallOn) -> f64 {
        (self.sum() - native.sum()) / (self.ns - native.ns) - 1.0
    }
}

/// What observing costs.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// A system call that is looked at.
    call_ns: f64,
    /// A record of one.
    of_call_ns: f64,
    /// Another record.
    record_ns: f64,
}

/// What turns of an operation on a system have shown.
#[derive(Debug, Default)]
struct Turns {
    plain: Vec<f64>,
    observed: Vec<f64>,
    steps: Vec<Steps>,
    /// System calls of the host for an operation, turn by turn.
    host_calls: Vec<f64>,
}

/// This kernel, and then the others.
pub(crate) fn with_native(systems: &[System]) -> Vec<System> {
    let others = systems.iter().filter(|system| **system != System::Native).cloned();
    std::iter::once(System::Native).chain(others).collect()
}

/// Explains.
///
/// # Errors
///
/// When the kernel's events cannot be had, when no system starts, or when the user ends it.
pub fn why(
    options: &WhyOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Why, CompareError> {
    let folder = Folder::new()?;
    let _orphans = Orphans::watch();
    let mut skipped = Vec::new();
    let systems = with_native(&options.systems);
    let notes = (&mut skipped, &mut *progress);
    let mut agents = start(&systems, &options.tools, &folder, stop, notes)?;
    let known = agents[0].list()?;
    if let Some(name) = options.calls.iter().find(|name| !known.iter().any(|b| b.name == **name)) {
        return Err(CompareError::NoBenchmark { name: name.clone() });
    }
    let anchor = agents[0].clock()?;
    let watch = Watch::new()?;
    let held_on = processes::processors().last().copied().filter(|_| !options.spread);
    let session = Session {
        agents,
        watch,
        traces: options.traces.clone(),
        held_on,
        anchor,
        skipped,
        progress,
        done: 0,
        all: 0,
    };
    session.explain(options)
}

struct Session<'a, 'b> {
    /// The first is native.
    agents: Vec<Agent<'a>>,
    watch: Watch,
    /// Where traces are written.
    traces: Option<PathBuf>,
    /// The processor that all systems are held on, if they are.
    held_on: Option<u32>,
    /// A moment on both clocks, from the beginning.
    anchor: (f64, u64),
    skipped: Vec<Skipped>,
    progress: &'b mut dyn FnMut(&Progress<'_>),
    done: usize,
    all: usize,
}

impl Session<'_, '_> {
    fn explain(mut self, options: &WhyOptions) -> Result<Why, CompareError> {
        let mut names: Vec<&str> = WEIGHING.to_vec();
        names.extend(options.calls.iter().map(String::as_str));
        self.all = names.len() * self.agents.len() * options.rounds;
        let mut turns: BTreeMap<(&str, usize), Turns> = BTreeMap::new();
        let mut counts: BTreeMap<(&str, usize), u64> = BTreeMap::new();
        for _ in 0..options.rounds {
            for (at, name) in names.iter().enumerate() {
                // What only weighs records is needed natively.
                let systems = if at < WEIGHING.len() { 1 } else { self.agents.len() };
                for system in 0..systems {
                    let count = match counts.get(&(name, system)) {
                        Some(0) => continue,
                        Some(count) => *count,
                        None => self.count(name, system)?,
                    };
                    let turns = turns.entry((name, system)).or_default();
                    let done = if count == 0 {
                        Ok(())
                    } else {
                        self.turn((name, at >= WEIGHING.len()), system, count, turns)
                    };
                    let is_done = self.or_skipped(done, name, system)?;
                    counts.insert((name, system), if is_done { count } else { 0 });
                }
            }
        }
        let cost = cost(&turns);
        let mut calls = Vec::new();
        for name in &options.calls {
            let on = |system: usize| {
                let turns = turns.get(&(name.as_str(), system))?;
                call_on(self.agents[system].system().to_string(), turns, cost)
            };
            let Some(native) = on(0) else { continue };
            let systems = (1..self.agents.len()).filter_map(on).collect();
            calls.push(Explained { name: name.clone(), native, systems });
        }
        let Cost { call_ns, of_call_ns, record_ns } = cost;
        let spread = self.held_on.is_none();
        Ok(Why { version: 1, call_ns, of_call_ns, record_ns, spread, calls, skipped: self.skipped })
    }

    /// Operations of a turn; 0, and a note, where it cannot be done.
    fn count(&mut self, name: &str, system: usize) -> Result<u64, CompareError> {
        let tuned = self.agents[system].tune(name, TURN);
        let mut count = 0;
        let tuned = tuned.map(|tuned| count = tuned.clamp(LEAST, MOST));
        self.or_skipped(tuned, name, system)?;
        Ok(count)
    }

    fn or_skipped(
        &mut self,
        done: Result<(), CompareError>,
        name: &str,
        system: usize,
    ) -> Result<bool, CompareError> {
        match done {
            Ok(()) => Ok(true),
            Err(CompareError::Broken { why, .. }) => {
                let system = self.agents[system].system().to_string();
                self.skipped.push(Skipped { system, name: Some(name.to_owned()), why });
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// A turn without and one with observation, and one in which system calls are counted.
    fn turn(
        &mut self,
        (name, is_asked): (&str, bool),
        system: usize,
        count: u64,
        turns: &mut Turns,
    ) -> Result<(), CompareError> {
        let what = format!("{name} on {}", self.agents[system].system());
        (self.progress)(&Progress { what: &what, done: self.done, all: self.all });
        self.done += 1;
        let agent = &mut self.agents[system];
        // Also what was started since the last turn.
        if let Some(cpu) = self.held_on {
            processes::hold(agent.pid(), &[cpu]);
        }
        let plain = agent.stamps(name, count as usize)?;
        let pid = agent.pid();
        let (observed, records) = self.watch.during(pid, || agent.stamps(name, count as usize))?;
        if turns.host_calls.len() < COUNTED {
            turns.host_calls.push(host_calls(agent, name, count)?);
        }
        let now = self.agents[0].clock()?;
        let clock = Clock::new(self.anchor, now);
        turns.plain.extend(plain.iter().map(|stamps| clock.between(stamps)));
        turns.observed.extend(observed.iter().map(|stamps| clock.between(stamps)));
        let calls: Vec<Call> = observed.iter().map(|stamps| call(&clock, stamps)).collect();
        let Some(raw) = records else { return Ok(()) };
        let divided = steps::divide(&watch::decoded(&raw), &calls);
        if let Some(folder) = self.traces.as_deref().filter(|_| is_asked && turns.steps.is_empty())
        {
            let system = self.agents[system].system().to_string();
            let made = divided.iter().zip(&calls);
            let made: Vec<Made> = made
                .filter_map(|(found, call)| {
                    let tid = Tid::try_from(found.as_ref()?.0).ok()?;
                    Some(Made { tid, call: *call })
                })
                .collect();
            let path =
                folder.join(format!("{name}-{}.fettle", system.replace(['/', ' ', ':'], "-")));
            trace::write(&path, (&system, name), pid, &raw, &made)?;
        }
        turns.steps.extend(divided.into_iter().flatten().map(|(_, steps)| steps));
        Ok(())
    }
}

/// System calls of this kernel for an operation, by two turns of different length: what is done once for a
/// turn does not count.
fn host_calls(agent: &mut Agent<'_>, name: &str, count: u64) -> Result<f64, CompareError> {
    let tally = Tally::new()?;
    let mut counted = |count: u64| -> Result<f64, CompareError> {
        for pid in processes::tree(agent.pid()) {
            tally.watch(pid)?;
        }
        let before = tally.total()?;
        agent.time(name, count, 1)?;
        Ok(tally.total()?.saturating_sub(before) as f64)
    };
    let few = (count / 4).max(1);
    let (short, long) = (counted(few)?, counted(count)?);
    // Each has an eighth more, to warm up.
    let difference = (count - few) as f64 + (count / 8) as f64 - (few / 8) as f64;
    Ok(((long - short) / difference).max(0.0))
}

/// What observing costs, by three operations natively: one is a system call without records, the second has
/// records of system calls only, and the third also others.
fn cost(turns: &BTreeMap<(&str, usize), Turns>) -> Cost {
    // Nanoseconds, system calls, and records of either kind.
    let added = |name: &str| {
        let turns = turns.get(&(name, 0))?;
        let plain = steps::mean_of_times(&turns.plain)?;
        let observed = steps::mean_of_times(&turns.observed)?;
        let [_, of_calls, others] = steps::total(&steps::mean(&turns.steps)?);
        Some((observed - plain, fettle_stats::median(&turns.host_calls), of_calls, others))
    };
    let mut cost = Cost::default();
    if let Some((ns, calls, ..)) = added(NULL) {
        cost.call_ns = (ns / calls.max(1.0)).max(0.0);
    }
    if let Some((ns, calls, of_calls, _)) = added(READS) {
        cost.of_call_ns = ((ns - calls * cost.call_ns) / of_calls.max(1.0)).max(0.0);
    }
    if let Some((ns, calls, of_calls, others)) = added(SWITCHES) {
        let known = calls * cost.call_ns + of_calls * cost.of_call_ns;
        cost.record_ns = ((ns - known) / others.max(1.0)).max(0.0);
    }
    cost
}

/// The means of an operation on a system, without what observing cost.
fn call_on(system: String, turns: &Turns, cost: Cost) -> Option<CallOn> {
    let found = steps::mean(&turns.steps)?;
    let [_, of_calls, others] = steps::total(&found);
    let host_calls = fettle_stats::median(&turns.host_calls);
    // Calls of the host are made by what works.
    let worked = [Step::Work, Step::Own, Step::Beside].into_iter().find(|s| found.contains_key(s));
    let steps = found.iter().map(|(step, [ns, of_calls, others])| {
        let calls = if Some(*step) == worked { host_calls } else { 0.0 };
        let taken = of_calls * cost.of_call_ns + others * cost.record_ns + calls * cost.call_ns;
        StepTime { step: *step, ns: (ns - taken).max(0.0) }
    });
    Some(CallOn {
        system,
        ns: steps::mean_of_times(&turns.plain)?,
        quantiles_ns: [0.0, 0.1, 0.5, 0.9, 0.99, 1.0]
            .map(|q| fettle_stats::quantile(&turns.plain, q)),
        distribution: distribution::distribution(&turns.plain),
        observed_ns: steps::mean_of_times(&turns.observed)?,
        records: of_calls + others,
        host_calls,
        steps: steps.collect(),
    })
}

/// An operation on the kernel's clock.
fn call(clock: &Clock, stamps: &[Stamp; 2]) -> Call {
    let [begin_ns, end_ns] = clock.interval(stamps);
    Call { begin_ns, from: stamps[0].cpu, end_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_put_on_the_clock() {
        let clock = Clock::new((1000.0, 10_000), (2000.0, 13_000));
        let stamp = |tsc| Stamp { tsc, cpu: 1 };
        let call = call(&clock, &[stamp(12_700), stamp(13_300)]);
        assert!((call.begin_ns - 1900.0).abs() < 1e-9 && (call.end_ns - 2100.0).abs() < 1e-9);
        assert!((clock.between(&[stamp(12_700), stamp(13_300)]) - 200.0).abs() < 1e-9);
    }

    #[test]
    fn what_observing_costs_is_subtracted() {
        let turns = Turns {
            plain: vec![1020.0; 20],
            observed: vec![1500.0; 20],
            steps: vec![
                Steps::from([
                    (Step::Leave, [300.0, 0.0, 1.0]),
                    (Step::Work, [1200.0, 1.0, 2.0])
                ]);
                20
            ],
            host_calls: vec![2.0],
        };
        let cost = Cost { call_ns: 50.0, of_call_ns: 80.0, record_ns: 100.0 };
        let on = call_on("uml".into(), &turns, cost).unwrap();
        let expected = [(Step::Leave, 200.0), (Step::Work, 820.0)];
        assert_eq!(on.steps.iter().map(|s| (s.step, s.ns)).collect::<Vec<_>>(), expected);
        let native = CallOn {
            ns: 100.0,
            steps: vec![StepTime { step: Step::Own, ns: 100.0 }],
            ..on.clone()
        };
        assert!(on.off(&native).abs() < 1e-9);
    }
}
