//! What tuning brings to programs as their packages have them, while they run.
//!
//! Each program works until it is asked to end; `fettle tune` counts, lays out, and compares
//! original and rewritten text in turns (ABBA) in the running process. The result is its own
//! comparison: CPU time for a unit of work, by the kernel's account, as the geometric mean over
//! rounds with its 95 % interval; the model's misses beside it; and, of programs whose work has an
//! end where that is wanted, instructions and misses by callgrind ([`files`]), and what BOLT brings
//! to the same ([`bolt`]).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

mod bolt;
mod calibration;
pub mod compiler;
mod files;
pub(crate) mod mariadb;
mod subjects;
mod table;
mod verilated;

use subjects::{SUBJECTS, Subject};

use super::machine;
use crate::{apt, fettle, repo};

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Rounds of four turns for each program
    #[arg(long, default_value_t = 40)]
    pub pairs: usize,
    /// Seconds of each turn
    #[arg(long, default_value_t = 0.5)]
    pub turn: f64,
    /// Seconds of counting
    #[arg(long, default_value_t = 5.0)]
    pub time: f64,
    /// Only these programs
    #[arg(long, value_delimiter = ',', value_parser = names())]
    pub programs: Vec<String>,
    /// BOLT beside it: builds programs from their sources, CPython in a quarter of an hour, and keeps
    /// them in target/
    #[arg(long)]
    pub bolt: bool,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// Print what was measured as JSON
    #[arg(long)]
    pub json: bool,
}

impl Options {
    /// All programs, without BOLT; a few and few rounds, if it is to be quick.
    pub fn some(fettle: &Path, quick: bool) -> Options {
        let (pairs, turn, time) = if quick { (8, 0.2, 2.0) } else { (20, 0.4, 5.0) };
        Options {
            pairs,
            turn,
            time,
            programs: if quick { FEW.map(str::to_owned).into() } else { Vec::new() },
            bolt: false,
            fettle: Some(fettle.to_path_buf()),
            json: false,
        }
    }
}

/// Those that are measured in a minute.
const FEW: [&str; 4] = ["bash", "lua", "gawk", "sqlite"];

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(SUBJECTS.iter().map(|subject| subject.name))
}

/// Measures, prints, and keeps the raw rounds.
pub fn run(options: &Options) -> Result<bool> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    let folder = repo::target_folder("bench/tune")?;
    let mut all = Vec::new();
    let wanted =
        |name: &str| options.programs.is_empty() || options.programs.iter().any(|p| p == name);
    if !options.json {
        println!("{}", table::head(options.bolt));
    }
    for subject in SUBJECTS.iter().filter(|s| wanted(s.name)) {
        let packages: Vec<String> =
            subject.packages.iter().map(std::string::ToString::to_string).collect();
        if let Err(error) = apt::ensure(&packages) {
            eprintln!("skipped {}: {error:#}", subject.name);
            continue;
        }
        let measured = measure(subject, &binary, &folder, options)
            .with_context(|| format!("{} could not be measured", subject.name))?;
        if !options.json {
            println!("{}", table::line(&measured, options.bolt));
        }
        all.push(measured);
    }
    let named = |program: &Value| {
        let name = program["program"].as_str()?.to_owned();
        Some((name, calibration::gains(&program["tune"])?))
    };
    let gains: Vec<_> = all.iter().filter_map(named).collect();
    if !options.json {
        print!("{}", calibration::text(&gains));
    }
    if let Some(plot) = calibration::plot(&gains) {
        std::fs::write(folder.join("calibration.svg"), plot)?;
    }
    let all = json!({ "version": 1, "machine": machine::describe(), "programs": all });
    std::fs::write(folder.join("tune.json"), format!("{all}\n"))?;
    if options.json {
        println!("{all}");
    }
    Ok(true)
}

/// What each of them says of the program, and of the same work where it has an end.
fn measure(subject: &Subject, binary: &Path, folder: &Path, options: &Options) -> Result<Value> {
    let own = folder.join(subject.name);
    let profile = folder.join(format!("{}.profile", subject.name));
    let _ = std::fs::remove_file(&profile);
    std::fs::create_dir_all(&own)?;
    let tuned = tune(subject, binary, (&own, &profile), options)?;
    let (mut counted, mut bolted) = (Value::Null, Value::Null);
    if let Some(bounded) = &subject.bounded {
        let modules = tuned["modules"].as_array().into_iter().flatten();
        let modules: Vec<&str> = modules.filter_map(|module| module["path"].as_str()).collect();
        let piece = (bounded.piece)(&own, bounded.counted)?;
        counted = files::count(&piece, &modules, &profile, binary, &own)?;
        if let Some(peer) = subject.bolt.as_ref().filter(|_| options.bolt) {
            let piece = (bounded.piece)(&own, peer.rounds)?;
            bolted = bolt::measure(peer, subject.name, &piece, options.pairs)?;
        }
    }
    let name = subject.name;
    Ok(json!({ "program": name, "tune": tuned, "callgrind": counted, "bolt": bolted }))
}

/// What `fettle tune` says of the program while it runs; the profile is kept.
fn tune(
    subject: &Subject,
    binary: &Path,
    (own, profile): (&Path, &Path),
    options: &Options,
) -> Result<Value> {
    let running = (subject.start)(own)?;
    // Caches, plans and jump tables fill first.
    std::thread::sleep(Duration::from_secs(2));
    let mut tune = Command::new(binary);
    tune.args(["tune", "--json", "-p", &running.pid.to_string()]);
    tune.args(["--pairs", &options.pairs.to_string(), "--turn", &options.turn.to_string()]);
    tune.args(["--time", &options.time.to_string()]);
    tune.args(subject.libraries.iter().flat_map(|library| ["--lib", library]));
    tune.args(running.work.iter().flat_map(|work| ["--work", work]));
    tune.arg("--save").arg(profile);
    tune.env("XDG_CACHE_HOME", own.with_file_name("cache"));
    let output = tune.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code().is_some_and(|code| code < 2), "{said}");
    Ok(serde_json::from_slice(&output.stdout)?)
}
