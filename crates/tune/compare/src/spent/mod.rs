//! Where the time of a user's program goes on each system.
//!
//! Outside, the kernel's events of all of the system's processes say who runs when, and which system calls
//! begin and end; our program inside takes the machine's time-stamp counter before it starts the user's and
//! after it has ended. So a run is divided by what the program is doing and who runs for it (`account.rs`),
//! in times that add up to the run's.
//!
//! Runs are recorded and not recorded in turn. What observing takes is measured on each system in between
//! (`cost.rs`), and subtracted from the steps where the records were written. So the steps of observed runs can be
//! held against the time of runs that were not observed.

mod account;
mod cost;
mod record;
mod records;
mod text;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::AtomicBool;

use fettle_stats::Interval;
use serde::Serialize;

use crate::agent::Agent;
use crate::clock::Clock;
use crate::compare::{Progress, command, or_skipped, order, run_well, start};
use crate::error::CompareError;
use crate::folder::Folder;
use crate::processes::{self, Orphans};
use crate::result::Skipped;
use crate::system::{System, Tools};
use crate::why::{trimmed, with_native};
pub use account::{Doing, Who};
use account::{Spent, account, call_name};
use cost::Weighed;
use record::Recorder;
pub use text::spent_text;

/// What to explain.
#[derive(Clone, Debug)]
pub struct SpentOptions {
    /// The systems; they are compared with this kernel, which need not be among them.
    pub systems: Vec<System>,
    /// What starts them.
    pub tools: Tools,
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Rounds; each has a run without and a run with observation on every system.
    pub rounds: usize,
    /// Hold each system on one processor.
    pub hold: bool,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Spending {
    /// Of this form of data.
    pub version: u32,
    /// The program with its arguments.
    pub program: String,
    /// Rounds.
    pub rounds: usize,
    /// This kernel, and then the systems.
    pub systems: Vec<SpentOn>,
    /// What could not be measured.
    pub skipped: Vec<Skipped>,
}

/// The program on a system. Times are of a run, means but for the quarter of the runs that took longest and
/// the quarter that took shortest.
#[derive(Clone, Debug, Serialize)]
pub struct SpentOn {
    /// The system.
    pub system: String,
    /// Of runs that were not observed, in nanoseconds.
    pub ns: f64,
    /// Their ratio to this kernel, round by round; not of this kernel itself.
    pub ratio: Option<Interval>,
    /// Of observed runs.
    pub observed_ns: f64,
    /// What observing takes of that, by what records take on this system. The times of [`SpentOn::calls`] are
    /// without it.
    pub observing_ns: f64,
    /// What a record takes: of a system call that begins or ends, and of anything else.
    pub record_ns: [f64; 2],
    /// Whether the system serves the program's calls, rather than this kernel.
    pub serves: bool,
    /// By what the program was doing, the costliest first.
    pub calls: Vec<CallSpent>,
    /// System calls of this kernel that the system made, the costliest first.
    pub host_calls: Vec<HostCalls>,
}

/// What the program was doing: a system call, or its own code.
#[derive(Clone, Debug, Serialize)]
pub struct CallSpent {
    /// What.
    pub doing: Doing,
    /// How often in a run; nothing for its own code.
    pub count: Option<f64>,
    /// Time of a run.
    pub ns: f64,
    /// Who ran meanwhile.
    pub by: BTreeMap<Who, f64>,
}

/// A kind of system call that the system made of this kernel.
#[derive(Clone, Debug, Serialize)]
pub struct HostCalls {
    /// Its name.
    pub call: String,
    /// How often in a run.
    pub count: f64,
    /// How long threads ran in it.
    pub running_ns: f64,
    /// How long that was while no thread of the program's ran.
    pub alone_ns: f64,
}

impl SpentOn {
    /// What the steps add up to.
    pub fn sum(&self) -> f64 {
        self.observed_ns - self.observing_ns
    }

    /// How far that is from the time that was measured without observation, as a share of it.
    pub fn off(&self) -> f64 {
        self.sum() / self.ns - 1.0
    }

    /// The time that someone ran, whatever the program was doing.
    pub fn by(&self, who: Who) -> f64 {
        self.calls.iter().filter_map(|call| call.by.get(&who)).sum()
    }

    /// What the program was doing at some time.
    pub fn call(&self, doing: Doing) -> Option<&CallSpent> {
        self.calls.iter().find(|call| call.doing == doing)
    }

    /// What costs more than on another system, most first: how much more.
    pub fn over<'a>(&'a self, other: &SpentOn) -> Vec<(&'a CallSpent, f64)> {
        let more = |call: &'a CallSpent| {
            let there = other.call(call.doing).map_or(0.0, |there| there.ns);
            (call, call.ns - there)
        };
        let mut all: Vec<_> = self.calls.iter().map(more).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }
}

