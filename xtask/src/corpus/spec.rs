//! The corpus' entries, as they stand in `tests/corpus/*.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::proc::Ending;
use crate::repo;

/// What sort of run an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A command that runs and ends.
    Program,
    /// A server that a client talks to, and that a signal stops.
    Server,
    /// A package's own test suite.
    Suite,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Kind::Program => "program",
            Kind::Server => "server",
            Kind::Suite => "suite",
        })
    }
}

/// What `fettle record` is expected to do with an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expectation {
    /// Run it so that the program cannot see it.
    #[default]
    Same,
    /// Refuse: exit status 2 and one clear line.
    Refusal,
}

/// One entry. Exactly one of `command`, `shell` and `server` says what runs.
///
/// In every command, `{port}` stands for a free port of this entry's own, `{dir}` for the folder
/// it runs in, `{files}` for `tests/corpus/files`, `{toolchain}` for the Rust toolchain's folder
/// of programs and `{source}` for the unpacked source package.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Unique name.
    pub name: String,
    /// Debian packages that it needs.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Source package to unpack into the template as `source`.
    pub source: Option<String>,
    /// Generated input files, `KIND:NAME:SIZE` (`corpus/input.rs` in xtask has the kinds).
    #[serde(default)]
    pub input: Vec<String>,
    /// Files of `tests/corpus/files` to copy into the folder.
    #[serde(default)]
    pub files: Vec<String>,
    /// Shell script that prepares the template, never recorded.
    pub setup: Option<String>,
    /// Program and arguments, started directly.
    #[serde(default)]
    pub command: Vec<String>,
    /// A line for `sh -c`, recorded with all that it starts.
    pub shell: Option<String>,
    /// File in the folder that is the standard input.
    pub stdin: Option<String>,
    /// A server's program and arguments.
    #[serde(default)]
    pub server: Vec<String>,
    /// Shell line that succeeds when the server is ready.
    pub ready: Option<String>,
    /// Shell script of the client, never recorded; its output is compared.
    pub client: Option<String>,
    /// Signal that stops the server.
    #[serde(default = "default_stop")]
    pub stop: String,
    /// Set when the entry is a package's own test suite.
    #[serde(default)]
    pub suite: bool,
    /// User to run as, instead of the user that runs the corpus.
    pub user: Option<String>,
    /// Additional environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Additional flags of `fettle record`.
    #[serde(default)]
    pub record: Vec<String>,
    /// Most seconds that either side may take.
    pub seconds: u64,
    /// Exit status of the plain run, or less than 0 for a signal; anything else means that the
    /// entry itself is broken.
    #[serde(default)]
    pub status: i32,
    /// What is compared, of `stdout`, `stderr`, `status`, `files`, `client`.
    #[serde(default = "default_compare")]
    pub compare: Vec<String>,
    /// Regular expressions and what replaces their matches in all output before comparing.
    #[serde(default)]
    pub replace: Vec<(String, String)>,
    /// Files (by the end of their path, or a folder by its name and a slash) not to compare.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// What is expected of `fettle record`.
    #[serde(default)]
    pub expect: Expectation,
    /// Words that a refusal must have.
    #[serde(default)]
    pub refusal: Vec<String>,
    /// In the fast subset.
    #[serde(default)]
    pub smoke: bool,
    /// Why it is known to fail; such an entry does not fail the run, and is reported when it
    /// passes.
    pub known: Option<String>,
    /// Place in the list, from which its port follows.
    #[serde(skip)]
    pub number: u16,
}

fn default_stop() -> String {
    "TERM".into()
}

fn default_compare() -> Vec<String> {
    ["stdout", "stderr", "status", "files", "client"].map(String::from).to_vec()
}

impl Entry {
    /// How the plain run ends.
    pub fn ending(&self) -> Ending {
        if self.status < 0 { Ending::Signal(-self.status) } else { Ending::Exit(self.status) }
    }

    /// What sort of run it is.
    pub fn kind(&self) -> Kind {
        match () {
            () if self.suite => Kind::Suite,
            () if !self.server.is_empty() => Kind::Server,
            () => Kind::Program,
        }
    }

    /// The command, for people.
    pub fn command_line(&self) -> String {
        match &self.shell {
            Some(line) => format!("sh -c '{}'", line.trim()),
            None => [self.command.as_slice(), self.server.as_slice()].concat().join(" "),
        }
    }

    /// A port for this entry alone.
    pub fn port(&self) -> u16 {
        18000 + self.number * 4
    }

    fn check(&self) -> Result<()> {
        let ways = [!self.command.is_empty(), self.shell.is_some(), !self.server.is_empty()];
        ensure!(
            ways.iter().filter(|way| **way).count() == 1,
            "one of command, shell and server is needed"
        );
        ensure!(
            self.server.is_empty() == self.client.is_none(),
            "a server and its client go together"
        );
        for part in &self.compare {
            ensure!(default_compare().contains(part), "cannot compare {part}");
        }
        for name in &self.files {
            let path = files().join(name);
            ensure!(path.exists(), "{} does not exist", path.display());
        }
        for (pattern, _) in &self.replace {
            regex::bytes::Regex::new(pattern)?;
        }
        Ok(())
    }
}

/// Where the shipped inputs lie.
pub fn files() -> PathBuf {
    repo::root().join("tests/corpus/files")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    entry: Vec<Entry>,
}

/// Reads and checks every list, in the order of their file names.
pub fn load() -> Result<Vec<Entry>> {
    let folder = repo::root().join("tests/corpus");
    let mut lists: Vec<PathBuf> = std::fs::read_dir(&folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|item| item.ok().map(|item| item.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    lists.sort();
    let mut entries = Vec::new();
    for path in lists {
        let text = std::fs::read_to_string(&path)?;
        let list: List = toml::from_str(&text).with_context(|| path.display().to_string())?;
        entries.extend(list.entry);
    }
    let mut names = BTreeSet::new();
    for (number, entry) in entries.iter_mut().enumerate() {
        entry.number = u16::try_from(number)?;
        entry.check().with_context(|| format!("entry {}", entry.name))?;
        ensure!(names.insert(entry.name.clone()), "two entries are named {}", entry.name);
    }
    Ok(entries)
}
