//! Carries out what rules ask for.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use fettle_live::SpareState;
use fettle_sensor::Description;
use fettle_types::Pid;
use rustix::process::{Signal, pidfd_send_signal};

use crate::budget::Budgets;
use crate::evidence;
use crate::finding::Finding;
use crate::jobs::Jobs;
use crate::journal::{Done, Ended, Sent};
use crate::knobs::Knobs;
use crate::last::Writers;
use crate::proc::Watched;
use crate::restart;
use crate::rule::{Action, Rule};
use crate::scene::Scene;
use crate::servers;
use crate::spares::Spares;
use crate::tally::{ActionResult, Tally};
use crate::url::Url;
use crate::webhook::{Message, Webhooks};

/// Carries out actions, each rule's within its budget.
#[derive(Debug)]
pub struct Actor {
    folder: PathBuf,
    budgets: Arc<Budgets>,
    tally: Tally,
    webhooks: Webhooks,
    knobs: Knobs,
    spares: Spares,
    jobs: Jobs,
    /// Commands that run.
    commands: Vec<Child>,
    fettle: PathBuf,
    /// A process was stopped for evidence.
    paused: bool,
    /// What has taken the place of a process.
    successor: Option<Pid>,
    /// Folders of evidence whose threads' callers have no names yet.
    unnamed: Vec<PathBuf>,
    /// Traces of evidence that are being written.
    last: Writers,
}

/// Commands that may run at a time.
const COMMAND_MAX: usize = 16;

impl Actor {
    /// Evidence goes into folders below `folder`; what is done is counted by `tally`. `fettle` is this program.
    pub fn new(folder: &Path, fettle: &Path, budgets: Arc<Budgets>, tally: Tally) -> Actor {
        let (folder, commands, unnamed) = (folder.to_owned(), Vec::new(), Vec::new());
        let (knobs, jobs) = (Knobs::new(fettle.to_owned()), Jobs::new(fettle.to_owned()));
        let (webhooks, fettle) = (Webhooks::default(), fettle.to_owned());
        Actor {
            folder,
            budgets,
            tally,
            webhooks,
            knobs,
            spares: Spares::default(),
            jobs,
            commands,
            fettle,
            paused: false,
            successor: None,
            unnamed,
            last: Writers::default(),
        }
    }

    /// Gives back knobs whose time is over, and says which.
    pub fn give_back(&mut self, now: Instant) -> Vec<Description> {
        self.knobs.give_back(now)
    }

