//! What can go wrong between two machines.

use std::io;
use std::path::{Path, PathBuf};

use crate::kind::Kind;

/// Result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something on a file.
    #[error("cannot {action} {}: {reason}", path.display())]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// A file that should hold a key, or describe a recording, does not.
    #[error("{}: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// No collector listens at the address.
    #[error("no collector at {address}: {reason}")]
    Unreachable {
        /// The address.
        address: String,
        /// The system's reason.
        reason: io::Error,
    },
    /// The connection broke, or the other side has not the expected key.
    #[error("the connection was cut: {0}")]
    Cut(#[source] io::Error),
    /// What the other side sent is not this protocol.
    #[error("the other side does not speak this protocol: {0}")]
    Frame(#[from] FrameError),
    /// The other side refuses this.
    #[error("the collector refused: {reason}")]
    Refused {
        /// Its reason.
        reason: String,
        /// Whether it may do so later.
        again: bool,
    },
    /// A peer violated the protocol's rules.
    #[error("{0}")]
    Peer(String),
    /// The recording cannot be put into its trace here.
    #[error("{0}")]
    Trace(String),
    /// The system gave no random numbers or no keys could be made.
    #[error("cannot make keys: {0}")]
    Crypto(String),
}

impl Error {
    /// An error of the system with its place.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |reason| Error::File { action, path: path.to_owned(), reason }
    }

    /// The result of a handshake. A refusal of our own is no broken connection.
    pub(crate) fn of_handshake(reason: io::Error) -> Error {
        match reason.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(rustls::Error::General(why)) => Error::Peer(why.clone()),
            _ => Error::Cut(reason),
        }
    }

    /// Whether trying again later may help.
    pub fn is_passing(&self) -> bool {
        match self {
            Error::Unreachable { .. } | Error::File { .. } | Error::Trace(_) => true,
            // A key that is not the pinned one remains wrong.
            Error::Cut(reason) => reason.kind() != io::ErrorKind::InvalidData,
            Error::Refused { again, .. } => *again,
            _ => false,
        }
    }

    /// Whether no space is left.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Error::File { reason, .. } => {
                matches!(reason.kind(), StorageFull | QuotaExceeded | FileTooLarge)
            }
            _ => false,
        }
    }
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// No frame begins with this byte.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// A payload that is larger than any of its kind.
    #[error("{kind:?} with {len} bytes")]
    Long {
        /// Of what.
        kind: Kind,
        /// Bytes that it claims.
        len: u32,
    },
    /// A field that cannot have this value.
    #[error("{kind:?} whose {field} is {value}")]
    Field {
        /// Of what.
        kind: Kind,
        /// Its name.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A frame that is not allowed here.
    #[error("{found:?} where {expected} was expected")]
    Unexpected {
        /// What came.
        found: Kind,
        /// What should have.
        expected: &'static str,
    },
    /// A payload that is no message of its kind.
    #[error("{0:?} that cannot be read")]
    Payload(Kind),
}
