//! How fast programs are lifted and checked, and how much of them is: the tool's own account, and
//! its processor time measured from outside.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};

use super::stats;
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

/// Lifts each file a few times.
pub fn run(options: &Options) -> Result<bool> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    let files = match options.files.is_empty() {
        true => largest()?,
        false => options.files.clone(),
    };
    let folder = repo::target_folder("bench/run")?;
    let mut all_well = true;
    for file in &files {
        let megabytes = file.metadata()?.len() as f64 / 1e6;
        let mut seconds = Vec::new();
        let mut said = String::new();
        for _ in 0..options.rounds {
            let mut command = Command::new(&binary);
            command.arg("lift").arg(file);
            let before = cpu()?;
            let start = Instant::now();
            let outcome =
                proc::start(command, &folder, "lift", None)?.finish(Duration::from_secs(600))?;
            seconds.push((cpu()? - before, start.elapsed().as_secs_f64()));
            all_well &= outcome.ending == Ending::Exit(0) || outcome.ending == Ending::Exit(1);
            said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        }
        let cpu: Vec<f64> = seconds.iter().map(|(cpu, _)| *cpu).collect();
        let wall: Vec<f64> = seconds.iter().map(|(_, wall)| *wall).collect();
        println!(
            "{} ({megabytes:.1} MB): {:.3} s CPU, {:.3} s elapsed\n{}",
            file.display(),
            stats::median(&cpu),
            stats::median(&wall),
            said.trim_end()
        );
    }
    Ok(all_well)
}

fn cpu() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
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
