//! The torture program of `tests/torture`, built in many ways, plain and recorded.
//!
//! Its output is the same for every compiler and level of optimisation, so each run is compared
//! with the plain run of the same build, and all plain runs with each other.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::proc::{self, Ending, Outcome};
use crate::{apt, fettle, repo};

/// What to run.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Only builds whose name contains this
    #[arg(long, default_value = "")]
    pub filter: String,
    /// A few builds and modes instead of all
    #[arg(long)]
    pub quick: bool,
    /// Only these modes of `fettle record` (comma-separated)
    #[arg(long, value_delimiter = ',')]
    pub modes: Vec<String>,
    /// Runs of each build in each mode
    #[arg(long, default_value_t = 1)]
    pub repeat: usize,
    /// Lay the program's blocks out at random, by this seed and those after it
    #[arg(long)]
    pub shuffle: Option<u64>,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// Do not record: tells whether the builds themselves agree
    #[arg(long)]
    pub plain_only: bool,
}

impl Options {
    /// The part that CI runs.
    pub fn quick(fettle: &Path) -> Options {
        Options {
            filter: String::new(),
            quick: true,
            modes: Vec::new(),
            repeat: 1,
            shuffle: None,
            fettle: Some(fettle.to_path_buf()),
            plain_only: false,
        }
    }
}

/// One way to build the program.
struct Build {
    name: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    /// What it throws by.
    unwinder: Unwinder,
    /// Link-time shape: static programs have no plug-in.
    is_static: bool,
    strip: bool,
    quick: bool,
}

/// Unwinders, each of which finds in its own way where exceptions are caught.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unwinder {
    Libgcc,
    /// With C++'s library of LLVM.
    Llvm,
    /// The one that profilers and debuggers use, in the place of libgcc's.
    Nongnu,
}

impl Unwinder {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Unwinder::Libgcc => &[],
            Unwinder::Llvm => &["-stdlib=libc++"],
            Unwinder::Nongnu => &["-Wl,--no-as-needed"],
        }
    }

    /// What is linked behind everything else.
    fn libraries(self, is_static: bool) -> &'static [&'static str] {
        match (self, is_static) {
            (Unwinder::Libgcc, _) => &[],
            (Unwinder::Llvm, true) => &["-lc++abi", "-lunwind"],
            (Unwinder::Llvm, false) => &["-lc++abi"],
            (Unwinder::Nongnu, _) => &["-l:libunwind.so.8"],
        }
    }

    fn packages(self) -> &'static [&'static str] {
        match self {
            Unwinder::Libgcc => &[],
            Unwinder::Llvm => &["libc++-dev", "libc++abi-dev"],
            Unwinder::Nongnu => &["libunwind8"],
        }
    }
}

const GCC: &str = "g++";
const CLANG: &str = "clang++-14";

/// A dynamic build with these flags.
const fn dynamic(
    name: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
) -> Build {
    Build {
        name,
        compiler,
        flags,
        unwinder: Unwinder::Libgcc,
        is_static: false,
        strip: false,
        quick: false,
    }
}

const fn quick(build: Build) -> Build {
    Build { quick: true, ..build }
}

const fn stripped(build: Build) -> Build {
    Build { strip: true, ..build }
}

const fn statically(build: Build) -> Build {
    Build { is_static: true, ..build }
}

const fn by(unwinder: Unwinder, build: Build) -> Build {
    Build { unwinder, ..build }
}

