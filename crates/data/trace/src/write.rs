//! Writing a trace: spools while the program runs, columns when it has ended.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::call_writer::WrittenCalls;
use crate::column::{Table, write_table};
use crate::error::{Error, Result};
use crate::finish::Finish;
use crate::manifest::{FileEntry, MIN_READER_VERSION, Manifest, ProbeMode, VERSION, rfc3339};
use crate::read::read_manifest;
use crate::spool::{self, Content, Outlet, Spools};
use crate::switched_out::SwitchedOut;
use crate::{arguments, convert, switches};

/// A trace being recorded.
#[derive(Debug)]
pub struct TraceWriter {
    folder: PathBuf,
    spools: Spools,
    values: Spools,
    switches: Spools,
    /// By thread index: ticks that it was switched out so far.
    switched_out: Vec<u64>,
    /// Held until the recording ends, so that no reader takes it for cut off.
    _lock: Option<File>,
    outlet: Option<Arc<dyn Outlet>>,
}

/// Whether a trace could be made at `path`.
///
/// # Errors
///
/// [`Error::Exists`] if anything is there already, unless it is an empty folder.
pub fn check_free(path: &Path) -> Result<()> {
    let occupied = match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => path.symlink_metadata().is_ok(),
    };
    match occupied {
        true => Err(Error::Exists { path: path.to_owned() }),
        false => Ok(()),
    }
}

impl TraceWriter {
    /// Creates the folder `path` and writes its first manifest, marked incomplete.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if anything is there already, unless it is an empty folder.
    pub fn create(path: &Path, manifest: &Manifest) -> Result<TraceWriter> {
        check_free(path)?;
        let spool = spool::folder(path);
        fs::create_dir_all(&spool).map_err(|e| Error::io("create", &spool, e))?;
        let lock = spool::lock(path)?;
        let mut manifest = manifest.clone();
        manifest.complete = false;
        write_manifest(path, &mut manifest)?;
        Ok(TraceWriter::of(path, lock))
    }

    /// Resumes a trace whose recording was cut off, and which has not been recovered.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if another recorder is writing into it; [`Error::NotATrace`] and its like.
    pub fn reopen(path: &Path) -> Result<TraceWriter> {
        let manifest = read_manifest(path)?;
        if manifest.complete || manifest.recovery.is_some() {
            let problem = "its recording has ended: nothing more can be added".to_owned();
            return Err(Error::Manifest { path: path.to_owned(), problem });
        }
        Ok(TraceWriter::of(path, spool::lock(path)?))
    }

    fn of(path: &Path, lock: File) -> TraceWriter {
        TraceWriter {
            folder: path.to_owned(),
            spools: Spools::new(path, Content::Calls),
            values: Spools::new(path, Content::Values),
            switches: Spools::new(path, Content::Switches),
            switched_out: Vec::new(),
            _lock: Some(lock),
            outlet: None,
        }
    }

