//! The same thesis, chapter 7: Cibyl, MIPS executables as Java bytecode.

use anyhow::{Context, Result};
use serde_json::Value as Json;

use super::paper::Paper;
use super::sources::Sources;
use super::table::{Row, Table, Value};

pub const PAPER: Paper = Paper {
    name: "cibyl",
    title: "Cibyl: MIPS executables on a JVM (2008)",
    tables: |sources| vec![java(sources), native(sources)],
    missing: &[
        (
            "Table 7.1",
            "sizes of classes: `fettle jar --check` has them, no table is made of them yet",
        ),
        (
            "Table 7.3, ADPCM and PEGWIT",
            "Mediabench is not free; SQLite, Lua, bzip2 and zlib stand for it",
        ),
        ("Figures 8.3 and 8.4", "the optimisations of chapter 8 are not measured one by one yet"),
    ],
};

/// Table 7.2: the same program in Java.
fn java(sources: &Sources) -> Result<Table> {
    let report = sources.jars()?;
    let rows = [("life", "Game of Life", 0.87), ("astar", "A*", 1.39)];
    let rows = rows.map(|(name, what, paper)| Row {
        what: what.to_owned(),
        paper: Some(paper),
        ours: warm(report, name, "plain"),
        peer: None,
    });
    Ok(Table {
        name: "Table 7.2",
        about: "Time of a translated program on a JVM, over the same program written in Java",
        note: "The paper's JVM is Sun's JDK 1.5; here both are warm.",
        less_is_better: true,
        command: "cargo xtask bench jar".to_owned(),
        rows: rows.into(),
    })
}

/// Table 7.3: native programs.
fn native(sources: &Sources) -> Result<Table> {
    let report = sources.jars()?;
    let programs = report["programs"].as_array().context("no program was measured")?;
    let rows = programs.iter().filter_map(|program| {
        let name = program["name"].as_str()?;
        Some(Row {
            what: name.to_owned(),
            // PEGWIT without operations on files.
            paper: Some(5.64),
            ours: warm(report, name, "native"),
            peer: qemu(report, name).map(|v| ("QEMU".to_owned(), v)),
        })
    });
    Ok(Table {
        name: "Table 7.3",
        about: "Time of a translated program on a JVM, over the native program",
        note: "The paper's value is that of PEGWIT without operations on files, its best; the peer is QEMU's user mode.",
        less_is_better: true,
        command: "cargo xtask bench jar".to_owned(),
        rows: rows.collect(),
    })
}

fn seconds(report: &Json, program: &str, begin: &str) -> Option<Vec<f64>> {
    let programs = report["programs"].as_array()?;
    let times = programs.iter().find(|p| p["name"] == program)?["cpu_s"].as_object()?;
    let (_, times) = times.iter().find(|(variant, _)| variant.starts_with(begin))?;
    Some(times.as_array()?.iter().filter_map(Json::as_f64).collect())
}

/// The second half of the rounds, when the JVM has compiled what it will, over a baseline.
fn warm(report: &Json, program: &str, baseline: &str) -> Option<Value> {
    let (jar, base) = (seconds(report, program, "jar")?, seconds(report, program, baseline)?);
    let half = |times: &[f64]| fettle_stats::median(&times[times.len() / 2..]);
    Some(Value::of(half(&jar) / half(&base))).filter(|v| v.value.is_finite())
}

fn qemu(report: &Json, program: &str) -> Option<Value> {
    let (qemu, base) = (seconds(report, program, "qemu")?, seconds(report, program, "native")?);
    Some(Value::of(fettle_stats::median(&qemu) / fettle_stats::median(&base)))
        .filter(|v| v.value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_rounds_are_compared() {
        let report = serde_json::json!({ "programs": [{ "name": "a", "cpu_s": {
            "native": [1.0, 1.0], "jar, java": [9.0, 2.0], "qemu": [3.0, 3.0] } }] });
        assert_eq!(warm(&report, "a", "native"), Some(Value::of(2.0)));
        assert_eq!(qemu(&report, "a"), Some(Value::of(3.0)));
        assert_eq!(warm(&report, "a", "plain"), None);
    }
}
