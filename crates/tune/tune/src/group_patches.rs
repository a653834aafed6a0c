//! The same rewritten text in all processes of a process group, and reverting it in all.
//!
//! The oldest process comes first: what it forks afterwards inherits the patches. Processes that were forked
//! during installation may have half of them, and get the rest.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use fettle_live::{
    Entry, InMemory, Journal, LiveAddr, LiveError, Member, Patch, Process, Undoing, Undone,
};
use fettle_types::Pid;

use crate::comparison::Measured;
use crate::error::TuneError;
use crate::group::ProcessGroup;
use crate::install::{self, Installed};
use crate::kept_symbols;
use crate::osr::{self, Seen};
use crate::rewritten::Rewritten;
use crate::target::Target;

/// How long threads have to leave rewritten text that is reverted.
const PATIENCE: Duration = Duration::from_secs(10);
/// Each process has at least one in so many parts of the time that all have together.
const LEAST_SHARE: u32 = 10;

/// Rewritten text, and the undo logs of processes that have it.
pub(crate) struct GroupPatches<'a> {
    folder: &'a Path,
    pub(crate) codes: Cow<'a, [Rewritten]>,
    /// The undo logs.
    pub(crate) journals: Vec<Journal>,
}

impl<'a> GroupPatches<'a> {
    /// Rewritten text that no process has yet.
    pub(crate) fn new(folder: &'a Path, codes: Cow<'a, [Rewritten]>) -> GroupPatches<'a> {
        GroupPatches { folder, codes, journals: Vec::new() }
    }

    /// Installs in all processes of a process group; returns the result for the one that was named.
    /// Others with which it fails are left unmodified.
    ///
    /// # Errors
    ///
    /// When the process that was named cannot be changed. What has been done stays in the logs.
    pub(crate) fn install(
        &mut self,
        target: &Target<'_>,
        process_group: &mut ProcessGroup<'_>,
    ) -> Result<Installed, TuneError> {
        let leader = target.process.pid();
        let mut of_leader = None;
        process_group.for_each(|process| {
            let installed = self.install_in(&target.of_member(process))?;
            if process.pid() == leader {
                of_leader = installed;
            }
            Ok(())
        })?;
        let mut installed = of_leader.ok_or(LiveError::Gone { pid: leader })?;
        let codes: Vec<&Rewritten> = self.codes.iter().collect();
        let processes: Vec<&Process> = process_group.members().collect();
        let journals = self.journals.iter_mut();
        let (patch_set, osr_entries) =
            osr::osr_entries(&codes, &processes, journals, &mut installed.stops)?;
        installed.osr_entries = osr_entries;
        installed.others.extend(&patch_set);
        Ok(installed)
    }

    /// Samples the threads of the process group, which has the rewritten text.
    pub(crate) fn seen(&self, process_group: &ProcessGroup<'_>) -> Result<Seen, LiveError> {
        Seen::look(&self.codes, &process_group.members().collect::<Vec<_>>())
    }

    /// Installs in one process, unless it has all of it inherited over fork.
    fn install_in(&mut self, target: &Target<'_>) -> Result<Option<Installed>, TuneError> {
        let process = target.process;
        if let Some((journal, forked_child)) = fettle_live::inherited_from(&self.journals, process)
        {
            if self.has_all(process) {
                return Ok(None);
            }
            // Forked in between, it has inherited only a part.
            disinherit(journal, &forked_child)?;
        }
        let mut journal = Journal::create(self.folder, process)?;
        let installed = install::install(target, &mut journal, &self.codes);
        match installed {
            Ok(installed) => {
                // Without it a core file has no names, and that is all.
                if let (Some((_, object)), Some(beside)) =
                    (journal.beside("symbols").ok(), self.folder.parent())
                {
                    let _ = kept_symbols::keep(&beside.join("symbols"), process.space(), &object);
                }
                self.journals.push(journal);
                Ok(Some(installed))
            }
            Err(error) => {
                fettle_live::undo(journal, Undoing::within(PATIENCE))?;
                Err(error)
            }
        }
    }

    /// Whether a process has as many of the jumps as the oldest has.
    fn has_all(&self, process: &Process) -> bool {
        let jumps = |process: &Process| {
            let jumps = self.codes.iter().flat_map(|code| &code.jumps);
            let there = |jump: &&Patch| {
                process.read(jump.at, jump.after.len()).is_ok_and(|now| now == jump.after)
            };
            jumps.filter(there).count()
        };
        let first = self.journals.first().and_then(|journal| Process::open(journal.pid()).ok());
        first.is_none_or(|first| jumps(process) >= jumps(&first))
    }

    /// Records the result of a comparison in the logs.
    pub(crate) fn note(&mut self, measured: &Measured) -> Result<(), LiveError> {
        let percent = (1.0 / measured.ratio - 1.0) * 100.0;
        let note = Entry::Note(format!("faster by {percent:.1} %, as measured"));
        self.journals.iter_mut().try_for_each(|journal| journal.add([note.clone()]))
    }

    /// Reverts everything, in all processes.
    ///
    /// # Errors
    ///
    /// When a process cannot be stopped or changed; the others are as they were all the same.
    pub(crate) fn revert(&mut self) -> Result<(), TuneError> {
        let journals = self.journals.drain(..).collect();
        revert(self.folder, journals, &|_| self.codes.iter().collect(), PATIENCE).map(drop)
    }
}

/// Reverts in a process what it has inherited over fork.
pub(crate) fn disinherit(journal: &Journal, forked_child: &Member) -> Result<(), TuneError> {
    disown(fettle_live::inherit(journal, forked_child)?, forked_child)
}

