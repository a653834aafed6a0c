//! S. Kågström et al., *The application kernel approach*, 2006.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::paper::Paper;
use super::table::{Row, Table, Value};
use crate::{apt, proc, repo};

pub const PAPER: Paper = Paper {
    name: "application-kernel",
    title: "The application kernel (2006)",
    tables: |_| vec![lines(), complexity()],
    missing: &[(
        "Tables II to IV, figures 5 to 7",
        "times on lent processors: a guest that is emulated has no times worth a table; `cargo xtask smp` counts what it does",
    )],
};

/// Table V: lines of code.
fn lines() -> Result<Table> {
    apt::ensure(&["sloccount".to_owned()])?;
    let count = |folder: &str| -> Result<f64> {
        let text = proc::output_of(Command::new("sloccount").arg(repo::root().join(folder)))?;
        let line = text.lines().find(|line| line.starts_with("Total Physical Source Lines"));
        let number =
            line.and_then(|line| line.rsplit('=').next()).context("sloccount says no number")?;
        Ok(number.trim().replace(',', "").parse()?)
    };
    let row = |what: &str, paper, folder| -> Result<Row> {
        let ours = Some(Value::of(count(folder)?));
        Ok(Row { what: what.to_owned(), paper, ours, peer: None })
    };
    Ok(Table {
        name: "Table V",
        about: "Lines of code without empty ones and comments",
        note: "The paper's application kernel runs static programs of a 32-bit Linux; ours runs those of Debian, with threads and signals.",
        less_is_better: true,
        command: "sloccount runtime/appkernel".to_owned(),
        rows: vec![
            row("all", Some(3600.0), "runtime/appkernel")?,
            row("the Linux module", Some(250.0), "runtime/appkernel/linux")?,
        ],
    })
}

/// Figure 8: McCabe's cyclomatic complexity.
fn complexity() -> Result<Table> {
    apt::ensure(&["pmccabe".to_owned()])?;
    let mut files = Vec::new();
    sources_below(&repo::root().join("runtime/appkernel"), &mut files)?;
    let text = proc::output_of(Command::new("pmccabe").args(&files))?;
    // The second number of a line is McCabe's, the traditional one.
    let all: Vec<f64> = text
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse().ok())
        .collect();
    let share = |below: f64| {
        let few = all.iter().filter(|value| **value < below).count();
        Some(Value::of(few as f64 / all.len().max(1) as f64 * 100.0))
    };
    let row = |what: &str, ours| Row { what: what.to_owned(), paper: None, ours, peer: None };
    Ok(Table {
        name: "Figure 8",
        about: "Functions by McCabe's cyclomatic complexity, per cent",
        note: "The paper has it as a histogram: nearly all functions of its application kernel are below 10.",
        less_is_better: false,
        command: "pmccabe runtime/appkernel/*/*.c".to_owned(),
        rows: vec![
            row("below 5", share(5.0)),
            row("below 10", share(10.0)),
            row("below 20", share(20.0)),
            row("functions", Some(Value::of(all.len() as f64))),
        ],
    })
}

fn sources_below(folder: &Path, files: &mut Vec<std::path::PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources_below(&path, files)?;
        } else if path.extension().is_some_and(|kind| kind == "c") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}
