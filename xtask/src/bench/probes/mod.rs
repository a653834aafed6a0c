//! What it costs a program that its calls are observed, by each means at hand: here by `fettle bench probes`
//! and LTTng's tracepoints, and in a guest by what this machine's kernel may lack, kprobes and the function tracer.
//!
//! A guest is translated, and its time is that of instructions. So its ratios say how many instructions more a call
//! has, which is less than how much longer it takes where traps are slow.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::machine;
use crate::guest::{self, Clock, Kernel, Machine};
use crate::{fettle, kernel_live, repo};

mod lttng;

/// The operations of tables 5.1 and 5.2 of the request-tracking thesis, and a read.
pub const OPERATIONS: [&str; 5] = ["null", "read-1k", "fork", "vfork", "exec"];
/// The program of LTTng's row, without the tracepoint.
pub const DYNAMIC: &str = "dynamic";
/// The same with it.
pub const LTTNG: &str = "LTTng";

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Rounds; each has two turns of every means
    #[arg(long, default_value_t = 20)]
    pub rounds: usize,
    /// Not in a guest
    #[arg(long)]
    pub no_guest: bool,
    /// The guest's kernel: 6.1, 6.12, or a package of one
    #[arg(long, default_value = "6.1")]
    pub kernel: String,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

impl Options {
    /// So many rounds, by this binary.
    pub fn of(rounds: usize, fettle: &std::path::Path) -> Options {
        let kernel = "6.1".to_owned();
        Options { rounds, no_guest: false, kernel, fettle: Some(fettle.to_owned()) }
    }
}

/// Measures, prints, and keeps what `fettle bench probes --json` printed.
pub fn run(options: &Options) -> Result<bool> {
    let report = measure(options)?;
    for (place, what) in [("here", "here"), ("guest", "in a guest, by instructions")] {
        match report[place].get("systems") {
            Some(_) => print!("{what}:\n{}", text(&report[place])),
            None => println!("not measured {what}: {}", report[place]["why"]),
        }
    }
    let path = repo::target_folder("bench")?.join("probes.json");
    std::fs::write(&path, serde_json::to_string_pretty(&report)? + "\n")?;
    println!("raw rounds: {}", path.display());
    Ok(report["guest"].get("systems").is_some() || options.no_guest)
}

/// Measures.
pub fn measure(options: &Options) -> Result<Value> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    let why = |why: String| json!({ "why": why });
    let guest = match options.no_guest {
        true => why("not asked for".to_owned()),
        false => in_guest(options, &binary).unwrap_or_else(|error| why(format!("{error:#}"))),
    };
    let here = here(options, &binary)?;
    Ok(json!({ "version": 1, "machine": machine::describe(), "here": here, "guest": guest }))
}

/// On this kernel.
fn here(options: &Options, binary: &std::path::Path) -> Result<Value> {
    let place = repo::target_folder("bench/probes")?;
    let mut command = Command::new(binary);
    command.args(["bench", "probes", "--json", "--rounds", &options.rounds.to_string()]);
    let session = lttng::start(&place);
    match &session {
        Ok(session) => {
            for (name, command_of) in [(DYNAMIC, &session.plain), (LTTNG, &session.traced)] {
                command.arg("--by").arg(format!("{name}={}", command_of.display()));
            }
        }
        Err(why) => eprintln!("left out: LTTng: {why:#}"),
    }
    let output = command.args(OPERATIONS).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // 1: with what this kernel has not got left out.
    ensure!(matches!(output.status.code(), Some(0 | 1)), "fettle bench probes: {said}");
    let mut found: Value = serde_json::from_slice(&output.stdout)?;
    match session {
        Ok(session) => ensure!(session.finish()? > 0, "LTTng recorded nothing"),
        Err(why) => {
            let note = json!({ "system": LTTNG, "name": null, "why": format!("{why:#}") });
            found["skipped"].as_array_mut().context("no list of what is missing")?.push(note);
        }
    }
    Ok(found)
}

/// In a guest, whose kernel has all of it.
fn in_guest(options: &Options, binary: &std::path::Path) -> Result<Value> {
    const BEGIN: &str = "probes: begin";
    let kernel = Kernel::fetch_image(&kernel_live::package(&options.kernel))?;
    let files = kernel_live::files(Some(binary))?;
    let machine = Machine {
        processors: 1,
        clock: Clock::Instructions,
        model: "max".to_owned(),
        memory: 1024,
        options: "noreplace-smp nowatchdog rcupdate.rcu_cpu_stall_suppress=1".to_owned(),
        output: None,
        plugin: None,
        limit: Duration::from_secs(1800),
    };
    // Instructions are alike in all rounds, and each costs a minute.
    let script = format!(
        "{}echo '{BEGIN}'\nfettle bench probes --json --rounds 2 --only ftrace,counted {} 2>/tmp/said\n\
         echo; cat /tmp/said\n",
        kernel_live::MOUNTS,
        OPERATIONS.join(" ")
    );
    let shown = guest::run(&kernel, &files, &machine, &script)?;
    let (_, shown) = shown.split_once(BEGIN).context("the guest did not begin to measure")?;
    let json = shown.find('{').map(|at| &shown[at..]);
    let Some(json) = json else { bail!("the guest measured nothing: {}", shown.trim()) };
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
    values.next().with_context(|| format!("the guest printed {json}"))?.context("the guest's JSON")
}

/// Rows by means, of what `fettle bench probes --json` printed.
fn text(found: &Value) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = list(&found["loads"][0]["rows"]);
    let names: String = rows.iter().map(|row| format!("{:>36}", word(&row["name"]))).collect();
    let mut out = format!("{:18}{names}\n", "");
    for (at, system) in list(&found["systems"]).iter().enumerate() {
        let cells: String =
            rows.iter().map(|row| format!("{:>36}", cell(&row["cells"][at]))).collect();
        out += &format!("{:18}{cells}\n", word(&system["name"]));
    }
    for missing in list(&found["skipped"]) {
        out += &format!("{}: {}\n", word(&missing["system"]), word(&missing["why"]));
    }
    out
}

fn cell(cell: &Value) -> String {
    let Some(ns) = cell["ns"].as_f64() else { return "-".to_owned() };
    let ratio = &cell["ratio"];
    let of = |field: &str| ratio[field].as_f64();
    match (of("value"), of("low"), of("high")) {
        (Some(value), Some(low), Some(high)) => {
            format!("{ns:.0} ns ×{value:.2} [{low:.2}–{high:.2}]")
        }
        _ => format!("{ns:.0} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_what_is_missing_are_shown() {
        let found = json!({
            "systems": [{ "name": "native" }, { "name": "ftrace kprobe" }],
            "loads": [{ "rows": [{ "name": "null", "cells": [
                { "ns": 100.0, "ratio": null },
                { "ns": 250.0, "ratio": { "value": 2.5, "low": 2.4, "high": 2.6 } }] }] }],
            "skipped": [{ "system": "LTTng", "why": "no daemon" }],
        });
        let shown = text(&found);
        assert!(shown.contains("250 ns ×2.50 [2.40–2.60]"), "{shown}");
        assert!(shown.ends_with("LTTng: no daemon\n"), "{shown}");
    }
}
