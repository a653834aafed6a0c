//! Rounds of turns: which system does what, and when.

use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::agent::{Agent, Benchmark, Ran};
use crate::error::CompareError;
use crate::folder::Folder;
use crate::load::Load;
use crate::observe::Observing;
use crate::processes::{self, Orphans, processors};
use crate::result::{Comparison, Loaded, Row, RowKind, Skipped, SystemInfo};
use crate::system::{System, Tools};

/// Batches of operations in a turn. Their median is the turn's time: a thread that is switched out in
/// some of them does not change it. On a full machine that happens every three milliseconds, so a batch is a
/// small part of that.
const BATCHES: u32 = 100;

/// What is run on the systems.
#[derive(Clone, Debug)]
pub enum Subject {
    /// Operations, by their names or groups; all of them if none is named.
    Benchmarks(Vec<String>),
    /// A program of the user's.
    Program(Vec<OsString>),
}

/// What to compare, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The systems; ratios are to the first.
    pub systems: Vec<System>,
    /// What starts them.
    pub tools: Tools,
    /// What is run.
    pub subject: Subject,
    /// Loads: threads that compute meanwhile, for each processor.
    pub loads: Vec<u32>,
    /// Rounds; each has two turns of every system.
    pub rounds: usize,
    /// Hold each system on one processor: what a call costs that another process serves changes by a factor
    /// with where the scheduler puts the two.
    pub hold: bool,
    /// How long a turn takes, about. An operation that takes longer is done once.
    pub turn: Duration,
}

/// Where a comparison is.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// What it does.
    pub what: &'a str,
    /// How many turns are done.
    pub done: usize,
    /// Of how many.
    pub all: usize,
}

/// Compares. A system that does not start is left out, and so are operations that one cannot do; the
/// result lists both. `stop` is set when the user wants it to end.
///
/// # Errors
///
/// When the first system does not start or breaks, when the user ends it, or when files of ours cannot be
/// written.
pub fn compare(
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Comparison, CompareError> {
    let folder = Folder::new()?;
    let _orphans = Orphans::watch();
    let mut skipped = Vec::new();
    let (systems, mut ready) = observers(&options.systems, &mut skipped);
    let notes = (&mut skipped, &mut *progress);
    let mut agents = start(&systems, &options.tools, &folder, stop, notes)?;
    let mut loads = Vec::new();
    // Those of systems that have started.
    let observers = agents.iter().map(|agent| {
        let at = ready.iter().position(|(system, _)| system == agent.system());
        at.map_or(Observing::Nothing, |at| ready.swap_remove(at).1)
    });
    let observers = observers.collect();
    let held_on = processors().last().copied().filter(|_| options.hold);
    let mut turns = Turns { options, observers, held_on, progress, done: 0, all: 0 };
    match &options.subject {
        Subject::Benchmarks(names) => {
            let chosen = chosen(&agents[0].list()?, names)?;
            let mut plans = turns.plan(&mut agents, chosen, &mut skipped)?;
            for &spinners in &options.loads {
                let _load = Load::start(spinners);
                let rows = turns.operations(&mut agents, &mut plans, &mut skipped)?;
                loads.push(Loaded { spinners, rows });
            }
        }
        Subject::Program(words) => {
            for &spinners in &options.loads {
                let _load = Load::start(spinners);
                let rows = turns.programs(&mut agents, words, &mut skipped)?;
                loads.push(Loaded { spinners, rows });
            }
        }
    }
    let is_program = matches!(options.subject, Subject::Program(_));
    Ok(Comparison {
        version: 1,
        machine: machine(),
        systems: agents.iter().map(info).collect(),
        rounds: options.rounds,
        turn_ns: if is_program { 0 } else { options.turn.as_nanos() as u64 },
        loads,
        skipped,
    })
}

/// What observes the systems, and the systems that can be observed. The others are noted.
fn observers(
    systems: &[System],
    skipped: &mut Vec<Skipped>,
) -> (Vec<System>, Vec<(System, Observing)>) {
    let mut ready = Vec::new();
    for system in systems {
        match Observing::of(system) {
            Ok(observing) => ready.push((system.clone(), observing)),
            Err(why) => skipped.push(Skipped { system: system.to_string(), name: None, why }),
        }
    }
    (ready.iter().map(|(system, _)| system.clone()).collect(), ready)
}

fn info(agent: &Agent<'_>) -> SystemInfo {
    SystemInfo { name: agent.system().to_string(), release: agent.version().to_owned() }
}

fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{model}, {processors} processors")
}

