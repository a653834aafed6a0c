//! Recording a program, with its events in memory.
#![allow(dead_code)] // Each test uses a part.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fettle_abi::FieldType;
use fettle_kernel_events::decode::{Decoder, Sink};
use fettle_kernel_events::spool::{self, Moment, SpoolWriter};
use fettle_kernel_events::{Capture, Event, KernelError, Losses, Options};

/// One test at a time: each observes children of this process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A capture, or `None` where none can be had; says why.
pub fn capture(options: Options) -> Option<Capture> {
    match Capture::new(&options) {
        Ok(capture) => Some(capture),
        Err(KernelError::Rejected { program, error, log }) => {
            panic!("{program}: {error}\n{log}")
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// A value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Number(i64),
    Text(String),
}

/// An event, with its fields by name.
#[derive(Clone, Debug)]
pub struct ReportedEvent {
    pub event: Event,
    pub time_ns: u64,
    pub cpu: u32,
    pub fields: HashMap<&'static str, Value>,
}

impl ReportedEvent {
    pub fn number(&self, field: &str) -> i64 {
        match &self.fields[field] {
            Value::Number(number) => *number,
            Value::Text(text) => panic!("{field} is {text:?}"),
        }
    }

    pub fn text(&self, field: &str) -> &str {
        match &self.fields[field] {
            Value::Number(number) => panic!("{field} is {number}"),
            Value::Text(text) => text,
        }
    }
}

#[derive(Default)]
struct All {
    texts: Vec<String>,
    reported: Vec<ReportedEvent>,
}

impl Sink for All {
    type Error = io::Error;

    fn text(&mut self, text: &str) -> u32 {
        self.texts.push(text.to_owned());
        self.texts.len() as u32 - 1
    }

    fn event(&mut self, event: Event, time_ns: u64, cpu: u32, values: &[u64]) -> io::Result<()> {
        assert_eq!(event.fields().len(), values.len(), "{event:?}");
        let fields = event.fields().iter().zip(values).map(|((name, ty), value)| {
            let value = match *ty {
                FieldType::Text => Value::Text(self.texts[*value as usize].clone()),
                _ => Value::Number(*value as i64),
            };
            (*name, value)
        });
        let fields = fields.collect();
        self.reported.push(ReportedEvent { event, time_ns, cpu, fields });
        Ok(())
    }
}

/// What was recorded.
pub struct Recorded {
    pub reported: Vec<ReportedEvent>,
    pub losses: Losses,
    pub unreadable: u64,
}

impl Recorded {
    pub fn of(&self, event: Event) -> impl Iterator<Item = &ReportedEvent> {
        self.reported.iter().filter(move |reported| reported.event == event)
    }
}

/// A file of this test's own.
pub fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("fettle-kernel-events-{}-{next}", std::process::id()))
}

/// What a program does that `start` starts, with the tasks of its runtime; `None` where it does not
/// start, or no kernel reports tasks' wake-ups.
pub fn observed(start: impl FnOnce() -> Option<Child>) -> Option<Recorded> {
    let mut capture = capture(Options { task_wakes: true, ..Options::default() })?;
    let wakes = !capture.without.contains(&"tasks' wake-ups");
    capture.start().unwrap();
    let children = capture.processes().observe_children().unwrap();
    let mut child = start()?;
    let mut status = None;
    let recorded = drain_until(capture, |_| {
        status = status.or(child.try_wait().unwrap());
        status.is_some()
    });
    drop(children);
    assert!(status.is_some_and(|status| status.success()));
    wakes.then_some(recorded)
}

/// Drains until `done` says so, and gives what there was.
pub fn drain_until(mut capture: Capture, mut done: impl FnMut(&Capture) -> bool) -> Recorded {
    let path = scratch();
    let mut spool = SpoolWriter::create(&path).unwrap();
    let begin = Moment { tsc: 0, monotonic_ns: 0 };
    let mut last = false;
    loop {
        let end = done(&capture);
        if end {
            capture.stop();
            last = true;
        }
        // Ticks of these tests are nanoseconds.
        let now = a_little_before_now_ns();
        capture.drain(|cpu, bytes| spool.append(cpu, bytes)).unwrap();
        spool.mark(Moment { tsc: now, monotonic_ns: now }).unwrap();
        if last {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    spool.flush().unwrap();
    let (mut decoder, mut all) = (Decoder::new(), All::default());
    let found = spool::read(&path, begin, |_, cpu, record| decoder.record(cpu, record, &mut all));
    std::fs::remove_file(&path).unwrap();
    let found = found.unwrap();
    assert!(!found.torn);
    let losses = capture.losses().unwrap();
    Recorded { reported: all.reported, losses, unreadable: decoder.unreadable }
}

fn a_little_before_now_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    // Good enough to order rounds: always a little early.
    let seconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
    ((seconds - 0.02) * 1e9) as u64
}

/// Runs a command with kernel events until it and all that it begot have ended.
pub fn record(command: &mut Command, options: Options) -> Option<(ExitStatus, Recorded)> {
    let mut capture = capture(options)?;
    let processes = capture.processes();
    capture.start().unwrap();
    let children = processes.observe_children().unwrap();
    let mut child = command.spawn().unwrap();
    drop(children);
    // Its entry goes only after it has been waited for.
    let waiter = std::thread::spawn(move || child.wait().unwrap());
    let over = || waiter.is_finished() && processes.none_left().unwrap();
    let recorded = drain_until(capture, |_| over());
    Some((waiter.join().unwrap(), recorded))
}
