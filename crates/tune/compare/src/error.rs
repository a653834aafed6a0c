//! What can go wrong.

use std::io;

/// Why a system could not be started or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// The name of a system means nothing.
    #[error(
        "{name:?} is no system: native, uml, gvisor:PLATFORM, or a command that starts programs, such as 'bwrap --bind / /'"
    )]
    NoSystem {
        /// What was named.
        name: String,
    },
    /// A program that a system needs is not installed.
    #[error("{system}: there is no {program}; {install}")]
    Missing {
        /// The system.
        system: String,
        /// The program.
        program: String,
        /// How to get it.
        install: String,
    },
    /// A system did not start.
    #[error("{system} did not start: {why}")]
    NoStart {
        /// The system.
        system: String,
        /// What it said.
        why: String,
    },
    /// A system ended, or did not answer.
    #[error("{system}: {why}")]
    Broken {
        /// The system.
        system: String,
        /// What happened.
        why: String,
    },
    /// A benchmark that there is not.
    #[error("there is no benchmark {name:?}; `fettle compare --list` shows them")]
    NoBenchmark {
        /// What was named.
        name: String,
    },
    /// The user's program does not run where ratios are taken from.
    #[error("{program} does not run on {system}: {why}")]
    Program {
        /// The program.
        program: String,
        /// The first system.
        system: String,
        /// How it ended.
        why: String,
    },
    /// Causes cannot be found out.
    #[error("--why: {0}")]
    Kernel(#[from] fettle_kernel_events::KernelError),
    /// A trace cannot be written.
    #[error(transparent)]
    Trace(#[from] fettle_trace::Error),
    /// Nothing is left to be compared.
    #[error("nothing could be measured: {why}")]
    Nothing {
        /// The first reason.
        why: String,
    },
    /// The user ended it.
    #[error("ended before it was done")]
    Stopped,
    /// A file of ours.
    #[error("{what}: {source}")]
    File {
        /// What was to be done.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

pub(crate) fn file(what: impl Into<String>) -> impl FnOnce(io::Error) -> CompareError {
    let what = what.into();
    move |source| CompareError::File { what, source }
}
