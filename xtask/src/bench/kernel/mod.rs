//! What recording the kernel's events costs servers, next to what other tools' looking costs them.
//!
//! A server works under load while each observer in turn is attached to it and taken off again:
//! forwards and then backwards in each round, so that a machine that gets slower does so for all.
//! What is compared is the mean of an observer's two turns with that of the plain server's, round
//! by round; what is shown are medians and quartiles over rounds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;
use fettle_stats::{quartiles, ratios};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::load::{Measured, SERVERS, Server};
use self::observer::{OBSERVERS, Observer, Target};
use super::machine;
use crate::{apt, fettle, proc, repo};

mod load;
mod observer;

/// How long observers have to attach themselves.
const ATTACHING: Duration = Duration::from_secs(2);

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Rounds for each server, in each of which an observer has two turns
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Seconds of each turn
    #[arg(long, default_value_t = 4)]
    pub seconds: u64,
    /// Requests a second that nginx is asked at a fixed rate
    #[arg(long, default_value_t = 20_000)]
    pub rate: u64,
    /// Only these servers
    #[arg(long, value_delimiter = ',', value_parser = one_of(SERVERS.iter().map(|s| s.name)))]
    pub servers: Vec<String>,
    /// Only these observers
    #[arg(long, value_delimiter = ',', value_parser = one_of(OBSERVERS.iter().map(|o| o.name)))]
    pub observers: Vec<String>,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// Print what was measured as JSON
    #[arg(long)]
    pub json: bool,
}

fn one_of(names: impl Iterator<Item = &'static str>) -> PossibleValuesParser {
    PossibleValuesParser::new(names)
}

/// What the turns of one observer gave, by round.
struct Turns<'a> {
    observer: &'a Observer,
    rounds: Vec<Measured>,
}

/// Measures, prints, and keeps the raw rounds.
pub fn run(options: &Options) -> Result<bool> {
    if !nix::unistd::geteuid().is_root() {
        bail!("the kernel's events need root");
    }
    let binary = fettle::binary(options.fettle.as_deref())?;
    let folder = repo::target_folder("bench/kernel")?;
    let wanted = |list: &[String], name: &str| list.is_empty() || list.iter().any(|n| n == name);
    let mut observers: Vec<&Observer> = Vec::new();
    for observer in OBSERVERS.iter().filter(|o| o.is_plain() || wanted(&options.observers, o.name))
    {
        match ensure(observer.packages) {
            Ok(()) => observers.push(observer),
            Err(error) => eprintln!("skipped {}: {error:#}", observer.name),
        }
    }
    let mut all = Vec::new();
    for server in SERVERS.iter().filter(|server| wanted(&options.servers, server.name)) {
        if let Err(error) = ensure(server.packages) {
            eprintln!("skipped {}: {error:#}", server.name);
            continue;
        }
        let (here, blind): (Vec<&Observer>, Vec<&Observer>) =
            observers.iter().copied().partition(|observer| observer.follows || !server.forks);
        for observer in blind {
            eprintln!(
                "skipped {} at {}: it does not see what is forked later",
                observer.name, server.name
            );
        }
        let turns = measure(server, &here, &binary, &folder, options)
            .with_context(|| format!("{} could not be measured", server.name))?;
        if !options.json {
            print(server, &turns);
        }
        all.push(json!({ "server": server.name, "observers": raw(&turns) }));
    }
    let all = json!({ "version": 1, "machine": machine::describe(), "servers": all });
    std::fs::write(folder.join("kernel.json"), format!("{all}\n"))?;
    if options.json {
        println!("{all}");
    }
    Ok(true)
}

fn ensure(packages: &[&str]) -> Result<()> {
    apt::ensure(&packages.iter().map(|package| (*package).to_owned()).collect::<Vec<_>>())
}

