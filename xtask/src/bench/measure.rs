//! One run of one variant: CPU time of the program alone and of everything together.
//!
//! The program's own time comes from inside (`benches/probe/cpu.c` is linked into it and writes
//! the kernel's account of its own process at its end). The time of everything is the kernel's
//! account of the children that were waited for: program, recorder and whatever else it started.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;

use crate::proc::{self, Ending, Outcome};

/// Seconds of one run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// CPU time of the program's own process.
    pub program: f64,
    /// CPU time of everything that was started, recorder included.
    pub everything: f64,
    /// Elapsed time.
    pub wall: f64,
}

/// What a run showed besides its times.
pub struct Run {
    /// Its times.
    pub sample: Sample,
    /// Its standard output, to be the same in each variant.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

/// Runs a command and measures it. Nothing else may be started by this process meanwhile.
pub fn run(mut command: Command, folder: &Path) -> Result<Run> {
    let account = folder.join("cpu");
    let _ = std::fs::remove_file(&account);
    command.current_dir(folder).env("FETTLE_BENCH_CPU", &account);
    let described = format!("{command:?}");
    let (outcome, everything) = timed(command, folder, Duration::from_secs(300))?;
    ensure!(
        outcome.ending == Ending::Exit(0),
        "{described}: {}: {}",
        outcome.ending,
        String::from_utf8_lossy(&outcome.stderr).lines().take(3).collect::<Vec<_>>().join(" | ")
    );
    let text = std::fs::read_to_string(&account)
        .with_context(|| format!("{described}: the program did not account for itself"))?;
    let micros: u64 = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).sum();
    let sample =
        Sample { program: micros as f64 / 1e6, everything, wall: outcome.wall.as_secs_f64() };
    Ok(Run { sample, stdout: outcome.stdout, stderr: outcome.stderr })
}

/// Runs a command, for so long at most, however it ends; gives the CPU time of all that it started
/// as well, in seconds. Nothing else may be started by this process meanwhile.
pub fn timed(command: Command, folder: &Path, limit: Duration) -> Result<(Outcome, f64)> {
    let before = children()?;
    let outcome = proc::start(command, folder, "bench", None)?.finish(limit)?;
    let everything = children()? - before;
    Ok((outcome, everything.as_secs_f64()))
}

/// CPU time of all children that were waited for.
pub fn children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = |time: nix::sys::time::TimeVal| {
        Duration::from_micros((time.tv_sec() * 1_000_000 + time.tv_usec()).unsigned_abs())
    };
    Ok(micros(usage.user_time()) + micros(usage.system_time()))
}
