//! The report: which functions take the time, in which threads, and what the trace lacks.

use std::collections::{BTreeMap, HashMap};

use fettle_trace::{Exit, Manifest, ProbeCost, ProbeMode, Thread, Total, Trace};
use serde::Serialize;

use crate::correct::{below, corrected};
use crate::error::{Error, Result};
use crate::names::Names;
use crate::profile::Profile;
use crate::tree::NO_FUNCTION;

/// What a report shows.
#[derive(Clone, Debug)]
pub struct Options {
    /// Functions shown at most.
    pub limit: usize,
    /// Which come first.
    pub sort: SortBy,
    /// Whether names are shown as their authors wrote them.
    pub demangle: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { limit: 20, sort: SortBy::SelfTime, demangle: true }
    }
}

/// Order of functions, largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// By time outside callees, corrected.
    #[default]
    SelfTime,
    /// By time with callees, corrected.
    Total,
    /// By number of calls.
    Calls,
    /// By the duration that 99 of 100 calls did not exceed.
    P99,
}

/// A trace, read and added up: what all reports start from.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The manifest.
    pub manifest: Manifest,
    /// Names of functions.
    pub names: Names,
    /// What the single calls say.
    pub profile: Profile,
    /// Exact totals, or those of the records if there are no others.
    pub totals: Vec<Total>,
    /// Whether [`Analysis::totals`] had to be made from records.
    pub totals_from_records: bool,
    /// Threads.
    pub threads: Vec<Thread>,
    /// Functions left alone, by reason.
    pub skipped: Vec<SkippedRow>,
    /// What is missing or wrong, one sentence each.
    pub warnings: Vec<String>,
    /// What a reader should know, though nothing is wrong, one sentence each.
    pub notes: Vec<String>,
}

/// Where and how the program ran.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Start in UTC, RFC 3339.
    pub start_time: String,
    /// Wall-clock length in nanoseconds.
    pub duration_ns: u64,
    /// Processor time of all threads in nanoseconds, if known.
    pub cpu_ns: Option<u64>,
    /// How the program ended.
    pub exit: Option<Exit>,
    /// What the probes did.
    pub probe_mode: ProbeMode,
    /// What a probe costs.
    pub probe_cost: ProbeCost,
    /// Processor model.
    pub cpu_model: String,
    /// Calls that ended.
    pub calls: u64,
    /// Records of single calls in the trace.
    pub records: u64,
    /// Records that were lost.
    pub lost: u64,
    /// Calls without a record, for whatever reason, where every call should have one.
    pub unrecorded: u64,
    /// Threads.
    pub threads: u64,
    /// Processes.
    pub processes: u64,
    /// Whether the recording did not end properly.
    pub cut_off: bool,
}

/// One function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionRow {
    /// Identifier in the trace.
    pub id: u32,
    /// Name.
    pub name: String,
    /// File name of its module.
    pub module: String,
    /// Source file and line, if known.
    pub place: Option<String>,
    /// Calls that ended.
    pub calls: u64,
    /// Nanoseconds outside probed callees, as measured.
    pub self_ns: u64,
    /// The same without the probes' own cost.
    pub self_corrected_ns: u64,
    /// Nanoseconds with callees, as measured; nested activations count each.
    pub total_ns: u64,
    /// The same without the probes' own cost.
    pub total_corrected_ns: u64,
    /// Durations of recorded calls.
    pub latency: Option<Latency>,
}

/// Durations of single calls in nanoseconds, as measured; from records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Calls these figures are from.
    pub calls: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Half of the calls took no longer.
    pub p50_ns: u64,
    /// 90 of 100 took no longer.
    pub p90_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadRow {
    /// Index in the trace.
    pub index: u32,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name.
    pub name: String,
    /// Nanoseconds from its first sight to its end.
    pub wall_ns: u64,
    /// Processor time in nanoseconds, if known.
    pub cpu_ns: Option<u64>,
    /// Nanoseconds in probed functions, as measured.
    pub probed_ns: u64,
    /// Calls that ended.
    pub calls: u64,
    /// Records of single calls.
    pub records: u64,
    /// Records lost.
    pub lost: u64,
}

