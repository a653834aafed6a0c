//! `fettle locks` on real programs that lock: how many locks they had, how long they waited, and which deadlocks the
//! report says are possible. Each such report has to be explained.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{proc, repo};

/// Programs, and the rest of their command lines, in a folder with a large file `data`.
const PROGRAMS: [(&str, &str); 6] = [
    ("pigz", "-p4 -k -f data"),
    ("zstd", "-q -f -T4 -12 data"),
    ("xz", "-k -f -T2 -3 --block-size=4MiB data"),
    (
        "ffmpeg",
        "-nostdin -v error -y -f lavfi -i testsrc=size=640x360:rate=25:duration=6 -threads 4 out.mp4",
    ),
    ("python3", "queues.py"),
    ("git", "-C mirror.git repack -a -d -f -q --threads=4"),
];

/// Threads that fill and empty queues.
const QUEUES: &str = "
import queue, threading
q = queue.Queue(maxsize=8)
def put():
    for i in range(20000): q.put(i)
def get():
    for i in range(20000): q.get()
threads = [threading.Thread(target=f) for f in (put, put, get, get)]
[t.start() for t in threads]; [t.join() for t in threads]
";

/// Counts all programs that are here; false if a deadlock is said to be possible.
pub fn run(fettle: &Path, folder: &Path) -> Result<bool> {
    // Text that does not repeat itself soon, and compresses a little.
    let mut data = String::new();
    let mut state = 1_u64;
    while data.len() < 20_000_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        data.push_str(&format!("{state:x}\n"));
    }
    std::fs::write(folder.join("data"), data)?;
    std::fs::write(folder.join("queues.py"), QUEUES)?;
    let mirror = folder.join("mirror.git");
    if !mirror.exists() {
        let mut clone = Command::new("git");
        proc::step(clone.args(["clone", "-q", "--bare"]).arg(repo::root()).arg(&mirror))?;
    }
    println!(
        "{:<10} {:>12} {:>14} {:>20}",
        "program", "locks had", "waited, ms", "possible deadlocks"
    );
    let mut right = true;
    for (program, rest) in PROGRAMS {
        if !proc::on_path(program) {
            println!("{program:<10} is not here");
            continue;
        }
        let report = folder.join("real.json");
        let mut locks = Command::new(fettle);
        locks.args(["locks", "-q", "--json", "-o"]).arg(&report).arg("--").arg(program);
        locks.args(rest.split(' ')).current_dir(folder);
        proc::output_of(&mut locks)?;
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&report)?)?;
        let classes = report["classes"].as_array().context("classes")?;
        let is_lock = |class: &&serde_json::Value| {
            !matches!(class["kind"].as_str(), Some("condition" | "barrier"))
        };
        let sum = |key: &str| -> u64 {
            classes.iter().filter(is_lock).filter_map(|class| class[key].as_u64()).sum()
        };
        let deadlocks = report["deadlocks"].as_array().context("deadlocks")?.len();
        let waited = sum("waited_ns") as f64 / 1e6;
        println!("{program:<10} {:>12} {waited:>14.2} {deadlocks:>20}", sum("acquired"));
        right &= deadlocks == 0;
    }
    Ok(right)
}
