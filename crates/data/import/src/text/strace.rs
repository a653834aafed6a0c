//! What `strace -f -ttt -T` writes; better still with `-yy`, which names the addresses of connections.
//!
//! A line says when a call began, and with `-T` how long it took: its end is an event of its own, which
//! waits here until its time has come. Without `-T` a call is taken to end when its thread's next line
//! begins, the latest that it can have ended.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::path::Path;

use fettle_abi::events::Event;

use super::strace_line::{End, Line, What, ended, line, plain, signal, split};
use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::sink::{At, Sink};
use crate::source::{Context, Source};
use crate::syscalls::args::{Args, cut, fd};
use crate::value::{Field, Value};

/// A trace of strace.
#[derive(Debug)]
pub struct Strace {
    lines: Lines,
    /// The thread of lines that name none: of a file for each thread, the number behind its name.
    own_tid: u32,
    /// Steps whose time has not come, by time and then as they were found.
    steps: BinaryHeap<Reverse<Step>>,
    found: u64,
    /// The latest time that was read: what comes before it can be reported.
    read_ns: u64,
    /// The latest time at which something happens: a call that is printed complete was over when
    /// the next line was written.
    latest_ns: u64,
    /// The time of the line before.
    line_ns: Option<u64>,
    /// How much the clock was set back so far, and how often.
    back_ns: u64,
    set_back: u64,
    over: bool,
    /// Calls that others interrupted, by thread: name and arguments so far.
    unfinished: HashMap<u32, (String, String)>,
    /// Ends whose time is not in the file, by thread.
    endless: HashMap<u32, Did>,
    seen: HashSet<u32>,
    /// Calls whose duration is given, and calls whose is not.
    timed: u64,
    untimed: u64,
    foreign_lines: u64,
    /// Returns of calls whose beginning is not in the file: before it begins, and elsewhere.
    begun_before: u64,
    beginless: u64,
    /// Threads that have a line.
    known: HashSet<u32>,
    torn: u64,
}

/// No call waits as long as that: three years after 1970 and later is a date.
const LATE_NS: u64 = 100_000_000 * 1_000_000_000;

/// A source whose lines are earlier than those before by more than this has a clock that was set back.
const SET_BACK_NS: u64 = 1_000_000_000;

/// What happens at a time.
#[derive(Debug)]
struct Step {
    time_ns: u64,
    found: u64,
    tid: u32,
    did: Did,
}

#[derive(Debug)]
enum Did {
    Enter { name: String, arguments: String },
    Exit { result: i64, error: String, text: String, arguments: String },
    Signal(u32),
    Exited(i32),
    Superseded,
}

impl PartialEq for Step {
    fn eq(&self, other: &Step) -> bool {
        (self.time_ns, self.found) == (other.time_ns, other.found)
    }
}
impl Eq for Step {}
impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Step) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Step {
    fn cmp(&self, other: &Step) -> std::cmp::Ordering {
        (self.time_ns, self.found).cmp(&(other.time_ns, other.found))
    }
}

/// Whether a line is one of strace's.
pub fn is_line(text: &str) -> bool {
    line(text).is_some()
}

/// Whether a line begins as strace's do with `-t` or `-tt`: `12:34:56.789 open(`, perhaps behind a
/// thread.
pub fn is_time_of_day(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace().skip_while(|word| !word.contains(':'));
    let time = words.next().unwrap_or_default();
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let begins = words.next().is_some_and(|word| word.contains('(') || word == "---");
    begins && time.split(':').count() == 3 && time.split(':').all(digits)
}

impl Strace {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Strace> {
        let suffix = path.extension().and_then(|suffix| suffix.to_str()?.parse().ok());
        Ok(Strace {
            lines: Lines::open(path)?,
            own_tid: suffix.unwrap_or(1),
            steps: BinaryHeap::new(),
            found: 0,
            read_ns: 0,
            latest_ns: 0,
            line_ns: None,
            back_ns: 0,
            set_back: 0,
            over: false,
            unfinished: HashMap::new(),
            endless: HashMap::new(),
            seen: HashSet::new(),
            timed: 0,
            untimed: 0,
            foreign_lines: 0,
            begun_before: 0,
            beginless: 0,
            known: HashSet::new(),
            torn: 0,
        })
    }

