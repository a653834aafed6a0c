//! Whether counts of blocks are those of the plugin: exact ones.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::boot::{Options, boot};
use super::reading::Executed;

/// Loads, and functions that they alone call. A second of sleep behind each has what they left to RCU done.
const COUNTED: [(&str, &str); 2] = [
    ("tcp 300", "tcp_*,__tcp_*,inet_*,ip_*,__ip_*"),
    ("epoll 300", "ep_*,do_epoll_*,unix_stream_*,eventpoll_*"),
];

/// What a timer calls: until its counters have been taken out, it goes on.
const TIMERS: [&str; 2] = ["tcp_orphan_update", "tcp_orphan_count_sum"];

const MODES: [&str; 2] = ["blocks", "edges"];

/// Counts in both modes and compares; false if a count differs.
pub fn run(options: &Options) -> Result<bool> {
    let mut script = String::new();
    for (load, functions) in COUNTED {
        for mode in MODES {
            let _ = write!(
                script,
                "load {load} >/dev/null; load mark 1 >/dev/null\n\
                 fettle kernel count --mode {mode} --json '{functions}' -- sh -c 'load {load}; sleep 1' >/tmp/counted\n\
                 load mark 0 >/dev/null; grep '^load' /tmp/counted; grep '^{{' /tmp/counted\n"
            );
        }
    }
    let (kernel, shown, counts) = boot(options, &script)?;
    let mut printed = shown.lines().filter(|line| line.starts_with('{'));
    let mut right = true;
    let all = COUNTED.iter().flat_map(|counted| MODES.map(|mode| (counted.0, mode)));
    for (number, (load, mode)) in all.enumerate() {
        let json = printed.next().with_context(|| format!("nothing was counted:\n{shown}"))?;
        let executed = std::fs::read_to_string(counts.with_extension(number.to_string()))
            .context("the blocks that the plugin counted")?;
        let compared = compare(&serde_json::from_str(json)?, &Executed::read(&executed)?)?;
        println!(
            "kernel-tune: {}, {load}, counters of {mode}: {} functions, {} blocks, {} of them executed, {} counts differ",
            kernel.release,
            compared.functions,
            compared.blocks,
            compared.executed,
            compared.different.len(),
        );
        compared.different.iter().take(8).for_each(|line| println!("  {line}"));
        right &= compared.different.is_empty() && compared.executed > 0;
    }
    ensure!(
        shown.matches(": ok").count() == COUNTED.len() * MODES.len(),
        "a load failed:\n{shown}"
    );
    Ok(right)
}

/// What a comparison has shown.
struct Compared {
    functions: usize,
    blocks: usize,
    executed: usize,
    different: Vec<String>,
}

/// Each block's count with how often the plugin saw its first instruction, in rewritten text.
fn compare(counted: &Value, executed: &Executed) -> Result<Compared> {
    let functions = counted["executions"].as_array().context("there are no executions")?;
    let mut compared =
        Compared { functions: functions.len(), blocks: 0, executed: 0, different: Vec::new() };
    let timers = |function: &&Value| TIMERS.iter().any(|timer| function["name"] == *timer);
    for function in functions.iter().filter(|function| !timers(function)) {
        for block in function["blocks"].as_array().context("a function has no blocks")? {
            let text = block["rewritten"].as_str().context("a block has no rewritten text")?;
            let rewritten = u64::from_str_radix(text.trim_start_matches("0x"), 16)?;
            let count = block["count"].as_u64().context("a block has no count")?;
            let seen = executed.of(rewritten);
            compared.blocks += 1;
            compared.executed += usize::from(seen > 0);
            if seen != count {
                let (name, at) = (&function["name"], &block["address"]);
                compared.different.push(format!("{name} {at}: counted {count}, executed {seen}"));
            }
        }
    }
    Ok(compared)
}
