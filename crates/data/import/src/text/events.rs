//! Lines of events: what `perf script`, ftrace's `trace` and `trace_pipe`, and `trace-cmd report`
//! write. All have a task, a processor, a time and a name, in nearly the same order:
//!
//! ```text
//! redis-server  4711/4713  [001]  1234.567890:  sched:sched_switch: prev_comm=...     (perf)
//! redis-server-4713  (   4711) [001] d..2.  1234.567890: sched_switch: prev_comm=...  (ftrace)
//! ```

use std::collections::HashMap;
use std::path::Path;

use super::fields::fields;
use crate::error::Result;
use crate::lines::Lines;
use crate::sink::{At, Sink};
use crate::source::{Context, Source};
use crate::syscalls::args::cut;
use crate::value::{Field, Value, number, seconds_ns};

/// What stands before an event's name, and what behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    comm: &'a str,
    tid: u32,
    /// 0 if the line does not say.
    pid: u32,
    cpu: Option<u32>,
    /// ftrace's letters: `h` and `H` are interrupts, `s` a soft one.
    flags: &'a str,
    time_ns: u64,
    perf: bool,
    rest: &'a str,
}

/// Reads the head of a line; `None` if it has none.
pub fn head(line: &str) -> Option<Head<'_>> {
    let mut words = Words { text: line, at: 0 };
    let mut cpu = None;
    let mut flags = "";
    let mut task_end = None;
    let mut pid = 0;
    loop {
        let begin = words.at;
        let word = words.next()?;
        if let Some(time_ns) = time(word) {
            let task = line[..task_end.unwrap_or(begin)].trim();
            let (comm, own_pid, tid, perf) = task_of(task)?;
            let pid = if own_pid == 0 { pid } else { own_pid };
            let rest = line[words.at..].trim();
            return Some(Head { comm, tid, pid, cpu, flags, time_ns, perf, rest });
        }
        if cpu.is_some() {
            flags = word;
        } else if let Some(number) = bracketed(word, '[', ']') {
            task_end.get_or_insert(begin);
            cpu = Some(number);
        } else if word.starts_with('(') && task_of(line[..begin].trim()).is_some() {
            // `(   4711)` or `(-------)`: the process.
            task_end = Some(begin);
            let text = &line[begin..];
            let close = text.find(')')?;
            let inside = text[..close].trim_start().trim_start_matches('(').trim();
            pid = inside.parse().unwrap_or(0);
            words.at = begin + close + 1;
        }
    }
}

struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        let begin = rest.find(|c: char| !c.is_whitespace())?;
        let end = rest[begin..].find(char::is_whitespace).map_or(rest.len(), |end| begin + end);
        self.at += end;
        Some(&rest[begin..end])
    }
}

fn time(word: &str) -> Option<u64> {
    word.strip_suffix(':').filter(|time| time.contains('.')).and_then(seconds_ns)
}

fn bracketed(word: &str, open: char, close: char) -> Option<u32> {
    word.strip_prefix(open)?.strip_suffix(close)?.parse().ok()
}

/// Name, process, thread, and whether perf writes so.
fn task_of(task: &str) -> Option<(&str, u32, u32, bool)> {
    if let Some((comm, ids)) = task.rsplit_once(char::is_whitespace) {
        let (pid, tid) = ids.split_once('/').unwrap_or(("0", ids));
        if let (Ok(pid), Ok(tid)) = (pid.parse(), tid.parse()) {
            return Some((comm.trim(), pid, tid, true));
        }
    }
    let (comm, tid) = task.rsplit_once('-')?;
    Some((comm.trim(), 0, tid.parse().ok()?, false))
}

/// Whether a line is one of these; blank lines and comments are not.
pub fn is_line(text: &str) -> bool {
    head(text).is_some_and(|head| event(head).is_some())
}

/// The event of a line: its name, its period if perf gives one, and its fields as text.
fn event(head: Head<'_>) -> Option<(&str, Option<u64>, &str)> {
    let mut rest = head.rest;
    let mut period = None;
    if head.perf
        && let Some((word, after)) = rest.split_once(' ')
        && let Some(number) = number(word)
    {
        (period, rest) = (number.bits(), after.trim_start());
    }
    // ftrace writes calls as in C: `sys_read(fd: 3)`, `sys_read -> 0x5`.
    if let Some(call) = rest.strip_prefix("sys_") {
        let end = call.find(['(', ' '])?;
        if call[end..].starts_with('(') || call[end..].starts_with(" -> ") {
            return Some((rest, None, &call[end..]));
        }
    }
    let (name, text) = match rest.split_once(": ") {
        Some((name, text)) => (name, text),
        None => (rest.strip_suffix(':')?, ""),
    };
    let good = |c: char| c.is_ascii_graphic() && c != '=';
    (!name.is_empty() && name.chars().all(good)).then_some((name, period, text))
}

/// Reads a line with all its fields.
pub fn read_line(text: &str) {
    if let Some((name, _, text)) = head(text).and_then(event) {
        fields(name.rsplit(':').next().unwrap_or(name), text);
    }
    frame(text);
}

