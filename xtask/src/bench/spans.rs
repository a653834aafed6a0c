//! How well, and how fast, traces are reconstructed from spans without ids.
//!
//! The shop of `tests/spans/shop.py` is asked at several rates. Its spans have ids, which are the truth that nothing else
//! looks at. Next to Fettle stand the simple ways: each call is of the question that waits longest, or that came last.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::machine;
use crate::{fettle, proc, repo};

/// What spans say: both sides of each call and its port; both sides; the side that was asked alone.
const KINDS: [&str; 3] = ["connections", "both", "asked"];
/// Requests that are simulated to see how fast it is, and how many of them begin in a second.
const SPEED: [&str; 5] = ["8000", "5", "50", "200", "500"];

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Requests a second
    #[arg(long, value_delimiter = ',', default_value = "10,20,40,60")]
    pub rates: Vec<u32>,
    /// How long each rate lasts, in seconds
    #[arg(long, default_value_t = 20)]
    pub seconds: u32,
    /// Print what was measured as JSON
    #[arg(long)]
    pub json: bool,
}

/// Asks, reconstructs, prints; figures are what they are.
pub fn run(options: &Options) -> Result<bool> {
    let score = fettle::example("fettle-import", "without_ids")?;
    let speed = fettle::example("fettle-reconstruct", "reconstruct_speed")?;
    if !options.json {
        println!("{}", machine::describe());
        println!(
            "{:>6} {:12} {:10} {:>7} {:>10} {:>15} {:>13} {:>16} {:>13}",
            "rate",
            "spans say",
            "way",
            "spans",
            "candidates",
            "requests right",
            "links right",
            "wrong, marked",
            "spans/s"
        );
    }
    let mut reliability: BTreeMap<usize, (f64, f64, f64)> = BTreeMap::new();
    for rate in &options.rates {
        let files = asked(*rate, options.seconds)?;
        for kind in KINDS {
            let said = proc::output_of(Command::new(&score).arg(kind).args(&files))?;
            for line in said.lines() {
                if options.json {
                    println!("{{\"rate\":{rate},{}", line.strip_prefix('{').context("no JSON")?);
                    continue;
                }
                let line: Value = serde_json::from_str(line)?;
                row(*rate, &line);
                if line["how"] == "fettle" {
                    add(&mut reliability, &line);
                }
            }
        }
    }
    if options.json {
        return Ok(true);
    }
    println!("\nlinks of all rates and kinds, by how likely they are said to be right:");
    for (tenth, (count, likely, right)) in reliability.into_iter().filter(|(_, of)| of.0 > 0.0) {
        let [likely, right] = [likely, right].map(|sum| 100.0 * sum / count);
        println!(
            "{:>4} to {:>3} %: {count:>7} said {likely:>5.1} % right {right:>5.1} %",
            tenth * 10,
            tenth * 10 + 10
        );
    }
    println!("\nsimulated, one processor:");
    print!("{}", proc::output_of(Command::new(&speed).args(SPEED))?);
    Ok(true)
}

/// The files of spans of a shop that is asked so often.
fn asked(rate: u32, seconds: u32) -> Result<Vec<PathBuf>> {
    let folder = repo::target().join("bench/spans").join(rate.to_string());
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let mut shop = Command::new("python3");
    shop.arg(repo::root().join("tests/spans/shop.py")).arg(&folder);
    let ended =
        shop.args([rate.to_string(), seconds.to_string()]).stdout(Stdio::null()).status()?;
    ensure!(ended.success(), "the shop: {ended}");
    let files = std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.path()));
    let mut files = files.collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    ensure!(!files.is_empty(), "the shop has left no spans in {}", folder.display());
    Ok(files)
}

fn number(line: &Value, name: &str) -> f64 {
    line[name].as_f64().unwrap_or(0.0)
}

fn row(rate: u32, line: &Value) {
    let of = |name: &str| number(line, name);
    let share = |part: &str, all: &str| 100.0 * of(part) / of(all).max(1.0);
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    println!(
        "{rate:>6} {:12} {:10} {:>7} {:>10.1} {:>13.1} % {:>11.2} % {:>6.0}, {:>6.0} {:>13.0}",
        text("kind"),
        text("how"),
        of("spans"),
        of("candidates"),
        share("traces_right", "traces"),
        share("right", "links"),
        of("wrong"),
        of("marked"),
        of("spans") / of("seconds").max(1e-9),
    );
}

/// Adds what was said of links, and how many were right.
fn add(reliability: &mut BTreeMap<usize, (f64, f64, f64)>, line: &Value) {
    for (tenth, bin) in line["reliability"].as_array().into_iter().flatten().enumerate() {
        let of = |place: usize| bin[place].as_f64().unwrap_or(0.0);
        let sum = reliability.entry(tenth).or_default();
        *sum = (sum.0 + of(0), sum.1 + of(0) * of(1), sum.2 + of(2));
    }
}