/// Explains where the time of a program goes.
///
/// # Errors
///
/// When the kernel's events cannot be had, when the program does not run on this kernel, or when the user ends
/// it.
pub fn spent(
    options: &SpentOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Spending, CompareError> {
    let folder = Folder::new()?;
    let _orphans = Orphans::watch();
    let mut recorder = Recorder::new()?;
    let mut skipped = Vec::new();
    let systems = with_native(&options.systems);
    let notes = (&mut skipped, &mut *progress);
    let mut agents = start(&systems, &options.tools, &folder, stop, notes)?;
    let anchor = agents[0].clock()?;
    let name = command(&options.program);
    let mut found: Vec<Option<Runs>> = agents.iter().map(|_| Some(Runs::default())).collect();
    let all_processors = processes::processors();
    let held_on = all_processors.last().copied().filter(|_| options.hold);
    let processors = held_on.map_or(all_processors, |cpu| vec![cpu]);
    let (mut done, all) = (0, 2 * agents.len() * options.rounds);
    for round in 0..options.rounds {
        // There without observation, and back with it; the other way round in every other round.
        for (turn, at) in order(agents.len(), round).enumerate() {
            let Some(runs) = &mut found[at] else { continue };
            let what = format!("{name} on {}, round {}", agents[at].system(), round + 1);
            progress(&Progress { what: &what, done, all });
            done += 1;
            processes::hold(agents[at].pid(), &processors);
            let subject = (&options.program[..], &name[..]);
            let is_plain = (turn < agents.len()) == round.is_multiple_of(2);
            let ran = match is_plain {
                true => run_well(&mut agents[at], subject.0, subject.1, at == 0)
                    .map(|ran| runs.plain.push(ran.wall_ns)),
                false => runs
                    .weighed
                    .turn(&mut agents[at], &mut recorder, &processors)
                    .and_then(|()| observed(&mut agents, at, &mut recorder, anchor, subject))
                    .map(|spent| runs.observed.push(spent)),
            };
            if or_skipped(ran, &agents[at], &name, &mut skipped)?.is_none() {
                found[at] = None;
            }
        }
    }
    let Some(native) = &found[0] else {
        let why = skipped.first().map_or(String::new(), |skipped| skipped.why.clone());
        return Err(CompareError::Nothing { why });
    };
    let native = native.plain.clone();
    let on = |(at, runs): (usize, Option<Runs>)| {
        let ratio = |plain: &[f64]| {
            (at > 0).then(|| fettle_stats::median_interval(&fettle_stats::ratios(plain, &native)))
        };
        runs?.means(agents[at].system().to_string(), ratio)
    };
    let systems = found.into_iter().enumerate().filter_map(on).collect();
    Ok(Spending { version: 1, program: name, rounds: options.rounds, systems, skipped })
}

/// Runs the program on a system while that is observed.
fn observed(
    agents: &mut [Agent<'_>],
    at: usize,
    recorder: &mut Recorder,
    anchor: (f64, u64),
    (words, name): (&[OsString], &str),
) -> Result<Spent, CompareError> {
    let agent = &mut agents[at];
    let (ran, recorded) = recorder.during(agent.pid(), || run_well(agent, words, name, at == 0))?;
    let broken = |why| CompareError::Broken { system: agent.system().to_string(), why };
    let entries = recorded.entries.map_err(broken)?;
    let clock = Clock::new(anchor, agents[0].clock()?);
    let from = ran.stamps[0].cpu;
    account(&entries, &recorded.before, from, clock.interval(&ran.stamps)).ok_or_else(|| {
        let why = "it is not known which thread has run the program".to_owned();
        CompareError::Broken { system: agents[at].system().to_string(), why }
    })
}

/// What a system's runs have shown.
#[derive(Debug, Default)]
struct Runs {
    plain: Vec<f64>,
    observed: Vec<Spent>,
    weighed: Weighed,
}

impl Runs {
    fn means(
        mut self,
        system: String,
        ratio: impl FnOnce(&[f64]) -> Option<Interval>,
    ) -> Option<SpentOn> {
        let ratio = ratio(&self.plain);
        self.plain.sort_by(f64::total_cmp);
        let plain = trimmed(&self.plain);
        self.observed.sort_by(|a, b| a.total().total_cmp(&b.total()));
        let runs = trimmed(&self.observed);
        let number = runs.len() as f64;
        let cost = self.weighed.cost();
        let mut calls: BTreeMap<Doing, CallSpent> = BTreeMap::new();
        let mut host: BTreeMap<u32, HostCalls> = BTreeMap::new();
        for run in runs {
            for (step, ns) in run.without(cost) {
                let (doing, who) = step;
                let call = calls.entry(doing).or_insert_with(|| CallSpent::of(doing));
                call.ns += ns / number;
                *call.by.entry(who).or_default() += ns / number;
            }
            for (&call, count) in &run.calls {
                let doing = Doing::Call(call);
                let call = calls.entry(doing).or_insert_with(|| CallSpent::of(doing));
                *call.count.get_or_insert(0.0) += count / number;
            }
            for (&call, of) in &run.host {
                let host = host.entry(call).or_insert_with(|| HostCalls::of(call));
                host.count += of.count / number;
                host.running_ns += of.running_ns / number;
                host.alone_ns += of.alone_ns / number;
            }
        }
        let observed_ns = runs.iter().map(Spent::total).sum::<f64>() / number;
        let mut calls: Vec<CallSpent> = calls.into_values().collect();
        calls.sort_by(|a, b| b.ns.total_cmp(&a.ns));
        let mut host_calls: Vec<HostCalls> = host.into_values().collect();
        host_calls.sort_by(|a, b| b.running_ns.total_cmp(&a.running_ns));
        Some(SpentOn {
            system,
            ns: plain.iter().sum::<f64>() / plain.len().max(1) as f64,
            ratio,
            observed_ns,
            observing_ns: observed_ns - calls.iter().map(|call| call.ns).sum::<f64>(),
            record_ns: [cost.of_call_ns, cost.other_ns],
            serves: runs.first()?.serves,
            calls,
            host_calls,
        })
    }
}

impl CallSpent {
    fn of(doing: Doing) -> CallSpent {
        CallSpent { doing, count: None, ns: 0.0, by: BTreeMap::new() }
    }
}

impl HostCalls {
    fn of(call: u32) -> HostCalls {
        HostCalls { call: call_name(call), count: 0.0, running_ns: 0.0, alone_ns: 0.0 }
    }
}
