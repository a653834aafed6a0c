//! The trace in other programs' formats.
//!
//! Timelines (Perfetto, Chrome, Speedscope) are written call by call as the trace is read, in
//! bounded memory; the Firefox Profiler's is held in memory. Profiles (pprof, collapsed stacks) are written from the call tree; where there are no
//! single calls, from the totals, as functions without callers. All times
//! are as measured, the probes' own cost included.

mod cast;
mod chrome;
mod firefox;
mod perfetto;
mod pprof;
mod speedscope;
mod stacks;

use std::io::Write;

use fettle_trace::Trace;

use crate::error::{Error, Result};
use crate::report::Analysis;
use crate::timeline::Filter;
use crate::tree::Weight;
pub(crate) use cast::Cast;

/// A format of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Perfetto's protobuf, for `ui.perfetto.dev` and `trace_processor`.
    Perfetto,
    /// Speedscope's JSON, for `speedscope.app`.
    Speedscope,
    /// Gzipped pprof protobuf, for `pprof` and what reads its profiles.
    Pprof,
    /// One line per chain of callers, for `flamegraph.pl`, `inferno` and the like.
    Collapsed,
    /// Chrome's JSON, for `chrome://tracing` and many others.
    Chrome,
    /// The Firefox Profiler's JSON, for `profiler.firefox.com`.
    Firefox,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 6] = [
        Format::Perfetto,
        Format::Speedscope,
        Format::Pprof,
        Format::Collapsed,
        Format::Chrome,
        Format::Firefox,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Perfetto => "perfetto",
            Format::Speedscope => "speedscope",
            Format::Pprof => "pprof",
            Format::Collapsed => "collapsed",
            Format::Chrome => "chrome",
            Format::Firefox => "firefox",
        }
    }

    /// What files of this format are usually called, after the trace's name.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Perfetto => "perfetto-trace",
            Format::Speedscope => "speedscope.json",
            Format::Pprof => "pb.gz",
            Format::Collapsed => "collapsed",
            Format::Chrome => "trace.json",
            Format::Firefox => "firefox.json",
        }
    }
}

/// What an export contains.
#[derive(Clone, Copy, Debug)]
pub struct ExportOptions {
    /// Timelines leave out calls shorter than this, in nanoseconds, with all they called.
    pub duration_ns_min: u64,
    /// What counts in collapsed stacks.
    pub weight: Weight,
    /// Whether names are written as their authors wrote them.
    pub demangle: bool,
}

impl Default for ExportOptions {
    fn default() -> ExportOptions {
        ExportOptions { duration_ns_min: 0, weight: Weight::Wall, demangle: true }
    }
}

/// Writes a trace in another format. Returns what could not be read, one sentence each.
///
/// # Errors
///
/// [`Error::NoRecords`] if the trace has no single calls, [`Error::Output`] if `out` fails, a closed pipe
/// included.
pub fn export(
    trace: &Trace,
    format: Format,
    options: ExportOptions,
    out: &mut dyn Write,
) -> Result<Vec<String>> {
    let filter = Filter { duration_ns_min: options.duration_ns_min };
    if matches!(format, Format::Pprof | Format::Collapsed) {
        let analysis = Analysis::read(trace, options.demangle)?;
        // Without single calls, how long functions took by themselves is known all the same.
        if !analysis.has_own_times() {
            analysis.need_records("an export")?;
        }
        match format {
            Format::Pprof => pprof::write(&analysis, trace.functions().unwrap_or_default(), out)?,
            _ => {
                if options.weight == Weight::Cpu {
                    analysis.need_cpu()?;
                }
                stacks::write(&analysis, options.weight, out)?;
            }
        }
        return Ok(analysis.warnings);
    }
    let manifest = trace.manifest();
    if manifest.totals.records == 0 {
        return Err(Error::NoRecords { what: "an export", mode: manifest.probe_mode.name() });
    }
    let mut warnings = trace.warnings().to_vec();
    let people = Cast::read(trace, options.demangle, &mut warnings);
    warnings.extend(match format {
        Format::Perfetto => perfetto::write(trace, filter, people, out)?,
        Format::Speedscope => speedscope::write(trace, filter, people, out)?,
        Format::Firefox => firefox::write(trace, filter, people, out)?,
        _ => chrome::write(trace, filter, people, out)?,
    });
    out.flush()?;
    Ok(warnings)
}
