//! A thread of a program that stops, and begins anew (`tests/watch/restarting.c`).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::bed::cpu_time;
use crate::proc::{self, Group};
use crate::repo;

/// What the kind is called.
pub const NAME: &str = "thread";
/// The heartbeat comes each tenth of a millisecond, and the watcher looks once in one.
const RULE: &str = "rule beat { scalar \"restarting.ticks\" of process of \"restarting\" still for 1ms -> \
                    restart thread \"restarting.beat\" at most 100000 in 1m }\n";

/// How soon after its last heartbeat the thread began anew.
pub struct Restarts {
    /// Median, 99th percentile, longest.
    pub after: [Duration; 3],
    /// The watcher's share of a processor.
    pub watcher: f64,
}

/// Lets the thread stop so many times.
pub fn measure(fettle: &Path, times: usize) -> Result<Restarts> {
    let folder = repo::target().join("bench/watch");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("fettle"))?;
    proc::step(Command::new("chmod").arg("700").arg(folder.join("fettle")))?;
    let program = folder.join("restarting");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O2", "-pthread", "-I"]).arg(repo::root().join("runtime/sensor"));
    proc::step(gcc.arg(repo::root().join("tests/watch/restarting.c")).arg("-o").arg(&program))?;
    let rules = folder.join("rules");
    std::fs::write(&rules, RULE)?;

    let mut server = Command::new(&program);
    server.args([&times.to_string(), "spins"]).env("FETTLE_SENSORS", "1");
    let mut server = Group::start(server.env("XDG_RUNTIME_DIR", &folder).stdout(Stdio::piped()))?;
    let mut watch = Command::new(fettle);
    watch.arg("watch").arg(&rules).args(["--act", "--json", "--state"]).arg(folder.join("state"));
    watch.args(["-p", &server.pid().to_string()]).env("XDG_RUNTIME_DIR", &folder);
    let mut watcher = watch.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?;
    // What it says is not read, and must not fill a pipe.
    let mut said = watcher.stdout.take().context("no output")?;
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    let began = Instant::now();
    let out = server.out()?;
    let ended = BufReader::new(out)
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with("restarted"));
    let seconds = began.elapsed().as_secs_f64();
    let share = cpu_time(watcher.id())?.as_secs_f64() / seconds;
    kill(Pid::from_raw(watcher.id().cast_signed()), Signal::SIGTERM)?;
    watcher.wait()?;
    let Some(line) = ended else {
        bail!("the program has ended before its thread began anew {times} times")
    };
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    ensure!(numbers.len() == 4 && numbers[0] as usize == times, "{line:?}");
    let after = [1, 2, 3].map(|place| Duration::from_micros(numbers[place]));
    Ok(Restarts { after, watcher: share })
}
