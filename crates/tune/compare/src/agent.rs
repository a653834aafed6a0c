//! Our program in a system, and what is asked of it: a line for a request, a line for an answer
//! (`runtime/bench/serve.c`).

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use fettle_types::Pid;

use crate::error::{CompareError, file};
use crate::folder::Folder;
use crate::processes;
use crate::system::{System, Tools};

/// How long a system may take to start.
const START: Duration = Duration::from_secs(60);
/// How long the answer to a request may take, but for programs of the user's.
const ANSWER: Duration = Duration::from_secs(120);
/// How long a system may take to end by itself.
const END: Duration = Duration::from_secs(3);
/// How often it is looked whether the user has ended it all.
const LOOK: Duration = Duration::from_millis(50);
/// Lines of what a system prints that are kept, to show them when it fails.
const LINES: usize = 5;

/// Our program, running in a system. Both end with this value.
#[derive(Debug)]
pub struct Agent<'a> {
    system: System,
    version: String,
    child: Child,
    requests: Option<ChildStdin>,
    lines: Receiver<String>,
    /// What the system printed of its own.
    said: VecDeque<String>,
    errors: PathBuf,
    stop: &'a AtomicBool,
}

/// A kind of operation that can be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Benchmark {
    /// Its name.
    pub name: String,
    /// The group that it belongs to.
    pub group: String,
    /// What it does, for people.
    pub what: String,
}

/// A moment, by the machine's own counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The time-stamp counter.
    pub tsc: u64,
    /// On which processor of the machine.
    pub cpu: u32,
}

/// How a program of the user's ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// From before its process was made until it had been waited for.
    pub wall_ns: f64,
    /// When that began and ended.
    pub stamps: [Stamp; 2],
    /// CPU time as the system itself has counted it.
    pub cpu_ns: f64,
    /// Its status; 128 and the signal's number if one ended it.
    pub status: i32,
    /// The end of what it wrote to standard error.
    pub errors: String,
}

