//! Rows of the trace that are finished.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use fettle_abi::block::Clock;
use fettle_abi::record::CallRecord;
use fettle_code::Mode;
use fettle_trace::{Counter, Mapping, OpenCall, Process, Thread, TickConverter, Total, UserValue};

use crate::counts::{self, Counted};
use crate::locking::Locking;
use crate::modules::Modules;
use crate::unmatched::Unmatched;

/// Rows that are finished; times are ticks until [`Done::into_ns`].
#[derive(Default)]
pub struct Done {
    /// Threads.
    pub threads: Vec<Thread>,
    /// Processes.
    pub processes: Vec<Process>,
    /// Calls and ticks per thread and function.
    pub totals: Vec<Total>,
    /// The user's patterns, but those that libraries have matched.
    pub unmatched: Unmatched,
    /// What the user probe counted.
    pub user_values: Vec<UserValue>,
    /// What threads left of locks, if those are added up.
    pub locking: Option<Locking>,
    /// Sums of block counters, by counter number.
    pub counters: HashMap<u32, u64>,
    /// Calls that did not end.
    pub open: Vec<OpenCall>,
    /// Where modules lay.
    pub mappings: Vec<Mapping>,
    /// Calls that ended.
    pub calls: u64,
    /// Records that found no room.
    pub lost: u64,
    /// Calls that took less than was asked for, of which no record was kept.
    pub short: u64,
    /// Records that the disk did not take.
    pub unwritten: u64,
    /// Frames left by exceptions.
    pub unwound_frames: u64,
    /// Exits without a frame.
    pub unmatched_exits: u64,
    /// Entries without room.
    pub mirror_overflows: u64,
    /// Threads that found no slot.
    pub without_slot: u64,
    /// There would have been more slots but for the limit on files' sizes (`RLIMIT_FSIZE`).
    pub limited: bool,
    /// Records of context switches that the kernel had no room for.
    pub switches_lost: u64,
    /// Whether it is known when threads were off-CPU.
    pub switches: bool,
    /// Programs that gain privileges, which were let go of, and how often each was executed.
    pub privileged: BTreeMap<PathBuf, u64>,
    /// Programs that could not be recorded, with the reason.
    pub refused: Vec<(String, String)>,
}

/// Parts what a ring held: calls, and cells with their values.
pub(super) fn split_values(records: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut calls, mut values) = (Vec::with_capacity(records.len()), Vec::new());
    for record in records.chunks_exact(size_of::<CallRecord>()) {
        let last = u64::from_ne_bytes(record[8..].try_into().expect("eight bytes"));
        let to = if last & 0xfff == 0 { &mut values } else { &mut calls };
        to.extend_from_slice(record);
    }
    (calls, values)
}

impl Done {
    /// Turns ticks into nanoseconds of trace time.
    pub fn into_ns(&mut self, clock: TickConverter, mode: Mode) {
        for thread in &mut self.threads {
            thread.start_ns = clock.since_start_ns(thread.start_ns);
            thread.end_ns = clock.since_start_ns(thread.end_ns);
        }
        for process in &mut self.processes {
            process.start_ns = clock.since_start_ns(process.start_ns);
            process.end_ns = clock.since_start_ns(process.end_ns);
        }
        // The clock of CPU time counts nanoseconds.
        let in_ticks = crate::slots::clock_of(mode) == Clock::Ticks;
        for total in self.totals.iter_mut().filter(|_| in_ticks) {
            total.total_ns = clock.duration_ns(total.total_ns);
            total.self_ns = clock.duration_ns(total.self_ns);
            total.cpu_total_ns = total.cpu_total_ns.map(|ticks| clock.duration_ns(ticks));
            total.cpu_self_ns = total.cpu_self_ns.map(|ticks| clock.duration_ns(ticks));
        }
    }

    /// Counts as rows, and how many functions have counts that do not add up.
    pub fn counter_rows(&self, modules: &Modules) -> (Vec<Counter>, u64) {
        let mut rows = Vec::new();
        let mut inconsistent = 0;
        for module in modules.all() {
            for (i, planned) in module.plan.functions.iter().enumerate() {
                let function = module.first_function.plus(i as u32);
                let count = |k: usize| {
                    let number = module.first_counter + planned.counters.0 + k as u32;
                    self.counters.get(&number).copied().unwrap_or(0)
                };
                if (0..planned.counters.1.len()).all(|k| count(k) == 0) {
                    continue;
                }
                inconsistent +=
                    u64::from(!counts::rows(function, &Counted::of(planned), count, &mut rows));
            }
        }
        (rows, inconsistent)
    }
}
