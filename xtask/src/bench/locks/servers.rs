//! What `fettle locks -p` costs servers under load: CPU time of the server for an answer, while it is counted and
//! while it is not, in turns.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::bench::tune::mariadb;
use crate::proc;

/// How long is measured at once.
const WINDOW: Duration = Duration::from_secs(4);
/// How long the counting has to begin.
const LEAD: Duration = Duration::from_secs(90);
/// CPU time and answers may not rise by more.
const MOST: f64 = 1.05;

/// A server, its load, and a command that prints a number that grows with the answers.
struct Server {
    name: &'static str,
    server: Child,
    load: Child,
    work: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in [&mut self.load, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Measures those that are here; false if one costs too much.
pub fn run(binary: &Path, folder: &Path, rounds: usize) -> Result<bool> {
    let mut right = true;
    for (package, program, start) in [
        ("redis-server", "redis-server", redis as fn(&Path) -> Result<Server>),
        ("mariadb-server", "mariadbd", mariadb),
    ] {
        if proc::on_path(program) && (program != "mariadbd" || proc::on_path("sysbench")) {
            right &= compare(&start(&folder.join(program))?, binary, folder, rounds)?;
        } else {
            println!("{program} or its load is not here (apt-get install {package} sysbench)");
        }
    }
    Ok(right)
}

fn redis(folder: &Path) -> Result<Server> {
    std::fs::create_dir_all(folder)?;
    let mut server = Command::new("redis-server");
    server.args(["--port", "17390", "--save", "", "--appendonly", "no"]).current_dir(folder);
    let mut server = server.stdout(Stdio::null()).spawn()?;
    let client = || {
        let mut client = Command::new("redis-cli");
        client.args(["-p", "17390", "ping"]).stdin(Stdio::null());
        proc::output_of(&mut client)
    };
    let begun = Instant::now();
    while client().is_err() {
        let over = server.try_wait()?.is_some() || begun.elapsed() > Duration::from_secs(20);
        if over {
            let _ = server.kill();
        }
        ensure!(!over, "redis-server does not start");
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut load = Command::new("redis-benchmark");
    load.args(["-p", "17390", "-l", "-q", "-c", "16", "-r", "100000", "-t", "set,get,lpush,lpop"]);
    let load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let work =
        "redis-cli -p 17390 info stats | grep total_commands_processed | tr -dc 0-9".to_owned();
    Ok(Server { name: "redis", server, load, work })
}

fn mariadb(folder: &Path) -> Result<Server> {
    let mariadb::Loaded { server, load, work } = mariadb::start(folder)?;
    Ok(Server { name: "MariaDB", server, load, work: format!("{work} | tr -dc 0-9") })
}

fn compare(server: &Server, binary: &Path, folder: &Path, rounds: usize) -> Result<bool> {
    let report = folder.join("locks.json");
    // The first time, libraries are read.
    counted(server, binary, &report)?;
    let (mut plain, mut with, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    let mut inside = Vec::new();
    for _ in 0..rounds {
        plain.push(cost(server)?);
        let found = counted(server, binary, &report)?;
        with.push(found.cost);
        taken.push(found.acquired);
        inside.extend(found.inside);
    }
    let (before, after) = (fettle_stats::median(&plain), fettle_stats::median(&with));
    let ratio = after / before;
    println!(
        "{:10} plain {:8.2} µs an answer, fettle locks -p {:8.2} µs {ratio:6.2}x; {:.1} locks an answer",
        server.name,
        before / 1e3,
        after / 1e3,
        fettle_stats::median(&taken)
    );
    if !inside.is_empty() {
        println!(
            "{:10} {:.1} % of the server's samples are in functions with probes or in probes",
            server.name,
            100.0 * fettle_stats::median(&inside)
        );
    }
    if ratio > MOST {
        println!("{}: {ratio:.2}x, wanted: {MOST}x at most", server.name);
    }
    Ok(ratio <= MOST)
}

/// A server while its locks are counted.
struct Counted {
    /// Nanoseconds of CPU time for an answer.
    cost: f64,
    /// Locks taken for one.
    acquired: f64,
    /// The share of perf's samples that are in rewritten text or probes, where there is perf.
    inside: Option<f64>,
}

/// Counts its locks for a while.
fn counted(server: &Server, binary: &Path, report: &Path) -> Result<Counted> {
    let pid = server.server.id();
    let mut locks = Command::new(binary);
    locks.args(["locks", "-q", "--json", "-p", &pid.to_string(), "-o"]).arg(report);
    let mut locks = locks.stdout(Stdio::null()).spawn()?;
    let begun = Instant::now();
    while !is_traced(pid)? {
        let over = begun.elapsed() > LEAD || locks.try_wait()?.is_some();
        if over {
            let _ = locks.kill();
        }
        ensure!(!over, "{}: counting does not begin", server.name);
        std::thread::sleep(Duration::from_millis(50));
    }
    // Until its functions have probes.
    std::thread::sleep(Duration::from_secs(2));
    let (begin, first) = (Instant::now(), answers(server)?);
    let cost = cost(server)?;
    let (took, last) = (begin.elapsed(), answers(server)?);
    let inside = proc::on_path("perf").then(|| inside(pid, report)).transpose()?;
    proc::step(Command::new("kill").args(["-INT", &locks.id().to_string()]))?;
    let status = locks.wait()?;
    ensure!(status.success(), "fettle locks -p: {status}");
    let found: Value = serde_json::from_slice(&std::fs::read(report)?)?;
    let classes = found["classes"].as_array().context("no classes")?;
    let acquired: u64 = classes.iter().filter_map(|class| class["acquired"].as_u64()).sum();
    let counted = found["duration_ns"].as_f64().context("no duration")? / 1e9;
    let per_second = acquired as f64 / counted;
    let acquired = per_second / ((last - first) / took.as_secs_f64());
    Ok(Counted { cost, acquired, inside })
}

/// The share of a process's samples that are in code of no file: that is, in what Fettle has put there.
fn inside(pid: u32, report: &Path) -> Result<f64> {
    let (data, pid) = (report.with_extension("perf"), pid.to_string());
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-F", "4999", "-e", "cpu-clock", "-p", &pid, "-o"]).arg(&data);
    proc::step(record.args(["--", "sleep", "3"]).stderr(Stdio::null()))?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let of_none = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (range, rights) = (words.next()?, words.next()?);
        let path = words.nth(3).unwrap_or_default();
        let (from, to) = range.split_once('-')?;
        let is_ours = rights.contains('x') && !path.starts_with(['/', '[']);
        let hex = |text| u64::from_str_radix(text, 16).ok();
        is_ours.then(|| Some((hex(from)?, hex(to)?)))?
    };
    let ours: Vec<(u64, u64)> = maps.lines().filter_map(of_none).collect();
    let mut script = Command::new("perf");
    let said = proc::output_of(script.args(["script", "-F", "ip", "-i"]).arg(&data))?;
    let samples: Vec<u64> =
        said.lines().filter_map(|line| u64::from_str_radix(line.trim(), 16).ok()).collect();
    ensure!(!samples.is_empty(), "perf has no sample of process {pid}");
    let hits = samples.iter().filter(|ip| ours.iter().any(|(from, to)| (from..to).contains(ip)));
    Ok(hits.count() as f64 / samples.len() as f64)
}

fn is_traced(pid: u32) -> Result<bool> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    Ok(tracer.is_some_and(|tracer| tracer.trim() != "0"))
}

/// Nanoseconds of the server's CPU time for an answer.
fn cost(server: &Server) -> Result<f64> {
    let (time, work) = (cpu_ns(server.server.id())?, answers(server)?);
    std::thread::sleep(WINDOW);
    let (time, work) = (cpu_ns(server.server.id())? - time, answers(server)? - work);
    ensure!(work > 0.0, "{} answers nothing", server.name);
    Ok(time / work)
}

fn answers(server: &Server) -> Result<f64> {
    let text = proc::output_of(Command::new("sh").args(["-c", &server.work]))?;
    text.trim().parse().with_context(|| format!("{}: {text:?} is no number", server.work))
}

/// CPU time of all threads of a process that live.
fn cpu_ns(pid: u32) -> Result<f64> {
    let mut sum = 0.0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        sum += text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0);
    }
    Ok(sum)
}
