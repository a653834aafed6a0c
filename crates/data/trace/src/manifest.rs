//! `manifest.json`: what was recorded, where, by which clock, and what was lost.

use serde::{Deserialize, Serialize};

use crate::events::kind::Events;

/// Version of the folder's format that this crate writes.
///
/// 1: the first.
pub const VERSION: u32 = 1;

/// Oldest reader that understands what this crate writes.
pub const MIN_READER_VERSION: u32 = 1;

/// What one trace is. Fields a reader does not know are ignored; ones it misses are defaulted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// Version of the format ([`VERSION`]; set by the writer).
    pub version: u32,
    /// Oldest reader version that may read the trace (set by the writer).
    pub min_reader_version: u32,
    /// Whether the recording ended properly and every table is there (set by the writer).
    pub complete: bool,
    /// Set when the recording did not end properly and the trace was made from its spools.
    pub recovery: Option<Recovery>,
    /// Version of the Fettle that recorded.
    pub fettle_version: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Working folder of the program.
    pub cwd: String,
    /// Where it ran.
    pub machine: Machine,
    /// Wall-clock start, RFC 3339 in UTC (set by the writer from `start_unix_ns` if empty).
    pub start_time: String,
    /// Wall-clock start, nanoseconds since 1970 in UTC. This is trace time 0.
    pub start_unix_ns: u64,
    /// Wall-clock length of the recording in nanoseconds.
    pub duration_ns: u64,
    /// How ticks become nanoseconds.
    pub clock: Clock,
    /// What the probes did.
    pub probe_mode: ProbeMode,
    /// Calls that took less left no record ([`RunTotals::short`]); `None`: all did.
    pub min_duration_ns: Option<u64>,
    /// Counters of the user probe, in order.
    #[serde(rename = "own_fields")]
    pub user_fields: Vec<Field>,
    /// What the probes cost.
    pub probe_cost: ProbeCost,
    /// Whether it is known when threads were switched out: there is a table of switches, calls have
    /// their off-CPU time, and exact totals have CPU time.
    pub switches: bool,
    /// How the program ended; `None` while it runs or when that is not known.
    pub exit: Option<Exit>,
    /// Sums over the whole recording.
    pub totals: RunTotals,
    /// Events: their kinds, and what was lost of them (set by the writer).
    pub events: Events,
    /// What else was lost, by reason; what [`RunTotals`] counts is not repeated here.
    pub losses: Vec<Loss>,
    /// Anything else that a reader of the trace should know, one sentence each.
    pub notes: Vec<String>,
    /// The machines of a trace that was merged from others; the n-th has the numbers of processes
    /// and threads from n times [`TASKS_OF_A_MACHINE`] on.
    pub machines: Vec<MergedMachine>,
    /// The files of the trace and their sizes, so that a missing or cut one is noticed (set by
    /// the writer).
    pub files: Vec<FileEntry>,
}

/// Where a trace was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Processor model, as the kernel names it.
    pub cpu_model: String,
    /// Processors that could run the program.
    pub cores: u32,
    /// Kernel release.
    pub kernel: String,
    /// Its name, if that is known.
    pub host: String,
    /// What the kernel calls the time since it was started, and no other: traces that have it in
    /// common are by the same clock.
    pub boot: String,
}

/// Numbers of processes and threads that a machine has in a trace of several: no Linux gives out
/// more.
pub const TASKS_OF_A_MACHINE: u32 = 1 << 22;

/// A machine of a trace that was merged from several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MergedMachine {
    /// As threads and addresses are marked with it.
    pub name: String,
    /// Where it was recorded.
    pub machine: Machine,
    /// Its traces.
    pub traces: Vec<MergedTrace>,
}

