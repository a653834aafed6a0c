//! `fettle record -p PID --mode …`: what a process executes that runs already.

use crate::old_keys::with_old_keys;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use fettle_live::{Claim, Process};
use fettle_report::render::count;
use fettle_tune::attached::{self, Whom};
use fettle_tune::recording::{Recorded, Recording, Reported, shown, still_mapped};
use fettle_tune::{Stop, Target, Wanted, leftovers};
use fettle_types::Pid;
use serde_json::json;

use crate::measured::{longest, milliseconds};
use crate::mode::ModeArg;
use crate::record::{self, Args};
use crate::tune::{UNHANDLED, explained, folder};

/// Fewer calls than any program makes that works.
const FEW: u64 = 100;

/// Records what the process `pid` executes, until the time is over or Ctrl-C.
pub fn run(args: &Args, pid: Pid) -> anyhow::Result<ExitCode> {
    let reported = match args.mode {
        Some(ModeArg::Count) => Some(Reported::Calls),
        Some(ModeArg::Blocks) => Some(Reported::Blocks),
        Some(ModeArg::Edges) => Some(Reported::Edges),
        _ => None,
    };
    match reported {
        Some(reported) => run_counted(args, reported, pid),
        None => run_attached(args, pid),
    }
}

/// The process, which is unmodified, and the claim to it; nothing has been done yet.
fn open(args: &Args, pid: Pid) -> anyhow::Result<(Process, Claim)> {
    let process = Target::open_settled(pid)?;
    crate::output::say_stopped(&process);
    let claim = leftovers::clear(&folder()?, &process, args.alone)?;
    if !args.quiet && !args.json {
        let end = match args.duration {
            Some(time) => format!("for {time:?}"),
            None => "until Ctrl-C".to_owned(),
        };
        say!("fettle: recording {end}, once its code has been read");
    }
    fettle_tune::lower_priority();
    Ok((process, claim))
}

/// Records calls and times: the process is followed meanwhile.
fn run_attached(args: &Args, pid: Pid) -> anyhow::Result<ExitCode> {
    let (process, _claim) = open(args, pid)?;
    let options =
        record::options(args, vec![shown(&process).into()], &format!("pid-{pid}").into())?;
    let journals = folder()?;
    let recorded = record::watched(args, &options, true, |watch| {
        let whom = Whom { process: &process, alone: args.alone };
        attached::record(whom, &journals, &options, args.duration, watch)
            .map_err(|error| explained(&journals, &process, error))
    })?;
    let outcome = &recorded.outcome;
    if args.json {
        let mut json = record::as_json(outcome, &options.output);
        json["longest_pause_ms"] = longest(&recorded.stops).into();
        let stops = recorded.stops.iter().map(|stop| milliseconds(*stop));
        json["pauses_ms"] = stops.collect::<Vec<_>>().into();
        json["jumps"] = recorded.installed.jumps.into();
        json["stuck"] = json!(recorded.stuck);
        say!("{}", with_old_keys(json));
    }
    record::report_end(args, &options, outcome);
    report_where_code_is(&process, args, outcome.finished.manifest.totals.calls);
    if !args.quiet && !args.json {
        let stuck = recorded.stuck.iter().any(|(stuck, _)| *stuck == process.pid());
        report_stops(&recorded.stops, Left::of(outcome.status.is_some(), stuck));
    }
    if !args.quiet && !args.json {
        for line in still_mapped(&recorded.stuck, "copies with probes") {
            say!("fettle: {line}");
        }
    }
    record::end(None, outcome)
}

/// Where the code is of a process that has hardly called a probed function, unless libraries were
/// asked for: many programs are no more than a call of a library.
fn report_where_code_is(process: &Process, args: &Args, calls: u64) {
    // A user probe counts what it wants, which need not be calls.
    if args.probe.is_some() || calls >= FEW || args.quiet || args.json || !args.libraries.is_empty()
    {
        return;
    }
    let main = std::fs::read_link(process.executable()).unwrap_or_default();
    let mut sizes: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for mapping in process.maps().unwrap_or_default().into_iter().filter(|m| m.executable) {
        let path = mapping.path.filter(|path| path.is_absolute() && *path != main);
        *sizes.entry(path.unwrap_or_default()).or_default() += mapping.end.0 - mapping.start.0;
    }
    sizes.remove(Path::new(""));
    let Some((path, _)) = sizes.into_iter().max_by_key(|(_, size)| *size) else { return };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    say!(
        "fettle: {} of the program's own functions; --lib '{name}' records those of its largest \
         library, --lib '*' those of all",
        if calls == 0 { "no call" } else { "hardly a call" },
    );
}

