//! `fettle cache`: rewritten code that is kept for later recordings.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use fettle_record::cache::Folder;
use fettle_record::cache::folder::DEFAULT_LIMIT;
use serde_json::json;

use crate::output;

/// Show or clear the rewritten code kept for later recordings
///
/// `fettle record` lifts, rewrites and checks a file once and keeps the result, up to 1 GiB in
/// all. Another version of the file or of Fettle, another mode or choice of functions is another
/// entry.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print JSON with a version field
    #[arg(long)]
    json: bool,
    /// The folder [default: $XDG_CACHE_HOME/fettle or ~/.cache/fettle]
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Remove all entries
    Clear,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = args.dir.clone().or_else(fettle_record::cache::default_path);
    let path = path.context(
        "no folder for the cache: XDG_CACHE_HOME is not set, and there is no home folder",
    )?;
    let context = || format!("cannot use {}", path.display());
    let folder = match Folder::open(&path, DEFAULT_LIMIT) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        folder => Some(folder.with_context(context)?),
    };
    let text = match (&args.command, &folder) {
        (Some(Command::Clear), None) => "nothing to remove\n".to_owned(),
        (Some(Command::Clear), Some(folder)) => {
            format!("{} entries removed\n", folder.clear().with_context(context)?)
        }
        (None, folder) => {
            let entries = match folder {
                Some(folder) => folder.entries().with_context(context)?,
                None => Vec::new(),
            };
            let bytes: u64 = entries.iter().map(|e| e.size).sum();
            let count = entries.len();
            match args.json {
                true => {
                    let value = json!({
                        "version": 1, "path": path, "entries": count, "bytes": bytes,
                        "limit_bytes": DEFAULT_LIMIT,
                    });
                    format!("{value}\n")
                }
                false => format!(
                    "{}: {count} entries, {:.1} MB of at most {:.0} MB\n",
                    path.display(),
                    bytes as f64 / 1e6,
                    DEFAULT_LIMIT as f64 / 1e6,
                ),
            }
        }
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
