//! What rules have other Fettles do that takes seconds: tune a process, or locate what bad requests have in
//! common. The watcher goes on meanwhile, and says what came of it when it is known.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use fettle_types::Pid;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::evidence;
use crate::journal::{Ended, JobKind};
use crate::scene::Scene;

/// So much of a message is looked into.
const READ_MAX: u64 = 1 << 24;
/// Bytes of each message over a connection that are recorded: enough to see what it asks or answers.
const PAYLOAD: &str = "256";
/// Faults that are named in a line.
const FAULTS_MAX: usize = 3;
/// After the watcher's own patience, jobs that were interrupted have so long to put right what they began.
const INTERRUPTED_MAX: Duration = Duration::from_secs(10);

/// Jobs that run.
#[derive(Debug)]
pub(crate) struct Jobs {
    fettle: PathBuf,
    running: Vec<Job>,
}

#[derive(Debug)]
struct Job {
    about: Ended,
    folder: PathBuf,
    child: Child,
    /// What is to be run after that, in order.
    next: VecDeque<Step>,
    interrupted: bool,
}

/// One run of Fettle.
#[derive(Debug)]
struct Step {
    arguments: Vec<String>,
    /// The file in the folder that gets what it prints.
    output: &'static str,
}

/// The file that gets what the steps of a job complain about.
const COMPLAINTS: &str = "fettle.err";
const TUNED: &str = "tune.json";
const TRACE: &str = "requests.fettle";
const LOCATED: &str = "located.json";

impl Jobs {
    pub(crate) fn new(fettle: PathBuf) -> Jobs {
        Jobs { fettle, running: Vec::new() }
    }

    /// Tunes a process by `fettle tune`. `work` prints a number that grows with its work.
    pub(crate) fn tune(
        &mut self,
        rule: &str,
        scene: &Scene<'_>,
        place: &Path,
        work: Option<&str>,
    ) -> Result<String, String> {
        let pid = scene.process.id.pid;
        // Reverted, if this process is killed.
        let mut arguments = strings(&["tune", "--json", "--with-parent", "-p", &pid.to_string()]);
        arguments.extend(strings(&["--reason", &format!("rule {rule} of fettle watch")]));
        arguments.extend(work.into_iter().map(|command| format!("--work-counter={command}")));
        self.start(JobKind::Tune, rule, scene, place, [Step { arguments, output: TUNED }])
    }

    /// Records the kernel's events of all that is watched, and has `fettle locate` say what bad requests have in
    /// common.
    pub(crate) fn locate(
        &mut self,
        rule: &str,
        scene: &Scene<'_>,
        place: &Path,
        over: Duration,
    ) -> Result<String, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("the kernel's events are recorded by root alone".to_owned());
        }
        let pids: Vec<String> = scene.pids.iter().map(Pid::to_string).collect();
        let time = format!("{}us", over.as_micros());
        let recorded = ["record", "-q", "--payload", PAYLOAD, "--duration", &time, "-o", TRACE];
        let mut arguments = strings(&recorded);
        arguments.extend(["-p".to_owned(), pids.join(",")]);
        let steps = [
            Step { arguments, output: "record.out" },
            Step { arguments: strings(&["locate", "--json", TRACE]), output: LOCATED },
            Step { arguments: strings(&["locate", "--no-color", TRACE]), output: "located.txt" },
        ];
        self.start(JobKind::Locate, rule, scene, place, steps)
    }

    fn start(
        &mut self,
        kind: JobKind,
        rule: &str,
        scene: &Scene<'_>,
        place: &Path,
        steps: impl Into<VecDeque<Step>>,
    ) -> Result<String, String> {
        // Two at a time would see each other's work.
        if let Some(other) = self.running.iter().find(|other| other.about.job == kind) {
            return Err(format!(
                "`{}` by rule {} goes on in {}",
                kind.name(),
                other.about.rule,
                other.folder.display()
            ));
        }
        let pid = scene.process.id.pid;
        let folder = evidence::folder(place, rule, pid, scene.at_ms)
            .map_err(|error| format!("there is no folder for what is found: {error}"))?;
        let mut next = steps.into();
        let Some(step) = next.pop_front() else { return Ok(String::new()) };
        let child = run(&self.fettle, &folder, &step)?;
        let about = Ended {
            at_ms: scene.at_ms,
            rule: rule.to_owned(),
            job: kind,
            pid,
            folder: folder.display().to_string(),
            result: None,
            error: None,
        };
        let shown = folder.display().to_string();
        self.running.push(Job { about, folder, child, next, interrupted: false });
        Ok(shown)
    }

    /// What has ended since this was asked last.
    pub(crate) fn poll(&mut self) -> Vec<Ended> {
        let mut ended = Vec::new();
        let fettle = &self.fettle;
        self.running.retain_mut(|job| match job.poll(fettle) {
            None => true,
            Some(about) => {
                ended.push(about);
                false
            }
        });
        ended
    }

    /// Interrupts what runs and waits for it: what it has begun, it reverts.
    pub(crate) fn finish(&mut self) -> Vec<Ended> {
        for job in &mut self.running {
            job.interrupted = true;
            job.next.clear();
            let pid = i32::try_from(job.child.id()).ok().and_then(rustix::process::Pid::from_raw);
            // It has not been waited for, so the number is its own.
            let _ = pid.map(|pid| kill_process(pid, Signal::INT));
        }
        let begun = Instant::now();
        let mut ended = self.poll();
        while !self.running.is_empty() && begun.elapsed() < INTERRUPTED_MAX {
            std::thread::sleep(Duration::from_millis(5));
            ended.extend(self.poll());
        }
        let left = self.running.drain(..);
        let why = "the watcher ended, and it has not stopped yet";
        ended.extend(left.map(|job| Ended { error: Some(why.to_owned()), ..job.about }));
        ended
    }
}

