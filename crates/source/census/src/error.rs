//! What can go wrong.

use std::path::PathBuf;

/// Why there is no census.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A kinds file is not right.
    #[error("{file}:{line}: {what}")]
    Kinds {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// What is wrong, and what should be there.
        what: String,
    },
    /// Something could not be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A source is neither a folder nor a revision.
    #[error("{name} is no folder, and no revision of the Git repository {repository}: {what}")]
    NoSource {
        /// What was asked for.
        name: String,
        /// Where it was looked for.
        repository: PathBuf,
        /// What Git says.
        what: String,
    },
    /// Git failed.
    #[error("git {command}: {what}")]
    Git {
        /// Which command.
        command: String,
        /// What it said.
        what: String,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
