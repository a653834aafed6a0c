//! How fast traces in the Common Trace Format are read, next to babeltrace2: CPU time of the whole
//! process, by the kernel's account, the two in turns. Both read every field of every event and do
//! nothing with it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::measure;
use crate::proc::{self, Ending};
use crate::{fettle, repo};

/// What to read.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// The trace's folder, where its `metadata` is
    pub folder: PathBuf,
    /// Times that each reads it
    #[arg(long, default_value_t = 9)]
    pub rounds: usize,
}

/// Reads the trace with both, in turns.
pub fn run(options: &Options) -> Result<bool> {
    let folder = std::fs::canonicalize(&options.folder)
        .with_context(|| format!("no folder {}", options.folder.display()))?;
    let mut ours = Command::new(fettle::example("fettle-import", "ctf")?);
    ours.arg(&folder);
    let mut readers = vec![("fettle", ours)];
    match proc::on_path("babeltrace2") {
        true => {
            let mut theirs = Command::new("babeltrace2");
            theirs.arg(&folder).args(["-o", "dummy"]);
            readers.push(("babeltrace2", theirs));
        }
        false => println!("babeltrace2 is not installed"),
    }
    let mut events = 0.0;
    let mut seconds = vec![Vec::new(); readers.len()];
    for _ in 0..options.rounds {
        for ((name, command), seconds) in readers.iter().zip(&mut seconds) {
            let (said, used) = once(name, command)?;
            seconds.push(used);
            events = said.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(events);
        }
    }
    println!("{events} events, median of {} rounds", options.rounds);
    for ((name, _), seconds) in readers.iter().zip(&seconds) {
        let median = fettle_stats::median(seconds);
        let speed = events / median / 1e6;
        println!("  {name:12}  {median:.3} s CPU, {speed:5.1} million events/s and core");
    }
    if let [ours, theirs] = &seconds[..] {
        println!(
            "  {:.1} times as fast, round by round",
            fettle_stats::median(&fettle_stats::ratios(theirs, ours))
        );
    }
    Ok(true)
}

/// One run: what it printed, and the seconds that it was on processors.
fn once(name: &str, command: &Command) -> Result<(String, f64)> {
    let mut again = Command::new(command.get_program());
    again.args(command.get_args());
    let logs = repo::target_folder("bench/run")?;
    let (outcome, used) = measure::timed(again, &logs, Duration::from_secs(600))?;
    ensure!(outcome.ending == Ending::Exit(0), "{name}: {}", outcome.ending);
    Ok((String::from_utf8_lossy(&outcome.stdout).into_owned(), used))
}
