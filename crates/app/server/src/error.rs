//! What can go wrong with serving.

/// Result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] fettle_trace::Error),
    /// The trace's events cannot be followed.
    #[error(transparent)]
    Follow(#[from] fettle_follow::Error),
    /// The port cannot be bound.
    #[error("cannot listen on 127.0.0.1 port {port}; another one can be chosen with --port")]
    Listen {
        /// The port.
        port: u16,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No secret could be made.
    #[error("the kernel gives no random bytes: {0}")]
    Random(getrandom::Error),
    /// Serving ended.
    #[error("serving the page failed")]
    Serve(#[source] std::io::Error),
}