const BUILDS: &[Build] = &[
    quick(dynamic("gcc-O0", GCC, &["-O0"])),
    dynamic("gcc-O1", GCC, &["-O1"]),
    quick(dynamic("gcc-O2", GCC, &["-O2"])),
    dynamic("gcc-O3", GCC, &["-O3"]),
    dynamic("gcc-Os", GCC, &["-Os"]),
    dynamic("gcc-O2-debug", GCC, &["-O2", "-g"]),
    dynamic("gcc-O2-lto", GCC, &["-O2", "-flto"]),
    dynamic("clang-O0", CLANG, &["-O0"]),
    dynamic("clang-O1", CLANG, &["-O1"]),
    quick(dynamic("clang-O2", CLANG, &["-O2"])),
    dynamic("clang-O3", CLANG, &["-O3"]),
    dynamic("clang-Os", CLANG, &["-Os"]),
    quick(stripped(dynamic("gcc-O2-stripped", GCC, &["-O2"]))),
    stripped(dynamic("clang-O2-stripped", CLANG, &["-O2"])),
    dynamic("gcc-no-pie", GCC, &["-O2", "-no-pie", "-fno-pie"]),
    dynamic("clang-no-pie", CLANG, &["-O2", "-no-pie", "-fno-pie"]),
    quick(statically(dynamic("gcc-static", GCC, &["-O2", "-static"]))),
    statically(dynamic("gcc-static-pie", GCC, &["-O2", "-static-pie", "-fPIE"])),
    stripped(statically(dynamic("gcc-static-stripped", GCC, &["-O2", "-static"]))),
    dynamic("gcc-no-cet", GCC, &["-O2", "-fcf-protection=none"]),
    dynamic("gcc-cet", GCC, &["-O2", "-fcf-protection=full"]),
    dynamic("clang-cet", CLANG, &["-O2", "-fcf-protection=full"]),
    dynamic("gcc-no-plt", GCC, &["-O2", "-fno-plt"]),
    dynamic("gcc-lazy", GCC, &["-O2", "-Wl,-z,lazy"]),
    dynamic("gcc-sections", GCC, &["-O2", "-ffunction-sections", "-Wl,--gc-sections"]),
    dynamic("gcc-frame-pointer", GCC, &["-O2", "-fno-omit-frame-pointer"]),
    dynamic("gcc-native", GCC, &["-O3", "-march=native"]),
    dynamic("gcc-align-1", GCC, &["-O2", "-falign-functions=1", "-fno-align-jumps"]),
    dynamic("gcc-protector", GCC, &["-O2", "-fstack-protector-all", "-D_FORTIFY_SOURCE=2"]),
    dynamic("gcc-no-jump-tables", GCC, &["-O2", "-fno-jump-tables"]),
    quick(by(Unwinder::Llvm, dynamic("llvm-unwinder", CLANG, &["-O2"]))),
    by(Unwinder::Llvm, dynamic("llvm-unwinder-no-pie", CLANG, &["-O2", "-no-pie", "-fno-pie"])),
    by(Unwinder::Llvm, statically(dynamic("llvm-unwinder-static", CLANG, &["-O2", "-static"]))),
    by(
        Unwinder::Llvm,
        statically(dynamic("llvm-unwinder-static-pie", CLANG, &["-O2", "-static-pie", "-fPIE"])),
    ),
    quick(by(Unwinder::Nongnu, dynamic("nongnu-unwinder", GCC, &["-O2"]))),
];

const SOURCES: [&str; 9] = [
    "main.cc",
    "control_flow.cc",
    "exceptions.cc",
    "jumps.cc",
    "stacks.cc",
    "signals.cc",
    "threads.cc",
    "processes.cc",
    "plugins.cc",
];

const ALL_MODES: [&str; 7] = ["events", "time", "cpu", "count", "sample", "blocks", "edges"];
const QUICK_MODES: [&str; 2] = ["events", "count"];

/// How many runs passed, failed and were left out.
#[derive(Default, Debug)]
pub struct Tally {
    runs: usize,
    failures: usize,
    left_out: usize,
}

impl Tally {
    /// Whether nothing failed.
    pub fn passed(&self) -> bool {
        self.failures == 0
    }
    /// Runs that passed.
    pub fn succeeded(&self) -> usize {
        self.runs - self.failures
    }
    /// Runs that failed.
    pub fn failed(&self) -> usize {
        self.failures
    }
    /// Builds that were left out, with the reason printed.
    pub fn skipped(&self) -> usize {
        self.left_out
    }

