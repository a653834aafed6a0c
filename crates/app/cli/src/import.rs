//! `fettle import`: other programs' traces as Fettle's.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::{Args, ValueEnum};
use fettle_import::{Format, Import, Imported};
use fettle_report::render::{count, json};

use crate::output;

/// Turn other programs' traces into one of Fettle's
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  strace -f -yy -ttt -T -o server.strace ./server; fettle import server.strace
  perf script -F +pid,+tid > server.perf; fettle import server.perf -o server.fettle
  fettle import trace.dat                         of trace-cmd
  fettle import ~/lttng-traces/auto-20260101      of LTTng
  fettle import spans.json --format otlp
  fettle import --without-ids front.json cart.json -o shop.fettle
  fettle sensors read rpc.calls --json > calls.jsonl; fettle import calls.jsonl shop.fettle-calls
  fettle requests                                 what the new trace says

What comes from where: docs/user/import.md.")]
pub struct ImportArgs {
    /// Files and folders; several are parts of one trace, on one clock
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder of the new trace [default: the first file's name with .fettle]
    #[arg(long, short, value_name = "TRACE")]
    output: Option<PathBuf>,
    /// Their format
    #[arg(long, value_enum, default_value = "auto")]
    format: FormatArg,
    /// Drop the ids of spans, and reconstruct traces from times and names: docs/user/spans.md. Of traced stubs' calls,
    /// put together those that carried no id: docs/user/rpc.md
    #[arg(long)]
    without_ids: bool,
    /// Write JSON with a version field
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatArg {
    /// By what is in them
    Auto,
    /// Of strace -f -ttt -T, better with -yy
    Strace,
    /// Of perf script, ftrace (trace, trace_pipe) or trace-cmd report
    Events,
    /// Of trace-cmd: trace.dat
    TraceDat,
    /// Common Trace Format 1.8 and 2, of LTTng and others: a folder
    Ctf,
    /// OpenTelemetry's spans as JSON
    Otlp,
    /// Jaeger's spans as JSON
    Jaeger,
    /// Zipkin's spans as JSON, version 2
    Zipkin,
    /// What OpenTelemetry's console exporters print, of Python, Node.js and Go
    Console,
    /// Chrome's trace events as JSON
    Chrome,
    /// Calls of traced RPC stubs, of fettle sensors read rpc.calls --json; name the stubs' .fettle-calls, too
    Calls,
}

impl FormatArg {
    fn format(self) -> Option<Format> {
        Some(match self {
            FormatArg::Auto => return None,
            FormatArg::Strace => Format::Strace,
            FormatArg::Events => Format::Events,
            FormatArg::TraceDat => Format::TraceDat,
            FormatArg::Ctf => Format::Ctf,
            FormatArg::Otlp => Format::Otlp,
            FormatArg::Jaeger => Format::Jaeger,
            FormatArg::Zipkin => Format::Zipkin,
            FormatArg::Console => Format::Console,
            FormatArg::Chrome => Format::Chrome,
            FormatArg::Calls => Format::Calls,
        })
    }
}

/// Runs `fettle import`: 0, or 1 if something was lost.
pub fn run(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let output = args.output.unwrap_or_else(|| {
        let name = args.files[0].file_name().map(PathBuf::from).unwrap_or_default();
        let mut name = name.into_os_string();
        name.push(".fettle");
        PathBuf::from(name)
    });
    let import = Import {
        inputs: args.files,
        output: output.clone(),
        format: args.format.format(),
        without_ids: args.without_ids,
    };
    let stop = fettle_live::catch_signals()?;
    let imported = fettle_import::import(&import, &|| stop.load(Ordering::Relaxed))?;
    let text = match args.json {
        true => json(&as_json(&imported, &output))?,
        false => as_text(&imported, &output),
    };
    output::print(&text)?;
    let manifest = &imported.manifest;
    Ok(ExitCode::from(u8::from(!manifest.losses.is_empty() || manifest.events.lost() > 0)))
}

fn as_json(imported: &Imported, output: &std::path::Path) -> serde_json::Value {
    let manifest = &imported.manifest;
    let formats: Vec<&str> = imported.formats.iter().map(|format| format.name()).collect();
    serde_json::json!({
        "version": 1,
        "trace": output,
        "formats": formats,
        "events": manifest.events.rows(),
        "duration_ns": manifest.duration_ns,
        "kinds": manifest.events.kinds,
        "lost": manifest.events.lost,
        "losses": manifest.losses,
        "notes": manifest.notes,
    })
}

fn as_text(imported: &Imported, output: &std::path::Path) -> String {
    let manifest = &imported.manifest;
    let mut formats: Vec<&str> = imported.formats.iter().map(|format| format.name()).collect();
    formats.dedup();
    let mut text = format!(
        "{}: {} events of {} kinds in {:.3} s, from {}\n",
        output.display(),
        count(manifest.events.rows()),
        manifest.events.kinds.len(),
        manifest.duration_ns as f64 / 1e9,
        formats.join(", "),
    );
    for cpu in manifest.events.lost.iter().filter(|cpu| cpu.lost > 0) {
        let lost = count(cpu.lost);
        text.push_str(&format!("! Lost by the recorder on processor {}: {lost} events\n", cpu.cpu));
    }
    for loss in &manifest.losses {
        text.push_str(&format!("! {}: {}\n", count(loss.count), loss.reason));
    }
    for note in manifest.notes.iter().skip(1) {
        text.push_str(&format!("  {note}\n"));
    }
    text
}
