//! Processors lent in guests: what `fettle smp` does, from outside, on stock kernels.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::guest::{self, Clock, Files, Kernel, Machine};
use crate::{apt, proc, repo};

/// What to run.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// The fettle to test [default: built from this tree]
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// Only what CI runs: two minutes
    #[arg(long)]
    pub brief: bool,
    /// Package of the kernel
    #[arg(long, default_value = "linux-image-amd64")]
    pub kernel: String,
    /// Lend and give back so many times
    #[arg(long, default_value_t = 100)]
    pub times: u32,
    /// Change the memory of another thread so many times
    #[arg(long, default_value_t = 100_000)]
    pub changes: u32,
    /// Model of the guest's processors, with features, as QEMU has it
    #[arg(long, default_value = "max")]
    pub model: String,
    /// More for the kernel's command line
    #[arg(long, default_value = "")]
    pub append: String,
    /// Show everything that the guest showed
    #[arg(long)]
    pub verbose: bool,
}

impl Options {
    /// What CI runs.
    pub fn brief(binary: &Path) -> Options {
        Options {
            binary: Some(binary.to_path_buf()),
            brief: true,
            kernel: "linux-image-amd64".to_string(),
            times: 2,
            changes: 0,
            model: "max".to_string(),
            append: String::new(),
            verbose: false,
        }
    }
}

/// Cases, and why there are none.
#[derive(Debug, Default)]
pub struct Score {
    /// As they should be.
    pub passed: usize,
    /// Not so.
    pub failed: usize,
    /// What the latter showed, a line each.
    pub wrong: Vec<String>,
    /// Why nothing ran.
    pub skipped: Option<String>,
}

impl Score {
    /// Whether all cases ran and went well. Says why none did.
    pub fn is_good(&self) -> bool {
        if let Some(why) = &self.skipped {
            println!("skipped: {why}");
        }
        self.failed == 0 && self.skipped.is_none()
    }

    /// Counts the cases that a guest showed, and prints those that are wrong.
    pub fn of(what: &str, release: &str, shown: &str) -> Score {
        let mut score = Score::default();
        for line in shown.lines().filter(|line| line.starts_with("case ")) {
            if line.ends_with(": ok") {
                score.passed += 1;
            } else {
                println!("{line}");
                score.failed += 1;
                score.wrong.push(line.to_string());
            }
        }
        // A script that ends early would pass.
        if !shown.contains("case no-complaints") {
            println!("the cases did not come to their end:\n{shown}");
            score.failed += 1;
        }
        println!("{what} on {release}: {} passed; {} failed", score.passed, score.failed);
        score
    }
}

/// Programs of Debian that have their cases in `tests/smp/debian.sh`, beside dash.
const PROGRAMS: [&str; 47] = [
    "as",
    "bash",
    "bc",
    "bzip2",
    "cat",
    "cksum",
    "cmp",
    "cut",
    "diff",
    "env",
    "find",
    "gdb",
    "grep",
    "gzip",
    "head",
    "kill",
    "ls",
    "make",
    "mawk",
    "md5sum",
    "nice",
    "od",
    "openssl",
    "perl",
    "python3",
    "redis-cli",
    "redis-server",
    "rm",
    "sed",
    "seq",
    "sha256sum",
    "sh",
    "sleep",
    "sort",
    "sqlite3",
    "stdbuf",
    "strace",
    "tail",
    "tar",
    "timeout",
    "touch",
    "tr",
    "true",
    "uniq",
    "wc",
    "xz",
    "yes",
];

/// Packages of those that are not on every machine.
const PACKAGES: [&str; 11] = [
    "bc",
    "binutils",
    "bzip2",
    "gdb",
    "mawk",
    "openssl",
    "perl",
    "python3",
    "redis-server",
    "sqlite3",
    "strace",
];

/// Builds everything, runs the cases in a guest, and counts them.
pub fn run(options: &Options) -> Result<Score> {
    let kernel = match Kernel::fetch(&options.kernel) {
        Ok(kernel) => kernel,
        Err(why) => return Ok(Score { skipped: Some(format!("{why:#}")), ..Score::default() }),
    };
    let files = files(options, &kernel)?;
    let mut script = std::fs::read_to_string(repo::root().join("tests/smp/cases.sh"))?;
    script.push_str(
        "\ncase_lend\ncase_programs\ncase_quiet\ncase_balance\ncase_waits\ncase_mutation\n",
    );
    if !options.brief {
        script.push_str(&std::fs::read_to_string(repo::root().join("tests/smp/debian.sh"))?);
        script.push_str("\ncase_debian\ncase_debuggers\n");
        script.push_str(&format!("case_changes {}\n", options.changes));
    }
    script.push_str("case_signals\ncase_attach\ncase_users\ncase_give_back\n");
    script.push_str("case_suspend\ncase_hold\ncase_unload\n");
    let times = if options.brief { 2 } else { options.times };
    script.push_str(&format!("case_again {times}\nrmmod fettle-smp\n"));
    script.push_str("result no-complaints '' \"$(kernel_complaints)\"\n");
    let machine = Machine {
        processors: 4,
        clock: Clock::Host,
        model: options.model.clone(),
        memory: if options.brief { 1024 } else { 2048 },
        options: options.append.clone(),
        output: None,
        plugin: None,
        limit: Duration::from_secs(if options.brief { 580 } else { 3600 }),
    };
    let shown = guest::run(&kernel, &files, &machine, &script)?;
    if options.verbose {
        println!("{shown}");
    }
    let mut score = Score::of("smp", &kernel.release, &shown);
    if !options.brief {
        for (name, command) in STOPS {
            match stops(&kernel, &files, &machine, name, command)? {
                true => score.passed += 1,
                false => score.failed += 1,
            }
        }
    }
    Ok(score)
}

