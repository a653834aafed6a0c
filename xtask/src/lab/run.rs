//! Building the lab's kernel, and a run of it in QEMU.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{guest, proc};

/// QEMU's exit status when the kernel ends well.
pub const SUCCESS: i32 = 33;
/// Ticks after which a run counts as hung.
const MOST_TICKS: u64 = 100_000_000;

/// Folders and the plugin.
pub struct Machine {
    source: PathBuf,
    target: PathBuf,
    plugin: PathBuf,
}

impl Machine {
    /// Builds the plugin.
    pub fn new(source: &Path, target: &Path) -> Result<Machine> {
        let plugin = target.join("lockstep.so");
        guest::plugin(&source.join("plugin/lockstep.c"), &plugin)?;
        Ok(Machine { source: source.into(), target: target.into(), plugin })
    }

    /// Builds the kernel with these features; returns its file.
    pub fn build(&self, features: &[&str]) -> Result<PathBuf> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.source);
        cargo.args(["build", "--quiet", "--release", "--features", &features.join(",")]);
        cargo.arg("--target-dir").arg(&self.target);
        // Addresses are fixed, and the kernel is no older than the first x86-64 processor.
        cargo.env("RUSTFLAGS", "-C relocation-model=static -C target-cpu=x86-64");
        cargo.env_remove("CARGO_PROFILE_RELEASE_DEBUG").env("CARGO_INCREMENTAL", "0");
        proc::step(&mut cargo)?;
        let kernel = self.target.join(format!("lab-{}", features.join("-")));
        std::fs::copy(self.target.join("release/lab"), &kernel)?;
        Ok(kernel)
    }

    /// Boots a kernel with turns of very different length, which find races.
    pub fn boot(&self, kernel: &Path, cpus: u32, line: &str, seed: u64) -> Result<Run> {
        self.boot_with(kernel, cpus, line, &format!("seed={seed},q=3000,low=20"))
    }

    /// Boots a kernel with short turns, so that clocks are never far apart.
    pub fn boot_even(&self, kernel: &Path, cpus: u32, line: &str) -> Result<Run> {
        self.boot_with(kernel, cpus, line, "seed=1,q=300,low=100")
    }

    /// Boots a kernel with turns of a few instructions: who had a lock while another CPU spun for it stands in the
    /// log, which longer turns leave out.
    pub fn boot_close(&self, kernel: &Path, cpus: u32, line: &str, seed: u64) -> Result<Run> {
        self.boot_with(kernel, cpus, line, &format!("seed={seed},q=20,low=5"))
    }

    fn boot_with(&self, kernel: &Path, cpus: u32, line: &str, schedule: &str) -> Result<Run> {
        let plugin = self.plugin.display();
        let mut qemu = Command::new("timeout");
        qemu.args(["--signal=KILL", "120", "qemu-system-x86_64", "-accel", "tcg,thread=multi"]);
        qemu.args(["-M", "q35,hpet=on", "-cpu", "max", "-m", "128", "-smp", &cpus.to_string()]);
        qemu.args(["-display", "none", "-serial", "none", "-monitor", "none", "-net", "none"]);
        qemu.args(["-no-reboot", "-debugcon", "stdio", "-device"]);
        qemu.args(["isa-debug-exit,iobase=0xf4,iosize=4", "-kernel"]).arg(kernel);
        qemu.args(["-append", &format!("cpus={cpus} {line}"), "-plugin"]);
        qemu.arg(format!("{plugin},{schedule},most={MOST_TICKS}"));
        qemu.env("LD_PRELOAD", &self.plugin).stdin(std::process::Stdio::null());
        let output = qemu.output().context("starting qemu-system-x86_64")?;
        let status = output.status.code().unwrap_or(-1);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if status == 137 || (text.is_empty() && !matches!(status, 98 | 99)) {
            bail!("{}: status {status}\n{text}{said}", kernel.display());
        }
        Ok(Run { text, said, status })
    }
}

/// What a run printed, and how it ended.
pub struct Run {
    /// The kernel's console.
    pub text: String,
    /// The plugin's words.
    said: String,
    /// QEMU's exit status.
    pub status: i32,
}

impl Run {
    /// Lines of the event log.
    pub fn events(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| line.starts_with("E "))
    }

    /// The number behind these words at the beginning of a line.
    fn number(&self, words: &str) -> Option<f64> {
        let line = self.text.lines().find_map(|line| line.strip_prefix(words))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// What is wrong, if something is. The stress load updates the database six times for each of its containers.
    pub fn problem(&self, size: u32) -> Option<String> {
        if self.status != SUCCESS {
            let lines = self.text.lines().chain(self.said.lines());
            let why = lines.filter(|line| !line.starts_with("E ")).take(6).collect::<Vec<_>>();
            return Some(format!("status {}: {}", self.status, why.join("; ")));
        }
        for (words, right) in [
            ("order violations ", 0.0),
            ("pages missing ", 0.0),
            ("database sum ", f64::from(size * 6)),
        ] {
            match self.number(words) {
                Some(number) if number == right => {}
                other => return Some(format!("{words}{other:?}, and not {right}")),
            }
        }
        None
    }

    /// Ticks that the load took.
    pub fn ticks(&self) -> Result<f64> {
        let line =
            self.text.lines().find(|line| line.starts_with("lab: build")).context("no report")?;
        line.rsplit(' ').next().and_then(|ticks| ticks.parse().ok()).context("no ticks")
    }

    /// Percent of all CPUs' time in user mode, in the kernel, spinning and idle.
    pub fn shares(&self) -> [f64; 4] {
        let mut sums = [0.0; 4];
        for line in self.text.lines().filter(|line| line.starts_with("cpu ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            for (sum, at) in sums.iter_mut().zip([3, 5, 7, 9]) {
                *sum += words.get(at).and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
            }
        }
        let all: f64 = sums.iter().sum();
        sums.map(|sum| 100.0 * sum / all.max(1.0))
    }

    /// Claims of semaphores, and how many of them blocked.
    pub fn claims(&self) -> (f64, f64) {
        let line = self.text.lines().find_map(|line| line.strip_prefix("semaphores claims "));
        let mut numbers =
            line.unwrap_or("").split(" blocked ").map(|word| word.trim().parse().unwrap_or(0.0));
        (numbers.next().unwrap_or(0.0), numbers.next().unwrap_or(0.0))
    }
}