    fn note(&mut self, build: &str, mode: &str, trouble: Option<String>, wall: Duration) {
        self.runs += 1;
        let seconds = wall.as_secs_f64();
        match trouble {
            None => println!("same      {build:<22} {mode:<10} {seconds:6.2} s"),
            Some(trouble) => {
                self.failures += 1;
                println!("DIFFERS   {build:<22} {mode:<10} {seconds:6.2} s  {trouble}");
            }
        }
    }
}

/// Builds, runs plain, runs in every mode, compares.
pub fn run(options: &Options) -> Result<Tally> {
    proc::no_core_files();
    let binary = match options.plain_only {
        true => None,
        false => Some(fettle::binary(options.fettle.as_deref())?),
    };
    let folder = repo::target_folder("torture")?;
    let modes: Vec<&str> = match (&options.modes[..], options.quick) {
        ([], true) => QUICK_MODES.to_vec(),
        ([], false) => ALL_MODES.to_vec(),
        (given, _) => given.iter().map(String::as_str).collect(),
    };
    let mut tally = Tally::default();
    let mut first_digests: Option<String> = None;
    let has = |mode: &&str| binary.as_ref().is_none_or(|binary| fettle::has(binary, mode));
    for missing in modes.iter().filter(|mode| !has(mode)) {
        println!("skipped   mode {missing}: fettle record has none of that name");
        tally.left_out += 1;
    }
    let modes: Vec<&str> = modes.into_iter().filter(has).collect();
    for build in BUILDS.iter().filter(|b| b.name.contains(&options.filter)) {
        if options.quick && !build.quick {
            continue;
        }
        if let Some(reason) = unavailable(build) {
            println!("skipped   {:<22} {reason}", build.name);
            tally.left_out += 1;
            continue;
        }
        let program = make(build, &folder)?;
        let plain = perform(&program, None, None, &folder)?;
        let digests = shared_digests(&plain);
        let expected = first_digests.get_or_insert_with(|| digests.clone());
        let sound = plain.ending == Ending::Exit(0) && digests == *expected;
        tally.note(build.name, "plain", (!sound).then(|| describe(&plain)), plain.wall);
        let Some(binary) = &binary else { continue };
        for mode in modes.iter().flat_map(|mode| std::iter::repeat_n(*mode, options.repeat)) {
            let seed = options.shuffle.map(|seed| seed + tally.runs as u64);
            let recorded = perform(&program, Some((binary, mode)), seed, &folder)?;
            tally.note(
                build.name,
                mode,
                difference(&plain, &recorded, counts_calls(mode)),
                recorded.wall,
            );
        }
    }
    println!(
        "\ntorture: {} runs: {} passed, {} failed; {} builds skipped",
        tally.runs,
        tally.succeeded(),
        tally.failures,
        tally.left_out
    );
    Ok(tally)
}

fn unavailable(build: &Build) -> Option<String> {
    let packages: &[&str] = if build.compiler == CLANG { &["clang-14", "g++"] } else { &["g++"] };
    let packages = packages.iter().chain(build.unwinder.packages());
    let packages: Vec<String> = packages.map(std::string::ToString::to_string).collect();
    apt::ensure(&packages).err().map(|error| format!("{error:#}"))
}

/// The program and, for dynamic builds, its plug-in.
struct Program {
    path: PathBuf,
    plugin: Option<PathBuf>,
}

