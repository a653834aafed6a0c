//! The loop: look, judge, act.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::BufWriter;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fettle_live::SpareState;
use fettle_metrics::LocalAddress;
use fettle_types::{Pid, Tid, monotonic_ns};
use rustix::fs::{FlockOperation, flock};

use crate::act::Actor;
use crate::budget::Budgets;
use crate::finding::Finding;
use crate::journal::{self, Ended, Entry, GivenBack, Line, Sent};
use crate::judge::Judge;
use crate::learned::{Learned, is_own};
use crate::look::{Look, ProcessId};
use crate::proc::{Processes, Wanted, Watched};
use crate::recording::Recording;
use crate::requests::Requests;
use crate::rule::{Action, Condition, Measure, Rule};
use crate::scene::Scene;
use crate::tally::Tally;
use crate::threads::tids;
use crate::url::Url;
use crate::webhook::Message;

/// Looks that are kept for evidence.
const LOOKS_KEPT: usize = 64;
/// After so long without another worker it is said that there is none.
const REPLACEMENT_MAX: Duration = Duration::from_secs(10);
/// What could not be done, but for its rule's budget, is tried again after so long.
const AGAIN: Duration = Duration::from_secs(5);
/// A signal that ends the watching is noticed within so long.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// How often spares are seen to.
const SPARES_EVERY: Duration = Duration::from_millis(100);

/// What a watcher is to do.
#[derive(Clone, Debug)]
pub struct WatcherOptions {
    /// The processes; what they start is watched, too.
    pub pids: Vec<Pid>,
    /// Whether rules act. Otherwise findings are only said.
    pub act: bool,
    /// Time between looks.
    pub tick: Duration,
    /// This program, which is started again for what goes on when this process is killed.
    pub fettle: PathBuf,
    /// Where the journal and evidence are.
    pub state: PathBuf,
    /// If looks are to be written to a file.
    pub record: Option<PathBuf>,
    /// Where Prometheus reads metrics, if it does.
    pub metrics: Option<LocalAddress>,
}

/// Something that a person should read.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// What is watched.
    Watching {
        /// `program PID` of each.
        processes: Vec<(String, Pid)>,
        /// Rules that are about none of them.
        idle: Vec<String>,
    },
    /// Metrics can be read.
    Metrics {
        /// Where.
        address: SocketAddr,
        /// The file with the token that readers show.
        token_file: PathBuf,
    },
    /// A file cannot be written. What it would have is lost, and the watching goes on.
    Unwritten {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A rule holds.
    Found(Box<Entry>),
    /// What would have been sent, if rules acted.
    WouldSend {
        /// To whom.
        webhook: Url,
        /// What.
        message: Box<Message>,
    },
    /// A message was taken by its receiver, or dropped.
    Sent(Sent),
    /// A knob that a rule had set for some time has its old value again.
    GivenBack(GivenBack),
    /// A tuning, or what else takes seconds, has ended.
    Ended(Ended),
    /// Requests are seen no more: rules over them hold as they did.
    NoRequests {
        /// Why.
        why: String,
    },
    /// Whether a process has a spare, which would take its place.
    Spare {
        /// The process.
        of: Pid,
        /// How far its spare is.
        state: SpareState,
    },
    /// A process that was killed has a successor that waits for work.
    Replaced {
        /// The rule that had it killed.
        rule: String,
        /// What was killed.
        old: Pid,
        /// Its successor.
        new: Pid,
        /// From the last progress to the finding, in nanoseconds.
        found_after_ns: u64,
        /// From the last progress to the successor's first wait for work, in nanoseconds.
        after_ns: u64,
    },
    /// A process that was killed has no successor.
    NotReplaced {
        /// The rule that had it killed.
        rule: String,
        /// What was killed.
        old: Pid,
    },
}

/// Why there is no watching.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Nothing to watch.
    #[error("process {pid} does not exist; `pgrep -o NAME` finds a server's first process")]
    NoProcess {
        /// Its number.
        pid: Pid,
    },
    /// Another watcher.
    #[error(
        "another fettle watches process {pid} already (it holds {path}); two would heal it twice"
    )]
    Taken {
        /// The process.
        pid: Pid,
        /// The lock's file.
        path: PathBuf,
    },
    /// The port of the metrics.
    #[error("metrics on {address}: {source}")]
    Metrics {
        /// Which.
        address: LocalAddress,
        /// Why.
        source: std::io::Error,
    },
    /// Another user has the watcher's folder, or may write to it.
    #[error(
        "{folder} is not yours alone to write to: choose another folder by --state, or take others' rights from it"
    )]
    NotOwn {
        /// The folder.
        folder: PathBuf,
    },
    /// A file.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// A watcher.