/// Something that was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LossRow {
    /// What and why.
    pub what: String,
    /// How many.
    pub count: u64,
}

/// Functions left alone for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedRow {
    /// Why.
    pub reason: String,
    /// How many.
    pub functions: u64,
    /// Some of their names.
    pub examples: Vec<String>,
}

/// The report as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// Where and how the program ran.
    pub run: Run,
    /// What was lost.
    pub losses: Vec<LossRow>,
    /// Whether records are missing, so that latencies and trees are of a part of the calls.
    pub partial: bool,
    /// What is missing or wrong with the trace, one sentence each.
    pub warnings: Vec<String>,
    /// What a reader should know, though nothing is wrong, one sentence each.
    pub notes: Vec<String>,
    /// Functions, those that come first.
    pub functions: Vec<FunctionRow>,
    /// Functions with calls, shown or not.
    pub functions_called: u64,
    /// Nanoseconds in all functions outside their probed callees, without the probes' cost.
    pub self_corrected_ns: u64,
    /// Threads.
    pub threads: Vec<ThreadRow>,
    /// Functions left alone.
    pub skipped: Vec<SkippedRow>,
}

impl Analysis {
    /// Reads a trace. Tables that cannot be read are left empty and named in the warnings.
    pub fn read(trace: &Trace, demangle: bool) -> Result<Analysis> {
        let mut warnings = trace.warnings().to_vec();
        fn rows<T>(result: fettle_trace::Result<Vec<T>>, warnings: &mut Vec<String>) -> Vec<T> {
            result.unwrap_or_else(|error| {
                warnings.push(error.to_string());
                Vec::new()
            })
        }
        let modules = rows(trace.modules(), &mut warnings);
        let functions = rows(trace.functions(), &mut warnings);
        let names = Names::new(&functions, &modules, demangle);
        let threads = rows(trace.threads(), &mut warnings);
        let mut totals = rows(trace.totals(), &mut warnings);
        let skipped = rows(trace.skipped(), &mut warnings);
        let profile = Profile::read(trace)?;
        warnings.extend(profile.warnings.iter().cloned());
        let mut notes = trace.manifest().notes.clone();
        notes.extend(profile.notes.iter().cloned());

        let claimed = trace.manifest().totals.records;
        if profile.records != claimed {
            let found = profile.records;
            warnings.push(format!("{found} records can be read, {claimed} were written"));
        }
        let totals_from_records = totals.is_empty() && profile.records > 0;
        if totals_from_records {
            totals = totals_of_records(&profile);
            let text = "there are no exact totals: calls and times are those of the records";
            notes.push(text.to_owned());
        }
        Ok(Analysis {
            manifest: trace.manifest().clone(),
            skipped: skipped_by_reason(&skipped, demangle),
            names,
            profile,
            totals,
            totals_from_records,
            threads,
            warnings,
            notes,
        })
    }

    /// Fails unless the trace has records of single calls.
    pub fn need_records(&self, what: &'static str) -> Result<()> {
        if self.profile.records == 0 {
            return Err(Error::NoRecords { what, mode: self.manifest.probe_mode.name() });
        }
        Ok(())
    }

    /// The one function, or the functions of exactly one name, that `wanted` means.
    pub fn find(&self, wanted: &str) -> Result<Vec<u32>> {
        let called = |id: &u32| self.profile.durations_of(*id).is_some();
        let mut found = self.names.find(wanted);
        // Of several, those that were called are meant.
        if found.iter().any(called) {
            found.retain(called);
        }
        self.one_name(wanted, found)
    }

    /// `found`, if all have one name.
    pub(crate) fn one_name(&self, wanted: &str, mut found: Vec<u32>) -> Result<Vec<u32>> {
        found.dedup();
        let mut shown: Vec<String> = found.iter().map(|&id| self.names.shown(id)).collect();
        shown.sort();
        shown.dedup();
        match shown.len() {
            0 => Err(Error::NoFunction(wanted.to_owned())),
            1 => Ok(found),
            count => {
                shown.truncate(8);
                let (wanted, examples) = (wanted.to_owned(), shown.join("\n  "));
                Err(Error::ManyFunctions { wanted, count, examples })
            }
        }
    }