fn make(build: &Build, folder: &Path) -> Result<Program> {
    let place = folder.join(build.name);
    std::fs::create_dir_all(&place)?;
    let sources = repo::root().join("tests/torture");
    let path = place.join("torture");
    let plugin = (!build.is_static).then(|| place.join("plugin.so"));
    if is_newer(&path, &sources)? {
        return Ok(Program { path, plugin });
    }
    let mut compile = Command::new(build.compiler);
    compile.current_dir(&sources).args(["-std=c++17", "-Wno-infinite-recursion", "-pthread"]);
    compile.args(build.flags).args(build.unwinder.flags()).args(SOURCES).arg("-o").arg(&path);
    compile.arg(if build.is_static { "-DTORTURE_STATIC" } else { "-ldl" });
    compile.args(build.unwinder.libraries(build.is_static));
    if build.unwinder != Unwinder::Libgcc && !build.is_static {
        compile.arg("-DTORTURE_TWO_UNWINDERS");
    }
    if build.strip {
        compile.arg("-s");
    }
    if let Some(plugin) = &plugin {
        let mut compile = Command::new(build.compiler);
        compile.current_dir(&sources).args(["-std=c++17", "-shared", "-fPIC", "-O1"]);
        compile.args(build.unwinder.flags());
        proc::output_of(compile.arg("plugin.cc").arg("-o").arg(plugin))?;
    }
    proc::output_of(&mut compile)?;
    Ok(Program { path, plugin })
}

/// Whether a built program is newer than every source.
fn is_newer(program: &Path, sources: &Path) -> Result<bool> {
    let Ok(built) = program.metadata().and_then(|meta| meta.modified()) else { return Ok(false) };
    for item in std::fs::read_dir(sources)? {
        if item?.metadata()?.modified()? >= built {
            return Ok(false);
        }
    }
    Ok(true)
}

fn perform(
    program: &Program,
    tool: Option<(&PathBuf, &str)>,
    shuffle: Option<u64>,
    folder: &Path,
) -> Result<Outcome> {
    let mut command = match tool {
        None => Command::new(&program.path),
        Some((fettle, mode)) => {
            let trace = folder.join("trace");
            if trace.exists() {
                std::fs::remove_dir_all(&trace)?;
            }
            let mut command = Command::new(fettle);
            command.args(["record", "--quiet", "--json", "--mode", mode, "-o"]).arg(trace);
            command.args(shuffle.iter().flat_map(|seed| ["--shuffle".into(), seed.to_string()]));
            command.args(fettle::cache_flags(fettle)).arg("--").arg(&program.path);
            command
        }
    };
    command.args(&program.plugin).current_dir(folder);
    proc::start(command, folder, "run", None)?.finish(Duration::from_secs(120))
}

/// The lines that every build prints alike: all but the plug-ins', which static builds lack.
fn shared_digests(outcome: &Outcome) -> String {
    let text = String::from_utf8_lossy(&outcome.stdout);
    text.lines().filter(|line| !line.starts_with("plugins")).collect::<Vec<_>>().join("\n")
}

fn describe(outcome: &Outcome) -> String {
    let said = String::from_utf8_lossy(&outcome.stderr);
    let said: Vec<&str> = said.lines().take(3).collect();
    format!("{}: {}", outcome.ending, said.join(" | "))
}

fn difference(plain: &Outcome, recorded: &Outcome, counts_calls: bool) -> Option<String> {
    let (own, summary) = fettle::split_summary(&recorded.stderr);
    if recorded.ending != plain.ending || own != plain.stderr {
        return Some(describe(&Outcome { stderr: own, ..recorded.clone() }));
    }
    if recorded.stdout != plain.stdout {
        let plain = String::from_utf8_lossy(&plain.stdout);
        let recorded = String::from_utf8_lossy(&recorded.stdout);
        let other = recorded.lines().zip(plain.lines()).find(|(a, b)| a != b);
        return Some(format!("output: {other:?}"));
    }
    match summary {
        None => Some("no summary".into()),
        Some(summary) if summary.functions_lifted == 0 => Some("no function was lifted".into()),
        Some(summary) if summary.calls == 0 && counts_calls => Some("no call was recorded".into()),
        Some(_) => None,
    }
}

/// Whether a mode says how many calls there were: those that count blocks and edges do not.
fn counts_calls(mode: &str) -> bool {
    !matches!(mode, "blocks" | "edges" | "plain")
}
