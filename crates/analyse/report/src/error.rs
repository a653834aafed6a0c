//! What can go wrong with a report.

/// Result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a report or an export could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] fettle_trace::Error),
    /// No function has the name that was asked for.
    #[error("no recorded function is called {0:?}; `fettle report` without it lists them")]
    NoFunction(String),
    /// Several functions contain the name that was asked for.
    #[error("{wanted:?} may mean {count} functions; give more of the name, such as\n  {examples}")]
    ManyFunctions {
        /// What was asked for.
        wanted: String,
        /// How many match.
        count: usize,
        /// Some of them, one per line.
        examples: String,
    },
    /// Nothing is recorded of a function's arguments.
    #[error(
        "nothing is recorded of the arguments of {wanted}; `fettle record --args FUNCTION` records \
         them{recorded}"
    )]
    NoArguments {
        /// The function.
        wanted: String,
        /// The functions that have some, as the end of a sentence.
        recorded: String,
    },
    /// The trace has no single calls, and the analysis needs them.
    #[error(
        "this trace holds no readable records of single calls, which {what} needs; it was recorded \
         in the probe mode {mode}, and the mode events stores them"
    )]
    NoRecords {
        /// What was asked for.
        what: &'static str,
        /// The trace's probe mode.
        mode: &'static str,
    },
    /// The trace has no counts of blocks.
    #[error(
        "this trace holds no counts of blocks; it was recorded in the probe mode {mode}, and the \
         modes blocks and edges count them"
    )]
    NoCounts {
        /// The trace's probe mode.
        mode: &'static str,
    },
    /// The trace has nothing of a user probe.
    #[error(
        "this trace was recorded in the probe mode {mode}; `fettle record --probe FILE` counts"
    )]
    NoOwn {
        /// The trace's probe mode.
        mode: &'static str,
    },
    /// The trace does not say when threads were off-CPU.
    #[error(
        "this trace does not have CPU time of functions: that takes the mode events and a \
         kernel that reports context switches"
    )]
    NoCpu,
    /// Output could not be written.
    #[error("cannot write the output")]
    Output(#[from] std::io::Error),
}
