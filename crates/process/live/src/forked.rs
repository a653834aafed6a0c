//! Forked children: processes that inherited patches over fork.
//!
//! A fork copies an address space: the child of a patched process has its patches, its rewritten text and its
//! gs base, but no undo log. All that the parent's log records holds for the child, so the child's log can be
//! made from it as long as the parent's exists. Therefore no log is removed before every process that
//! inherited its patches has a log of its own.
//!
//! The auxiliary vector that the kernel gave a program when it was executed identifies its forks: they have
//! the same one, and it contains addresses of that one execution.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fettle_types::Pid;

use crate::entry::{Entry, Names, Region, is_as_made};
use crate::error::LiveError;
use crate::journal::{Journal, make_folder, path_of};
use crate::maps::{self, Mapping};
use crate::process::{Process, if_there, is_gone, parent_of, space_of, start_time};
use crate::ptrace;

/// A process that descends by forks from the same execution of a program as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub pid: Pid,
    /// When it began.
    pub start_time: u64,
    /// Identifies its address space among those before and after an exec.
    space: u64,
}

impl Member {
    /// CPU time that it has used, and that of its children that have ended and been waited for,
    /// both in nanoseconds. The kernel counts the latter in steps of ten milliseconds.
    pub fn cpu_ns(&self) -> Option<(u64, u64)> {
        let own = ptrace::process_time(self.pid)?.as_nanos() as u64;
        let stat = maps::read_proc(&format!("/proc/{}/stat", self.pid)).ok()?;
        let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let text = std::str::from_utf8(&stat[behind..]).ok()?;
        let mut fields = text.split_ascii_whitespace().skip(13);
        let mut ticks = || fields.next()?.parse::<u64>().ok();
        // USER_HZ is 100 on every x86-64 kernel.
        Some((own, (ticks()? + ticks()?) * 10_000_000))
    }

    /// How many calls it has made that read or write, those of its children included that have
    /// ended and been waited for.
    pub fn io_calls(&self) -> Option<u64> {
        let text = maps::read_proc(&format!("/proc/{}/io", self.pid)).ok()?;
        Some(maps::status_field(&text, "syscr:")? + maps::status_field(&text, "syscw:")?)
    }
}

/// All processes that descend by forks from the same execution of a program as `process`, itself
/// included, the oldest first.
pub fn members_of(process: &Process) -> Vec<Member> {
    // A process that cannot be seen cannot be changed either.
    let mut all: Vec<Member> = of_space(process.space()).flatten().collect();
    let file = file_of(process.pid());
    all.retain(|member| file.is_none() || file_of(member.pid) == file);
    all.sort_unstable_by_key(|r| (r.start_time, r.pid));
    all
}

/// Identifies a process group: the address space that all of its processes had when they were forked from
/// one another, and their program.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct GroupKey {
    /// Identifies the address space.
    pub space: u64,
    /// The program's device.
    pub device: u64,
    /// The program's number there.
    pub inode: u64,
}

/// The process group of a process; `None` if it has ended, or may not be looked at.
pub fn group_key(pid: Pid) -> Option<GroupKey> {
    let (device, inode) = file_of(pid)?;
    let space = space_of(pid).ok()??;
    Some(GroupKey { space, device, inode })
}

/// All processes with this address space.
fn of_space(space: u64) -> impl Iterator<Item = Result<Member, LiveError>> {
    let failed = |source| LiveError::Os { action: "list the processes", source };
    let (folder, unlisted) = match std::fs::read_dir("/proc") {
        Ok(folder) => (Some(folder), None),
        Err(error) => (None, Some(Err(failed(error)))),
    };
    let pids = folder.into_iter().flatten();
    let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<Pid>().ok());
    let member = move |pid| match space_of(pid) {
        Ok(of) if of == Some(space) && !shares_memory(pid) => {
            Some(Ok(Member { pid, start_time: start_time(pid)?, space }))
        }
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    };
    unlisted.into_iter().chain(pids.filter_map(member))
}

/// Whether a process shares its parent's memory, and will until it executes a program (`vfork`,
/// `posix_spawn`): it is not patched separately.
fn shares_memory(pid: Pid) -> bool {
    parent_of(pid).is_some_and(|parent| {
        ptrace::same_memory(parent.first_thread(), pid.first_thread()) == Some(true)
    })
}

/// Identifies a process's executable: device and number.
fn file_of(pid: Pid) -> Option<(u64, u64)> {
    let meta = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// The process that the log is of: number, start time, address space.
fn owner(journal: &Journal) -> Option<(Pid, u64, u64)> {
    match journal.entries().first() {
        Some(Entry::Process(pid, start, space)) => Some((*pid, *start, *space)),
        _ => None,
    }
}

/// Forked processes that have inherited what `journal` records, and have no log of their own.
///
/// # Errors
///
/// When not all processes can be looked at.
pub fn forked_children(journal: &Journal) -> Result<Vec<Member>, LiveError> {
    let Some((_, _, space)) = owner(journal).filter(|_| !journal.is_past()) else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for member in of_space(space) {
        let member = member?;
        if is_forked_child(journal, &member)? {
            all.push(member);
        }
    }
    all.sort_unstable_by_key(|r| (r.start_time, r.pid));
    Ok(all)
}

/// Which of some logs records what a process has inherited over fork, if it has inherited something
/// and has no log of its own.
pub fn inherited_from<'j>(
    journals: impl IntoIterator<Item = &'j Journal>,
    process: &Process,
) -> Option<(&'j Journal, Member)> {
    let (pid, start_time, space) = (process.pid(), process.start_time(), process.space());
    let member = Member { pid, start_time, space };
    let maps = maps::of_process(pid).ok()?;
    let mut of_members = journals.into_iter().filter(|journal| may_inherit(journal, &member));
    let journal = of_members.find(|j| has_inherited(j, &maps) && !has_log(j, &member))?;
    Some((journal, member))
}

