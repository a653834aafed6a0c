//! Carries out what rules ask for.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};

use crate::evidence;
use crate::journal::Done;
use crate::judge::Finding;
use crate::look::Look;
use crate::proc::Watched;
use crate::rule::{Action, Rule};
use crate::servers;

/// Carries out actions, each rule's within its budget.
#[derive(Debug)]
pub struct Actor {
    folder: PathBuf,
    /// When each rule acted.
    acted: HashMap<String, VecDeque<Instant>>,
    /// Commands that run.
    commands: Vec<Child>,
}

/// Commands that may run at a time.
const COMMAND_MAX: usize = 16;

impl Actor {
    /// Evidence goes into folders below `folder`.
    pub fn new(folder: &Path) -> Actor {
        Actor { folder: folder.to_owned(), acted: HashMap::new(), commands: Vec::new() }
    }

    /// Does what the rule asks for, in its order, up to what fails. `looks` are the last ones.
    pub fn act(
        &mut self,
        rule: &Rule,
        finding: &Finding,
        process: &Watched,
        looks: &[Look],
        (now, at_ms): (Instant, u64),
    ) -> Vec<Done> {
        self.commands.retain_mut(|command| matches!(command.try_wait(), Ok(None)));
        let changes = rule.actions.iter().any(Action::changes_something);
        let allowed = !changes || self.is_within_budget(rule, now);
        let mut done = Vec::new();
        for action in &rule.actions {
            let result = if action.changes_something() && !allowed {
                Err(format!(
                    "rule {} has acted {} times within {:?}, which is its budget",
                    rule.name, rule.budget.times, rule.budget.within
                ))
            } else {
                self.one(action, rule, finding, process, looks, at_ms)
            };
            let failed = result.is_err();
            let (result, error) = match result {
                Ok(result) => (result, None),
                Err(error) => (None, Some(error)),
            };
            done.push(Done { action: action.clone(), result, error });
            // What comes next may count on what failed: no restart without its evidence.
            if failed {
                break;
            }
        }
        done
    }

    fn is_within_budget(&mut self, rule: &Rule, now: Instant) -> bool {
        let acted = self.acted.entry(rule.name.clone()).or_default();
        while acted.front().is_some_and(|at| now.duration_since(*at) > rule.budget.within) {
            acted.pop_front();
        }
        let allowed = acted.len() < rule.budget.times as usize;
        if allowed {
            acted.push_back(now);
        }
        allowed
    }

    fn one(
        &mut self,
        action: &Action,
        rule: &Rule,
        finding: &Finding,
        process: &Watched,
        looks: &[Look],
        at_ms: u64,
    ) -> Result<Option<String>, String> {
        match action {
            Action::Log => Ok(None),
            Action::KeepEvidence => {
                let kept = evidence::keep(&self.folder, &rule.name, finding, looks, at_ms);
                let shown = |folder: PathBuf| Some(folder.display().to_string());
                kept.map(shown).map_err(|error| format!("evidence cannot be kept: {error}"))
            }
            Action::Signal { number, name } => {
                let signal = Signal::from_named_raw(*number)
                    .ok_or_else(|| format!("{name} is no signal here"))?;
                if signal == Signal::KILL {
                    may_be_killed(process)?;
                }
                send(process, signal)
            }
            Action::RestartKill => {
                may_be_killed(process)?;
                if !process.is_worker {
                    return Err(
                        "it is no worker: nothing that is watched would start it anew".into()
                    );
                }
                send(process, Signal::KILL)
            }
            Action::Run(command) => self.run(command, rule, finding, process),
        }
    }

    fn run(
        &mut self,
        command: &str,
        rule: &Rule,
        finding: &Finding,
        process: &Watched,
    ) -> Result<Option<String>, String> {
        if self.commands.len() >= COMMAND_MAX {
            return Err(format!("{COMMAND_MAX} commands of earlier findings still run"));
        }
        let why = serde_json::to_string(&finding.why).unwrap_or_default();
        let child = Command::new("sh")
            .args(["-c", command])
            .env("FETTLE_RULE", &rule.name)
            .env("FETTLE_PID", process.id.pid.to_string())
            .env("FETTLE_PROGRAM", &process.program)
            .env("FETTLE_WHY", why)
            .stdin(Stdio::null())
            .spawn();
        let child = child.map_err(|error| format!("`sh` cannot be started: {error}"))?;
        let shown = format!("as process {}", child.id());
        self.commands.push(child);
        Ok(Some(shown))
    }

    /// Waits until the commands have ended that were started, at most for so long.
    pub fn finish(&mut self, patience: Duration) {
        let begun = Instant::now();
        while !self.commands.is_empty() && begun.elapsed() < patience {
            self.commands.retain_mut(|command| matches!(command.try_wait(), Ok(None)));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn may_be_killed(process: &Watched) -> Result<(), String> {
    servers::never_kill(&process.program).map_or(Ok(()), |why| Err(why.to_owned()))
}

/// By its handle, so that no other process is meant that has its number by now.
fn send(process: &Watched, signal: Signal) -> Result<Option<String>, String> {
    let handle = process.handle.as_ref();
    let handle = handle.ok_or("it cannot be signalled: it is another user's, or has ended")?;
    pidfd_send_signal(handle, signal)
        .map_err(|error| format!("it cannot be signalled: {error}"))?;
    Ok(None)
}
