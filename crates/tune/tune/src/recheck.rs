//! Comparing again what another Fettle has installed: its undo log has all that switches a process to
//! its rewritten text and back, so nothing is lifted or counted anew.

use std::path::Path;
use std::time::Duration;

use fettle_live::{Claim, Entry, Journal, Process, Purpose, Undoing};
use fettle_types::Pid;

use crate::comparison::Measured;
use crate::error::TuneError;
use crate::group::ProcessGroup;
use crate::group_patches::{inherited_log, undo_group};
use crate::measure::{self, Plan};
use crate::stop::Stop;
use crate::switching::PatchSet;
use crate::work;

/// How long threads have to leave rewritten text that is reverted.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a comparison of installed text has shown, and what was done then.
#[derive(Debug)]
pub struct Rechecked {
    /// The comparison.
    pub measured: Measured,
    /// Whether the rewritten text stays.
    pub kept: bool,
    /// Processes that keep memory of rewritten text although it was reverted, and why.
    pub stuck: Vec<(Pid, String)>,
}

/// Lets `run` switch a process that an earlier run has tuned, to rewritten text by `true` and back by `false`,
/// for a comparison of more than this process. Rewritten text is in place before and afterwards.
///
/// # Errors
///
/// As [`recheck`].
pub fn switched<T>(
    process: &Process,
    folder: &Path,
    alone: bool,
    run: impl FnOnce(&mut dyn FnMut(bool) -> Result<(), TuneError>) -> T,
) -> Result<T, TuneError> {
    let (_claim, mut process_group) = claimed(process, folder, alone)?;
    measure::switched(&mut process_group, &|process| patch_set(process, folder), run)
}

/// A process group that has rewritten text, which no other Fettle touches meanwhile.
fn claimed<'a>(
    process: &'a Process,
    folder: &Path,
    alone: bool,
) -> Result<(Claim, ProcessGroup<'a>), TuneError> {
    let others = if alone { Vec::new() } else { fettle_live::members_of(process) };
    let claim = Claim::of(process.pid(), others.iter().map(|other| other.pid))?;
    let process_group = ProcessGroup::of(process, alone);
    if patch_set(process, folder)?.into.is_empty() {
        let why = "Fettle has changed nothing in it: `fettle tune` without --recheck first";
        return Err(TuneError::Unfit { pid: process.pid(), why: why.to_owned() });
    }
    Ok((claim, process_group))
}

/// Compares the rewritten text that a process has with its original text, and reverts it unless it is
/// faster.
///
/// # Errors
///
/// When the process has none, another Fettle works on it, or it cannot be compared. Then it runs its
/// rewritten text as before.
pub fn recheck(
    process: &Process,
    folder: &Path,
    plan: &Plan,
    alone: bool,
    stop: Stop<'_>,
) -> Result<Rechecked, TuneError> {
    let (_claim, mut process_group) = claimed(process, folder, alone)?;
    work::try_work(process.pid(), &plan.work)?;
    let measured =
        measure::measure(&mut process_group, &|process| patch_set(process, folder), plan, stop)?;
    let kept = measured.is_gain();
    let mut stuck = Vec::new();
    if !kept {
        undo_group(folder, process, Undoing::within(PATIENCE), &mut |pid, undone| {
            stuck.extend(undone.kept.iter().map(|(_, why)| (pid, why.clone())));
        })?;
    }
    Ok(Rechecked { measured, kept, stuck })
}

/// The patches in the undo log of a process, its own or the one of the process that it was forked
/// from; none if it has no log.
fn patch_set(process: &Process, folder: &Path) -> Result<PatchSet, TuneError> {
    let own = Journal::look(folder, process.pid())?.filter(|log| log.is_of(process));
    let log = match own {
        Some(log) => Some(log),
        None => inherited_log(folder, process)?,
    };
    let mut patch_set = PatchSet::default();
    for entry in log.iter().flat_map(Journal::entries) {
        match entry {
            Entry::Write(patch) if patch.purpose.leads() => patch_set.into.push(patch.clone()),
            Entry::Write(patch) if patch.purpose == Purpose::DeoptJump => {
                patch_set.out.push(patch.clone());
            }
            _ => {}
        }
    }
    Ok(patch_set)
}
