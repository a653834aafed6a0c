//! `fettle replay`: calls in the order of time, as text.

use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use fettle_report::{ReplayOptions, replay};

use crate::output;

/// Show the calls of a trace as they happened: entries and exits of all threads in the order of time
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle replay run.fettle | less
  fettle replay run.fettle --min-duration-us 100 --depth 4
  fettle replay run.fettle --tid 4711 --switches
  fettle replay run.fettle --lines 20 --json

A call within which nothing else is shown is one line. TIME is since the recording began.")]
pub struct ReplayArgs {
    /// Trace folder [default: the newest *.fettle in this folder]
    trace: Option<PathBuf>,
    /// Only this thread; may be given several times
    #[arg(long, value_name = "N")]
    tid: Vec<u32>,
    /// Leave calls out that are shorter than this, in microseconds, with all they called
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    min_duration_us: f64,
    /// Leave calls out that are deeper than this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
    /// Show when threads were switched out and in again, too
    #[arg(long)]
    switches: bool,
    /// Stop after so many lines
    #[arg(long, value_name = "N")]
    lines: Option<u64>,
    /// Write names as the linker knows them
    #[arg(long)]
    no_demangle: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Runs `fettle replay`: 0, or 1 if parts of the trace could not be read.
pub fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let trace = output::open(&output::chosen(args.trace.as_deref())?)?;
    let options = ReplayOptions {
        tids: args.tid.clone(),
        duration_ns_min: (args.min_duration_us.max(0.0) * 1000.0) as u64,
        depth_max: args.depth.map_or(usize::MAX, |depth| depth as usize),
        switches: args.switches,
        lines_max: args.lines.unwrap_or(u64::MAX),
        json: args.json,
        demangle: !args.no_demangle,
    };
    let mut out = BufWriter::with_capacity(1 << 16, output::stdout());
    output::warned(replay(&trace, &options, &mut out))
}
