//! How well sampled times agree with full timing: function by function, next to how well each
//! agrees with itself.
//!
//! Processor time is compared, of the functions with most of their own. What else the machine does
//! makes all of a run slower, so every run is scaled to the same time of `main`. Full timing is the
//! mode that records every call. It is no truth: what probes cost is taken out of both, and of
//! functions that take a few nanoseconds that is most of what was measured. So the comparison is
//! repeated with the functions of which a call takes [`LONG_NS`] of their own or more, and the sums
//! are shown next to the plain program's time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::measure;
use super::programs::Subject;
use super::stats::{median, quantile};
use super::variants;
use crate::{fettle, proc, repo};

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Recordings in each mode, interleaved
    #[arg(long, default_value_t = 6)]
    pub rounds: usize,
    /// Functions compared, those with most processor time of their own
    #[arg(long, default_value_t = 50)]
    pub functions: usize,
    /// Only these programs: lua, sqlite
    #[arg(long, value_delimiter = ',')]
    pub programs: Vec<String>,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

/// Nanoseconds of a call's own that probes do not drown: several times what they cost.
const LONG_NS: f64 = 100.0;

/// Nanoseconds of one function, by its number.
type Times = HashMap<u64, Time>;

#[derive(Clone, Copy, Debug, Default)]
struct Time {
    calls: f64,
    own: f64,
    total: f64,
}

/// One recording.
struct Recorded {
    times: Times,
    /// Nanoseconds of `main`.
    main: f64,
}

impl Recorded {
    /// Times as they were if `main` had taken `main` nanoseconds.
    fn scaled(&self, main: f64) -> Times {
        let scale = main / self.main.max(1.0);
        let scaled = |t: &Time| Time { own: t.own * scale, total: t.total * scale, ..*t };
        self.times.iter().map(|(id, time)| (*id, scaled(time))).collect()
    }
}

/// What is compared of a [`Time`].
type Field = fn(&Time) -> f64;

/// Both, with their names.
const FIELDS: [(&str, Field); 2] = [("self", |t| t.own), ("total", |t| t.total)];

/// Records, compares and prints.
pub fn run(options: &Options) -> Result<bool> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    for subject in [Subject::Lua, Subject::Sqlite] {
        let wanted = &options.programs;
        if wanted.is_empty() || wanted.iter().any(|name| name == subject.name()) {
            compare(subject, &binary, options)?;
        }
    }
    Ok(true)
}

fn compare(subject: Subject, binary: &Path, options: &Options) -> Result<()> {
    let folder = repo::target_folder("bench/run")?;
    let plain = variants::all(None, true)?.swap_remove(0);
    let program = subject.build(&plain.recipe)?;
    let mut plain_ns = Vec::new();
    let (mut full, mut sampled) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let command = plain.command(&program, &subject.arguments(), &folder);
        plain_ns.push(measure::run(command, &folder)?.sample.program * 1e9);
        full.push(record(binary, "events", &program, subject, &folder)?);
        sampled.push(record(binary, "sample", &program, subject, &folder)?);
    }
    println!("\n{}, processor time", subject.name());
    println!("{:<24} {:>16} {:>16}", "times the plain program", "main", "all self times");
    for (name, runs) in [("every call", &full), ("sampled", &sampled)] {
        let main: Vec<f64> = runs.iter().map(|run| run.main).collect();
        let sums: Vec<f64> =
            runs.iter().map(|run| run.times.values().map(|t| t.own).sum()).collect();
        let times_plain = |values: &[f64]| median(values) / median(&plain_ns);
        println!("{name:<24} {:>16.2} {:>16.2}", times_plain(&main), times_plain(&sums));
    }
    let main = median(&full.iter().map(|run| run.main).collect::<Vec<_>>());
    let scaled = |runs: &[Recorded]| runs.iter().map(|r| r.scaled(main)).collect::<Vec<_>>();
    let (full, sampled) = (scaled(&full), scaled(&sampled));
    let functions = largest(&full, options.functions);
    let (long, short): (Vec<u64>, Vec<u64>) =
        functions.iter().partition(|f| middle(&full, **f, |t| t.own / t.calls.max(1.0)) >= LONG_NS);
    print_table(
        &format!("{} functions with most of it", functions.len()),
        &functions,
        &full,
        &sampled,
    );
    print_table(&format!("{} that take {LONG_NS} ns or more", long.len()), &long, &full, &sampled);
    print_table(&format!("{} that take less", short.len()), &short, &full, &sampled);
    Ok(())
}