impl Job {
    /// What came of it, if it has ended. Begins what is next.
    fn poll(&mut self, fettle: &Path) -> Option<Ended> {
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status,
            Err(error) => {
                return Some(self.ended(Err(format!("it cannot be waited for: {error}"))));
            }
        };
        if self.interrupted {
            return Some(self.ended(Err("the watcher ended before it was done".to_owned())));
        }
        // 1 says that nothing was found, or changed.
        if !matches!(status.code(), Some(0 | 1)) {
            return Some(self.ended(Err(self.complaint(status))));
        }
        let Some(step) = self.next.pop_front() else {
            let result = match self.about.job {
                JobKind::Tune => tuned(&self.folder.join(TUNED)),
                JobKind::Locate => located(&self.folder.join(LOCATED)),
            };
            let result = result.ok_or_else(|| self.complaint(status));
            return Some(self.ended(result));
        };
        match run(fettle, &self.folder, &step) {
            Ok(child) => {
                self.child = child;
                None
            }
            Err(error) => Some(self.ended(Err(error))),
        }
    }

    fn ended(&self, result: Result<String, String>) -> Ended {
        let (result, error) = match result {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        Ended { result, error, ..self.about.clone() }
    }

    /// The last line that it has complained in.
    fn complaint(&self, status: ExitStatus) -> String {
        let text = read(&self.folder.join(COMPLAINTS)).unwrap_or_default();
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(
            || format!("it ended with {status}"),
            |line| line.trim_start_matches("fettle: ").to_owned(),
        )
    }
}

fn strings(of: &[&str]) -> Vec<String> {
    of.iter().map(|text| (*text).to_owned()).collect()
}

fn run(fettle: &Path, folder: &Path, step: &Step) -> Result<Child, String> {
    let open = |name: &str| -> std::io::Result<File> {
        OpenOptions::new().create(true).append(true).mode(0o600).open(folder.join(name))
    };
    let files = open(step.output).and_then(|output| Ok((output, open(COMPLAINTS)?)));
    let (output, complaints) = files.map_err(|error| format!("{}: {error}", folder.display()))?;
    let child = Command::new(fettle)
        .args(&step.arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(complaints)
        .spawn();
    child.map_err(|error| format!("`fettle {}` cannot be started: {error}", step.arguments[0]))
}

fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(READ_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What `fettle tune --json` has to say, in a line.
fn tuned(path: &Path) -> Option<String> {
    let text = read(path)?;
    let value: Value = serde_json::from_str(text.lines().next_back()?).ok()?;
    let kept = value["kept"].as_bool()?;
    let change = value["measured"]["ratio"].as_f64().map_or_else(String::new, |ratio| {
        format!(" ({:+.1} % CPU time for a unit of work)", (ratio - 1.0) * 100.0)
    });
    Some(match (kept, value["not_compared"].as_str()) {
        (true, _) => format!("faster{change}; `fettle undo` reverts it"),
        (false, Some(why)) => format!("nothing was changed: {why}"),
        (false, None) => format!("no certain gain{change}; nothing was changed"),
    })
}

/// What `fettle locate --json` has to say, in a line.
fn located(path: &Path) -> Option<String> {
    let value: Value = serde_json::from_str(&read(path)?).ok()?;
    let number = |name: &str| value[name].as_u64();
    let requests = number("requests")?;
    let bad = number("failed")? + number("unanswered")? + number("slow")?;
    let faults = value["faults"].as_array()?.iter().take(FAULTS_MAX);
    let first = |fault: &Value| Some(fault["components"].get(0)?.as_str()?.to_owned());
    let named: Vec<String> = faults.filter_map(first).collect();
    let at_fault = if named.is_empty() { "none".to_owned() } else { named.join("; ") };
    Some(format!("{bad} of {requests} requests are bad, at fault: {at_fault}"))
}
