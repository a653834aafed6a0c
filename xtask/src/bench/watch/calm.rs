//! Servers that work, and all that may look like a hang: stops and continuations, and processors that others use.
//!
//! Whatever is found then is found wrongly.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::bed::{Bed, Group, Server, cpu_time};

/// A server under load.
struct Load {
    name: &'static str,
    /// What its processes are, for rules.
    is_worker: bool,
    start: fn() -> Result<Started>,
    /// The load: so many requests to a port.
    ask: fn(u16, u64) -> Command,
}

struct Started {
    /// What watches and stops its processes needs these.
    group: Group,
    program: String,
    port: u16,
    folder: std::path::PathBuf,
}

const LOADS: [Load; 2] = [
    Load { name: "nginx", is_worker: true, start: start_nginx, ask: ask_nginx },
    Load { name: "redis", is_worker: false, start: start_redis, ask: ask_redis },
];

fn start_nginx() -> Result<Started> {
    let bed = Bed::start(Server::Nginx, false, false)?;
    let (program, port, folder) = (bed.program()?, bed.port(), bed.folder.clone());
    Ok(Started { group: bed.master, program, port, folder })
}

fn ask_nginx(port: u16, requests: u64) -> Command {
    let mut ab = Command::new("ab");
    ab.args(["-q", "-k", "-c", "16", "-s", "60", "-n", &requests.to_string()]);
    ab.arg(format!("http://127.0.0.1:{port}/"));
    ab
}

fn start_redis() -> Result<Started> {
    let folder = crate::repo::target().join("bench/watch");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut redis = Command::new("redis-server");
    // It forks to save, which takes memory and time, as it would.
    redis.args(["--port", &port.to_string(), "--save", "5 1000", "--dir"]).arg(&folder);
    let group = Group::start(redis.stdout(Stdio::null()))?;
    let began = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(began.elapsed() < Duration::from_secs(10), "redis-server does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let path = std::fs::read_link(format!("/proc/{}/exe", group.pid()))?;
    let program = path.file_name().context("no name")?.to_string_lossy().into_owned();
    Ok(Started { group, program, port, folder })
}

fn ask_redis(port: u16, requests: u64) -> Command {
    let mut load = Command::new("redis-benchmark");
    load.args(["-q", "-p", &port.to_string(), "-c", "16", "-P", "4", "-r", "100000"]);
    load.args(["-t", "set", "-n", &requests.to_string()]);
    load
}

/// Lets each server work for so many requests; fails if anything was found.
pub fn run(fettle: &Path, requests: u64, is_wanted: &dyn Fn(&str) -> bool) -> Result<bool> {
    println!(
        "{:12}{:>12}{:>8}{:>9}{:>9}{:>10}",
        "server", "requests", "stops", "found", "s", "watcher"
    );
    let mut is_calm = true;
    for load in LOADS.iter().filter(|load| is_wanted(load.name)) {
        let started = (load.start)()?;
        let rules = rules(if load.is_worker { "worker" } else { "process" }, &started.program);
        let file = started.folder.join("rules");
        std::fs::write(&file, rules)?;
        let mut watch = Command::new(fettle);
        watch.arg("watch").arg(&file).args(["--json", "--state"]);
        watch.arg(started.folder.join("state")).args(["-p", &started.group.pid().to_string()]);
        let mut watcher = watch.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?;
        let said = first_line(&mut watcher)?;
        ensure!(said.contains("watching"), "fettle watch says {said}");
        // Something else wants the processors, too.
        let _busy = Group::start(Command::new("sh").args(["-c", "while :; do :; done"]))?;
        let began = Instant::now();
        let mut asks = (load.ask)(started.port, requests).stdout(Stdio::null()).spawn()?;
        let stops = disturb(&mut asks, started.group.pid())?;
        ensure!(asks.wait()?.success(), "the load on {} failed", load.name);
        let seconds = began.elapsed().as_secs_f64();
        let share = cpu_time(watcher.id())?.as_secs_f64() / seconds;
        kill(Pid::from_raw(watcher.id().cast_signed()), Signal::SIGINT)?;
        let mut rest = String::new();
        watcher.stdout.take().context("no output")?.read_to_string(&mut rest)?;
        watcher.wait()?;
        let found = rest.lines().filter(|line| line.contains("\"found\"")).count();
        rest.lines()
            .filter(|line| line.contains("\"found\""))
            .take(3)
            .for_each(|line| println!("  {line}"));
        is_calm &= found == 0;
        let share = share * 100.0;
        println!("{:12}{requests:>12}{stops:>8}{found:>9}{seconds:>9.0}{share:>8.2} %", load.name);
    }
    Ok(is_calm)
}

/// Rules for all kinds of hangs.
fn rules(kind: &str, program: &str) -> String {
    format!(
        "rule spins {{ {kind} of {program:?} spins 3ms without progress -> log }}\n\
         rule cycle {{ {kind} of {program:?} waits in a cycle -> log }}\n\
         rule asleep {{ {kind} of {program:?} sleeps 5ms while it holds bytes -> log }}\n"
    )
}

/// Reads byte by byte, for the rest is read later.
fn first_line(watcher: &mut Child) -> Result<String> {
    let out = watcher.stdout.as_mut().context("no output")?;
    let mut line = String::new();
    BufReader::with_capacity(1, out).read_line(&mut line)?;
    Ok(line)
}

/// Stops and continues all processes of a group for 1 to 200 ms, some times a second, until the load has ended.
fn disturb(asks: &mut Child, group: u32) -> Result<u32> {
    let (mut stops, mut ms) = (0, 1);
    let group = Pid::from_raw(-group.cast_signed());
    while asks.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(400));
        kill(group, Signal::SIGSTOP)?;
        std::thread::sleep(Duration::from_millis(ms));
        kill(group, Signal::SIGCONT)?;
        (stops, ms) = (stops + 1, ms * 2 % 199);
    }
    Ok(stops)
}
