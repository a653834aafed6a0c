//! `fettle instrument`: a program, library or object file that records itself, or a program or
//! library whose hot code is laid out anew.

use crate::old_keys::with_old_keys;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use fettle_instrument::{Options, Order};
use fettle_tune::{Saved, Subject};
use serde_json::json;

use crate::mode::ModeArg;
use crate::select::SelectArgs;

/// Arguments of `fettle instrument`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  fettle instrument ./server -o server.probed\n  FETTLE_RECORD=run.fettle ./server.probed && fettle report run.fettle\n  fettle instrument --mode count --only 'sqlite3*' libsqlite3.so.0 -o probed/libsqlite3.so.0\n  for o in *.o; do fettle instrument $o -o $o; done; cc *.o -o server\n  fettle tune -p 4711 --dry-run --save server.profile\n  fettle instrument --layout server.profile ./server -o server.tuned\n\nWithout FETTLE_RECORD the new file runs the original text. Each run needs a folder of its own;\nprograms that a recorded program starts record into its folder if they are instrumented too.\nWith --layout there are no probes: the file is the program with its hot code in the order in\nwhich it runs.\nThe new file may be stripped, unless this command says otherwise."
)]
pub struct Args {
    /// Executable, shared library or object file (`.o`)
    input: PathBuf,
    /// The new file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// What to measure
    #[arg(long, value_enum, default_value_t = ModeArg::Events)]
    mode: ModeArg,
    /// No probes: lay hot code out by a profile of `fettle tune --save`
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["mode", "only", "skip", "select", "min_size"])]
    layout: Option<PathBuf>,
    #[command(flatten)]
    select: SelectArgs,
    /// Say what would be made, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print what was made as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(profile) = &args.layout {
        return lay_out(args, profile);
    }
    let options = Options {
        input: args.input.clone(),
        output: args.output.clone(),
        mode: args.mode.into(),
        selection: args.select.selection()?,
        dry_run: args.dry_run,
    };
    let made = fettle_instrument::instrument(&options)?;
    let left_unmodified: u64 = made.reasons.iter().map(|(_, n)| n).sum();
    if args.json {
        let reasons: std::collections::BTreeMap<_, _> = made.reasons.iter().copied().collect();
        let value = with_old_keys(json!({
            "version": 1, "input": args.input, "output": args.output, "written": !args.dry_run,
            "functions": made.functions, "skipped": left_unmodified, "reasons": reasons,
            "text_bytes": made.text_bytes, "input_bytes": made.input_bytes,
            "output_bytes": made.output_bytes, "strippable": made.strippable,
        }));
        crate::output::print(&format!("{value}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = format!(
        "{}: {} of {} functions probed, {:.1} MB of rewritten text; {:.1} MB became {:.1} MB\n",
        args.output.display(),
        made.functions,
        made.functions + left_unmodified,
        made.text_bytes as f64 / 1e6,
        made.input_bytes as f64 / 1e6,
        made.output_bytes as f64 / 1e6,
    );
    end(text, &made.reasons, made.strippable, args.dry_run)
}

const NOT_STRIPPABLE: &str = "note: do not strip this file: it has no room for more program headers \
                              where strip looks for them\n";

/// Prints what was made, with what holds for every file: the functions left unmodified, and notes.
fn end(
    mut text: String,
    reasons: &[(&str, u64)],
    strippable: bool,
    dry_run: bool,
) -> anyhow::Result<ExitCode> {
    for (reason, count) in reasons {
        text.push_str(&format!("  {count:6}  {reason}\n"));
    }
    if !strippable {
        text.push_str(NOT_STRIPPABLE);
    }
    if dry_run {
        text.push_str("nothing was written (--dry-run)\n");
    }
    crate::output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Makes a file whose hot code is laid out by a profile.
fn lay_out(args: &Args, profile: &Path) -> anyhow::Result<ExitCode> {
    let saved = Saved::read(profile).map_err(anyhow::Error::msg)?;
    let mut known = None;
    let output = Some(args.output.as_path()).filter(|_| !args.dry_run);
    let made = fettle_instrument::lay_out(&args.input, output, |image, functions| {
        let subject = Subject { path: &args.input, image, functions };
        let (decided, fit) = fettle_tune::offline::by_profile(subject, &saved)?;
        let placement = decided.chosen.layout.placement(&decided.code);
        let entries = decided.code.procedures.iter().map(|p| p.entry).collect();
        let promoted = decided.promoted.targets.clone();
        known = Some((decided, fit));
        Ok(Order { placement, entries, promoted })
    })?;
    let (decided, fit) = known.context("nothing was decided")?;
    if args.json {
        let reasons: std::collections::BTreeMap<_, _> = made.reasons.iter().copied().collect();
        let value = with_old_keys(json!({
            "version": 1, "input": args.input, "output": args.output, "written": !args.dry_run,
            "functions": made.functions, "calls": made.calls, "reasons": reasons,
            "profile": { "functions": fit.functions, "differing": fit.differing },
            "module": crate::tune::decided_json(&args.input, &decided),
            "text_bytes": made.text_bytes, "input_bytes": made.input_bytes,
            "output_bytes": made.output_bytes, "strippable": made.strippable,
        }));
        crate::output::print(&format!("{value}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = crate::tune::decided_text(&args.input, &decided);
    text.push_str(&format!(
        "\n{}: {} functions laid out, {} calls lead to them at once; {} functions of the profile \
         differ; {:.1} MB of rewritten text; {:.1} MB became {:.1} MB\n",
        args.output.display(),
        made.functions,
        made.calls,
        fit.differing,
        made.text_bytes as f64 / 1e6,
        made.input_bytes as f64 / 1e6,
        made.output_bytes as f64 / 1e6,
    ));
    end(text, &made.reasons, made.strippable, args.dry_run)
}
