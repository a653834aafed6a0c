//! The fuzz targets. Each also runs for a second inside `cargo test`; here they run longer.

use std::process::Command;

use anyhow::{Context, Result};

use crate::{proc, repo};

/// Which targets and for how long.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Only targets whose name contains this
    #[arg(default_value = "")]
    pub filter: String,
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
}

/// Runs every target of the `fuzz` folder, one after the other, with `cargo fuzz`.
pub fn run(options: &Options) -> Result<bool> {
    let folder = repo::root().join("fuzz/fuzz_targets");
    if !folder.is_dir() {
        println!("fuzz: no targets");
        return Ok(true);
    }
    let mut targets: Vec<String> = std::fs::read_dir(&folder)?
        .filter_map(|item| Some(item.ok()?.path().file_stem()?.to_string_lossy().into_owned()))
        .filter(|name| name.contains(&options.filter))
        .collect();
    targets.sort();
    for target in &targets {
        println!("fuzz: {target}, {} s", options.seconds);
        let mut cargo = Command::new("cargo");
        cargo
            .args(["+nightly", "fuzz", "run", target, "--"])
            .arg(format!("-max_total_time={}", options.seconds))
            .current_dir(repo::root());
        proc::step(&mut cargo).with_context(|| format!("target {target}"))?;
    }
    println!("fuzz: {} targets, nothing found", targets.len());
    Ok(true)
}
