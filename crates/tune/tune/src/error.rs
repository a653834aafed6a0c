//! What can go wrong while a process is tuned.

use fettle_live::LiveError;
use fettle_types::Pid;

/// Why a process was not tuned. It is unmodified, unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The process cannot be stopped, inspected or changed.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The user interrupted it.
    #[error("interrupted: process {pid} is as it was")]
    Interrupted {
        /// The process.
        pid: Pid,
    },
    /// A profile cannot be written, read, or used here.
    #[error("the profile cannot be used: {why}")]
    Profile {
        /// Why.
        why: String,
    },
    /// The process ended while it counted.
    #[error("process {pid} has ended, and with it what it had counted: record for a shorter time")]
    Ended {
        /// The process.
        pid: Pid,
    },
    /// It cannot be recorded.
    #[error(transparent)]
    Record(#[from] fettle_record::RecordError),
    /// A trace cannot be written.
    #[error(transparent)]
    Trace(#[from] fettle_trace::Error),
    /// Its loader is at work, or was when the process was stopped.
    #[error(
        "process {pid} is left unmodified: its loader's list of libraries cannot be read (it may be \
         changing)"
    )]
    Loading {
        /// The process.
        pid: Pid,
    },
    /// The loader's list has no C library of ours: perhaps not yet.
    #[error("process {pid} is left unmodified: it has no C library that Fettle knows")]
    NoCLibrary {
        /// The process.
        pid: Pid,
    },
    /// The command that reports a process's work failed.
    #[error("process {pid} is left unmodified: --work-counter {command}: {why}")]
    Work {
        /// The process.
        pid: Pid,
        /// The command.
        command: String,
        /// What it did instead.
        why: String,
    },
    /// The process is of a kind that cannot be changed.
    #[error("process {pid} is left unmodified: {why}")]
    Unfit {
        /// The process.
        pid: Pid,
        /// Why.
        why: String,
    },
}

impl TuneError {
    /// Why the process is left unmodified, where the process is named already.
    pub fn reason(&self) -> String {
        match self {
            TuneError::Live(error) => error.reason(),
            TuneError::Loading { .. } => {
                "its loader's list of libraries cannot be read (it may be changing)".to_owned()
            }
            TuneError::NoCLibrary { .. } => "it has no C library that Fettle knows".to_owned(),
            TuneError::Work { command, why, .. } => format!("--work-counter {command}: {why}"),
            TuneError::Unfit { why, .. } => why.clone(),
            _ => self.to_string(),
        }
    }
}
