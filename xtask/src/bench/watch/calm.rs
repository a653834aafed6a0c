//! Servers that work, and all that may look like a hang: stops and continuations, and processors that others use.
//!
//! Whatever is found then is found wrongly.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::bed::{Bed, Server, cpu_time};
use crate::postgres::Cluster;
use crate::proc::Group;

/// A server under load.
struct Load {
    name: &'static str,
    /// What its processes are, for rules.
    is_worker: bool,
    start: fn() -> Result<Started>,
    /// The load: so many requests.
    ask: fn(&Started, u64) -> Command,
    /// It gets one in so many of the requests that were asked for: it takes as much longer for each.
    one_in: u64,
}

struct Started {
    server: Running,
    program: String,
    port: u16,
    folder: PathBuf,
}

/// What ends the server with it.
enum Running {
    Group(Group),
    Cluster(Cluster),
}

impl Started {
    /// The process that all others were started by.
    fn root(&self) -> Result<u32> {
        match &self.server {
            Running::Group(group) => Ok(group.pid()),
            Running::Cluster(cluster) => Ok(cluster.postmaster()?.cast_unsigned()),
        }
    }
}

const LOADS: [Load; 5] = [
    Load { name: "nginx", is_worker: true, start: start_nginx, ask: ab, one_in: 1 },
    Load { name: "redis", is_worker: false, start: start_redis, ask: ask_redis, one_in: 1 },
    Load { name: "node", is_worker: false, start: start_node, ask: ab, one_in: 1 },
    Load { name: "postgres", is_worker: true, start: start_postgres, ask: ask_postgres, one_in: 1 },
    Load { name: "gunicorn", is_worker: true, start: start_gunicorn, ask: ab, one_in: 50 },
];

fn start_nginx() -> Result<Started> {
    of_bed(Bed::start(Server::Nginx, false, false)?)
}

fn start_gunicorn() -> Result<Started> {
    of_bed(Bed::start(Server::Gunicorn, false, false)?)
}

fn of_bed(bed: Bed) -> Result<Started> {
    let (program, port, folder) = (bed.program()?, bed.port(), bed.folder.clone());
    Ok(Started { server: Running::Group(bed.master), program, port, folder })
}

fn ab(server: &Started, requests: u64) -> Command {
    let mut ab = Command::new("ab");
    ab.args(["-q", "-k", "-c", "16", "-s", "60", "-n", &requests.to_string()]);
    ab.arg(format!("http://127.0.0.1:{}/", server.port));
    ab
}

fn start_redis() -> Result<Started> {
    let folder = emptied_folder()?;
    let port = free_port()?;
    let mut redis = Command::new("redis-server");
    // It forks to save, which takes memory and time, as it would.
    redis.args(["--port", &port.to_string(), "--save", "5 1000", "--dir"]).arg(&folder);
    listening(redis, port, folder)
}

fn ask_redis(server: &Started, requests: u64) -> Command {
    let mut load = Command::new("redis-benchmark");
    load.args(["-q", "-p", &server.port.to_string(), "-c", "16", "-P", "4", "-r", "100000"]);
    load.args(["-t", "set", "-n", &requests.to_string()]);
    load
}

/// It allocates, so that its collector of garbage has work.
const NODE: &str = "require('http').createServer((q, r) => r.end(JSON.stringify(\
                    Array.from({length: 50}, (_, n) => ({n, at: q.url}))))).listen(+process.argv[1], '127.0.0.1')";

fn start_node() -> Result<Started> {
    let port = free_port()?;
    let mut node = Command::new("node");
    node.args(["-e", NODE, &port.to_string()]);
    listening(node, port, emptied_folder()?)
}

fn start_postgres() -> Result<Started> {
    let cluster = Cluster::start(&emptied_folder()?.join("postgres"))?;
    ensure!(cluster.pgbench(&["-i", "-s", "5", "-q"]).output()?.status.success(), "pgbench -i");
    let folder = emptied_folder_beside()?;
    Ok(Started { server: Running::Cluster(cluster), program: "postgres".into(), port: 0, folder })
}

fn ask_postgres(server: &Started, requests: u64) -> Command {
    const CLIENTS: u64 = 8;
    let Running::Cluster(cluster) = &server.server else { return Command::new("false") };
    let each = (requests / CLIENTS).max(1).to_string();
    cluster.pgbench(&["-S", "-M", "prepared", "-c", &CLIENTS.to_string(), "-t", &each])
}

/// For a server's files; whatever was there is gone.
fn emptied_folder() -> Result<PathBuf> {
    emptied("watch")
}

/// For the watcher's, where the server's belong to another user.
fn emptied_folder_beside() -> Result<PathBuf> {
    emptied("watch-calm")
}

fn emptied(name: &str) -> Result<PathBuf> {
    let folder = crate::repo::target().join("bench").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Starts a server, and waits until it listens.
fn listening(mut command: Command, port: u16, folder: PathBuf) -> Result<Started> {
    let group = Group::start(command.stdout(Stdio::null()))?;
    let began = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(began.elapsed() < Duration::from_secs(10), "{command:?} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let path = std::fs::read_link(format!("/proc/{}/exe", group.pid()))?;
    let program = path.file_name().context("no name")?.to_string_lossy().into_owned();
    Ok(Started { server: Running::Group(group), program, port, folder })
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
        let root = started.root()?;
        watch.arg(started.folder.join("state")).args(["-p", &root.to_string()]);
        let mut watcher = watch.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?;
        let said = first_line(&mut watcher)?;
        ensure!(said.contains("watching"), "fettle watch says {said}");
        // Something else wants the processors, too.
        let _busy = Group::start(Command::new("sh").args(["-c", "while :; do :; done"]))?;
        let began = Instant::now();
        let requests = requests / load.one_in;
        let mut asks = (load.ask)(&started, requests).stdout(Stdio::null()).spawn()?;
        let stops = disturb(&mut asks, root)?;
        ensure!(asks.wait()?.success(), "the load on {} failed", load.name);
        let seconds = began.elapsed().as_secs_f64();
        let share = cpu_time(watcher.id())?.as_secs_f64() / seconds;
        kill(Pid::from_raw(watcher.id().cast_signed()), Signal::SIGTERM)?;
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

/// Stops and continues a server's processes for 1 to 200 ms, some times a second, until the load has ended.
fn disturb(asks: &mut Child, root: u32) -> Result<u32> {
    let (mut stops, mut ms) = (0, 1);
    while asks.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(400));
        let stopped = with_children(root);
        // One that has ended meanwhile needs no signal.
        let send = |signal| stopped.iter().for_each(|pid| _ = kill(*pid, signal));
        send(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(ms));
        send(Signal::SIGCONT);
        (stops, ms) = (stops + 1, ms * 2 % 199);
    }
    Ok(stops)
}

/// A process and those that it has started. They may be in groups of their own.
pub(super) fn with_children(root: u32) -> Vec<Pid> {
    let list = format!("/proc/{root}/task/{root}/children");
    let children = std::fs::read_to_string(list).unwrap_or_default();
    let children = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    std::iter::once(root.cast_signed()).chain(children).map(Pid::from_raw).collect()
}
