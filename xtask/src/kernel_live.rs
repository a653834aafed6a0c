//! Rewritten text in running kernels, in guests: what `fettle kernel` does, from outside, on stock kernels.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};

use crate::guest::{self, Clock, Files, Kernel, Machine};
use crate::smp::Score;
use crate::{apt, census, proc, repo};

/// What to run.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// The fettle to test [default: built from this tree]
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// Only what CI runs: three minutes
    #[arg(long)]
    pub brief: bool,
    /// Only these cases of tests/kernel-live/cases.sh, such as root,compared
    #[arg(long, value_name = "CASE", value_delimiter = ',', conflicts_with = "brief")]
    pub cases: Vec<String>,
    /// The kernel: 6.1, 6.12, or a package of one
    #[arg(long, default_value = "6.1")]
    pub kernel: String,
    /// Count thousands of functions so many times, with processors coming and going
    #[arg(long, default_value_t = 20)]
    pub times: u32,
    /// Chooses those functions [default: by the clock]
    #[arg(long)]
    pub seed: Option<u32>,
    /// More for the kernel's command line, such as preempt=full
    #[arg(long, default_value = "")]
    pub append: String,
    /// Show everything that the guest showed
    #[arg(long)]
    pub verbose: bool,
}

impl Options {
    fn wants(&self, case: &str) -> bool {
        match self.cases.is_empty() {
            true => !self.brief || BRIEF.contains(&case),
            false => self.cases.iter().any(|own| own == case),
        }
    }

    /// What CI runs.
    pub fn brief(binary: &Path) -> Options {
        Options {
            binary: Some(binary.to_path_buf()),
            brief: true,
            cases: Vec::new(),
            kernel: "6.1".to_string(),
            times: 1,
            seed: None,
            append: String::new(),
            verbose: false,
        }
    }
}

/// Cases that a few minutes have room for.
const BRIEF: [&str; 6] = ["check", "exact", "counted", "kept", "killed", "again"];
/// All others.
const LONG: [&str; 10] = [
    "modes",
    "root",
    "compared",
    "profile",
    "watched",
    "modules",
    "graph",
    "livepatch",
    "stress",
    "kselftest",
];

/// Classes of stress-ng's stressors that are run on a kernel with rewritten text.
const STRESSED: [&str; 6] = ["pipe", "scheduler", "network", "vm", "filesystem", "os"];

/// The package of a kernel that is named by its series.
pub fn package(kernel: &str) -> String {
    match kernel {
        "6.1" => "linux-image-amd64".to_string(),
        "6.12" => "bookworm-backports/linux-image-amd64".to_string(),
        package => package.to_string(),
    }
}

/// What a guest's script begins with.
pub const MOUNTS: &str = "mount -t debugfs d /sys/kernel/debug; mount -t tracefs t /sys/kernel/tracing\n\
                          mount -t tmpfs r /run; ip link set lo up\n";

/// Boots the kernel, runs the cases in it, and counts them.
pub fn run(options: &Options) -> Result<Score> {
    let kernel = match Kernel::fetch_image(&package(&options.kernel)) {
        Ok(kernel) => kernel,
        Err(why) => return Ok(Score { skipped: Some(format!("{why:#}")), ..Score::default() }),
    };
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let seed = options.seed.unwrap_or(clock.subsec_nanos());
    println!("kernel-live: {}, seed {seed}", kernel.release);
    let is_wanted = |name: &str| options.wants(name);
    let files = files(options.binary.as_deref())?;
    put_modules(&kernel, &files)?;
    put_tests(options, &files)?;
    let times = if options.brief { 1 } else { options.times };
    let ways = if options.brief { "undo" } else { "undo rmmod" };
    let cases = BRIEF.iter().chain(&LONG).map(|name| match *name {
        "kept" => (*name, ways.to_string()),
        "stress" => (*name, STRESSED.join(" ")),
        "again" => (*name, format!("{times} {seed}")),
        name => (name, String::new()),
    });
    let mut shown = String::new();
    for clock in [Clock::Host, Clock::HostInTurns] {
        let cases: String = cases
            .clone()
            .filter(|(name, _)| is_wanted(name) && clock_of(name) == clock)
            .map(|(name, arguments)| format!("timed case_{name} {arguments}\n"))
            .collect();
        if cases.is_empty() {
            continue;
        }
        shown += &guest::run(&kernel, &files, &machine(options, clock), &script(&cases))?;
    }
    ensure!(!shown.is_empty(), "there is no such case in tests/kernel-live/cases.sh");
    if options.verbose {
        println!("{shown}");
    }
    Ok(Score::of("kernel-live", &kernel.release, &shown))
}

/// Modules whose functions are counted and laid out, in the order in which they are loaded, and a file system for
/// them.
fn put_modules(kernel: &Kernel, files: &Files) -> Result<()> {
    apt::ensure(&["e2fsprogs".to_string(), "xz-utils".to_string()])?;
    for name in ["crc16", "mbcache", "jbd2", "crc32c_generic", "ext4", "loop"] {
        files.put_file(&kernel.module(name)?, &format!("modules/{name}.ko"))?;
    }
    let disk = repo::target_folder("kernel-live")?.join("ext4.img");
    let _ = std::fs::remove_file(&disk);
    proc::output_of(Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(&disk).arg("16M"))?;
    files.put_file(&disk, "ext4.img")
}

