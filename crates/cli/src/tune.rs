//! `fettle tune`, `fettle undo` and `fettle status`: running processes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser;
use fettle_live::{Entry, Journal, Process, Purpose, Undone};
use fettle_tune::{Installed, LeftAlone, Target, Wanted};
use serde_json::json;

use crate::select::SelectArgs;

/// Arguments of `fettle tune`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  fettle tune -p 4711 --shuffle 1    # lay out at random, to try whether it notices\n  fettle status 4711\n  fettle undo 4711\n\nThe process goes on running. Its threads stand still for some milliseconds."
)]
pub struct Args {
    /// The process
    #[arg(short, long)]
    pid: i32,
    /// Lay out libraries too whose path or name matches: * and ? are wild (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    lib: Vec<String>,
    #[command(flatten)]
    select: SelectArgs,
    /// Lay every function's blocks out at random, by this seed: for tests
    #[arg(long, value_name = "SEED")]
    shuffle: u64,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `fettle undo`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  fettle undo 4711\n  fettle undo --all --wait 60\n\nOriginal code comes back at once. New code goes when no thread can return to it any more; what\nremains then is told, and goes with a later `fettle undo`.\n\nExit status: 0 all was taken back; 1 some of it remains; 2 error."
)]
pub struct UndoArgs {
    /// The processes
    #[arg(required_unless_present = "all")]
    pids: Vec<i32>,
    /// Every process that Fettle has changed
    #[arg(long)]
    all: bool,
    /// Wait at most so long for threads to leave new code
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    wait: f64,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `fettle status`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  fettle status\n  fettle status 4711 --json\n\nExit status: 0 something is changed; 1 nothing is; 2 error."
)]
pub struct StatusArgs {
    /// Only these processes
    pids: Vec<i32>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

fn folder() -> anyhow::Result<PathBuf> {
    fettle_tune::journals().context("there is no place for undo logs: set HOME or XDG_CACHE_HOME")
}

/// Runs `fettle tune`.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let folder = folder()?;
    let begin = Instant::now();
    let process = Process::open(args.pid)?;
    if Journal::look(&folder, args.pid)?.is_some_and(|journal| journal.is_of(&process)) {
        bail!("process {0} is changed already: `fettle undo {0}` first", args.pid);
    }
    let target = Target::new(&process)?;
    let wanted = Wanted { libraries: args.lib.clone(), selection: args.select.selection()? };
    let (modules, refused) = fettle_tune::lift(&target, &wanted)?;
    let all = fettle_tune::shuffled(&target, &modules, &wanted.selection, args.shuffle)?;
    let prepared = begin.elapsed();
    for (path, why) in &refused {
        eprintln!("fettle: {} stays as it is: {why}", path.display());
    }
    if args.dry_run {
        let jumps: usize = all.iter().map(|code| code.jumps.len()).sum();
        let left: Vec<LeftAlone> = all.iter().flat_map(|code| code.left.clone()).collect();
        let installed = Installed { jumps, left, ..Installed::default() };
        return print_installed(args, &installed, prepared, Duration::ZERO);
    }
    let mut journal = Journal::create(&folder, &process)?;
    let begin = Instant::now();
    let installed = match fettle_tune::install(&target, &mut journal, &all) {
        Ok(installed) => installed,
        Err(error) => {
            let taken_back = fettle_live::undo(journal, Duration::from_secs(2));
            return match taken_back.map(|undone| undone.kept) {
                Ok(None) => Err(error.into()),
                Ok(Some((bytes, why))) => {
                    Err(error).context(format!("{bytes} bytes remain mapped ({why})"))
                }
                Err(trouble) => {
                    Err(error).context(format!("and not all was taken back: {trouble}"))
                }
            };
        }
    };
    print_installed(args, &installed, prepared, begin.elapsed())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn print_installed(
    args: &Args,
    installed: &Installed,
    prepared: Duration,
    took: Duration,
) -> anyhow::Result<ExitCode> {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for left in &installed.left {
        *reasons.entry(left.reason.describe()).or_default() += 1;
    }
    let stops: Vec<f64> = installed.stops.iter().map(|stop| milliseconds(*stop)).collect();
    let longest = stops.iter().copied().fold(0.0, f64::max);
    if args.json {
        let value = json!({
            "version": 1, "pid": args.pid, "changed": !args.dry_run, "jumps": installed.jumps,
            "left_alone": installed.left.len(), "reasons": reasons, "bytes": installed.bytes,
            "threads": installed.threads, "stops_ms": stops, "prepare_ms": milliseconds(prepared),
            "install_ms": milliseconds(took),
        });
        crate::output::print(&format!("{value}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (jumps, left) = (installed.jumps, installed.left.len());
    let mut text = match args.dry_run {
        true => {
            format!("{jumps} jumps would lead to new code; {left} functions stay as they are\n")
        }
        false => format!(
            "{jumps} jumps lead to new code, written in {:.1} ms; {left} functions stay as they \
             are\n{} threads stood still {} times, at most {longest:.2} ms\n",
            milliseconds(took),
            installed.threads,
            stops.len(),
        ),
    };
    for (reason, count) in &reasons {
        text.push_str(&format!("  {count:6}  {reason}\n"));
    }
    if args.dry_run {
        text.push_str("nothing was changed (--dry-run)\n");
    }
    crate::output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `fettle undo`.
pub fn undo(args: &UndoArgs) -> anyhow::Result<ExitCode> {
    let folder = folder()?;
    let pids = if args.all { Journal::list(&folder) } else { args.pids.clone() };
    let wait = Duration::try_from_secs_f64(args.wait).context("--wait: no such time")?;
    let mut code = ExitCode::SUCCESS;
    for pid in pids {
        let Some(journal) = Journal::open(&folder, pid)? else {
            bail!("process {pid} has not been changed by Fettle, or all is taken back");
        };
        let undone = fettle_live::undo(journal, wait)?;
        if undone.kept.is_some() || !undone.conflicts.is_empty() {
            code = ExitCode::from(1);
        }
        print_undone(pid, &undone, args.json)?;
    }
    Ok(code)
}

fn print_undone(pid: i32, undone: &Undone, as_json: bool) -> anyhow::Result<()> {
    let stops: Vec<f64> = undone.stops.iter().map(|stop| milliseconds(*stop)).collect();
    if as_json {
        let conflicts: Vec<String> = undone.conflicts.iter().map(ToString::to_string).collect();
        let value = json!({
            "version": 1, "pid": pid, "gone": undone.gone, "restored": undone.restored,
            "conflicts": conflicts, "freed": undone.freed,
            "kept": undone.kept.as_ref().map(|(bytes, _)| bytes),
            "why_kept": undone.kept.as_ref().map(|(_, why)| why), "stops_ms": stops,
        });
        return crate::output::print(&format!("{value}\n"));
    }
    let mut text = match undone.gone {
        true => format!("{pid}: it has ended, or runs another program; nothing to take back\n"),
        false => format!(
            "{pid}: {} places have their original bytes; {} kB of new code freed; threads stood \
             still {} times, at most {:.2} ms\n",
            undone.restored,
            undone.freed / 1000,
            stops.len(),
            stops.iter().copied().fold(0.0, f64::max)
        ),
    };
    if let Some((bytes, why)) = &undone.kept {
        let kilobytes = bytes / 1000;
        text.push_str(&format!(
            "{pid}: {kilobytes} kB of new code stay mapped: {why}. It is no longer entered; \
             `fettle undo {pid}` frees it when nothing leads to it\n"
        ));
    }
    for at in &undone.conflicts {
        text.push_str(&format!("{pid}: somebody else has changed {at} since; it stays so\n"));
    }
    crate::output::print(&text)
}

/// What is installed in a process.
struct State {
    pid: i32,
    running: bool,
    in_place: usize,
    jumps: usize,
    bytes: u64,
    notes: Vec<String>,
}

impl State {
    fn of(journal: &Journal, pid: i32) -> State {
        let process = Process::open(pid).ok().filter(|process| journal.is_of(process));
        let mut state = State {
            pid,
            running: process.is_some(),
            in_place: 0,
            jumps: 0,
            bytes: 0,
            notes: vec![],
        };
        for entry in journal.entries() {
            match entry {
                Entry::Note(note) => state.notes.push(note.clone()),
                Entry::Write(patch) if patch.purpose == Purpose::Jump => {
                    let now =
                        process.as_ref().and_then(|p| p.read(patch.at, patch.after.len()).ok());
                    state.jumps += 1;
                    state.in_place += usize::from(now.as_ref() == Some(&patch.after));
                }
                _ => {}
            }
        }
        let mapped = journal.regions().into_iter().filter(|(_, mapped)| *mapped);
        state.bytes = mapped.map(|(region, _)| region.len).sum();
        state
    }
}

/// Runs `fettle status`.
pub fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let folder = folder()?;
    let pids = if args.pids.is_empty() { Journal::list(&folder) } else { args.pids.clone() };
    let mut states = Vec::new();
    for pid in pids {
        states.extend(Journal::look(&folder, pid)?.map(|journal| State::of(&journal, pid)));
    }
    if args.json {
        let processes: Vec<_> = states
            .iter()
            .map(|s| {
                json!({
                    "pid": s.pid, "running": s.running, "jumps": s.jumps, "in_place": s.in_place,
                    "bytes": s.bytes, "notes": s.notes,
                })
            })
            .collect();
        let value = json!({ "version": 1, "processes": processes });
        crate::output::print(&format!("{value}\n"))?;
    } else {
        let mut text = String::new();
        for s in &states {
            let pid = s.pid;
            if !s.running {
                text.push_str(&format!("{pid}: it has ended, or runs another program\n"));
                continue;
            }
            let (jumps, kilobytes) = (s.in_place, s.bytes / 1000);
            text.push_str(&format!(
                "{pid}: {jumps} of {} jumps in place, {kilobytes} kB of new code\n",
                s.jumps
            ));
            s.notes.iter().for_each(|note| text.push_str(&format!("  {note}\n")));
        }
        if states.is_empty() {
            text.push_str("no process is changed\n");
        }
        crate::output::print(&text)?;
    }
    Ok(if states.is_empty() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
