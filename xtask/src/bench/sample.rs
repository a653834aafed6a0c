//! How well times of functions agree with the plain program's: sampled ones, and those of the mode
//! that times every call.
//!
//! The reference is `perf`, which samples the plain program some ten thousand times a second and
//! disturbs nothing else. It knows self times of functions; those that call libraries are left out,
//! as a library's time is its caller's in recordings. Both are of limited accuracy, so each is
//! compared with itself as well: every second run with the others.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use fettle_stats::{median, quantile};
use serde_json::Value;

use super::measure;
use super::programs::Subject;
use super::variants;
use crate::{apt, fettle, proc, repo};

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Recordings in each mode, interleaved
    #[arg(long, default_value_t = 6)]
    pub rounds: usize,
    /// Functions compared, those with most time of their own
    #[arg(long, default_value_t = 50)]
    pub functions: usize,
    /// Only these programs: lua, sqlite
    #[arg(long, value_delimiter = ',')]
    pub programs: Vec<String>,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

/// Looks at the plain program in a second.
const LOOKS: u32 = 20_000;

/// Nanoseconds of functions' own, by name.
type Times = HashMap<String, f64>;

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
    let (mut plain_ns, mut looked) = (Vec::new(), Vec::new());
    let (mut full, mut sampled) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let command = || plain.command(&program, &subject.arguments(), &folder);
        plain_ns.push(measure::run(command(), &folder)?.sample.program * 1e9);
        looked.push(look(&program, subject, &folder)?);
        full.push(record(binary, "time", &program, subject, &folder)?);
        sampled.push(record(binary, "sample", &program, subject, &folder)?);
    }
    let plain_ns = median(&plain_ns);
    // Looks are a share of what the program takes.
    for times in &mut looked {
        let all: f64 = times.values().sum();
        times.values_mut().for_each(|ns| *ns *= plain_ns / all);
    }
    println!("\n{}: all own times are so many times the plain program's", subject.name());
    for (name, runs) in [("every call timed", &full), ("sampled", &sampled)] {
        let sums: Vec<f64> = runs.iter().map(|times| times.values().sum()).collect();
        println!("{name:<36} {:>7.2}", median(&sums) / plain_ns);
    }
    let outside = call_libraries(&program)?;
    let known = |name: &String| sampled[0].contains_key(name) && !outside.contains(name);
    let functions = largest(&looked, known, options.functions);
    print_table(&functions, &looked, &full, &sampled);
    Ok(())
}

/// Own times of functions of the plain program, in looks.
fn look(program: &Path, subject: Subject, folder: &Path) -> Result<Times> {
    apt::ensure(&["linux-perf".into()])?;
    let data = folder.join("looks");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-F", &LOOKS.to_string(), "-o"]).arg(&data);
    perf.arg("--").arg(program).args(subject.arguments());
    measure::run(perf, folder)?;
    let mut perf = Command::new("perf");
    perf.args(["report", "--stdio", "-q", "-F", "sample,symbol", "-i"]).arg(&data);
    Ok(proc::output_of(&mut perf)?.lines().filter_map(looks_of_line).collect())
}

/// `  1234  [.] name`
fn looks_of_line(line: &str) -> Option<(String, f64)> {
    let mut words = line.split_whitespace();
    let looks = words.next()?.parse().ok()?;
    Some((words.nth(1)?.to_owned(), looks))
}

/// Functions of a program that call others through its PLT.
fn call_libraries(program: &Path) -> Result<HashSet<String>> {
    let code =
        proc::output_of(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(program))?;
    let (mut function, mut found) = ("", HashSet::new());
    for line in code.lines() {
        if let Some((_, name)) = line.split_once(" <").filter(|_| line.ends_with(">:")) {
            function = name.trim_end_matches(">:");
        } else if line.ends_with("@plt>") {
            found.insert(function.to_owned());
        }
    }
    Ok(found)
}

/// Prints how well medians agree: of half of the runs with those of the other half, and of both
/// kinds of runs with what is true.
fn print_table(functions: &[String], looked: &[Times], full: &[Times], sampled: &[Times]) {
    println!(
        "{:<36} {:>7} {:>7} {:>7} {:>7} {:>8} {:>8}",
        format!("{} functions with most own time", functions.len()),
        "in 2 %",
        "in 5 %",
        "in 10 %",
        "in 20 %",
        "median",
        "p90"
    );
    let every_second = |runs: &[Times], from: usize| {
        runs.iter().skip(from).step_by(2).cloned().collect::<Vec<_>>()
    };
    let halves = |runs: &[Times]| (every_second(runs, 0), every_second(runs, 1));
    let pairs = [
        ("plain with itself", halves(looked)),
        ("every call timed with itself", halves(full)),
        ("sampled with itself", halves(sampled)),
        ("every call timed with plain", (looked.to_vec(), full.to_vec())),
        ("sampled with plain", (looked.to_vec(), sampled.to_vec())),
        ("sampled with every call timed", (full.to_vec(), sampled.to_vec())),
    ];
    for (name, (a, b)) in pairs {
        print_line(name, &errors(functions, &a, &b));
    }
}

/// The `known` functions with most time of their own.
fn largest(runs: &[Times], known: impl Fn(&String) -> bool, count: usize) -> Vec<String> {
    let mut functions: Vec<String> = runs.iter().flat_map(|run| run.keys().cloned()).collect();
    functions.retain(known);
    functions.sort_unstable();
    functions.dedup();
    functions.sort_by(|a, b| middle(runs, b).total_cmp(&middle(runs, a)));
    functions.truncate(count);
    functions
}

fn middle(runs: &[Times], function: &str) -> f64 {
    let values = runs.iter().map(|run| run.get(function).copied().unwrap_or(0.0));
    median(&values.collect::<Vec<_>>())
}

/// How far `b` is from `a`, of `a`.
fn errors(functions: &[String], a: &[Times], b: &[Times]) -> Vec<f64> {
    let error = |function: &String| {
        let (a, b) = (middle(a, function), middle(b, function));
        (b - a).abs() / a.max(1.0)
    };
    functions.iter().map(error).collect()
}

fn print_line(name: &str, errors: &[f64]) {
    let within = |bound: f64| errors.iter().filter(|error| **error <= bound).count();
    println!(
        "{name:<36} {:>7} {:>7} {:>7} {:>7} {:>7.1}% {:>7.1}%",
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
) -> Result<Times> {
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
        let name = row["name"].as_str().context("a function without name")?.to_owned();
        // On the processor, where that is known of single functions.
        let own = row["cpu_self_ns"].as_f64().or_else(|| row["self_corrected_ns"].as_f64());
        Ok((name, own.with_context(|| format!("{mode}: no own time"))?))
    };
    rows.iter().map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_compared_by_medians() {
        let run = |own| HashMap::from([("a".to_owned(), own), ("b".to_owned(), 0.0)]);
        let (a, b) = ([run(100.0), run(90.0), run(5000.0)], [run(103.0)]);
        assert_eq!(largest(&a, |_| true, 1), ["a"]);
        assert_eq!(largest(&a, |name| name != "a", 1), ["b"]);
        assert_eq!(errors(&["a".to_owned()], &a, &b), [0.03]);
    }

    #[test]
    fn looks_are_read() {
        let line = "         19310  [.] luaV_execute";
        assert_eq!(looks_of_line(line), Some(("luaV_execute".to_owned(), 19310.0)));
        assert_eq!(looks_of_line(""), None);
    }
}
