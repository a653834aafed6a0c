//! The loop: look, decide, have it done.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chrono::Timelike;
use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};

use crate::find::{Finder, Found};
use crate::fleet::{Act, Budget, Fleet, GroupKey, Outcome, State};
use crate::jobs::{self, Job};
use crate::metrics::{self, Metrics};
use crate::rules::{DaemonRules, Rules};
use crate::saved;

/// How often jobs are looked at.
const TICK: Duration = Duration::from_millis(100);
/// The time over which the share of the processor is counted.
const HOUR: Duration = Duration::from_secs(3600);

/// What a daemon needs.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// The rules.
    pub rules: Rules,
    /// The `fettle` command.
    pub fettle: PathBuf,
    /// Where its own state is.
    pub folder: PathBuf,
    /// Look once, do what is to be done, wait for that, and end.
    pub once: bool,
}

/// Something that a person should read.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice<'a> {
    /// Something is begun with a group.
    Begun {
        /// The rule's name.
        rule: &'a str,
        /// The group.
        found: &'a Found,
        /// What.
        act: &'a Act,
    },
    /// It has ended.
    Ended {
        /// The rule's name.
        rule: &'a str,
        /// The group.
        found: &'a Found,
        /// What.
        act: &'a Act,
        /// What became of it.
        outcome: &'a Outcome,
        /// How long it took.
        took: Duration,
    },
    /// Something of the daemon's own failed.
    Trouble {
        /// What.
        what: String,
    },
}

/// Why there is no daemon.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// There is one already.
    #[error("another fettle tuned is at work (it holds {path}); two would undo each other's work")]
    Taken {
        /// The lock's file.
        path: PathBuf,
    },
    /// A file or the port.
    #[error("{what}: {source}")]
    Io {
        /// Which.
        what: String,
        /// Why.
        source: std::io::Error,
    },
}

/// A daemon.
#[derive(Debug)]
pub struct Daemon {
    options: DaemonOptions,
    fleet: Fleet,
    finder: Finder,
    before: BTreeMap<GroupKey, (u64, State)>,
    jobs: Vec<Job>,
    metrics: Option<Metrics>,
    /// When tuning ended, and the CPU time that it took.
    spent: VecDeque<(Instant, Duration)>,
    all_spent: Duration,
    /// Held as long as this lives.
    _lock: File,
}