pub(crate) type Notes<'a, 'b> = (&'a mut Vec<Skipped>, &'a mut (dyn FnMut(&Progress<'_>) + 'b));

/// Starts all systems. One that does not start is left out and noted, unless it is the first.
pub(crate) fn start<'a>(
    systems: &[System],
    tools: &Tools,
    folder: &Folder,
    stop: &'a AtomicBool,
    (skipped, progress): Notes<'_, '_>,
) -> Result<Vec<Agent<'a>>, CompareError> {
    let mut agents: Vec<Agent<'a>> = Vec::new();
    let all = systems.len();
    for (number, system) in systems.iter().enumerate() {
        progress(&Progress { what: &format!("starting {system}"), done: number, all });
        match Agent::start(system, tools, folder, number, stop) {
            Ok(agent) => agents.push(agent),
            Err(error) if number == 0 || matches!(error, CompareError::Stopped) => {
                return Err(error);
            }
            Err(error) => {
                let why = error.to_string();
                skipped.push(Skipped { system: system.to_string(), name: None, why });
            }
        }
    }
    Ok(agents)
}

/// The benchmarks that are meant.
fn chosen(all: &[Benchmark], names: &[String]) -> Result<Vec<Benchmark>, CompareError> {
    for name in names {
        if !all.iter().any(|b| b.name == *name || b.group == *name) {
            return Err(CompareError::NoBenchmark { name: name.clone() });
        }
    }
    let is_meant = |b: &&Benchmark| {
        names.is_empty() || names.iter().any(|name| b.name == *name || b.group == *name)
    };
    Ok(all.iter().filter(is_meant).cloned().collect())
}

/// What a benchmark's turns are on each system: operations in a batch, and batches.
struct Plan {
    benchmark: Benchmark,
    batches: Vec<Option<(u64, u32)>>,
}

struct Turns<'a, 'b> {
    options: &'a Options,
    /// Of each system.
    observers: Vec<Observing>,
    /// The processor that all are held on, if they are.
    held_on: Option<u32>,
    progress: &'b mut dyn FnMut(&Progress<'_>),
    done: usize,
    all: usize,
}