/// Reverts in a process what its own log records.
pub(crate) fn disown(log: Journal, forked_child: &Member) -> Result<(), TuneError> {
    let undone = fettle_live::undo(log, Undoing::within(PATIENCE))?;
    let Some((_, why)) = undone.kept else { return Ok(()) };
    let why = format!("it was forked in between, and is still in rewritten text ({why})");
    Err(TuneError::Unfit { pid: forked_child.pid, why })
}

/// Installs in all processes of a process group, without a comparison; returns the result for the
/// one that was named.
///
/// # Errors
///
/// When that one cannot be changed: then all is reverted that can be.
pub fn install_in_group(
    folder: &Path,
    target: &Target<'_>,
    process_group: &mut ProcessGroup<'_>,
    codes: &[Rewritten],
) -> Result<Installed, TuneError> {
    let mut everywhere = GroupPatches::new(folder, Cow::Borrowed(codes));
    let installed = everywhere.install(target, process_group);
    if installed.is_err() {
        everywhere.revert()?;
    }
    installed
}

/// The result of reverting.
#[derive(Debug, Default)]
pub(crate) struct Reverted {
    /// How long threads were paused, each time, in all processes.
    pub(crate) stops: Vec<Duration>,
    /// Processes that still have memory of rewritten text, and why.
    pub(crate) stuck: Vec<(Pid, String)>,
}

/// Reverts rewritten text, also in processes that were forked meanwhile; `codes` gives the
/// rewritten text of each of the others. Words of their memory that are return addresses in
/// rewritten text are redirected to the original: programs keep some for good, and could not be
/// changed again. `patience` is for all processes together: while one is waited for, threads of the
/// others leave rewritten text, too.
pub(crate) fn revert<'c>(
    folder: &Path,
    journals: VecDeque<Journal>,
    codes: &dyn Fn(Pid) -> Vec<&'c Rewritten>,
    patience: Duration,
) -> Result<Reverted, TuneError> {
    let begun = Instant::now();
    let undo = |journal: Journal, origin: Pid| {
        let codes = codes(origin);
        let escapes = |inside: &[LiveAddr]| -> Vec<Patch> {
            codes.iter().flat_map(|code| code.escapes(inside)).collect()
        };
        let patience = patience.saturating_sub(begun.elapsed()).max(patience / LEAST_SHARE);
        fettle_live::undo(
            journal,
            Undoing { patience, escapes: &escapes, memory: InMemory::Deoptimised },
        )
    };
    let mut done = Reverted::default();
    undo_all(folder, journals, &undo, &mut |pid, undone| {
        done.stops.extend(&undone.stops);
        done.stuck.extend(undone.kept.iter().map(|(_, why)| (pid, why.clone())));
    })?;
    Ok(done)
}

/// Reverts logs, and those of all forked processes that have inherited what they record; `undo`
/// also gets the process that the patches were inherited from.
fn undo_all(
    folder: &Path,
    journals: VecDeque<Journal>,
    undo: &dyn Fn(Journal, Pid) -> Result<Undone, LiveError>,
    done: &mut dyn FnMut(Pid, &Undone),
) -> Result<(), LiveError> {
    let mut failed = None;
    let with_origin = |journal: Journal| (journal.pid(), journal);
    let mut journals: VecDeque<(Pid, Journal)> = journals.into_iter().map(with_origin).collect();
    while let Some((origin, journal)) = journals.pop_front() {
        let pid = journal.pid();
        match undo(journal, origin) {
            Ok(undone) => {
                done(pid, &undone);
                for forked_child in undone.forked_children {
                    let log = Journal::open(folder, forked_child)?;
                    journals.extend(log.map(|journal| (origin, journal)));
                }
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Reverts what was changed in a process and in its process group; `done` is called for each
/// process.
///
/// # Errors
///
/// When one of them cannot be changed; the others are as they were all the same.
pub fn undo_group(
    folder: &Path,
    process: &Process,
    how: Undoing<'_>,
    done: &mut dyn FnMut(Pid, &Undone),
) -> Result<(), LiveError> {
    let mut journals = VecDeque::new();
    for member in fettle_live::members_of(process) {
        journals.extend(Journal::open(folder, member.pid)?);
    }
    if let Some(journal) = inherited_log(folder, process)? {
        journals.push_back(journal);
    }
    undo_all(folder, journals, &|journal, _| fettle_live::undo(journal, how), done)
}

/// The log of a process that has inherited rewritten text over fork: made from its parent's, if
/// there is one.
///
/// # Errors
///
/// When logs cannot be read.
pub fn inherited_log(folder: &Path, process: &Process) -> Result<Option<Journal>, LiveError> {
    let patch_set =
        |journal: &Journal| journal.entries().iter().filter(|e| is_there(process, e)).count();
    let mut best: Option<(usize, Journal, Member)> = None;
    for pid in Journal::list(folder) {
        // A damaged log only concerns processes that it may be about.
        if !Journal::may_be_of_member(folder, pid, process) {
            continue;
        }
        let Some(journal) = Journal::look(folder, pid)? else { continue };
        let forked_child =
            fettle_live::inherited_from([&journal], process).map(|(_, forked_child)| forked_child);
        let Some(forked_child) = forked_child else { continue };
        let count = patch_set(&journal);
        if best.as_ref().is_none_or(|(most, ..)| count > *most) {
            best = Some((count, journal, forked_child));
        }
    }
    best.map(|(_, journal, forked_child)| fettle_live::inherit(&journal, &forked_child)).transpose()
}

/// Whether an entry leads to rewritten text, and the process has it.
pub(crate) fn is_there(process: &Process, entry: &Entry) -> bool {
    let Entry::Write(patch) = entry else { return false };
    let now = || process.read(patch.at, patch.after.len());
    patch.purpose.leads() && now().is_ok_and(|now| now == patch.after)
}