/// A trace of such lines.
#[derive(Debug)]
pub struct EventLines {
    lines: Lines,
    /// Time of the event that is next.
    next_ns: Option<u64>,
    /// It is in this line; further lines are its stack.
    line: String,
    stack: Vec<String>,
    /// A line that was read ahead.
    ahead: Option<String>,
    over: bool,
    foreign_lines: u64,
    torn: u64,
    lost: HashMap<u32, u64>,
    perf: bool,
    processes_reported: bool,
    deep: u64,
}

/// Frames of a stack that are kept.
const STACK_MAX: usize = 128;

impl EventLines {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<EventLines> {
        Ok(EventLines {
            lines: Lines::open(path)?,
            next_ns: None,
            line: String::new(),
            stack: Vec::new(),
            ahead: None,
            over: false,
            foreign_lines: 0,
            torn: 0,
            lost: HashMap::new(),
            perf: false,
            processes_reported: false,
            deep: 0,
        })
    }

    fn line(&mut self) -> Result<Option<String>> {
        if let Some(line) = self.ahead.take() {
            return Ok(Some(line));
        }
        Ok(self.lines.advance()?.then(|| self.lines.text().to_owned()))
    }

    /// Reads on to the next event.
    fn read(&mut self) -> Result<()> {
        self.stack.clear();
        while let Some(line) = self.line()? {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some((cpu, lost)) = lost(&line) {
                *self.lost.entry(cpu).or_default() += lost;
                continue;
            }
            if let Some(head) = head(&line).filter(|head| event(*head).is_some()) {
                self.next_ns = Some(head.time_ns);
                self.perf |= head.perf;
                self.line = line;
                return self.read_stack();
            }
            match self.lines.whole() {
                true if line.starts_with("cpus=") || line.starts_with("CPU ") => {}
                true => self.foreign_lines += 1,
                false => self.torn += 1,
            }
        }
        self.over = true;
        Ok(())
    }

    /// Lines behind a sample of perf, up to an empty one.
    fn read_stack(&mut self) -> Result<()> {
        while let Some(line) = self.line()? {
            if !line.starts_with([' ', '\t']) || head(&line).is_some() || line.trim().is_empty() {
                self.ahead = Some(line);
                break;
            }
            match self.stack.len() < STACK_MAX {
                true => self.stack.push(line.trim().to_owned()),
                false => self.deep += 1,
            }
        }
        Ok(())
    }
}

/// `CPU:1 [LOST 123 EVENTS]`, or `CPU:1 [123 EVENTS DROPPED]`.
fn lost(line: &str) -> Option<(u32, u64)> {
    let rest = line.trim().strip_prefix("CPU:")?;
    let (cpu, rest) = rest.split_once(' ')?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?;
    let what = rest.contains("LOST") || rest.contains("DROPPED");
    what.then_some((cpu.parse().ok()?, digits.parse().ok()?))
}

/// An address, symbol and image of a sample: `7f12 main+0x5 (/usr/bin/x)`.
fn frame(text: &str) -> Option<(u64, &str, &str)> {
    let (address, rest) = text.split_once(' ').unwrap_or((text, ""));
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).ok()?;
    let (symbol, image) = match rest.rsplit_once(" (") {
        Some((symbol, image)) => (symbol, image.trim_end_matches(')')),
        None => (rest, ""),
    };
    Some((address, symbol.trim(), image))
}

impl Source for EventLines {
    fn next_ns(&mut self) -> Result<Option<u64>> {
        if self.next_ns.is_none() && !self.over {
            self.read()?;
        }
        Ok(self.next_ns)
    }

    fn take(&mut self, context: &mut Context) -> Result<()> {
        self.next_ns = None;
        let Some(head) = head(&self.line) else { return Ok(()) };
        let Some((name, period, text)) = event(head) else { return Ok(()) };
        let Context { sink, tracepoints } = context;
        self.processes_reported |= head.pid != 0;
        sink.tasks.seen(head.pid, head.tid, head.comm, head.time_ns);
        let (tid, cpu) = (head.tid, head.cpu.unwrap_or(0));
        let pid = if tid == 0 { 0 } else { sink.tasks.pid_of(tid) };
        let at = At { time_ns: head.time_ns, cpu, pid, tid };
        let interrupt = head.flags.len() >= 4 && head.flags[1..].contains(['h', 'H', 's']);
        if let Some(call) = name.strip_prefix("sys_").filter(|_| name.len() == head.rest.len()) {
            let end = call.find(['(', ' ']).unwrap_or(call.len());
            let (call, rest) = call.split_at(end);
            let (name, text) = match rest.strip_prefix(" -> ") {
                Some(result) => (format!("sys_exit_{call}"), result),
                None => (format!("sys_enter_{call}"), rest.trim_matches(['(', ')'])),
            };
            return tracepoints.event(sink, at, &name, &fields(&name, text), interrupt);
        }
        let short = name.rsplit(':').next().unwrap_or(name);
        // A sample is an event of a counter, with an address and perhaps a stack.
        if head.perf && (frame(text.trim()).is_some() || text.is_empty()) && !is_tracepoint(name) {
            return sample(sink, at, name, period, text.trim(), &self.stack);
        }
        let mut list: Vec<Field<'_>> = fields(short, text);
        let stack = self.stack.join("; ");
        if !stack.is_empty() && !name.contains("sched") && !name.contains("sys_") {
            list.push(("stack", Value::Text(&stack)));
        }
        // perf does not say what happens in interrupts. What a thread does by itself, it does in a call.
        let is_wakeup = matches!(short, "sched_waking" | "sched_wakeup");
        let interrupt = interrupt || head.perf && is_wakeup && !tracepoints.calls.is_in_call(tid);
        tracepoints.event(sink, at, name.trim_end_matches(':'), &list, interrupt)
    }

