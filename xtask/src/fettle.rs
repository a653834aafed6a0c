//! The tool under test, known by its command line only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::{proc, repo};

/// Builds the release binary and returns its path, or takes the one that the caller names.
pub fn binary(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = given {
        let path = std::path::absolute(path)?;
        if !path.is_file() {
            bail!("no such binary: {}", path.display());
        }
        return Ok(path);
    }
    build(&["--package", "fettle-cli"])?;
    Ok(repo::target().join("release/fettle"))
}

/// Builds an example of one of the packages, for release, and returns its path.
pub fn example(package: &str, name: &str) -> Result<PathBuf> {
    build(&["--package", package, "--example", name])?;
    Ok(repo::target().join("release/examples").join(name))
}

/// Builds an example as tests are built, which takes less time, where its own speed is not measured.
pub fn test_example(package: &str, name: &str) -> Result<PathBuf> {
    cargo_build(&["--package", package, "--example", name])?;
    Ok(repo::target().join("debug/examples").join(name))
}

fn build(what: &[&str]) -> Result<()> {
    cargo_build(&[&["--release"], what].concat())
}

fn cargo_build(what: &[&str]) -> Result<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repo::root()).args(["build", "--quiet"]).args(what);
    proc::step(&mut cargo)
}

/// Whether the binary can record at all.
pub fn can_record(binary: &Path) -> bool {
    !record_help(binary).is_empty()
}

/// What `fettle record --help` says; flags and modes that it does not name are not there.
pub fn record_help(binary: &Path) -> String {
    let output = Command::new(binary).args(["record", "--help"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// Whether the binary has this flag or mode of `fettle record`.
pub fn has(binary: &Path, flag_or_mode: &str) -> bool {
    record_help(binary)
        .split(|c: char| c.is_whitespace() || ",:[]<>".contains(c))
        .any(|word| word == flag_or_mode)
}

/// Flags of `fettle record` that keep rewritten code in a folder of the repository's own, not in
/// the user's. A binary that keeps none gets no flag.
pub fn cache_flags(binary: &Path) -> Vec<String> {
    match has(binary, "--cache") {
        true => vec!["--cache".into(), repo::target().join("fettle-cache").display().to_string()],
        false => Vec::new(),
    }
}

/// The object that `fettle record --json` ends its standard error with. Unknown fields are kept
/// out: the corpus needs these only.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordSummary {
    /// Functions found in the modules that were to be probed.
    pub functions_seen: u64,
    /// Of these, functions that carry probes.
    pub functions_lifted: u64,
    /// Of these, functions left unmodified.
    pub functions_skipped: u64,
    /// Why they were left unmodified, with the number of functions each.
    pub reasons: BTreeMap<String, u64>,
    /// Calls that ended.
    pub calls: u64,
    /// Records that found no room.
    pub lost: u64,
}

/// Cuts the summary off the end of a recorded program's standard error. What comes before is the
/// program's own.
pub fn split_summary(stderr: &[u8]) -> (Vec<u8>, Option<RecordSummary>) {
    // The object is the last thing there; a program that ends in the middle of a line may stand
    // directly before it, so every `{` near the end is tried, the earliest first.
    let near_end = stderr.len().saturating_sub(256 << 10);
    for (at, _) in stderr.iter().enumerate().skip(near_end).filter(|(_, byte)| **byte == b'{') {
        let rest = &stderr[at..];
        if !rest.windows(16).any(|window| window == b"\"functions_seen\"") {
            break;
        }
        if let Ok(summary) = serde_json::from_slice::<RecordSummary>(rest) {
            return (stderr[..at].to_vec(), Some(summary));
        }
    }
    (stderr.to_vec(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_cut_off() {
        let text =
            b"{oops} half a line{\"functions_seen\": 3, \"reasons\": {\"a\": 1}, \"new\": 1}\n";
        let (own, summary) = split_summary(text);
        assert_eq!(own, b"{oops} half a line");
        let summary = summary.unwrap();
        assert_eq!(summary.functions_seen, 3);
        assert_eq!(summary.reasons["a"], 1);
    }

    #[test]
    fn no_summary_leaves_all() {
        let (own, summary) = split_summary(b"error: {\"x\": 1}\n");
        assert_eq!(own, b"error: {\"x\": 1}\n");
        assert!(summary.is_none());
    }
}
