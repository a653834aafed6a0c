//! What watching costs a server that does not hang, and how much of a processor it takes: by rules over threads, which
//! look from outside, and by rules over requests, which have the kernel's events recorded.
//!
//! Turns with and without a watcher alternate, the second half of each round in the reverse order, so that what else the
//! machine does falls on all of them alike.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fettle_stats::median;

use super::bed::{Bed, Server, cpu_time};
use super::calm::with_children;
use crate::proc::Group;

/// What rules are about, and one that never holds.
const RULES: [(&str, &str); 3] = [
    ("none", ""),
    ("threads", "rule a { worker of \"nginx\" spins 3ms without progress -> log }"),
    ("requests", "rule a { p99 of requests \"*\" of worker of \"nginx\" > 10s over 1s -> log }"),
];

/// One turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    seconds: f64,
    /// CPU time of the server's worker.
    server: f64,
    /// That of the watcher and of what it has recorded by.
    watcher: f64,
}

/// Lets nginx answer so many requests a turn, in so many rounds.
pub fn run(fettle: &Path, requests: u64, rounds: usize) -> Result<()> {
    let bed = Bed::start(Server::Nginx, false, false)?;
    let mut all: [Vec<Turn>; RULES.len()] = Default::default();
    for _ in 0..rounds {
        for half in 0..2 {
            for n in 0..RULES.len() {
                let n = if half == 0 { n } else { RULES.len() - 1 - n };
                all[n].push(turn(fettle, &bed, RULES[n].1, requests)?);
            }
        }
    }
    println!(
        "{:10}{:>12}{:>24}{:>24}{:>10}",
        "rules over", "requests/s", "time, ratio", "server's CPU, ratio", "watcher"
    );
    for ((name, _), turns) in RULES.iter().zip(&all) {
        let of =
            |turns: &[Turn], what: fn(&Turn) -> f64| turns.iter().map(what).collect::<Vec<_>>();
        // Each round has two turns of each kind.
        let ratio = |what: fn(&Turn) -> f64| {
            let sums = |turns: &[Turn]| {
                of(turns, what).chunks(2).map(|pair| pair.iter().sum::<f64>()).collect::<Vec<_>>()
            };
            let ratios =
                sums(turns).into_iter().zip(sums(&all[0])).map(|(with, without)| with / without);
            let ratios: Vec<f64> = ratios.collect();
            let least = ratios.iter().copied().fold(f64::MAX, f64::min);
            let most = ratios.iter().copied().fold(0.0, f64::max);
            format!("{:.3} ({least:.3} to {most:.3})", median(&ratios))
        };
        let rate = requests as f64 / median(&of(turns, |turn| turn.seconds));
        let share = 100.0 * median(&of(turns, |turn| turn.watcher / turn.seconds));
        let (time, server) = (ratio(|turn| turn.seconds), ratio(|turn| turn.server));
        println!("{name:10}{rate:>12.0}{time:>24}{server:>24}{share:>8.1} %");
    }
    Ok(())
}

fn turn(fettle: &Path, bed: &Bed, rule: &str, requests: u64) -> Result<Turn> {
    let watcher = if rule.is_empty() { None } else { Some(watch(fettle, bed, rule)?) };
    // A new watcher looks for what there is.
    std::thread::sleep(Duration::from_millis(300));
    let server = || -> Result<f64> {
        let processes = with_children(bed.master.pid());
        let worker = processes.get(1).context("nginx has no worker")?;
        Ok(cpu_time(worker.as_raw().cast_unsigned())?.as_secs_f64())
    };
    let watching = || -> f64 {
        let processes = watcher.iter().flat_map(|watcher| with_children(watcher.pid()));
        let times = processes.filter_map(|pid| cpu_time(pid.as_raw().cast_unsigned()).ok());
        times.map(|time| time.as_secs_f64()).sum()
    };
    let (server_before, watcher_before, began) = (server()?, watching(), Instant::now());
    let mut ab = Command::new("ab");
    ab.args(["-q", "-k", "-c", "16", "-n", &requests.to_string()]);
    ab.arg(format!("http://127.0.0.1:{}/", bed.port())).stdout(Stdio::null());
    ensure!(ab.status().context("starting ab")?.success(), "ab failed");
    Ok(Turn {
        seconds: began.elapsed().as_secs_f64(),
        server: server()? - server_before,
        watcher: watching() - watcher_before,
    })
}

/// A watcher that watches.
fn watch(fettle: &Path, bed: &Bed, rule: &str) -> Result<Group> {
    let rules = bed.folder.join("cost.rules");
    std::fs::write(&rules, rule)?;
    let mut watch = Command::new(fettle);
    watch.arg("watch").arg(&rules).args(["--json", "--state"]).arg(bed.folder.join("state"));
    watch.args(["-p", &bed.master.pid().to_string()]).stdout(Stdio::piped());
    let mut watcher = Group::start(&mut watch)?;
    let mut out = BufReader::new(watcher.out()?);
    let mut said = String::new();
    out.read_line(&mut said)?;
    ensure!(said.contains("watching"), "fettle watch says {said:?}");
    // What else it says must not fill a pipe.
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    Ok(watcher)
}
