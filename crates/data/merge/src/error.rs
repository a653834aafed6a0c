//! Why traces cannot become one.

use std::path::PathBuf;

/// Result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why traces cannot become one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// One trace, or none.
    #[error("there is nothing to merge: it takes two traces at least")]
    Few,
    /// More machines than numbers are for.
    #[error("{0} machines are too many: {max} can be merged", max = crate::MACHINES_MAX)]
    Many(usize),
    /// The same recording.
    #[error("{} and {} are the same recording: nothing is merged with itself", a.display(), b.display())]
    Twice {
        /// The one.
        a: PathBuf,
        /// The other.
        b: PathBuf,
    },
    /// Made by merging.
    #[error("{} was merged already: merge all of the traces that it was made of", path.display())]
    Merged {
        /// It.
        path: PathBuf,
    },
    /// A file is missing or is not what was written: what is in it would be missing in silence.
    #[error("{}: {problem}; nothing was merged", path.display())]
    Damaged {
        /// The trace.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Two recordings of one machine have a process in common.
    #[error(
        "{} and {} both recorded process {pid} at the same time: its events would be there twice; \
         `fettle record -p PID -p PID` records several processes into one trace", a.display(), b.display()
    )]
    SameProcess {
        /// The one.
        a: PathBuf,
        /// The other.
        b: PathBuf,
        /// The process.
        pid: u32,
    },
    /// No messages.
    #[error(
        "no messages are known between {} and the other traces, so their clocks cannot be compared: \
         {why}; `--offset SECONDS` says what to add to its clock (0: the clocks of the walls agree)",
        path.display()
    )]
    NoMessages {
        /// The trace.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// Messages that no clock allows.
    #[error(
        "the messages between {} and {} contradict each other by {by_ns} ns: no constant rate of \
         the clocks fits. A clock may have been steered while they were recorded, or bytes be \
         missing; shorter traces or `--offset SECONDS` may help", a.display(), b.display()
    )]
    Contradiction {
        /// The one.
        a: PathBuf,
        /// The other.
        b: PathBuf,
        /// By how much at least.
        by_ns: u64,
    },
    /// A number that no machine gives out.
    #[error("{}: an event {kind} names the process or thread {number}, which no machine has", path.display())]
    Number {
        /// The trace.
        path: PathBuf,
        /// The event's kind.
        kind: String,
        /// The number.
        number: u64,
    },
    /// The user stopped it.
    #[error("interrupted: there is no new trace")]
    Stopped,
    /// Of a trace.
    #[error(transparent)]
    Trace(#[from] fettle_trace::Error),
}
