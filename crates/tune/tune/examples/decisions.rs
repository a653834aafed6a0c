//! Has comparisons decide about differences that are known: `decisions EQUAL SEEDED LOAD TURN_MS`.
//!
//! Programs compute without an end. A unit of their work is a number of steps that they read from a file
//! before it, so a switch is a number written there: more steps by so many percent, fewer, or the same.
//! Their CPU time and their reads are the kernel's account, what decides is what decides in `fettle tune`.
//! `LOAD` other threads compute beside each of them; some of these are being compared themselves.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fettle_live::Process;
use fettle_tune::measure::{Plan, compare_by};
use fettle_tune::{Measured, ProcessGroup, Rounds, Stop, TuneError, Work};
use fettle_types::Pid;
use serde_json::json;

/// Steps of a unit of work: some twenty microseconds.
const STEPS: u64 = 20_000;
/// Differences that are tried besides none, in percent of CPU time.
const CHANGES: [i64; 6] = [-10, -5, -2, 2, 5, 10];

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["worker", file] => work(Path::new(file)),
        [equal, seeded, load, turn] => {
            decide(equal.parse()?, seeded.parse()?, load.parse()?, turn.parse()?)
        }
        _ => Err("usage: decisions EQUAL SEEDED LOAD TURN_MS".into()),
    }
}

/// Works until the file is gone.
fn work(file: &Path) -> Result<(), Error> {
    let steps = File::open(file)?;
    let mut number = [0; 8];
    for unit in 0_u64.. {
        steps.read_exact_at(&mut number, 0)?;
        if unit.is_multiple_of(1024) && !file.exists() {
            break;
        }
        let mut state = unit;
        for _ in 0..u64::from_le_bytes(number) {
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
    Ok(())
}

/// A program that works.
struct Worker {
    file: File,
    path: PathBuf,
    child: Child,
}

impl Worker {
    fn start(folder: &Path, number: usize) -> Result<Worker, Error> {
        let path = folder.join(format!("steps-{number}"));
        std::fs::write(&path, STEPS.to_le_bytes())?;
        let file = File::options().write(true).open(&path)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("worker").arg(&path).stdin(Stdio::null());
        Ok(Worker { file, child: command.spawn()?, path })
    }

    /// Compares it with itself, where a unit of work is so many percent more.
    fn compare(&self, percent: i64, turn: Duration) -> Result<Measured, Error> {
        let process = Process::open(Pid::of_child(&self.child))?;
        let group = ProcessGroup::of(&process, true);
        let rounds = Rounds { enough: 20, most: 60 };
        let plan = Plan { work: Work::Calls, rounds, turn };
        let never = AtomicBool::new(false);
        let new_steps = STEPS.saturating_add_signed(STEPS as i64 / 100 * percent);
        let unwritten =
            |error: std::io::Error| TuneError::Unfit { pid: process.pid(), why: error.to_string() };
        Ok(compare_by(&group, &plan, Stop(&never), |new| {
            let steps = if new { new_steps } else { STEPS };
            self.file.write_all_at(&steps.to_le_bytes(), 0).map_err(unwritten)
        })?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn decide(equal: usize, seeded: usize, load: usize, turn_ms: u64) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let turn = Duration::from_millis(turn_ms);
    let mut jobs = vec![0; equal];
    jobs.extend((0..seeded).flat_map(|_| CHANGES));
    // In an order that mixes them.
    let mut state = 20_261_128_u64;
    for at in (1..jobs.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        jobs.swap(at, (state >> 33) as usize % (at + 1));
    }
    let jobs = Mutex::new(jobs);
    let at_once = load.div_ceil(2) + 1;
    let mut workers = Vec::new();
    for number in 0..=load {
        workers.push(Worker::start(folder.path(), number)?);
    }
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers[..at_once.min(workers.len())]
            .iter()
            .map(|worker| {
                scope.spawn(|| -> Result<(), Error> {
                    loop {
                        let job = jobs.lock().map_err(|_| "a thread panicked")?.pop();
                        let Some(percent) = job else { return Ok(()) };
                        let measured = worker.compare(percent, turn)?;
                        results.lock().map_err(|_| "a thread panicked")?.push((percent, measured));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok::<(), Error>(())
    })?;
    let results = results.into_inner().map_err(|_| "a thread panicked")?;
    for percent in std::iter::once(0).chain(CHANGES) {
        let of: Vec<&Measured> =
            results.iter().filter(|(p, _)| *p == percent).map(|(_, measured)| measured).collect();
        let count = |word: &str| of.iter().filter(|m| m.verdict().code() == word).count();
        let truth = 1.0 + percent as f64 / 100.0;
        let covered = of.iter().filter(|m| (m.low..=m.high).contains(&truth)).count();
        let rounds: usize = of.iter().map(|m| m.ratios.len()).sum();
        let line = json!({
            "load": load, "percent": percent, "comparisons": of.len(), "faster": count("faster"),
            "slower": count("slower"), "equal": count("equal"), "undecided": count("undecided"),
            "covered": covered, "rounds": rounds as f64 / of.len().max(1) as f64,
        });
        println!("{line}");
    }
    Ok(())
}
