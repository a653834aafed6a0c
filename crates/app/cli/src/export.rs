//! `fettle export`: a trace in other programs' formats.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use fettle_follow::{SpanFormat, export_calls};
use fettle_report::Weight;
use fettle_report::export::{ExportOptions, Format, export};
use fettle_trace::Trace;

use crate::{output, requests};

/// Write a trace in another program's format.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle export run.fettle --format perfetto      for https://ui.perfetto.dev
  fettle export run.fettle --format pprof -o run.pb.gz
  fettle export run.fettle --format collapsed -o - | inferno-flamegraph > run.svg
  fettle export run.fettle --format chrome --min-duration-us 100
  fettle export run.fettle --format firefox       for https://profiler.firefox.com
  fettle export nginx.fettle --format jaeger      requests as spans, for Jaeger and Grafana
  fettle export nginx.fettle --format perfetto --schema sockets    requests, for Perfetto

The trace itself is columns already: DuckDB, Polars, Spark and ClickHouse read
run.fettle/calls/*.parquet directly.")]
pub struct ExportArgs {
    /// Trace folder [default: the newest *.fettle in this folder]
    trace: Option<PathBuf>,
    /// Format
    #[arg(long, short, value_enum)]
    format: FormatArg,
    /// File to write, `-` for standard output [default: the trace's name with the format's ending]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave calls out of timelines that are shorter than this, in microseconds, with all they
    /// called
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    min_duration_us: f64,
    /// Let collapsed stacks hold time on a processor, without waiting. (Profiles for pprof have
    /// both.)
    #[arg(long)]
    cpu: bool,
    /// Write names as the linker knows them
    #[arg(long)]
    no_demangle: bool,
    /// What a request is, for otlp and jaeger, and for perfetto if requests are to be shown instead
    /// of calls: a shipped schema's name, or a file [default: what suits the trace]
    #[arg(long, value_name = "NAME|FILE")]
    schema: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatArg {
    /// Timeline for ui.perfetto.dev and trace_processor
    Perfetto,
    /// Timeline for speedscope.app
    Speedscope,
    /// Profile for pprof
    Pprof,
    /// One line per chain of callers
    Collapsed,
    /// Timeline for chrome://tracing and others
    Chrome,
    /// Profile with a timeline for profiler.firefox.com
    Firefox,
    /// Requests as spans, for OpenTelemetry collectors: a line for each request; calls that stubs have
    /// reported as spans with their own ids
    Otlp,
    /// Requests as spans, for Jaeger and Grafana
    Jaeger,
}

/// Runs `fettle export`: 0, or 1 if parts of the trace could not be read.
pub fn run(args: ExportArgs) -> anyhow::Result<ExitCode> {
    let format = match args.format {
        FormatArg::Perfetto => Format::Perfetto,
        FormatArg::Speedscope => Format::Speedscope,
        FormatArg::Pprof => Format::Pprof,
        FormatArg::Collapsed => Format::Collapsed,
        FormatArg::Chrome => Format::Chrome,
        FormatArg::Firefox => Format::Firefox,
        FormatArg::Otlp => return spans(&args, SpanFormat::Otlp),
        FormatArg::Jaeger => return spans(&args, SpanFormat::Jaeger),
    };
    if !args.schema.is_empty() {
        if format == Format::Perfetto {
            return spans(&args, SpanFormat::Perfetto);
        }
        bail!("--schema is for requests: --format otlp, jaeger or perfetto");
    }
    let options = ExportOptions {
        duration_ns_min: (args.min_duration_us.max(0.0) * 1000.0) as u64,
        weight: if args.cpu { Weight::Cpu } else { Weight::Wall },
        demangle: !args.no_demangle,
    };
    if args.cpu && format != Format::Collapsed {
        bail!("--cpu is for collapsed stacks; other formats hold both times or a timeline");
    }
    let path = output::chosen(args.trace.as_deref())?;
    let trace = output::open(&path)?;
    let manifest = trace.manifest();
    // Then requests are all that it can show.
    if format == Format::Perfetto && manifest.totals.records == 0 && manifest.events.rows() > 0 {
        return spans(&args, SpanFormat::Perfetto);
    }

    let to_stdout = args.output.as_deref().is_some_and(|file| file.as_os_str() == "-");
    let result = if to_stdout {
        if io::stdout().is_terminal() && matches!(format, Format::Perfetto | Format::Pprof) {
            bail!("{} is not for terminals; name a file with -o", format.name());
        }
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        export(&trace, format, options, &mut out)
    } else {
        let file = args.output.unwrap_or_else(|| path.with_extension(format.extension()));
        let write = |out: &mut dyn Write| Ok(export(&trace, format, options, out)?);
        let warnings = output::to_file(&file, write)?;
        say!("Wrote {}.", file.display());
        Ok(warnings)
    };
    output::warned(result)
}

/// Writes requests as spans: 0, or 1 if there is none.
/// Whether stubs have reported calls, which have ids of their own.
fn has_calls(trace: &Trace) -> bool {
    let kinds = trace.event_kinds().unwrap_or_default().0;
    kinds.iter().any(|kind| kind.name == "rpc_end")
}

/// Writes those.
fn calls(args: &ExportArgs, path: &Path, trace: &Trace) -> anyhow::Result<ExitCode> {
    let to_stdout = args.output.as_deref().is_some_and(|file| file.as_os_str() == "-");
    let written = if to_stdout {
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        match export_calls(trace, &mut out) {
            Err(fettle_follow::Error::Output(error)) => {
                output::quiet(Err(error))?;
                return Ok(ExitCode::SUCCESS);
            }
            written => written?,
        }
    } else {
        let ending = SpanFormat::Otlp.extension();
        let file = args.output.clone().unwrap_or_else(|| path.with_extension(ending));
        let written = output::to_file(&file, |out| Ok(export_calls(trace, out)?))?;
        say!("Wrote {} calls to {}.", written.unwrap_or(0), file.display());
        written
    };
    Ok(ExitCode::from(u8::from(written.unwrap_or(0) == 0)))
}

fn spans(args: &ExportArgs, format: SpanFormat) -> anyhow::Result<ExitCode> {
    let path = output::chosen(args.trace.as_deref())?;
    let trace = output::open(&path)?;
    if args.schema.is_empty() && format == SpanFormat::Otlp && has_calls(&trace) {
        return calls(args, &path, &trace);
    }
    let (sources, _) = requests::session::sources(&args.schema, &trace)?;
    let session = requests::session::open(&trace, &sources, &args.schema)?;
    let to_stdout = args.output.as_deref().is_some_and(|file| file.as_os_str() == "-");
    let written = if to_stdout {
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        match session.export(format, &mut out) {
            Err(fettle_follow::Error::Output(error)) => {
                output::quiet(Err(error))?;
                return Ok(ExitCode::SUCCESS);
            }
            written => written?,
        }
    } else {
        let file = args.output.clone().unwrap_or_else(|| path.with_extension(format.extension()));
        let written = output::to_file(&file, |out| Ok(session.export(format, out)?))?;
        say!("Wrote {written} requests to {}.", file.display());
        written
    };
    Ok(ExitCode::from(u8::from(written == 0)))
}
