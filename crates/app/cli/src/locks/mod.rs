//! `fettle locks`: what threads wait for, and for which threads.

mod hung;
pub mod names;
mod object;
pub mod stack;

use fettle_types::Pid;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use fettle_abi::ring::Policy;
use fettle_code::{Depth, Mode};
use fettle_live::{ExitStatus, Process};
use fettle_locks::{Report, drawing, graph};
use fettle_record::locking::{self, Locking};
use fettle_record::unmatched::Unmatched;
use fettle_record::{Options, Outcome, Outliving, Selection};
use fettle_tune::attached::{self, Whom};
use fettle_tune::{Target, leftovers};
use serde_json::json;

use crate::locks::names::Files;
use crate::{measured, output, record, threads, tune};

/// Show which locks threads wait for, who holds them meanwhile, and which deadlocks are possible.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle locks -- ./server
  fettle locks -o locks.txt -- pigz -k big.tar
  fettle locks -p 1234 --duration 10s
  fettle locks -p 1234 --hung
  fettle locks --json -o locks.json -- ./server
  fettle locks --dot orders.dot --folded waits.folded -- ./server
  fettle locks --svg locks.svg -- ./server
  fettle locks --trace locks.fettle -- ./server      # then: fettle ui locks.fettle
  fettle locks --from run.fettle

Every function of locks is counted where it is called, in the program's own threads: mutexes,
reader-writer locks, spin locks, semaphores, condition variables and barriers of the C library, and
the slow paths of Rust's, parking_lot's and Abseil's locks. The program's output, exit status and signals
are its own.

Exit status: the program's; 0 with --pid; 1 with --hung where threads wait in a circle; 2 error.")]
pub struct LocksArgs {
    /// A running process, until Ctrl-C, --duration, or its end
    #[arg(short, long, value_name = "PID", conflicts_with = "command")]
    pid: Option<Pid>,
    /// Report from a trace that has every use of a lock as an event: of `fettle record --locks`, of an
    /// import, or of a program's own
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["pid", "command", "trace", "libraries"])]
    from: Option<PathBuf>,
    /// With --pid: say at once who waits for whom, without probes
    #[arg(long, requires = "pid", conflicts_with_all = ["duration", "libraries", "alone"])]
    hung: bool,
    /// With --pid: stop after this time, such as 10s, 500ms or 2m
    #[arg(long, value_name = "TIME", value_parser = fettle_types::parse_time, requires = "pid")]
    duration: Option<Duration>,
    /// With --pid: only this process, not those that it was forked from or with, or has forked
    #[arg(long = "no-group", requires = "pid")]
    alone: bool,
    /// More libraries that have functions of locks (Rust's, Abseil's), by path or file name: * and ?
    /// are wild (may be repeated)
    #[arg(long = "lib", value_name = "GLOB")]
    libraries: Vec<String>,
    /// Threads that can be counted at once
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_threads: u32,
    /// Show so many lock classes
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Write the report to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the order in which locks are taken to this file, for Graphviz (`dot -Tsvg`)
    #[arg(long, value_name = "FILE", conflicts_with = "hung")]
    dot: Option<PathBuf>,
    /// Draw who blocked whom, and the order in which locks are taken, into this file
    #[arg(long, value_name = "FILE", conflicts_with = "hung")]
    svg: Option<PathBuf>,
    /// Keep a trace in this folder, in which `fettle ui` shows the locks
    #[arg(long, value_name = "FOLDER", conflicts_with = "hung")]
    trace: Option<PathBuf>,
    /// Write waits to this file as folded stacks, for flamegraph.pl, inferno or speedscope
    #[arg(long, value_name = "FILE", conflicts_with = "hung")]
    folded: Option<PathBuf>,
    /// Which end of a wait is at the root of the folded stacks
    #[arg(long, value_enum, value_name = "END", default_value_t = Charge::Holder)]
    charge: Charge,
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
    /// Say nothing but the report and errors
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required_unless_present_any = ["pid", "from"])]
    command: Vec<OsString>,
}

/// Which end of a wait it is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Charge {
    /// The place that held the lock
    Holder,
    /// The place that waited
    Waiter,
}

/// Runs the command.
pub fn run(args: LocksArgs) -> anyhow::Result<ExitCode> {
    if let Some(trace) = &args.from {
        return run_from(&args, trace);
    }
    match args.pid {
        Some(pid) if args.hung => hung::run(pid, args.json, args.output.as_deref()),
        Some(pid) => run_attached(&args, pid),
        None => run_launched(&args),
    }
}

/// What is recorded; the trace's folder is used by this command alone.
fn options(args: &LocksArgs, command: Vec<OsString>, output: PathBuf) -> Options {
    let mut libraries = locking::libraries();
    libraries.extend(args.libraries.iter().cloned());
    Options {
        command,
        output,
        remote: None,
        mode: Mode::Locks,
        depth: Depth::ALL,
        selection: Selection { only: locking::patterns(), ..Selection::default() },
        user_probe: None,
        arguments: Vec::new(),
        unmatched: Unmatched::new(&args.libraries, &Selection::default()),
        libraries,
        // No records are left.
        ring_bytes: 1 << 16,
        policy: Policy::Drop,
        threads: args.max_threads,
        shuffle: None,
        kernel: None,
        min_duration: None,
        outliving: Outliving { recorded: false, notice: |text| say!("fettle: {text}") },
        cache: fettle_record::cache::default_path(),
        notify: (!args.quiet && !args.json).then_some(record::show_preparing),
    }
}

