//! What observes a server, and how.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::proc::Outcome;

/// What is looked at.
pub struct Target<'a> {
    /// The server's first process.
    pub pid: i32,
    /// What its processes are called.
    pub name: &'static str,
    /// A process that does nothing.
    pub bystander: i32,
    /// Fettle.
    pub fettle: &'a Path,
    /// Where observers may write.
    pub folder: &'a Path,
}

impl Target<'_> {
    fn file(&self) -> std::path::PathBuf {
        self.folder.join("seen")
    }
}

/// What an observer has to show.
#[derive(Default)]
pub struct Seen {
    /// Events, or bytes about them.
    pub events: u64,
    /// What it says it lost.
    pub lost: u64,
}

/// A tool that observes.
pub struct Observer {
    pub name: &'static str,
    pub packages: &'static [&'static str],
    /// `None` for the run without an observer.
    pub start: Option<fn(&Target<'_>) -> Result<Command>>,
    pub seen: fn(&Target<'_>, &Outcome) -> Result<Seen>,
    /// Whether there is nothing to be seen where it looks.
    pub sees_nothing: bool,
    /// Whether it goes on with the processes that are forked later.
    pub follows: bool,
}

impl Observer {
    pub fn is_plain(&self) -> bool {
        self.start.is_none()
    }
}

const fn observer(
    name: &'static str,
    packages: &'static [&'static str],
    start: fn(&Target<'_>) -> Result<Command>,
    seen: fn(&Target<'_>, &Outcome) -> Result<Seen>,
) -> Observer {
    Observer { name, packages, start: Some(start), seen, sees_nothing: false, follows: true }
}

pub const OBSERVERS: [Observer; 8] = [
    Observer {
        name: "plain",
        packages: &[],
        start: None,
        seen: |_, _| Ok(Seen::default()),
        sees_nothing: true,
        follows: true,
    },
    // The floor: the kernel's tracepoints and a look-up, and nothing is recorded.
    Observer {
        sees_nothing: true,
        ..observer("fettle-of-another", &[], |target| fettle(target, target.bystander), of_trace)
    },
    observer("fettle", &[], |target| fettle(target, target.pid), of_trace),
    observer("bpftrace-counts", &["bpftrace"], counts, of_output),
    observer(
        "perf-record",
        &["linux-perf"],
        |target| {
            let events = "raw_syscalls:sys_enter,raw_syscalls:sys_exit,sched:sched_switch,sched:sched_wakeup";
            Ok(perf(target, &["record", "-q", "-e", events]))
        },
        of_file,
    ),
    Observer {
        follows: false,
        ..observer(
            "perf-trace-summary",
            &["linux-perf"],
            |target| Ok(perf(target, &["trace", "-s"])),
            of_file,
        )
    },
    Observer {
        follows: false,
        ..observer("perf-trace", &["linux-perf"], |target| Ok(perf(target, &["trace"])), of_file)
    },
    observer(
        "strace-counts",
        &["strace"],
        |target| {
            let mut command = Command::new("strace");
            command.args(["-f", "-c", "-p", &target.pid.to_string(), "-o"]).arg(target.file());
            Ok(command)
        },
        of_file,
    ),
];

fn fettle(target: &Target<'_>, pid: i32) -> Result<Command> {
    let trace = target.folder.join("trace.fettle");
    let _ = std::fs::remove_dir_all(&trace);
    let mut command = Command::new(target.fettle);
    command.args(["record", "--kernel", "-p", &pid.to_string(), "-o"]).arg(trace);
    Ok(command)
}

fn perf(target: &Target<'_>, arguments: &[&str]) -> Command {
    let _ = std::fs::remove_file(target.file());
    let mut command = Command::new("perf");
    command.args(arguments).args(["-p", &target.pid.to_string()]);
    command.arg("-o").arg(target.file());
    command
}

/// How many calls, by number, as `strace -c` and `perf trace -s` count them.
fn counts(target: &Target<'_>) -> Result<Command> {
    let name = target.name;
    let program = format!(
        "tracepoint:raw_syscalls:sys_enter /comm == \"{name}\"/ {{ @calls[args->id] = count(); }} \
         tracepoint:raw_syscalls:sys_exit /comm == \"{name}\"/ {{ @ends = count(); }}"
    );
    let mut command = Command::new("bpftrace");
    command.args(["-e", &program]);
    Ok(command)
}

/// Events in a trace, and what the manifest says was lost.
fn of_trace(target: &Target<'_>, _: &Outcome) -> Result<Seen> {
    let file = target.folder.join("trace.fettle/manifest.json");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let manifest: Value = serde_json::from_str(&text)?;
    let sum = |list: &Value, field: &str| -> u64 {
        list.as_array().into_iter().flatten().filter_map(|one| one[field].as_u64()).sum()
    };
    let events = &manifest["events"];
    Ok(Seen { events: sum(&events["kinds"], "rows"), lost: sum(&events["lost"], "lost") })
}

fn of_output(_: &Target<'_>, outcome: &Outcome) -> Result<Seen> {
    let counted = String::from_utf8_lossy(&outcome.stdout).matches('@').count();
    Ok(Seen { events: counted as u64, lost: 0 })
}

fn of_file(target: &Target<'_>, _: &Outcome) -> Result<Seen> {
    let bytes = std::fs::metadata(target.file()).map_or(0, |meta| meta.len());
    Ok(Seen { events: bytes, lost: 0 })
}
