//! `cargo xtask fleet`: servers under load that `fettle tuned` looks after, and what a fleet must stand.
//!
//! PostgreSQL, and PHP behind nginx, each with clients that check every answer; a daemon with rules for
//! them; a Prometheus that reads its metrics. In turns: all are tuned, or it is said why not; one fails its
//! check, and is reverted; one becomes slower, and is reverted; one's load changes, and it is tuned anew;
//! the daemon is killed again and again. At the end `fettle undo --all`, and all code is the files'.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{apt, fettle, proc, repo};
use clients::{HttpClients, Load};
use daemon::{Daemon, Fettle, Prometheus};
use servers::{Fleet, PACKAGES, Server};

mod clients;
mod daemon;
mod servers;

/// What to run.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Clusters of PostgreSQL, two at least
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=16))]
    pub databases: u8,
    /// PHP servers behind nginx
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub interpreters: u8,
    /// How often the daemon is killed
    #[arg(long, default_value_t = 12)]
    pub kills: u32,
    /// Seed of the moments
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// Print what happened as JSON
    #[arg(long)]
    pub json: bool,
}

/// A scene: its name, and what it does and finds.
type Scene = (&'static str, fn(&mut Bed) -> Result<String>);

const SCENES: [Scene; 6] = [
    ("all are tuned, or it is said why not", all_are_tuned),
    ("what fails its check is reverted", failed_check),
    ("what has become slower is reverted", slower),
    ("a load that changes is tuned for anew", shifted),
    ("a daemon that is killed leaves servers that serve", killed),
    ("undo --all: all code is the files'", undone),
];

/// A group has so long until the daemon has done something with it.
const PATIENCE: Duration = Duration::from_secs(180);
/// Transactions of a cluster, each second.
const RATE: u32 = 400;

/// Runs all of it; false if a scene failed.
pub fn run(options: &Options) -> Result<bool> {
    proc::no_core_files();
    apt::ensure(&PACKAGES.map(str::to_owned))?;
    let mut bed = Bed::start(options)?;
    let (mut all, mut right) = (Vec::new(), true);
    for (name, scene) in SCENES {
        let begun = Instant::now();
        let outcome = scene(&mut bed).and_then(|found| bed.check().map(|()| found));
        let seconds = begun.elapsed().as_secs_f64();
        let (is_right, found) = match outcome {
            Ok(found) => (true, found),
            Err(error) => (false, format!("{error:#}")),
        };
        right &= is_right;
        if !options.json {
            let word = if is_right { "right" } else { "WRONG" };
            println!("{word}     {name} ({seconds:.0} s): {found}");
        }
        all.push(json!({ "scene": name, "right": is_right, "found": found, "seconds": seconds }));
    }
    let answered = bed.http.answered();
    if options.json {
        let value = json!({ "version": 1, "right": right, "scenes": all, "answers": answered });
        println!("{value}");
    } else {
        println!("{answered} rounds of requests through nginx had right answers");
    }
    Ok(right)
}

/// The fleet, its clients, and who looks after it.
struct Bed {
    options: Options,
    // Clients end before their servers.
    http: HttpClients,
    loads: Vec<Load>,
    prometheus: Prometheus,
    daemon: Option<Daemon>,
    fleet: Fleet,
    fettle: Fettle,
    /// The port of the metrics.
    metrics: u16,
    /// Those that the first scene's daemon has tuned.
    tuned: Vec<Server>,
}

impl Bed {
    fn start(options: &Options) -> Result<Bed> {
        let binary = fettle::binary(options.fettle.as_deref())?;
        let folder = repo::target().join("fleet");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let fettle = Fettle { binary, folder: folder.clone() };
        let (databases, interpreters) = (options.databases.into(), options.interpreters.into());
        let fleet = Fleet::start(&folder, databases, interpreters)?;
        let http = HttpClients::start(fleet.port)?;
        let mut loads = Vec::new();
        for cluster in &fleet.clusters {
            loads.push(Load::start(cluster, "usual.sql", RATE)?);
        }
        let metrics = clients::free_port()?;
        let prometheus = Prometheus::start(&fettle, metrics)?;
        let options = options.clone();
        let (daemon, tuned) = (None, Vec::new());
        Ok(Bed { options, http, loads, prometheus, daemon, fleet, fettle, metrics, tuned })
    }

    /// Whether all clients had right answers, and still have.
    fn check(&mut self) -> Result<()> {
        self.http.go_on()?;
        for (load, cluster) in self.loads.iter_mut().zip(&self.fleet.clusters) {
            load.check()?;
            clients::check_sums(cluster)?;
        }
        Ok(())
    }

    /// Starts a daemon in the place of the one that there is.
    fn daemon(&mut self, more: &str) -> Result<&Daemon> {
        if let Some(daemon) = self.daemon.take() {
            daemon.end()?;
        }
        let more =
            format!("count = \"1s\"\nturn = \"200ms\"\nrounds = 10\nmax_rounds = 30\n{more}");
        let rules = servers::rules(&self.fettle.folder, self.metrics, &more);
        Ok(self.daemon.insert(Daemon::start(&self.fettle, &rules)?))
    }

    fn running(&self) -> Result<&Daemon> {
        self.daemon.as_ref().context("no daemon runs")
    }

    /// A cluster that is tuned, counted from the end.
    fn tuned_database(&self, from_end: usize) -> Result<Server> {
        let mut tuned = self.tuned.iter().filter(|server| server.rule == "postgres").rev();
        tuned.nth(from_end).cloned().context("too few clusters are tuned for this scene")
    }
}

/// Whether a line says that this has ended with a process.
fn ended<'a>(what: &'a str, pid: u32) -> impl Fn(&Value) -> bool + 'a {
    move |line| line["ended"] == what && line["pid"] == pid
}

