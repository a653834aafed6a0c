//! What traced stubs cost a call: CPU time of client and server in one process, against plain stubs, and
//! against OpenTelemetry where that is tried, in one interleaved run.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::proc;
use crate::rpc::language::Programs;
use crate::rpc::{self, Aim, Language, Stubs};
use fettle_stats::median;

/// How much to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Languages [default: all]
    #[arg(value_enum)]
    languages: Vec<Language>,
    /// Rounds; in each, every variant runs twice, there and back
    #[arg(long, default_value_t = 40)]
    rounds: usize,
    /// Calls of a run, in Python a tenth
    #[arg(long, default_value_t = 10_000)]
    calls: u32,
}

/// A variant: its name, its programs, whether sensors are on, and arguments besides.
struct Variant {
    name: &'static str,
    programs: Programs,
    on: bool,
    more: &'static [&'static str],
}

/// Measures each language and prints ratios to plain stubs: the median of all rounds, and its 95 % interval.
pub fn run(options: &Options) -> Result<bool> {
    let plugin = rpc::plugin()?;
    let languages = match options.languages.is_empty() {
        true => Language::value_variants(),
        false => &options.languages,
    };
    println!(
        "{:10}{:>10}  ratio to plain: median of {} rounds (95 %)",
        "", "plain us", options.rounds
    );
    for language in languages {
        let calls = match language {
            Language::Python => options.calls / 10,
            _ => options.calls,
        };
        let variants = variants(*language, &plugin)?;
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); variants.len()];
        for _ in 0..options.rounds {
            let mut round = vec![0.0; variants.len()];
            for at in (0..variants.len()).chain((0..variants.len()).rev()) {
                round[at] += cpu_ns(&variants[at], calls)? / 2.0;
            }
            round.into_iter().zip(&mut times).for_each(|(ns, times)| times.push(ns));
        }
        let plain = median(&times[0]);
        print!("{:10}{:>10.1}", language.name(), plain / 1000.0);
        for (variant, of) in variants.iter().zip(&times).skip(1) {
            let mut ratios = fettle_stats::ratios(of, &times[0]);
            ratios.sort_by(f64::total_cmp);
            let middle = median(&ratios);
            let (low, high) = interval(&ratios);
            print!("  {} {middle:.3} ({low:.3} to {high:.3})", variant.name);
        }
        println!();
    }
    Ok(true)
}

fn variants(language: Language, plugin: &Path) -> Result<Vec<Variant>> {
    let build = |stubs: &Stubs| language.build(plugin, stubs, Aim::Speed);
    let woven = Stubs::Woven("mode=performance".to_owned());
    let mut variants = vec![
        Variant { name: "plain", programs: build(&Stubs::Plain)?, on: false, more: &[] },
        Variant { name: "woven", programs: build(&woven)?, on: true, more: &[] },
        Variant { name: "off", programs: build(&woven)?, on: false, more: &[] },
    ];
    let peer: Option<&[&str]> = match language {
        Language::Go => Some(&[]),
        Language::Python => Some(&["otel"]),
        Language::Cpp | Language::Java | Language::Rust => None,
    };
    if let Some(more) = peer {
        let programs = build(&Stubs::OpenTelemetry)?;
        variants.push(Variant { name: "opentelemetry", programs, on: false, more });
    }
    Ok(variants)
}

/// CPU time of a call.
fn cpu_ns(variant: &Variant, calls: u32) -> Result<f64> {
    let mut command: Command = variant.programs.bench();
    command.arg(calls.to_string()).args(variant.more);
    let folder = Path::new("/dev/shm").join(format!("fettle-rpc-bench-{}", std::process::id()));
    if variant.on {
        // The program makes it.
        command.env("FETTLE_SENSORS", &folder);
    } else {
        command.env_remove("FETTLE_SENSORS");
    }
    let text = proc::output_of(&mut command);
    let _ = std::fs::remove_dir_all(&folder);
    let text = text?;
    text.trim().parse().with_context(|| format!("{}: no time: {text}", variant.name))
}

/// The 95 % interval of the median of sorted values: by ranks, without a claim on their distribution.
fn interval(sorted: &[f64]) -> (f64, f64) {
    let n = sorted.len() as f64;
    let half = 0.98 * n.sqrt();
    let low = (n / 2.0 - half).floor().max(0.0) as usize;
    let high = ((n / 2.0 + half).ceil() as usize).min(sorted.len() - 1);
    (sorted[low], sorted[high])
}
