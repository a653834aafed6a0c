//! What can go wrong between a trace and its requests.

/// Result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why requests could not be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] fettle_trace::Error),
    /// A schema is wrong; the report points at the place.
    #[error("{0}")]
    Schema(fettle_requests::Report),
    /// What was to be written could not be.
    #[error("cannot write: {0}")]
    Output(std::io::Error),
    /// The trace has nothing that a shipped schema follows.
    #[error(
        "this trace has no events that a shipped schema follows requests through; `fettle schema \
         events --trace TRACE` lists those that it has, for a schema of your own (--schema), and \
         `fettle record --kernel` records those of the kernel"
    )]
    NothingToFollow,
}

impl From<fettle_requests::Report> for Error {
    fn from(report: fettle_requests::Report) -> Error {
        Error::Schema(report)
    }
}