fn measure<'a>(
    server: &Server,
    observers: &[&'a Observer],
    binary: &Path,
    folder: &Path,
    options: &Options,
) -> Result<Vec<Turns<'a>>> {
    let running = (server.start)(&folder.join(server.name))?;
    // Caches fill first; whether that succeeds does not matter.
    let _ = running.load(2, options.rate);
    let mut bystander = std::process::Command::new("sleep").arg("100000").spawn()?;
    let target = Target {
        pid: running.pid(),
        name: server.process,
        bystander: bystander.id().cast_signed(),
        fettle: binary,
        folder,
    };
    let mut turns: Vec<Turns<'a>> =
        observers.iter().map(|observer| Turns { observer, rounds: Vec::new() }).collect();
    let forwards: Vec<usize> = (0..turns.len()).collect();
    let mut gone_through = || -> Result<()> {
        for round in 0..options.rounds {
            let mut halves: Vec<Vec<Measured>> = vec![Vec::new(); turns.len()];
            for place in forwards.iter().chain(forwards.iter().rev()) {
                let observer = turns[*place].observer;
                let turn = || running.load(options.seconds, options.rate);
                let measured = observe(observer, &target, turn)
                    .with_context(|| format!("{} in round {}", observer.name, round + 1))?;
                halves[*place].push(measured);
            }
            for (turns, halves) in turns.iter_mut().zip(&halves) {
                turns.rounds.push(Measured::mean(halves));
            }
        }
        Ok(())
    };
    let outcome = gone_through();
    let _ = bystander.kill();
    let _ = bystander.wait();
    outcome.map(|()| turns)
}

/// One turn: the observer comes, there is load, the observer goes.
fn observe(
    observer: &Observer,
    target: &Target<'_>,
    load: impl FnOnce() -> Result<Measured>,
) -> Result<Measured> {
    let Some(start) = observer.start else { return load() };
    let command = start(target)?;
    let mut attached = proc::start(command, target.folder, "observer", None)?;
    std::thread::sleep(ATTACHING);
    let was_there = attached.alive();
    let measured = load();
    attached.signal(Signal::SIGINT);
    let outcome = attached.finish(Duration::from_secs(300))?;
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let said = said.lines().take(3).collect::<Vec<_>>().join(" | ");
    if !was_there {
        bail!("it did not stay: {}: {said}", outcome.ending);
    }
    let mut measured = measured?;
    let seen = (observer.seen)(target, &outcome)?;
    if seen.events == 0 && !observer.sees_nothing {
        bail!("it saw nothing: {}: {said}", outcome.ending);
    }
    measured.lost = seen.lost as f64;
    Ok(measured)
}

fn print(server: &Server, turns: &[Turns<'_>]) {
    println!("{}: {}", server.name, server.what);
    println!(
        "{:<22} {:>12} {:>17} {:>8} {:>9} {:>9} {:>11} {:>8}",
        "observer", "throughput", "of plain", "p99, ms", "of plain", "CPU, us", "of plain", "lost"
    );
    let Some(plain) = turns.iter().find(|turns| turns.observer.is_plain()) else { return };
    for turns in turns {
        let column = |of: &Turns<'_>, pick: fn(&Measured) -> f64| -> Vec<f64> {
            of.rounds.iter().map(pick).collect()
        };
        let middle = |pick| fettle_stats::median(&column(turns, pick));
        let ratio = |pick| quartiles(&ratios(&column(turns, pick), &column(plain, pick)));
        let [through, low, high] = ratio(|m| m.per_second);
        println!(
            "{:<22} {:>10.0}/s {through:>6.3} [{low:.2}, {high:.2}] {:>8.2} {:>9.2} {:>9.1} {:>11.2} {:>8.0}",
            turns.observer.name,
            middle(|m| m.per_second),
            middle(|m| m.p99_ms),
            ratio(|m| m.p99_ms)[0],
            middle(|m| m.cpu_us),
            ratio(|m| m.cpu_us)[0],
            middle(|m| m.lost),
        );
    }
    println!();
}

fn raw(turns: &[Turns<'_>]) -> Vec<Value> {
    let of = |turns: &Turns<'_>| json!({ "observer": turns.observer.name, "rounds": turns.rounds });
    turns.iter().map(of).collect()
}