pub struct Watcher {
    options: WatcherOptions,
    judge: Judge,
    processes: Processes,
    actor: Actor,
    tally: Tally,
    /// Where metrics are read, and the file of the token.
    metrics: Option<(SocketAddr, PathBuf)>,
    looks: VecDeque<Look>,
    /// What earlier watchers have learned, if rules ask for that.
    learned: Option<Learned>,
    recording: Option<(PathBuf, Recording<BufWriter<File>>)>,
    killed: Vec<Killed>,
    journal: PathBuf,
    /// Held as long as this lives.
    locks: Vec<File>,
    spares_at: Option<Instant>,
    budgets: Arc<Budgets>,
    /// Rules that hold of processes and could not act, and when they may be found to hold anew.
    again: Vec<(Instant, usize, ProcessId)>,
    /// The journal could not be written the last time.
    is_unwritten: bool,
}

/// A process that was killed so that another one comes.
struct Killed {
    rule: String,
    id: ProcessId,
    parent: Option<Pid>,
    program: String,
    since_ns: u64,
    found_ns: u64,
    siblings: BTreeSet<ProcessId>,
    /// Its spare, if that has taken its place.
    successor: Option<Pid>,
    at: Instant,
}

impl Watcher {
    /// Takes the processes on.
    ///
    /// # Errors
    ///
    /// When one of them does not exist or is watched already, or a file cannot be made.
    pub fn new(rules: Vec<Rule>, mut options: WatcherOptions) -> Result<Watcher, WatchError> {
        options.pids.sort_unstable();
        options.pids.dedup();
        let file = |path: &Path, source| WatchError::File { path: path.to_owned(), source };
        for &pid in &options.pids {
            if !Path::new(&format!("/proc/{pid}/stat")).exists() {
                return Err(WatchError::NoProcess { pid });
            }
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&options.state);
        let meta = made.and_then(|()| std::fs::metadata(&options.state));
        if !is_own(&meta.map_err(|error| file(&options.state, error))?) {
            // Who may write to it could put a link to another file in the place of one of ours.
            return Err(WatchError::NotOwn { folder: options.state });
        }
        let locks = options.pids.iter().map(|pid| lock(&options.state, *pid));
        let locks = locks.collect::<Result<Vec<File>, WatchError>>()?;
        let recording = options.record.clone().map(|path| {
            let made = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path);
            let made = made.map_err(|error| file(&path, error))?;
            Ok((path, Recording::new(BufWriter::new(made))))
        });
        let (tally, budgets) = (Tally::new(&rules), Arc::new(Budgets::new(&rules)));
        let actor =
            Actor::new(&options.state, &options.fettle, Arc::clone(&budgets), tally.clone());
        let metrics = options.metrics.map(|address| {
            let page = tally.page(Arc::clone(&budgets), actor.queue());
            let served = serve_metrics(address, &options.state, page);
            served.map_err(|source| WatchError::Metrics { address, source })
        });
        let learns =
            |rule: &Rule| matches!(rule.condition, Condition::Spins { exactly: false, .. });
        let learns = rules.iter().any(learns);
        Ok(Watcher {
            learned: learns.then(|| Learned::new(&options.state, &options.pids)),
            processes: Processes::new(options.pids.clone(), wanted(&rules)),
            actor,
            tally,
            metrics: metrics.transpose()?,
            journal: options.state.join("journal.jsonl"),
            looks: VecDeque::with_capacity(LOOKS_KEPT),
            recording: recording.transpose()?,
            killed: Vec::new(),
            judge: Judge::new(rules),
            options,
            locks,
            spares_at: None,
            budgets,
            again: Vec::new(),
            is_unwritten: false,
        })
    }

    /// Has requests that processes answer come from there, for rules over these.
    pub fn set_requests(&mut self, requests: Box<dyn Requests>) {
        self.processes.set_requests(requests);
    }

    /// Watches until `stop` is set or nothing is left to watch. `notice` gets what a person should read.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        mut notice: impl FnMut(Notice),
    ) -> Result<(), WatchError> {
        self.processes.refresh(Instant::now());
        let named = |process: &Watched| (process.program.clone(), process.id.pid);
        let is_idle = |rule: &&Rule| {
            let fits = |process: &Watched| rule.target.fits(&process.program, process.is_worker);
            !self.processes.all().any(fits)
        };
        let idle = self.judge.rules().iter().filter(is_idle).map(|rule| rule.name.clone());
        let processes = self.processes.all().map(named).collect();
        notice(Notice::Watching { processes, idle: idle.collect() });
        if let Some((address, token_file)) = self.metrics.clone() {
            notice(Notice::Metrics { address, token_file });
        }
        let clock = LookClock::new();
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if !self.killed.is_empty() {
                self.processes.refresh(Instant::now());
            }
            let now = Instant::now();
            let Some(mut look) = self.processes.look(now, clock.at_ns(now)) else { break };
            if let Some(learned) = &mut self.learned {
                learned.recall(&mut look);
                learned.save(&self.judge, now, false);
            }
            self.tend_spares(now, &mut notice);
            if let Some(why) = self.processes.problem_of_requests() {
                notice(Notice::NoRequests { why });
            }
            self.find_again(now);
            let findings = self.judge.see(&look);
            self.tally.look();
            self.remember(look, &mut notice);
            for finding in findings {
                self.found(finding, &mut notice);
            }
            self.successors(&mut notice);
            self.give_back(now, &mut notice);
            let sent = self.actor.sent();
            self.sent(sent, &mut notice);
            let ended = self.actor.ended();
            self.ended(ended, &mut notice);
            next = next.checked_add(self.options.tick).unwrap_or(next);
            let now = Instant::now();
            if next < now {
                // It came too late, for the machine is busy: looks are not made up for.
                next = now;
            }
            sleep_until(next, stop);
        }
        if let Some((path, recording)) = &mut self.recording {
            let path = path.clone();
            recording.flush().map_err(|source| WatchError::File { path, source })?;
        }
        if let Some(learned) = &mut self.learned {
            learned.save(&self.judge, Instant::now(), true);
        }
        let ended = self.actor.interrupt();
        self.ended(ended, &mut notice);
        let sent = self.actor.finish(Duration::from_secs(2));
        self.sent(sent, &mut notice);
        Ok(())
    }

    /// What could not act, and may try it again, is found anew.
    fn find_again(&mut self, now: Instant) {
        let judge = &mut self.judge;
        self.again.retain(|(at, rule, process)| {
            let is_due = now >= *at;
            if is_due {
                judge.find_again(*rule, *process);
            }
            !is_due
        });
    }

    /// Sees to the spares of processes that a rule would replace.
    fn tend_spares(&mut self, now: Instant, notice: &mut impl FnMut(Notice)) {
        let is_due = self.spares_at.is_none_or(|at| now.duration_since(at) >= SPARES_EVERY);
        if !self.options.act || !is_due {
            return;
        }
        self.spares_at = Some(now);
        let replaces = |rule: &&Rule| rule.actions.contains(&Action::RestartReplace);
        let rules: Vec<&Rule> = self.judge.rules().iter().filter(replaces).collect();
        let is_wanted = |process: &&Watched| {
            rules.iter().any(|rule| rule.target.fits(&process.program, process.is_worker))
        };
        let changes = self.actor.tend_spares(self.processes.all().filter(is_wanted), now);
        for (of, state) in changes {
            notice(Notice::Spare { of, state });
        }
    }

    /// Writes down and says what came of jobs.
    fn ended(&mut self, ended: Vec<Ended>, notice: &mut impl FnMut(Notice)) {
        for ended in ended {
            self.write(&Line::Ended(ended.clone()), notice);
            notice(Notice::Ended(ended));
        }
    }

    /// Writes down and says what became of messages.
    fn sent(&mut self, sent: Vec<Sent>, notice: &mut impl FnMut(Notice)) {
        for sent in sent {
            let line = Line::Sent(sent.clone());
            notice(Notice::Sent(sent));
            self.write(&line, notice);
        }
    }

    /// Gives back knobs whose time is over.
    fn give_back(&mut self, now: Instant, notice: &mut impl FnMut(Notice)) {
        for knob in self.actor.give_back(now) {
            let Ok(pid) = Pid::try_from(knob.producer.pid) else { continue };
            let given = GivenBack { at_ms: now_ms(), knob: knob.name, pid };
            notice(Notice::GivenBack(given.clone()));
            self.write(&Line::GivenBack(given), notice);
        }
    }

    /// Writes a line of the journal. A full disk is said once, and does not end the watching.
    fn write(&mut self, line: &Line, notice: &mut impl FnMut(Notice)) {
        let written = journal::append(&self.journal, line);
        if let Err(error) = &written
            && !self.is_unwritten
        {
            notice(Notice::Unwritten { path: self.journal.clone(), why: error.to_string() });
        }
        self.is_unwritten = written.is_err();
    }

    fn remember(&mut self, look: Look, notice: &mut impl FnMut(Notice)) {
        if let Some((path, recording)) = &mut self.recording
            && let Err(error) = recording.add(&look)
        {
            notice(Notice::Unwritten { path: path.clone(), why: error.to_string() });
            // What comes behind a gap would be another time's.
            self.recording = None;
        }
        if self.looks.len() == LOOKS_KEPT {
            self.looks.pop_front();
        }
        self.looks.push_back(look);
    }

    fn found(&mut self, finding: Finding, notice: &mut impl FnMut(Notice)) {
        let rule = self.judge.rules()[finding.rule].clone();
        let Some(process) = self.processes.get(finding.process) else { return };
        self.tally.finding(&rule);
        let (now, found_ns) = (Instant::now(), monotonic_ns());
        let at_ms = now_ms();
        let (mut done, mut paused, mut successor) = (Vec::new(), false, None);
        if self.options.act {
            let looks = self.looks.make_contiguous();
            let first = self.processes.all().filter(|other| !other.is_worker);
            let pids = first.map(|other| other.id.pid).collect();
            let (marks, recent) = (self.judge.marks(finding.process), self.processes.recent());
            let at_ns = found_ns;
            let scene =
                Scene { finding: &finding, process, looks, pids, marks, recent, at_ns, at_ms };
            done = self.actor.act(&rule, &scene, now);
            if done.iter().any(|done| done.error.is_some()) {
                let wait = match self.budgets.wait(&rule.name, now) {
                    Duration::ZERO => AGAIN,
                    wait => wait,
                };
                self.again.push((now + wait, finding.rule, finding.process));
            }
            paused = self.actor.has_paused();
            successor = self.actor.take_successor();
            let killed = |done: &crate::journal::Done| {
                let kills = [Action::RestartKill, Action::RestartReplace].contains(&done.action);
                kills && done.error.is_none()
            };
            if done.iter().any(killed) {
                let siblings = self.processes.all().filter(|other| other.parent == process.parent);
                self.killed.push(Killed {
                    rule: rule.name.clone(),
                    id: process.id,
                    parent: process.parent,
                    program: process.program.clone(),
                    since_ns: finding.since_ns,
                    found_ns,
                    siblings: siblings.map(|other| other.id).collect(),
                    successor,
                    at: now,
                });
            }
            if let Some(new) = successor {
                // It is new: no other watcher can have it.
                self.locks.extend(lock(&self.options.state, new));
            }
        }
        let mut would_send = Vec::new();
        if !self.options.act {
            let to = rule.actions.iter().filter_map(Action::webhook).cloned();
            would_send.extend(to.map(|webhook| {
                let message = Box::new(Message::new(&rule.name, &finding, process, &[], at_ms));
                Notice::WouldSend { webhook, message }
            }));
        }
        let program = process.program.clone();
        if paused {
            self.processes.disturbed(finding.process);
        }
        if let Some(new) = successor {
            self.processes.add(new, now);
        }
        let entry = Entry { at_ms, rule: rule.name, program, finding, done };
        let line = Line::Found(entry.clone());
        notice(Notice::Found(Box::new(entry)));
        would_send.into_iter().for_each(&mut *notice);
        self.write(&line, notice);
    }

    /// Whether those have come that are to take the places of those that were killed.
    fn successors(&mut self, notice: &mut impl FnMut(Notice)) {
        let processes = &self.processes;
        let mut taken = BTreeSet::new();
        self.killed.retain(|killed| {
            let is_successor = |other: &Watched| match killed.successor {
                Some(successor) => other.id.pid == successor,
                None => {
                    other.parent == killed.parent
                        && other.program == killed.program
                        && !killed.siblings.contains(&other.id)
                }
            };
            let has_come_to_work =
                |pid: Pid| tids(pid).into_iter().any(|tid| waits_for_work(pid, tid));
            let fits = |other: &&Watched| {
                is_successor(other) && !taken.contains(&other.id) && has_come_to_work(other.id.pid)
            };
            if let Some(new) = processes.all().find(fits) {
                taken.insert(new.id);
                notice(Notice::Replaced {
                    rule: killed.rule.clone(),
                    old: killed.id.pid,
                    new: new.id.pid,
                    found_after_ns: killed.found_ns.saturating_sub(killed.since_ns),
                    after_ns: monotonic_ns().saturating_sub(killed.since_ns),
                });
                return false;
            }
            let waits = killed.at.elapsed() < REPLACEMENT_MAX;
            if !waits {
                notice(Notice::NotReplaced { rule: killed.rule.clone(), old: killed.id.pid });
            }
            waits
        });
    }
}

