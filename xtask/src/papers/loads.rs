//! The loads of the request-tracking thesis' chapter 5, by programs of today: what is called most in a build, how large
//! messages are, how often threads wait for locks.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value as Json, json};

use crate::bench::programs;
use crate::postgres::{self, Cluster};
use crate::{apt, fettle, proc};

/// The build: a C compiler over each source file of an interpreter.
const BUILD: &str = "for file in \"$@\"; do gcc -O1 -c $FLAGS -o /dev/null \"$file\" || exit; done";
/// How it is counted.
pub const BUILD_COMMAND: &str =
    "fettle compare --on native --why --json -- sh -c 'for file in \"$@\"; do gcc …'";
/// How messages are recorded.
pub const MESSAGES_COMMAND: &str = "fettle record -p POSTMASTER --duration 3s";
/// How uses of locks are counted.
pub const LOCKS_COMMAND: &str = "fettle locks --json -- PROGRAM";

/// How often each system call is made by a build of Lua, most frequent first.
pub fn build(binary: &Path) -> Result<Vec<(String, f64)>> {
    apt::ensure(&["gcc".into()])?;
    let (sources, flags) = programs::Subject::Lua.sources()?;
    let mut compare = Command::new(binary);
    compare.args(["compare", "--on", "native", "--why", "--json", "--rounds", "1"]);
    compare.args(["--", "sh", "-c", BUILD, "sh"]).args(sources).env("FLAGS", flags.join(" "));
    compare.stderr(Stdio::inherit());
    let report: Json = serde_json::from_str(&proc::output_of(&mut compare)?)?;
    let calls = report["systems"][0]["calls"].as_array().context("no calls were counted")?;
    let call = |call: &Json| Some((call["doing"].as_str()?.to_owned(), call["count"].as_f64()?));
    let mut calls: Vec<_> = calls.iter().filter_map(call).collect();
    calls.sort_by(|a, b| b.1.total_cmp(&a.1));
    ensure!(!calls.is_empty(), "no calls were counted");
    Ok(calls)
}

/// Sizes of messages between PostgreSQL and its clients, with a client that fetches whole tables and without.
pub fn messages(binary: &Path, place: &Path) -> Result<Json> {
    apt::ensure(&postgres::PACKAGES.map(str::to_owned))?;
    let cluster = Cluster::start(&place.join("postgres"))?;
    proc::output_of(&mut cluster.pgbench(&["-i", "-s", "2", "-q"]))?;
    let sizes = fettle::test_example("fettle-follow", "sizes")?;
    let sizes_of = |name: &str, script: Option<&str>| -> Result<Json> {
        let trace = place.join(format!("{name}.fettle"));
        let _ = std::fs::remove_dir_all(&trace);
        let mut loads = vec![cluster.pgbench(&["-T", "8", "-c", "2"])];
        if let Some(script) = script {
            let file = cluster.folder().join(format!("{name}.sql"));
            std::fs::write(&file, script)?;
            let file = file.to_str().context("a plain path")?;
            loads.push(cluster.pgbench(&["-T", "8", "-c", "1", "-f", file]));
        }
        let quiet = |load: &mut Command| load.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut running = loads.iter_mut().map(quiet).collect::<std::io::Result<Vec<_>>>()?;
        let mut record = Command::new(binary);
        record.args(["record", "-q", "--duration", "3s", "-p"]);
        record.arg(cluster.postmaster()?.to_string()).arg("-o").arg(&trace);
        let recorded = proc::step(&mut record);
        for load in &mut running {
            let _ = load.kill();
            let _ = load.wait();
        }
        recorded?;
        Ok(serde_json::from_str(&proc::output_of(Command::new(&sizes).arg(&trace))?)?)
    };
    let whole = "select * from pgbench_accounts where aid < 20000;\n";
    Ok(
        json!({ "with": sizes_of("messages-with", Some(whole))?, "without": sizes_of("messages", None)? }),
    )
}

/// Of messages of some sizes, the share that is smaller than `limit`, and the share of all bytes that is in these.
pub fn below(sizes: &Json, limit: u64) -> Option<(f64, f64)> {
    let (mut messages, mut bytes) = ((0, 0), (0, 0));
    for (size, count) in sizes["sizes"].as_object()? {
        let (size, count): (u64, u64) = (size.parse().ok()?, count.as_u64()?);
        messages.1 += count;
        bytes.1 += size * count;
        if size < limit {
            messages.0 += count;
            bytes.0 += size * count;
        }
    }
    let share = |(part, all): (u64, u64)| (all > 0).then(|| part as f64 / all as f64);
    share(messages).zip(share(bytes))
}

/// How threads of a program used its locks.
pub struct Locks {
    /// The program.
    pub name: &'static str,
    /// How often a lock was taken.
    pub acquired: u64,
    /// How often it had to be waited for.
    pub waited: u64,
    /// Nanoseconds of all waits, and of all that was done with a lock held.
    pub times_ns: (u64, u64),
    /// The most threads that waited at once.
    pub queue: u64,
}

/// Counts them in programs with several threads.
pub fn locks(binary: &Path, place: &Path) -> Result<Vec<Locks>> {
    apt::ensure(&["zstd".into(), "xz-utils".into(), "pigz".into()])?;
    let input = place.join("input");
    // Text that repeats itself a little, so that there is something to compress.
    let text: String =
        (0..600_000_u32).map(|n| format!("{} ", n.wrapping_mul(2_654_435_761))).collect();
    std::fs::write(&input, text)?;
    let programs: [(&str, &[&str]); 3] = [
        ("zstd", &["-q", "-c", "-T2"]),
        ("xz", &["-1", "-c", "-T2", "--block-size=500KiB"]),
        ("pigz", &["-c", "-p", "2"]),
    ];
    let count = |(name, arguments): (&'static str, &[&str])| -> Result<Locks> {
        let report = place.join(format!("locks-{name}.json"));
        let mut run = Command::new(binary);
        run.args(["locks", "-q", "--json", "-o"]).arg(&report).args(["--", name]).args(arguments);
        proc::step(run.arg(&input).stdout(Stdio::null()))?;
        let report: Json = serde_json::from_str(&std::fs::read_to_string(&report)?)?;
        let classes = report["classes"].as_array().context("no locks were counted")?;
        let sum = |field: &str| classes.iter().filter_map(|class| class[field].as_u64()).sum();
        let queues = classes.iter().filter_map(|class| class["queue_max"].as_u64());
        Ok(Locks {
            name,
            acquired: sum("acquired"),
            waited: sum("contended"),
            times_ns: (sum("waited_ns"), sum("held_ns")),
            queue: queues.max().unwrap_or(0),
        })
    };
    programs.into_iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_messages_and_of_bytes() {
        let sizes = json!({ "sizes": { "8": 3, "92": 1 } });
        assert_eq!(below(&sizes, 90), Some((0.75, 24.0 / 116.0)));
        assert_eq!(below(&sizes, 93), Some((1.0, 1.0)));
        assert_eq!(below(&json!({ "sizes": {} }), 90), None);
    }
}
