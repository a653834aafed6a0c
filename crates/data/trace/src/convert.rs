//! Spools to columns.
//!
//! A thread's records are read from its last to its first. Backwards, a caller comes before its
//! callees, so the calls open around a record are a stack, and its depth is that stack's height.
//! One thread runs that pass over all spools, at the speed of memory; the others encode, one
//! file each, which is where the time goes.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use fettle_abi::record::CallRecord;
use fettle_types::FunctionIndex;

use crate::call_writer::WrittenCalls;
use crate::calls::{self, Call, Columns, ROWS_PER_FILE};
use crate::error::{Error, Result};
use crate::finish::{Finish, OpenCall};
use crate::manifest::{Clock, ProbeMode, TickConverter};
use crate::spool::{self, Content, SpoolFile};
use crate::switches::OffCpu;

/// Bits of the time-stamp counter that a record holds.
const TIME_BITS: u32 = 52;
/// Depths are stored in 16 bits.
const DEPTH_MAX: usize = u16::MAX as usize;
/// How far a record is moved to restore the order of ends. Records can only trade places when a
/// signal arrives between the reading of the clock and the commit, so the true distance is small.
const SWAPS_MAX: usize = 64;

/// What a conversion made.
#[derive(Debug, Default)]
pub(crate) struct Converted {
    pub(crate) calls: WrittenCalls,
    /// Records whose words no producer can have stored.
    pub(crate) invalid: u64,
    /// Off-CPU nanoseconds.
    pub(crate) off_cpu: OffCpuSums,
}

/// Nanoseconds that recorded calls were off-CPU, by thread and function: callees included, and
/// excluded.
type OffCpuSums = HashMap<(u32, FunctionIndex), (u64, u64)>;

/// A thread's records: first those of its spool, then its calls that are still open.
struct Source {
    thread: u32,
    spool: Option<SpoolFile>,
    /// Innermost first, as they would end.
    open: Vec<OpenCall>,
    /// A time near the last record's end, all 64 bits.
    last_tsc: u64,
}

impl Source {
    fn new(thread: u32, last_tsc: u64) -> Source {
        Source { thread, spool: None, open: Vec::new(), last_tsc }
    }

    fn spooled(&self) -> u64 {
        self.spool.as_ref().map_or(0, |spool| spool.records)
    }

    fn records(&self) -> u64 {
        self.spooled() + self.open.len() as u64
    }
}

/// Rows of one source that go into one file.
struct Segment {
    source: usize,
    first: u64,
    count: usize,
}

/// Converts all spools of a trace folder; the spools stay.
pub(crate) fn convert(
    trace: &Path,
    finish: &Finish,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Converted> {
    // What an earlier attempt left is from the same spools.
    let folder = calls::folder(trace);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|e| Error::io("remove", &folder, e))?;
    }
    fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, e))?;

    let sources = sources(trace, finish)?;
    let weights = weights(finish, &sources)?;
    let switches = spool::all(trace, Content::Switches)?.into_iter();
    let switches = switches.map(|spool| (spool.thread, spool)).collect();
    let plan = plan(&sources);
    let pass = Backwards::new(finish.manifest.clock.converter(), &weights, switches);
    let result = encode_all(trace, pass, &sources, &plan, progress);
    if result.is_err() {
        // Whole files of calls would be made again anyway; their space may be what is missing.
        let _ = fs::remove_dir_all(&folder);
    }
    result
}

/// Gathers what there is to convert, by thread index.
fn sources(trace: &Path, finish: &Finish) -> Result<Vec<Source>> {
    let clock = &finish.manifest.clock;
    let mut sources = BTreeMap::new();
    for spool in spool::all(trace, Content::Calls)? {
        let last_tsc = match clock.end {
            Some(end) => end.tsc,
            None => last_tsc(&spool, clock.tsc_at_start)?,
        };
        let thread = spool.thread;
        sources.insert(thread, Source { spool: Some(spool), ..Source::new(thread, last_tsc) });
    }
    for call in &finish.open_calls {
        let empty = || Source::new(call.thread, call.end_tsc);
        sources.entry(call.thread).or_insert_with(empty).open.push(*call);
    }
    let mut sources: Vec<_> = sources.into_values().collect();
    for source in &mut sources {
        source.open.sort_by_key(|call| (call.end_tsc, std::cmp::Reverse(call.start_tsc)));
    }
    Ok(sources)
}

