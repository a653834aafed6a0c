//! `fettle instrument`: a program, library or object file that records itself.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fettle_instrument::Options;
use serde_json::json;

use crate::mode::ModeArg;
use crate::select::SelectArgs;

/// Arguments of `fettle instrument`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  fettle instrument ./server -o server.probed\n  FETTLE_RECORD=run.fettle ./server.probed && fettle report run.fettle\n  fettle instrument --mode count --only 'sqlite3*' libsqlite3.so.0 -o probed/libsqlite3.so.0\n  for o in *.o; do fettle instrument $o -o $o; done; cc *.o -o server\n\nWithout FETTLE_RECORD the new file runs the old code. Each run needs a folder of its own;\nprograms that a recorded program starts record into its folder if they are instrumented too.\nThe new file may be stripped, unless this command says otherwise."
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
    let options = Options {
        input: args.input.clone(),
        output: args.output.clone(),
        mode: args.mode.into(),
        selection: args.select.selection()?,
        dry_run: args.dry_run,
    };
    let made = fettle_instrument::instrument(&options)?;
    let left_alone: u64 = made.reasons.iter().map(|(_, n)| n).sum();
    if args.json {
        let reasons: std::collections::BTreeMap<_, _> = made.reasons.iter().copied().collect();
        let value = json!({
            "version": 1, "input": args.input, "output": args.output, "written": !args.dry_run,
            "functions": made.functions, "skipped": left_alone, "reasons": reasons,
            "new_code_bytes": made.text_bytes, "input_bytes": made.input_bytes,
            "output_bytes": made.output_bytes, "strippable": made.strippable,
        });
        crate::output::print(&format!("{value}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!(
        "{}: {} of {} functions probed, {:.1} MB of new code; {:.1} MB became {:.1} MB\n",
        args.output.display(),
        made.functions,
        made.functions + left_alone,
        made.text_bytes as f64 / 1e6,
        made.input_bytes as f64 / 1e6,
        made.output_bytes as f64 / 1e6,
    );
    for (reason, count) in &made.reasons {
        text.push_str(&format!("  {count:6}  {reason}\n"));
    }
    if !made.strippable {
        text.push_str(
            "note: do not strip this file: it has no room for more program headers where strip \
             looks for them\n",
        );
    }
    if args.dry_run {
        text.push_str("nothing was written (--dry-run)\n");
    }
    crate::output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