fn percent(line: &Value) -> String {
    let ratio = line["ratio"].as_f64().map(|ratio| (ratio - 1.0) * 100.0);
    let word = line["why"].as_str().or(line["result"].as_str()).unwrap_or_default();
    ratio.map_or_else(|| word.to_owned(), |change| format!("{word} {change:+.1} %"))
}

fn all_are_tuned(bed: &mut Bed) -> Result<String> {
    bed.daemon("recheck = \"1h\"\n")?;
    let (servers, daemon) = (bed.fleet.servers.clone(), bed.running()?);
    let (mut found, mut tuned, mut compared) = (Vec::new(), Vec::new(), 0);
    for server in &servers {
        let at = daemon.wait(0, PATIENCE * servers.len() as u32, ended("tune", server.pid))?;
        let line = &daemon.said()[at];
        // What failed was not compared; what was not compared has a reason.
        ensure!(line["result"] != "failed", "{} {}: {line}", server.rule, server.pid);
        ensure!(line["why"].as_str().is_some_and(|why| !why.is_empty()), "no reason: {line}");
        compared += u32::from(line["ratio"].is_number());
        if line["kept"] == true {
            tuned.push((server.clone(), line["ratio"].as_f64().context("no ratio")?));
        }
        found.push(format!("{} {}", server.rule, percent(line)));
    }
    bed.tuned = tuned.iter().map(|(server, _)| server.clone()).collect();
    let prometheus = &bed.prometheus;
    prometheus.shows("up{job=\"fettle\"}", 1.0)?;
    prometheus.shows("sum(fettle_tuned_groups)", servers.len() as f64)?;
    prometheus.shows("sum(fettle_tuned_groups{state=\"tuned\"})", tuned.len() as f64)?;
    let comparisons = "sum(fettle_tuned_comparisons_total{verdict!=\"not compared\"})";
    prometheus.shows(comparisons, compared.into())?;
    for (server, ratio) in &tuned {
        let query = format!("fettle_tuned_time_ratio{{pid=\"{}\"}}", server.pid);
        prometheus.shows(&query, *ratio)?;
    }
    let refused = clients::get(bed.metrics, "/metrics", "").map(drop).unwrap_err().to_string();
    ensure!(refused.contains("401"), "without the token: {refused}");
    Ok(format!("{}; Prometheus shows the same", found.join(", ")))
}

fn failed_check(bed: &mut Bed) -> Result<String> {
    let server = bed.tuned_database(0)?;
    let daemon = bed.running()?;
    let before = daemon.said().len();
    let unwell = bed.fettle.folder.join(format!("unwell-{}", server.pid));
    std::fs::write(&unwell, "")?;
    let begun = Instant::now();
    let at = daemon.wait(before, PATIENCE, ended("undo", server.pid))?;
    let (line, took) = (&daemon.said()[at], begun.elapsed());
    ensure!(line["result"] == "done", "{line}");
    let differing = server.differing()?;
    ensure!(differing.is_none(), "{differing:?} is not what it was");
    bed.prometheus.shows("fettle_tuned_undone_total{rule=\"postgres\"}", 1.0)?;
    bed.prometheus.shows("fettle_tuned_failed_checks_total{rule=\"postgres\"}", 2.0)?;
    std::fs::remove_file(&unwell)?;
    bed.tuned.retain(|tuned| tuned.pid != server.pid);
    Ok(format!(
        "postgres {}, {:.1} s after its check had failed first",
        server.pid,
        took.as_secs_f64()
    ))
}

