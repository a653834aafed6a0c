//! The report: which functions take the time, in which threads, and what the trace lacks.

use std::collections::{BTreeMap, HashMap};

use fettle_trace::{EventKind, Exit, Manifest, ProbeCost, ProbeMode, Thread, Total, Trace};
use fettle_types::FunctionIndex;
use serde::Serialize;

use crate::correct::{Below, below, corrected};
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
    /// By time on a processor outside callees, corrected.
    Cpu,
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
    /// Threads' off-CPU times, by index; empty if not known.
    pub off_cpu: HashMap<u32, OffCpu>,
    /// Functions left unmodified, by reason.
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
    /// CPU time of all threads in nanoseconds, if known.
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
    pub id: FunctionIndex,
    /// Name.
    pub name: String,
    /// File name of its module.
    pub module: String,
    /// Source file and line, if known.
    pub place: Option<String>,
    /// Calls that ended.
    pub calls: u64,
    /// How often it was left by returning or by a jump to another function, if that was counted.
    pub exits: Option<u64>,
    /// Nanoseconds outside probed callees, as measured.
    pub self_ns: u64,
    /// The same without the probes' own cost.
    pub self_corrected_ns: u64,
    /// Nanoseconds with callees, as measured; nested activations count each.
    pub total_ns: u64,
    /// The same without the probes' own cost.
    pub total_corrected_ns: u64,
    /// Of `self_corrected_ns`, what was spent on a processor, if known.
    pub cpu_self_ns: Option<u64>,
    /// Of `total_corrected_ns`, what was spent on a processor, if known.
    pub cpu_total_ns: Option<u64>,
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
    /// CPU time in nanoseconds, if known: the kernel's account.
    pub cpu_ns: Option<u64>,
    /// When it was switched out, if known.
    pub off_cpu: Option<OffCpu>,
    /// Nanoseconds in probed functions, as measured.
    pub probed_ns: u64,
    /// Calls that ended.
    pub calls: u64,
    /// Records of single calls.
    pub records: u64,
    /// Records lost.
    pub lost: u64,
}

/// A thread's off-CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OffCpu {
    /// Nanoseconds that it waited for something, or was stopped.
    pub waited_ns: u64,
    /// Nanoseconds that it could have gone on, while others had the processor.
    pub preempted_ns: u64,
    /// How often it was switched out, for either reason.
    pub switches: u64,
}

/// Something that was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LossRow {
    /// What and why.
    pub what: String,
    /// How many.
    pub count: u64,
}

/// Functions left unmodified for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedRow {
    /// Why.
    pub reason: String,
    /// How many.
    pub functions: u64,
    /// Some of their names.
    pub examples: Vec<String>,
}