    fn add(&mut self, time_ns: u64, tid: u32, did: Did) {
        self.found += 1;
        self.latest_ns = self.latest_ns.max(time_ns);
        self.steps.push(Reverse(Step { time_ns, found: self.found, tid, did }));
    }

    /// Reads one more line.
    fn read(&mut self) -> Result<()> {
        if !self.lines.advance()? {
            self.over = true;
            for (tid, did) in std::mem::take(&mut self.endless) {
                self.add(self.read_ns, tid, did);
            }
            return Ok(());
        }
        let text = plain(self.lines.text());
        match line(&text) {
            Some(line) => {
                self.absolute(line.time_ns)?;
                self.line(line);
            }
            // What was cut off in the middle.
            None if !self.lines.whole() => self.torn += 1,
            None if text.is_empty() || text.starts_with("strace: ") => {}
            None => self.foreign_lines += 1,
        }
        Ok(())
    }

    /// Refuses times since the line before (`-r`): the first of these is 0, and they go back.
    fn absolute(&mut self, time_ns: u64) -> Result<()> {
        let goes_back = match self.line_ns {
            None => time_ns == 0,
            Some(before) => time_ns < before && before < LATE_NS,
        };
        self.line_ns = Some(time_ns);
        if goes_back {
            let problem = "strace -r tells how long lines are apart, not when they are; use -ttt";
            return Err(Error::at_line(self.lines.path(), self.lines.number(), problem));
        }
        Ok(())
    }

    /// A line's time, where time goes on from where it was when the clock is set back.
    fn straightened(&mut self, time_ns: u64) -> u64 {
        let now_ns = time_ns.saturating_add(self.back_ns);
        if self.read_ns.saturating_sub(now_ns) <= SET_BACK_NS {
            return now_ns;
        }
        self.set_back += 1;
        let latest_ns = self.latest_ns.max(self.read_ns);
        self.back_ns = self.back_ns.saturating_add(latest_ns - now_ns);
        latest_ns
    }

    fn line(&mut self, line: Line<'_>) {
        let Line { time_ns, what, tid } = line;
        let time_ns = self.straightened(time_ns);
        let tid = tid.unwrap_or(self.own_tid);
        self.read_ns = self.read_ns.max(time_ns);
        let newcomer = self.known.insert(tid);
        if let Some(did) = self.endless.remove(&tid) {
            self.add(time_ns, tid, did);
        }
        match what {
            What::Whole { name, arguments, end } => {
                let enter = Did::Enter { name: name.to_owned(), arguments: arguments.to_owned() };
                self.add(time_ns, tid, enter);
                let exit = exit(arguments, end);
                match end.took_ns {
                    Some(took_ns) => {
                        self.timed += 1;
                        self.add(time_ns.saturating_add(took_ns), tid, exit);
                    }
                    // Nothing comes after it.
                    None if name.starts_with("exit") => {}
                    None => {
                        self.untimed += 1;
                        self.endless.insert(tid, exit);
                    }
                }
            }
            What::Unfinished { name, arguments } => {
                let enter = Did::Enter { name: name.to_owned(), arguments: arguments.to_owned() };
                self.add(time_ns, tid, enter);
                self.unfinished.insert(tid, (name.to_owned(), arguments.to_owned()));
            }
            What::Resumed { name, rest } => match self.unfinished.remove(&tid) {
                Some((begun, arguments)) if begun == name => {
                    let whole = arguments + rest;
                    match ended(&whole) {
                        Some((arguments, end)) => self.add(time_ns, tid, exit(arguments, end)),
                        None => self.foreign_lines += 1,
                    }
                }
                // The thread was in it when the file began, or its parent was when the thread began.
                None if newcomer => self.begun_before += 1,
                _ => self.beginless += 1,
            },
            What::Signal { name } => self.add(time_ns, tid, Did::Signal(signal(name))),
            What::Exited(status) => {
                self.known.remove(&tid);
                self.add(time_ns, tid, Did::Exited(status));
            }
            What::Killed(name) => {
                self.known.remove(&tid);
                self.add(time_ns, tid, Did::Exited(-i32::try_from(signal(name)).unwrap_or(0)));
            }
            What::Superseded => self.add(time_ns, tid, Did::Superseded),
        }
    }
}

