//! Making a trace of a recording that did not end properly.

use std::path::Path;

use crate::column::{Table, read_table};
use crate::convert::{last_end, last_tsc};
use crate::deferred;
use crate::error::{Error, Result};
use crate::events::WrittenEvents;
use crate::finish::Finish;
use crate::manifest::{Manifest, ProbeMode, Recovery};
use crate::read::{Trace, read_manifest};
use crate::spool::{self, Content, SpoolFile};
use crate::tables::{Process, Thread};
use crate::write::write_trace;

/// Converts what the spools of a cut-off recording hold, with whatever tables it had written. The
/// manifest says what happened in [`Manifest::recovery`]. Exact totals are not among it: they died with
/// the program's memory.
///
/// # Errors
///
/// [`Error::Busy`] if the recording goes on.
pub fn recover(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Manifest> {
    recover_with(path, progress, &mut |_, _| Ok(None))
}

/// What a spool of another crate's format held.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Events, written into the trace.
    pub events: WrittenEvents,
    /// Processes that they report.
    pub processes: Vec<Process>,
    /// Threads that they report; their indices are set here.
    pub threads: Vec<Thread>,
}

/// Converts spools that this crate does not know, given the trace and its manifest, in which it may
/// set the clock's end and add notes; `None` if there are none.
pub type RecoverOther<'a> = dyn FnMut(&Path, &mut Manifest) -> Result<Option<Recovered>> + 'a;

/// As [`recover`], with spools of another kind.
///
/// # Errors
///
/// As [`recover`], and those of `other`.
pub fn recover_with(
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
    other: &mut RecoverOther<'_>,
) -> Result<Manifest> {
    let mut manifest = read_manifest(path)?;
    if manifest.complete || manifest.recovery.is_some() {
        return Ok(manifest);
    }
    let spool_folder = spool::folder(path);
    std::fs::create_dir_all(&spool_folder).map_err(|e| Error::io("create", &spool_folder, e))?;
    let _lock = spool::lock(path)?;
    let recovered = other(path, &mut manifest)?;

    let spools = spool::all(path, Content::Calls)?;
    let torn_records = spools.iter().filter(|spool| spool.torn).count() as u64;
    let records = spools.iter().map(|spool| spool.records).sum();
    let mut threads: Vec<Thread> = table_or_none(path);
    for spool in &spools {
        if !threads.iter().any(|thread| thread.index == spool.thread) {
            threads.push(Thread { index: spool.thread, ..Thread::default() });
        }
    }
    if manifest.clock.end.is_none() && manifest.clock.tsc_hz == 0 {
        estimate_rate(&mut manifest, &spools)?;
    }
    threads.sort_by_key(|thread| thread.index);

    let mut processes: Vec<Process> = table_or_none(path);
    let (mut events, damaged) = crate::events::found(path)?;
    if let Some(recovered) = recovered {
        join(&mut processes, &mut threads, recovered.processes, recovered.threads);
        events = recovered.events;
    } else if !events.events().kinds.is_empty() {
        let text = "events after the last file of each kind was written are missing";
        manifest.notes.push(text.to_owned());
    }
    until_last_record(&mut manifest, &mut threads, &spools)?;
    manifest.notes.extend(damaged.iter().map(ToString::to_string));
    if !matches!(manifest.probe_mode, ProbeMode::Events | ProbeMode::None) {
        let mode = manifest.probe_mode.name();
        manifest.notes.push(format!(
            "the mode {mode} keeps its figures in memory and stores them when the recording ends, \
             which this one did not: they are not here (`--mode events` stores calls as they end)"
        ));
    }
    manifest.recovery = Some(Recovery { records, torn_records });
    manifest.totals.threads = threads.len() as u64;
    let finish = Finish {
        manifest,
        modules: table_or_none(path),
        mappings: table_or_none(path),
        functions: table_or_none(path),
        parameters: table_or_none(path),
        skipped: table_or_none(path),
        processes,
        threads,
        totals: Vec::new(),
        counters: table_or_none(path),
        user_values: table_or_none(path),
        open_calls: Vec::new(),
        calls: None,
        events,
    };
    write_trace(path, finish, progress)
}