/// A kind of event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventRow {
    /// Its name.
    pub name: String,
    /// How many there are.
    pub count: u64,
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
    /// Events of the kernel and of imports, the most frequent first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventRow>,
    /// Threads.
    pub threads: Vec<ThreadRow>,
    /// Functions left unmodified.
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
        let off_cpu = off_cpu(trace, &threads).unwrap_or_else(|error| {
            warnings.push(error.to_string());
            HashMap::new()
        });
        let skipped = rows(trace.skipped(), &mut warnings);
        let profile = Profile::read(trace)?;
        warnings.extend(profile.warnings.iter().cloned());
        let mut notes = trace.manifest().notes.clone();
        notes.extend(profile.notes.iter().cloned());

        if trace.manifest().probe_mode.counts_blocks() {
            let mode = trace.manifest().probe_mode.name();
            notes.push(format!(
                "the mode {mode} counts blocks, not calls: `fettle report --blocks` tells them, with \
                 `--json` too"
            ));
        }
        let claimed = trace.manifest().totals.records;
        if profile.records != claimed {
            let found = profile.records;
            warnings.push(format!("{found} records can be read, {claimed} were written"));
        }
        let totals_from_records = totals.is_empty() && profile.records > 0;
        if totals_from_records {
            totals = totals_of_records(&profile, trace.manifest().switches);
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
            off_cpu,
            warnings,
            notes,
        })
    }

    /// Fails unless the trace says when threads were off-CPU.
    pub fn need_cpu(&self) -> Result<()> {
        if self.manifest.switches { Ok(()) } else { Err(Error::NoCpu) }
    }

    /// Whether the trace has no records of single calls, but says how long functions took by themselves.
    pub fn has_own_times(&self) -> bool {
        self.profile.records == 0 && self.totals.iter().any(|total| total.self_ns > 0)
    }

    /// Fails unless the trace has records of single calls.
    pub fn need_records(&self, what: &'static str) -> Result<()> {
        if self.profile.records == 0 {
            return Err(Error::NoRecords { what, mode: self.manifest.probe_mode.name() });
        }
        Ok(())
    }

    /// The one function, or the functions of exactly one name, that `wanted` means.
    pub fn find(&self, wanted: &str) -> Result<Vec<FunctionIndex>> {
        let called = |id: &FunctionIndex| self.profile.durations_of(*id).is_some();
        let mut found = self.names.find(wanted);
        // Of several, those that were called are meant.
        if found.iter().any(called) {
            found.retain(called);
        }
        self.one_name(wanted, found)
    }

    /// `found`, if all have one name.
    pub(crate) fn one_name(
        &self,
        wanted: &str,
        mut found: Vec<FunctionIndex>,
    ) -> Result<Vec<FunctionIndex>> {
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
        let mut sums: HashMap<FunctionIndex, Sum> = HashMap::new();
        for total in &self.totals {
            sums.entry(total.function).or_insert(Sum::NONE).add(total);
        }
        let below = below(&self.profile.tree);
        let cost = self.manifest.probe_cost;
        let rows = sums.into_iter().filter(|(_, sum)| sum.calls > 0).map(|(id, sum)| {
            let Sum { calls, self_ns, total_ns, .. } = sum;
            let recorded =
                || self.profile.tree.slot_of(id).and_then(|slot| below.get(slot)).copied();
            let below = sum.below().or_else(recorded).unwrap_or_default();
            let (self_corrected_ns, total_corrected_ns) =
                corrected(cost, below, calls, self_ns, total_ns);
            let name = self.names.get(id);
            let callees_off_ns = sum.total_off_ns.saturating_sub(sum.self_off_ns);
            let callees_cpu_ns =
                (total_corrected_ns - self_corrected_ns).saturating_sub(callees_off_ns);
            let cpu_self_ns = self_corrected_ns.saturating_sub(sum.self_off_ns);
            let cpu = |ns: u64| sum.cpu_known.then_some(ns);
            FunctionRow {
                id,
                name: self.names.shown(id),
                module: name.map(|name| name.module.clone()).unwrap_or_default(),
                place: name.and_then(|name| name.place.clone()),
                calls,
                exits: sum.exits,
                self_ns,
                self_corrected_ns,
                total_ns,
                total_corrected_ns,
                cpu_self_ns: cpu(cpu_self_ns),
                cpu_total_ns: cpu(cpu_self_ns.saturating_add(callees_cpu_ns)),
                latency: self.latency(id),
            }
        });
        rows.collect()
    }

    /// How long recorded calls of a function took.
    pub fn latency(&self, function: FunctionIndex) -> Option<Latency> {
        let durations = self.profile.durations_of(function)?;
        Some(Latency {
            calls: durations.count(),
            min_ns: durations.min(),
            p50_ns: durations.quantile(0.5),
            p90_ns: durations.quantile(0.9),
            p99_ns: durations.quantile(0.99),
            max_ns: durations.max(),
        })
    }

    /// The report.
    pub fn report(&self, options: &Options) -> Report {
        let mut functions = self.functions();
        let functions_called = functions.len() as u64;
        let self_corrected_ns =
            functions.iter().fold(0u64, |sum, row| sum.saturating_add(row.self_corrected_ns));
        // Without times of their own, functions are compared by those with what they called.
        let own = functions.iter().any(|row| row.self_ns > 0);
        functions.sort_by(|a, b| {
            let key = |row: &FunctionRow| match options.sort {
                SortBy::SelfTime if own => row.self_corrected_ns,
                SortBy::SelfTime => row.total_corrected_ns,
                SortBy::Total => row.total_corrected_ns,
                SortBy::Calls => row.calls,
                SortBy::P99 => row.latency.map_or(0, |latency| latency.p99_ns),
                SortBy::Cpu => row.cpu_self_ns.unwrap_or(0),
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
            events: self.events(),
            threads: self.threads(),
            skipped: self.skipped.clone(),
        }
    }

    fn events(&self) -> Vec<EventRow> {
        let kinds = self.manifest.events.kinds.iter().filter(|kind| kind.rows > 0);
        let row = |kind: &EventKind| EventRow { name: kind.name.clone(), count: kind.rows };
        let mut rows: Vec<EventRow> = kinds.map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.count));
        rows
    }

    /// Calls without a record, where every call should have one.
    fn unrecorded(&self) -> u64 {
        if self.manifest.probe_mode != ProbeMode::Events {
            return 0;
        }
        let totals = &self.manifest.totals;
        let missing = self.calls().saturating_sub(self.profile.records);
        missing.saturating_sub(totals.short).max(totals.lost)
    }

    fn calls(&self) -> u64 {
        self.totals.iter().fold(0, |sum, total| sum.saturating_add(total.calls))
    }

    /// Whether records are missing, so that latencies and trees are of a part of the calls.
    pub fn partial(&self) -> bool {
        self.unrecorded() > 0 || self.manifest.totals.short > 0 || self.manifest.recovery.is_some()
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
            ("calls that found the call-stack mirror full", totals.mirror_overflows),
            ("exits without an entry", totals.unmatched_exits),
        ];
        let counted = counted.map(|(what, count)| LossRow { what: what.to_owned(), count });
        let processors = self.manifest.events.lost.iter().map(|cpu| LossRow {
            what: format!("events that found the ring of processor {} full", cpu.cpu),
            count: cpu.lost,
        });
        let named = self
            .manifest
            .losses
            .iter()
            .map(|loss| LossRow { what: loss.reason.clone(), count: loss.count });
        counted.into_iter().chain(processors).chain(named).filter(|loss| loss.count > 0).collect()
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
                off_cpu: self.off_cpu.get(&thread.index).copied(),
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