    /// Every function with calls, in no particular order.
    pub fn functions(&self) -> Vec<FunctionRow> {
        let mut sums: HashMap<u32, (u64, u64, u64)> = HashMap::new();
        for total in &self.totals {
            let sum = sums.entry(total.function).or_default();
            sum.0 = sum.0.saturating_add(total.calls);
            sum.1 = sum.1.saturating_add(total.self_ns);
            sum.2 = sum.2.saturating_add(total.total_ns);
        }
        let below = below(&self.profile.tree);
        let cost = self.manifest.probe_cost;
        let rows = sums.into_iter().filter(|(_, sum)| sum.0 > 0).map(|(id, sum)| {
            let (calls, self_ns, total_ns) = sum;
            let slot = self.profile.tree.slot_of(id);
            let below = slot.and_then(|slot| below.get(slot)).copied().unwrap_or_default();
            let (self_corrected_ns, total_corrected_ns) =
                corrected(cost, below, calls, self_ns, total_ns);
            let name = self.names.get(id);
            FunctionRow {
                id,
                name: self.names.shown(id),
                module: name.map(|name| name.module.clone()).unwrap_or_default(),
                place: name.and_then(|name| name.place.clone()),
                calls,
                self_ns,
                self_corrected_ns,
                total_ns,
                total_corrected_ns,
                latency: self.latency(id),
            }
        });
        rows.collect()
    }

    /// How long recorded calls of a function took.
    pub fn latency(&self, function: u32) -> Option<Latency> {
        let durations = self.profile.durations_of(function)?;
        Some(Latency {
            calls: durations.count(),
            min_ns: durations.min_ns(),
            p50_ns: durations.quantile_ns(0.5),
            p90_ns: durations.quantile_ns(0.9),
            p99_ns: durations.quantile_ns(0.99),
            max_ns: durations.max_ns(),
        })
    }

    /// The report.
    pub fn report(&self, options: &Options) -> Report {
        let mut functions = self.functions();
        let functions_called = functions.len() as u64;
        let self_corrected_ns =
            functions.iter().fold(0u64, |sum, row| sum.saturating_add(row.self_corrected_ns));
        functions.sort_by(|a, b| {
            let key = |row: &FunctionRow| match options.sort {
                SortBy::SelfTime => row.self_corrected_ns,
                SortBy::Total => row.total_corrected_ns,
                SortBy::Calls => row.calls,
                SortBy::P99 => row.latency.map_or(0, |latency| latency.p99_ns),
            };
            // Ties, as in the mode that only counts, by calls and then by name.
            let order = key(b).cmp(&key(a)).then(b.calls.cmp(&a.calls));
            order.then_with(|| a.name.cmp(&b.name)).then(a.id.cmp(&b.id))
        });
        functions.truncate(options.limit);
        let run = self.run();
        Report {
            version: crate::JSON_VERSION,
            losses: self.losses(),
            partial: self.partial(),
            run,
            warnings: self.warnings.clone(),
            notes: self.notes.clone(),
            functions,
            functions_called,
            self_corrected_ns,
            threads: self.threads(),
            skipped: self.skipped.clone(),
        }
    }

    /// Calls without a record, where every call should have one.
    fn unrecorded(&self) -> u64 {
        if self.manifest.probe_mode != ProbeMode::Events {
            return 0;
        }
        self.calls().saturating_sub(self.profile.records).max(self.manifest.totals.lost)
    }

    fn calls(&self) -> u64 {
        self.totals.iter().fold(0, |sum, total| sum.saturating_add(total.calls))
    }

    /// Whether records are missing, so that latencies and trees are of a part of the calls.
    pub fn partial(&self) -> bool {
        self.unrecorded() > 0 || self.manifest.recovery.is_some()
    }

