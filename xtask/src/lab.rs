//! The kernel lab: builds it in all four ways, boots it in QEMU, brings each race back and finds it, and measures what
//! the port's papers measured. Everything runs by virtual time (`lab/plugin/lockstep.c`), so a figure is the same on any
//! machine, and a run that failed can be had again by its seed.

pub mod figures;
mod run;
mod trace;

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{apt, repo};
use run::Machine;

/// What to do.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct Options {
    /// Build two of the four and boot them: what CI does
    #[arg(long)]
    pub quick: bool,
    /// Seeds with which the kernel without races must be right
    #[arg(long, default_value_t = 20)]
    pub seeds: u64,
    /// Only this: write what happened in one run, as lines that `fettle import` reads
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Only this: measure shares of time and speed-ups
    #[arg(long)]
    pub figures: bool,
    /// The seed of that run
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The ways to lock the kernel.
const BUILDS: [&str; 4] = ["up", "giant", "coarse", "fine"];
/// Races that a build may have: each with the one that has it.
const RACES: [&str; 5] =
    ["race-termination", "race-context", "race-timer", "race-idle", "race-order"];
/// With how many seeds a race is looked for.
const TRIES: u64 = 20;
/// The load for races: everything at once, in turns of very different length.
const STRESS: &str = "load=stress size=24";

/// What is missing to run the lab.
pub fn missing() -> Option<String> {
    let packages = ["qemu-system-x86", "gcc", "libc6-dev"].map(String::from);
    apt::ensure(&packages).err().map(|error| format!("{error:#}"))
}

/// The folders to build and boot in.
pub fn machine() -> Result<Machine> {
    Machine::new(&repo::root().join("lab"), &repo::target_folder("lab")?)
}

/// Does what is asked.
pub fn run(options: &Options) -> Result<bool> {
    if let Some(why) = missing() {
        anyhow::bail!("the kernel lab {why}");
    }
    let machine = machine()?;
    if let Some(file) = &options.trace {
        let kernel = machine.build(&["coarse"])?;
        let run = machine.boot_close(&kernel, 4, &format!("{STRESS} log=1"), options.seed)?;
        std::fs::write(file, trace::lines(&run.text))
            .with_context(|| format!("writing {}", file.display()))?;
        println!("{}: {} events; fettle import reads it", file.display(), run.events().count());
        return Ok(run.status == run::SUCCESS);
    }
    if options.figures {
        return figures::print(&machine);
    }
    if options.quick {
        return quick(&machine);
    }
    let right = without_races(&machine, options.seeds)?;
    let found = with_races(&machine)?;
    let figures = figures::print(&machine)?;
    Ok(right && found && figures)
}

/// Two builds, booted: the same seed twice gives the same log.
fn quick(machine: &Machine) -> Result<bool> {
    let mut right = true;
    for build in ["giant", "fine"] {
        let kernel = machine.build(&[build])?;
        let log = format!("{STRESS} log=1");
        let runs = [machine.boot(&kernel, 4, &log, 1)?, machine.boot(&kernel, 4, &log, 1)?];
        let other = machine.boot(&kernel, 4, &log, 2)?;
        let same = runs[0].text == runs[1].text && runs[0].text != other.text;
        let well = runs.iter().chain([&other]).all(|run| run.problem(24).is_none());
        println!("{build}: 4 CPUs, right {well}, the same log by the same seed {same}");
        right &= same && well;
    }
    Ok(right)
}

fn without_races(machine: &Machine, seeds: u64) -> Result<bool> {
    let mut right = true;
    for build in BUILDS {
        let kernel = machine.build(&[build])?;
        let cpus = if build == "up" { 1 } else { 4 };
        let mut bad = 0;
        for seed in 1..=seeds {
            let run = machine.boot(&kernel, cpus, STRESS, seed)?;
            if let Some(problem) = run.problem(24) {
                println!("{build}, seed {seed}: {problem}");
                bad += 1;
            }
        }
        println!("{build}: {bad} of {seeds} seeds found something");
        right &= bad == 0;
    }
    Ok(right)
}

fn with_races(machine: &Machine) -> Result<bool> {
    let mut found_all = true;
    for race in RACES {
        let kernel = machine.build(&["coarse", race])?;
        let mut found = None;
        for seed in 1..=TRIES {
            let run = machine.boot(&kernel, 4, STRESS, seed)?;
            if let Some(problem) = run.problem(24) {
                found = Some((seed, problem));
                break;
            }
        }
        match &found {
            Some((seed, problem)) => println!("{race}: found by seed {seed}: {problem}"),
            None => println!("{race}: not found by {TRIES} seeds"),
        }
        found_all &= found.is_some();
    }
    Ok(found_all)
}
