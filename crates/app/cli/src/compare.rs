//! `fettle compare`: the same program on several systems.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use fettle_compare::{
    Agent, Comparison, Folder, Options, Progress, SpentOptions, Subject, System, Tools, WhyOptions,
    adopt_orphans,
};
use fettle_report::render::json;

use crate::output;
use fettle_types::parse_time;

/// Run the same program on several systems, and compare what they make of it
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle compare --on native --on gvisor:ptrace --check
  fettle compare --on native --on uml --on gvisor:ptrace
  fettle compare --on native --on uml --load 0,1,2 calls fork
  fettle compare --on native --on 'bwrap --bind / /' --rounds 40 files
  fettle compare --on native --on gvisor:ptrace -- sh -c 'ls -lR /etc | wc -l'
  fettle compare --on native --on uml --json --html uml.html null
  fettle compare --on uml --on gvisor:ptrace --why null,read-4k
  fettle compare --on gvisor:ptrace --why --calls 15 -- sh -c 'ls -lR /etc | wc -l'

Systems: native (this kernel), uml (User-Mode Linux), gvisor:PLATFORM (systrap, ptrace, kvm), or a
command that runs the program that is put behind it. Ratios are to the first. Without a program,
operations of a benchmark are measured; their names and groups choose among them (--list).

Exit status: 0 done; 1 done, with something left out; 2 error.")]
pub struct CompareArgs {
    /// A system (may be repeated); ratios are to the first
    #[arg(long = "on", value_name = "SYSTEM", required_unless_present = "list")]
    on: Vec<String>,
    /// Operations to measure, or groups of them [default: all]
    #[arg(value_name = "BENCHMARK", conflicts_with = "program")]
    benchmarks: Vec<String>,
    /// A program to run instead
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
    /// Loads of the machine, one after the other: threads that compute for each processor
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    load: Vec<u32>,
    /// Rounds; each has two turns of every system. Intervals need 6 [default: 20; 5 with a program]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Hold each system on one processor: ratios of systems that serve calls in other processes then agree
    /// better from run to run
    #[arg(long)]
    hold: bool,
    /// How long a turn of an operation takes, about
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_time)]
    turn: Duration,
    /// List what can be measured
    #[arg(long)]
    list: bool,
    /// Only say of each system whether it starts here, and what it lacks
    #[arg(long, conflicts_with_all = ["benchmarks", "program"])]
    check: bool,
    /// Say where the time of an operation goes: hand-over, work, calls of this kernel, way back. Without a
    /// name: where that of the program goes, and which of its system calls cost most. Needs root
    #[arg(long, value_name = "BENCHMARK", num_args = 0..=1, value_delimiter = ',', conflicts_with_all = ["benchmarks", "check", "list", "load", "turn", "html"])]
    why: Option<Vec<String>>,
    /// With --why and a program: list so many kinds of its system calls, and of those that each system makes
    #[arg(long, value_name = "N", requires = "why", requires = "program")]
    calls: Option<usize>,
    /// With --why: let each system use all processors, instead of one
    #[arg(long, requires = "why")]
    spread: bool,
    /// With --why: show how many calls took how long, not the means alone
    #[arg(long, requires = "why")]
    distribution: bool,
    /// With --why: write a trace of each operation on each system into this folder, for
    /// `fettle requests --schema hosted`
    #[arg(long, value_name = "DIR", requires = "why")]
    traces: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write a page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    tools: ToolArgs,
    /// No colours
    #[arg(long)]
    no_color: bool,
}

/// The programs that other systems are.
#[derive(Args, Clone, Debug)]
pub(crate) struct ToolArgs {
    /// User-Mode Linux's kernel
    #[arg(long, value_name = "FILE", default_value = "linux.uml")]
    uml: PathBuf,
    /// gVisor's runsc
    #[arg(long, value_name = "FILE", default_value = "runsc")]
    runsc: PathBuf,
}

impl ToolArgs {
    /// What they name.
    pub(crate) fn tools(&self) -> Tools {
        Tools { uml: self.uml.clone(), runsc: self.runsc.clone() }
    }
}

/// Most threads that compute for each processor.
const LOAD_MAX: u32 = 64;
/// Most rounds.
const ROUNDS_MAX: usize = 10_000;

/// Runs `fettle compare`: 1 if something was left out.
pub fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let stop = fettle_live::catch_signals().context("cannot catch signals")?;
    adopt_orphans().context("cannot become the parent of orphans")?;
    if args.list {
        return list(stop);
    }
    let systems = args.on.iter().map(|name| name.parse()).collect::<Result<Vec<System>, _>>()?;
    let tools = args.tools.tools();
    if args.check {
        return check(&systems, &tools, stop);
    }
    match args.why.as_deref() {
        None => {}
        Some([]) if args.program.is_empty() => {
            bail!("--why needs an operation (--list shows them), or a program behind --")
        }
        Some([]) => return spent(args, systems, tools, stop),
        Some(_) if !args.program.is_empty() => {
            bail!("--why: either operations, or a program behind --")
        }
        Some(calls) => return why(args, calls, systems, tools, stop),
    }
    let comparison = fettle_compare::compare(&options(args, systems, tools)?, stop, &mut shown())?;
    done(&comparison, args)
}

