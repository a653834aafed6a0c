//! Programs that were not written for Fettle, translated to jars: gcc's own tests and random ones.
//!
//! Each program is compiled, run by QEMU, translated and run by a JVM. What QEMU says is right. A
//! program that QEMU itself does not bring to a normal end shows nothing and is left out.

pub mod devices;
mod jvm;
mod machine;
pub mod maven;
mod programs;
pub mod projects;
pub mod real;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};

use self::jvm::Jvm;
pub use self::machine::Machine;
use self::programs::{Choice, Program, Suite};
use crate::proc::{self, Ending};
use crate::{apt, fettle, repo};

/// What all machines' programs need.
const PACKAGES: [&str; 2] = ["csmith", "default-jdk-headless"];

/// How long a program may take natively, and how long in the JVM that first has to compile it.
const QEMU_SECONDS: u64 = 10;
const JVM_SECONDS: u32 = 60;

/// What to run.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Which programs
    #[arg(long, value_enum, value_delimiter = ',', default_value = "gcc,csmith")]
    pub suite: Vec<Suite>,
    /// Which of their programs
    #[command(flatten)]
    pub choice: Choice,
    /// Levels of optimisation to compile at
    #[arg(long, value_delimiter = ',', default_value = "-O2")]
    pub level: Vec<String>,
    /// Options for the JVM, as -Xint
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    pub java: Vec<String>,
    /// The JVM
    #[arg(long, default_value = "java")]
    pub jvm: PathBuf,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

impl Options {
    /// The part that CI runs, another one every day.
    pub fn quick(fettle: &Path, machine: Machine) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            suite: vec![Suite::Gcc, Suite::Csmith],
            choice: Choice {
                machine,
                count: Some(16),
                seed: now.map_or(1, |now| now.as_secs() / 86_400),
                filter: String::new(),
            },
            level: vec!["-O2".into()],
            java: Vec::new(),
            jvm: "java".into(),
            fettle: Some(fettle.to_path_buf()),
        }
    }
}

/// What came of all programs.
#[derive(Default, Debug)]
pub struct Tally {
    /// Those that did the same.
    pub passed: usize,
    /// Those that did not: name, and what was different.
    pub failed: Vec<(String, String)>,
    /// Those that show nothing.
    pub left_out: usize,
}

/// What came of one program.
enum Verdict {
    Same,
    Different(String),
    TellsNothing,
}

/// Whether there is everything that running them needs.
pub fn has_tools(machine: Machine) -> bool {
    ["csmith", "java"].into_iter().all(proc::on_path) && machine.has_tools()
}

/// Runs the programs. `Err` says why none could run.
pub fn run(options: &Options) -> Result<Tally> {
    let packages = PACKAGES.iter().chain(options.choice.machine.packages());
    let packages: Vec<String> = packages.map(|name| String::from(*name)).collect();
    apt::ensure(&packages)?;
    let binary = fettle::binary(options.fettle.as_deref())?;
    let place = repo::target_folder("jar-torture")?;
    let mut programs = Vec::new();
    for suite in &options.suite {
        programs.extend(suite.programs(&options.choice, &place)?);
    }
    let mut work = Vec::new();
    for program in &programs {
        work.extend(options.level.iter().map(|level| (program, level.as_str())));
    }
    println!("{} programs, seed {}", work.len(), options.choice.seed);
    // Two runs at once do not share what they compile.
    let own = place.join(std::process::id().to_string());
    let tally = Mutex::new(Tally::default());
    let next = AtomicUsize::new(0);
    let workers =
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(work.len());
    let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let worker = |number: usize| -> Result<()> {
            let folder = own.join(number.to_string());
            std::fs::create_dir_all(&folder)?;
            let mut jvm = Jvm::new(&options.jvm, &options.java, &folder);
            while let Some((program, level)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                let verdict =
                    judge(&binary, (options.choice.machine, program, level), &folder, &mut jvm)
                        .with_context(|| program.name.clone())?;
                note(&tally, &format!("{} {level}", program.name), verdict);
            }
            Ok(())
        };
        let handles: Vec<_> =
            (0..workers).map(|number| scope.spawn(move || worker(number))).collect();
        handles.into_iter().map(|h| h.join().expect("a worker does not panic")).collect()
    });
    // Nothing is lost with it: a program is found again by its name and the seed.
    std::fs::remove_dir_all(&own)?;
    outcomes.into_iter().collect::<Result<()>>()?;
    let tally = tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    println!(
        "{} passed; {} failed; {} left out: they do not end normally under QEMU either",
        tally.passed,
        tally.failed.len(),
        tally.left_out
    );
    Ok(tally)
}

/// After so many programs the tally says how far it is.
const PROGRESS: usize = 100;

fn note(tally: &Mutex<Tally>, name: &str, verdict: Verdict) {
    let mut tally = tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let done = tally.passed + tally.failed.len() + tally.left_out + 1;
    if done.is_multiple_of(PROGRESS) {
        println!("{done} done");
    }
    match verdict {
        Verdict::Same => tally.passed += 1,
        Verdict::TellsNothing => tally.left_out += 1,
        Verdict::Different(what) => {
            println!("failed: {name}: {what}");
            tally.failed.push((name.to_owned(), what));
        }
    }
}

fn judge(
    binary: &Path,
    (machine, program, level): (Machine, &Program, &str),
    folder: &Path,
    jvm: &mut Jvm,
) -> Result<Verdict> {
    let (elf, jar) = (folder.join("program"), folder.join("program.jar"));
    if !machine.compile(&program.source, &program.flags, level, &elf)? {
        return Ok(Verdict::TellsNothing);
    }
    let mut qemu = machine.emulator(&elf);
    qemu.current_dir(folder);
    let expected = proc::start(qemu, folder, "qemu", None)?;
    let expected = expected.finish(Duration::from_secs(QEMU_SECONDS))?;
    if expected.ending != Ending::Exit(0) {
        return Ok(Verdict::TellsNothing);
    }
    let translated =
        Command::new(binary).args(["jar", "-o"]).arg(&jar).arg(&elf).output().context("fettle")?;
    if !translated.status.success() {
        let reported = [&translated.stdout[..], &translated.stderr].concat();
        return Ok(Verdict::Different(format!("not translated: {}", first_line(&reported))));
    }
    let ran = jvm.run(&jar, JVM_SECONDS)?;
    Ok(match ran.status {
        Err(instead) => Verdict::Different(instead),
        Ok(0) if ran.stdout == expected.stdout => Verdict::Same,
        Ok(0) => Verdict::Different(format!(
            "other output: {:?}, not {:?}",
            first_line(&ran.stdout),
            first_line(&expected.stdout)
        )),
        Ok(status) => Verdict::Different(format!("status {status}, not 0")),
    })
}

fn first_line(text: &[u8]) -> String {
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned()
}
