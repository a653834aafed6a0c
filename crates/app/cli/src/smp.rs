//! `fettle smp`: processors lent to the application kernel.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitCode};
use std::time::Duration;

use anyhow::Context;
use clap::{Args as ClapArgs, Subcommand};
use fettle_smp::check::{Machine, Verdict};
use fettle_smp::device::{Device, Membership, Status};
use fettle_smp::list::List;
use fettle_smp::{kernel_release, source};
use serde_json::json;

/// Version of the JSON that these commands write.
const JSON_VERSION: u32 = 1;

/// Pause between two tables of `top`.
const PAUSE: Duration = Duration::from_secs(1);

/// Lend processors to the application kernel, run programs there, take the processors back
///
/// A lent processor is out of Linux: no interrupt, no timer, no thread of the kernel comes there. The
/// application kernel runs unmodified programs on it, and has Linux do their system calls and page
/// faults. Needs root and a module for the running kernel, which `fettle smp module` builds.
#[derive(ClapArgs, Debug)]
#[command(
    after_help = "Examples:\n  fettle smp check\n  fettle smp module\n  fettle smp lend 2-3\n  \
                        fettle smp run -- python3 work.py\n  fettle smp status\n  fettle smp give-back"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Say what this machine lacks for lending processors; changes nothing
    Check {
        /// Write JSON with a version field
        #[arg(long)]
        json: bool,
    },
    /// Build the module for the running kernel
    #[command(after_help = "Examples:\n  fettle smp module\n  \
                            fettle smp module --source ./module --build /usr/src/linux-headers-6.1.0-56-amd64")]
    Module {
        /// Only write the source text, and build it, in this folder, instead of keeping the module
        #[arg(long, value_name = "FOLDER")]
        source: Option<PathBuf>,
        /// The kernel's build folder [default: /lib/modules/RELEASE/build]
        #[arg(long, value_name = "FOLDER")]
        build: Option<PathBuf>,
    },
    /// Take processors out of Linux and start the application kernel on them
    #[command(after_help = "Examples:\n  fettle smp lend 2-3\n  fettle smp lend 1,4-7")]
    Lend {
        /// Which, like 2,4-7; processor 0 stays Linux's
        list: List,
        /// The module [default: where `fettle smp module` keeps it]
        #[arg(long, value_name = "FILE")]
        module: Option<PathBuf>,
    },
    /// Run a program on lent processors, with its children
    ///
    /// The status is the program's own; 126 where it cannot be executed, and 127 where there is none.
    #[command(after_help = "Examples:\n  fettle smp run -- python3 work.py\n  \
                            fettle smp run --cpus 2 -- sh -c 'make test | tee log'\n  \
                            fettle smp run --lend 2-3 -- ./simulation\n  \
                            fettle smp run --mixed -- make check")]
    Run {
        #[command(flatten)]
        terms: Terms,
        /// Lend these first, and give them back when the program has ended or this command is killed
        #[arg(long, value_name = "LIST")]
        lend: Option<List>,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        program: Vec<OsString>,
    },
    /// Move a running process to lent processors, at its next return from the kernel
    Attach {
        /// The process
        pid: u32,
        #[command(flatten)]
        terms: Terms,
    },
    /// Let a user other than root run programs on lent processors
    ///
    /// The right is for these processors whenever they are lent, until the module is unloaded. Only root may lend and
    /// give back.
    #[command(
        after_help = "Examples:\n  fettle smp allow alice 2-3\n  fettle smp allow alice none"
    )]
    Allow {
        /// The user's name or number
        user: String,
        /// Which processors, or `none` to take the right away
        list: String,
    },
    /// Move a process back to Linux's processors
    Home {
        /// The process
        pid: u32,
    },
    /// Show lent processors and the threads that run there
    Status {
        /// Write JSON with a version field
        #[arg(long)]
        json: bool,
    },
    /// Show the same every second until interrupted
    Top,
    /// Show the application kernel's log, also after it has failed
    Log {
        /// Write JSON with a version field
        #[arg(long)]
        json: bool,
    },
    /// Bring all threads home and give processors back to Linux
    GiveBack {
        /// Which [default: all that are lent]
        list: Option<List>,
    },
}