fn options(args: &CompareArgs, systems: Vec<System>, tools: Tools) -> anyhow::Result<Options> {
    let subject = match args.program.is_empty() {
        true => Subject::Benchmarks(args.benchmarks.clone()),
        false => Subject::Program(args.program.clone()),
    };
    let usual = if args.program.is_empty() { 20 } else { 5 };
    let rounds = rounds(args, usual)?;
    if let Some(load) = args.load.iter().find(|load| **load > LOAD_MAX) {
        bail!("--load {load}: at most {LOAD_MAX} threads for each processor");
    }
    if args.turn < Duration::from_micros(100) || args.turn > Duration::from_secs(60) {
        bail!("--turn must be 100us to 60s");
    }
    Ok(Options {
        systems,
        tools,
        subject,
        loads: args.load.clone(),
        rounds,
        hold: args.hold,
        turn: args.turn,
    })
}

fn rounds(args: &CompareArgs, usual: usize) -> anyhow::Result<usize> {
    let rounds = args.rounds.unwrap_or(usual);
    if rounds == 0 || rounds > ROUNDS_MAX {
        bail!("--rounds must be 1 to {ROUNDS_MAX}");
    }
    Ok(rounds)
}

/// Shows how far it is, on a terminal.
pub(crate) fn shown() -> impl FnMut(&Progress<'_>) {
    let shows = std::io::stderr().is_terminal();
    let mut last = None;
    move |progress| {
        let percent = progress.done * 100 / progress.all.max(1);
        let now = std::time::Instant::now();
        let is_due = last.is_none_or(|last| now.duration_since(last) > Duration::from_millis(100));
        if shows && is_due {
            last = Some(now);
            output::show_again(format_args!("{percent:3} % {}", progress.what));
        }
    }
}

fn done(comparison: &Comparison, args: &CompareArgs) -> anyhow::Result<ExitCode> {
    output::clear_progress();
    if let Some(path) = &args.html {
        output::write_to(Some(path), &fettle_compare::page(comparison))?;
    }
    output::print(&match args.json {
        true => json(comparison)?,
        false => fettle_compare::text(comparison, output::terminal(args.no_color)),
    })?;
    Ok(ExitCode::from(u8::from(!comparison.skipped.is_empty())))
}

/// Rounds of an explanation.
const WHY_ROUNDS: usize = 10;

fn why(
    args: &CompareArgs,
    calls: &[String],
    systems: Vec<System>,
    tools: Tools,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let rounds = rounds(args, WHY_ROUNDS)?;
    if let Some(folder) = &args.traces {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let options = WhyOptions {
        systems,
        tools,
        calls: calls.to_vec(),
        rounds,
        spread: args.spread,
        traces: args.traces.clone(),
    };
    let found = fettle_compare::why(&options, stop, &mut shown())?;
    output::clear_progress();
    output::print(&match args.json {
        true => json(&found)?,
        false => {
            let terminal = output::terminal(args.no_color);
            fettle_compare::why_text(&found, args.distribution, terminal)
        }
    })?;
    Ok(ExitCode::from(u8::from(!found.skipped.is_empty())))
}

/// Rounds of the explanation of a program.
const SPENT_ROUNDS: usize = 5;
/// System calls that are listed as the costliest.
const COSTLIEST: usize = 3;

fn spent(
    args: &CompareArgs,
    systems: Vec<System>,
    tools: Tools,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    if args.spread || args.distribution || args.traces.is_some() {
        bail!(
            "--spread, --distribution and --traces are of operations; a program has all processors unless --hold is given"
        );
    }
    let options = SpentOptions {
        systems,
        tools,
        program: args.program.clone(),
        rounds: rounds(args, SPENT_ROUNDS)?,
        hold: args.hold,
    };
    let found = fettle_compare::spent(&options, stop, &mut shown())?;
    output::clear_progress();
    output::print(&match args.json {
        true => json(&found)?,
        false => {
            let terminal = output::terminal(args.no_color);
            fettle_compare::spent_text(&found, COSTLIEST, args.calls, terminal)
        }
    })?;
    Ok(ExitCode::from(u8::from(!found.skipped.is_empty())))
}

fn list(stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let folder = Folder::new()?;
    let mut agent = Agent::start(&System::Native, &Tools::default(), &folder, 0, stop)?;
    let mut text = String::new();
    for benchmark in agent.list()? {
        text += &format!("{:<11} {:<12} {}\n", benchmark.group, benchmark.name, benchmark.what);
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn check(systems: &[System], tools: &Tools, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let folder = Folder::new()?;
    let mut status = 0;
    for (number, system) in systems.iter().enumerate() {
        let begin = std::time::Instant::now();
        let line = match Agent::start(system, tools, &folder, number, stop) {
            Ok(agent) => {
                let release = agent.version();
                let colon = if release.is_empty() { "" } else { ": " };
                let seconds = begin.elapsed().as_secs_f64();
                format!("{system} starts in {seconds:.1} s{colon}{release}")
            }
            Err(fettle_compare::CompareError::Stopped) => bail!("ended before it was done"),
            Err(error) => {
                status = 1;
                error.to_string()
            }
        };
        output::print(&format!("{line}\n"))?;
    }
    Ok(ExitCode::from(status))
}