    fn run(&self) -> Run {
        let manifest = &self.manifest;
        let cpu = self.threads.iter().filter_map(|thread| thread.cpu_ns);
        let known = self.threads.iter().any(|thread| thread.cpu_ns.is_some());
        Run {
            command: manifest.command.clone(),
            start_time: manifest.start_time.clone(),
            duration_ns: manifest.duration_ns,
            cpu_ns: known.then(|| cpu.fold(0, u64::saturating_add)),
            exit: manifest.exit,
            probe_mode: manifest.probe_mode,
            probe_cost: manifest.probe_cost,
            cpu_model: manifest.machine.cpu_model.clone(),
            calls: self.calls(),
            records: self.profile.records,
            lost: manifest.totals.lost,
            unrecorded: self.unrecorded(),
            threads: manifest.totals.threads.max(self.threads.len() as u64),
            processes: manifest.totals.processes,
            cut_off: manifest.recovery.is_some(),
        }
    }

    fn losses(&self) -> Vec<LossRow> {
        let totals = &self.manifest.totals;
        let torn = self.manifest.recovery.map_or(0, |recovery| recovery.torn_records);
        let counted = [
            ("records that found their ring full", totals.lost),
            ("records torn when the recording was cut off", torn),
            ("calls that found the shadow stack full", totals.shadow_overflows),
            ("exits without an entry", totals.orphan_exits),
        ];
        let counted = counted.map(|(what, count)| LossRow { what: what.to_owned(), count });
        let named = self
            .manifest
            .losses
            .iter()
            .map(|loss| LossRow { what: loss.reason.clone(), count: loss.count });
        counted.into_iter().chain(named).filter(|loss| loss.count > 0).collect()
    }

    fn threads(&self) -> Vec<ThreadRow> {
        let mut sums: HashMap<u32, (u64, u64)> = HashMap::new();
        for total in self.totals.iter().filter(|_| !self.totals_from_records) {
            let sum = sums.entry(total.thread).or_default();
            sum.0 = sum.0.saturating_add(total.calls);
            sum.1 = sum.1.saturating_add(total.self_ns);
        }
        let rows = self.threads.iter().map(|thread| {
            let (calls, probed_ns) = sums.get(&thread.index).copied().unwrap_or_default();
            ThreadRow {
                index: thread.index,
                pid: thread.pid,
                tid: thread.tid,
                name: thread.name.clone(),
                wall_ns: thread.end_ns.saturating_sub(thread.start_ns),
                cpu_ns: thread.cpu_ns,
                probed_ns,
                calls: calls.max(if self.totals_from_records { thread.records } else { 0 }),
                records: thread.records,
                lost: thread.lost,
            }
        });
        let mut rows: Vec<ThreadRow> = rows.collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.probed_ns), row.index));
        rows
    }
}

/// Totals over all threads, from the call tree.
fn totals_of_records(profile: &Profile) -> Vec<Total> {
    let mut totals: BTreeMap<u32, Total> = BTreeMap::new();
    let nodes = profile.tree.nodes().iter().skip(2);
    for node in nodes.filter(|node| node.function != NO_FUNCTION) {
        let new = Total { function: node.function, ..Total::default() };
        let total = totals.entry(node.function).or_insert(new);
        total.calls = total.calls.saturating_add(node.calls);
        total.total_ns = total.total_ns.saturating_add(node.total_ns);
        total.self_ns = total.self_ns.saturating_add(node.self_ns());
    }
    totals.into_values().collect()
}

/// Adds up skipped functions, most frequent reason first.
fn skipped_by_reason(skipped: &[fettle_trace::Skipped], demangle: bool) -> Vec<SkippedRow> {
    const EXAMPLES: usize = 3;
    let mut rows: HashMap<&str, SkippedRow> = HashMap::new();
    for function in skipped {
        let row = rows.entry(&function.reason).or_insert_with(|| SkippedRow {
            reason: function.reason.clone(),
            functions: 0,
            examples: Vec::new(),
        });
        row.functions += 1;
        if row.examples.len() < EXAMPLES {
            let name = crate::names::show(&function.name, function.address, demangle);
            let detail = crate::names::one_line(function.detail.clone());
            row.examples.push(if detail.is_empty() { name } else { format!("{name} ({detail})") });
        }
    }
    let mut rows: Vec<SkippedRow> = rows.into_values().collect();
    rows.sort_by(|a, b| b.functions.cmp(&a.functions).then_with(|| a.reason.cmp(&b.reason)));
    rows
}