/// How a program takes part.
#[derive(ClapArgs, Debug)]
struct Terms {
    /// Only on these of the lent processors
    #[arg(long, value_name = "LIST")]
    cpus: Option<List>,
    /// Let threads come home while Linux has more to do with them than they have themselves
    #[arg(long)]
    mixed: bool,
}

impl Terms {
    fn membership(&self) -> Membership<'_> {
        Membership { list: self.cpus.as_ref(), is_mixed: self.mixed }
    }
}

/// Runs `fettle smp`.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Check { json } => return check(*json),
        Command::Module { source, build } => module(source.as_deref(), build.as_deref())?,
        Command::Lend { list, module } => {
            load(module.as_deref())?.lend(list, false)?;
            say!("lent: {list}");
        }
        Command::Run { terms, lend: None, program } => return become_program(terms, program),
        Command::Run { terms, lend: Some(list), program } => {
            return run_between(list, terms, program);
        }
        Command::Attach { pid, terms } => Device::open()?.attach(*pid, terms.membership())?,
        Command::Allow { user, list } => allow(user, list)?,
        Command::Home { pid } => Device::open()?.home(*pid)?,
        Command::Status { json } => status(*json)?,
        Command::Top => top()?,
        Command::Log { json } => log(*json)?,
        Command::GiveBack { list } => Device::open()?.give_back(list.as_ref())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Loads the module that is named, or kept for the running kernel.
fn load(module: Option<&Path>) -> anyhow::Result<Device> {
    let kept = source::kept(&kernel_release()?);
    Ok(Device::load(module.unwrap_or(&kept))?)
}

fn check(as_json: bool) -> anyhow::Result<ExitCode> {
    let findings = Machine::default().check();
    if as_json {
        let value = json!({ "version": JSON_VERSION, "findings": findings });
        crate::output::print(&format!("{value:#}\n"))?;
    } else {
        let mut text = String::new();
        for finding in &findings {
            let word = match finding.verdict {
                Verdict::Good => "good",
                Verdict::Limited => "limited",
                Verdict::Missing => "missing",
            };
            writeln!(text, "{word:8} {:15} {}", finding.what, finding.found)?;
        }
        crate::output::print(&text)?;
    }
    let lacks = findings.iter().any(|finding| finding.verdict == Verdict::Missing);
    Ok(ExitCode::from(u8::from(lacks)))
}

fn module(folder: Option<&Path>, build: Option<&Path>) -> anyhow::Result<()> {
    let release = kernel_release()?;
    let default = PathBuf::from(format!("/lib/modules/{release}/build"));
    let build = build.unwrap_or(&default);
    if let Some(folder) = folder {
        source::write(folder)?;
        say!("built: {}", source::build(folder, build)?.display());
        return Ok(());
    }
    let folder = tempfile::tempdir().context("cannot make a folder for the build")?;
    source::write(folder.path())?;
    let module = source::build(folder.path(), build)?;
    let kept = source::kept(&release);
    let what = || format!("cannot keep the module at {}", kept.display());
    if let Some(parent) = kept.parent() {
        std::fs::create_dir_all(parent).with_context(what)?;
    }
    std::fs::copy(module, &kept).with_context(what)?;
    say!("built: {}", kept.display());
    Ok(())
}

/// The number of a user, as the system's own databases have it.
fn user_number(user: &str) -> anyhow::Result<u32> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    let known = Process::new("id").args(["-u", "--", user]).output().context("cannot run id")?;
    let number = String::from_utf8_lossy(&known.stdout);
    number.trim().parse().ok().with_context(|| format!("there is no user {user}"))
}

fn allow(user: &str, list: &str) -> anyhow::Result<()> {
    let number = user_number(user)?;
    let list = match list {
        "none" => None,
        list => Some(list.parse::<List>()?),
    };
    Device::open()?.allow(number, list.as_ref())?;
    Ok(())
}

