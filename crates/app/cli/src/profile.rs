//! `fettle profile`: profiles of `fettle tune --save`, put together and looked at.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use fettle_tune::{Saved, offline};
use serde_json::json;

use crate::output::{self, plural};

/// Put profiles together, make them of traces, show what is in them
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle profile merge monday.profile sunday.profile --weight 5 --weight 2 -o week.profile
  fettle profile of *.fettle -o cc1.profile
  fettle profile show week.profile

Exit status: 0 done; 1 done, with something left out; 2 error.")]
pub struct ProfileArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add up the counts of profiles
    Merge {
        /// The profiles
        #[arg(required = true)]
        profiles: Vec<PathBuf>,
        /// What each one's counts are multiplied by, in the same order [default: 1]
        #[arg(long, value_name = "FACTOR")]
        weight: Vec<f64>,
        /// Where to
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a profile of traces that count blocks (fettle record --mode edges), of one run or of many
    Of {
        /// The trace folders
        #[arg(required = true)]
        traces: Vec<PathBuf>,
        /// Where to
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show which modules and functions a profile has
    Show {
        /// The profile
        profile: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs `fettle profile`.
pub fn run(args: &ProfileArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Merge { profiles, weight, output, json } => {
            if !weight.is_empty() && weight.len() != profiles.len() {
                bail!(
                    "--weight is given {} for {}: one for each, or none",
                    plural(weight.len() as u64, "time", "times"),
                    plural(profiles.len() as u64, "profile", "profiles")
                );
            }
            if let Some(wrong) = weight.iter().find(|w| !(w.is_finite() && **w > 0.0)) {
                bail!("--weight {wrong}: a factor is above 0");
            }
            let mut all = Vec::new();
            for (at, path) in profiles.iter().enumerate() {
                let saved = Saved::read(path).map_err(anyhow::Error::msg)?;
                all.push((saved, weight.get(at).copied().unwrap_or(1.0)));
            }
            let (merged, differing) = Saved::merge(all);
            write(&merged, output, (differing, &[]), *json)
        }
        Command::Of { traces, output, json } => {
            let (mut all, mut left) = (Vec::new(), Vec::new());
            for path in traces {
                let trace = output::open(path)?;
                let (saved, without) = offline::profile_of(&trace)?;
                all.push((saved, 1.0));
                left.extend(without);
            }
            left.sort();
            left.dedup();
            let (merged, differing) = Saved::merge(all);
            if merged.modules.is_empty() {
                let why = left.first().map_or("nothing that was counted ran", |(_, why)| why);
                bail!("the traces make no profile: {why}");
            }
            write(&merged, output, (differing, &left), *json)
        }
        Command::Show { profile, json } => {
            let saved = Saved::read(profile).map_err(anyhow::Error::msg)?;
            output::print(&shown(&saved, *json))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn write(
    saved: &Saved,
    to: &std::path::Path,
    (differing, left): (usize, &[(PathBuf, String)]),
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    saved.write(to).map_err(anyhow::Error::msg).context("the profile was not written")?;
    let functions: usize = saved.modules.iter().map(|module| module.functions.len()).sum();
    let text = if as_json {
        let left: Vec<_> =
            left.iter().map(|(path, why)| json!({ "path": path, "why": why })).collect();
        let value = json!({
            "version": 1, "output": to, "modules": saved.modules.len(), "functions": functions,
            "differing": differing, "left_out": left,
        });
        format!("{value}\n")
    } else {
        let mut text = format!(
            "{}: {} of {}\n",
            to.display(),
            plural(functions as u64, "function", "functions"),
            plural(saved.modules.len() as u64, "module", "modules")
        );
        if differing > 0 {
            let differing = plural(differing as u64, "function differs", "functions differ");
            text.push_str(&format!("{differing} although the build is the same: left out\n"));
        }
        for (path, why) in left {
            text.push_str(&format!("{} is left out: {why}\n", path.display()));
        }
        text
    };
    output::print(&text)?;
    Ok(ExitCode::from(u8::from(differing > 0 || !left.is_empty())))
}

fn shown(saved: &Saved, as_json: bool) -> String {
    let mut modules = Vec::new();
    let mut text = String::new();
    for module in &saved.modules {
        let count = |f: &fettle_tune::SavedFunction| {
            f.blocks.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count))
        };
        let mut functions: Vec<_> = module.functions.iter().map(|f| (count(f), f)).collect();
        functions.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let all = functions.iter().fold(0u64, |sum, (count, _)| sum.saturating_add(*count)).max(1);
        text.push_str(&format!(
            "{} ({}): {}\n",
            module.path,
            module.build,
            plural(functions.len() as u64, "function", "functions")
        ));
        const MOST: usize = 15;
        for (count, function) in functions.iter().take(MOST) {
            let name = function
                .name
                .as_deref()
                .map_or_else(|| format!("{:#x}", function.entry), fettle_demangle::demangle);
            let share = *count as f64 / all as f64 * 100.0;
            text.push_str(&format!("{share:8.1} %  {name}\n"));
        }
        if functions.len() > MOST {
            text.push_str(&format!("{:>10}  {} more\n", "", functions.len() - MOST));
        }
        let functions: Vec<_> = functions
            .iter()
            .map(|(count, f)| json!({ "entry": f.entry, "name": f.name, "block_passages": count }))
            .collect();
        modules.push(json!({ "path": module.path, "build": module.build, "functions": functions }));
    }
    match as_json {
        true => format!("{}\n", json!({ "version": 1, "modules": modules })),
        false => text,
    }
}
