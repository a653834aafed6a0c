//! What can go wrong when reading sensors.

use std::io;
use std::path::PathBuf;

use fettle_abi::sensor::Kind;

/// Why a sensor or a directory of sensors cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// The file or folder belongs to another user, or others may use it.
    #[error("{path}: not trusted: {reason}")]
    NotTrusted {
        /// File or folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The file does not hold a sensor.
    #[error("{path}: not a sensor: {reason}")]
    NotASensor {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The sensor needs a newer reader.
    #[error("{path}: sensor format {version} needs a newer fettle")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its producer's version.
        version: u32,
    },
    /// The sensor measures something else.
    #[error("{name} is a {found:?}, not a {wanted:?}")]
    WrongKind {
        /// The sensor.
        name: String,
        /// What it measures.
        found: Kind,
        /// What was asked for.
        wanted: Kind,
    },
    /// Another consumer drains this list; two would take each other's events.
    #[error("{name}: another consumer is draining this sensor")]
    Busy {
        /// The sensor.
        name: String,
    },
    /// Another process has set this knob, and holds it.
    #[error(
        "{name}: another process holds this knob (a `fettle watch`, or `fettle sensors set --for`)"
    )]
    Held {
        /// The knob.
        name: String,
    },
    /// The knob's program has declared other bounds.
    #[error("{name}: {value} is out of its bounds, {least} to {greatest}")]
    OutOfBounds {
        /// The knob.
        name: String,
        /// What it was to be set to.
        value: i64,
        /// The least value.
        least: i64,
        /// The greatest value.
        greatest: i64,
    },
    /// Nothing would put a knob right when this process dies.
    #[error("no process can be started that gives knobs back when this one dies: {source}")]
    NoGuard {
        /// Why.
        source: io::Error,
    },
    /// The file became shorter while it was read.
    #[error("{name}: the sensor's memory was taken away")]
    Truncated {
        /// The sensor.
        name: String,
    },
}

impl Error {
    /// Wraps the operating system's reason.
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { path, source }
    }
}
