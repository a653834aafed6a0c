//! Reading a trace.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use parquet::file::reader::FileReader;
use parquet::file::statistics::Statistics;

use crate::calls::{self, Call};
use crate::column::{Table, open_file, open_regular, read_groups, read_table};
use crate::error::{Error, Result};
use crate::manifest::{Manifest, VERSION};
use crate::tables::{
    Argument, Counter, Function, Mapping, Module, Parameter, Process, Skipped, Switch, Thread,
    Total, UserValue,
};

/// A manifest larger than this is not read.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// A recorded trace.
#[derive(Clone, Debug)]
pub struct Trace {
    folder: PathBuf,
    manifest: Manifest,
    warnings: Vec<String>,
}

/// A run of calls that are read at once: one row group of one file. About a million rows, 4
/// million at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    path: PathBuf,
    group: usize,
    /// Rows that its file claims.
    pub rows: u64,
    /// Lowest and highest thread index in it, where the file says so.
    pub threads: Option<(u32, u32)>,
}

impl Part {
    /// Its file, and which of its row groups.
    pub(crate) fn place(&self) -> (&Path, usize) {
        (&self.path, self.group)
    }
}

/// A whole table; nothing if there is no such file.
pub(crate) fn read_optional<T: Table + Clone>(folder: &Path) -> Result<Vec<T>> {
    let mut all = Vec::new();
    read_groups(folder, |rows| all.extend_from_slice(rows))?;
    Ok(all)
}

impl Trace {
    /// Opens the folder `path`.
    ///
    /// # Errors
    ///
    /// [`Error::CutOff`] if the recording did not end properly: see [`crate::recover`].
    /// [`Error::Deferred`] if it did, and left its records to be converted.
    /// [`Error::Busy`] if it goes on.
    pub fn open(path: &Path) -> Result<Trace> {
        let manifest = read_manifest(path)?;
        if !manifest.complete && manifest.recovery.is_none() {
            if crate::spool::ending_path(path).exists() {
                return Err(Error::Deferred { path: path.to_owned() });
            }
            if crate::spool::folder(path).exists() {
                // Fails with `Busy` while the recorder holds it.
                crate::spool::try_lock_existing(path)?;
            }
            return Err(Error::CutOff { path: path.to_owned() });
        }
        let mut trace = Trace { folder: path.to_owned(), manifest, warnings: Vec::new() };
        trace.check_sizes();
        Ok(trace)
    }

    /// A trace whose recording goes on: its manifest and tables as they are by now.
    ///
    /// # Errors
    ///
    /// [`Error::NotATrace`] and its like.
    pub fn open_growing(path: &Path) -> Result<Trace> {
        let manifest = read_manifest(path)?;
        Ok(Trace { folder: path.to_owned(), manifest, warnings: Vec::new() })
    }

