//! How often comparisons of original and rewritten text say the right word, where it is known.
//!
//! Programs that compute are compared with themselves, and with themselves doing a known share more or
//! less work for a unit of it, while other threads compute. What decides is what `fettle tune` decides by;
//! CPU time and work are the kernel's account of real processes (`crates/tune/tune/examples/decisions.rs`).

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::machine;
use crate::{fettle, repo};

/// Of a hundred comparisons without a difference, so many may find one.
const WRONG_MOST: f64 = 0.05;

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Comparisons where nothing has changed, at each load
    #[arg(long, default_value_t = 200)]
    pub equal: usize,
    /// Comparisons of each known difference, at each load
    #[arg(long, default_value_t = 20)]
    pub seeded: usize,
    /// How many other threads compute
    #[arg(long, value_delimiter = ',', default_value = "1,6,20")]
    pub loads: Vec<usize>,
    /// Print what was measured as JSON
    #[arg(long)]
    pub json: bool,
}

/// Measures, prints, keeps the numbers; false if wrong words are too many.
pub fn run(options: &Options) -> Result<bool> {
    let example = fettle::test_example("fettle-tune", "decisions")?;
    if !options.json {
        println!(
            "{:>5} {:>7} {:>12} {:>7} {:>7} {:>6} {:>10} {:>14} {:>7}",
            "load",
            "change",
            "comparisons",
            "faster",
            "slower",
            "equal",
            "undecided",
            "in interval",
            "rounds"
        );
    }
    let (mut all, mut right) = (Vec::new(), true);
    for load in &options.loads {
        // A turn has to give a thread its share of a processor a few times.
        let turn_ms = 20 + 7 * load;
        let mut command = Command::new(&example);
        command.args([options.equal, options.seeded, *load, turn_ms].map(|n| n.to_string()));
        let output = command.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "{}", output.status);
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let row: Value = serde_json::from_str(line)?;
            right &= is_right(&row);
            if !options.json {
                println!("{}", shown(&row));
            }
            all.push(row);
        }
    }
    let all = json!({ "version": 1, "machine": machine::describe(), "rows": all, "right": right });
    std::fs::write(repo::target_folder("bench")?.join("decisions.json"), format!("{all}\n"))?;
    if options.json {
        println!("{all}");
    }
    Ok(right)
}

/// Whether wrong words are as few as is said. *Undecided* is no word.
fn is_right(row: &Value) -> bool {
    let count = |word: &str| row[word].as_f64().unwrap_or(0.0);
    let wrong = match row["percent"].as_i64() {
        Some(0) => count("faster") + count("slower"),
        Some(percent) if percent < 0 => count("slower") + count("equal"),
        _ => count("faster") + count("equal"),
    };
    wrong <= count("comparisons") * WRONG_MOST
}

fn shown(row: &Value) -> String {
    let number = |name: &str| row[name].as_u64().unwrap_or(0);
    format!(
        "{:>5} {:>5} % {:>12} {:>7} {:>7} {:>6} {:>10} {:>14} {:>7.1}",
        number("load"),
        row["percent"].as_i64().unwrap_or(0),
        number("comparisons"),
        number("faster"),
        number("slower"),
        number("equal"),
        number("undecided"),
        number("covered"),
        row["rounds"].as_f64().unwrap_or(0.0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_words_are_counted() {
        let row = |percent: i64, faster: u64, slower: u64, equal: u64| json!({ "percent": percent, "comparisons": 20, "faster": faster, "slower": slower, "equal": equal });
        assert!(is_right(&row(0, 1, 0, 12)) && !is_right(&row(0, 1, 1, 12)));
        assert!(is_right(&row(-2, 19, 1, 0)) && !is_right(&row(-2, 10, 0, 2)));
        assert!(is_right(&row(5, 0, 20, 0)) && !is_right(&row(5, 2, 18, 0)));
    }
}