impl<'a> Agent<'a> {
    /// Starts a system and our program in it. `stop` is set when the user wants everything to end.
    ///
    /// # Errors
    ///
    /// When something is missing, or it does not start.
    pub fn start(
        system: &System,
        tools: &Tools,
        folder: &Folder,
        number: usize,
        stop: &'a AtomicBool,
    ) -> Result<Agent<'a>, CompareError> {
        let (mut command, version) = system.start(tools, folder, number)?;
        let errors = folder.path().join(format!("errors-{number}"));
        let sink = File::create(&errors).map_err(file("cannot write a temporary file"))?;
        // A process group of its own: what the terminal sends is for us, who then end it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(sink);
        let no_start = |why: String| CompareError::NoStart { system: system.to_string(), why };
        let mut child = command.spawn().map_err(|error| no_start(error.to_string()))?;
        let requests = child.stdin.take();
        let output = child.stdout.take().expect("it was piped");
        let (to, lines) = channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(output);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                if to.send(text).is_err() {
                    break;
                }
                line.clear();
            }
        });
        let system = system.clone();
        let mut agent =
            Agent { system, version, child, requests, lines, said: VecDeque::new(), errors, stop };
        agent.answer(Some(START)).and_then(|answer| agent.expect(&answer, "ready")).map_err(
            |error| match error {
                CompareError::Stopped => error,
                CompareError::Broken { why, .. } => no_start(why),
                other => no_start(other.to_string()),
            },
        )?;
        agent.make_alike()?;
        Ok(agent)
    }

    /// The system.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Its version, as far as it says one.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Gives it the environment and the current folder that this process has.
    fn make_alike(&mut self) -> Result<(), CompareError> {
        for (name, value) in std::env::vars_os() {
            let mut text = name;
            text.push("=");
            text.push(value);
            self.ask_ok(&format!("environment {}", hex(&text)))?;
        }
        if let Ok(folder) = std::env::current_dir() {
            // A folder that this system does not have is missed by programs that need it.
            let _ = self.ask(&format!("folder {}", hex(folder.as_os_str())), Some(ANSWER))?;
        }
        Ok(())
    }

    /// What can be measured.
    ///
    /// # Errors
    ///
    /// When the system has ended.
    pub fn list(&mut self) -> Result<Vec<Benchmark>, CompareError> {
        let mut all = Vec::new();
        let mut line = self.ask("list", Some(ANSWER))?;
        while line != "end" {
            let mut words = line.splitn(4, ' ').map(str::to_owned);
            match (words.next().as_deref(), words.next(), words.next(), words.next()) {
                (Some("bench"), Some(name), Some(group), Some(what)) => {
                    all.push(Benchmark { name, group, what });
                }
                _ => return Err(self.broken(format!("it answered {line:?}"))),
            }
            line = self.answer(Some(ANSWER))?;
        }
        Ok(all)
    }

    /// So many operations take about that time.
    ///
    /// # Errors
    ///
    /// When they cannot be done here, or the system has ended.
    pub fn tune(&mut self, name: &str, time: Duration) -> Result<u64, CompareError> {
        let answer = self.ask(&format!("tune {name} {}", time.as_nanos()), Some(ANSWER))?;
        let count = self.expect(&answer, "tuned")?;
        count.parse().map_err(|_| self.broken(format!("it answered {answer:?}")))
    }

    /// Nanoseconds of one operation, in each batch of `count`.
    ///
    /// # Errors
    ///
    /// When they cannot be done here, or the system has ended.
    pub fn time(&mut self, name: &str, count: u64, batches: u32) -> Result<Vec<f64>, CompareError> {
        let answer = self.ask(&format!("time {name} {count} {batches}"), Some(ANSWER))?;
        self.times(&answer, "timed")
    }

    /// Before and after each of so many operations: the time-stamp counter and the number of this machine's
    /// processor.
    ///
    /// # Errors
    ///
    /// When they cannot be done here, or the system has ended.
    pub fn stamps(&mut self, name: &str, count: usize) -> Result<Vec<[Stamp; 2]>, CompareError> {
        let mut all = Vec::with_capacity(count);
        let mut line = self.ask(&format!("stamp {name} {count}"), Some(ANSWER))?;
        while line != "end" {
            let words = self.expect(&line, "stamp")?;
            let numbers: Vec<u64> = words.split(' ').map_while(|word| word.parse().ok()).collect();
            let [begin, from, end, to] = numbers[..] else {
                return Err(self.broken(format!("it answered {line:?}")));
            };
            let stamp = |tsc, cpu| Stamp { tsc, cpu: u32::try_from(cpu).unwrap_or(u32::MAX) };
            all.push([stamp(begin, from), stamp(end, to)]);
            line = self.answer(Some(ANSWER))?;
        }
        Ok(all)
    }

    /// The system's monotonic clock, in nanoseconds, and the time-stamp counter at that moment.
    ///
    /// # Errors
    ///
    /// When the system has ended.
    pub fn clock(&mut self) -> Result<(f64, u64), CompareError> {
        let answer = self.ask("clock", Some(ANSWER))?;
        let words = self.expect(&answer, "clock")?;
        let pair =
            words.split_once(' ').and_then(|(ns, tsc)| Some((ns.parse().ok()?, tsc.parse().ok()?)));
        pair.ok_or_else(|| self.broken(format!("it answered {answer:?}")))
    }

    /// What each operation of a benchmark passes through: the address of a function of the C library, and the
    /// system call that this makes.
    pub(crate) fn passage(&mut self, name: &str) -> Result<(u64, String), CompareError> {
        let answer = self.ask(&format!("passage {name}"), Some(ANSWER))?;
        let words = self.expect(&answer, "passage")?;
        let pair = words.split_once(' ').and_then(|(address, call)| {
            Some((u64::from_str_radix(address, 16).ok()?, call.to_owned()))
        });
        pair.ok_or_else(|| self.broken(format!("it answered {answer:?}")))
    }

    /// The process on this machine that all of the system's processes descend from.
    pub(crate) fn pid(&self) -> Pid {
        Pid::of_child(&self.child)
    }

    /// Ways of passing messages: names, and what they do.
    ///
    /// # Errors
    ///
    /// When the system has ended.
    pub fn ways(&mut self) -> Result<Vec<(String, String)>, CompareError> {
        self.names("ways", "way")
    }

    /// Ways of making processes: names, and what they do.
    ///
    /// # Errors
    ///
    /// When the system has ended.
    pub fn makers(&mut self) -> Result<Vec<(String, String)>, CompareError> {
        self.names("makers", "maker")
    }

    fn names(&mut self, request: &str, word: &str) -> Result<Vec<(String, String)>, CompareError> {
        let mut all = Vec::new();
        let mut line = self.ask(request, Some(ANSWER))?;
        while line != "end" {
            let named = self.expect(&line, word)?;
            let (name, what) = named.split_once(' ').unwrap_or((&named, ""));
            all.push((name.to_owned(), what.to_owned()));
            line = self.answer(Some(ANSWER))?;
        }
        Ok(all)
    }

    /// Moves so many bytes in messages of one size to another process, so many times; the processors of
    /// both, if they are to have certain ones. Nanoseconds of each time.
    ///
    /// # Errors
    ///
    /// When that cannot be done here, or the system has ended.
    pub fn move_messages(
        &mut self,
        way: &str,
        (size, bytes): (u64, u64),
        processors: Option<(u32, u32)>,
        rounds: u32,
    ) -> Result<Vec<f64>, CompareError> {
        let (ours, theirs) = match processors {
            Some((ours, theirs)) => (i64::from(ours), i64::from(theirs)),
            None => (-1, -1),
        };
        let request = format!("move {way} {size} {bytes} {ours} {theirs} {rounds}");
        let answer = self.ask(&request, Some(ANSWER))?;
        self.times(&answer, "moved")
    }

    /// Makes processes from one that has touched so many bytes. Nanoseconds of each.
    ///
    /// # Errors
    ///
    /// When that cannot be done here, or the system has ended.
    pub fn make_processes(
        &mut self,
        maker: &str,
        bytes: u64,
        rounds: u32,
    ) -> Result<Vec<f64>, CompareError> {
        let answer = self.ask(&format!("make {maker} {bytes} {rounds}"), Some(ANSWER))?;
        self.times(&answer, "made")
    }

    fn times(&self, answer: &str, word: &str) -> Result<Vec<f64>, CompareError> {
        let times = self.expect(answer, word)?;
        let times: Result<Vec<f64>, _> = times.split(' ').map(str::parse).collect();
        times.map_err(|_| self.broken(format!("it answered {answer:?}")))
    }

    /// Runs a program, however long that takes.
    ///
    /// # Errors
    ///
    /// When there can be no process, or the system has ended.
    pub fn run(&mut self, program: &[OsString]) -> Result<Ran, CompareError> {
        let words: Vec<String> = program.iter().map(|word| hex(word)).collect();
        let answer = self.ask(&format!("run {}", words.join(" ")), None)?;
        let words = self.expect(&answer, "ran")?;
        let mut words = words.split(' ');
        let mut number = || words.next()?.parse::<f64>().ok();
        let wall = number();
        let mut stamp = || {
            let tsc = words.next()?.parse().ok()?;
            Some(Stamp { tsc, cpu: words.next()?.parse().ok()? })
        };
        let stamps = (stamp(), stamp());
        let mut number = || words.next()?.parse::<f64>().ok();
        match (wall, stamps, number(), number(), number()) {
            (Some(wall_ns), (Some(begin), Some(end)), Some(user), Some(system), Some(status)) => {
                Ok(Ran {
                    wall_ns,
                    stamps: [begin, end],
                    cpu_ns: (user + system) * 1e3,
                    status: status as i32,
                    errors: String::from_utf8_lossy(&bytes_of(words.next().unwrap_or_default()))
                        .trim()
                        .to_owned(),
                })
            }
            _ => Err(self.broken(format!("it answered {answer:?}"))),
        }
    }

    /// CPU time that all processes of the system have used, on this machine.
    pub fn cpu_ns(&self) -> u64 {
        processes::cpu_ns(self.pid())
    }

    fn ask_ok(&mut self, request: &str) -> Result<(), CompareError> {
        let answer = self.ask(request, Some(ANSWER))?;
        self.expect(&answer, "ok").map(drop)
    }

    fn ask(&mut self, request: &str, limit: Option<Duration>) -> Result<String, CompareError> {
        let sent = self.requests.as_mut().map(|to| {
            to.write_all(request.as_bytes())
                .and_then(|()| to.write_all(b"\n"))
                .and_then(|()| to.flush())
        });
        match sent {
            Some(Ok(())) => self.answer(limit),
            _ => Err(self.ended()),
        }
    }

    /// The next answer, without its sign.
    fn answer(&mut self, limit: Option<Duration>) -> Result<String, CompareError> {
        let begin = Instant::now();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(CompareError::Stopped);
            }
            if limit.is_some_and(|limit| begin.elapsed() > limit) {
                return Err(self.broken(format!("no answer in {} s", begin.elapsed().as_secs())));
            }
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => match line.strip_prefix('@') {
                    Some(answer) => return Ok(answer.to_owned()),
                    None => self.keep(line),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        }
    }

    fn keep(&mut self, line: String) {
        if !line.is_empty() {
            self.said.push_back(line);
        }
        if self.said.len() > LINES {
            self.said.pop_front();
        }
    }

    /// What stands behind the word that an answer is expected to begin with.
    fn expect(&self, answer: &str, word: &str) -> Result<String, CompareError> {
        match answer.split_once(' ').unwrap_or((answer, "")) {
            (first, rest) if first == word => Ok(rest.trim().to_owned()),
            ("no" | "failed", why) => Err(self.broken(why.to_owned())),
            _ => Err(self.broken(format!("it answered {answer:?}"))),
        }
    }

    fn broken(&self, why: String) -> CompareError {
        CompareError::Broken { system: self.system.to_string(), why }
    }

    /// It has ended: with what it said last.
    fn ended(&mut self) -> CompareError {
        let errors = fs::read(&self.errors).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors);
        let last = |lines: &mut dyn Iterator<Item = &str>| {
            let lines: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
            lines[lines.len().saturating_sub(2)..].join("; ")
        };
        let mut said = last(&mut errors.lines());
        if said.is_empty() {
            said = last(&mut self.said.iter().map(String::as_str));
        }
        let status = self.child.try_wait().ok().flatten();
        let how = status
            .map_or("it closed its output".to_owned(), |status| format!("it ended ({status})"));
        self.broken(if said.is_empty() { how } else { format!("{how}: {said}") })
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        let all = processes::tree(self.pid());
        // Our program ends when it gets no more requests, and its system with it.
        self.requests = None;
        let begin = Instant::now();
        let stopped = self.stop.load(Ordering::Relaxed);
        while !stopped
            && begin.elapsed() < END
            && !matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        processes::end(all);
        let _ = self.child.wait();
    }
}

fn hex(text: &OsStr) -> String {
    text.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = pairs.map_while(byte).collect();
    OsString::from_vec(bytes).into_vec()
}
