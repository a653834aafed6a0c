//! `fettle merge`: traces of several machines as one.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context, bail};
use clap::Args;
use fettle_merge::Merge;
use fettle_report::render::{count, json};
use fettle_trace::{Manifest, MergedTrace};

use crate::output;

/// Make one trace of those of several machines, on one clock
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle merge web.fettle db.fettle -o both.fettle
  fettle requests both.fettle                     across the machines
  fettle merge web.fettle db.fettle -o both.fettle --offset 0
                                                  without messages: by the clocks of the walls

Clocks are aligned by messages between the machines: docs/user/merge.md.")]
pub struct MergeArgs {
    /// Traces; the first one's clock is that of the new one
    #[arg(required = true, num_args = 2.., value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Folder of the new trace
    #[arg(long, short, value_name = "TRACE")]
    output: PathBuf,
    /// Do not ask messages, but add so many seconds to the wall's clock of a trace's machine: one for
    /// each trace but the first, in their order
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    offset: Vec<f64>,
    /// Write JSON with a version field
    #[arg(long)]
    json: bool,
}

/// Runs `fettle merge`: 0, or 1 if something was lost.
pub fn run(args: &MergeArgs) -> anyhow::Result<ExitCode> {
    if args.offset.len() >= args.traces.len() {
        let (offsets, traces) = (args.offset.len(), args.traces.len());
        bail!("{offsets} offsets are too many for {traces} traces: the first one has none");
    }
    let ns = |seconds: &f64| match seconds.abs() < 9e9 {
        true => Ok((seconds * 1e9).round() as i64),
        false => bail!("--offset {seconds} is more than a clock can be wrong"),
    };
    let offsets_ns: anyhow::Result<Vec<i64>> = args.offset.iter().map(ns).collect();
    let mut traces = Vec::new();
    for path in &args.traces {
        traces.push(output::open(path).with_context(|| format!("{}", path.display()))?);
    }
    let stop = fettle_live::catch_signals()?;
    let merge = Merge { traces: &traces, offsets_ns: &offsets_ns?, output: args.output.clone() };
    let merged = fettle_merge::merge(&merge, &|| stop.load(Ordering::Relaxed))?;
    let manifest = &merged.manifest;
    let text = match args.json {
        true => json(&serde_json::json!({
            "version": 1,
            "trace": args.output,
            "events": manifest.events.rows(),
            "calls": manifest.totals.calls,
            "duration_ns": manifest.duration_ns,
            "machines": manifest.machines,
            "traces": merged.traces,
            "losses": manifest.losses,
        }))?,
        false => as_text(args, manifest, &merged.traces),
    };
    output::print(&text)?;
    Ok(ExitCode::from(u8::from(!manifest.losses.is_empty() || manifest.events.lost() > 0)))
}

fn as_text(args: &MergeArgs, manifest: &Manifest, traces: &[MergedTrace]) -> String {
    let mut text = format!(
        "{}: {} events{} of {} traces in {:.3} s\n",
        args.output.display(),
        count(manifest.events.rows()),
        match manifest.totals.calls {
            0 => String::new(),
            calls => format!(" and {} calls", count(calls)),
        },
        traces.len(),
        manifest.duration_ns as f64 / 1e9,
    );
    for (path, trace) in args.traces.iter().zip(traces) {
        text.push_str(&format!("  {:<24} {}\n", path.display(), aligned(trace)));
    }
    for loss in &manifest.losses {
        text.push_str(&format!("! {}: {}\n", count(loss.count), loss.reason));
    }
    text
}

/// How a trace's clock was brought to the first one's.
fn aligned(trace: &MergedTrace) -> String {
    let seconds = trace.offset_ns as f64 / 1e9;
    match trace.aligned_by.as_str() {
        "messages" => format!(
            "{seconds:+.9} s, {:+.3} ppm, ± {:.1} µs by {} messages{}",
            trace.drift_ppm,
            trace.uncertainty_ns.unwrap_or(0) as f64 / 1e3,
            count(trace.messages),
            match trace.left_out {
                0 => String::new(),
                n => format!(" ({} directions of connections left out)", count(n)),
            },
        ),
        "given" => format!("{seconds:+.9} s, by the clock of the wall and --offset"),
        "same clock" => format!("{seconds:+.9} s, the same machine's clock"),
        _ => "its clock is the new one's".to_owned(),
    }
}
