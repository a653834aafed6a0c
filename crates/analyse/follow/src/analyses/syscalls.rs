//! System calls: how many, how long, how many bytes, by process.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use fettle_stats::Distribution;

use super::analysis::{Analysis, Wanted};
use super::found::{Cell, Findable, Found, Unit};
use crate::session::Context;
use crate::sums::Sums;

/// Events at which calls begin, and the names of the calls. Those at which they end follow.
const BEGINS: [&str; 11] = [
    "read",
    "write",
    "sync",
    "pipe read",
    "pipe write",
    "receive",
    "send",
    "poll",
    "futex wait",
    "sleep",
    "page fault",
];
const ENDS_ONLY: [&str; 7] =
    ["open", "close", "accept", "connect", "close socket", "futex wake", "fork"];

const EVENTS: [Wanted; 29] = [
    ("read_begin", &["pid", "tid"]),
    ("write_begin", &["pid", "tid"]),
    ("sync_begin", &["pid", "tid"]),
    ("pipe_read_begin", &["pid", "tid"]),
    ("pipe_write_begin", &["pid", "tid"]),
    ("receive_begin", &["pid", "tid"]),
    ("send_begin", &["pid", "tid"]),
    ("poll_begin", &["pid", "tid"]),
    ("futex_wait_begin", &["pid", "tid"]),
    ("sleep_begin", &["pid", "tid"]),
    ("page_fault", &["pid", "tid"]),
    ("read", &["pid", "tid", "bytes"]),
    ("write", &["pid", "tid", "bytes"]),
    ("sync", &["pid", "tid"]),
    ("pipe_read", &["pid", "tid", "bytes"]),
    ("pipe_write", &["pid", "tid", "bytes"]),
    ("received", &["pid", "tid", "bytes"]),
    ("sent", &["pid", "tid", "bytes"]),
    ("poll", &["pid", "tid"]),
    ("futex_wait", &["pid", "tid"]),
    ("sleep", &["pid", "tid"]),
    ("page_fault_done", &["pid", "tid"]),
    ("open", &["pid", "tid", "fd"]),
    ("close", &["pid", "tid"]),
    ("accept", &["pid", "tid"]),
    ("connect", &["pid", "tid"]),
    ("socket_close", &["pid", "tid"]),
    ("futex_wake", &["pid", "tid"]),
    ("fork", &["pid", "tid"]),
];

#[derive(Default)]
struct Calls {
    count: u64,
    errors: u64,
    bytes: u64,
    /// Of those whose begin was seen.
    times_ns: Distribution,
    sums: Sums,
}

/// Times by process and call, for comparisons.
pub(super) type Shared = Rc<RefCell<BTreeMap<String, Sums>>>;

/// The analysis.
#[derive(Default)]
pub(super) struct SystemCalls {
    /// What each thread is in, and since when.
    begun: HashMap<u64, (usize, u64)>,
    /// By process and call.
    calls: HashMap<(u64, usize), Calls>,
    /// Where times go besides.
    shared: Option<Shared>,
}

impl SystemCalls {
    /// One that also gives its times.
    pub(super) fn telling(shared: Shared) -> SystemCalls {
        SystemCalls { shared: Some(shared), ..SystemCalls::default() }
    }
}

impl Analysis for SystemCalls {
    fn events(&self) -> &'static [Wanted] {
        &EVENTS
    }

    fn event(&mut self, which: usize, time_ns: u64, values: &[u64]) {
        let (pid, tid) = (values[0], values[1]);
        if which < BEGINS.len() {
            self.begun.insert(tid, (which, time_ns));
            return;
        }
        let call = which - BEGINS.len();
        let calls = self.calls.entry((pid, call)).or_default();
        calls.count += 1;
        if let Some(result) = values.get(2).map(|result| *result as i64) {
            calls.errors += u64::from(result < 0);
            // A descriptor is no number of bytes.
            let bytes = if EVENTS[which].0 == "open" { 0 } else { result.max(0) as u64 };
            calls.bytes = calls.bytes.saturating_add(bytes);
        }
        match self.begun.remove(&tid) {
            Some((begun, since_ns)) if begun == call => {
                calls.times_ns.add(time_ns.saturating_sub(since_ns), 1);
                calls.sums.add(time_ns.saturating_sub(since_ns));
            }
            _ => {}
        }
    }

    fn finish(self: Box<Self>, context: &Context<'_>) -> Found {
        let columns = [
            ("calls", Unit::Count),
            ("errors", Unit::Count),
            ("bytes", Unit::Bytes),
            ("time", Unit::Ns),
            ("mean", Unit::Ns),
            ("p50", Unit::Ns),
            ("p99", Unit::Ns),
            ("max", Unit::Ns),
            ("process and call", Unit::Text),
        ];
        let mut table = Findable::new("System calls", &columns);
        let mut calls: Vec<_> = self.calls.into_iter().collect();
        calls.sort_by_key(|((pid, call), c)| (Reverse((c.times_ns.sum(), c.count)), *pid, *call));
        for ((pid, call), calls) in calls {
            let name = BEGINS.get(call).or_else(|| ENDS_ONLY.get(call - BEGINS.len()));
            let call = name.unwrap_or(&"");
            let name = format!("{}  {call}", context.process(pid));
            if let Some(shared) = self.shared.as_ref().filter(|_| calls.sums.count > 0) {
                // Processes of one name are one piece: numbers differ from run to run.
                let name = format!("{}  {call}", context.process_name(pid));
                shared.borrow_mut().entry(name).or_default().merge(calls.sums);
            }
            let times = &calls.times_ns;
            let time = |ns: u64| if times.count() == 0 { Cell::None } else { Cell::Number(ns) };
            let some = |n: u64| if n == 0 { Cell::None } else { Cell::Number(n) };
            table.rows.push(vec![
                Cell::Number(calls.count),
                some(calls.errors),
                some(calls.bytes),
                time(times.sum()),
                time(times.mean()),
                time(times.quantile(0.5)),
                time(times.quantile(0.99)),
                time(times.max()),
                Cell::Text(name),
            ]);
        }
        let notes = vec!["times are from the call to its return, waits included; of calls that did not wait only if \
                          recorded with --call-times"
            .into()];
        Found { tables: vec![table], notes, dot: None }
    }
}
