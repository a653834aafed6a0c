//! What callgrind counts of a program: instructions, and what they miss in modelled caches and mispredict.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::apt;

/// A program's run.
#[derive(Debug)]
pub struct Counted {
    /// By the names that callgrind has for its events: `Ir` for instructions, `I1mr` for misses of the first cache.
    pub events: BTreeMap<String, u64>,
    /// What the program printed.
    pub stdout: Vec<u8>,
}

impl Counted {
    /// How often these events came, together; 0 for what was not counted.
    pub fn sum(&self, events: &[&str]) -> u64 {
        events.iter().filter_map(|event| self.events.get(*event)).sum()
    }
}

/// Runs `program` under callgrind with these options of callgrind's, and keeps what it counts in `place`.
///
/// # Errors
///
/// A program that fails, and output of callgrind's without totals.
pub fn count(program: &Command, options: &[&str], stdin: Stdio, place: &Path) -> Result<Counted> {
    apt::ensure(&["valgrind".to_owned()])?;
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind"]).args(options);
    command.arg(format!("--callgrind-out-file={}", place.display()));
    command.arg(program.get_program()).args(program.get_args()).stdin(stdin);
    let set = program.get_envs().filter_map(|(name, value)| Some((name, value?)));
    command.envs(set.collect::<Vec<(&OsStr, &OsStr)>>());
    let output = command.output().context("valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {said}", output.status);
    let events = read(&std::fs::read_to_string(place)?).context("callgrind's totals")?;
    Ok(Counted { events, stdout: output.stdout })
}

/// The totals of callgrind's output.
fn read(counts: &str) -> Option<BTreeMap<String, u64>> {
    let after = |head: &str| counts.lines().find_map(|line| line.strip_prefix(head));
    let events = after("events:")?.split_whitespace().map(str::to_owned);
    let totals = after("totals:")?.split_whitespace().map(|total| total.parse().ok());
    events.zip(totals).map(|(event, total)| Some((event, total?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_by_name() {
        let events = read("version: 1\nevents: Ir I1mr\nfn=(1)\n1 2 3\ntotals: 70 5\n").unwrap();
        let counted = Counted { events, stdout: Vec::new() };
        assert_eq!((counted.sum(&["Ir"]), counted.sum(&["I1mr", "Dr"])), (70, 5));
        assert!(read("events: Ir\n").is_none());
    }
}
