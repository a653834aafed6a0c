//! How soon `fettle watch` heals servers that hang: hangs that are real ones (a regular expression without end in
//! nginx, a loop in Python, deadlocks, lost wake-ups, sleeps), and how soon the servers' own time-outs would.
//!
//! The servers have one worker each, so what a client waits for its next answer is what the hang costs: detection, the
//! worker's end, and the new one's start.

mod bed;
mod calm;
mod cost;
mod thread;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use fettle_stats::{median, quantile};

use crate::{apt, fettle};

use bed::{HANGS, Hang, Healed};

/// What to measure.
#[derive(Args, Debug, Clone)]
pub struct Options {
    /// Hangs of each kind
    #[arg(long, default_value_t = 200)]
    hangs: usize,
    /// Hangs that gunicorn's own time-out of one second is left to heal
    #[arg(long, default_value_t = 10)]
    own: usize,
    /// Only these kinds, such as nginx,gunicorn
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    /// Instead, let servers work for so many requests, without a hang but with all that may look like one, and
    /// count findings
    #[arg(long, value_name = "REQUESTS")]
    calm: Option<u64>,
    /// Instead, let nginx answer so many requests a turn, with and without a watcher, and say what watching costs
    #[arg(long, value_name = "REQUESTS", conflicts_with = "calm")]
    cost: Option<u64>,
    /// Rounds of turns for that
    #[arg(long, default_value_t = 10, requires = "cost")]
    rounds: usize,
    /// The binary to measure, instead of a new release build
    #[arg(long)]
    fettle: Option<PathBuf>,
}

/// Measures; fails if a hang was not found, or something was found that is none.
pub fn run(options: &Options) -> Result<bool> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    let packages =
        ["nginx-light", "gunicorn", "gcc", "apache2-utils", "redis-server", "nodejs", "procps"];
    let calm: &[&str] = if options.calm.is_some() { &["postgresql"] } else { &[] };
    apt::ensure(&[&packages[..], calm].concat().into_iter().map(String::from).collect::<Vec<_>>())?;
    let is_wanted =
        |name: &str| options.kinds.is_empty() || options.kinds.iter().any(|kind| kind == name);
    if let Some(requests) = options.calm {
        return calm::run(&binary, requests, &is_wanted);
    }
    if let Some(requests) = options.cost {
        cost::run(&binary, requests, options.rounds)?;
        return Ok(true);
    }
    println!(
        "{:12}{:>7}{:>7}   {:24}   {:24}   {:24}{:>9}",
        "hang",
        "made",
        "found",
        "found after, ms",
        "new worker after, ms",
        "client waits, ms",
        "watcher"
    );
    let wanted: Vec<&Hang> = HANGS.iter().filter(|hang| is_wanted(hang.name)).collect();
    ensure!(!wanted.is_empty() || is_wanted(thread::NAME), "there is no such kind: {:?}", names());
    let mut all_found = true;
    for hang in wanted {
        let healed = bed::measure(hang, Some(&binary), options.hangs)?;
        all_found &= healed.found.len() == options.hangs;
        show(hang.name, &healed, options.hangs);
        if hang.has_own_limit && options.own > 0 {
            let alone = bed::measure(hang, None, options.own)?;
            show("  by itself", &alone, options.own);
        }
    }
    if is_wanted(thread::NAME) && options.hangs > 0 {
        show_thread(&thread::measure(&binary, options.hangs)?, options.hangs);
    }
    Ok(all_found)
}

fn show_thread(restarts: &thread::Restarts, made: usize) {
    let [half, most, longest] = restarts.after.map(|after| after.as_secs_f64() * 1e3);
    let begun = format!("{half:.1}, 99 % {most:.1}, {longest:.1}");
    let share = restarts.watcher * 100.0;
    let name = thread::NAME;
    println!("{name:12}{made:>7}{made:>7}   {:24}   {begun:24}   {:24}{share:>8.2} %", "-", "-");
}

fn names() -> Vec<&'static str> {
    HANGS.iter().map(|hang| hang.name).chain([thread::NAME]).collect()
}

fn show(name: &str, healed: &Healed, made: usize) {
    let [found, replaced, waited] =
        [&healed.found, &healed.replaced, &healed.waited].map(|times| spread(times));
    let share = healed.watcher.map_or("-".to_owned(), |share| format!("{:.2} %", share * 100.0));
    let count = healed.found.len();
    println!("{name:12}{made:>7}{count:>7}   {found:24}   {replaced:24}   {waited:24}{share:>9}");
}

/// Median, 99th percentile and longest, in milliseconds.
fn spread(times: &[Duration]) -> String {
    let ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    if ms.is_empty() {
        return "-".to_owned();
    }
    let most = ms.iter().copied().fold(0.0, f64::max);
    format!("{:.1}, 99 % {:.1}, {most:.1}", median(&ms), quantile(&ms, 0.99))
}
