//! What `--analysis what-if` predicts of a lock, against what the same edit then brings.
//!
//! `benches/locks/sections.c` is recorded as it is, executed as it is and with the edit, in turns. Share
//! of the time saved, predicted and measured, side by side: medians.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::coz::Coz;
use crate::proc;

/// An edit of the program, and the column that predicts it.
struct Edit {
    name: &'static str,
    /// How long sections are, in rounds of a multiplication; how long the work between them; whether the mutex
    /// is divided.
    before: [u32; 3],
    after: [u32; 3],
    column: &'static str,
}

/// Sections halved, emptied, divided, where the mutex is contended much, some, and hardly.
const EDITS: [Edit; 6] = [
    edit("all inside, half as long", [4000, 0, 0], [2000, 0, 0], "half as long"),
    edit("much inside, half as long", [4000, 2000, 0], [2000, 2000, 0], "half as long"),
    edit("a third inside, half as long", [2000, 4000, 0], [1000, 4000, 0], "half as long"),
    edit("much inside, no time", [4000, 2000, 0], [0, 2000, 0], "no time"),
    edit("much inside, divided in two", [4000, 2000, 0], [4000, 2000, 1], "divided in two"),
    edit("a third inside, divided in two", [2000, 4000, 0], [2000, 4000, 1], "divided in two"),
];

const fn edit(name: &'static str, before: [u32; 3], after: [u32; 3], column: &'static str) -> Edit {
    Edit { name, before, after, column }
}

/// So far may a prediction be off, as a share of the run's time.
const MOST_OFF: f64 = 0.10;
/// Rounds of each thread.
const ROUNDS: u32 = 20_000;
const THREADS: u32 = 2;

/// Rounds under Coz, whose experiments take half a second each.
const COZ_ROUNDS: u32 = 100_000;

/// Compares all edits; false if a prediction is off by more than it may be.
pub fn run(fettle: &Path, program: &Path, source: &Path, rounds: usize) -> Result<bool> {
    let folder = program.parent().context("a folder")?;
    let coz = Coz::new(source, folder)?;
    println!("\n{:32} {:>10} {:>10} {:>10}", "edit", "predicted", "measured", "Coz");
    let mut right = true;
    for edit in &EDITS {
        let (mut predicted, mut before, mut after) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            predicted.extend(predict(fettle, program, folder, edit)?);
            before.push(measure(program, edit.before)?);
            after.push(measure(program, edit.after)?);
        }
        ensure!(!predicted.is_empty(), "{}: no recording has a wait for the lock", edit.name);
        let predicted = fettle_stats::median(&predicted);
        let measured = 1.0 - fettle_stats::median(&after) / fettle_stats::median(&before);
        let off = (predicted - measured).abs() > MOST_OFF;
        right &= !off;
        let mark = if off { "  off" } else { "" };
        // Coz knows faster lines, and no divided lock.
        let percent = match edit.column {
            "half as long" => Some(50),
            "no time" => Some(100),
            _ => None,
        };
        let coz = coz.as_ref().zip(percent);
        let coz =
            coz.map(|(coz, percent)| coz.predict(percent, &arguments(edit.before, COZ_ROUNDS)));
        let coz = coz.transpose()?.map_or(String::new(), |share| format!("{:9.1}%", 100.0 * share));
        let [predicted, measured] = [predicted, measured].map(|share| 100.0 * share);
        println!("{:32} {predicted:9.1}% {measured:9.1}% {coz:>10}{mark}", edit.name);
    }
    Ok(right)
}

fn arguments(edit: [u32; 3], rounds: u32) -> Vec<String> {
    let [inside, outside, halves] = edit;
    [THREADS, rounds, inside, outside, halves].map(|n| n.to_string()).into()
}

/// Nanoseconds that the program says it took.
fn measure(program: &Path, edit: [u32; 3]) -> Result<f64> {
    let output = Command::new(program).args(arguments(edit, ROUNDS)).output()?;
    ensure!(output.status.success(), "{}: {}", program.display(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
}

/// The share that the analysis says the edit would save, of the lock that was waited for longest; none where no
/// thread has waited, as may be where threads had one processor between them.
fn predict(fettle: &Path, program: &Path, folder: &Path, edit: &Edit) -> Result<Option<f64>> {
    let trace = folder.join("what-if.fettle");
    if trace.exists() {
        std::fs::remove_dir_all(&trace)?;
    }
    let mut record = Command::new(fettle);
    record.args(["record", "-q", "--locks", "-o"]).arg(&trace).arg("--").arg(program);
    proc::step(record.args(arguments(edit.before, ROUNDS)).stdout(std::process::Stdio::null()))?;
    let output = Command::new(fettle)
        .arg("requests")
        .arg(&trace)
        .args(["--analysis", "what-if", "--json"])
        .output()?;
    let found: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let table = &found["tables"][0];
    let columns = table["columns"].as_array().context("columns")?;
    let place = columns.iter().position(|column| column["name"] == edit.column);
    let place = place.with_context(|| format!("no column `{}`", edit.column))?;
    Ok(table["rows"][0][place].as_f64())
}