impl Daemon {
    /// Takes the machine on.
    ///
    /// # Errors
    ///
    /// When another daemon has, a file cannot be made, or the port of the metrics is taken.
    pub fn new(options: DaemonOptions) -> Result<Daemon, DaemonError> {
        let io = |what: String| move |source| DaemonError::Io { what, source };
        let folder = options.folder.display().to_string();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&options.folder)
            .map_err(io(folder.clone()))?;
        let path = options.folder.join("lock");
        let mut opening = OpenOptions::new();
        let lock = opening.create(true).write(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(io(folder))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(DaemonError::Taken { path });
        }
        let metrics = match options.rules.daemon.metrics {
            Some(address) => Some(
                Metrics::serve(address, &options.folder.join("metrics-token"))
                    .map_err(io(format!("metrics on {address}")))?,
            ),
            None => None,
        };
        let before = saved::read(&options.folder.join("groups.json"));
        Ok(Daemon {
            fleet: Fleet::new(options.rules.rules.clone()),
            finder: Finder::default(),
            before,
            jobs: Vec::new(),
            metrics,
            spent: VecDeque::new(),
            all_spent: Duration::ZERO,
            options,
            _lock: lock,
        })
    }

    /// Works until `stop` is set; then tuning that is going on is interrupted and reverted, and what is
    /// tuned stays so. `is_changed` says whether a group has rewritten text.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        is_changed: &dyn Fn(&Found) -> bool,
        mut notify: impl FnMut(Notice<'_>),
    ) {
        let mut looked: Option<Instant> = None;
        while !stop.load(Ordering::Relaxed) {
            let due = looked.is_none_or(|at| at.elapsed() >= self.options.rules.daemon.look);
            if due && !(self.options.once && looked.is_some()) {
                looked = Some(Instant::now());
                let found = self.finder.find(self.fleet.rules());
                let before = &self.before;
                self.fleet.see(now_ms(), found, &|key| before.get(key).cloned(), is_changed);
                self.leave(&mut notify);
            }
            let (budget, before) = (self.budget(), self.jobs.len());
            let acts = self.fleet.next(now_ms(), budget);
            for act in acts {
                self.begin(act, &mut notify);
            }
            let ended = self.poll(&mut notify);
            if ended || self.jobs.len() != before {
                self.leave(&mut notify);
            }
            if self.options.once && self.jobs.is_empty() && !ended {
                return;
            }
            std::thread::sleep(TICK);
        }
        self.jobs.iter_mut().for_each(Job::interrupt);
        while !self.jobs.is_empty() {
            self.poll(&mut notify);
            std::thread::sleep(TICK);
        }
        self.leave(&mut notify);
    }

    /// The groups and how they stand.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    fn begin(&mut self, (key, act): (GroupKey, Act), notify: &mut dyn FnMut(Notice<'_>)) {
        let Some(group) = self.fleet.groups().get(&key) else { return };
        let rule = &self.fleet.rules()[group.found.rule];
        if act != Act::Check {
            notify(Notice::Begun { rule: &rule.name, found: &group.found, act: &act });
        }
        let (fettle, folder) = (&self.options.fettle, &self.options.folder);
        match jobs::begin((key, act.clone()), (rule, &group.found), fettle, folder) {
            Ok(job) => self.jobs.push(job),
            Err(error) => {
                let what = format!("{} cannot be run: {error}", fettle.display());
                self.fleet.done(now_ms(), &key, &Outcome::Failed { why: what.clone() });
                notify(Notice::Trouble { what });
            }
        }
    }

    /// Takes in what has ended; whether anything has.
    fn poll(&mut self, notify: &mut dyn FnMut(Notice<'_>)) -> bool {
        let mut ended = false;
        let mut jobs = std::mem::take(&mut self.jobs);
        jobs.retain_mut(|job| {
            let before = children_time();
            let Some(finished) = job.poll() else { return true };
            ended = true;
            let took = children_time().saturating_sub(before);
            if *job.act() != Act::Check {
                self.spent.push_back((Instant::now(), took));
                self.all_spent += took;
            }
            if let Some(group) = self.fleet.groups().get(&job.key) {
                let rule = &self.fleet.rules()[group.found.rule].name;
                let is_quiet = *job.act() == Act::Check && finished.outcome == Outcome::Done;
                if !is_quiet {
                    notify(Notice::Ended {
                        rule,
                        found: &group.found,
                        act: job.act(),
                        outcome: &finished.outcome,
                        took: finished.took,
                    });
                }
            }
            self.fleet.done(now_ms(), &job.key, &finished.outcome);
            false
        });
        self.jobs = jobs;
        ended
    }

    /// Whether tuning may begin.
    fn budget(&mut self) -> Budget {
        while self.spent.front().is_some_and(|(at, _)| at.elapsed() > HOUR) {
            self.spent.pop_front();
        }
        let spent: Duration = self.spent.iter().map(|(_, took)| *took).sum();
        budget(&self.options.rules.daemon, minute_of_day(), spent)
    }

    /// Writes down how all stands, for the next daemon and for Prometheus.
    fn leave(&mut self, notify: &mut dyn FnMut(Notice<'_>)) {
        let path = self.options.folder.join("groups.json");
        if let Err(error) = saved::write(&path, &self.fleet) {
            notify(Notice::Trouble { what: format!("{}: {error}", path.display()) });
        }
        if let Some(metrics) = &self.metrics {
            let text = metrics::text(&self.fleet, self.all_spent.as_secs_f64());
            metrics.show(text.unwrap_or_default());
        }
    }
}

/// Whether tuning may begin at a minute of the day, when it took `spent` in the last hour.
fn budget(rules: &DaemonRules, minute: u16, spent: Duration) -> Budget {
    if rules.quiet_hours.iter().any(|hours| hours.contain(minute)) {
        Budget::QuietHours
    } else if spent >= HOUR.mul_f64(rules.cpu_share) {
        Budget::Spent
    } else {
        Budget::Free
    }
}

fn minute_of_day() -> u16 {
    let now = chrono::Local::now();
    (now.hour() * 60 + now.minute()) as u16
}

/// Milliseconds since the machine was started, sleep included: a later daemon counts on.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// CPU time of all children that have ended and been waited for.
fn children_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    children_in(&text).unwrap_or_default()
}

/// The fields `cutime` and `cstime`, in hundredths of a second (proc_pid_stat(5)).
fn children_in(text: &str) -> Option<Duration> {
    let (_, behind) = text.rsplit_once(')')?;
    let mut fields = behind.split_ascii_whitespace().skip(13);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks()? + ticks()?) * 10))
}

/// Where a daemon of this user keeps its state, below the folder of undo logs.
pub fn default_folder(state: &Path) -> PathBuf {
    state.join("tuned")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tuning_may_take_is_limited() {
        let text = "[daemon]\nquiet_hours = [\"09:00-17:00\"]\ncpu_share = 0.1\n[[rule]]\nname = \"a\"\nunit = \"a\"\n";
        let rules = Rules::parse(text).unwrap().daemon;
        assert_eq!(budget(&rules, 9 * 60, Duration::ZERO), Budget::QuietHours);
        assert_eq!(budget(&rules, 17 * 60, Duration::ZERO), Budget::Free);
        assert_eq!(budget(&rules, 17 * 60, Duration::from_secs(360)), Budget::Spent);
    }

    #[test]
    fn time_of_children_is_read() {
        let text = "7 (a (b)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 70 8 20 0 1 0 9 0 0";
        assert_eq!(children_in(text), Some(Duration::from_millis(780)));
        assert_eq!(children_in("7 (a"), None);
    }
}
