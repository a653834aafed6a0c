//! Calls that were finished elsewhere, on their way into a new trace.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::calls::{self, Call, Columns, ROWS_PER_FILE};
use crate::column::TableWriter;
use crate::error::{Error, Result};
use crate::manifest::FileEntry;
use crate::tables::{Argument, Switch};

/// Writes calls, and what belongs to them, into the folder of a [`crate::TraceWriter`]: of traces
/// that become one, say. What it has written is given to [`crate::Finish::calls`].
pub struct CallWriter {
    folder: PathBuf,
    columns: Columns,
    written: WrittenCalls,
    arguments: Option<TableWriter<Argument>>,
    switches: Option<TableWriter<Switch>>,
}

/// What a [`CallWriter`] wrote, for the manifest.
#[derive(Clone, Debug, Default)]
pub struct WrittenCalls {
    pub(crate) files: Vec<FileEntry>,
    /// Records stored, by thread index.
    pub(crate) records_of: BTreeMap<u32, u64>,
}

impl CallWriter {
    /// A writer for the trace in `trace`.
    pub fn create(trace: &Path) -> Result<CallWriter> {
        let folder = calls::folder(trace);
        fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, e))?;
        Ok(CallWriter {
            folder: trace.to_owned(),
            columns: Columns::new(),
            written: WrittenCalls::default(),
            arguments: None,
            switches: None,
        })
    }

    /// Stores calls behind those that are there. Over all that is stored, those of a thread stand
    /// together, in order of their ends.
    pub fn calls(&mut self, calls: &[Call]) -> Result<()> {
        for calls in calls.chunks(ROWS_PER_FILE) {
            self.columns.clear();
            calls.iter().rev().for_each(|call| self.columns.push_front(call));
            let number = self.written.files.len();
            let (entry, records_of) = calls::encode(&self.folder, number, &self.columns)?;
            self.written.add(entry, records_of);
        }
        Ok(())
    }

    /// Stores values of calls, in the order of [`crate::Trace::for_each_argument`].
    pub fn arguments(&mut self, arguments: impl IntoIterator<Item = Argument>) -> Result<()> {
        append(&mut self.arguments, &self.folder, arguments)
    }

    /// Stores times that threads were switched out, in the order of
    /// [`crate::Trace::for_each_switch`].
    pub fn switches(&mut self, switches: impl IntoIterator<Item = Switch>) -> Result<()> {
        append(&mut self.switches, &self.folder, switches)
    }

    /// Ends the files.
    pub fn finish(mut self) -> Result<WrittenCalls> {
        let arguments = self.arguments.map(TableWriter::finish).transpose()?;
        let switches = self.switches.map(TableWriter::finish).transpose()?;
        self.written.files.extend(arguments.into_iter().chain(switches));
        Ok(self.written)
    }
}

impl WrittenCalls {
    pub(crate) fn add(&mut self, file: FileEntry, records_of: Vec<(u32, u64)>) {
        for (thread, records) in records_of {
            *self.records_of.entry(thread).or_default() += records;
        }
        self.files.push(file);
    }
}

/// Appends rows to a table that begins with its first.
fn append<T: crate::column::Table>(
    writer: &mut Option<TableWriter<T>>,
    folder: &Path,
    rows: impl IntoIterator<Item = T>,
) -> Result<()> {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    let writer = match writer {
        Some(writer) => writer,
        None => writer.insert(TableWriter::create(folder)?),
    };
    rows.try_for_each(|row| writer.push(row))
}
