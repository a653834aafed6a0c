//! Recording a process that runs already: its execution is counted for a while, and becomes a
//! trace. The process gets copies with counters, as for tuning, and is reverted afterwards.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fettle_image::LinkAddr;
use fettle_live::{LiveAddr, Process};
use fettle_place::Counts;
use fettle_record::record::{begin_clock, end_clock, new_manifest};
use fettle_record::rows;
use fettle_record::unmatched::Unmatched;
use fettle_rewrite::Plan;
use fettle_trace::{
    Counter, CounterKind, Finish, Manifest, Mapping, ProbeMode, Thread, Total, TraceWriter,
};
use fettle_types::{FunctionIndex, ModuleIndex, Pid};

use crate::Wanted;
use crate::count::{self, Counted, Profile, Wait};
use crate::error::TuneError;
use crate::group::ProcessGroup;
use crate::module::Module;
use crate::several::Several;
use crate::stop::Stop;
use crate::target::{LOADING, Target};

/// How long threads have to leave copies with counters: a user should not wait longer for a trace.
/// Threads of an idle process may sleep in the copies.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the trace has of the counts. Times are not among it: they would take memory for each
/// thread, which threads that run already do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// Calls of functions.
    Calls,
    /// How often each block ran.
    Blocks,
    /// Blocks, and how often control went from one to another.
    Edges,
}

/// What to record of a process.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The trace's folder; it must not exist.
    pub output: PathBuf,
    /// What the trace has of the counts.
    pub reported: Reported,
    /// Modules and functions.
    pub wanted: Wanted,
    /// Only of the process that is named, not of its process group.
    pub alone: bool,
    /// The longest that it goes on, unless it is stopped.
    pub duration: Option<Duration>,
}

/// The result of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// The trace's manifest.
    pub manifest: Manifest,
    /// How it was counted.
    pub profile: Profile,
    /// Functions that had counters.
    pub functions: u64,
}

/// Records until the time is over or the user stops it.
///
/// # Errors
///
/// When the process cannot be changed, or ends before it has counted anything; then there is no trace.
pub fn record(
    process: &Process,
    journals: &Path,
    recording: &Recording,
    stop: Stop<'_>,
) -> Result<Recorded, TuneError> {
    let mut manifest = new_manifest(&[shown(process).into()]);
    manifest.probe_mode = match recording.reported {
        Reported::Calls => ProbeMode::Count,
        Reported::Blocks => ProbeMode::Blocks,
        Reported::Edges => ProbeMode::Edges,
    };
    // The trace's folder is checked before anything is changed.
    let was_there = recording.output.exists();
    let writer = TraceWriter::create(&recording.output, &manifest)?;
    let counted = counted(process, journals, recording, stop, &mut manifest);
    // After the process's end, other errors are due to that.
    let counted = counted.map_err(|error| match process.is_same() {
        true => error,
        false => TuneError::Ended { pid: process.pid() },
    });
    let done = counted.and_then(|(finish, profile)| {
        let functions = finish.modules.iter().map(|module| module.functions_probed).sum();
        let manifest = writer.finish(finish, &mut |_, _| {})?;
        Ok(Recorded { manifest, profile, functions })
    });
    if done.is_err() && !was_there {
        let _ = std::fs::remove_dir_all(&recording.output);
    }
    done
}

fn counted(
    process: &Process,
    journals: &Path,
    recording: &Recording,
    stop: Stop<'_>,
    manifest: &mut Manifest,
) -> Result<(Finish, Profile), TuneError> {
    let target = Target::when_loaded(process, LOADING, &|| stop.is_wanted())?;
    let (modules, refused) = crate::lift(&target, &recording.wanted, stop)?;
    for (path, why) in refused {
        manifest.notes.push(format!("{} ran without probes: {why}", path.display()));
    }
    let process_group = ProcessGroup::of(process, recording.alone);
    let selection = &recording.wanted.selection;
    let clocked = RefCell::new(&mut *manifest);
    let wait = || {
        // The time for making the copies is not recorded.
        begin_clock(&mut clocked.borrow_mut());
        let begin = Instant::now();
        let is_over = || recording.duration.is_some_and(|time| begin.elapsed() >= time);
        while process.is_same() && !stop.is_wanted() && !is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
        end_clock(&mut clocked.borrow_mut());
        // Its counts remain although it has ended.
        Ok(())
    };
    // Its command, as long as it can be read.
    let command = process.command();
    let called = called(&modules, process);
    let from = (&target, &process_group);
    let wait = Wait { early: None, counting: &wait, reverting: PATIENCE };
    let Counted { profile, codes } =
        count::count_while(from, journals, &modules, selection, stop, wait)?;
    if !process.is_same() && profile.events == 0 {
        return Err(TuneError::Ended { pid: process.pid() });
    }
    notes(&profile, manifest);
    manifest.notes.extend(unmatched_patterns(&target, &recording.wanted, &modules, &codes));
    let mut finish = Finish::default();
    for (id, (index, plan)) in (0..).map(ModuleIndex).zip(&codes) {
        let Module { loaded, image, .. } = &modules[*index];
        let first = FunctionIndex(finish.functions.len() as u32);
        finish.modules.push(rows::module(id, &called[&loaded.link_map], image, plan));
        finish.functions.extend(rows::functions(id, first, image, plan));
        finish.skipped.extend(rows::skipped(id, plan));
        finish.mappings.push(Mapping {
            module: id,
            pid: process.pid().unsigned(),
            base: loaded.bias.get(),
        });
        for (function, planned) in first.on().zip(&plan.functions) {
            let Some(counts) = profile.modules[*index].get(&planned.entry) else { continue };
            notify(recording.reported, (function, planned.entry), counts, &mut finish);
        }
    }
    finish.processes.push(fettle_trace::Process {
        pid: process.pid().unsigned(),
        command,
        end_ns: manifest.duration_ns,
        ..fettle_trace::Process::default()
    });
    finish.threads.push(all_threads(process, manifest));
    manifest.totals.calls = finish.totals.iter().map(|total| total.calls).sum();
    manifest.totals.threads = 1;
    manifest.totals.processes = 1;
    finish.manifest = manifest.clone();
    Ok((finish, profile))
}

