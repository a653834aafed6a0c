//! What is done with process groups, each thing by a process of its own.
//!
//! `fettle tune` and `fettle undo` are run as a user would run them. They end with this process
//! (`--with-parent`), and revert what they have begun.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fettle_types::Pid;
use rustix::process::{Signal, kill_process};
use serde::Deserialize;

use crate::find::Found;
use crate::fleet::{Act, Gain, GroupKey, Outcome};
use crate::rules::Rule;

/// A check takes no longer.
const LONGEST_CHECK: Duration = Duration::from_secs(30);
/// Nothing takes longer than this; then it is interrupted.
const LONGEST: Duration = Duration::from_secs(1800);
/// After an interruption it has so long to revert what it has begun.
const PATIENCE: Duration = Duration::from_secs(60);
/// More of what a command says is not kept.
const SAID_MAX: u64 = 64 << 20;

/// Something that is being done.
#[derive(Debug)]
pub struct Job {
    /// With which group.
    pub key: GroupKey,
    act: Act,
    child: Child,
    output: PathBuf,
    errors: PathBuf,
    begun: Instant,
    limit: Duration,
    interrupted: Option<Instant>,
}

/// A finished job.
#[derive(Debug)]
pub struct Finished {
    /// What became of it.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// Begins something. `fettle` is the command; what it prints goes into files in `folder`.
///
/// # Errors
///
/// When it cannot be started.
pub fn begin(
    (key, act): (GroupKey, Act),
    (rule, found): (&Rule, &Found),
    fettle: &Path,
    folder: &Path,
) -> std::io::Result<Job> {
    let pid = found.leader.to_string();
    let with_pid = |text: &str| text.replace("{pid}", &pid);
    let mut command = Command::new(fettle);
    match &act {
        Act::Tune | Act::Recheck => {
            command.args(["tune", "--json", "--with-parent", "-p", &pid]);
            for (option, rounds) in [("--rounds", rule.rounds), ("--max-rounds", rule.max_rounds)] {
                command.args(rounds.iter().flat_map(|n| [option.to_owned(), n.to_string()]));
            }
            if let Some(turn) = rule.turn {
                command.arg("--turn").arg(turn.as_secs_f64().to_string());
            }
            command.arg("--reason").arg(format!("rule {}", rule.name));
            if let Some(counter) = &rule.work_counter {
                command.arg("--work-counter").arg(with_pid(counter));
            }
        }
        Act::Check => {
            command = Command::new("sh");
            command.arg("-c").arg(with_pid(rule.check.as_deref().unwrap_or("true")));
        }
        Act::Undo { why } => {
            command.args(["undo", "--group", &pid]);
            command.arg("--reason").arg(format!("rule {}: {why}", rule.name));
        }
    }
    match &act {
        Act::Tune => {
            command.arg("--time").arg(rule.count.as_secs_f64().to_string());
            rule.lib.iter().for_each(|lib| {
                command.arg("--lib").arg(lib);
            });
            if let Some(profile) = &rule.profile {
                command.arg("--profile").arg(profile);
            }
        }
        Act::Recheck => {
            command.arg("--recheck");
        }
        Act::Check | Act::Undo { .. } => {}
    }
    let name = |kind: &str| folder.join(format!("job-{}-{kind}", found.leader));
    let (output, errors) = (name("output"), name("errors"));
    command.stdin(Stdio::null());
    command.stdout(std::fs::File::create(&output)?).stderr(std::fs::File::create(&errors)?);
    let limit = if act == Act::Check { LONGEST_CHECK } else { LONGEST };
    let child = command.spawn()?;
    Ok(Job { key, act, child, output, errors, begun: Instant::now(), limit, interrupted: None })
}

impl Job {
    /// What it does.
    pub fn act(&self) -> &Act {
        &self.act
    }

