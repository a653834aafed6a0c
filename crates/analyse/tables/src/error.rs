//! What can go wrong between requests and tables.

use std::io;
use std::path::{Path, PathBuf};

/// Result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The requests could not be told.
    #[error(transparent)]
    Follow(#[from] fettle_follow::Error),
    /// A batch could not be made, or not be written.
    #[error("cannot make a table: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    /// A file could not be written.
    #[error("cannot write {path}: {problem}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What happened.
        problem: String,
    },
    /// Python could not be run, or the user's module does not work.
    #[error("{0}")]
    Python(String),
    /// Python was gone before everything was said. Why, it has said itself.
    #[error("cannot exchange batches with Python, which ended: {0}")]
    PythonEnded(#[source] io::Error),
}

impl Error {
    pub(crate) fn write(path: &Path, problem: impl ToString) -> Error {
        Error::Write { path: path.to_owned(), problem: problem.to_string() }
    }

    pub(crate) fn python(doing: &str, problem: &io::Error) -> Error {
        Error::Python(format!("cannot {doing}: {problem}"))
    }
}
