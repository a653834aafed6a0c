//! `fettle symbols`: the names of rewritten text in a running process, for other tools.

use fettle_types::Pid;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use fettle_live::{Entry, Journal, LiveError, Process};
use fettle_tune::kept_symbols::Core;
use serde_json::json;

/// Arguments of `fettle symbols`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  fettle symbols 4711\n  perf record -g -p 4711\n  gdb -p 4711 -x \"$(fettle symbols 4711 --gdb)\"\n  fettle symbols 4711 --list | grep luaV\n  fettle symbols --core core.4711\n\nThe rewritten text of f is called f.fettle, its parts away from the entry f.fettle.cold. Without\noptions it makes both a script for gdb and a map for perf. What is written goes with `fettle undo`.\n\nExit status: 0 done; 2 error."
)]
pub struct Args {
    /// The process
    #[arg(required_unless_present = "core")]
    pid: Option<Pid>,
    /// A core file of a process that had rewritten text: names are kept when it has ended
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "gdb", "perf", "list"])]
    core: Option<PathBuf>,
    /// Print the name of a script for gdb, which loads names and unwind entries
    #[arg(long, conflicts_with_all = ["perf", "list"])]
    gdb: bool,
    /// Write /tmp/perf-PID.map, where perf looks, in the process's own tree of files
    #[arg(long, conflicts_with = "list")]
    perf: bool,
    /// Print address, size and name of every piece of rewritten text
    #[arg(long)]
    list: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `fettle symbols`.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let folder = crate::tune::folder()?;
    if let Some(core) = &args.core {
        return of_core(args, &folder, core);
    }
    let pid = args.pid.context("no process was named")?;
    let wanted = Wanted::of(args);
    let journal = match wanted {
        Wanted::ForPerf => Journal::open(&folder, pid)?,
        // If another Fettle is at work: names for gdb need no entry in the log.
        Wanted::ForBoth => Journal::open(&folder, pid).or_else(|_| Journal::look(&folder, pid))?,
        Wanted::ForGdb | Wanted::List => Journal::look(&folder, pid)?,
    };
    let Some(mut journal) = journal else {
        bail!("process {pid} has not been changed by Fettle, or all is reverted");
    };
    let process = Process::open(pid)?;
    if !journal.is_of(&process) {
        bail!("process {pid} runs another program than the one that was changed");
    }
    let none = "there are no names of rewritten text in this process";
    let (_, map) = journal.beside("map").context(none)?;
    let map = String::from_utf8_lossy(&map).into_owned();
    let object = journal.beside("symbols").context(none)?.0;
    let script = journal.put_beside("gdb", gdb_script(&object).as_bytes())?;
    let pieces = map.lines().count();
    let (perf, text) = match wanted {
        Wanted::List => (None, map.clone()),
        Wanted::ForGdb => (None, format!("{}\n", script.display())),
        Wanted::ForPerf => {
            let perf = perf_map(&process, &mut journal, &map)?;
            let text = format!("{pieces} names for perf in {}\n", perf.display());
            (Some(perf), text)
        }
        Wanted::ForBoth => {
            let perf = perf_map(&process, &mut journal, &map);
            let for_perf = match &perf {
                Ok(perf) => format!("perf finds them in {}", perf.display()),
                Err(why) => format!("perf does not: {why}"),
            };
            let gdb = format!("gdb -p {pid} -x {}", script.display());
            let text = format!("{pieces} pieces of rewritten text have names\n{gdb}\n{for_perf}\n");
            (perf.ok(), text)
        }
    };
    let text = match args.json {
        true => {
            let symbols: Vec<_> = map.lines().filter_map(piece).collect();
            let value = json!({
                "version": 1, "pid": pid, "symbols": symbols, "object": object, "gdb": script,
                "perf_map": perf,
            });
            format!("{value}\n")
        }
        false => text,
    };
    crate::output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// What is made and shown.
#[derive(Clone, Copy)]
enum Wanted {
    /// What can be done for gdb and perf: where the log cannot be written, perf goes without.
    ForBoth,
    ForGdb,
    ForPerf,
    List,
}

impl Wanted {
    fn of(args: &Args) -> Wanted {
        match (args.perf, args.list, args.gdb || args.json) {
            (true, ..) => Wanted::ForPerf,
            (_, true, _) => Wanted::List,
            (.., true) => Wanted::ForGdb,
            _ => Wanted::ForBoth,
        }
    }
}

/// Where perf finds the names: the file that an earlier run has written, or a new one.
fn perf_map(process: &Process, journal: &mut Journal, map: &str) -> Result<PathBuf, LiveError> {
    let written = journal.entries().iter().find_map(|entry| match entry {
        Entry::PerfMap(name, ..) => Some(Path::new("/tmp").join(name)),
        _ => None,
    });
    written.map_or_else(|| fettle_live::write_perf_map(process, journal, map), Ok)
}

/// Bytes of a core file that its notes are among: threads take some kilobytes each.
const NOTES_MAX: u64 = 256 << 20;

/// Names for a core file.
fn of_core(args: &Args, folder: &Path, core: &Path) -> anyhow::Result<ExitCode> {
    let unreadable = || format!("cannot read {}", core.display());
    let mut bytes = Vec::new();
    let file = File::open(core).with_context(unreadable)?;
    file.take(NOTES_MAX).read_to_end(&mut bytes).with_context(unreadable)?;
    let parsed = Core::parse(&bytes).map_err(|why| anyhow::anyhow!("{}: {why}", core.display()))?;
    let kept = folder.parent().unwrap_or(folder).join("symbols");
    let Some(object) = parsed.symbols(&kept) else {
        bail!(
            "{}: no names of rewritten text are kept for this process ({}); they are in {} of the \
             user who tuned it, the last 64",
            core.display(),
            parsed.command,
            kept.display()
        );
    };
    let text = match args.json {
        true => {
            let value =
                json!({ "version": 1, "core": core, "object": object, "command": parsed.command });
            format!("{value}\n")
        }
        false => format!(
            "names of rewritten text: {}\ngdb PROGRAM {} -ex 'add-symbol-file {}'\n",
            object.display(),
            core.display(),
            object.display()
        ),
    };
    crate::output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Commands for gdb. It asks before it adds symbols unless `confirm` is off.
fn gdb_script(object: &Path) -> String {
    format!("set confirm off\nadd-symbol-file {}\nset confirm on\n", object.display())
}

/// A line of a map for perf.
fn piece(line: &str) -> Option<serde_json::Value> {
    let mut fields = line.splitn(3, ' ');
    let mut number = || u64::from_str_radix(fields.next()?, 16).ok();
    let (at, size) = (number()?, number()?);
    Some(json!({ "at": format!("{at:#x}"), "size": size, "name": fields.next()? }))
}