    /// Compares the files' sizes with the manifest's.
    fn check_sizes(&mut self) {
        for entry in &self.manifest.files {
            // Paths in a manifest are claims as well: none leads out of the folder.
            let plain = Path::new(&entry.path)
                .components()
                .all(|part| matches!(part, std::path::Component::Normal(_)));
            if !plain {
                self.warnings.push(format!("the manifest names a file {:?}: ignored", entry.path));
                continue;
            }
            match fs::metadata(self.folder.join(&entry.path)) {
                Ok(found) if found.len() == entry.bytes => {}
                Ok(found) => self.warnings.push(format!(
                    "{} has {} bytes, was written with {}",
                    entry.path,
                    found.len(),
                    entry.bytes
                )),
                Err(e) => self.warnings.push(format!("{} cannot be read: {e}", entry.path)),
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// What `fettle locks` has written to it, if it made the trace.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if it is no report of locks.
    pub fn locks(&self) -> Result<Option<serde_json::Value>> {
        crate::locks::read(&self.folder)
    }

    /// Whether there is such a report.
    pub fn has_locks(&self) -> bool {
        crate::locks::path(&self.folder).is_file()
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What does not agree with the manifest, one sentence each: missing files, changed sizes.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn table<T: Table>(&self) -> Result<Vec<T>> {
        read_table(&self.folder)
    }

    /// Executables and libraries.
    pub fn modules(&self) -> Result<Vec<Module>> {
        self.table()
    }

    /// Where they lay.
    pub fn mappings(&self) -> Result<Vec<Mapping>> {
        self.table()
    }

    /// Probed functions.
    pub fn functions(&self) -> Result<Vec<Function>> {
        self.table()
    }

    /// What is recorded of calls' arguments; nothing in traces that have none.
    pub fn parameters(&self) -> Result<Vec<Parameter>> {
        read_optional(&self.folder)
    }

    /// Calls `with` on values that calls were given and gave back, many at a time, in order of
    /// thread and then of time; the values of a call stand together, a result on its own.
    pub fn for_each_argument(&self, with: impl FnMut(&[Argument])) -> Result<()> {
        read_groups(&self.folder, with)
    }

    /// Functions left unmodified.
    pub fn skipped(&self) -> Result<Vec<Skipped>> {
        self.table()
    }

    /// Processes.
    pub fn processes(&self) -> Result<Vec<Process>> {
        self.table()
    }

    /// Threads.
    pub fn threads(&self) -> Result<Vec<Thread>> {
        self.table()
    }

    /// Calls and time per thread and function.
    pub fn totals(&self) -> Result<Vec<Total>> {
        self.table()
    }

    /// Block and edge counts.
    pub fn counters(&self) -> Result<Vec<Counter>> {
        self.table()
    }

    /// What the user probe counted; nothing in traces that have none.
    pub fn user_values(&self) -> Result<Vec<UserValue>> {
        read_optional(&self.folder)
    }

    /// Calls `with` on the times that threads were switched out, thread after thread and in order
    /// of time, a part of at most a million at a time. Not called if they were not recorded
    /// ([`Manifest::switches`]).
    pub fn for_each_switch(&self, with: impl FnMut(&[Switch])) -> Result<()> {
        if self.manifest.switches { read_groups(&self.folder, with) } else { Ok(()) }
    }

    /// The parts that the calls are stored in, in order: thread after thread, by end within a
    /// thread. Reads only the files' footers.
    ///
    /// Files that cannot be read are left out and named in the second list.
    pub fn parts(&self) -> Result<(Vec<Part>, Vec<Error>)> {
        let folder = calls::folder(&self.folder);
        let mut paths = Vec::new();
        match fs::read_dir(&folder) {
            Ok(entries) => {
                for entry in entries {
                    let path = entry.map_err(|e| Error::io("list", &folder, e))?.path();
                    if path.extension().is_some_and(|extension| extension == "parquet") {
                        paths.push(path);
                    }
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io("list", &folder, e)),
        }
        // By number, not by text: a long trace has more than 99,999 files.
        paths.sort_by_key(|path| {
            let name = path.file_stem().map(|s| s.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            (name.parse::<u64>().unwrap_or(u64::MAX), name)
        });
        let (mut parts, mut damaged) = (Vec::new(), Vec::new());
        for path in paths {
            match parts_of(&path) {
                Ok(found) => parts.extend(found),
                Err(error) => damaged.push(error),
            }
        }
        Ok((parts, damaged))
    }

    /// Reads the calls of one part into `out`, which is emptied first. About 40 bytes of memory
    /// per row.
    pub fn read_part(&self, part: &Part, out: &mut Vec<Call>) -> Result<()> {
        let reader = open_file(&part.path)?;
        if part.group >= reader.num_row_groups() {
            return Err(Error::file(&part.path, "it changed while it was read"));
        }
        calls::read(&part.path, &reader, part.group, out)
    }

    /// Calls `with` on each call of one thread, in order of their ends, one part in memory at a
    /// time. Stops at the first part that cannot be read.
    pub fn for_each_call(&self, thread: u32, mut with: impl FnMut(&Call)) -> Result<()> {
        let (parts, damaged) = self.parts()?;
        if let Some(error) = damaged.into_iter().next() {
            return Err(error);
        }
        let mut calls = Vec::new();
        for part in parts {
            if part.threads.is_some_and(|(low, high)| thread < low || thread > high) {
                continue;
            }
            self.read_part(&part, &mut calls)?;
            calls.iter().filter(|call| call.thread == thread).for_each(&mut with);
        }
        Ok(())
    }
}

/// The row groups of one file of calls.
fn parts_of(path: &Path) -> Result<Vec<Part>> {
    let reader = open_file(path)?;
    let groups = reader.metadata().row_groups();
    Ok(groups
        .iter()
        .enumerate()
        .map(|(group, metadata)| {
            let thread = metadata.columns().iter().find(|c| c.column_path().string() == "thread");
            let threads = match thread.and_then(|column| column.statistics()) {
                Some(Statistics::Int32(values)) => {
                    values.min_opt().zip(values.max_opt()).map(|(a, b)| (*a as u32, *b as u32))
                }
                _ => None,
            };
            let rows = metadata.num_rows().max(0) as u64;
            Part { path: path.to_owned(), group, rows, threads }
        })
        .collect())
}

/// Reads and checks the manifest.
pub(crate) fn read_manifest(folder: &Path) -> Result<Manifest> {
    let path = folder.join("manifest.json");
    let not_a_trace = |reason| Error::NotATrace { path: folder.to_owned(), reason };
    let mut file = open_regular(&path).map_err(not_a_trace)?;
    let bytes = file.metadata().map_err(not_a_trace)?.len();
    let damaged = |problem: String| Error::Manifest { path: path.clone(), problem };
    if bytes > MANIFEST_BYTES_MAX {
        return Err(damaged(format!("{bytes} bytes are too many")));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(not_a_trace)?;
    // The version first: a newer manifest may not even have the same fields.
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
    let number = |name: &str| value.get(name).and_then(serde_json::Value::as_u64);
    let Some(needed) = number("min_reader_version") else {
        return Err(damaged("no min_reader_version: not a manifest of Fettle's".into()));
    };
    if needed > u64::from(VERSION) {
        let found = u32::try_from(needed).unwrap_or(u32::MAX);
        return Err(Error::Version { path: folder.to_owned(), found });
    }
    serde_json::from_value(value).map_err(|e| damaged(e.to_string()))
}