/// Ways in which a machine stops for good.
const STOPS: [(&str, &str); 3] = [
    ("reboot", "busybox reboot -f"),
    ("power-off", "busybox poweroff -f"),
    ("panic", "sh -c 'echo c >/proc/sysrq-trigger'"),
];

/// Whether a machine stops that way while processors are lent, without a complaint of its kernel
/// about anything else.
fn stops(
    kernel: &Kernel,
    files: &Files,
    machine: &Machine,
    name: &str,
    command: &str,
) -> Result<bool> {
    let mut script = std::fs::read_to_string(repo::root().join("tests/smp/cases.sh"))?;
    script.push_str(&format!("\nstop_for_good {name} {command}\n"));
    let machine = Machine { limit: Duration::from_secs(300), ..machine.clone() };
    let shown = guest::run_until_off(kernel, files, &machine, &script)?;
    let last = shown.split_once(&format!("stopping: {name}")).map(|(_, last)| last);
    let complaints = ["WARNING:", "soft lockup", "detected stalls", "processor failed"];
    let right = shown.contains("lent: 1-3")
        && last.is_some_and(|last| !complaints.iter().any(|complaint| last.contains(complaint)));
    println!("case stops-by-{name}: {}", if right { "ok" } else { "WRONG" });
    if !right {
        println!("{shown}");
    }
    Ok(right)
}

/// The guest's files: fettle, the module for its kernel, programs.
fn files(options: &Options, kernel: &Kernel) -> Result<Files> {
    let files = base(options.binary.as_deref(), kernel, "files")?;
    compile(&files, "programs", "-O1")?;
    compile(&files, "measured", "-O2")?;
    if !options.brief {
        apt::ensure(&PACKAGES.map(String::from))?;
        debian(&files)?;
    }
    Ok(files)
}

/// Files with fettle, the module for the kernel, and a shell.
pub(crate) fn base(binary: Option<&Path>, kernel: &Kernel, name: &str) -> Result<Files> {
    let place = repo::target_folder("smp")?;
    let binary = crate::fettle::binary(binary)?;
    let module = place.join("module").join(&kernel.release);
    proc::output_of(
        Command::new(&binary)
            .args(["smp", "module", "--source"])
            .arg(&module)
            .arg("--build")
            .arg(&kernel.headers),
    )?;
    let files = Files::new(&place.join(name))?;
    let small = place.join("fettle");
    proc::output_of(Command::new("strip").arg("-o").arg(&small).arg(&binary))?;
    files.put_program(&small, "bin/fettle")?;
    files.put_file(&module.join("fettle-smp.ko"), "fettle-smp.ko")?;
    files.put_program(Path::new("/bin/dash"), "bin/dash")?;
    files.put_program(Path::new("/bin/dash"), "usr/bin/dash")?;
    Ok(files)
}

/// Programs of this machine, with what they load: those that are there.
fn debian(files: &Files) -> Result<()> {
    for name in PROGRAMS {
        let found = ["/usr/bin", "/bin"].iter().map(|folder| Path::new(folder).join(name));
        if let Some(program) = found.into_iter().find(|program| program.exists()) {
            files.put_program(&program, &format!("usr/bin/{name}"))?;
        }
    }
    let compiler = proc::output_of(Command::new("gcc").arg("-print-prog-name=cc1"))?;
    files.put_program(Path::new(compiler.trim()), "usr/bin/cc1")?;
    for file in std::fs::read_dir(repo::root().join("tests/smp/data"))? {
        let file = file?;
        let name = format!("tests/data/{}", file.file_name().to_string_lossy());
        files.put_file(&file.path(), &name)?;
    }
    for library in
        ["/usr/lib/python3.11", "/usr/share/perl/5.36", "/usr/lib/x86_64-linux-gnu/perl-base"]
    {
        files.put_folder(Path::new(library))?;
    }
    Ok(())
}

/// The repository's own programs of a folder of `tests/smp`, in `/tests/FOLDER`.
pub(crate) fn compile(files: &Files, folder: &str, optimized: &str) -> Result<()> {
    apt::ensure(&["libc6-dev".to_string()])?;
    let place = repo::target_folder("smp")?;
    for entry in std::fs::read_dir(repo::root().join("tests/smp").join(folder))? {
        let source = entry?.path();
        if source.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let name = source.file_stem().context("a file has a name")?.to_string_lossy().into_owned();
        let program = place.join(&name);
        proc::output_of(
            Command::new("gcc")
                .args([optimized, "-Wall", "-pthread", "-o"])
                .arg(&program)
                .arg(&source)
                .arg("-lm"),
        )?;
        files.put_program(&program, &format!("tests/{folder}/{name}"))?;
    }
    Ok(())
}