/// A trace that became part of another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MergedTrace {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Wall-clock start by the machine's own clock, nanoseconds since 1970 in UTC.
    pub start_unix_ns: u64,
    /// How its clock was brought to the others': "reference", "same clock", "messages", "given".
    pub aligned_by: String,
    /// Nanoseconds that were added to its time at its beginning.
    pub offset_ns: i64,
    /// How much more was added as time went on: nanoseconds for each millisecond.
    pub drift_ppm: f64,
    /// By how many nanoseconds this may be wrong at most, between its first message and its last.
    pub uncertainty_ns: Option<u64>,
    /// Messages that say so.
    pub messages: u64,
    /// Directions of connections that were left out: bytes of them are missing, or it is not certain
    /// which were first.
    pub left_out: u64,
}

/// The time-stamp counter and the monotonic clock, read at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPair {
    /// Time-stamp counter, all 64 bits.
    pub tsc: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub monotonic_ns: u64,
}

/// How ticks of the time-stamp counter become nanoseconds since the start of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// Nominal rate in ticks per second; used when the measured rate is not known.
    pub tsc_hz: u64,
    /// Time-stamp counter at trace time 0, all 64 bits.
    pub tsc_at_start: u64,
    /// Both clocks near the beginning.
    pub begin: Option<ClockPair>,
    /// Both clocks near the end.
    pub end: Option<ClockPair>,
}

impl Clock {
    /// Nanoseconds per tick: measured between [`Clock::begin`] and [`Clock::end`] where they lie
    /// at least a millisecond apart, nominal otherwise. Rates outside 1 MHz to 1 THz are not
    /// believed; with none left a tick counts as one nanosecond.
    pub fn ns_per_tick(&self) -> f64 {
        let plausible = 1e-3..=1e3;
        if let (Some(begin), Some(end)) = (self.begin, self.end) {
            let ticks = end.tsc.saturating_sub(begin.tsc);
            let ns = end.monotonic_ns.saturating_sub(begin.monotonic_ns);
            let rate = ns as f64 / ticks as f64;
            if ns >= 1_000_000 && plausible.contains(&rate) {
                return rate;
            }
        }
        let rate = 1e9 / self.tsc_hz as f64;
        if plausible.contains(&rate) { rate } else { 1.0 }
    }

    /// The conversion that this clock defines.
    pub fn converter(&self) -> TickConverter {
        TickConverter { origin: self.tsc_at_start, ns_per_tick: self.ns_per_tick() }
    }
}

/// Turns ticks into nanoseconds. Monotonic, so that an interval inside another stays inside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TickConverter {
    origin: u64,
    ns_per_tick: f64,
}

impl TickConverter {
    /// A time-stamp counter, all 64 bits, as nanoseconds since the start of the trace; 0 for times
    /// before it.
    #[inline]
    pub fn since_start_ns(&self, tsc: u64) -> u64 {
        let ticks = tsc.wrapping_sub(self.origin) as i64;
        if ticks <= 0 { 0 } else { (ticks as f64 * self.ns_per_tick) as u64 }
    }

    /// A length in ticks, as nanoseconds, rounded down as times are.
    #[inline]
    pub fn length_ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }

    /// A length in ticks, as nanoseconds.
    #[inline]
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick).round() as u64
    }
}

/// What the probes did at each point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ProbeMode {
    /// One record per call, and exact totals.
    #[default]
    Events,
    /// Exact totals of calls and time, no records.
    Time,
    /// As `Time`, in CPU time of the thread.
    Cpu,
    /// Exact numbers of calls, no times.
    Count,
    /// Some calls are timed and recorded; numbers of calls are exact.
    Sampled,
    /// Executions of basic blocks are counted.
    Blocks,
    /// Executions of control-flow edges are counted.
    Edges,
    /// The user probe counts.
    #[serde(rename = "own")]
    User,
    /// There were no probes.
    None,
}

/// One counter of the user probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// How values of several threads become one.
    pub merge: Merge,
}

/// How values of several threads become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Merge {
    /// They are added up.
    #[default]
    Sum,
    /// The greatest is taken.
    Max,
}