/// What is left of a recording in the process that was named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    /// Code that it does not enter any more.
    Code,
    /// The process has ended.
    Gone,
}

impl Left {
    fn of(ended: bool, stuck: bool) -> Left {
        match (ended, stuck) {
            (true, _) => Left::Gone,
            (false, true) => Left::Code,
            (false, false) => Left::Nothing,
        }
    }

    fn reported(self) -> &'static str {
        match self {
            Left::Nothing => "the process has its own code again",
            Left::Code => "the process runs its own code again",
            Left::Gone => "the process has ended",
        }
    }
}

fn report_stops(stops: &[Duration], left: Left) {
    say!("fettle: {}; longest pause of its threads {:.2} ms", left.reported(), longest(stops));
}

/// Counts, which takes no following.
fn run_counted(args: &Args, reported: Reported, pid: Pid) -> anyhow::Result<ExitCode> {
    let recording = Recording {
        output: args.output_for(&format!("pid-{pid}").into())?,
        reported,
        wanted: Wanted { libraries: args.libraries.clone(), selection: args.select.selection()? },
        alone: args.alone,
        duration: args.duration,
    };
    check(args)?;
    let stop = Stop(fettle_live::catch_signals().context(UNHANDLED)?);
    fettle_live::stop_between_pauses().context(UNHANDLED)?;
    let (process, _claim) = open(args, pid)?;
    let journals = folder()?;
    let recorded = fettle_tune::recording::record(&process, &journals, &recording, stop)
        .map_err(|error| explained(&journals, &process, error))?;
    if args.json {
        say!("{}", with_old_keys(as_json(&recorded, &recording)));
    } else if !args.quiet {
        let stuck = recorded.profile.stuck.iter().any(|(stuck, _)| *stuck == process.pid());
        notify(&recorded, &recording, Left::of(!process.is_same(), stuck));
    }
    let calls = recorded.manifest.totals.calls;
    report_where_code_is(&process, args, calls.max(recorded.profile.events));
    Ok(ExitCode::SUCCESS)
}

/// Refuses what would do nothing.
fn check(args: &Args) -> anyhow::Result<()> {
    let given = [
        (args.kernel || args.payload > 0 || args.call_times, "the kernel's events"),
        (!args.arguments.is_empty() || args.locks, "--args and --locks"),
        (args.depth.is_some(), "--depth"),
        (args.when_full.is_some(), "--on-full"),
        (args.to.is_some(), "--to"),
    ];
    match given.iter().find(|(given, _)| *given) {
        Some((_, what)) => bail!(
            "with --pid, {what} cannot be had together with the modes count, blocks and edges"
        ),
        None => Ok(()),
    }
}

fn longest_ms(recorded: &Recorded) -> f64 {
    let profile = &recorded.profile;
    longest(&profile.installed.stops).max(longest(&profile.stops))
}

fn as_json(recorded: &Recorded, recording: &Recording) -> serde_json::Value {
    let manifest = &recorded.manifest;
    json!({
        "version": 1,
        "trace": recording.output,
        "functions": recorded.functions,
        "calls": manifest.totals.calls,
        "passages": recorded.profile.events,
        "duration_ns": manifest.duration_ns,
        "longest_pause_ms": longest_ms(recorded),
        "notes": manifest.notes,
    })
}

fn notify(recorded: &Recorded, recording: &Recording, left: Left) {
    let manifest = &recorded.manifest;
    for note in &manifest.notes {
        say!("fettle: {note}");
    }
    let what = match recording.reported {
        Reported::Calls => format!("{} calls", count(manifest.totals.calls)),
        Reported::Blocks | Reported::Edges => {
            format!("{} passages between blocks", count(recorded.profile.events))
        }
    };
    let shown = recording.output.display();
    say!(
        "fettle: {what} of {} functions in {:.1} s; longest pause of its threads {:.2} ms",
        count(recorded.functions),
        manifest.duration_ns as f64 / 1e9,
        longest_ms(recorded),
    );
    say!(
        "fettle: {}; trace in {shown}; next: {}",
        left.reported(),
        match recording.reported {
            Reported::Calls => format!("fettle report {shown}"),
            Reported::Blocks | Reported::Edges => format!("fettle report {shown} --blocks"),
        }
    );
}