/// The paths of modules as the process has them, by the loader's record of each.
fn called(modules: &[Module], process: &Process) -> HashMap<LiveAddr, PathBuf> {
    let of = |module: &Module| (module.loaded.link_map, module.loaded.called(process));
    modules.iter().map(of).collect()
}

/// A row that represents all threads of a process.
fn all_threads(process: &Process, manifest: &Manifest) -> Thread {
    Thread {
        pid: process.pid().unsigned(),
        tid: process.pid().first_thread().unsigned(),
        name: "all threads".to_owned(),
        end_ns: manifest.duration_ns,
        ..Thread::default()
    }
}

/// Notes on patterns that have matched nothing.
fn unmatched_patterns(
    target: &Target<'_>,
    wanted: &Wanted,
    modules: &[Module],
    codes: &[(usize, Arc<Plan>)],
) -> Vec<String> {
    let mut unmatched = Unmatched::new(&wanted.libraries, &wanted.selection);
    target.paths().for_each(|path| unmatched.meets_library(path));
    for (index, plan) in codes {
        unmatched.meets_functions(&modules[*index].image, plan);
    }
    unmatched.notes()
}

/// What there is to say of a process that is stopped: nothing will be seen of it.
pub fn stopped(process: &Process) -> Option<String> {
    let pid = process.pid();
    process.is_stopped().then(|| {
        format!("{pid} is stopped, and does nothing until it is continued: kill -CONT {pid}")
    })
}

/// A running process's name in place of a command.
pub fn shown(process: &Process) -> String {
    format!("process {}: {}", process.pid(), process.command())
}

/// The message on processes that still have memory of `what`.
pub fn still_mapped(stuck: &[(Pid, String)], what: &str) -> Vec<String> {
    let notify = |several: Several| {
        let (who, runs) = several.who(("runs its own code", "run their own code"));
        let which = several.one().map_or("PID".to_owned(), |pid| pid.to_string());
        let why = several.why;
        format!(
            "{who} {runs} again, but {what} are still mapped: {why}; `fettle undo {which}` frees them when \
             it has been at work"
        )
    };
    Several::of(stuck).into_iter().map(notify).collect()
}

/// Notes for readers of the trace.
fn notes(profile: &Profile, manifest: &mut Manifest) {
    let notes = &mut manifest.notes;
    notes.push(
        "counted in a process that was running: threads that count at the same moment may lose \
         counts to each other"
            .to_owned(),
    );
    if profile.processes > 1 {
        notes.push(format!(
            "counted in {} processes that were forked from one another: those that worked most when it \
             began, and what they forked",
            profile.processes
        ));
    }
    if profile.inconsistent > 0 {
        let functions = profile.inconsistent;
        notes.push(format!(
            "counts of {functions} functions do not add up: control came into them, or left them, \
             by ways that are not counted"
        ));
    }
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for left in &profile.installed.left {
        *reasons.entry(left.reason.describe()).or_default() += 1;
    }
    let mut reasons: Vec<(&str, u64)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(reason, count)| (Reverse(*count), *reason));
    if !reasons.is_empty() {
        let all: u64 = reasons.iter().map(|(_, count)| count).sum();
        let each: Vec<String> =
            reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
        notes.push(format!(
            "{all} functions were counted only where calls in known code lead to them: {}",
            each.join("; ")
        ));
    }
    notes.extend(still_mapped(&profile.stuck, "copies with counters"));
}

/// Appends the counts of a function to the trace.
fn notify(
    reported: Reported,
    (function, entry): (FunctionIndex, LinkAddr),
    counts: &Counts,
    finish: &mut Finish,
) {
    if reported == Reported::Calls {
        let inside = counts.edges.iter().filter(|((_, to), _)| *to == entry);
        let inside: u64 = inside.map(|(_, count)| *count).sum();
        let ran = counts.blocks.get(&entry).copied().unwrap_or(0);
        let calls = ran.saturating_sub(inside);
        finish.totals.push(Total { function, calls, ..Total::default() });
        return;
    }
    let row = |kind, from: &LinkAddr, to: Option<&LinkAddr>, count: &u64| Counter {
        thread: None,
        function,
        kind,
        from_address: from.0,
        to_address: to.map(|to| to.0),
        count: *count,
    };
    let blocks: BTreeMap<_, _> = counts.blocks.iter().collect();
    finish.counters.extend(blocks.iter().map(|(at, n)| row(CounterKind::Block, at, None, n)));
    if reported == Reported::Edges {
        let edges: BTreeMap<_, _> = counts.edges.iter().collect();
        let rows = edges.iter().map(|((from, to), n)| row(CounterKind::Edge, from, Some(to), n));
        finish.counters.extend(rows);
    }
}
