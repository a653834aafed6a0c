//! How fast programs are lifted, rewritten and checked, and how much of them is: the tool's own
//! account, and its CPU time on one core, measured from outside. Beside it the time of a decoder
//! that does nothing else, in turns: machines differ, and so does one from minute to minute.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::measure;
use crate::proc::{self, Ending};
use crate::{fettle, repo};

/// What to lift.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Programs and libraries; without any, the largest of the machine's own
    pub files: Vec<PathBuf>,
    /// Times that each is lifted
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

/// The steps after which `fettle lift` can stop, and what has been done then.
const STEPS: [(&str, &str); 4] = [
    ("parse", "image"),
    ("lift", "lift"),
    ("emit", "lift + emit"),
    ("check", "lift + emit + check"),
];

/// What the decoder is asked for, and what that is.
const YARDSTICKS: [(&str, &str); 2] =
    [("decode", "iced-x86, decoding"), ("info", "iced-x86, with registers")];

/// Lifts each file a few times: for the tool's own account, and on one core up to each step.
pub fn run(options: &Options) -> Result<bool> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    let files = match options.files.is_empty() {
        true => largest()?,
        false => options.files.clone(),
    };
    let folder = repo::target_folder("bench/run")?;
    let decoder = fettle::example("fettle-lift", "iced")?;
    let mut all_well = true;
    for file in &files {
        let mut command = Command::new(&binary);
        command.args(["lift", "--json"]).arg(file);
        let outcome =
            proc::start(command, &folder, "lift", None)?.finish(Duration::from_secs(600))?;
        if outcome.ending == Ending::Exit(2) {
            println!(
                "{}: left out: {}",
                file.display(),
                String::from_utf8_lossy(&outcome.stderr).trim_end()
            );
            continue;
        }
        all_well &= outcome.ending == Ending::Exit(0) || outcome.ending == Ending::Exit(1);
        let said: serde_json::Value = serde_json::from_slice(&outcome.stdout)?;
        let code = said["code_bytes"].as_f64().context("bytes of code")? / 1e6;
        println!(
            "{}: {code:.1} MB of code, {} of {} functions lifted",
            file.display(),
            said["lifted"],
            said["functions"],
        );
        // Rounds outside, steps inside: a machine that gets slower does so for all.
        let mut seconds = [const { Vec::new() }; STEPS.len() + YARDSTICKS.len()];
        for _ in 0..options.rounds {
            let ours = STEPS.iter().map(|(step, _)| {
                let mut command = Command::new(&binary);
                command.args(["lift", "--until", step]);
                command
            });
            let decoding = YARDSTICKS.iter().map(|(step, _)| {
                let mut command = Command::new(&decoder);
                command.arg(step);
                command
            });
            for (mut command, seconds) in ours.chain(decoding).zip(&mut seconds) {
                command.arg(file).env("RAYON_NUM_THREADS", "1");
                let (outcome, used) = measure::timed(command, &folder, Duration::from_secs(600))?;
                seconds.push(used);
                all_well &= outcome.ending == Ending::Exit(0);
            }
        }
        let medians = seconds.map(|s| fettle_stats::median(&s));
        println!("  {:24}  {:.3} s CPU", STEPS[0].1, medians[0]);
        for ((_, done), median) in STEPS.iter().chain(&YARDSTICKS).zip(medians).skip(1) {
            // Reading the image is another matter.
            let own = median - medians[0];
            println!("  {done:24}  {own:.3} s CPU, {:5.1} MB/s and core", code / own);
        }
    }
    Ok(all_well)
}

/// The eight largest programs of the machine's own.
fn largest() -> Result<Vec<PathBuf>> {
    let mut found: Vec<(u64, PathBuf)> = std::fs::read_dir("/usr/bin")?
        .filter_map(|item| {
            let path = std::fs::canonicalize(item.ok()?.path()).ok()?;
            let mut magic = [0; 4];
            std::io::Read::read_exact(&mut std::fs::File::open(&path).ok()?, &mut magic).ok()?;
            (magic == *b"\x7fELF").then_some((path.metadata().ok()?.len(), path))
        })
        .collect();
    found.sort();
    found.dedup();
    ensure!(!found.is_empty(), "no programs found");
    Ok(found.into_iter().rev().take(8).map(|(_, path)| path).collect())
}
