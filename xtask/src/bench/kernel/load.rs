//! Servers, and the load that they are under.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use crate::postgres::{self, Cluster};
use crate::proc;

const NGINX_PORT: u16 = 17480;
/// Connections to nginx.
const CONNECTIONS: u64 = 16;
/// Ticks of a processor-time counter in `/proc` a second.
const TICKS: f64 = 100.0;

/// What one turn showed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Measured {
    /// Requests answered a second.
    pub per_second: f64,
    /// What 99 of 100 requests took at most, milliseconds.
    pub p99_ms: f64,
    /// CPU time of the server for a request, microseconds.
    pub cpu_us: f64,
    /// Events that the observer says it lost.
    pub lost: f64,
}

impl Measured {
    /// The mean of several.
    pub fn mean(of: &[Measured]) -> Measured {
        let mean =
            |pick: fn(&Measured) -> f64| of.iter().map(pick).sum::<f64>() / of.len().max(1) as f64;
        Measured {
            per_second: mean(|m| m.per_second),
            p99_ms: mean(|m| m.p99_ms),
            cpu_us: mean(|m| m.cpu_us),
            lost: mean(|m| m.lost),
        }
    }
}

/// A server with its load.
pub struct Server {
    pub name: &'static str,
    pub what: &'static str,
    /// What its processes are called.
    pub process: &'static str,
    pub packages: &'static [&'static str],
    /// Whether processes are forked while there is load.
    pub forks: bool,
    pub start: fn(&Path) -> Result<Running>,
}

pub const SERVERS: [Server; 3] = [
    Server {
        name: "nginx",
        what: "as many requests as it answers, 16 connections of wrk, a page of 600 bytes",
        process: "nginx",
        packages: &["nginx-light", "wrk"],
        forks: false,
        start: |folder| Nginx::start(folder, Rate::AsMany),
    },
    Server {
        name: "nginx-at-a-rate",
        what: "requests at a fixed rate, 16 connections of h2load, a page of 600 bytes",
        process: "nginx",
        packages: &["nginx-light", "nghttp2-client"],
        forks: false,
        start: |folder| Nginx::start(folder, Rate::Fixed),
    },
    Server {
        name: "postgres",
        what: "as many transactions as it answers, 8 clients of pgbench -S",
        process: "postgres",
        packages: &postgres::PACKAGES,
        forks: true,
        start: start_postgres,
    },
];

#[derive(Clone, Copy)]
enum Rate {
    AsMany,
    Fixed,
}

/// A server that runs; it ends with this.
pub enum Running {
    Nginx(Nginx),
    Postgres(Cluster),
}

impl Running {
    /// The process that all others were forked from.
    pub fn pid(&self) -> i32 {
        match self {
            Running::Nginx(nginx) => nginx.server.id().cast_signed(),
            Running::Postgres(cluster) => cluster.postmaster().unwrap_or_default(),
        }
    }

    /// Loads it for so many seconds.
    pub fn load(&self, seconds: u64, rate: u64) -> Result<Measured> {
        let before = self.cpu_s()?;
        let (requests, measured) = match self {
            Running::Nginx(nginx) => match nginx.rate {
                Rate::AsMany => wrk(seconds)?,
                Rate::Fixed => h2load(&nginx.folder, seconds, rate)?,
            },
            Running::Postgres(cluster) => pgbench(cluster, seconds)?,
        };
        // Processes that served a connection are accounted for when they have ended.
        std::thread::sleep(Duration::from_millis(200));
        let cpu_us = (self.cpu_s()? - before) * 1e6 / requests.max(1.0);
        Ok(Measured { cpu_us, ..measured })
    }

    /// CPU time of the first process and of those of its children that have ended.
    fn cpu_s(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        let (_, fields) = stat.rsplit_once(") ").context("no process")?;
        let ticks = fields.split(' ').skip(11).take(4).filter_map(|text| text.parse::<f64>().ok());
        Ok(ticks.sum::<f64>() / TICKS)
    }
}

/// One process of nginx.
pub struct Nginx {
    folder: PathBuf,
    server: Child,
    rate: Rate,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Nginx {
    fn start(folder: &Path, rate: Rate) -> Result<Running> {
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("index.html"), "fettle ".repeat(600 / 7))?;
        let shown = folder.display();
        let config = format!(
            "daemon off; master_process off; worker_processes 1; error_log {shown}/error.log;\n\
             pid {shown}/pid; user root;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log off; keepalive_requests 100000000;\n\
               client_body_temp_path {shown}/body; proxy_temp_path {shown}/proxy;\n\
               server {{ listen 127.0.0.1:{NGINX_PORT}; root {shown}; }} }}\n"
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, config)?;
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&file).arg("-p").arg(folder);
        let server = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut nginx = Nginx { folder: folder.to_owned(), server, rate };
        for _ in 0..100 {
            if std::net::TcpStream::connect(("127.0.0.1", NGINX_PORT)).is_ok() {
                return Ok(Running::Nginx(nginx));
            }
            if nginx.server.try_wait()?.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("nginx does not start: see {shown}/error.log")
    }
}

