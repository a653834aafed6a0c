//! What probes measure, as an argument.

use clap::ValueEnum;
use fettle_code::Mode;

/// The modes that can be asked for by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ModeArg {
    /// A record of every call, with exact totals and CPU time
    Events,
    /// Calls, total and self time of every function; CPU time of threads only
    Time,
    /// As time, but CPU time: asks the kernel at each entry and exit
    Cpu,
    /// How often functions are entered and left
    Count,
    /// As time and CPU time, from one call in 64 of functions that are called often
    Sample,
    /// How often each basic block runs
    Blocks,
    /// How often control goes from block to block, with counters on a spanning tree's complement
    Edges,
    /// Nothing: a test of Fettle
    #[value(hide = true)]
    Plain,
}

impl From<ModeArg> for Mode {
    fn from(arg: ModeArg) -> Mode {
        match arg {
            ModeArg::Events => Mode::Events,
            ModeArg::Time => Mode::Time,
            ModeArg::Cpu => Mode::Cpu,
            ModeArg::Count => Mode::Count,
            ModeArg::Sample => Mode::Sample,
            ModeArg::Blocks => Mode::Blocks,
            ModeArg::Edges => Mode::Edges,
            ModeArg::Plain => Mode::Plain,
        }
    }
}
