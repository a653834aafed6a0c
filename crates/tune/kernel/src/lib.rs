//! The loop of Fettle with the running kernel as its host: count, decide, install, compare, keep or revert.
//!
//! Lifting, emission and checking are those of `crates/kernel`, the decision where code lies that of
//! `crates/binary/place`, installing that of `crates/kernel/kernel-live`.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

pub mod compare;
pub mod count;
pub mod counted;
pub mod emission;
pub mod profile;
mod promotion;
pub mod select;
pub mod tuning;

pub use count::{AllTimes, Count, Counting, Executions, Scope, Times};
pub use counted::Counted;
pub use profile::{Fit, Profile};
pub use select::Selected;
pub use tuning::{Options, Outcome, Progress, Ran, What, tune};

/// Why functions of the kernel are not counted or tuned. Nothing is changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel, or the module in it.
    #[error(transparent)]
    Live(#[from] fettle_kernel_live::Error),
    /// A process that is compared together with the kernel.
    #[error(transparent)]
    Process(#[from] fettle_tune::TuneError),
    /// Nothing to do.
    #[error(
        "no function of the kernel matches {0}; /sys/kernel/tracing/available_filter_functions lists names"
    )]
    NoMatch(String),
    /// Functions match, and none can be rewritten.
    #[error(
        "none of the {count} functions that match can be rewritten; the first, {name}: {reason}"
    )]
    AllSkipped {
        /// How many.
        count: usize,
        /// The first.
        name: String,
        /// Why it is left unmodified.
        reason: &'static str,
    },
    /// Nothing ran.
    #[error("none of {0} functions ran meanwhile: put the kernel under the load to tune for")]
    Idle(usize),
    /// A profile of a kernel in which no function is the same.
    #[error(
        "the profile is of Linux {release}, and none of its {differing} functions is the same here: count anew, \
         without --profile"
    )]
    Unfit {
        /// The kernel that it is of.
        release: String,
        /// How many functions it has.
        differing: usize,
    },
    /// A profile's file.
    #[error("cannot {action} the profile {}: {why}", path.display())]
    Profile {
        /// What was to be done with it.
        action: &'static str,
        /// Its name.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The work was not measured, for this reason.
    #[error("{0}")]
    Work(String),
}

impl Error {
    pub(crate) fn profile(action: &'static str, path: &Path, why: &dyn std::fmt::Display) -> Error {
        Error::Profile { action, path: path.to_path_buf(), why: why.to_string() }
    }
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
