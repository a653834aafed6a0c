//! `fettle trace`: looking after trace folders.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use fettle_report::render::{count, json};
use fettle_trace::Manifest;

use crate::output;

/// Look after trace folders.
#[derive(Args, Debug)]
pub struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Read all of a trace and check that it agrees with itself
    ///
    /// A recording that was cut off is made a trace first. Exit status 0 if nothing is wrong,
    /// 1 if something is, or something is missing.
    Check(CheckArgs),
    /// Convert the records of a long recording into columns, which its first reader would do
    ///
    /// A recording of more than eight million calls is left as it was stored, so that it ends at
    /// once. Converted, it has its calls in calls/*.parquet, as a short one has.
    Convert(ConvertArgs),
    /// Show the manifest: what was recorded, where, when, and what was lost
    Info(CheckArgs),
}

#[derive(Args, Debug)]
struct CheckArgs {
    /// Trace folder [default: the newest *.fettle in this folder]
    trace: Option<PathBuf>,
    /// Write JSON with a version field
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct ConvertArgs {
    /// Trace folders [default: the newest *.fettle in this folder]
    traces: Vec<PathBuf>,
}

/// Runs `fettle trace`.
pub fn run(args: TraceArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        TraceCommand::Check(args) => check(args),
        TraceCommand::Convert(args) => convert(args),
        TraceCommand::Info(args) => info(args),
    }
}

fn convert(args: ConvertArgs) -> anyhow::Result<ExitCode> {
    let mut traces = args.traces;
    if traces.is_empty() {
        traces.push(output::chosen(None)?);
    }
    for path in traces {
        let trace = output::open(&path)?;
        let records = count(trace.manifest().totals.records);
        output::print(&format!("{}: {records} calls in columns\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let path = output::chosen(args.trace.as_deref())?;
    let trace = output::open(&path)?;
    let check = fettle_report::check(&trace)?;
    let missing = missing(trace.manifest());
    let mut text = String::new();
    if args.json {
        text = json(&check)?;
    } else {
        for (table, rows) in &check.rows {
            text.push_str(&format!("{:>15} rows in {table}\n", count(*rows)));
        }
        for problem in &check.problems {
            text.push_str(&format!("{:>15} × {}\n", count(problem.count), problem.what));
        }
        for unsure in &check.unsure {
            text.push_str(&format!("{:>15} × {}\n", count(unsure.count), unsure.what));
        }
        for why in &check.unsure_because {
            text.push_str(&format!("note: {why}; it is not known which calls lie within which\n"));
        }
        for what in &missing {
            text.push_str(&format!("missing: {what}\n"));
        }
        let verdict = match (check.problems.is_empty(), missing.is_empty()) {
            (true, true) => "nothing is wrong",
            (true, false) => "what is there is right, but not all",
            (false, _) => "damaged",
        };
        text.push_str(&format!("{}: {verdict}\n", path.display()));
    }
    output::print(&text)?;
    Ok(ExitCode::from(u8::from(!check.problems.is_empty() || !missing.is_empty())))
}

/// What the recording did not store, a sentence each.
fn missing(manifest: &Manifest) -> Vec<String> {
    let mut missing = Vec::new();
    if manifest.recovery.is_some() {
        missing.push("the recording was cut off; its last moments are not known".to_owned());
    }
    let lost = [(manifest.totals.lost, "records of calls"), (manifest.events.lost(), "events")];
    for (lost, what) in lost.into_iter().filter(|(lost, _)| *lost > 0) {
        missing.push(format!("{} {what} were lost while recording", count(lost)));
    }
    missing
}

fn info(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let path = output::chosen(args.trace.as_deref())?;
    let trace = output::open(&path)?;
    let manifest = trace.manifest();
    let text = if args.json {
        json(manifest)?
    } else {
        let totals = &manifest.totals;
        let bytes: u64 = manifest.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes));
        let lines = [
            ("command", manifest.command.join(" ")),
            ("folder", manifest.cwd.clone()),
            ("started", manifest.start_time.clone()),
            ("processor", manifest.machine.cpu_model.clone()),
            ("kernel", manifest.machine.kernel.clone()),
            ("fettle", manifest.fettle_version.clone()),
            ("probe mode", manifest.probe_mode.name().to_owned()),
            ("threads", count(totals.threads)),
            ("calls", count(totals.calls)),
            ("records", count(totals.records)),
            ("lost", count(totals.lost)),
            ("bytes", count(bytes)),
        ];
        lines.iter().map(|(name, value)| format!("{name:>12}  {value}\n")).collect()
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
