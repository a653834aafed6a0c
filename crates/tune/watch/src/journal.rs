//! What a watcher has found and done, one JSON object a line, for `fettle watch --history`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use fettle_types::Pid;
use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::rule::Action;
use crate::url::Url;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// Something was found.
    Found(Entry),
    /// A message was taken, or dropped.
    Sent(Sent),
    /// A knob was given back.
    GivenBack(GivenBack),
    /// What an action has begun has ended.
    Ended(Ended),
}

/// What was found and done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The rule.
    pub rule: String,
    /// The process's program.
    pub program: String,
    /// What was found.
    pub finding: Finding,
    /// What was done, with what came of it; empty in a dry run.
    pub done: Vec<Done>,
}

/// An action, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What was asked for.
    pub action: Action,
    /// Where evidence is, for one thing.
    pub result: Option<String>,
    /// Why it was not done, if so.
    pub error: Option<String>,
    /// What else is to be said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What became of a webhook's message, some time after its finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// When what it tells was found, in milliseconds since 1970.
    pub at_ms: u64,
    /// The rule.
    pub rule: String,
    /// The receiver.
    pub webhook: Url,
    /// How often it was sent; 0 where that is not known.
    pub attempts: u32,
    /// What its receiver has answered, if that took it.
    pub status: Option<u16>,
    /// Why it was dropped, if it was.
    pub error: Option<String>,
}

/// A knob that a rule had set for some time has its old value again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenBack {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The knob.
    pub knob: String,
    /// Its process.
    pub pid: Pid,
}

/// What `fettle` was begun for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// Tuning a process.
    Tune,
    /// Locating what bad requests have in common.
    Locate,
}

impl JobKind {
    /// The action's name.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Tune => "tune",
            JobKind::Locate => "locate",
        }
    }
}

/// What came of an action that takes longer, some time after its finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When it was begun, in milliseconds since 1970.
    pub at_ms: u64,
    /// The rule.
    pub rule: String,
    /// What was begun.
    pub job: JobKind,
    /// For which process.
    pub pid: Pid,
    /// Where its results are.
    pub folder: String,
    /// What came of it, in a line.
    pub result: Option<String>,
    /// Why nothing did, if so.
    pub error: Option<String>,
}

/// Adds a line to the file, which only its owner can read.
///
/// # Errors
///
/// Those of the file.
pub fn append(path: &Path, line: &Line) -> io::Result<()> {
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    // One write: two watchers' lines do not mix.
    file.write_all(&line)
}

/// All lines of the file, oldest first. What was cut off by a crash or a full disk, or is no text, is left out.
///
/// # Errors
///
/// Those of the file.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    let lines = BufReader::new(File::open(path)?).split(b'\n');
    let mut entries = Vec::new();
    for line in lines {
        entries.extend(serde_json::from_slice(&line?).ok());
    }
    Ok(entries)
}