/// The end of a spool's last record, by counting the clock forward from the start of the trace.
/// Only needed when the recording was cut off, so that the clock was not read at its end.
pub(crate) fn last_tsc(spool: &SpoolFile, start: u64) -> Result<u64> {
    let mut clock = start;
    let mut records = Vec::new();
    let mut first = 0;
    let reader = spool.open()?;
    while first < spool.records {
        let count = (spool.records - first).min(ROWS_PER_FILE as u64) as usize;
        reader.read(first, count, &mut records)?;
        for record in &records {
            clock = widen(record.start().wrapping_add(record.ticks()), clock);
        }
        first += count as u64;
    }
    Ok(clock)
}

/// The end of a spool's last record where the clock was read some time before or after it, if ever.
pub(crate) fn last_end(spool: &SpoolFile, clock: &Clock) -> Result<u64> {
    let Some(near) = clock.end else { return last_tsc(spool, clock.tsc_at_start) };
    let mut last = Vec::new();
    if let Some(at) = spool.records.checked_sub(1) {
        spool.open()?.read(at, 1, &mut last)?;
    }
    let end = last.first().map(|record| record.start().wrapping_add(record.ticks()));
    Ok(end.map_or(clock.tsc_at_start, |end| widen(end, near.tsc)))
}

/// The 64-bit time nearest to `clock` whose lower 52 bits are those of `time`.
#[inline]
fn widen(time: u64, clock: u64) -> u64 {
    let shift = 64 - TIME_BITS;
    let distance = (time.wrapping_sub(clock) << shift) as i64 >> shift;
    clock.wrapping_add(distance as u64)
}

/// How many calls a record stands for, by thread and function; empty unless calls were sampled.
type Weights = HashMap<(u32, FunctionIndex), u32>;

fn weights(finish: &Finish, sources: &[Source]) -> Result<Weights> {
    let mut weights = Weights::new();
    if finish.manifest.probe_mode != ProbeMode::Sampled {
        return Ok(weights);
    }
    let mut recorded: HashMap<(u32, FunctionIndex), u64> = HashMap::new();
    let mut records = Vec::new();
    for source in sources {
        let Some(spool) = &source.spool else { continue };
        let reader = spool.open()?;
        let mut first = 0;
        while first < spool.records {
            let count = (spool.records - first).min(ROWS_PER_FILE as u64) as usize;
            reader.read(first, count, &mut records)?;
            for id in records.iter().filter_map(|record| record.id()) {
                *recorded.entry((source.thread, id.into())).or_default() += 1;
            }
            first += count as u64;
        }
    }
    for total in &finish.totals {
        let key = (total.thread, total.function);
        if let Some(&recorded) = recorded.get(&key) {
            let weight = (total.calls + recorded / 2) / recorded;
            weights.insert(key, weight.clamp(1, u64::from(u32::MAX)) as u32);
        }
    }
    Ok(weights)
}

/// Cuts the records of all threads, one after another, into files.
fn plan(sources: &[Source]) -> Vec<Vec<Segment>> {
    let mut files: Vec<Vec<Segment>> = Vec::new();
    let mut room = 0;
    for (index, source) in sources.iter().enumerate() {
        let mut first = 0;
        while first < source.records() {
            if room == 0 {
                files.push(Vec::new());
                room = ROWS_PER_FILE;
            }
            let count = (source.records() - first).min(room as u64) as usize;
            if let Some(file) = files.last_mut() {
                file.push(Segment { source: index, first, count });
            }
            first += count as u64;
            room -= count;
        }
    }
    files
}