fn slower(bed: &mut Bed) -> Result<String> {
    let server = bed.tuned_database(0)?;
    if let Some(daemon) = bed.daemon.take() {
        daemon.end()?;
    }
    // The same functions with their blocks in any order: each goes through more jumps than it did.
    let pid = server.pid.to_string();
    bed.fettle.run(&["undo", "--group", &pid], &[0])?;
    bed.fettle.run(&["tune", "-p", &pid, "--shuffle", "7"], &[0])?;
    let daemon = bed.daemon("recheck = \"1s\"\n")?;
    let limit = PATIENCE * 3;
    let at = daemon.wait(0, limit, ended("recheck", server.pid))?;
    let line = daemon.said()[at].clone();
    ensure!(line["kept"] == false, "it stays: {line}");
    let again = daemon.wait(at, limit, ended("tune", server.pid))?;
    let anew = daemon.said()[again].clone();
    bed.prometheus.shows("fettle_tuned_undone_total{rule=\"postgres\"} > bool 0", 1.0)?;
    Ok(format!(
        "postgres {pid}, blocks in any order: {}; tuned anew: {}",
        percent(&line),
        percent(&anew)
    ))
}

fn shifted(bed: &mut Bed) -> Result<String> {
    let server = bed.tuned_database(0)?;
    let is_its = |pid: Result<i32>| pid.is_ok_and(|pid| pid.cast_unsigned() == server.pid);
    let number = bed.fleet.clusters.iter().position(|cluster| is_its(cluster.postmaster()));
    let number = number.context("no such cluster")?;
    bed.loads.remove(number);
    bed.loads.insert(number, Load::start(&bed.fleet.clusters[number], "shifted.sql", RATE)?);
    let daemon = bed.running()?;
    let before = daemon.said().len();
    let is_tuning = |line: &Value| line["begun"] == "tune" && line["pid"] == server.pid;
    let limit = PATIENCE * 3;
    let begun = daemon.wait(before, limit, is_tuning)?;
    let at = daemon.wait(begun, limit, ended("tune", server.pid))?;
    let said = daemon.said();
    let rechecked = said[..begun].iter().rev().find(|line| ended("recheck", server.pid)(line));
    let rechecked = rechecked.map(percent).context("it was tuned anew without a comparison")?;
    Ok(format!("postgres {}: then {rechecked}; tuned anew: {}", server.pid, percent(&said[at])))
}

fn killed(bed: &mut Bed) -> Result<String> {
    let mut seed = bed.options.seed;
    let mut begun = 0;
    for _ in 0..bed.options.kills {
        bed.daemon("recheck = \"1s\"\nretry = \"1s\"\n")?;
        // It looks, begins, counts, installs, compares: at any of these.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis(200 + (seed >> 33) % 6000));
        let daemon = bed.daemon.take().context("no daemon runs")?;
        begun += usize::from(daemon.said().iter().any(|line| line["begun"].is_string()));
        daemon.kill()?;
        bed.check()?;
    }
    // What they have started reverts what it has begun, and ends.
    let waited = Instant::now();
    while !daemon::at_work(&bed.fettle.binary).is_empty() {
        ensure!(waited.elapsed() < Duration::from_secs(60), "a tuner does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    let ends = waited.elapsed().as_secs_f64();
    let daemon = bed.daemon("recheck = \"1s\"\nretry = \"1s\"\n")?;
    let is_done = |line: &Value| line["kept"].is_boolean();
    let at = daemon.wait(0, PATIENCE, is_done)?;
    let line = daemon.said()[at].clone();
    let kills = bed.options.kills;
    Ok(format!(
        "killed {kills} times, {begun} of them at work; the last tuner ended after {ends:.1} s; the next \
         daemon: {} {}",
        line["ended"].as_str().unwrap_or_default(),
        percent(&line)
    ))
}

fn undone(bed: &mut Bed) -> Result<String> {
    if let Some(daemon) = bed.daemon.take() {
        daemon.end()?;
    }
    bed.fettle.run(&["undo", "--all", "--wait", "20"], &[0, 1])?;
    bed.fettle.run(&["status"], &[0, 1])?;
    for server in &bed.fleet.servers {
        let differing = server.differing()?;
        ensure!(differing.is_none(), "{differing:?} is not what it was");
    }
    Ok(format!("{} servers with all their processes", bed.fleet.servers.len()))
}
