//! A. Tamches and B. Miller, *Dynamic Kernel I-Cache Optimization*, 2001.

use anyhow::{Context, Result};

use super::paper::Paper;
use super::sources::Sources;
use super::table::{Row, Table, Value};
use crate::bench::kernel_tune::Counts;

pub const PAPER: Paper = Paper {
    name: "positioning",
    page: "positioning",
    title: "Run-time code positioning (2001)",
    tables: |sources| vec![map(sources), group(sources), gained(sources), speed(sources)],
    missing: &[
        (
            "Figures 4 and 5 set by set",
            "`fettle kernel tune --root FUNCTION --json` prints how many lines of hot code each set has",
        ),
        (
            "Figure 7, times",
            "a guest that is emulated has no times to compare, and no processor here has counters: misses are modelled, instructions counted",
        ),
    ],
};

const KERNEL: &str = "cargo xtask bench kernel-tune --parts root";

/// Figures 4 and 5: how hot code lies on the cache.
fn map(sources: &Sources) -> Result<Table> {
    let tuned = &sources.kernel_root()?.tuned;
    let row = |what: &str, paper: f64, ours: Option<f64>| Row {
        what: what.to_owned(),
        paper: Some(paper),
        ours: ours.map(Value::of),
        peer: None,
    };
    let crowded = |when: &str| {
        let (sets, ways) = (tuned[when]["sets"].as_array()?, tuned[when]["ways"].as_u64()?);
        Some(sets.iter().filter_map(serde_json::Value::as_u64).filter(|n| *n > ways).count() as f64)
    };
    Ok(Table {
        name: "Figures 4 and 5",
        about: "Lines of the cache with hot code of the TCP reception's group, and sets with more than they hold",
        note: "Both caches have 512 lines: the paper's of 32 bytes, mapped directly; here 64 bytes in sets of eight. The root is `tcp_v4_rcv`, and \
               its group has what is called by pointers, too, which the paper's had not.",
        less_is_better: true,
        command: KERNEL.to_owned(),
        rows: vec![
            row("lines before", 244.0, tuned["cache_before"]["lines"].as_f64()),
            row("lines, laid out", 132.0, tuned["cache_after"]["lines"].as_f64()),
            row("sets with conflicts, laid out", 0.0, crowded("cache_after")),
        ],
    })
}

/// Figure 6: the group's functions.
fn group(sources: &Sources) -> Result<Table> {
    let rows = sources.kernel_root()?.tuned["group"].as_array().context("no group")?;
    let sum = |field: &str| rows.iter().filter_map(|row| row[field].as_u64()).sum::<u64>() as f64;
    let row = |what: &str, paper: f64, ours: f64| Row {
        what: what.to_owned(),
        paper: Some(paper),
        ours: Some(Value::of(ours)),
        peer: None,
    };
    Ok(Table {
        name: "Figure 6",
        about: "The group of the TCP reception",
        note: "Linux' reception leads through the socket to the wake-up of the reader; Solaris' stops where the next module is called by a pointer.",
        less_is_better: false,
        command: KERNEL.to_owned(),
        rows: vec![
            row("functions", 22.0, rows.len() as f64),
            row("bytes, hot", 4260.0, sum("hot_bytes")),
            row("chains that cover them", 34.0, sum("chains")),
            row("bytes, cold", 14624.0, sum("cold_bytes")),
        ],
    })
}

/// Figure 7: what it brought.
fn gained(sources: &Sources) -> Result<Table> {
    let load = &sources.kernel_root()?.load;
    let ratio = |of: fn(&Counts) -> u64| {
        Some(Value::of(of(&load.installed) as f64 / (of(&load.before) as f64).max(1.0)))
    };
    let row = |what: &str, paper: Option<f64>, ours: Option<Value>| Row {
        what: what.to_owned(),
        paper,
        ours,
        peer: None,
    };
    Ok(Table {
        name: "Figure 7",
        about: "Laid out over original, 1,000 messages over loopback and back, the kernel alone",
        note: "The paper has stall times of each call of the root; here are misses of a modelled cache of 32 KiB, ways that do not go on to the next \
               instruction, and instructions, of all that the kernel does.",
        less_is_better: true,
        command: KERNEL.to_owned(),
        rows: vec![
            row("instruction cache (stalls; modelled misses)", Some(0.646), ratio(|c| c.misses)),
            row("branches (stalls of mispredicted; taken)", Some(0.526), ratio(|c| c.jumps)),
            row("instructions", None, ratio(|c| c.kernel)),
        ],
    })
}

/// Section 5.3: the time of the group that was laid out anew.
fn speed(sources: &Sources) -> Result<Table> {
    let report = sources.tuned()?;
    let programs = report["programs"].as_array().context("no program was measured")?;
    let rows = programs.iter().filter_map(|program| {
        let measured = &program["tune"]["measured"];
        let interval = measured["low"].as_f64().zip(measured["high"].as_f64());
        Some(Row {
            what: program["program"].as_str()?.to_owned(),
            // 17.6 % less time in the kernel's TCP reception, as the paper's best.
            paper: Some(1.0 - 0.176),
            ours: measured["ratio"].as_f64().map(|value| Value { value, interval }),
            peer: program["bolt"]["ratio"].as_f64().map(|v| ("BOLT".to_owned(), Value::of(v))),
        })
    });
    Ok(Table {
        name: "Section 5.3",
        about: "CPU time for a unit of work with hot code laid out anew, over the original",
        note: "The paper lays out a kernel's TCP reception; here are programs of Debian under load.",
        less_is_better: true,
        command: "cargo xtask bench tune".to_owned(),
        rows: rows.collect(),
    })
}
