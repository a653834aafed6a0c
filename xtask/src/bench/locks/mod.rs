//! What `fettle locks` costs programs, next to other tools that look at locks.
//!
//! The program's own CPU time, as it accounts for it at its end (`benches/probe/cpu.c`, preloaded);
//! variants take turns, and the ratio is of medians within one run.

mod coz;
mod real;
mod servers;
mod what_if;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::measure;
use crate::{fettle, proc, repo};

/// How to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// The command to measure; without one, it is built
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// Rounds, of which the median counts
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Only predictions of what edits bring, against what they bring
    #[arg(long)]
    pub what_if: bool,
    /// Only servers under load, counted by `fettle locks -p` in turns
    #[arg(long, conflicts_with = "what_if")]
    pub servers: bool,
    /// Only what the report says of real programs
    #[arg(long, conflicts_with_all = ["what_if", "servers"])]
    pub real: bool,
}

/// A program and the most that it may cost.
struct Subject {
    name: &'static str,
    command: Vec<String>,
    most: f64,
}

/// A way to run it.
struct Variant {
    name: &'static str,
    before: Vec<String>,
    preload: Option<PathBuf>,
    program: Option<PathBuf>,
}

/// Only predictions.
fn predictions(binary: &Path, folder: &Path, sources: &Path, rounds: usize) -> Result<bool> {
    let (sections, source) = (folder.join("sections"), sources.join("locks/sections.c"));
    compile(&["-O2", "-g", "-pthread"], &source, &sections)?;
    what_if::run(binary, &sections, &source, rounds)
}

/// Measures; false if a figure is missed.
pub fn run(options: &Options) -> Result<bool> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    let folder = repo::target_folder("bench-locks")?;
    let account = folder.join("cpu.so");
    let sources = repo::root().join("benches");
    let cpu = sources.join("probe/cpu.c");
    compile(&["-O2", "-shared", "-fPIC"], &cpu, &account)?;
    if options.what_if {
        return predictions(&binary, &folder, &sources, options.rounds);
    }
    if options.real {
        return real::run(&binary, &folder);
    }
    if options.servers {
        return servers::run(&binary, &folder, options.rounds);
    }
    let pairs = folder.join("pairs");
    let source = sources.join("locks/pairs.c");
    compile(&["-O2", "-g", "-pthread"], &source, &pairs)?;
    let sanitized = folder.join("pairs-tsan");
    let has_tsan = compile(&["-O2", "-g", "-pthread", "-fsanitize=thread"], &source, &sanitized);
    let mut right = true;
    for subject in subjects(&pairs, &folder)? {
        let mut variants = vec![
            Variant { name: "plain", before: vec![], preload: None, program: None },
            Variant {
                name: "fettle locks",
                before: [
                    binary.to_str().context("a plain path")?,
                    "locks",
                    "-q",
                    "-o",
                    "/dev/null",
                    "--",
                ]
                .map(str::to_owned)
                .into(),
                preload: None,
                program: None,
            },
        ];
        let mutrace = Path::new("/usr/lib/mutrace/libmutrace.so");
        if mutrace.exists() {
            let preload = Some(mutrace.to_owned());
            variants.push(Variant { name: "mutrace", before: vec![], preload, program: None });
        }
        if subject.name == "pairs" && has_tsan.is_ok() {
            let program = Some(sanitized.clone());
            variants.push(Variant { name: "TSan", before: vec![], preload: None, program });
        }
        let mut times = vec![Vec::new(); variants.len()];
        for _ in 0..options.rounds {
            for (variant, times) in variants.iter().zip(&mut times) {
                let command = command(variant, &subject, &account);
                times.push(measure::run(command, &folder)?.sample.program);
            }
        }
        let medians: Vec<f64> = times.iter().map(|times| fettle_stats::median(times)).collect();
        for (variant, seconds) in variants.iter().zip(&medians) {
            let ratio = seconds / medians[0];
            println!("{:10} {:14} {seconds:8.3} s {ratio:6.2}x", subject.name, variant.name);
        }
        let ratio = medians[1] / medians[0];
        if ratio > subject.most {
            println!("{}: {ratio:.2}x, wanted: {}x at most", subject.name, subject.most);
            right = false;
        }
    }
    Ok(right)
}

fn subjects(pairs: &Path, folder: &Path) -> Result<Vec<Subject>> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut all = vec![Subject {
        name: "pairs",
        command: vec![text(pairs), "3000000".to_owned()],
        most: 1.5,
    }];
    if proc::on_path("sysbench") {
        let words =
            ["sysbench", "mutex", "--threads=2", "--mutex-num=8", "--mutex-locks=1000000", "run"];
        let command = words.map(str::to_owned).into();
        all.push(Subject { name: "sysbench", command, most: 1.5 });
    } else {
        println!("sysbench is not here (apt-get install sysbench)");
    }
    if proc::on_path("pigz") {
        let data = folder.join("data");
        let bytes: Vec<u8> =
            (0..20_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 27) as u8).collect();
        std::fs::write(&data, bytes)?;
        let command = ["pigz", "-p2", "-k", "-f", &text(&data)].map(str::to_owned).into();
        all.push(Subject { name: "pigz", command, most: 1.05 });
    } else {
        println!("pigz is not here (apt-get install pigz)");
    }
    Ok(all)
}

fn command(variant: &Variant, subject: &Subject, account: &Path) -> Command {
    let preload = variant.preload.iter().map(PathBuf::as_path).chain([account]);
    let preload: Vec<_> = preload.map(|path| path.to_string_lossy().into_owned()).collect();
    let mut program = subject.command.clone();
    if let Some(path) = &variant.program {
        program[0] = path.to_string_lossy().into_owned();
    }
    // Fettle itself does not account.
    let mut words = variant.before.clone();
    words.extend(["env".to_owned(), format!("LD_PRELOAD={}", preload.join(":"))]);
    words.extend(program);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn compile(flags: &[&str], source: &Path, to: &Path) -> Result<()> {
    proc::step(Command::new("gcc").args(flags).arg(source).arg("-o").arg(to))
}
