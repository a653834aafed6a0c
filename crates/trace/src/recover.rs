//! Making a trace of a recording that did not end properly.

use std::path::Path;

use crate::column::{Table, read_table};
use crate::error::{Error, Result};
use crate::manifest::{Manifest, Recovery};
use crate::read::{Trace, read_manifest};
use crate::spool;
use crate::tables::Thread;
use crate::write::{Finish, write_trace};

/// Converts what the spools of a cut-off recording hold, with whatever tables it had written.
/// The manifest tells what happened in [`Manifest::recovery`]. Exact totals are not among it:
/// they died with the program's memory.
///
/// # Errors
///
/// [`Error::Busy`] if the recording goes on.
pub fn recover(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Manifest> {
    let manifest = read_manifest(path)?;
    if manifest.complete || manifest.recovery.is_some() {
        return Ok(manifest);
    }
    let spool_folder = spool::folder(path);
    std::fs::create_dir_all(&spool_folder).map_err(|e| Error::io("create", &spool_folder, e))?;
    let _lock = spool::lock(path)?;

    let spools = spool::open_all(path)?;
    let torn_records = spools.iter().filter(|spool| spool.torn).count() as u64;
    let records = spools.iter().map(|spool| spool.records).sum();
    let mut threads: Vec<Thread> = table_or_none(path);
    for spool in &spools {
        if !threads.iter().any(|thread| thread.index == spool.thread) {
            threads.push(Thread { index: spool.thread, ..Thread::default() });
        }
    }
    drop(spools);
    threads.sort_by_key(|thread| thread.index);

    let mut manifest = manifest;
    manifest.recovery = Some(Recovery { records, torn_records });
    manifest.totals.threads = threads.len() as u64;
    let finish = Finish {
        manifest,
        modules: table_or_none(path),
        mappings: table_or_none(path),
        functions: table_or_none(path),
        skipped: table_or_none(path),
        processes: table_or_none(path),
        threads,
        totals: Vec::new(),
        counters: table_or_none(path),
        open_calls: Vec::new(),
    };
    write_trace(path, finish, progress)
}

/// A table that may not have been written yet.
fn table_or_none<T: Table>(path: &Path) -> Vec<T> {
    read_table(path).unwrap_or_default()
}

/// Opens a trace; one that was cut off is recovered first, and `progress` called meanwhile.
pub fn open_or_recover(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Trace> {
    match Trace::open(path) {
        Err(Error::CutOff { .. }) => {
            recover(path, progress)?;
            Trace::open(path)
        }
        result => result,
    }
}