fn exit(arguments: &str, end: End<'_>) -> Did {
    let (error, text) = (end.error.to_owned(), end.text.to_owned());
    Did::Exit { result: end.result, error, text, arguments: arguments.to_owned() }
}

/// Arguments as texts without names.
fn fields(arguments: &str) -> Vec<Field<'_>> {
    split(arguments).0.into_iter().map(|part| ("", Value::Text(part))).collect()
}

impl Source for Strace {
    fn next_ns(&mut self) -> Result<Option<u64>> {
        loop {
            if let Some(Reverse(step)) = self.steps.peek()
                && (self.over || step.time_ns < self.read_ns)
            {
                return Ok(Some(step.time_ns));
            }
            if self.over {
                return Ok(None);
            }
            self.read()?;
        }
    }

    fn take(&mut self, context: &mut Context) -> Result<()> {
        let Some(Reverse(step)) = self.steps.pop() else { return Ok(()) };
        let Step { time_ns, tid, did, .. } = step;
        let Context { sink, tracepoints } = context;
        let calls = &mut tracepoints.calls;
        if self.seen.insert(tid) {
            // A thread that was never seen was created by a thread that is in such a call.
            calls.newcomer(sink, tid, time_ns)?;
            sink.tasks.seen(0, tid, "", time_ns);
        }
        let at = At { time_ns, cpu: 0, pid: sink.tasks.pid_of(tid), tid };
        match did {
            Did::Enter { name, arguments } => {
                calls.enter(sink, at, &name, Args(&fields(&arguments)))
            }
            Did::Exit { result, error, text, arguments } => {
                let mut fields = fields(&arguments);
                if fd(&text).is_some_and(|fd| fd.of.is_some()) {
                    fields.push(("result", Value::Text(&text)));
                }
                calls.exit(sink, at, result, &error, Args(&fields))
            }
            Did::Signal(number) => {
                let values = [u64::from(at.pid), u64::from(tid), u64::from(number)];
                sink.kernel(Event::SignalDelivered, at, &values)
            }
            Did::Exited(status) => {
                self.seen.remove(&tid);
                let last = (at.pid == tid).then_some(Some(status));
                calls.thread_exit(sink, at, last)
            }
            Did::Superseded => {
                self.seen.remove(&tid);
                calls.thread_exit(sink, at, None)
            }
        }
    }

    fn finish(&mut self, sink: &mut Sink) {
        let mut name = self.lines.path().display().to_string();
        cut(&mut name, 100);
        sink.lose(format!("lines of {name} that are not strace's"), self.foreign_lines);
        sink.lose("returns from system calls whose beginnings are not in the file", self.beginless);
        sink.lose("lines that were cut off at the end of a file", self.torn);
        sink.lose("system calls that had not returned", self.unfinished.len() as u64);
        if self.begun_before > 0 {
            sink.note(format!(
                "returns from calls that had begun before {name} does are not in the trace: {}",
                self.begun_before
            ));
        }
        if self.set_back > 0 {
            sink.note(format!(
                "the clock was set back ({} times in {name}): time goes on from where it was, and how \
                 much went by meanwhile is not known",
                self.set_back
            ));
        }
        const TAKEN: &str =
            "when they ended is not known, they are taken to end when their thread goes on";
        match (self.timed, self.untimed) {
            (_, 0) => {}
            (0, _) => sink.note(format!(
                "strace was run without -T, which tells how long calls took: {TAKEN}"
            )),
            (_, few) => sink.note(format!("{few} calls do not tell how long they took: {TAKEN}")),
        }
        sink.note(
            "strace tells of no switches between threads: nobody knows when they ran; with -yy it \
             tells which connections belong together",
        );
    }
}