/// Where the recording's trace goes; one that was not asked for lies in `folder`, which goes at the end.
fn trace_folder(args: &LocksArgs, folder: &Path) -> PathBuf {
    args.trace.clone().unwrap_or_else(|| folder.join("locks.fettle"))
}

fn run_launched(args: &LocksArgs) -> anyhow::Result<ExitCode> {
    let folder = tempfile::tempdir().context("cannot make a folder for the recording")?;
    let options = options(args, args.command.clone(), trace_folder(args, folder.path()));
    threads::can_be_started()?;
    let stop = fettle_live::catch_signals()?;
    let outcome = match fettle_record::record(&options, stop, None, &mut |_, _| ()) {
        Ok(outcome) => outcome,
        Err(error) => {
            drop(folder);
            return record::failed(error.into(), args.quiet);
        }
    };
    let reported = notify(args, &outcome);
    // Before this process ends as the program did, by a signal perhaps.
    drop(folder);
    reported?;
    match outcome.status {
        Some(status) if status != ExitStatus::Code(0) => record::pass_on(status),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn run_attached(args: &LocksArgs, pid: Pid) -> anyhow::Result<ExitCode> {
    let process: Process = Target::open_settled(pid)?;
    output::say_stopped(&process);
    let journals = tune::folder()?;
    let _claim = leftovers::clear(&journals, &process, args.alone)?;
    let folder = tempfile::tempdir().context("cannot make a folder for the recording")?;
    let name = fettle_tune::recording::shown(&process).into();
    let options = options(args, vec![name], trace_folder(args, folder.path()));
    threads::can_be_started()?;
    let stop = fettle_live::catch_signals().context(tune::UNHANDLED)?;
    if !args.quiet && args.duration.is_none() {
        say!("fettle: counting until Ctrl-C");
    }
    fettle_tune::lower_priority();
    let whom = Whom { process: &process, alone: args.alone };
    let watch: fettle_record::record::Watch<'_> = (stop, None, &mut |_, _| ());
    let recorded = attached::record(whom, &journals, &options, args.duration, watch)
        .map_err(|error| tune::explained(&journals, &process, error))?;
    notify(args, &recorded.outcome)?;
    if !args.quiet {
        for line in fettle_tune::recording::still_mapped(&recorded.stuck, "copies with probes") {
            say!("fettle: {line}");
        }
        let longest = measured::longest(&recorded.stops);
        say!("fettle: threads were stopped for at most {longest:.2} ms at once");
    }
    Ok(ExitCode::SUCCESS)
}

/// How a note ends that says that a file was left as it is.
const NO_FUNCTION: &str = "no function of it can be moved";

/// Writes the report.
fn notify(args: &LocksArgs, outcome: &Outcome) -> anyhow::Result<()> {
    let Some(locking) = &outcome.locking else { bail!("nothing was counted") };
    if !args.quiet {
        // Most files have no function of locks.
        let notes = outcome.finished.manifest.notes.iter();
        for note in notes.filter(|note| !note.ends_with(NO_FUNCTION)) {
            say!("fettle: {note}");
        }
        for (program, reason) in &outcome.refused {
            say!("fettle: no locks of {program} are known: {reason}");
        }
        if locking.functions == 0 {
            say!(
                "fettle: no function of locks was found: a static program without symbols has none \
                 that can be told, and other languages' are in libraries that --lib names"
            );
        }
    }
    let report = report(locking);
    write(args, &report)
}

/// From a trace's events.
fn run_from(args: &LocksArgs, folder: &Path) -> anyhow::Result<ExitCode> {
    let trace = output::open(folder)?;
    let found = fettle_follow::contention(&trace, &names::variables(&trace))?;
    let Some(found) = found else {
        let folder = folder.display();
        if trace.has_locks() {
            bail!(
                "{folder} has a report that was counted, and no event for each use of a lock: `fettle ui {folder}` shows it"
            );
        }
        bail!("{folder} has no event of a lock; `fettle record --locks` records them");
    };
    write(args, &found.report)?;
    output::warned(Ok(found.problems))
}

/// Writes what is asked for.
fn write(args: &LocksArgs, report: &Report) -> anyhow::Result<()> {
    if args.dot.is_some() {
        output::write_to(args.dot.as_deref(), &graph::dot(report))?;
    }
    if args.svg.is_some() {
        output::write_to(args.svg.as_deref(), &drawing::svg(report))?;
    }
    if args.folded.is_some() {
        let charged = match args.charge {
            Charge::Holder => graph::Charged::Holder,
            Charge::Waiter => graph::Charged::Waiter,
        };
        output::write_to(args.folded.as_deref(), &graph::folded(report, charged))?;
    }
    let mut value = serde_json::to_value(report)?;
    value["version"] = json!(1);
    if let Some(trace) = &args.trace {
        fettle_trace::locks::write(trace, &value)?;
    }
    if args.json {
        output::write_to(args.output.as_deref(), &format!("{value:#}\n"))
    } else {
        output::write_to(args.output.as_deref(), &fettle_locks::text::text(report, args.limit))
    }
}

fn report(locking: &Locking) -> Report {
    let files = Files::new(&locking.maps);
    let times = (locking.ticks, locking.duration_ns);
    fettle_locks::report(&locking.threads, &locking.convoys, times, &files)
}
