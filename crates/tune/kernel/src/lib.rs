//! The loop of Fettle with the running kernel as its host: count, decide, install, compare, keep or revert.
//!
//! Lifting, emission and checking are those of `crates/kernel`, the decision where code lies that of
//! `crates/binary/place`, installing that of `crates/kernel/kernel-live`.
#![forbid(unsafe_code)]

pub mod compare;
pub mod count;
pub mod counted;
pub mod emission;
pub mod select;
pub mod tuning;

pub use count::{Count, Counting, Executions, Scope, Times};
pub use counted::Counted;
pub use select::Selected;
pub use tuning::{Options, Outcome, Progress, What, tune};

/// Why functions of the kernel are not counted or tuned. Nothing is changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel, or the module in it.
    #[error(transparent)]
    Live(#[from] fettle_kernel_live::Error),
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
    /// The work was not measured, for this reason.
    #[error("{0}")]
    Work(String),
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