/// Becomes the program, which begins on a lent processor.
fn become_program(terms: &Terms, program: &[OsString]) -> anyhow::Result<ExitCode> {
    let (name, arguments) = program.split_first().context("no program is named")?;
    Device::open()?.join(terms.membership())?;
    let why = Process::new(name).args(arguments).exec();
    say!("fettle: {}: {why}", name.display());
    Ok(ExitCode::from(match why.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    }))
}

/// Lends processors for as long as a program runs. The module gives them back when this process
/// ends, whatever ends it.
fn run_between(lend: &List, terms: &Terms, program: &[OsString]) -> anyhow::Result<ExitCode> {
    let mut device = load(None)?;
    device.lend(lend, true)?;
    let own = std::env::current_exe().context("cannot find this command")?;
    let mut child = Process::new(own);
    child.args(["smp", "run"]);
    if let Some(cpus) = &terms.cpus {
        child.arg("--cpus").arg(cpus.to_string());
    }
    if terms.mixed {
        child.arg("--mixed");
    }
    let status = child.arg("--").args(program).status().context("cannot start the program")?;
    device.give_back(Some(lend))?;
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn status(as_json: bool) -> anyhow::Result<()> {
    let status = match Device::is_there() {
        true => Some(Device::open()?.status()?),
        false => None,
    };
    if as_json {
        let value =
            json!({ "version": JSON_VERSION, "loaded": status.is_some(), "status": status });
        return crate::output::print(&format!("{value:#}\n"));
    }
    match status {
        Some(status) => crate::output::print(&table(&status)?),
        None => crate::output::print("The module is not loaded, so no processor is lent.\n"),
    }
}

fn top() -> anyhow::Result<()> {
    let mut device = Device::open()?;
    loop {
        crate::output::print(&format!("{}\n", table(&device.status()?)?))?;
        std::thread::sleep(PAUSE);
    }
}

fn table(status: &Status) -> anyhow::Result<String> {
    let mut text = String::new();
    if status.processors.is_empty() {
        text.push_str("No processor is lent.\n");
        return Ok(text);
    }
    writeln!(text, "processor  state    idle s     calls     local    faults   pokes   ticks")?;
    for cpu in &status.processors {
        writeln!(
            text,
            "{:9}  {:7} {:7.2} {:9} {:9} {:9} {:7} {:7}",
            cpu.processor,
            cpu.state,
            seconds(cpu.idle_ns),
            cpu.calls,
            cpu.local_calls,
            cpu.faults,
            cpu.pokes,
            cpu.ticks
        )?;
    }
    for right in &status.users {
        writeln!(text, "user {} may use {}", right.user, right.processors)?;
    }
    if status.threads.is_empty() {
        return Ok(text);
    }
    writeln!(text, "\n    pid     tid  state     processor   ran s     calls     local    faults")?;
    for thread in &status.threads {
        let processor = match thread.processor {
            -1 => "-".to_string(),
            number => number.to_string(),
        };
        writeln!(
            text,
            "{:7} {:7}  {:8} {processor:>10} {:7.2} {:9} {:9} {:9}",
            thread.pid,
            thread.tid,
            thread.state,
            seconds(thread.ran_ns),
            thread.calls,
            thread.local_calls,
            thread.faults
        )?;
    }
    Ok(text)
}

/// Nanoseconds as seconds; what is lost of them is not shown.
fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

fn log(as_json: bool) -> anyhow::Result<()> {
    let notes = Device::open()?.log()?;
    if as_json {
        let value = json!({ "version": JSON_VERSION, "notes": notes });
        return crate::output::print(&format!("{value:#}\n"));
    }
    let mut text = String::new();
    for note in &notes {
        writeln!(
            text,
            "{:20} {:3} {:9} {:#x} {:#x}",
            note.tick, note.index, note.what, note.a, note.b
        )?;
    }
    crate::output::print(&text)
}