    /// Has spares for these processes, and says what has changed of them.
    pub fn tend_spares<'a>(
        &mut self,
        wanted: impl Iterator<Item = &'a Watched>,
        now: Instant,
    ) -> Vec<(Pid, SpareState)> {
        self.spares.tend(wanted, now)
    }

    /// Does what the rule asks for, in its order, up to what fails; then tells receivers what was done, also
    /// if something failed.
    pub fn act(&mut self, rule: &Rule, scene: &Scene<'_>, now: Instant) -> Vec<Done> {
        self.commands.retain_mut(|command| matches!(command.try_wait(), Ok(None)));
        let changes = rule.actions.iter().any(Action::changes_something);
        let allowed = !changes || self.budgets.take(&rule.name, now);
        let mut done: Vec<Done> = Vec::new();
        for action in rule.actions.iter().filter(|action| action.webhook().is_none()) {
            let mut note = None;
            let result = match allowed || !action.changes_something() {
                true => self.one(action, rule, scene, &mut note),
                false => Err(over_budget(rule)),
            };
            let failed = result.is_err();
            done.push(Done { note, ..self.counted(rule, action, allowed, result) });
            // What comes next may count on what failed: no restart without its evidence.
            if failed {
                break;
            }
        }
        self.name_callers();
        let webhooks = rule.actions.iter().filter_map(|action| Some((action, action.webhook()?)));
        let webhooks: Vec<(&Action, &Url)> = webhooks.collect();
        if webhooks.is_empty() {
            return done;
        }
        let message = Message::new(&rule.name, scene.finding, scene.process, &done, scene.at_ms);
        for (action, url) in webhooks {
            let result = match allowed {
                true => {
                    self.webhooks.send(url, &message).inspect_err(|_| self.tally.webhook(false))
                }
                false => Err(over_budget(rule)),
            };
            done.push(self.counted(rule, action, allowed, result.map(|()| None)));
        }
        done
    }

    /// Whether a process was stopped for evidence since this was asked last.
    pub fn has_paused(&mut self) -> bool {
        std::mem::take(&mut self.paused)
    }

    /// What has taken the place of a process since this was asked last.
    pub fn take_successor(&mut self) -> Option<Pid> {
        self.successor.take()
    }

    /// Has the threads' callers in new evidence named, which takes longer than a restart may wait for.
    fn name_callers(&mut self) {
        for folder in std::mem::take(&mut self.unnamed) {
            if self.commands.len() < COMMAND_MAX {
                let mut options = OpenOptions::new();
                let options = options.create(true).write(true).truncate(true).mode(0o600);
                let Ok(file) = options.open(folder.join(evidence::CALLERS)) else { continue };
                let mut command = Command::new(&self.fettle);
                command.args(["watch", "--evidence"]).arg(&folder).stdin(Stdio::null());
                self.commands.extend(command.stdout(file).stderr(Stdio::null()).spawn());
            }
        }
    }

    fn counted(
        &self,
        rule: &Rule,
        action: &Action,
        allowed: bool,
        result: Result<Option<String>, String>,
    ) -> Done {
        let kind = match &result {
            Ok(_) => ActionResult::Done,
            Err(_) if !allowed && action.changes_something() => ActionResult::OverBudget,
            Err(_) => ActionResult::Failed,
        };
        self.tally.action(rule, action, kind);
        let (result, error) = match result {
            Ok(result) => (result, None),
            Err(error) => (None, Some(error)),
        };
        Done { action: action.clone(), result, error, note: None }
    }

    /// What has become of messages since this was asked last.
    pub fn sent(&mut self) -> Vec<Sent> {
        let sent = self.webhooks.poll();
        self.count(&sent);
        sent
    }

    fn count(&self, sent: &[Sent]) {
        sent.iter().for_each(|sent| self.tally.webhook(sent.error.is_none()));
    }

    /// Which tunings and the like have ended since this was asked last, and what came of them.
    pub fn ended(&mut self) -> Vec<Ended> {
        self.jobs.poll()
    }

    /// Interrupts those that still run.
    pub fn interrupt(&mut self) -> Vec<Ended> {
        self.jobs.finish()
    }

    /// Messages that wait, as others may see it.
    pub fn queue(&self) -> Arc<AtomicUsize> {
        self.webhooks.length()
    }

    fn one(
        &mut self,
        action: &Action,
        rule: &Rule,
        scene: &Scene<'_>,
        note: &mut Option<String>,
    ) -> Result<Option<String>, String> {
        let Scene { finding, process, .. } = *scene;
        match action {
            Action::Log => Ok(None),
            Action::KeepEvidence => {
                let kept = evidence::keep(&self.folder, &rule.name, scene);
                let kept = kept.map_err(|error| format!("evidence cannot be kept: {error}"))?;
                self.last.write(kept.last);
                *note = match &kept.threads {
                    Ok(_) => None,
                    Err(why) => Some(format!("without registers and stacks: {why}")),
                };
                self.paused |= kept.threads.is_ok();
                self.unnamed.extend(kept.threads.is_ok().then(|| kept.folder.clone()));
                Ok(Some(kept.folder.display().to_string()))
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
            Action::RestartReplace => {
                may_be_killed(process)?;
                let new = self.spares.let_go(process.id)?;
                // The spare serves; should this not be possible, both do, and the rule's journal says so.
                send(process, Signal::KILL)?;
                self.successor = Some(new);
                Ok(Some(format!("process {new}")))
            }
            Action::RestartThread(name) => restart::restart(process, name, finding).map(Some),
            Action::Run(command) => self.run(command, rule, finding, process),
            Action::Set { knob, value, hold } => {
                self.knobs.set(process, knob, *value, *hold).map(|()| None)
            }
            Action::Tune { work } => {
                self.jobs.tune(&rule.name, scene, &self.folder, work.as_deref()).map(Some)
            }
            Action::Locate { over } => {
                self.jobs.locate(&rule.name, scene, &self.folder, *over).map(Some)
            }
            // They come last, with what was done.
            Action::Webhook(_) => Ok(None),
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

    /// Waits until the commands have ended that were started and messages were taken, at most for so long.
    /// Says what became of these.
    pub fn finish(&mut self, patience: Duration) -> Vec<Sent> {
        let begun = Instant::now();
        let sent = self.webhooks.finish(patience);
        self.count(&sent);
        while (!self.commands.is_empty() || self.last.are_busy()) && begun.elapsed() < patience {
            self.commands.retain_mut(|command| matches!(command.try_wait(), Ok(None)));
            std::thread::sleep(Duration::from_millis(5));
        }
        sent
    }
}

fn over_budget(rule: &Rule) -> String {
    format!(
        "rule {} has acted {} times within {:?}, which is its budget",
        rule.name, rule.budget.times, rule.budget.within
    )
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
