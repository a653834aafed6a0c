//! Whether a trace agrees with itself: every file readable, every number where it belongs.

use std::collections::{BTreeMap, HashSet};

use fettle_trace::{Call, EventKind, ProbeMode, RunTotals, Trace};
use fettle_types::FunctionIndex;
use serde::Serialize;

use crate::error::Result;
use crate::profile::for_each_part_backwards;

/// What a check found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Check {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// Rows of each table, of all files of calls as `calls`, and of a kind of event as
    /// `events/NAME`.
    pub rows: BTreeMap<String, u64>,
    /// What is wrong; nothing if the list is empty.
    pub problems: Vec<Problem>,
    /// What would be wrong in another trace: where it is not known which calls lie within which.
    pub unsure: Vec<Problem>,
    /// Why that is not known, in sentences; nothing where it is.
    pub unsure_because: Vec<&'static str>,
}

/// Why it is not known which calls of a recording lie within which.
fn unsure_because(totals: &RunTotals) -> Vec<&'static str> {
    let all = [
        (
            totals.unmatched_exits,
            "some exits ended no call that is known, as those of coroutines do",
        ),
        (
            totals.unwound_frames,
            "some calls were left by an exception, longjmp or exit; where the function that caught it has \
             no probes, they end in the trace when a caller of it does",
        ),
    ];
    all.into_iter().filter(|(count, _)| *count > 0).map(|(_, why)| why).collect()
}

/// Something that is wrong, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What, in a sentence.
    pub what: String,
    /// How many times.
    pub count: u64,
}

/// What calls can do wrong.
#[derive(Default)]
struct Faults {
    function: u64,
    thread: u64,
    order: u64,
    depth: u64,
    outside: u64,
    overflow: u64,
    threads_apart: u64,
    off_cpu: u64,
}

/// Reads all of a trace and checks it.
pub fn check(trace: &Trace) -> Result<Check> {
    let mut check = Check { version: crate::JSON_VERSION, ..Check::default() };
    for warning in trace.warnings() {
        check.problem(warning.clone(), 1);
    }
    let functions = check.table("functions", trace.functions());
    let threads = check.table("threads", trace.threads());
    let totals = check.table("totals", trace.totals());
    check.table("modules", trace.modules());
    check.table("mappings", trace.mappings());
    check.table("skipped", trace.skipped());
    check.table("processes", trace.processes());
    check.table("counters", trace.counters());
    let mut backwards = 0;
    let mut last = (0, 0);
    let switches = trace.for_each_switch(|switches| {
        for switch in switches {
            let since = if last.0 == switch.thread { last.1 } else { 0 };
            backwards += u64::from(switch.off_ns < since || switch.on_ns < switch.off_ns);
            last = (switch.thread, switch.on_ns);
        }
    });
    if let Err(error) = switches {
        check.problem(error.to_string(), 1);
    }
    check.problem("switches of a thread are not in order of time", backwards);
    let functions: HashSet<FunctionIndex> = functions.iter().map(|function| function.id).collect();
    let threads: HashSet<u32> = threads.iter().map(|thread| thread.index).collect();

    let unknown = totals.iter().filter(|total| !functions.contains(&total.function)).count();
    check.problem("totals are of functions that are not listed", unknown as u64);

    let mut faults = Faults::default();
    let mut rows = 0u64;
    let mut thread = None;
    let mut seen = HashSet::new();
    // Calls that are open, outermost first, as their starts and ends.
    let mut open: Vec<(u64, u64)> = Vec::new();
    let mut later_ns = u64::MAX;
    let damaged = for_each_part_backwards(trace, |calls: &[Call]| {
        rows += calls.len() as u64;
        for call in calls.iter().rev() {
            if thread != Some(call.thread) {
                thread = Some(call.thread);
                faults.threads_apart += u64::from(!seen.insert(call.thread));
                faults.thread += u64::from(!threads.contains(&call.thread));
                open.clear();
                later_ns = u64::MAX;
            }
            faults.function += u64::from(!functions.contains(&call.function));
            let Some(end_ns) = call.start_ns.checked_add(call.duration_ns) else {
                faults.overflow += 1;
                continue;
            };
            faults.order += u64::from(end_ns > later_ns);
            later_ns = end_ns;
            let depth = usize::from(call.depth);
            faults.depth += u64::from(depth > open.len());
            open.truncate(depth);
            faults.off_cpu += u64::from(call.off_cpu_ns > call.duration_ns);
            let inside =
                open.last().is_none_or(|&(start, end)| start <= call.start_ns && end_ns <= end);
            faults.outside += u64::from(!inside);
            open.push((call.start_ns, end_ns));
        }
    })?;
    check.rows.insert("calls".into(), rows);
    for problem in damaged {
        check.problem(problem, 1);
    }
    check.problem("calls are of functions that are not listed", faults.function);
    check.problem("threads have calls but are not listed", faults.thread);
    check.problem("threads are not stored in one piece", faults.threads_apart);
    check.nesting(&faults, unsure_because(&trace.manifest().totals));
    check.problem("calls end after the end of time", faults.overflow);
    check.problem("calls were off-CPU for longer than they took", faults.off_cpu);

    let manifest = trace.manifest();
    let written = manifest.totals.records;
    if rows != written {
        check.problem(format!("{rows} records can be read, {written} were written"), 1);
    }
    if manifest.probe_mode == ProbeMode::Events && manifest.recovery.is_none() {
        let counted = totals.iter().fold(0u64, |sum, total| sum.saturating_add(total.calls));
        let accounted = rows.saturating_add(manifest.totals.without_record());
        // Calls that were still open have records and are not in the totals.
        if counted > accounted {
            let missing = counted - accounted;
            check.problem("calls were counted, but neither recorded nor counted as lost", missing);
        }
    }
    check.events(trace)?;
    Ok(check)
}

