//! Events of a collector, for the program that runs it.

use std::fmt;
use std::path::PathBuf;

use crate::frame::Counts;

/// An event that the program running the collector gets.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Happening {
    /// A recording begins to arrive.
    Began {
        /// Its sender.
        peer: String,
        /// Its trace.
        folder: PathBuf,
    },
    /// A recording resumes after its connection broke.
    Resumed {
        /// Its sender.
        peer: String,
        /// Its trace.
        folder: PathBuf,
        /// From which offset on.
        offset: u64,
    },
    /// A part of a recording never arrives: its recorder had no room to keep it.
    Gap {
        /// Its trace.
        folder: PathBuf,
        /// The records in it.
        counts: Counts,
    },
    /// A recording has arrived, and is a trace.
    Arrived {
        /// The trace.
        folder: PathBuf,
        /// Records that never arrived.
        dropped: Counts,
    },
    /// A recording that did not end properly: this is all of it.
    Closed {
        /// The trace.
        folder: PathBuf,
        /// Records that never arrived.
        dropped: Counts,
    },
    /// Nothing was recorded.
    Nothing {
        /// The trace, which was removed.
        folder: PathBuf,
    },
    /// A connection ended before everything was received.
    Cut {
        /// The peer.
        peer: String,
        /// Why.
        why: String,
    },
    /// The content of a folder cannot be resumed or become a trace.
    Unusable {
        /// The folder.
        folder: PathBuf,
        /// Why.
        why: String,
    },
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = |counts: &Counts| match counts.sum() {
            0 => String::new(),
            _ => format!("; {counts} never arrived: the recorder's spool was full"),
        };
        match self {
            Happening::Began { peer, folder } => {
                write!(f, "{peer} records to {}", folder.display())
            }
            Happening::Resumed { peer, folder, offset } => {
                write!(f, "{peer} goes on with {} at byte {offset}", folder.display())
            }
            Happening::Gap { folder, counts } => {
                write!(
                    f,
                    "{}: {counts} were dropped by the recorder, whose spool was full",
                    folder.display()
                )
            }
            Happening::Arrived { folder, dropped } => {
                write!(f, "{} has arrived{}", folder.display(), lost(dropped))
            }
            Happening::Closed { folder, dropped } => write!(
                f,
                "{} has arrived as far as there is any: its recording did not end properly{}",
                folder.display(),
                lost(dropped)
            ),
            Happening::Nothing { folder } => {
                write!(f, "{} was removed: nothing was recorded", folder.display())
            }
            Happening::Cut { peer, why } => write!(f, "{peer}: {why}"),
            Happening::Unusable { folder, why } => write!(f, "{}: {why}", folder.display()),
        }
    }
}