/// The kernel's own tests that need no arguments, do not set the clock and end within two minutes, by folder.
const KSELFTEST: [(&str, &[&str]); 3] = [
    (
        "futex/functional",
        &[
            "futex_requeue",
            "futex_requeue_pi",
            "futex_requeue_pi_mismatched_ops",
            "futex_requeue_pi_signal_restart",
            "futex_wait",
            "futex_wait_private_mapped_file",
            "futex_wait_timeout",
            "futex_wait_uninitialized_heap",
            "futex_wait_wouldblock",
            "futex_waitv",
        ],
    ),
    ("timers", &["posix_timers", "nanosleep", "mqueue-lat", "threadtest"]),
    (
        "net",
        &[
            "psock_tpacket",
            "psock_fanout",
            "reuseport_bpf",
            "reuseport_bpf_cpu",
            "reuseport_dualstack",
            "reuseport_addr_any",
            "socket",
            "sk_bind_sendto_listen",
            "sk_connect_zero_addr",
            "tcp_inq",
        ],
    ),
];

/// What some cases need.
fn put_tests(options: &Options, files: &Files) -> Result<()> {
    if options.wants("stress") {
        apt::ensure(&["stress-ng".to_string()])?;
        files.put_program(Path::new("/usr/bin/stress-ng"), "bin/stress-ng")?;
    }
    if options.wants("kselftest") {
        put_kselftest(files)?;
    }
    if options.wants("livepatch") {
        put_livepatch(options, files)?;
    }
    Ok(())
}

/// Builds the kernel's own tests.
fn put_kselftest(files: &Files) -> Result<()> {
    let tests = "tools/testing/selftests";
    let parts = ["kselftest.h", "kselftest_harness.h", "futex", "timers", "net"];
    let parts = parts.map(|part| format!("{tests}/{part}"));
    let source = census::kernel_parts("6.1", "kselftest", &parts.each_ref().map(String::as_str))?;
    let built = repo::target_folder("kernel-live")?.join("kselftest");
    std::fs::create_dir_all(&built)?;
    for (folder, names) in KSELFTEST {
        let folder = source.join(tests).join(folder);
        for name in names {
            let mut compiler = Command::new("gcc");
            compiler.args(["-O1", "-w", "-static", "-D_GNU_SOURCE", "-pthread", "-o"]);
            compiler.arg(built.join(name)).arg(format!("{name}.c"));
            compiler.args(["-I.", "-I..", "-I../include", "-I../..", "-lrt", "-lm"]);
            proc::output_of(compiler.current_dir(&folder))?;
            files.put_file(&built.join(name), &format!("kselftest/{name}"))?;
        }
    }
    Ok(())
}

/// Builds the livepatch of tests/kernel-live for the kernel.
fn put_livepatch(options: &Options, files: &Files) -> Result<()> {
    let kernel = Kernel::fetch(&package(&options.kernel))?;
    apt::ensure(&["make".to_string(), "gcc".to_string()])?;
    let place = repo::target_folder("kernel-live")?.join("livepatch");
    std::fs::create_dir_all(&place)?;
    std::fs::copy(repo::root().join("tests/kernel-live/livepatch.c"), place.join("livepatch.c"))?;
    std::fs::write(place.join("Makefile"), "obj-m := livepatch.o\n")?;
    let mut make = Command::new("make");
    make.arg("-C").arg(&kernel.headers).arg(format!("M={}", place.display())).arg("modules");
    proc::output_of(&mut make)?;
    files.put_file(&place.join("livepatch.ko"), "modules/livepatch.ko")
}

/// The kernel's tracer writes to all functions, which processors of several threads do not survive.
fn clock_of(case: &str) -> Clock {
    match case {
        "root" => Clock::HostInTurns,
        _ => Clock::Host,
    }
}

fn script(cases: &str) -> String {
    format!("{MOUNTS}. /cases.sh\n{cases}result no-complaints '' \"$(complaints)\"\n")
}

fn machine(options: &Options, clock: Clock) -> Machine {
    Machine {
        processors: 2,
        clock,
        model: "max".to_string(),
        memory: 1024,
        options: options.append.clone(),
        output: None,
        plugin: None,
        limit: Duration::from_secs(if options.brief { 560 } else { 7200 }),
    }
}

/// The guest's files: fettle, loads, cases.
pub fn files(binary: Option<&Path>) -> Result<Files> {
    apt::ensure(&["libc6-dev".to_string()])?;
    let place = repo::target_folder("kernel-live")?;
    let binary = crate::fettle::binary(binary)?;
    let files = Files::new(&place.join("files"))?;
    let small = place.join("fettle");
    proc::output_of(Command::new("strip").arg("-o").arg(&small).arg(&binary))?;
    files.put_program(&small, "bin/fettle")?;
    // Debian's BusyBox has none.
    files.put_program(Path::new("/usr/bin/nice"), "bin/nice")?;
    let sources = repo::root().join("tests/kernel-live");
    for name in ["load", "peek"] {
        let program = place.join(name);
        proc::output_of(
            Command::new("gcc")
                .args(["-O1", "-Wall", "-static", "-o"])
                .arg(&program)
                .arg(sources.join(format!("{name}.c"))),
        )?;
        files.put_file(&program, &format!("bin/{name}"))?;
    }
    files.put_file(&sources.join("cases.sh"), "cases.sh")?;
    std::fs::create_dir_all(place.join("files/run"))?;
    Ok(files)
}
