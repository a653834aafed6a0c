//! Snapshots of running kernels: what `fettle` reads of the kernel that it runs on, taken in a guest and
//! kept in files, so that tests of lifting and emission need no guest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::{self, Clock, Files, Kernel, Machine};
use crate::{apt, proc, repo};

/// What to do.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Boot a kernel and keep what it shows of itself in target/kernel/snapshot/RELEASE
    #[arg(long, required = true)]
    pub snapshot: bool,
    /// Package of the kernel; one of another suite as SUITE/PACKAGE
    #[arg(long, default_value = "linux-image-amd64")]
    pub kernel: String,
    /// Model of the guest's processors, with features, as QEMU has it
    #[arg(long, default_value = "max")]
    pub model: String,
}

/// What a snapshot consists of: a file's name, and the command of the guest that writes it.
const PARTS: [(&str, &str); 6] = [
    ("core", "/bin/snapshot"),
    ("kallsyms", "cat /proc/kallsyms"),
    ("btf", "cat /sys/kernel/btf/vmlinux"),
    ("blacklist", "cat /sys/kernel/debug/kprobes/blacklist"),
    ("traceable", "cat /sys/kernel/tracing/available_filter_functions"),
    ("release", "uname -r"),
];

/// Takes a snapshot.
pub fn run(options: &Options) -> Result<bool> {
    let kernel = Kernel::fetch_image(&options.kernel)?;
    let place = snapshot(&kernel, &options.model)?;
    println!("kernel: {} is in {}", kernel.release, place.display());
    Ok(true)
}

/// Boots `kernel`, and puts what it shows of itself into a folder.
pub fn snapshot(kernel: &Kernel, model: &str) -> Result<PathBuf> {
    let work = repo::target_folder("kernel")?;
    let files = Files::new(&work.join("files"))?;
    files.put_file(&reader(&work)?, "bin/snapshot")?;
    let output = work.join("snapshot.tar.gz");
    let machine = Machine {
        processors: 2,
        clock: Clock::Host,
        model: model.to_string(),
        memory: 1024,
        options: String::new(),
        output: Some(output.clone()),
        plugin: None,
        limit: Duration::from_secs(560),
    };
    let shown = guest::run(kernel, &files, &machine, &script())?;
    ensure!(shown.contains("snapshot: whole"), "the guest did not write all of it:\n{shown}");
    let place = work.join("snapshot").join(&kernel.release);
    std::fs::create_dir_all(&place)?;
    proc::output_of(Command::new("tar").arg("-xzf").arg(&output).arg("-C").arg(&place))
        .context("what the guest sent")?;
    std::fs::remove_file(&output)?;
    Ok(place)
}

fn script() -> String {
    let mut script = String::from(
        "mount -t debugfs d /sys/kernel/debug; mount -t tracefs t /sys/kernel/tracing\n\
         mkdir /tmp/snapshot; cd /tmp/snapshot\n",
    );
    for (name, command) in PARTS {
        script.push_str(&format!("{command} >{name} || echo 'snapshot: no {name}'\n"));
    }
    script.push_str("stty -F /dev/ttyS1 raw\ntar -c * | gzip -1 >/dev/ttyS1 && ");
    script.push_str("stty -F /dev/ttyS1 && echo 'snapshot: whole'\n");
    script
}

/// The program that reads the kernel's memory in the guest.
fn reader(work: &Path) -> Result<PathBuf> {
    apt::ensure(&["libc6-dev".to_string()])?;
    let program = work.join("snapshot-reader");
    proc::output_of(
        Command::new("gcc")
            .args(["-O1", "-Wall", "-static", "-o"])
            .arg(&program)
            .arg(repo::root().join("tests/kernel/snapshot.c")),
    )?;
    Ok(program)
}
