//! Recordings that ended properly and whose records are still to be converted.
//!
//! To convert a record into columns takes several times as long as to store it. So a long recording
//! is left as it was stored, with its tables and what the manifest is to say, and its first reader
//! converts it, on all processors.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::column::read_table;
use crate::error::{Error, Result};
use crate::finish::{Finish, OpenCall};
use crate::manifest::Manifest;
use crate::read::{Trace, read_optional};
use crate::spool::ending_path;
use crate::write::TraceWriter;

/// How often it is looked whether another process has converted a recording.
const PERIOD: Duration = Duration::from_millis(50);

/// What the tables do not hold.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Ending {
    manifest: Manifest,
    open_calls: Vec<OpenCall>,
}

impl TraceWriter {
    /// As [`TraceWriter::finish`], unless this writer stored more than `most` records and there are
    /// no events: then the records are left to the trace's first reader. The second result says
    /// whether they are; [`crate::RunTotals::records`] counts those that were stored.
    ///
    /// # Errors
    ///
    /// As [`TraceWriter::finish`].
    pub fn finish_or_defer(
        mut self,
        finish: Finish,
        most: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Manifest, bool)> {
        let only_calls = finish.calls.is_none() && finish.events.files.is_empty();
        if self.records() <= most || !only_calls {
            return Ok((self.finish(finish, progress)?, false));
        }
        self.checkpoint(&finish)?;
        let Finish { mut manifest, open_calls, .. } = finish;
        manifest.totals.records = self.records();
        let ending = Ending { manifest, open_calls };
        ending.write(self.path())?;
        Ok((ending.manifest, true))
    }
}

impl Ending {
    /// The file appears under its name only when it is whole.
    fn write(&self, trace: &Path) -> Result<()> {
        let path = ending_path(trace);
        let partial = path.with_extension("partial");
        let write = || {
            fs::write(&partial, serde_json::to_vec(self)?)?;
            fs::rename(&partial, &path)
        };
        write().map_err(|e| {
            let _ = fs::remove_file(&partial);
            Error::io("write", &path, e)
        })
    }
}

/// Whether it is another user's folder, or one that nothing can be written to.
fn is_not_ours(reason: &io::Error) -> bool {
    matches!(reason.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// Converts the records of a deferred recording; waits for another process that does so.
///
/// # Errors
///
/// The records are left unmodified then.
pub(crate) fn convert(trace: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let writer = loop {
        match TraceWriter::reopen(trace) {
            Ok(writer) => break writer,
            Err(Error::Busy { .. }) => std::thread::sleep(PERIOD),
            Err(Error::Io { reason, .. }) if is_not_ours(&reason) => {
                return Err(Error::Deferred { path: trace.to_owned() });
            }
            // The other one has done it.
            Err(_) if Trace::open(trace).is_ok() => return Ok(()),
            Err(error) => return Err(error),
        }
    };
    let path = ending_path(trace);
    let bytes = fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
    let Ending { manifest, open_calls } = serde_json::from_slice(&bytes).map_err(|e| {
        let problem = format!("{e}; remove it, and the records are recovered without it");
        Error::Manifest { path, problem }
    })?;
    let finish = Finish {
        manifest,
        modules: read_table(trace)?,
        mappings: read_table(trace)?,
        functions: read_table(trace)?,
        parameters: read_optional(trace)?,
        skipped: read_table(trace)?,
        processes: read_table(trace)?,
        threads: read_table(trace)?,
        totals: read_table(trace)?,
        counters: read_table(trace)?,
        user_values: read_optional(trace)?,
        open_calls,
        ..Finish::default()
    };
    writer.finish(finish, progress).map(drop)
}