    /// Asks it to end. Tuning reverts then what it has begun.
    pub fn interrupt(&mut self) {
        if self.interrupted.is_none() {
            self.interrupted = Some(Instant::now());
            if let Some(pid) = rustix::process::Pid::from_raw(Pid::of_child(&self.child).get()) {
                // It has not been waited for, so the number is still its own.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
    }

    /// What became of it, if it has ended.
    pub fn poll(&mut self) -> Option<Finished> {
        if self.begun.elapsed() > self.limit {
            self.interrupt();
        }
        if self.interrupted.is_some_and(|at| at.elapsed() > PATIENCE) && self.act == Act::Check {
            let _ = self.child.kill();
        }
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status,
            Err(error) => {
                let why = error.to_string();
                return Some(Finished {
                    outcome: Outcome::Failed { why },
                    took: self.begun.elapsed(),
                });
            }
        };
        let (printed, said) = (read(&self.output), read(&self.errors));
        let _ = std::fs::remove_file(&self.output);
        let _ = std::fs::remove_file(&self.errors);
        let failed = || {
            let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            let last = last.strip_prefix("fettle: ").unwrap_or(last);
            let why = match (self.interrupted.is_some(), last) {
                (true, _) => "interrupted".to_owned(),
                (false, "") => status.to_string(),
                (false, last) => last.to_owned(),
            };
            Outcome::Failed { why }
        };
        let outcome = match &self.act {
            Act::Check | Act::Undo { .. } if status.success() => Outcome::Done,
            // Nothing was left to revert.
            Act::Undo { .. } if status.code() == Some(1) => Outcome::Done,
            Act::Tune | Act::Recheck if matches!(status.code(), Some(0 | 1)) => {
                compared(&printed).unwrap_or_else(failed)
            }
            _ => failed(),
        };
        Some(Finished { outcome, took: self.begun.elapsed() })
    }
}

fn read(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.take(SAID_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What `fettle tune --json` prints, as far as it is needed here.
#[derive(Debug, Deserialize)]
struct Printed {
    kept: bool,
    #[serde(default)]
    measured: Option<PrintedMeasured>,
    #[serde(default)]
    installed: Option<Stops>,
    #[serde(default)]
    counted: Option<Stops>,
    #[serde(default)]
    not_compared: Option<String>,
    #[serde(default)]
    refused: Vec<Refused>,
}

#[derive(Debug, Deserialize)]
struct PrintedMeasured {
    verdict: String,
    #[serde(flatten)]
    gain: Gain,
    stops_ms: Vec<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct Stops {
    #[serde(default)]
    stops_ms: Vec<f64>,
    #[serde(default)]
    undo_stops_ms: Vec<f64>,
}

#[derive(Debug, Deserialize)]
struct Refused {
    why: String,
}

/// The last document that tuning has printed.
fn compared(printed: &str) -> Option<Outcome> {
    let last = serde_json::Deserializer::from_str(printed).into_iter::<Printed>();
    let printed = last.map_while(Result::ok).last()?;
    let measured = printed.measured.iter().flat_map(|measured| &measured.stops_ms);
    let others = [&printed.installed, &printed.counted].into_iter().flatten();
    let stops = measured.chain(others.flat_map(|s| s.stops_ms.iter().chain(&s.undo_stops_ms)));
    let longest = stops.copied().fold(0.0, f64::max).max(0.0);
    let refused = || Some(printed.refused.first()?.why.clone());
    let (verdict, why) = match &printed.measured {
        Some(measured) => (measured.verdict.clone(), measured.verdict.clone()),
        None => {
            let why = printed.not_compared.clone().or_else(refused).unwrap_or_default();
            ("not compared".to_owned(), why)
        }
    };
    Some(Outcome::Compared {
        kept: printed.kept,
        verdict,
        why,
        gain: printed.measured.map(|measured| measured.gain),
        longest_pause: Duration::try_from_secs_f64(longest / 1e3).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tuning_prints_is_understood() {
        let printed = r#"{"version":1,"kept":true,"installed":{"stops_ms":[1.5]},"counted":{"stops_ms":[0.5],"undo_stops_ms":[2.5]},
            "measured":{"verdict":"faster","ratio":0.9,"low":0.8,"high":0.95,"stops_ms":[1.0]},"refused":[]}"#;
        let both = format!("{printed}\n{printed}\n");
        let expected = Outcome::Compared {
            kept: true,
            verdict: "faster".to_owned(),
            why: "faster".to_owned(),
            gain: Some(Gain { ratio: 0.9, low: 0.8, high: 0.95 }),
            longest_pause: Duration::from_micros(2500),
        };
        assert_eq!(compared(&both), Some(expected));
        assert_eq!(compared(""), None);
        assert_eq!(compared("[1]"), None);
        let refused =
            r#"{"kept":false,"measured":null,"refused":[{"path":"a","why":"too small"}]}"#;
        assert!(
            matches!(compared(refused), Some(Outcome::Compared { why, .. }) if why == "too small")
        );
    }
}
