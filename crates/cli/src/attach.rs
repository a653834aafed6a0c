//! `fettle record -p PID --mode …`: what a process executes that runs already.

use std::process::ExitCode;

use anyhow::{Context, bail};
use fettle_live::Process;
use fettle_report::render::count;
use fettle_tune::recording::{Recorded, Recording, Told};
use fettle_tune::{Stop, Wanted};
use serde_json::json;

use crate::mode::ModeArg;
use crate::record::Args;
use crate::tune::{check_unchanged, explained, folder, longest};

/// Counts what the process `pid` executes, until the time is over or Ctrl-C.
pub fn run(args: &Args, mode: ModeArg, pid: u32) -> anyhow::Result<ExitCode> {
    let recording = Recording {
        output: args.output_for(&format!("pid-{pid}").into())?,
        told: told(mode)?,
        wanted: Wanted { libraries: args.libraries.clone(), selection: args.select.selection()? },
        duration: args.duration,
    };
    check(args)?;
    let stop = Stop(fettle_live::catch_signals().context("signals cannot be handled")?);
    let journals = folder()?;
    let process = Process::open(pid as i32)?;
    check_unchanged(&journals, &process)?;
    let talk = !args.quiet && !args.json;
    if talk && args.duration.is_none() {
        eprintln!("fettle: recording until Ctrl-C");
    }
    fettle_tune::give_way();
    let recorded = fettle_tune::recording::record(&process, &journals, &recording, stop)
        .map_err(|error| explained(&journals, &process, error))?;
    if args.json {
        eprintln!("{}", as_json(&recorded, &recording));
    } else if talk {
        tell(&recorded, &recording);
    }
    Ok(ExitCode::SUCCESS)
}

fn told(mode: ModeArg) -> anyhow::Result<Told> {
    match mode {
        ModeArg::Count => Ok(Told::Calls),
        ModeArg::Blocks => Ok(Told::Blocks),
        ModeArg::Edges => Ok(Told::Edges),
        ModeArg::Events | ModeArg::Time | ModeArg::Cpu | ModeArg::Sample | ModeArg::Plain => bail!(
            "a process that runs already has no memory for times of each thread: with --pid, \
             --mode is count, blocks or edges (or leave it out, for the kernel's events)"
        ),
    }
}

/// Refuses what would do nothing.
fn check(args: &Args) -> anyhow::Result<()> {
    let given = [
        (args.kernel || args.payload > 0 || args.call_times, "the kernel's events"),
        (!args.arguments.is_empty() || args.locks, "--args and --locks"),
        (args.depth.is_some(), "--depth"),
        (args.when_full.is_some(), "--when-full"),
        (args.to.is_some(), "--to"),
    ];
    match given.iter().find(|(given, _)| *given) {
        Some((_, what)) => bail!("{what} cannot be had together with --pid and --mode"),
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
        "longest_stop_ms": longest_ms(recorded),
        "notes": manifest.notes,
    })
}

fn tell(recorded: &Recorded, recording: &Recording) {
    let manifest = &recorded.manifest;
    for note in &manifest.notes {
        eprintln!("fettle: {note}");
    }
    let what = match recording.told {
        Told::Calls => format!("{} calls", count(manifest.totals.calls)),
        Told::Blocks | Told::Edges => {
            format!("{} passages between blocks", count(recorded.profile.events))
        }
    };
    let shown = recording.output.display();
    eprintln!(
        "fettle: {what} of {} functions in {:.1} s; threads stood still at most {:.2} ms",
        count(recorded.functions),
        manifest.duration_ns as f64 / 1e9,
        longest_ms(recorded),
    );
    eprintln!(
        "fettle: the process has its own code again; trace in {shown}; next: {}",
        match recording.told {
            Told::Calls => format!("fettle report {shown}"),
            Told::Blocks | Told::Edges => format!("fettle report {shown} --blocks"),
        }
    );
}
