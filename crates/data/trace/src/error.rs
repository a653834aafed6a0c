//! What can go wrong with a trace folder, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a trace could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's reason. (Not a `source`: it is in the message already.)
        reason: io::Error,
    },
    /// No space left. What had been written is whole.
    #[error(
        "{full}: could not write {}; the records stored before are kept: make room, then run \
         `fettle report` on the folder", path.display()
    )]
    DiskFull {
        /// What there is no room in.
        full: &'static str,
        /// The file that could not grow.
        path: PathBuf,
    },
    /// A new trace must not overwrite anything.
    #[error("{} already exists; choose another name, or remove it first", path.display())]
    Exists {
        /// What is in the way.
        path: PathBuf,
    },
    /// The folder has no manifest.
    #[error("{} is not a trace: it has no readable manifest.json ({reason})", path.display())]
    NotATrace {
        /// The folder.
        path: PathBuf,
        /// Why the manifest cannot be read.
        reason: io::Error,
    },
    /// The manifest is there but makes no sense.
    #[error("{} is damaged: {problem}", path.display())]
    Manifest {
        /// The manifest's path.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A newer Fettle wrote this trace.
    #[error(
        "{} was written in format {found}, this fettle reads up to {}; use a newer fettle",
        path.display(), crate::VERSION
    )]
    Version {
        /// The folder.
        path: PathBuf,
        /// The format that a reader has to know.
        found: u32,
    },
    /// The recording never ended properly; see [`crate::recover`].
    #[error("{} was cut off: its recording did not end properly", path.display())]
    CutOff {
        /// The folder.
        path: PathBuf,
    },
    /// The recording ended properly; [`crate::open_or_recover`] converts its records.
    #[error(
        "the records of {0} are still to be converted, which takes the right to write there: `fettle \
         trace convert {0}` as its owner",
        path.display()
    )]
    Deferred {
        /// The folder.
        path: PathBuf,
    },
    /// A recorder is still writing into the folder.
    #[error("{} is still being recorded; wait until the program has ended", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A file of the trace is damaged, or not what its name says.
    #[error("{} cannot be read: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A kind of event that cannot be, or not together with what is there.
    #[error("event {kind:?}: {problem}")]
    Event {
        /// The kind's name.
        kind: String,
        /// What is wrong.
        problem: String,
    },
    /// Records come in multiples of sixteen bytes.
    #[error("{bytes} bytes for thread {thread} are not whole call records; nothing was stored")]
    NotRecords {
        /// Thread index.
        thread: u32,
        /// Bytes that were given.
        bytes: usize,
    },
}

impl Error {
    /// An [`io::Error`] with its place; no space left becomes [`Error::DiskFull`].
    pub(crate) fn io(action: &'static str, path: &Path, reason: io::Error) -> Error {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let full = match reason.kind() {
            StorageFull => "the disk is full",
            QuotaExceeded => "this user's part of the disk is full",
            FileTooLarge => "the limit on files' sizes is reached (`ulimit -f`)",
            _ => return Error::Io { action, path: path.to_owned(), reason },
        };
        Error::DiskFull { full, path: path.to_owned() }
    }

    /// A file that is not what it should be.
    pub(crate) fn file(path: &Path, problem: impl ToString) -> Error {
        Error::File { path: path.to_owned(), problem: problem.to_string() }
    }

    /// An error of the Parquet library while writing; a full disk is recognised.
    pub(crate) fn encode(path: &Path, error: parquet::errors::ParquetError) -> Error {
        match error {
            parquet::errors::ParquetError::External(source) => match source.downcast() {
                Ok(io) => Error::io("write", path, *io),
                Err(other) => Error::file(path, other),
            },
            other => Error::file(path, other),
        }
    }
}