impl Turns<'_, '_> {
    /// Finds out how many operations a turn has.
    fn plan(
        &mut self,
        agents: &mut [Agent<'_>],
        chosen: Vec<Benchmark>,
        skipped: &mut Vec<Skipped>,
    ) -> Result<Vec<Plan>, CompareError> {
        self.all = chosen.len() * agents.len();
        let mut plans = Vec::new();
        for benchmark in chosen {
            let mut batches = Vec::new();
            for agent in agents.iter_mut() {
                self.step(&format!("trying {} on {}", benchmark.name, agent.system()));
                let tried = batches_of(agent, &benchmark.name, self.options.turn);
                batches.push(or_skipped(tried, agent, &benchmark.name, skipped)?);
            }
            plans.push(Plan { benchmark, batches });
        }
        let systems: usize = plans.iter().map(|p| p.batches.iter().flatten().count()).sum();
        self.done = 0;
        self.all = systems * 2 * self.options.rounds * self.options.loads.len();
        Ok(plans)
    }

    /// Measures operations. Rounds are outermost, so that each operation sees all of the time.
    fn operations(
        &mut self,
        agents: &mut [Agent<'_>],
        plans: &mut [Plan],
        skipped: &mut Vec<Skipped>,
    ) -> Result<Vec<Row>, CompareError> {
        let mut found = vec![vec![Vec::new(); agents.len()]; plans.len()];
        for round in 0..self.options.rounds {
            for (plan, found) in plans.iter_mut().zip(&mut found) {
                let mut sums = vec![0.0; agents.len()];
                for at in order(agents.len(), round) {
                    let Some((count, batches)) = plan.batches[at] else { continue };
                    let (name, agent) = (&plan.benchmark.name, &mut agents[at]);
                    self.step(&format!("{name} on {}, round {}", agent.system(), round + 1));
                    self.hold(agent);
                    let observer = &mut self.observers[at];
                    let timed = observer
                        .during(agent, Some(name), |agent| agent.time(name, count, batches));
                    match or_skipped(timed, agent, name, skipped)? {
                        Some(times) => sums[at] += fettle_stats::median(&times) / 2.0,
                        None => plan.batches[at] = None,
                    }
                }
                for (found, sum) in found.iter_mut().zip(sums) {
                    found.push(sum);
                }
            }
        }
        let row = |(plan, found): (&Plan, Vec<Vec<f64>>)| {
            let Benchmark { name, group, what } = plan.benchmark.clone();
            let found = plan.batches.iter().zip(found);
            let rounds: Vec<_> = found.map(|(batches, found)| batches.map(|_| found)).collect();
            Row { kind: RowKind::Operation, name, group, what, cells: Row::cells_of(&rounds) }
        };
        Ok(plans.iter().zip(found).map(row).collect())
    }

    /// Runs a program of the user's.
    fn programs(
        &mut self,
        agents: &mut [Agent<'_>],
        words: &[OsString],
        skipped: &mut Vec<Skipped>,
    ) -> Result<Vec<Row>, CompareError> {
        let name = command(words);
        let mut walls: Vec<Option<Vec<f64>>> = vec![Some(Vec::new()); agents.len()];
        let mut cpus = walls.clone();
        self.all = 2 * agents.len() * self.options.rounds * self.options.loads.len();
        for round in 0..self.options.rounds {
            let mut sums = vec![(0.0, 0.0); agents.len()];
            for at in order(agents.len(), round) {
                if walls[at].is_none() {
                    continue;
                }
                self.step(&format!("{name} on {}, round {}", agents[at].system(), round + 1));
                self.hold(&agents[at]);
                let observer = &mut self.observers[at];
                let ran = observer
                    .during(&mut agents[at], None, |agent| run(agent, words, &name, at == 0));
                match or_skipped(ran, &agents[at], &name, skipped)? {
                    Some((wall, cpu)) => {
                        sums[at].0 += wall / 2.0;
                        sums[at].1 += cpu / 2.0;
                    }
                    None => (walls[at], cpus[at]) = (None, None),
                }
            }
            for (at, (wall, cpu)) in sums.into_iter().enumerate() {
                walls[at].iter_mut().for_each(|walls| walls.push(wall));
                cpus[at].iter_mut().for_each(|cpus| cpus.push(cpu));
            }
        }
        let row = |kind, what: &str, rounds: &[_]| Row {
            kind,
            name: name.clone(),
            group: "program".to_owned(),
            what: what.to_owned(),
            cells: Row::cells_of(rounds),
        };
        Ok(vec![
            row(RowKind::Wall, "elapsed", &walls),
            row(RowKind::Cpu, "CPU time, the system's for it included", &cpus),
        ])
    }

    /// Also what a system has started since the last turn.
    fn hold(&self, agent: &Agent<'_>) {
        if let Some(cpu) = self.held_on {
            processes::hold(agent.pid(), &[cpu]);
        }
    }

    fn step(&mut self, what: &str) {
        (self.progress)(&Progress { what, done: self.done, all: self.all });
        self.done += 1;
    }
}

/// The order of a round's turns: there and back, so that a slow change of the machine affects all alike;
/// every other round begins at the other end.
pub(crate) fn order(systems: usize, round: usize) -> impl Iterator<Item = usize> {
    let there = (0..systems).chain((0..systems).rev());
    there.map(move |at| if round.is_multiple_of(2) { at } else { systems - 1 - at })
}

/// How many operations a batch has, and how many batches a turn has: one, of one operation, where that
/// takes longer than a turn.
fn batches_of(
    agent: &mut Agent<'_>,
    name: &str,
    turn: Duration,
) -> Result<(u64, u32), CompareError> {
    let count = agent.tune(name, turn / BATCHES)?;
    if count > 1 {
        return Ok((count, BATCHES));
    }
    let one = agent.time(name, 1, 1)?[0].max(1.0);
    Ok((1, ((turn.as_nanos() as f64 / one) as u32).clamp(1, BATCHES)))
}

/// A program with its arguments, for people.
pub(crate) fn command(words: &[OsString]) -> String {
    words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a program once: its elapsed time and its CPU time, in nanoseconds. In systems that run it in
/// processes of their own, all of their CPU time meanwhile counts.
fn run(
    agent: &mut Agent<'_>,
    words: &[OsString],
    name: &str,
    is_first: bool,
) -> Result<(f64, f64), CompareError> {
    let before = agent.cpu_ns();
    let ran = run_well(agent, words, name, is_first)?;
    let used = agent.cpu_ns().saturating_sub(before) as f64;
    Ok((ran.wall_ns, if agent.system().counts_own_time() { ran.cpu_ns } else { used }))
}

/// Runs a program once, which has to succeed.
pub(crate) fn run_well(
    agent: &mut Agent<'_>,
    words: &[OsString],
    name: &str,
    is_first: bool,
) -> Result<Ran, CompareError> {
    let ran = agent.run(words)?;
    if ran.status != 0 {
        let system = agent.system().to_string();
        let last = ran.errors.lines().last().unwrap_or_default();
        let colon = if last.is_empty() { "" } else { ": " };
        let why = format!("exit status {}{colon}{last}", ran.status);
        return Err(match is_first {
            true => CompareError::Program { program: name.to_owned(), system, why },
            false => CompareError::Broken { system, why },
        });
    }
    Ok(ran)
}

/// What was measured; `None`, and a note, where that is not possible on a system.
pub(crate) fn or_skipped<T>(
    measured: Result<T, CompareError>,
    agent: &Agent<'_>,
    name: &str,
    skipped: &mut Vec<Skipped>,
) -> Result<Option<T>, CompareError> {
    match measured {
        Ok(value) => Ok(Some(value)),
        Err(CompareError::Broken { why, .. }) => {
            let system = agent.system().to_string();
            skipped.push(Skipped { system, name: Some(name.to_owned()), why });
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_symmetric_and_rounds_alternate() {
        let order = |round| order(3, round).collect::<Vec<_>>();
        assert_eq!(order(0), [0, 1, 2, 2, 1, 0]);
        assert_eq!(order(1), [2, 1, 0, 0, 1, 2]);
    }

    #[test]
    fn names_mean_benchmarks_and_groups() {
        let one = |name: &str, group: &str| Benchmark {
            name: name.into(),
            group: group.into(),
            what: String::new(),
        };
        let all = [one("null", "calls"), one("stat", "calls"), one("fork", "processes")];
        let count = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
            chosen(&all, &names).map(|chosen| chosen.len())
        };
        assert_eq!((count(&[]).unwrap(), count(&["calls", "fork"]).unwrap()), (3, 3));
        assert_eq!(count(&["stat"]).unwrap(), 1);
        assert!(count(&["nul"]).unwrap_err().to_string().contains("--list"));
    }
}