    fn finish(&mut self, sink: &mut Sink) {
        let mut name = self.lines.path().display().to_string();
        cut(&mut name, 100);
        sink.lose(format!("lines of {name} that are no events"), self.foreign_lines);
        sink.lose("lines that were cut off at the end of a file", self.torn);
        sink.lose(format!("frames of stacks deeper than {STACK_MAX}"), self.deep);
        for (cpu, lost) in &self.lost {
            sink.lose_on(*cpu, *lost);
        }
        if self.perf {
            sink.note(
                "perf does not tell what happens in interrupts: a wake-up counts as the thread's \
                 only within a system call of its",
            );
        }
        if !self.processes_reported {
            sink.note(
                "the trace does not tell which threads are of one process, but for those that it \
                 saw begin: the others count as processes of their own (perf script -F +pid, \
                 ftrace's option record-tgid)",
            );
        }
    }
}

/// `system:name`, and no counter with modifiers such as `cycles:u`.
fn is_tracepoint(name: &str) -> bool {
    name.split_once(':').is_some_and(|(system, event)| {
        event.len() > 4 && !system.is_empty() && !system.ends_with("-clock")
    })
}

fn sample(
    sink: &mut Sink,
    at: At,
    name: &str,
    period: Option<u64>,
    text: &str,
    stack: &[String],
) -> Result<()> {
    let top = if text.is_empty() { stack.first().map_or("", String::as_str) } else { text };
    let (address, symbol, image) = frame(top).unwrap_or((0, "", ""));
    let name_of = |frame_text: &String| {
        let (address, symbol, _) = frame(frame_text)?;
        let function = symbol.rsplit_once("+0x").map_or(symbol, |(function, _)| function);
        match function {
            "" | "[unknown]" => Some(format!("{address:#x}")),
            function => Some(function.to_owned()),
        }
    };
    let stack: Vec<String> = stack.iter().rev().filter_map(name_of).collect();
    let stack = stack.join(";");
    let fields = [
        ("counter", Value::Text(name.trim_end_matches(':'))),
        ("period", Value::Unsigned(period.unwrap_or(1))),
        ("address", Value::Unsigned(address)),
        ("symbol", Value::Text(symbol)),
        ("image", Value::Text(image)),
        ("stack", Value::Text(&stack)),
    ];
    sink.foreign("sample", at, &fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_all_writers() {
        let perf =
            head("Web Content  4711/4713  [001]  1234.567890:  sched:sched_switch: a=1").unwrap();
        assert_eq!((perf.comm, perf.pid, perf.tid, perf.cpu), ("Web Content", 4711, 4713, Some(1)));
        assert_eq!(
            (perf.time_ns, event(perf).unwrap().0),
            (1_234_567_890_000, "sched:sched_switch")
        );
        let perf =
            head("bash 12 5.000001:     250000 cpu-clock:pppH:  7f12 main+0x5 (/bin/x)").unwrap();
        let (name, period, text) = event(perf).unwrap();
        assert_eq!(
            (name, period, text.trim()),
            ("cpu-clock:pppH", Some(250_000), "7f12 main+0x5 (/bin/x)")
        );
        assert_eq!(frame(text.trim()), Some((0x7f12, "main+0x5", "/bin/x")));
        let ftrace =
            head("   kworker/0:1-99   (   97) [000] d.h2.  5.000001: sched_waking: comm=x pid=1")
                .unwrap();
        assert_eq!(
            (ftrace.comm, ftrace.pid, ftrace.tid, ftrace.flags),
            ("kworker/0:1", 97, 99, "d.h2.")
        );
        let idle =
            head("          <idle>-0       (-------) [001] d..2  5.1: sched_switch: x").unwrap();
        assert_eq!((idle.comm, idle.tid, idle.pid), ("<idle>", 0, 0));
        let call = head("x-5 [000] ..... 5.1: sys_read(fd: 3, buf: 0, count: 1)").unwrap();
        assert_eq!(event(call).unwrap().2, "(fd: 3, buf: 0, count: 1)");
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "# tracer: nop",
            "cpus=2",
            "hello world",
            "bash 12 5.1:",
            "\t7f12 main+0x5 (/x)",
            "12 1700000000.5 read(3) = 1",
        ] {
            assert!(!is_line(line), "{line:?}");
        }
        assert_eq!(lost("CPU:1 [LOST 17 EVENTS]"), Some((1, 17)));
        assert_eq!(lost("CPU:3 [5 EVENTS DROPPED]"), Some((3, 5)));
    }
}
