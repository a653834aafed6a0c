//! What a system call misses in caches and TLBs, natively and on a User-Mode Linux: tables 5.6 and 5.7 of the
//! request-tracking thesis; and what messages of each size miss: its figure 5.5. Its machine had counters; here a plugin of QEMU's models caches and TLBs
//! (`plugin.c` says which), and both run in a guest with a stock kernel, the second one on the first.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::machine;
use crate::guest::{self, Clock, Files, Kernel, Machine};
use crate::{apt, kernel_live, proc, repo};

/// What is called.
pub const CALLS: [&str; 2] = ["getppid", "read"];
/// Where.
pub const SYSTEMS: [&str; 2] = ["native", "uml"];
/// How often: a call on a User-Mode Linux takes tens of thousands of instructions.
const TIMES: [u32; 2] = [20_000, 1_000];
/// Bytes of a message, of which 2 MiB are moved.
pub const SIZES: [u32; 7] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20];
/// How often.
const MOVED: u32 = 4;

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// The guest's kernel: 6.1, 6.12, or a package of one
    #[arg(long, default_value = "6.1")]
    pub kernel: String,
    /// Show everything that the guest showed
    #[arg(long)]
    pub verbose: bool,
}

impl Options {
    /// The usual kernel.
    pub fn usual() -> Options {
        Options { kernel: "6.1".to_owned(), verbose: false }
    }
}

/// Measures, prints, and keeps what was measured.
pub fn run(options: &Options) -> Result<bool> {
    let report = measure(options)?;
    println!(
        "{:26}{:>14}{:>12}{:>12}{:>12}{:>12}{:>12}{:>10}",
        "of a call, or of 2 MiB", "instructions", "L1I", "L1D", "L2", "ITLB", "DTLB", "switches"
    );
    for row in report["calls"].as_array().into_iter().flatten() {
        let name = match row["size"].as_u64() {
            Some(size) => format!("messages of {} KiB", size >> 10),
            None => format!("{} on {}", row["call"], row["system"]).replace('"', ""),
        };
        let of = |field: &str| row[field].as_f64().unwrap_or(f64::NAN);
        println!(
            "{name:26}{:>14.0}{:>12.2}{:>12.2}{:>12.2}{:>12.3}{:>12.3}{:>10.3}",
            of("instructions"),
            of("l1i"),
            of("l1d"),
            of("l2"),
            of("itlb"),
            of("dtlb"),
            of("switches")
        );
    }
    let path = repo::target_folder("bench")?.join("misses.json");
    std::fs::write(&path, serde_json::to_string_pretty(&report)? + "\n")?;
    println!(
        "by a model of caches of 32 and 512 KiB and TLBs of 64 entries; raw: {}",
        path.display()
    );
    Ok(true)
}

/// Measures.
pub fn measure(options: &Options) -> Result<Value> {
    let kernel = Kernel::fetch_image(&kernel_live::package(&options.kernel))?;
    let place = repo::target_folder("misses")?;
    let files = files(&place)?;
    let plugin = place.join("plugin.so");
    guest::plugin(&repo::root().join("xtask/src/bench/misses/plugin.c"), &plugin)?;
    let counts = place.join("counts");
    let machine = Machine {
        processors: 1,
        clock: Clock::Instructions,
        model: "max".to_owned(),
        memory: 1024,
        options: "nowatchdog rcupdate.rcu_cpu_stall_suppress=1".to_owned(),
        output: None,
        plugin: Some((plugin, format!("out={}", counts.display()))),
        limit: Duration::from_secs(2400),
    };
    let shown = guest::run(&kernel, &files, &machine, &script())?;
    if options.verbose {
        println!("{shown}");
    }
    let counts = std::fs::read_to_string(&counts).context("what the plugin counted")?;
    let calls = read(&counts).with_context(|| format!("the guest showed:\n{shown}"))?;
    Ok(
        json!({ "version": 1, "machine": machine::describe(), "kernel": kernel.release, "calls": calls }),
    )
}

/// The program that calls, and a User-Mode Linux.
fn files(place: &Path) -> Result<Files> {
    apt::ensure(&["user-mode-linux", "libc6-dev", "gcc"].map(String::from))?;
    let files = Files::new(&place.join("files"))?;
    for name in ["calls", "copies"] {
        let program: PathBuf = place.join(name);
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-Wall", "-static", "-I"]).arg(repo::root().join("tests/smp/measured"));
        let source = repo::root().join("xtask/src/bench/misses").join(format!("{name}.c"));
        proc::output_of(gcc.arg("-o").arg(&program).arg(source))?;
        files.put_file(&program, name)?;
    }
    files.put_program(Path::new("/usr/bin/linux.uml"), "bin/linux.uml")?;
    Ok(files)
}

fn script() -> String {
    let mut script = String::from(
        "mkdir -p /dev/shm /tmp/uml; mount -t tmpfs s /dev/shm; chmod 1777 /dev/shm\n",
    );
    for call in CALLS {
        let [here, there] = TIMES;
        script += &format!("echo '{call}'; /calls {call} {here} || echo 'failed'\n");
        script += &format!(
            "linux.uml mem=64M umid=u uml_dir=/tmp/uml/ rootfstype=hostfs ro con=null con0=fd:0,fd:1 init=/calls \
             -- {call} {there} </dev/null\n"
        );
    }
    for size in SIZES {
        script += &format!("/copies {size} {MOVED} || echo 'failed'\n");
    }
    script
}

/// The plugin's lines, in the order of the script, for one call or transfer each.
fn read(counts: &str) -> Result<Vec<Value>> {
    let lines: Vec<&str> = counts.lines().collect();
    let calls = CALLS.into_iter().flat_map(|call| {
        let on = move |(system, times)| (json!({ "call": call, "system": system }), times);
        SYSTEMS.into_iter().zip(TIMES).map(on)
    });
    let moved =
        SIZES.map(|size| (json!({ "call": "moved", "system": "native", "size": size }), MOVED));
    let rows: Vec<(Value, u32)> = calls.chain(moved).collect();
    ensure!(lines.len() == rows.len(), "{} of {} were measured", lines.len(), rows.len());
    let row = |(line, (mut row, times)): (&str, (Value, u32))| {
        row["times"] = json!(times);
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.chunks(2) {
            let [name, number] = pair else { continue };
            let number: f64 = number.parse().with_context(|| line.to_owned())?;
            row[*name] = json!(number / f64::from(times));
        }
        Ok(row)
    };
    lines.into_iter().zip(rows).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_of_one_call() {
        let line = "instructions 200000 l1i 20 l1d 40 itlb 0 dtlb 60 switches 0\n";
        let found = read(&line.repeat(4 + SIZES.len())).unwrap();
        assert_eq!((&found[0]["call"], &found[0]["l1d"]), (&json!("getppid"), &json!(0.002)));
        assert_eq!((&found[3]["system"], &found[3]["dtlb"]), (&json!("uml"), &json!(0.06)));
        assert_eq!((&found[4]["size"], &found[4]["l1d"]), (&json!(SIZES[0]), &json!(10.0)));
        assert!(read(line).is_err());
    }
}
