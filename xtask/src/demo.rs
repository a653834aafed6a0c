//! The demonstration: a real server, recorded under real load.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{apt, fettle, proc, repo};

/// How to show it.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

const PORT: &str = "17379";

/// Installs Redis, records it while its own benchmark loads it, shows the report.
pub fn run(options: &Options) -> Result<bool> {
    say("building fettle");
    let binary = fettle::binary(options.fettle.as_deref())?;
    say("making sure that Debian's redis-server and redis-tools are there");
    apt::ensure(&["redis-server".into(), "redis-tools".into()])?;
    let folder = repo::target_folder("demo")?;
    let trace = folder.join("redis.fettle");
    if trace.exists() {
        std::fs::remove_dir_all(&trace)?;
    }

    say("a redis-server as Debian ships it: stripped, no recompilation; every function recorded");
    let server = ["redis-server", "--port", PORT, "--save", "", "--appendonly", "no"];
    println!("$ fettle record -o {} -- {}", trace.display(), server.map(quoted).join(" "));
    let mut record = Command::new(&binary);
    record.arg("record").args(fettle::cache_flags(&binary));
    record.arg("-o").arg(&trace).arg("--").args(server);
    record.current_dir(&folder);
    let mut running = proc::start(record, &folder, "server", None)?;
    if let Err(error) = load(&mut running) {
        running.signal(nix::sys::signal::Signal::SIGTERM);
        return Err(error);
    }
    running.signal(nix::sys::signal::Signal::SIGTERM);
    let outcome = running.finish(Duration::from_secs(60))?;
    println!("the server ended with {}", outcome.ending);
    print!("{}", String::from_utf8_lossy(&outcome.stderr));

    say("where its time went");
    show(Command::new(&binary).arg("report").arg(&trace))?;
    let flames = folder.join("redis.svg");
    say("the same as a flame graph");
    write_flame_graph(&binary, &trace, &flames)?;
    println!(
        "\ndemo: done. The trace is {}, the flame graph {}",
        trace.display(),
        flames.display()
    );
    Ok(true)
}

fn load(running: &mut proc::Running) -> Result<()> {
    for _ in 0..200 {
        let ping = Command::new("redis-cli").args(["-p", PORT, "ping"]).output()?;
        if ping.stdout.starts_with(b"PONG") {
            println!("$ redis-benchmark -p {PORT} -q -n 100000 -c 50 -t set,get,lpush,zadd");
            let mut load = Command::new("redis-benchmark");
            load.args(["-p", PORT, "-q", "-n", "100000", "-c", "50"]);
            let text = proc::output_of(load.args(["-t", "set,get,lpush,zadd"]))?;
            // It overwrites its own progress; the last state of each line is the result.
            let results = text.lines().filter_map(|line| line.trim_end().rsplit('\r').next());
            results.for_each(|line| println!("{line}"));
            return Ok(());
        }
        if !running.alive() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("the recorded server did not answer")
}

fn show(command: &mut Command) -> Result<()> {
    let text = proc::output_of(command)?;
    for line in text.lines().take(40) {
        println!("{line}");
    }
    Ok(())
}

fn write_flame_graph(binary: &Path, trace: &Path, to: &Path) -> Result<()> {
    println!("$ fettle report {} --flamegraph {}", trace.display(), to.display());
    let mut report = Command::new(binary);
    report.arg("report").arg(trace).arg("--flamegraph").arg(to);
    proc::output_of(&mut report).map(drop).context("the flame graph")?;
    anyhow::ensure!(to.is_file(), "no flame graph was written");
    Ok(())
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    if word.is_empty() { "''".into() } else { word.into() }
}

fn say(step: &str) {
    println!("\n== {step}");
}