impl ProbeMode {
    /// Whether blocks are counted, and not calls.
    pub fn counts_blocks(self) -> bool {
        matches!(self, ProbeMode::Blocks | ProbeMode::Edges)
    }

    /// The mode's name on the command line and in the manifest.
    pub fn name(self) -> &'static str {
        match self {
            ProbeMode::Events => "events",
            ProbeMode::Time => "time",
            ProbeMode::Cpu => "cpu",
            ProbeMode::Count => "count",
            ProbeMode::Sampled => "sampled",
            ProbeMode::Blocks => "blocks",
            ProbeMode::Edges => "edges",
            ProbeMode::User => "own",
            ProbeMode::None => "none",
        }
    }
}

/// What one call of a probed function costs, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeCost {
    /// The part of a probe that falls inside the interval it measures.
    pub inner_ns: f64,
    /// What one call costs its caller beyond that.
    pub outer_ns: f64,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exit {
    /// Exit status, if it exited.
    pub code: Option<i32>,
    /// Signal number, if one ended it.
    pub signal: Option<i32>,
}

/// Sums over the whole recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunTotals {
    /// Calls that ended, whether recorded or not.
    pub calls: u64,
    /// Records stored in `calls/` (set by the writer).
    pub records: u64,
    /// Records that found their ring full.
    pub lost: u64,
    /// Calls that took less than [`Manifest::min_duration_ns`], of which no record was kept.
    pub short: u64,
    /// Frames closed because an exception, `longjmp` or `exit` left them.
    #[serde(rename = "left_frames")]
    pub unwound_frames: u64,
    /// Exits that found no frame of theirs.
    #[serde(rename = "orphan_exits")]
    pub unmatched_exits: u64,
    /// Entries that found the call-stack mirror full.
    #[serde(rename = "shadow_overflows")]
    pub mirror_overflows: u64,
    /// Threads that were probed.
    pub threads: u64,
    /// Processes that were probed.
    pub processes: u64,
}

impl RunTotals {
    /// Calls that ended and of which there is no record.
    pub fn without_record(&self) -> u64 {
        self.lost.saturating_add(self.short)
    }
}

/// A number of things lost for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loss {
    /// Why, in words that end a sentence ("ring full", "fork without agent").
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// How a trace came to be whose recording did not end properly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recovery {
    /// Records found in the spools.
    pub records: u64,
    /// Torn records at the ends of spools, cut off.
    pub torn_records: u64,
}

/// One file of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileEntry {
    /// Path within the folder.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Rows in it.
    pub rows: u64,
}

/// A time in UTC as RFC 3339 with milliseconds, such as `2026-03-01T09:30:00.250Z`.
pub fn rfc3339(unix_ns: u64) -> String {
    let (seconds, millis) = (unix_ns / 1_000_000_000, unix_ns / 1_000_000 % 1000);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days to a date by 400-year cycles whose years begin in March, so that the leap day is last.
    let shifted = days + 719_468;
    let (cycle, day) = (shifted / 146_097, shifted % 146_097);
    let year_of_cycle = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = cycle * 400 + year_of_cycle + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_000_000_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_772_357_400_250_000_000), "2026-03-01T09:30:00.250Z");
        assert_eq!(rfc3339(u64::MAX).len(), 24);
    }

    #[test]
    fn measured_rate_wins_and_nonsense_is_not_believed() {
        let mut clock = Clock { tsc_hz: 2_000_000_000, ..Clock::default() };
        assert_eq!(clock.ns_per_tick(), 0.5);
        clock.begin = Some(ClockPair { tsc: 1000, monotonic_ns: 0 });
        clock.end = Some(ClockPair { tsc: 4_001_000, monotonic_ns: 1_000_000 });
        assert_eq!(clock.ns_per_tick(), 0.25);
        clock.end = Some(ClockPair { tsc: 0, monotonic_ns: 1_000_000 });
        assert_eq!(clock.ns_per_tick(), 0.5);
        assert_eq!(Clock::default().ns_per_tick(), 1.0);
    }
}