/// Takes a process on: one watcher at a time has it.
fn lock(state: &Path, pid: Pid) -> Result<File, WatchError> {
    let path = state.join(format!("watched-{pid}"));
    let mut opening = OpenOptions::new();
    let lock = opening.create(true).write(true).truncate(false).mode(0o600).open(&path);
    let lock = lock.map_err(|source| WatchError::File { path: path.clone(), source })?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(_) => Err(WatchError::Taken { pid, path }),
    }
}

/// Sleeps until then, or until `stop` is set.
fn sleep_until(then: Instant, stop: &AtomicBool) {
    while let Some(wait) = then.checked_duration_since(Instant::now())
        && !stop.load(Ordering::Relaxed)
    {
        std::thread::sleep(wait.min(SLEEP_MAX));
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

fn serve_metrics(
    address: LocalAddress,
    state: &Path,
    page: impl Fn() -> String + Send + Sync + 'static,
) -> std::io::Result<(SocketAddr, PathBuf)> {
    let listener = address.listen()?;
    let address = listener.local_addr()?;
    // Several watchers may share the folder, each with a port of its own.
    let token_file = state.join(format!("metrics-token-{}", address.port()));
    fettle_metrics::serve(listener, &token_file, page)?;
    Ok((address, token_file))
}

/// What rules need to see.
fn wanted(rules: &[Rule]) -> Wanted {
    let mut wanted = Wanted::default();
    for rule in rules {
        match &rule.condition {
            Condition::Spins { .. } => wanted.progress = true,
            Condition::WaitsInCycle => wanted.waits = true,
            Condition::SleepsOnBytes { .. } => wanted.unread = true,
            Condition::ScalarStill { sensor, .. } => {
                wanted.scalars.insert(sensor.clone());
            }
            Condition::Above(windows) => match &windows.measure {
                Measure::Quantile { histogram, .. } => {
                    let every = wanted.histograms.entry(histogram.clone()).or_insert(windows.over);
                    *every = (*every).min(windows.over);
                }
                Measure::Requests { pattern, .. } | Measure::Failures { pattern } => {
                    let every = wanted.requests.entry(pattern.clone()).or_insert(windows.over);
                    *every = (*every).min(windows.over);
                }
                Measure::Share { part, whole } => {
                    wanted.scalars.extend([part.clone(), whole.clone()]);
                }
            },
        }
    }
    wanted
}

/// Times of looks, for what decides when to look and for what decides by looks: a window that the one finds to be over
/// is over for the other, to the nanosecond. Otherwise it would go on until the next look at its counts.
struct LookClock {
    begun: Instant,
    begun_ns: u64,
}

impl LookClock {
    fn new() -> LookClock {
        // In this order, no look is later than what it saw.
        let begun_ns = monotonic_ns();
        LookClock { begun: Instant::now(), begun_ns }
    }

    /// Nanoseconds of CLOCK_MONOTONIC.
    fn at_ns(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.begun).as_nanos();
        self.begun_ns.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

/// Whether a thread is in a system call in which servers wait for work: accept, poll, select, epoll, or
/// a read.
fn waits_for_work(pid: Pid, tid: Tid) -> bool {
    const CALLS: [&str; 10] = ["0", "7", "23", "43", "45", "232", "270", "271", "281", "288"];
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
    text.split_ascii_whitespace().next().is_some_and(|call| CALLS.contains(&call))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn windows_are_as_long_for_those_who_look_as_for_those_who_decide() {
        let clock = LookClock::new();
        let (now, over) = (Instant::now(), Duration::from_secs(10));
        assert_eq!(clock.at_ns(now + over) - clock.at_ns(now), 10_000_000_000);
        assert!(clock.at_ns(now) <= monotonic_ns());
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let begin = |mode| {
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
            let rule = "rule a { process of \"x\" waits in a cycle -> log }";
            let options = WatcherOptions {
                pids: vec![Pid::own()],
                act: false,
                tick: Duration::from_millis(1),
                fettle: "/bin/false".into(),
                state: folder.path().to_owned(),
                record: None,
                metrics: None,
            };
            Watcher::new(crate::parse::parse("r", rule).unwrap(), options).map(drop)
        };
        let refused = begin(0o777).unwrap_err().to_string();
        assert!(refused.contains("not yours alone") && refused.contains("--state"), "{refused}");
        begin(0o755).unwrap();
    }
}
