//! `fettle undo`: what was done to running processes is reverted.

use crate::old_keys::with_old_keys;
use fettle_types::{Pid, parse_time};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use fettle_live::{InMemory, Journal, Process, Undoing, Undone};
use fettle_tune::{Audit, StateFolders};
use serde_json::json;

use crate::measured::milliseconds;
use crate::tune::{UNHANDLED, folders};

/// Arguments of `fettle undo`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  fettle undo 4711\n  fettle undo --group 4711\n  fettle undo --all --wait 1m\n  fettle undo --memory 4711\n\nOriginal text runs again at once. Rewritten text is unmapped when no thread can return to it any\nmore; what remains then is reported, and goes with a later `fettle undo`.\n\nA program may keep return addresses in its memory: of a sleeping stack (coroutines), as a note of\na caller, or among bytes that it has copied from a stack. Rewritten text stays as long as one is\nthere. `--memory` makes them lead to the original. That is right for all of these, but not where a\nprogram finds something by such an address again (a profiler of its heap): then leave it out.\n\nExit status: 0 all was reverted; 1 some of it remains; 2 error."
)]
pub struct Args {
    /// The processes
    #[arg(required_unless_present_any = ["all", "kernel"])]
    pids: Vec<Pid>,
    /// What was done to the running kernel
    #[arg(long, conflicts_with_all = ["pids", "all", "group", "memory"])]
    kernel: bool,
    /// Every process that Fettle has changed
    #[arg(long)]
    all: bool,
    /// Also all processes that were forked from the same execution of the program
    #[arg(long)]
    group: bool,
    /// Wait at most so long for threads to leave rewritten text
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5s")]
    wait: Duration,
    /// Also change words of the processes' memory that look like return addresses in rewritten text to
    /// those of the original
    #[arg(long)]
    memory: bool,
    /// Why this is done, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `fettle undo`. An error with one process does not prevent the others from being reverted.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.kernel {
        return crate::kernel::undo(args.wait, args.json);
    }
    let StateFolders { logs: folder, audit } = folders()?;
    let pids = if args.all { Journal::list(&folder) } else { args.pids.clone() };
    fettle_live::open_many_files();
    fettle_live::stop_between_pauses().context(UNHANDLED)?;
    let memory = if args.memory { InMemory::LedBackAndCaught } else { InMemory::Kept };
    let how = Undoing { memory, ..Undoing::within(args.wait) };
    // Readers of JSON get some whatever there is to undo.
    if pids.is_empty() && args.json {
        crate::output::print(&format!("{}\n", json!({ "version": 1, "processes": [] })))?;
    }
    let (mut kept, mut failed) = (false, false);
    for pid in pids {
        let mut printed = Ok(());
        let undone = undo_one(args, &folder, pid, how, &mut |pid, undone| {
            kept |= undone.kept.is_some() || !undone.conflicts.is_empty();
            let line = Audit::now("undo", pid, args.reason.as_deref());
            let result = match &undone.kept {
                Some((_, why)) => format!("reverted; memory stays: {why}"),
                None => "reverted".to_owned(),
            };
            crate::tune::audit(&audit, &Audit { result, ..line });
            if printed.is_ok() {
                printed = print_undone(pid, undone, args.json);
            }
        });
        printed?;
        if let Err(error) = undone {
            say!("fettle: {error:#}");
            if args.json {
                let value = json!({ "version": 1, "pid": pid, "error": format!("{error:#}") });
                crate::output::print(&format!("{}\n", with_old_keys(value)))?;
            }
            failed = true;
        }
    }
    Ok(match (failed, kept) {
        (true, _) => ExitCode::from(2),
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::SUCCESS,
    })
}

fn undo_one(
    args: &Args,
    folder: &Path,
    pid: Pid,
    how: Undoing<'_>,
    done: &mut dyn FnMut(Pid, &Undone),
) -> anyhow::Result<()> {
    if args.group {
        let process = Process::open(pid)?;
        let mut some = false;
        fettle_tune::undo_group(folder, &process, how, &mut |pid, undone| {
            some = true;
            done(pid, undone);
        })?;
        if !some {
            bail!(
                "process {pid} and its relatives have not been changed by Fettle{}",
                no_log(folder)
            );
        }
        return Ok(());
    }
    let journal = match Journal::open(folder, pid)? {
        // By `--all`, a forked process may have been reverted with its parent.
        None if args.all => return Ok(()),
        None => match Process::open(pid) {
            Ok(process) => fettle_tune::inherited_log(folder, &process)?,
            Err(_) => None,
        },
        journal => journal,
    };
    let Some(journal) = journal else {
        bail!("process {pid} has not been changed by Fettle, or all is reverted{}", no_log(folder));
    };
    let undone = fettle_live::undo(journal, how)?;
    done(pid, &undone);
    if args.all {
        for forked_child in undone.forked_children {
            if let Some(journal) = Journal::open(folder, forked_child)? {
                done(forked_child, &fettle_live::undo(journal, how)?);
            }
        }
    }
    Ok(())
}

/// Which other users may know of changes.
fn no_log(folder: &Path) -> String {
    format!(
        " (there is no log of it in {}; those of another user or $XDG_CACHE_HOME are elsewhere)",
        folder.display()
    )
}

fn print_undone(pid: Pid, undone: &Undone, as_json: bool) -> anyhow::Result<()> {
    let stops: Vec<f64> = undone.stops.iter().map(|stop| milliseconds(*stop)).collect();
    if as_json {
        let conflicts: Vec<String> = undone.conflicts.iter().map(ToString::to_string).collect();
        let value = json!({
            "version": 1, "pid": pid, "gone": undone.gone, "restored": undone.restored,
            "closed": undone.closed, "conflicts": conflicts, "freed": undone.freed,
            "forked_children": undone.forked_children, "changed": undone.changed,
            "kept": undone.kept.as_ref().map(|(bytes, _)| bytes),
            "why_kept": undone.kept.as_ref().map(|(_, why)| why), "pauses_ms": stops,
        });
        return crate::output::print(&format!("{}\n", with_old_keys(value)));
    }
    let mut text = match undone.gone {
        true => format!("{pid}: it has ended, or runs another program; nothing to revert\n"),
        false => format!(
            "{pid}: {} places have their original bytes; {} kB of rewritten text freed; {} pauses, \
             the longest {:.2} ms\n",
            undone.restored,
            undone.freed / 1000,
            stops.len(),
            stops.iter().copied().fold(0.0, f64::max)
        ),
    };
    if let Some((bytes, why)) = &undone.kept {
        let kilobytes = bytes / 1000;
        text.push_str(&format!(
            "{pid}: {kilobytes} kB of rewritten text stay mapped: {why}. It is no longer entered; \
             `fettle undo {pid}` frees it when nothing leads to it\n"
        ));
    }
    if undone.changed > 0 {
        let changed = undone.changed;
        text.push_str(&format!(
            "{pid}: {changed} words of its memory lead to the original instead\n"
        ));
    }
    if !undone.forked_children.is_empty() {
        let pids: Vec<String> = undone.forked_children.iter().map(ToString::to_string).collect();
        text.push_str(&format!(
            "{pid}: processes that it forked inherited the patches: {}; `fettle undo --group` \
             reverts those, too\n",
            pids.join(", ")
        ));
    }
    if undone.closed > 0 {
        let closed = undone.closed;
        text.push_str(&format!(
            "{pid}: {closed} places are gone with libraries that were closed\n"
        ));
    }
    for at in &undone.conflicts {
        text.push_str(&format!("{pid}: another program has changed {at} since; it stays so\n"));
    }
    crate::output::print(&text)
}
