//! A. Tamches and B. Miller, *Dynamic Kernel I-Cache Optimization*, 2001.

use anyhow::{Context, Result};

use super::paper::Paper;
use super::sources::Sources;
use super::table::{Row, Table, Value};

pub const PAPER: Paper = Paper {
    name: "positioning",
    title: "Run-time code positioning (2001)",
    tables: |sources| vec![speed(sources)],
    missing: &[
        (
            "Figures 4 to 7",
            "maps of the cache and parts of functions: `fettle layout` and `fettle kernel tune` print them for any program and kernel",
        ),
        (
            "Section 5.3 in a kernel",
            "the time of a kernel's TCP reception cannot be compared in a guest that is emulated: `cargo xtask bench kernel-tune` counts its instructions and models its caches",
        ),
    ],
};

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