impl Check {
    fn problem(&mut self, what: impl Into<String>, count: u64) {
        if count > 0 {
            self.problems.push(Problem { what: what.into(), count });
        }
    }

    /// Takes which calls do not lie within which.
    fn nesting(&mut self, faults: &Faults, unsure: Vec<&'static str>) {
        let all = [
            ("calls end before the call stored before them", faults.order),
            ("calls claim a depth that their callers do not have", faults.depth),
            ("calls do not lie within their callers", faults.outside),
        ];
        let found = all.into_iter().filter(|(_, count)| *count > 0);
        let found = found.map(|(what, count)| Problem { what: what.into(), count });
        match unsure.is_empty() {
            true => self.problems.extend(found),
            false => self.unsure.extend(found),
        }
        if !self.unsure.is_empty() {
            self.unsure_because = unsure;
        }
    }

    /// Reads all events and compares their numbers with the manifest's.
    fn events(&mut self, trace: &Trace) -> Result<()> {
        let everything = &mut |kind: &EventKind| Some((0..kind.fields.len()).collect());
        let (mut stream, damaged) = trace.events(everything)?;
        let names: Vec<String> = stream.kinds().map(|kind| kind.name.clone()).collect();
        let mut rows = vec![0u64; names.len()];
        damaged.iter().for_each(|error| self.problem(error.to_string(), 1));
        loop {
            match stream.next(u64::MAX, &mut |_| 0) {
                Ok(Some(run)) => rows[run.kind] += run.times_ns().len() as u64,
                Ok(None) => break,
                Err(error) => self.problem(error.to_string(), 1),
            }
        }
        let mut found: BTreeMap<String, u64> = names.into_iter().zip(rows).collect();
        for kind in &trace.manifest().events.kinds {
            let read = *found.entry(kind.name.clone()).or_default();
            if read != kind.rows {
                let what = format!(
                    "{read} events of kind {} can be read, {} were written",
                    kind.name, kind.rows
                );
                self.problem(what, 1);
            }
        }
        let named = |(name, rows)| (format!("events/{name}"), rows);
        self.rows.extend(found.into_iter().map(named));
        Ok(())
    }

    fn table<T>(&mut self, name: &'static str, rows: fettle_trace::Result<Vec<T>>) -> Vec<T> {
        match rows {
            Ok(rows) => {
                self.rows.insert(name.into(), rows.len() as u64);
                rows
            }
            Err(error) => {
                self.problem(error.to_string(), 1);
                Vec::new()
            }
        }
    }
}