fn url() -> String {
    format!("http://127.0.0.1:{NGINX_PORT}/index.html")
}

/// As many requests as are answered.
fn wrk(seconds: u64) -> Result<(f64, Measured)> {
    let mut command = Command::new("wrk");
    command.args(["-t1", "--latency", &format!("-c{CONNECTIONS}"), &format!("-d{seconds}s")]);
    let said = proc::output_of(command.arg(url()))?;
    ensure!(!said.contains("Non-2xx") && !said.contains("Socket errors"), "{said}");
    let line = |name: &str| said.lines().find_map(|line| line.trim().strip_prefix(name));
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<f64>().ok());
    let per_second = number(line("Requests/sec:")).with_context(|| said.clone())?;
    let requests = said.lines().find_map(|line| number(line.split(" requests in").next()));
    let p99 = line("99%").and_then(millis).with_context(|| said.clone())?;
    let requests = requests.with_context(|| said.clone())?;
    Ok((requests, Measured { per_second, p99_ms: p99, ..Measured::default() }))
}

/// `1.23ms` as wrk writes it.
fn millis(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.trim_end_matches(char::is_alphabetic);
    let number: f64 = digits.parse().ok()?;
    Some(match &text[digits.len()..] {
        "us" => number / 1e3,
        "ms" => number,
        "s" => number * 1e3,
        _ => return None,
    })
}

/// So many requests a second.
fn h2load(folder: &Path, seconds: u64, rate: u64) -> Result<(f64, Measured)> {
    let log = folder.join("requests.tsv");
    let _ = std::fs::remove_file(&log);
    let each = (rate / CONNECTIONS).max(1);
    let requests = each * CONNECTIONS * seconds;
    let mut command = Command::new("h2load");
    command.args(["--h1", "-t1", "-c", &CONNECTIONS.to_string(), "-n", &requests.to_string()]);
    command.args(["--rps", &each.to_string()]).arg(format!("--log-file={}", log.display()));
    let said = proc::output_of(command.arg(url()))?;
    let answered = format!("{requests} succeeded");
    ensure!(said.contains(&answered), "{said}");
    let line = said.lines().find_map(|line| line.strip_prefix("finished in "));
    let per_second = line.and_then(|line| line.split(", ").nth(1)?.split(' ').next()?.parse().ok());
    let text = std::fs::read_to_string(&log)?;
    let took = text.lines().filter_map(|line| line.split('\t').nth(2)?.parse::<f64>().ok());
    let took: Vec<f64> = took.map(|us| us / 1e3).collect();
    let per_second = per_second.with_context(|| said.clone())?;
    let p99_ms = fettle_stats::quantile(&took, 0.99);
    Ok((requests as f64, Measured { per_second, p99_ms, ..Measured::default() }))
}

fn start_postgres(folder: &Path) -> Result<Running> {
    let cluster = Cluster::start(folder)?;
    proc::output_of(&mut cluster.pgbench(&["-i", "-s", "1", "-q"]))?;
    Ok(Running::Postgres(cluster))
}

/// As many transactions as are answered; pgbench logs each in a file.
fn pgbench(cluster: &Cluster, seconds: u64) -> Result<(f64, Measured)> {
    let prefix = cluster.folder().join("transactions");
    let logs = || -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(cluster.folder())?.flatten().map(|entry| entry.path());
        let is_log = |path: &PathBuf| {
            path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("transactions."))
        };
        Ok(entries.filter(is_log).collect())
    };
    for old in logs()? {
        std::fs::remove_file(old)?;
    }
    let prefix = format!("--log-prefix={}", prefix.display());
    let seconds = seconds.to_string();
    let said =
        proc::output_of(&mut cluster.pgbench(&["-S", "-c", "8", "-T", &seconds, "-l", &prefix]))?;
    let line = said.lines().find_map(|line| line.strip_prefix("tps = "));
    let per_second = line.and_then(|line| line.split(' ').next()?.parse().ok());
    let mut took = Vec::new();
    for log in logs()? {
        let text = std::fs::read_to_string(log)?;
        let micros = text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok());
        took.extend(micros.map(|us| us / 1e3));
    }
    ensure!(!took.is_empty(), "{said}");
    let per_second = per_second.with_context(|| said.clone())?;
    let p99_ms = fettle_stats::quantile(&took, 0.99);
    Ok((took.len() as f64, Measured { per_second, p99_ms, ..Measured::default() }))
}
