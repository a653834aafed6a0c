//! Why there is no recording.

use std::io;

use fettle_kernel_events::KernelError;
use fettle_live::{ExitStatus, LiveError};
use fettle_types::Pid;

use crate::modules::ModuleError;

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The program is none that Fettle records.
    #[error(transparent)]
    Program(#[from] ModuleError),
    /// No such program.
    #[error("cannot run {program:?}: {error}")]
    NotFound {
        /// As it was asked for.
        program: String,
        /// What the system said.
        error: io::Error,
    },
    /// No process has the number that was to be recorded.
    #[error("there is no process {0}")]
    NoProcess(Pid),
    /// The session's memory cannot be had.
    #[error(
        "cannot set up shared memory: {0}; a smaller --ring or --max-threads takes less, and `ulimit -v` may limit it"
    )]
    Memory(io::Error),
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] fettle_trace::Error),
    /// Kernel events cannot be had.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The collector on another machine cannot be had.
    #[error(transparent)]
    Relay(#[from] fettle_relay::Error),
    /// The program cannot be run.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// What was recorded could not be made a trace.
    #[error("{source}")]
    Unfinished {
        /// How the program ended; `None` if it is still running.
        status: Option<ExitStatus>,
        /// Why.
        source: Box<RecordError>,
    },
}

impl RecordError {
    pub(crate) fn unfinished(
        status: Option<ExitStatus>,
        error: fettle_trace::Error,
    ) -> RecordError {
        RecordError::Unfinished { status, source: Box::new(error.into()) }
    }

    /// The status with which shells say that there is no such program, or none that can be executed,
    /// if that is why.
    pub fn shell_status(&self) -> Option<u8> {
        match self {
            RecordError::NotFound { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                Some(127)
            }
            RecordError::Live(LiveError::NotFound { .. }) => Some(127),
            RecordError::NotFound { .. }
            | RecordError::Live(
                LiveError::NotExecutable { .. }
                | LiveError::Interpreter { .. }
                | LiveError::Format { .. },
            ) => Some(126),
            _ => None,
        }
    }
}