/// Prepares all files from the last to the first and has them encoded.
fn encode_all(
    trace: &Path,
    mut pass: Backwards<'_>,
    sources: &[Source],
    plan: &[Vec<Segment>],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Converted> {
    let workers =
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(plan.len());
    let all: u64 = sources.iter().map(Source::records).sum();
    let failed = AtomicBool::new(false);
    let mut converted = Converted::default();
    let mut records = 0;
    progress(0, all);
    std::thread::scope(|scope| {
        // Depth 1: at most `workers + 2` files' rows are in memory.
        let (to_encode, rows) = mpsc::sync_channel::<(usize, Columns)>(1);
        let (spent, empty) = mpsc::channel::<Columns>();
        let (done, results) = mpsc::channel::<Result<calls::Encoded>>();
        let rows = Arc::new(Mutex::new(rows));
        let failed = &failed;

        let preparer_done = done.clone();
        let preparer = scope.spawn(move || {
            for (number, segments) in plan.iter().enumerate().rev() {
                let mut calls = empty.try_recv().unwrap_or_else(|_| Columns::new());
                calls.clear();
                let prepared = pass.prepare(sources, segments, &mut calls);
                if let Err(error) = prepared {
                    let _ = preparer_done.send(Err(error));
                    break;
                }
                if failed.load(Ordering::Relaxed) || to_encode.send((number, calls)).is_err() {
                    break;
                }
            }
            pass.off_cpu_sums()
        });
        for _ in 0..workers {
            let (rows, done, spent) = (rows.clone(), done.clone(), spent.clone());
            scope.spawn(move || {
                loop {
                    // The guard must not live longer than the wait for the next rows.
                    let next = rows.lock().map(|rows| rows.recv());
                    let Ok(Ok((number, calls))) = next else { return };
                    if failed.load(Ordering::Relaxed) {
                        continue;
                    }
                    let result = calls::encode(trace, number, &calls);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    let _ = done.send(result);
                    let _ = spent.send(calls);
                }
            });
        }
        drop((rows, done, spent));

        let mut first_error = None;
        for result in results {
            match result {
                Ok((file, records_of)) => {
                    records += file.rows;
                    converted.calls.add(file, records_of);
                    progress(records, all);
                }
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    first_error.get_or_insert(error);
                }
            }
        }
        converted.off_cpu = preparer.join().expect("it does not panic");
        first_error.map_or(Ok(()), Err)
    })?;
    converted.calls.files.sort_by(|a, b| a.path.cmp(&b.path));
    converted.invalid = all - records;
    progress(all, all);
    Ok(converted)
}

/// The pass from the last record to the first.
struct Backwards<'a> {
    clock: TickConverter,
    weights: &'a Weights,
    /// Where it is written when threads were switched out, by thread index.
    switches: HashMap<u32, SpoolFile>,
    /// When that of the source was.
    off_cpu: Option<OffCpu>,
    /// Off-CPU nanoseconds in calls, and in the calls that they made, by thread and function.
    off_cpu_sums: HashMap<(u32, FunctionIndex), (u64, u64)>,
    /// The source whose records are being read.
    source: Option<usize>,
    /// End of the record read before, which is the next one in time.
    tsc: u64,
    /// Calls open around the next record, outermost first.
    open: Vec<Span>,
    records: Vec<CallRecord>,
    spans: Vec<Span>,
}

/// A call in ticks, all 64 bits.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
    function: FunctionIndex,
    flags: u8,
}

