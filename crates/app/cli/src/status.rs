//! `fettle status`: what is changed in running processes.

use crate::old_keys::with_old_keys;
use fettle_types::Pid;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fettle_live::{Entry, Journal, Process, Purpose};
use fettle_tune::{StateFolders, Target};
use serde_json::json;

use crate::tune::folder;

/// Arguments of `fettle status`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  fettle status\n  fettle status 4711 --json\n  fettle status --all --json\n\nExit status: 0 something is changed; 1 nothing is; 2 error."
)]
pub struct Args {
    /// Only these processes
    pids: Vec<Pid>,
    /// Also list processes that other users have changed, as far as their undo logs are in /run/fettle
    #[arg(long, conflicts_with_all = ["pids", "kernel"])]
    all: bool,
    /// What is changed in the running kernel
    #[arg(long, conflicts_with = "pids")]
    kernel: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// What is installed in a process.
struct State {
    pid: Pid,
    running: bool,
    in_place: usize,
    jumps: usize,
    bytes: u64,
    notes: Vec<String>,
    /// Forked children that have inherited the same.
    forked_children: Vec<Pid>,
    /// Libraries that were loaded since.
    opened: Vec<PathBuf>,
}

impl State {
    fn of(journal: &Journal, pid: Pid) -> State {
        let process = Process::open(pid).ok().filter(|process| journal.is_of(process));
        let mut state = State {
            pid,
            running: process.is_some(),
            in_place: 0,
            jumps: 0,
            bytes: 0,
            notes: vec![],
            forked_children: fettle_live::forked_children(journal)
                .unwrap_or_default()
                .iter()
                .map(|forked_child| forked_child.pid)
                .collect(),
            opened: vec![],
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
        state.bytes = mapped.map(|(region, _)| region.code_len()).sum();
        let known: Vec<&str> = journal.entries().iter().filter_map(loaded).collect();
        let target = process.as_ref().and_then(|process| Target::new(process).ok());
        let now = target.iter().flat_map(|target| &target.loaded).map(|l| l.path.clone());
        let is_known = |path: &PathBuf| known.contains(&&*path.to_string_lossy());
        state.opened = now.filter(|path| !known.is_empty() && !is_known(path)).collect();
        state
    }
}

/// The path of a module that a process had when it was changed.
fn loaded(entry: &Entry) -> Option<&str> {
    match entry {
        Entry::Loaded(path) => Some(path),
        _ => None,
    }
}

/// Runs `fettle status`.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.kernel {
        return crate::kernel::status(args.json);
    }
    let folder = folder()?;
    let pids = if args.pids.is_empty() { Journal::list(&folder) } else { args.pids.clone() };
    let (mut states, mut failed) = (Vec::new(), false);
    for pid in pids {
        match Journal::look(&folder, pid) {
            Ok(journal) => states.extend(journal.map(|journal| State::of(&journal, pid))),
            Err(error) => {
                say!("fettle: {error}");
                failed = true;
            }
        }
    }
    let others = if args.all { StateFolders::of_others() } else { Vec::new() };
    let text = match args.json {
        true => as_json(&states, &others),
        false if states.is_empty() && others.is_empty() && !failed => {
            "no process is changed\n".to_owned()
        }
        false => as_text(&states, &others),
    };
    crate::output::print(&text)?;
    if failed {
        return Ok(ExitCode::from(2));
    }
    Ok(if states.is_empty() && others.is_empty() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Undo logs of other users: whose, where, of which processes.
type Others = [(u32, PathBuf, Vec<Pid>)];

fn as_json(states: &[State], others: &Others) -> String {
    let processes: Vec<_> = states
        .iter()
        .map(|s| {
            json!({
                "pid": s.pid, "running": s.running, "jumps": s.jumps, "in_place": s.in_place,
                "bytes": s.bytes, "notes": s.notes, "forked_children": s.forked_children,
                "loaded_since": s.opened,
            })
        })
        .collect();
    let others: Vec<_> = others
        .iter()
        .map(|(user, logs, pids)| json!({ "user": user, "logs": logs, "pids": pids }))
        .collect();
    let value = json!({ "version": 1, "processes": processes, "others": others });
    let value = with_old_keys(value);
    format!("{value}\n")
}

fn as_text(states: &[State], others: &Others) -> String {
    let mut text = String::new();
    for s in states {
        let pid = s.pid;
        let forked_children = s.forked_children.len();
        if !s.running {
            text.push_str(&format!("{pid}: it has ended, or runs another program"));
            text.push_str(&match forked_children {
                0 => "\n".to_owned(),
                _ => {
                    format!("; {forked_children} processes that it forked inherited its patches\n")
                }
            });
            continue;
        }
        let (jumps, kilobytes) = (s.in_place, s.bytes / 1000);
        text.push_str(&format!(
            "{pid}: {jumps} of {} jumps in place, {kilobytes} kB of rewritten text\n",
            s.jumps
        ));
        if forked_children > 0 {
            text.push_str(&format!(
                "  {forked_children} processes that it forked inherited the patches\n"
            ));
        }
        s.notes.iter().for_each(|note| text.push_str(&format!("  {note}\n")));
        for path in &s.opened {
            text.push_str(&format!("  {} was loaded since: original text\n", path.display()));
        }
    }
    for (user, logs, pids) in others {
        let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
        text.push_str(&format!("{}: by user {user} ({})\n", pids.join(", "), logs.display()));
    }
    text
}
