//! Running a program with a time limit, its output in files.
//!
//! Output goes to files and not to pipes: a daemon that outlives its parent would hold a pipe
//! open, and waiting for its end would hang. Each program leads a process group of its own, so
//! that a time-out ends all of it and nothing else.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// The lines of JSON that a program writes, as they come; other lines are left out.
pub fn json_lines(out: impl Read + Send + 'static) -> Receiver<serde_json::Value> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let values = BufReader::new(out).lines().map_while(Result::ok);
        for value in values.filter_map(|line| serde_json::from_str(&line).ok()) {
            if sender.send(value).is_err() {
                break;
            }
        }
    });
    lines
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exit(i32),
    /// This signal ended it.
    Signal(i32),
    /// It was still running when its time was over.
    TimedOut,
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Ending {
        match (status.code(), status.signal()) {
            (Some(code), _) => Ending::Exit(code),
            (None, Some(signal)) => Ending::Signal(signal),
            (None, None) => unreachable!("a finished process exited or was killed"),
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ending::Exit(code) => write!(f, "exit status {code}"),
            Ending::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "{signal}"),
                Err(_) => write!(f, "signal {number}"),
            },
            Ending::TimedOut => write!(f, "time-out"),
        }
    }
}

/// What a finished program left.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// All of its standard error.
    pub stderr: Vec<u8>,
    /// Time from start to end.
    pub wall: Duration,
}

/// A program that runs in the background with its output in two files.
pub struct Running {
    child: Child,
    start: Instant,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// Starts `command` in a process group of its own. Its output goes to `NAME.out` and `NAME.err`
/// in `logs`, where `NAME` is `name`; its input comes from `stdin` or is empty.
pub fn start(
    mut command: Command,
    logs: &Path,
    name: &str,
    stdin: Option<&Path>,
) -> Result<Running> {
    let stdout = logs.join(format!("{name}.out"));
    let stderr = logs.join(format!("{name}.err"));
    match stdin {
        Some(path) => {
            command.stdin(File::open(path).with_context(|| format!("input {}", path.display()))?)
        }
        None => command.stdin(Stdio::null()),
    };
    command.stdout(File::create(&stdout)?).stderr(File::create(&stderr)?).process_group(0);
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("starting {:?}", command.get_program()))?;
    Ok(Running { child, start, stdout, stderr })
}

impl Running {
    /// Sends a signal to the program alone, as `kill` does.
    pub fn signal(&self, signal: Signal) {
        // Failure means that it ended already, which `finish` will show.
        let _ = nix::sys::signal::kill(self.pid(), signal);
    }

    /// Whether it has not ended yet.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the program ends or `limit` after its start is reached, when everything in
    /// its process group is killed.
    pub fn finish(mut self, limit: Duration) -> Result<Outcome> {
        let mut pause = Duration::from_micros(200);
        let ending = loop {
            if let Some(status) = self.child.try_wait()? {
                break Ending::from(status);
            }
            if self.start.elapsed() > limit {
                kill_group(&self.child);
                self.child.wait()?;
                break Ending::TimedOut;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        };
        let wall = self.start.elapsed();
        // What it left in the background is over with it.
        kill_group(&self.child);
        let stdout = std::fs::read(&self.stdout)?;
        let stderr = std::fs::read(&self.stderr)?;
        Ok(Outcome { ending, stdout, stderr, wall })
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

/// A program with all that it has started, which ends with it.
pub struct Group(Child);

impl Group {
    /// Starts it, without any input.
    pub fn start(command: &mut Command) -> Result<Group> {
        let started = command.process_group(0).stdin(Stdio::null()).spawn();
        Ok(Group(started.with_context(|| format!("starting {:?}", command.get_program()))?))
    }

    /// The same, with all that it says in a file.
    pub fn logged(command: &mut Command, log: &Path) -> Result<Group> {
        let log = File::create(log)?;
        Group::start(command.stdout(log.try_clone()?).stderr(log))
    }

    /// What it says, if its output is piped.
    pub fn out(&mut self) -> Result<ChildStdout> {
        self.0.stdout.take().context("its output goes elsewhere")
    }

    /// Its first process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether that runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        kill_group(&self.0);
        let _ = self.0.wait();
    }
}

fn kill_group(first: &Child) {
    // Failure means that the group is empty.
    let _ = killpg(Pid::from_raw(first.id().cast_signed()), Signal::SIGKILL);
}

/// Runs a chore's step with the terminal's output, failing when it fails.
pub fn step(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Runs a chore's step silently and returns its standard output; its messages appear only when it
/// fails.
pub fn output_of(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program of this name is on the path.
pub fn on_path(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// No core files: they would count as files that the program produced.
pub fn no_core_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CORE) {
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, hard);
    }
}