impl<'a> Backwards<'a> {
    fn new(
        clock: TickConverter,
        weights: &'a Weights,
        switches: HashMap<u32, SpoolFile>,
    ) -> Backwards<'a> {
        Backwards {
            clock,
            weights,
            switches,
            off_cpu: None,
            off_cpu_sums: HashMap::new(),
            source: None,
            tsc: 0,
            open: Vec::new(),
            records: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// Off-CPU times of calls, callees included and excluded.
    fn off_cpu_sums(self) -> OffCpuSums {
        let without = |(all, in_callees): (u64, u64)| (all, all.saturating_sub(in_callees));
        self.off_cpu_sums.into_iter().map(|(key, sums)| (key, without(sums))).collect()
    }

    /// Makes the rows of one file.
    fn prepare(
        &mut self,
        sources: &[Source],
        segments: &[Segment],
        calls: &mut Columns,
    ) -> Result<()> {
        for segment in segments.iter().rev() {
            let source = &sources[segment.source];
            if self.source != Some(segment.source) {
                self.source = Some(segment.source);
                self.tsc = source.last_tsc;
                self.open.clear();
                self.off_cpu = self.switches.get(&source.thread).map(OffCpu::by).transpose()?;
            }
            self.spans.clear();
            self.still_open(source, segment);
            self.spooled(source, segment)?;
            self.place(source.thread, calls)?;
        }
        Ok(())
    }

    /// The segment's calls that are still open; they follow the spool's.
    fn still_open(&mut self, source: &Source, segment: &Segment) {
        let spooled = source.spooled();
        let first = segment.first.saturating_sub(spooled) as usize;
        let end = (segment.first + segment.count as u64).saturating_sub(spooled) as usize;
        for call in source.open[first..end].iter().rev() {
            let (start, end) = (call.start_tsc.min(call.end_tsc), call.end_tsc);
            self.spans.push(Span { start, end, function: call.function, flags: Call::OPEN });
        }
    }

    /// The segment's records in the spool, widened and in order of their ends.
    fn spooled(&mut self, source: &Source, segment: &Segment) -> Result<()> {
        let Some(spool) = &source.spool else { return Ok(()) };
        let end = (segment.first + segment.count as u64).min(spool.records);
        let count = end.saturating_sub(segment.first) as usize;
        spool.open()?.read(segment.first, count, &mut self.records)?;
        let mut records = std::mem::take(&mut self.records);
        for record in records.drain(..).rev() {
            let Some(id) = record.id() else { continue };
            let end = widen(record.start().wrapping_add(record.ticks()), self.tsc);
            self.tsc = end;
            let start = end.saturating_sub(record.ticks());
            let span = Span { start, end, function: id.into(), flags: 0 };
            self.spans.push(span);
            // Backwards, ends must not rise.
            let mut at = self.spans.len() - 1;
            let lowest = at.saturating_sub(SWAPS_MAX);
            while at > lowest && self.spans[at - 1].end < end {
                self.spans[at] = self.spans[at - 1];
                at -= 1;
            }
            self.spans[at] = span;
        }
        self.records = records;
        Ok(())
    }

    /// Finds depths and appends the rows, last first.
    fn place(&mut self, thread: u32, calls: &mut Columns) -> Result<()> {
        for span in &self.spans {
            // A call that began after this one ended before any earlier record: done with.
            while self.open.last().is_some_and(|open| open.start > span.start) {
                self.open.pop();
            }
            // Usually the top is the caller. It is not if the order of ends could not be
            // restored; then the caller is further down.
            let around = self.open.iter().rposition(|open| open.end >= span.end);
            let depth = around.map_or(0, |index| index + 1);
            if depth == self.open.len() && depth < DEPTH_MAX {
                self.open.push(*span);
            }
            let mut off_cpu_ns = 0;
            if let Some(off_cpu) = &mut self.off_cpu {
                let (before, after) = off_cpu.before(span.start, span.end)?;
                if after > before {
                    // Both rounded alike: what nests in ticks nests in nanoseconds.
                    off_cpu_ns = self.clock.length_ns(after) - self.clock.length_ns(before);
                    let sums = &mut self.off_cpu_sums;
                    // The exact totals are of calls that ended.
                    let ended = |call: &&Span| call.flags & Call::OPEN == 0;
                    if let Some(call) = Some(span).filter(ended) {
                        sums.entry((thread, call.function)).or_default().0 += off_cpu_ns;
                    }
                    if let Some(caller) = around.map(|at| &self.open[at]).filter(ended) {
                        sums.entry((thread, caller.function)).or_default().1 += off_cpu_ns;
                    }
                }
            }
            let start_ns = self.clock.since_start_ns(span.start);
            let end_ns = self.clock.since_start_ns(span.end);
            let duration_ns = end_ns - start_ns;
            let weights = self.weights;
            calls.push_front(&Call {
                thread,
                function: span.function,
                start_ns,
                duration_ns,
                weight: weights.get(&(thread, span.function)).copied().unwrap_or(1),
                depth: depth.min(DEPTH_MAX) as u16,
                flags: span.flags,
                off_cpu_ns: off_cpu_ns.min(duration_ns),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::widen;

    #[test]
    fn widening_finds_the_nearest_moment() {
        let wrap = 1 << 52;
        assert_eq!(widen(5, wrap + 7), wrap + 5);
        assert_eq!(widen(wrap - 3, wrap + 7), wrap - 3);
        assert_eq!(widen(9, 3 * wrap - 1), 3 * wrap + 9);
        assert_eq!(widen(9, 3 * wrap + 20), 3 * wrap + 9);
    }
}
