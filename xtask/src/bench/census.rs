//! How fast `fettle census` counts, on one core, by the C files of Debian's kernel source.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{census, fettle, proc};

/// What to count.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// A folder of source code; without one, `kernel`, `mm` and `fs` of Debian's linux-source-6.1
    pub folder: Option<PathBuf>,
    /// Times that it is counted
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Megabytes a second below which the figure is missed
    #[arg(long, default_value_t = 20.0)]
    pub least: f64,
}

/// Counts everything in memory a few times, and takes the median.
pub fn run(options: &Options) -> Result<bool> {
    let folder = match &options.folder {
        Some(folder) => folder.clone(),
        None => census::kernel_source("6.1")?,
    };
    let speed = fettle::example("fettle-census", "speed")?;
    let said = proc::output_of(Command::new(speed).arg(&folder).arg(options.rounds.to_string()))?;
    let found: serde_json::Value = serde_json::from_str(&said)?;
    let speed = found["megabytes_a_second"].as_f64().context("a speed")?;
    println!(
        "{}: {} files, {} MB, {} operations: {speed} MB a second on one core (wanted: {})",
        folder.display(),
        found["files"],
        found["megabytes"],
        found["sites"],
        options.least
    );
    Ok(speed >= options.least)
}
