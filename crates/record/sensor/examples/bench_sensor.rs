//! Nanoseconds per event of each kind of sensor, in C and in Rust, beside the cost of reading the
//! clock: medians of many rounds, in the thread's CPU time, all from one run.
//!
//! ```text
//! cargo run --release -p fettle-sensor --example bench_sensor
//! ```

use std::collections::HashMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

use fettle::{Histogram, List, Policy, Scalar, Sensor};

const EVENTS: u64 = 200_000;
const ROUNDS: usize = 75;

static LIST: List = Sensor::list("bench.list", 900, 1).policy(Policy::Overwrite).open();
static SHARED: List =
    Sensor::list("bench.shared", 900, 2).policy(Policy::Overwrite).shared().open();
static SCALAR: Scalar = Sensor::scalar("bench.scalar", 900, 3).open();
static HISTOGRAM: Histogram = Sensor::histogram("bench.histogram", 900, 4).open();
static PAIR: List = Sensor::list("bench.pair", 900, 5).policy(Policy::Overwrite).open();
static SHARED_PAIR: List =
    Sensor::list("bench.shared_pair", 900, 6).policy(Policy::Overwrite).shared().open();

fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("rust") {
        measure_rust();
        return Ok(());
    }
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let sensors = folder.path().join("sensors");
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../runtime/sensor");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/bench_sensor.c");
    let program = folder.path().join("bench");
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-O2", "-I"]).arg(header).arg("-o").args([&program, &source]);
    anyhow::ensure!(cc.status()?.success(), "cc failed");

    let this = std::env::current_exe()?;
    let run = |program: &PathBuf, wish: &str| -> anyhow::Result<HashMap<String, f64>> {
        let output = Command::new(program).arg("rust").env("FETTLE_SENSORS", wish).output()?;
        let text = String::from_utf8(output.stdout)?;
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        Ok(pairs.filter_map(|(name, ns)| Some((name.to_string(), ns.parse().ok()?))).collect())
    };
    let wish = sensors.to_str().expect("a temporary folder's name");
    let (c, rust) = (run(&program, wish)?, run(&this, wish)?);
    let (c_off, rust_off) = (run(&program, "0")?, run(&this, "0")?);

    println!("ns per event, median of {ROUNDS} rounds of {EVENTS}");
    println!("{:<34}{:>8}{:>8}{:>10}{:>10}", "", "C", "Rust", "C off", "Rust off");
    for (name, title) in [
        ("rdtsc", "rdtsc alone"),
        ("list", "list, 32-byte record"),
        ("shared", "list, one ring for all threads"),
        ("add", "scalar, add"),
        ("set", "scalar, set"),
        ("histogram", "histogram"),
        ("list_two", "list, two threads, each"),
        ("shared_two", "one ring for all, two threads, each"),
    ] {
        let cell = |column: &HashMap<String, f64>| match column.get(name) {
            Some(ns) => format!("{ns:.2}"),
            None => "-".to_string(),
        };
        let (c, rust, c_off, rust_off) = (cell(&c), cell(&rust), cell(&c_off), cell(&rust_off));
        println!("{title:<36}{c:>6}{rust:>8}{c_off:>10}{rust_off:>10}");
    }
    for (language, column) in [("C", &c), ("Rust", &rust)] {
        let (floor, list) = (column["rdtsc"], column["list"]);
        println!("{language}: a committed event costs {:.2} times the bare rdtsc", list / floor);
    }
    Ok(())
}

fn measure_rust() {
    // SAFETY: rdtsc is an unprivileged instruction that touches no memory.
    measure("rdtsc", |_| _ = black_box(unsafe { core::arch::x86_64::_rdtsc() }));
    measure("list", |i| LIST.commit(1, &[i, i]));
    measure("shared", |i| SHARED.commit(1, &[i, i]));
    measure("add", |_| SCALAR.add(1));
    measure("set", |i| SCALAR.set(i as i64));
    measure("histogram", |i| HISTOGRAM.record(i));
    for (name, list) in [("list_two", &PAIR), ("shared_two", &SHARED_PAIR)] {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| median(|i| list.commit(1, &[i, i])));
            let mine = median(|i| list.commit(1, &[i, i]));
            println!("{name} {:.2}", (mine + other.join().expect("the other thread")) / 2.0);
        });
    }
}

fn measure(name: &str, event: impl Fn(u64)) {
    println!("{name} {:.2}", median(event));
}

fn median(event: impl Fn(u64)) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = cpu_ns();
            for i in 0..EVENTS {
                event(black_box(i));
            }
            (cpu_ns() - start) as f64 / EVENTS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to `now`, which lives.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