/// The end was not recorded: the program ran until the last record at least.
fn until_last_record(
    manifest: &mut Manifest,
    threads: &mut [Thread],
    spools: &[SpoolFile],
) -> Result<()> {
    let converter = manifest.clock.converter();
    for spool in spools {
        let end_ns = converter.since_start_ns(last_end(spool, &manifest.clock)?);
        manifest.duration_ns = manifest.duration_ns.max(end_ns);
        let mut threads = threads.iter_mut();
        let thread = threads.find(|thread| thread.index == spool.thread && thread.end_ns == 0);
        if let Some(thread) = thread {
            thread.end_ns = end_ns;
        }
    }
    Ok(())
}

/// Adds processes and threads that are not in the tables. More is known of those that are there
/// than events say, except for their end.
fn join(
    processes: &mut Vec<Process>,
    threads: &mut Vec<Thread>,
    more_processes: Vec<Process>,
    more_threads: Vec<Thread>,
) {
    for new in more_processes {
        // A process whose start was not seen was there before.
        let same = |old: &&mut Process| old.pid == new.pid && new.parent.is_none();
        match processes.iter_mut().find(same) {
            Some(old) if old.end_ns == 0 => {
                let Process { end_ns, exit_code, exit_signal, .. } = new;
                *old = Process { end_ns, exit_code, exit_signal, ..old.clone() };
            }
            Some(_) => {}
            None => processes.push(new),
        }
    }
    for new in more_threads {
        match threads.iter_mut().find(|old| old.tid == new.tid && old.end_ns == 0) {
            Some(old) => old.end_ns = new.end_ns,
            None => {
                let index = threads.last().map_or(0, |thread| thread.index + 1);
                threads.push(Thread { index, ..new });
            }
        }
    }
}

/// Estimates the clock's rate when the recording ended before it was measured: the newest spool was
/// written shortly after its last record.
fn estimate_rate(manifest: &mut Manifest, spools: &[SpoolFile]) -> Result<()> {
    let written = |spool: &&SpoolFile| spool.written_unix_ns;
    let Some(newest) = spools.iter().filter(|spool| spool.records > 0).max_by_key(written) else {
        return Ok(());
    };
    let ns = newest.written_unix_ns.saturating_sub(manifest.start_unix_ns);
    let clock = &mut manifest.clock;
    let ticks = last_tsc(newest, clock.tsc_at_start)?.saturating_sub(clock.tsc_at_start);
    let hz = ticks as f64 / ns as f64 * 1e9;
    if (1e6..1e12).contains(&hz) {
        clock.tsc_hz = hz as u64;
        let text = "the clock's rate is estimated from the time when the last records were stored";
        manifest.notes.push(text.to_owned());
    }
    Ok(())
}

/// A table that may not have been written yet.
fn table_or_none<T: Table>(path: &Path) -> Vec<T> {
    read_table(path).unwrap_or_default()
}

/// Opens a trace; one whose records are still to be converted, or that was cut off, is converted
/// first, and `progress` called meanwhile.
pub fn open_or_recover(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Trace> {
    open_or_recover_with(path, progress, &mut |_, _| Ok(None))
}

/// As [`open_or_recover`], with spools of another kind.
pub fn open_or_recover_with(
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
    other: &mut RecoverOther<'_>,
) -> Result<Trace> {
    match Trace::open(path) {
        Err(Error::CutOff { .. }) => {
            recover_with(path, progress, other)?;
            Trace::open(path)
        }
        Err(Error::Deferred { .. }) => {
            deferred::convert(path, progress)?;
            Trace::open(path)
        }
        result => result,
    }
}
