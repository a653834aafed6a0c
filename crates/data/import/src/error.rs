//! What can be wrong with what is imported, and where.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line, counted from 1.
    Line(u64),
    /// A byte, counted from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// Why nothing could be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's reason. (Not a `source`: it is in the message already.)
        reason: io::Error,
    },
    /// A file is not what it says it is.
    #[error("{}, {place}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where in it.
        place: Place,
        /// What is wrong there.
        problem: String,
    },
    /// Its format is unknown.
    #[error("{} is in no format that can be imported; {hint}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What to do about it.
        hint: &'static str,
    },
    /// What has to be spans is something else.
    #[error(
        "{} has no spans of OpenTelemetry's, Jaeger's or Zipkin's and no calls of traced stubs, which is what traces \
         without ids are made of",
        path.display()
    )]
    NoSpans {
        /// The file.
        path: PathBuf,
    },
    /// There is no event in it.
    #[error("{} has no events{left_out}", path.display())]
    Empty {
        /// The first file.
        path: PathBuf,
        /// What could not be taken, as the rest of the sentence.
        left_out: String,
    },
    /// The user pressed Ctrl-C.
    #[error("interrupted; nothing was written")]
    Interrupted,
    /// The trace could not be written, or one that is merged not be read.
    #[error(transparent)]
    Trace(#[from] fettle_trace::Error),
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path, reason: io::Error) -> Error {
        Error::Io { action, path: path.to_owned(), reason }
    }

    /// Something wrong at a byte.
    pub fn at_byte(path: &Path, byte: u64, problem: impl Into<String>) -> Error {
        let place = Place::Byte(byte);
        Error::Malformed { path: path.to_owned(), place, problem: problem.into() }
    }

    pub(crate) fn at_line(path: &Path, line: u64, problem: impl Into<String>) -> Error {
        let place = Place::Line(line);
        Error::Malformed { path: path.to_owned(), place, problem: problem.into() }
    }
}