fn is_forked_child(journal: &Journal, member: &Member) -> Result<bool, LiveError> {
    if !may_inherit(journal, member) || has_log(journal, member) {
        return Ok(false);
    }
    let maps = if_there(maps::of_process(member.pid))?;
    Ok(maps.is_some_and(|maps| has_inherited(journal, &maps)))
}

/// Whether a process and that of a log descend from the same execution of a program.
fn may_inherit(journal: &Journal, member: &Member) -> bool {
    let of = owner(journal);
    of.is_some_and(|(pid, _, space)| member.pid != pid && member.space == space)
}

/// Whether a process has a log of its own, beside `journal`.
fn has_log(journal: &Journal, member: &Member) -> bool {
    let folder = journal.path().parent().unwrap_or(Path::new(""));
    let id = (member.pid, member.start_time, member.space);
    Journal::owner_of(folder, member.pid) == Some(id)
}

/// Whether a process with these mappings has something that a log records. Memory is the test: it
/// is mapped first and unmapped last.
fn has_inherited(journal: &Journal, maps: &[Mapping]) -> bool {
    journal.ever_mapped().iter().any(|region| !region.is_usual() && is_as_made(maps, region))
}

/// Begins the log of a forked process that has inherited what `journal` records.
///
/// # Errors
///
/// When it has ended, or has a log.
pub fn inherit(journal: &Journal, forked_child: &Member) -> Result<Journal, LiveError> {
    let gone = || LiveError::NoProcess { pid: forked_child.pid };
    let maps = if_there(maps::of_process(forked_child.pid))?.ok_or_else(gone)?;
    let mut entries =
        vec![Entry::Process(forked_child.pid, forked_child.start_time, forked_child.space)];
    // It still has what was unmapped in its parent in the meantime.
    let is_other = |entry: &&Entry| !matches!(entry, Entry::Unmapping(..) | Entry::Unmapped(_));
    entries.extend(journal.entries().iter().skip(1).filter(is_other).cloned());
    let names: Vec<Names> = Names::of(journal).collect();
    let is_known = |region: &Region| {
        !region.is_usual() || names.iter().any(|n| n.at == region.at && n.is_in(forked_child.pid))
    };
    entries.extend(journal.ever_mapped().iter().map(|region| {
        match is_as_made(&maps, region) && is_known(region) {
            true => Entry::Mapped(region.at),
            false => Entry::Unmapped(region.at),
        }
    }));
    let origin = owner(journal).map(|(pid, ..)| format!("inherited from process {pid}"));
    entries.extend(origin.map(Entry::Note));
    let folder = journal.path().parent().unwrap_or(Path::new(""));
    let path = folder.join(format!("{}.undo", forked_child.pid));
    // The number may have been another process's, whose children may live.
    if let Some(stale) = Journal::open(folder, forked_child.pid)? {
        if owner(&stale) == Some((forked_child.pid, forked_child.start_time, forked_child.space)) {
            return Ok(stale);
        }
        pass_on(&stale)?;
        stale.remove()?;
    }
    let log = Journal::begin(&path, entries)?;
    // Without these files, unmapping only takes longer.
    for kind in ["returns", "opened", "map"] {
        let _ = journal.share_beside(kind, &log);
    }
    if journal.share_beside("symbols", &log).is_ok() {
        let file = log.path_beside("symbols");
        names
            .iter()
            .filter(|n| n.is_in(forked_child.pid))
            .for_each(|n| n.lead_to(forked_child.pid, &file));
    }
    Ok(log)
}

/// Gives every forked process that has inherited what `journal` records a log of its own.
///
/// # Errors
///
/// When one of them lives, and its log cannot be written.
pub fn pass_on(journal: &Journal) -> Result<Vec<Pid>, LiveError> {
    let mut done = Vec::new();
    for forked_child in forked_children(journal)? {
        match inherit(journal, &forked_child) {
            Ok(_) => done.push(forked_child.pid),
            Err(LiveError::NoProcess { .. }) => {}
            Err(_) if is_gone(forked_child.pid, forked_child.start_time)? => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

impl Journal {
    /// Begins the log of a process.
    ///
    /// # Errors
    ///
    /// When there is one already, or the folder cannot be used.
    pub fn create(folder: &Path, process: &Process) -> Result<Journal, LiveError> {
        make_folder(folder)?;
        let path = path_of(folder, process.pid());
        if let Some(journal) = Journal::open(folder, process.pid())? {
            if journal.is_of(process) {
                let why = "Fettle has changed it already: `fettle undo` first".to_owned();
                return Err(LiveError::Unattachable { pid: process.pid(), why });
            }
            // Its children may live.
            pass_on(&journal)?;
            journal.remove()?;
        }
        let id = Entry::Process(process.pid(), process.start_time(), process.space());
        Journal::begin(&path, vec![id])
    }
}