/// Prints how well medians agree: of half of the runs with those of the other half, and of both
/// kinds of runs.
fn print_table(title: &str, functions: &[u64], full: &[Times], sampled: &[Times]) {
    println!(
        "{title:<36} {:<6} {:>7} {:>7} {:>7} {:>7} {:>8} {:>8}",
        "", "in 2 %", "in 5 %", "in 10 %", "in 20 %", "median", "p90"
    );
    let every_second = |runs: &[Times], from: usize| {
        runs.iter().skip(from).step_by(2).cloned().collect::<Vec<_>>()
    };
    let halves = |runs: &[Times]| (every_second(runs, 0), every_second(runs, 1));
    let pairs = [
        ("every call with itself", halves(full)),
        ("sampled with itself", halves(sampled)),
        ("sampled with every call", (full.to_vec(), sampled.to_vec())),
    ];
    for (name, (a, b)) in pairs {
        for (what, field) in FIELDS {
            print_line(name, what, &errors(functions, &a, &b, field));
        }
    }
}

/// The functions with most time of their own.
fn largest(runs: &[Times], count: usize) -> Vec<u64> {
    let mut functions: Vec<u64> = runs.iter().flat_map(|run| run.keys().copied()).collect();
    functions.sort_unstable();
    functions.dedup();
    functions.sort_by(|a, b| middle(runs, *b, |t| t.own).total_cmp(&middle(runs, *a, |t| t.own)));
    functions.truncate(count);
    functions
}

fn middle(runs: &[Times], function: u64, field: Field) -> f64 {
    let values = runs.iter().map(|run| run.get(&function).map_or(0.0, field));
    median(&values.collect::<Vec<_>>())
}

/// How far `b` is from `a`, of `a`.
fn errors(functions: &[u64], a: &[Times], b: &[Times], field: Field) -> Vec<f64> {
    let error = |function: &u64| {
        let (a, b) = (middle(a, *function, field), middle(b, *function, field));
        (b - a).abs() / a.max(1.0)
    };
    functions.iter().map(error).collect()
}

fn print_line(name: &str, what: &str, errors: &[f64]) {
    let within = |bound: f64| errors.iter().filter(|error| **error <= bound).count();
    println!(
        "{name:<36} {what:<6} {:>7} {:>7} {:>7} {:>7} {:>7.1}% {:>7.1}%",
        within(0.02),
        within(0.05),
        within(0.1),
        within(0.2),
        median(errors) * 100.0,
        quantile(errors, 0.9) * 100.0
    );
}

fn record(
    binary: &Path,
    mode: &str,
    program: &Path,
    subject: Subject,
    folder: &Path,
) -> Result<Recorded> {
    let trace = folder.join("trace");
    if trace.exists() {
        std::fs::remove_dir_all(&trace)?;
    }
    let mut record = Command::new(binary);
    // Nothing may be lost, or what was is not in the comparison.
    record.args(["record", "--quiet", "--when-full", "wait", "--mode", mode, "-o"]).arg(&trace);
    record.args(fettle::cache_flags(binary)).arg("--").arg(program).args(subject.arguments());
    measure::run(record, folder)?;
    let mut report = Command::new(binary);
    report.arg("report").arg(&trace).args(["--json", "--limit", "1000000"]);
    let report: Value = serde_json::from_str(&proc::output_of(&mut report)?)?;
    let rows = report["functions"].as_array().context("a report without functions")?;
    let time = |row: &Value| {
        let ns = |name: &str| row[name].as_f64().with_context(|| format!("{mode}: no {name}"));
        let id = row["id"].as_u64().context("a function without number")?;
        let (own, total) = (ns("cpu_self_ns")?, ns("cpu_total_ns")?);
        Ok((id, Time { calls: ns("calls")?, own, total }))
    };
    let times = rows.iter().map(time).collect::<Result<Times>>()?;
    let main = rows.iter().find(|row| row["name"] == "main").context("no main")?;
    let main = main["cpu_total_ns"].as_f64().context("no time of main")?;
    Ok(Recorded { times, main })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_compared_by_medians() {
        let time = |own| Time { calls: 1.0, own, total: 2.0 * own };
        let run = |own| HashMap::from([(1, time(own)), (2, Time::default())]);
        let (a, b) = ([run(100.0), run(90.0), run(5000.0)], [run(103.0)]);
        assert_eq!(largest(&a, 1), [1]);
        assert_eq!(errors(&[1], &a, &b, |t| t.own), [0.03]);
    }

    #[test]
    fn runs_are_scaled_to_the_same_time_of_main() {
        let times = HashMap::from([(1, Time { calls: 2.0, own: 10.0, total: 20.0 })]);
        let time = Recorded { times, main: 50.0 }.scaled(100.0)[&1];
        assert_eq!((time.calls, time.own, time.total), (2.0, 20.0, 40.0));
    }
}
