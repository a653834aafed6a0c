//! What a rule says.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::url::Url;

/// A condition over processes, and what happens where it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, unique among the rules.
    pub name: String,
    /// Which processes it is about.
    pub target: Target,
    /// What it looks for.
    pub condition: Condition,
    /// What is done, in this order.
    pub actions: Vec<Action>,
    /// How often at most.
    pub budget: Budget,
}

/// Which of the watched processes a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Those of this program that another watched process has started: it is there to start them anew.
    Workers(String),
    /// Those of this program.
    Processes(String),
}

impl Target {
    /// Whether it is a process of this program, which a watched process has started or not.
    pub fn fits(&self, program: &str, is_worker: bool) -> bool {
        match self {
            Target::Workers(name) => name == program && is_worker,
            Target::Processes(name) => name == program,
        }
    }
}

/// What a rule looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A thread has used so much CPU time without a read, a write or a wait.
    Spins {
        /// CPU time.
        least: Duration,
        /// Whether `least` is all that counts. Otherwise three times the 99.9th percentile of what
        /// such processes need between two marks of progress is waited for, if that is more.
        exactly: bool,
    },
    /// Threads wait for each other's mutexes in a circle.
    WaitsInCycle,
    /// All threads of a process have slept for so long, while a TCP connection of it holds bytes that
    /// it has not read.
    SleepsOnBytes {
        /// Wall time.
        least: Duration,
    },
    /// A scalar sensor of a process has kept its value for so long.
    ScalarStill {
        /// The sensor's name.
        sensor: String,
        /// Wall time.
        least: Duration,
    },
    /// A measure is above a limit in so many windows in a row.
    Above(Windows),
}

/// Windows in a row in which a measure is above a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    /// What is measured.
    pub measure: Measure,
    /// From which value on a window counts.
    pub limit: u64,
    /// Below which value one must be for the rule to hold no longer.
    pub until: u64,
    /// How long a window is.
    pub over: Duration,
    /// How many in a row.
    pub windows: u32,
}

impl Rule {
    /// Whether it is about requests, which have to be recorded for it.
    pub fn needs_requests(&self) -> bool {
        let Condition::Above(windows) = &self.condition else { return false };
        matches!(windows.measure, Measure::Requests { .. } | Measure::Failures { .. })
    }
}

/// What is measured of a window of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The value of a histogram sensor that so many of a million do not exceed.
    Quantile {
        /// The sensor's name.
        histogram: String,
        /// In millionths.
        share: u32,
    },
    /// The time that so many of a million of the requests do not exceed that a process answers.
    Requests {
        /// Which requests: `*` stands for any characters.
        pattern: String,
        /// In millionths.
        share: u32,
    },
    /// How many of a million of the requests that a process answers have failed.
    Failures {
        /// Which requests.
        pattern: String,
    },
    /// How many of a million that one scalar sensor has counted another one has, too.
    Share {
        /// What counts some.
        part: String,
        /// What counts all.
        whole: String,
    },
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Keep what is known of the process in a folder.
    KeepEvidence,
    /// Send it a signal.
    Signal {
        /// Its name without `SIG`.
        name: String,
        /// Its number.
        number: i32,
    },
    /// Kill it; its parent starts another one.
    RestartKill,
    /// Have its spare take its place, then kill it.
    RestartReplace,
    /// Have its threads of this name begin anew.
    RestartThread(String),
    /// Run a shell command, with the finding in its environment.
    Run(String),
    /// Set a knob of it.
    Set {
        /// The knob's name.
        knob: String,
        /// The value, which its program has to have declared.
        value: i64,
        /// For so long; otherwise until the watcher ends.
        hold: Option<Duration>,
    },
    /// Tune it again, as `fettle tune` does.
    Tune {
        /// A command that prints a number which grows with its work, if it is said.
        work: Option<String>,
    },
    /// Record the kernel's events of all that is watched, and say what bad requests have in common.
    Locate {
        /// For so long.
        over: Duration,
    },
    /// Tell a receiver, with what was done.
    Webhook(Url),
    /// Say it, and nothing else.
    Log,
}

impl Action {
    /// Whether it changes anything outside of the watcher, or fills a disk.
    pub fn changes_something(&self) -> bool {
        *self != Action::Log
    }

    /// The receiver, if it is a message to one.
    pub fn webhook(&self) -> Option<&Url> {
        match self {
            Action::Webhook(url) => Some(url),
            _ => None,
        }
    }

    /// Its name among the actions.
    pub fn kind(&self) -> &'static str {
        match self {
            Action::KeepEvidence => "keep-evidence",
            Action::Signal { .. } => "signal",
            Action::RestartKill => "restart-kill",
            Action::RestartReplace => "restart-replace",
            Action::RestartThread(_) => "restart-thread",
            Action::Run(_) => "run",
            Action::Set { .. } => "set",
            Action::Tune { .. } => "tune",
            Action::Locate { .. } => "locate",
            Action::Webhook(_) => "webhook",
            Action::Log => "log",
        }
    }
}

/// How often a rule may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Times.
    pub times: u32,
    /// Within so long.
    pub within: Duration,
}

impl Default for Budget {
    /// Three times a minute: who needs more has a problem that restarts do not solve.
    fn default() -> Budget {
        Budget { times: 3, within: Duration::from_secs(60) }
    }
}