    /// A writer whose trace is made elsewhere, of what the outlet is given. It is not finished
    /// here.
    pub fn to(outlet: &Arc<dyn Outlet>) -> TraceWriter {
        let spools = |content| Spools::elsewhere(outlet.clone(), content);
        TraceWriter {
            folder: PathBuf::new(),
            spools: spools(Content::Calls),
            values: spools(Content::Values),
            switches: spools(Content::Switches),
            switched_out: Vec::new(),
            _lock: None,
            outlet: Some(outlet.clone()),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Records of calls that were appended by this writer.
    pub fn records(&self) -> u64 {
        self.spools.records()
    }

    /// Appends records of one thread: bytes of whole `fettle_abi::record::CallRecord`s, in the
    /// order in which the thread committed them.
    ///
    /// Small appends are kept back, up to 64 KiB per thread; see [`TraceWriter::flush`].
    ///
    /// # Errors
    ///
    /// [`Error::NotRecords`] stores nothing. After any other error (disk full) the records of
    /// this append, and those kept back before it, may be missing or kept back still, but no torn
    /// record is left, and [`TraceWriter::finish`] may be tried.
    pub fn spool_append(&mut self, thread_index: u32, records: &[u8]) -> Result<()> {
        self.spools.append(thread_index, records)
    }

    /// Appends cells of one thread: bytes of whole `fettle_abi::record::ValueCell`s, in order.
    /// Otherwise as [`TraceWriter::spool_append`].
    pub fn spool_values(&mut self, thread_index: u32, cells: &[u8]) -> Result<()> {
        self.values.append(thread_index, cells)
    }

    /// Appends a time that a thread was switched out, from one time-stamp counter to another. Those
    /// of one thread follow one another in time.
    ///
    /// # Errors
    ///
    /// As [`TraceWriter::spool_append`].
    pub fn switched_out(
        &mut self,
        thread_index: u32,
        off: u64,
        on: u64,
        preempted: bool,
    ) -> Result<()> {
        let at = thread_index as usize;
        if at >= self.switched_out.len() {
            self.switched_out.resize(at + 1, 0);
        }
        let before = self.switched_out[at];
        self.switched_out[at] = before + on.saturating_sub(off);
        self.switches.append(thread_index, &SwitchedOut { off, on, before, preempted }.to_bytes())
    }

    /// Hands all records that were kept back to the system, so that they survive even if Fettle
    /// is killed. Cheap when there is nothing to do; meant to be called a few times per second.
    pub fn flush(&mut self) -> Result<()> {
        self.spools.flush()?;
        self.values.flush()?;
        self.switches.flush()
    }

    /// Writes the tables as they are known by now, and the manifest, marked incomplete: with
    /// them a trace whose recording is cut off still has its names. Optional; may be repeated.
    pub fn checkpoint(&mut self, tables: &Finish) -> Result<()> {
        self.flush()?;
        if let Some(outlet) = &self.outlet {
            let path = Path::new("checkpoint");
            return outlet.checkpoint(tables).map_err(|e| Error::io("write", path, e));
        }
        write_tables(&self.folder, tables)?;
        let mut manifest = tables.manifest.clone();
        manifest.complete = false;
        write_manifest(&self.folder, &mut manifest)
    }

    /// Turns the spools into columns on all processors, writes the tables and the final
    /// manifest, and removes the spools. Returns the manifest.
    ///
    /// `progress` is called on this thread with records done and records in all.
    ///
    /// # Errors
    ///
    /// After an error the folder holds a recording that was cut off: [`crate::recover`] makes a trace of
    /// it once the cause is gone.
    pub fn finish(
        mut self,
        finish: Finish,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Manifest> {
        self.flush()?;
        write_trace(&self.folder, finish, progress)
    }
}

/// Makes a readable trace of spools and tables.
pub(crate) fn write_trace(
    folder: &Path,
    mut finish: Finish,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Manifest> {
    let calls = match finish.calls.take() {
        Some(written) => written,
        None => from_spools(folder, &mut finish, progress)?,
    };
    for thread in &mut finish.threads {
        thread.records = calls.records_of.get(&thread.index).copied().unwrap_or(0);
    }
    let mut files = write_tables(folder, &finish)?;
    files.extend(calls.files);
    files.extend(finish.events.files);
    let mut manifest = finish.manifest;
    manifest.events = finish.events.events;
    manifest.complete = manifest.recovery.is_none();
    manifest.totals.records = calls.records_of.values().sum();
    manifest.files = files;
    write_manifest(folder, &mut manifest)?;
    spool::remove_all(folder)?;
    Ok(manifest)
}

/// Calls, and what belongs to them, from spools. Completes the totals, and adds what is lost.
fn from_spools(
    folder: &Path,
    finish: &mut Finish,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<WrittenCalls> {
    let converted = convert::convert(folder, finish, progress)?;
    if finish.manifest.switches && finish.manifest.probe_mode == ProbeMode::Events {
        for total in &mut finish.totals {
            let off = converted.off_cpu.get(&(total.thread, total.function));
            let (total_off, self_off) = off.copied().unwrap_or_default();
            total.cpu_total_ns = Some(total.total_ns.saturating_sub(total_off));
            total.cpu_self_ns = Some(total.self_ns.saturating_sub(self_off));
        }
    }
    if converted.invalid > 0 {
        let reason = "record without a function".to_owned();
        finish.manifest.losses.push(crate::Loss { reason, count: converted.invalid });
    }
    let mut calls = converted.calls;
    calls.files.extend(arguments::convert(folder, finish)?);
    if finish.manifest.switches {
        calls.files.push(switches::convert(folder, finish.manifest.clock.converter())?);
    }
    Ok(calls)
}

/// Writes all tables but the calls.
fn write_tables(folder: &Path, tables: &Finish) -> Result<Vec<FileEntry>> {
    fn write<T: Table>(folder: &Path, rows: &[T]) -> Result<FileEntry> {
        let bytes = write_table(folder, rows)?;
        Ok(FileEntry { path: T::FILE.to_owned(), bytes, rows: rows.len() as u64 })
    }
    Ok(vec![
        write(folder, &tables.modules)?,
        write(folder, &tables.mappings)?,
        write(folder, &tables.functions)?,
        write(folder, &tables.parameters)?,
        write(folder, &tables.skipped)?,
        write(folder, &tables.processes)?,
        write(folder, &tables.threads)?,
        write(folder, &tables.totals)?,
        write(folder, &tables.counters)?,
        write(folder, &tables.user_values)?,
    ])
}

/// Replaces the manifest in one step: readers see the old one or the new one.
fn write_manifest(folder: &Path, manifest: &mut Manifest) -> Result<()> {
    manifest.version = VERSION;
    manifest.min_reader_version = MIN_READER_VERSION;
    if manifest.start_time.is_empty() {
        manifest.start_time = rfc3339(manifest.start_unix_ns);
    }
    let path = folder.join("manifest.json");
    let partial = folder.join("manifest.partial");
    let mut text = serde_json::to_string_pretty(manifest)
        .map_err(|e| Error::Manifest { path: path.clone(), problem: e.to_string() })?;
    text.push('\n');
    let write = || {
        let mut file = File::create(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&partial, &path)
    };
    write().map_err(|e| Error::io("write", &path, e))
}
