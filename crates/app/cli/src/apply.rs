//! `fettle tune --apply FILE -- PROGRAM`: a program that is laid out as soon as it has its libraries.
//!
//! It is an ordinary child: its output, signals from the terminal and its exit status are its own.
//! It waits for nothing; it is changed as any running process is, shortly after its start. If that
//! fails, the error is reported and the program goes on unmodified.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use fettle_live::{ExitStatus, Journal, Launch, Process, Undoing};
use fettle_tune::{Options, Stop, Target, TuneError};

/// So long the loader may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Signals that come to us alone are passed on at least so often.
const PERIOD: Duration = Duration::from_millis(50);

/// Runs the program; `options` have the profile.
pub fn run(
    program: &[OsString],
    folder: &Path,
    options: &Options,
    stop: Stop<'_>,
) -> anyhow::Result<ExitCode> {
    let (name, arguments) = program.split_first().context("no program was named")?;
    let launch = Launch::new(name, arguments.iter().cloned());
    let mut started = None;
    let mut begin = |pid| {
        let done = Process::open(pid)
            .map_err(TuneError::from)
            .and_then(|process| lay_out(started.insert(process), folder, options, stop));
        match done {
            Ok(said) => say!("fettle: {said}"),
            Err(_) if fettle_live::has_ended(pid) => {
                say!("fettle: the program has ended before it could be laid out");
            }
            Err(error) => say!("fettle: the program runs as it is: {error}"),
        }
    };
    let status =
        fettle_live::run_untraced(&launch, PERIOD, &mut begin, &mut |status| status.is_some())?;
    if let Some(process) = started {
        remove_logs(folder, &process);
    }
    match status {
        ExitStatus::Code(code) => Ok(ExitCode::from(code as u8)),
        ExitStatus::Signal { signal, .. } => fettle_record::die_by(signal),
    }
}

/// Lays the program out; says what was done.
fn lay_out(
    process: &Process,
    folder: &Path,
    options: &Options,
    stop: Stop<'_>,
) -> Result<String, TuneError> {
    let begun = Instant::now();
    // Its loader has a list when it is done.
    Target::when_loaded(process, PATIENCE, &|| stop.is_wanted())?;
    let outcome = fettle_tune::tune(process, folder, options, stop, |_| ())?;
    let jumps = outcome.installed.map_or(0, |installed| installed.jumps);
    let differing = match outcome.fit.unwrap_or_default().differing {
        0 => String::new(),
        differing => format!("; {differing} functions of the profile differ"),
    };
    let refused: String = outcome
        .refused
        .iter()
        .map(|(path, why)| format!("; {} is left unmodified: {why}", path.display()))
        .collect();
    Ok(format!(
        "{jumps} functions have rewritten text {:.0} ms after the start{differing}{refused}",
        begun.elapsed().as_secs_f64() * 1e3,
    ))
}

/// Removes the logs of the program and of those that it forked, as far as they have ended. A forked
/// child that still runs and has inherited rewritten text gets a log of its own.
fn remove_logs(folder: &Path, program: &Process) {
    for pid in Journal::list(folder) {
        let runs = |journal: &Journal| Process::open(pid).is_ok_and(|p| journal.is_of(&p));
        if !Journal::may_be_of_member(folder, pid, program) {
            continue;
        }
        let Ok(Some(journal)) = Journal::open(folder, pid) else { continue };
        if !runs(&journal) {
            // Nothing remains of the process: this only removes its log.
            let _ = fettle_live::undo(journal, Undoing::within(Duration::ZERO));
        }
    }
}
