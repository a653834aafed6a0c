//! One function of the kernel and all that it leads to: figures 4 to 7 of A. Tamches and B. Miller, *Dynamic Kernel
//! I-Cache Optimization* (2001), for the successor of what they laid out.

use anyhow::{Context, Result};
use serde_json::Value;

use super::boot::{MEASURE, Options, boot};
use super::reading::{self, Load};

/// The successor of Solaris' `tcp_rput_data`.
pub const ROOT: &str = "tcp_v4_rcv";

/// What was measured.
pub struct Measured {
    /// What `fettle kernel tune --json` printed.
    pub tuned: Value,
    /// The load before, while, and after.
    pub load: Load,
}

/// Measures in a guest.
pub fn measure(options: &Options) -> Result<Measured> {
    let script = format!("{MEASURE}measure tcp 1000 --root {ROOT} --json\n");
    let (_, shown, counts) = boot(options, &script)?;
    let counts = std::fs::read_to_string(&counts).context("what the plugin counted")?;
    let load = reading::read(&shown, &counts)?.into_iter().next();
    let load = load.with_context(|| format!("the load was not measured:\n{shown}"))?;
    // Behind the status, which is 0.
    let json = load.said.trim_start_matches("0 ");
    let tuned = serde_json::from_str(json).with_context(|| format!("what it printed: {json}"))?;
    Ok(Measured { tuned, load })
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<bool> {
    let Measured { tuned, load } = measure(options)?;
    let rows = tuned["group"].as_array().context("no group")?;
    let sum = |field: &str| rows.iter().filter_map(|row| row[field].as_u64()).sum::<u64>();
    println!(
        "{ROOT}: {} functions, {} bytes hot in {} chains, {} cold; lines of hot code {}, now {}; {} indirect calls \
         promoted",
        rows.len(),
        sum("hot_bytes"),
        sum("chains"),
        sum("cold_bytes"),
        tuned["cache_before"]["lines"],
        tuned["cache_after"]["lines"],
        tuned["promoted_calls"],
    );
    let ratio = |of: fn(&reading::Counts) -> u64| {
        of(&load.installed) as f64 / (of(&load.before) as f64).max(1.0)
    };
    println!(
        "  of before: misses {:.3}, taken jumps {:.3}, instructions {:.4}",
        ratio(|c| c.misses),
        ratio(|c| c.jumps),
        ratio(|c| c.kernel),
    );
    Ok(ratio(|c| c.misses) < 1.0)
}
