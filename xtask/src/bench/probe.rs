//! Probe effect: what recording every function costs the program, next to what compilers' and
//! other tools' probes cost, in one interleaved run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fettle_stats::{median, quartiles, ratios};
use serde_json::{Value, json};

use super::machine;
use super::measure::{self, Sample};
use super::programs::Subject;
use super::variants::{self, Runner, Variant};
use crate::{fettle, repo};

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Few rounds, no SQLite, and only what needs no compiler but gcc
    #[arg(long)]
    pub quick: bool,
    /// Rounds; each runs every variant once
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Only variants whose name contains this (the plain ones always run)
    #[arg(long, default_value = "")]
    pub filter: String,
    /// Only these programs
    #[arg(long, value_delimiter = ',', value_parser = ["fib", "lua", "sqlite"])]
    pub programs: Vec<String>,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// Where the raw runs go
    #[arg(long)]
    pub json: Option<PathBuf>,
}

impl Options {
    /// The part that CI runs: whether each way of recording can be measured, not how fast it is.
    pub fn quick(fettle: &Path) -> Options {
        Options {
            quick: true,
            rounds: Some(1),
            filter: String::new(),
            programs: vec![Subject::Fib.name().to_owned()],
            fettle: Some(fettle.to_path_buf()),
            json: None,
        }
    }
}

/// All runs of one variant on one program.
struct Series {
    variant: Variant,
    program: PathBuf,
    samples: Vec<Sample>,
    calls: Option<u64>,
    trouble: Option<String>,
}

/// Measures, prints one table per program and writes the raw runs.
pub fn run(options: &Options) -> Result<bool> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    let recorder = fettle::can_record(&binary).then_some(binary.as_path());
    if recorder.is_none() {
        println!("left out: fettle itself, which cannot record yet");
    }
    let variants: Vec<Variant> = variants::all(recorder, options.quick)?
        .into_iter()
        .filter(|v| v.name.ends_with("plain") || v.name.contains(&options.filter))
        .collect();
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 15 });
    let mut raw = BTreeMap::new();
    for subject in [Subject::Fib, Subject::Lua, Subject::Sqlite] {
        let chosen = match options.programs.is_empty() {
            true => !options.quick || subject != Subject::Sqlite,
            false => options.programs.iter().any(|name| name == subject.name()),
        };
        if chosen {
            let all = measure_all(subject, &variants, rounds)?;
            print_table(subject, &all);
            raw.insert(subject.name(), to_json(&all));
        }
    }
    let path = match &options.json {
        Some(path) => path.clone(),
        None => repo::target_folder("bench")?.join("probe.json"),
    };
    let report = json!({ "version": 1, "machine": machine::describe(), "programs": raw });
    std::fs::write(&path, serde_json::to_string_pretty(&report)? + "\n")
        .with_context(|| path.display().to_string())?;
    println!("raw runs: {}", path.display());
    Ok(true)
}

/// Builds every variant, then runs all of them once per round.
fn measure_all(subject: Subject, variants: &[Variant], rounds: usize) -> Result<Vec<Series>> {
    let folder = repo::target_folder("bench/run")?;
    let arguments = subject.arguments();
    let mut all = Vec::new();
    for variant in variants.iter().filter(|variant| variant.fits(subject)) {
        match subject.build(&variant.recipe) {
            Ok(program) => all.push(Series {
                variant: variant.clone(),
                program,
                samples: Vec::new(),
                calls: None,
                trouble: None,
            }),
            Err(error) => println!("left out: {} of {}: {error:#}", variant.name, subject.name()),
        }
    }
    let mut expected: Option<Vec<u8>> = None;
    for round in 0..rounds {
        for series in &mut all {
            if round >= series.variant.rounds || series.trouble.is_some() {
                continue;
            }
            match one(series, &arguments, &folder) {
                Ok(stdout) => {
                    let same = *expected.get_or_insert_with(|| stdout.clone()) == stdout;
                    // speedtest1 prints how long each test took.
                    ensure!(same || subject == Subject::Sqlite, "{}: output", series.variant.name);
                }
                Err(error) => series.trouble = Some(format!("{error:#}")),
            }
        }
    }
    Ok(all)
}

fn one(series: &mut Series, arguments: &[String], folder: &Path) -> Result<Vec<u8>> {
    let trace = folder.join("trace");
    if trace.exists() {
        std::fs::remove_dir_all(&trace)?;
    }
    let command = series.variant.command(&series.program, arguments, folder);
    let run = measure::run(command, folder)?;
    series.samples.push(run.sample);
    if let (Runner::Fettle(..), (_, Some(summary))) =
        (&series.variant.runner, fettle::split_summary(&run.stderr))
    {
        series.calls = Some(summary.calls);
    }
    Ok(run.stdout)
}

fn print_table(subject: Subject, all: &[Series]) {
    let calls = all.iter().filter_map(|s| s.calls).find(|calls| *calls > 0);
    println!(
        "\n{} {}",
        subject.name(),
        match calls {
            Some(calls) => format!("({:.1} million calls)", calls as f64 / 1e6),
            None => String::new(),
        }
    );
    println!(
        "{:<52} {:>8} {:>7} {:>15} {:>9} {:>8}",
        "variant", "CPU s", "ratio", "quartiles", "all CPU x", "ns/call"
    );
    for series in all {
        if let Some(trouble) = &series.trouble {
            println!("{:<52} failed: {trouble}", series.variant.name);
            continue;
        }
        let Some(plain) = all.iter().find(|s| s.variant.name == series.variant.baseline) else {
            continue;
        };
        let (own, base) = (programs_of(series), programs_of(plain));
        let [ratio, low, high] = quartiles(&ratios(&own, &base));
        let everything: Vec<f64> = series.samples.iter().map(|s| s.everything).collect();
        let base_everything: Vec<f64> = plain.samples.iter().map(|s| s.everything).collect();
        let per_call = match calls {
            Some(calls) => (median(&own) - median(&base)) * 1e9 / calls as f64,
            None => f64::NAN,
        };
        println!(
            "{:<52} {:>8.3} {:>7.2} {:>7.2}–{:<7.2} {:>9.2} {:>8.2}",
            series.variant.name,
            median(&own),
            ratio,
            low,
            high,
            median(&ratios(&everything, &base_everything)),
            per_call
        );
    }
}

fn programs_of(series: &Series) -> Vec<f64> {
    series.samples.iter().map(|sample| sample.program).collect()
}

fn to_json(all: &[Series]) -> Value {
    let rows = all.iter().map(|series| {
        json!({
            "variant": series.variant.name,
            "baseline": series.variant.baseline,
            "calls": series.calls,
            "failed": series.trouble,
            "runs": series.samples,
        })
    });
    Value::Array(rows.collect())
}
