//! How near the transport library comes to the best way: messages of one size, and of all sizes, from a process to
//! another on one processor and on two, by each fixed way and by the way that the sender chooses.
//!
//! Ways take turns, so that what else the machine does disturbs all of them alike. A time is of all of a run, the
//! choosing at its beginning too.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fettle_stats::median;

use crate::repo;

/// How much to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Turns of each way
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Seconds of a run
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Only these loads, such as 64,mixed
    #[arg(long, value_delimiter = ',')]
    loads: Vec<String>,
}

const WAYS: [&str; 4] = ["socket", "ring", "spin", "read"];
const LOADS: [&str; 11] = [
    "64", "256", "1024", "4096", "16384", "65536", "262144", "1048576", "4194304", "mixed",
    "moving",
];

/// Measures, and says by how much the choice misses the best fixed way.
pub fn run(options: &Options) -> Result<bool> {
    let folder = repo::root().join("target/transport");
    std::fs::create_dir_all(&folder)?;
    let program = compile(&folder)?;
    println!(
        "{:>8} {:5}{:>11}{:>11}{:>11}{:>11}{:>11}  {:7}chosen / best",
        "bytes", "CPUs", "socket ms", "ring", "spin", "read", "chosen", "best"
    );
    for load in LOADS.iter().filter(|load| is_wanted(options, load)) {
        for (cpus, receiver) in [(1, "0"), (2, "1")] {
            if *load == "moving" && cpus == 1 {
                continue;
            }
            let times = measure(&program, load, receiver, options)?;
            let [fixed @ .., chosen] = &times[..] else { continue };
            let best = (0..WAYS.len()).min_by(|a, b| fixed[*a].total_cmp(&fixed[*b])).unwrap_or(0);
            let shown: String = times.iter().map(|ns| format!("{:>11.3}", ns / 1e6)).collect();
            let ratio = chosen / fixed[best];
            println!("{load:>8} {cpus:5}{shown}  {:7}{ratio:.3}", WAYS[best]);
        }
    }
    Ok(true)
}

fn is_wanted(options: &Options, load: &str) -> bool {
    options.loads.is_empty() || options.loads.iter().any(|wanted| wanted == load)
}

/// Nanoseconds of a round by each way, and by the chosen one: medians of turns.
fn measure(program: &Path, load: &str, receiver: &str, options: &Options) -> Result<Vec<f64>> {
    let bytes = load.parse::<u64>().map_or(32 << 20, |size| (size * 2000).clamp(128_000, 32 << 20));
    let ways: Vec<&str> = WAYS.into_iter().chain(["auto"]).collect();
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..options.turns {
        for (way, times) in ways.iter().zip(&mut times) {
            let mut command = Command::new(program);
            command.args([way, load, &bytes.to_string(), "0", receiver, "1000000"]);
            let output = command.arg(options.seconds.to_string()).output()?;
            ensure!(output.status.success(), "{way} {load}: {}", output.status);
            let text = String::from_utf8(output.stdout)?;
            let rounds: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
            ensure!(!rounds.is_empty(), "{way} {load}: no round");
            times.push(rounds.iter().sum::<f64>() / rounds.len() as f64);
        }
    }
    Ok(times.iter().map(|times| median(times)).collect())
}

fn compile(folder: &Path) -> Result<PathBuf> {
    let runtime = repo::root().join("runtime");
    let program = folder.join("measure");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-I"]).arg(runtime.join("sensor")).arg("-o").arg(&program);
    cc.args(
        ["measure.c", "transport.c", "choose.c"].map(|file| runtime.join("transport").join(file)),
    );
    let status = cc.status().context("cc cannot be started")?;
    ensure!(status.success(), "the transport library cannot be compiled");
    Ok(program)
}