/// Threads' off-CPU times; empty if the trace has none.
fn off_cpu(trace: &Trace, threads: &[Thread]) -> fettle_trace::Result<HashMap<u32, OffCpu>> {
    let mut sums = HashMap::new();
    if trace.manifest().switches {
        sums.extend(threads.iter().map(|thread| (thread.index, OffCpu::default())));
    }
    trace.for_each_switch(|switches| {
        for switch in switches {
            let Some(sum) = sums.get_mut(&switch.thread) else { continue };
            let sum: &mut OffCpu = sum;
            let out_ns = switch.on_ns.saturating_sub(switch.off_ns);
            let to = if switch.preempted { &mut sum.preempted_ns } else { &mut sum.waited_ns };
            *to = to.saturating_add(out_ns);
            sum.switches += 1;
        }
    })?;
    Ok(sums)
}

/// A function's totals over threads.
#[derive(Clone, Copy, Debug)]
struct Sum {
    calls: u64,
    self_ns: u64,
    total_ns: u64,
    self_off_ns: u64,
    total_off_ns: u64,
    /// Whether CPU time is known in some thread; where it is not, all time counts.
    cpu_known: bool,
    /// Calls made and calls below, where every thread counted them.
    below: Option<(u64, u64)>,
    /// Exits, where every thread counted them.
    exits: Option<u64>,
}

impl Sum {
    /// Of a function in no thread yet.
    const NONE: Sum = Sum {
        calls: 0,
        self_ns: 0,
        total_ns: 0,
        self_off_ns: 0,
        total_off_ns: 0,
        cpu_known: false,
        below: Some((0, 0)),
        exits: Some(0),
    };

    /// The calls under these, if they were counted.
    fn below(&self) -> Option<Below> {
        let (children, descendants) = self.below?;
        Some(Below { calls: self.calls, children, descendants })
    }

    fn add(&mut self, total: &Total) {
        let add = |to: &mut u64, value: u64| *to = to.saturating_add(value);
        add(&mut self.calls, total.calls);
        add(&mut self.self_ns, total.self_ns);
        add(&mut self.total_ns, total.total_ns);
        self.exits = self.exits.zip(total.exits).map(|(to, more)| to.saturating_add(more));
        self.below = self
            .below
            .zip(total.child_calls.zip(total.calls_below))
            .map(|(to, more)| (to.0.saturating_add(more.0), to.1.saturating_add(more.1)));
        if let (Some(cpu_self), Some(cpu_total)) = (total.cpu_self_ns, total.cpu_total_ns) {
            self.cpu_known = true;
            add(&mut self.self_off_ns, total.self_ns.saturating_sub(cpu_self));
            add(&mut self.total_off_ns, total.total_ns.saturating_sub(cpu_total));
        }
    }
}

/// Totals over all threads, from the call tree.
fn totals_of_records(profile: &Profile, cpu: bool) -> Vec<Total> {
    let mut totals: BTreeMap<FunctionIndex, Total> = BTreeMap::new();
    let nodes = profile.tree.nodes().iter().skip(2);
    for node in nodes.filter(|node| node.function != NO_FUNCTION) {
        let new = Total { function: node.function, ..Total::default() };
        let total = totals.entry(node.function).or_insert(new);
        total.calls = total.calls.saturating_add(node.calls);
        total.total_ns = total.total_ns.saturating_add(node.total_ns);
        total.self_ns = total.self_ns.saturating_add(node.self_ns());
        if cpu {
            let add = |to: &mut Option<u64>, ns| *to = Some(to.unwrap_or(0).saturating_add(ns));
            add(&mut total.cpu_total_ns, node.cpu_ns());
            add(&mut total.cpu_self_ns, node.cpu_self_ns());
        }
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
