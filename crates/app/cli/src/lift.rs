//! `fettle lift`: lifting, rewriting and checking without running anything.

use crate::old_keys::with_old_keys;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use fettle_code::{Mode, Probing};
use fettle_lift::{Lifted, SkipReason, Skipped};
use fettle_report::render::one_line;
use fettle_rewrite::PlanOptions;
use serde_json::json;

/// Arguments of `fettle lift`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  fettle lift /usr/bin/python3\n  fettle lift --list --json /bin/bash"
)]
pub struct Args {
    /// Executables, shared libraries or object files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Name every function that was left unmodified
    #[arg(long)]
    list: bool,
    /// Print one JSON object per file
    #[arg(long)]
    json: bool,
    /// Go no further than this, and print nothing: for benchmarks
    #[arg(long, hide = true)]
    until: Option<Step>,
}

/// A step of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Step {
    /// Read the image.
    Parse,
    /// Lift its functions.
    Lift,
    /// Write them anew, without a check.
    Emit,
    /// Check what was written.
    Check,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut skipped_any = false;
    for file in &args.files {
        if let Some(until) = args.until {
            run_until(until, file)?;
            continue;
        }
        let image = fettle_record::modules::open_image(file)?;
        let begin = Instant::now();
        let lifted = fettle_lift::lift(&image);
        let lift_seconds = begin.elapsed().as_secs_f64();
        let options = PlanOptions::new(Probing::new(Mode::Events));
        let plan = fettle_rewrite::plan(&image, &lifted, options);
        let seconds = begin.elapsed().as_secs_f64();
        let megabytes = lifted.code_bytes as f64 / 1e6;

        let mut reasons: BTreeMap<SkipReason, u64> = BTreeMap::new();
        for s in &plan.skipped {
            *reasons.entry(s.reason).or_default() += 1;
        }
        skipped_any |= !plan.skipped.is_empty();
        let total = plan.functions.len() + plan.skipped.len();
        let share = 100.0 * plan.functions.len() as f64 / total.max(1) as f64;
        let mut out = crate::output::stdout();
        if args.json {
            let list: Vec<_> = plan
                .skipped
                .iter()
                .filter(|_| args.list)
                .map(|s| {
                    json!({"address": s.entry.0, "name": s.name, "at": s.at.0,
                           "reason": s.reason.describe()})
                })
                .collect();
            let reasons: BTreeMap<_, _> = reasons.iter().map(|(r, n)| (r.describe(), *n)).collect();
            let value = with_old_keys(json!({
                "version": 1, "file": file, "functions": total,
                "lifted": plan.functions.len(), "skipped": plan.skipped.len(),
                "reasons": reasons, "list": list,
                "code_bytes": lifted.code_bytes,
                "unknown_code_bytes": lifted.coverage.unknown,
                "all_code_bytes": lifted.coverage.code, "text_bytes": plan.text.len(),
                "lift_seconds": lift_seconds, "seconds": seconds,
                "megabytes_per_second": megabytes / seconds,
            }));
            writeln!(out, "{value}")?;
            continue;
        }
        writeln!(
            out,
            "{}: {} of {total} functions lifted ({share:.2} %), {megabytes:.1} MB of code in \
             {seconds:.2} s ({:.0} MB/s), {:.1} MB of rewritten text",
            file.display(),
            plan.functions.len(),
            megabytes / seconds,
            plan.text.len() as f64 / 1e6,
        )?;
        write_reasons(&mut out, args.list, &lifted, &plan.skipped, &reasons)?;
    }
    Ok(if skipped_any { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Says what is not lifted, and why.
fn write_reasons(
    out: &mut impl Write,
    list: bool,
    lifted: &Lifted,
    skipped: &[Skipped],
    reasons: &BTreeMap<SkipReason, u64>,
) -> std::io::Result<()> {
    if let Some(note) = lifted.coverage.note() {
        writeln!(out, "          {note}")?;
    }
    for (reason, count) in reasons {
        writeln!(out, "  {count:6}  {}", reason.describe())?;
        for s in skipped.iter().filter(|s| list && s.reason == *reason) {
            let name = one_line(s.name.clone().unwrap_or_default());
            writeln!(out, "          {} {name} (at {})", s.entry, s.at)?;
        }
    }
    Ok(())
}

/// Does the work up to a step.
fn run_until(until: Step, file: &Path) -> anyhow::Result<()> {
    let image = fettle_record::modules::open_image(file)?;
    if until == Step::Parse {
        return Ok(());
    }
    let lifted = fettle_lift::lift(&image);
    let options = PlanOptions::new(Probing::new(Mode::Events));
    match until {
        Step::Parse | Step::Lift => {}
        Step::Emit => {
            fettle_rewrite::plan_checked_by(&image, &lifted, options, || |_, _| Ok(()));
        }
        Step::Check => {
            fettle_rewrite::plan(&image, &lifted, options);
        }
    }
    Ok(())
}
