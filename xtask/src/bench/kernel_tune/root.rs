//! One function of the kernel and all that it leads to: figures 4 to 7 of A. Tamches and B. Miller, *Dynamic Kernel
//! I-Cache Optimization* (2001), for the successor of what they laid out.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::boot::{Options, boot};
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

/// As the measurement of all that runs, with the root's group alone.
const SCRIPT: &str = "
load tcp 20 >/dev/null; load tcp 1000 >/dev/null
echo 'load: tcp before'; load tcp 1000 marked
nice -n 19 load tcp 100000000 >/dev/null 2>&1 &
loading=$!
fettle kernel tune --root ROOT --time 0.5 --no-compare --json >/tmp/tuned 2>/tmp/said
echo \"tuned: $? $(tail -n 1 /tmp/said)\"
echo \"json: $(tr -d '\\n' </tmp/tuned)\"
kill -9 $loading; wait $loading 2>/dev/null; sleep 1
load tcp 20 >/dev/null; load tcp 1000 >/dev/null
echo 'load: tcp installed'; load tcp 1000 marked
fettle undo --kernel
load tcp 20 >/dev/null; load tcp 1000 >/dev/null
echo 'load: tcp after'; load tcp 1000 marked
";

/// Measures in a guest.
pub fn measure(options: &Options) -> Result<Measured> {
    let (_, shown, counts) = boot(options, &SCRIPT.replace("ROOT", ROOT))?;
    let counts = std::fs::read_to_string(&counts).context("what the plugin counted")?;
    let loads = reading::read(&shown, &counts)?;
    let json = shown.lines().find_map(|line| line.strip_prefix("json: "));
    let json = json.with_context(|| format!("the guest did not come to its end:\n{shown}"))?;
    let tuned = serde_json::from_str(json).with_context(|| format!("what it printed: {json}"))?;
    ensure!(loads.len() == 1, "the load was not measured:\n{shown}");
    Ok(Measured { tuned, load: loads.into_iter().next().context("no load")? })
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<bool> {
    let Measured { tuned, load } = measure(options)?;
    let rows = tuned["group"].as_array().context("no group")?;
    let sum = |field: &str| rows.iter().filter_map(|row| row[field].as_u64()).sum::<u64>();
    println!(
        "{ROOT}: {} functions, {} bytes hot in {} chains, {} cold; lines of hot code {}, now {}",
        rows.len(),
        sum("hot_bytes"),
        sum("chains"),
        sum("cold_bytes"),
        tuned["cache_before"]["lines"],
        tuned["cache_after"]["lines"],
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
