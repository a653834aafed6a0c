//! What an earlier recording or tuning had to leave in processes: code that is no longer patched
//! in, while something in their memory may still refer to it. Mostly it does not for long.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use fettle_live::{Claim, Journal, Process};

use crate::error::TuneError;
use crate::group_patches::{inherited_log, is_there, revert};

/// How long to wait until nothing refers to such code.
const PATIENCE: Duration = Duration::from_secs(1);

/// Unmaps such code from a process and its process group, so that they can be patched again, and
/// claims the process, or all of them unless it is `alone`. Other processes that keep it are not
/// claimed.
///
/// # Errors
///
/// When another Fettle works on a process that was to be claimed; when the process still has
/// patches, or keeps memory of ours; when its log cannot be read.
pub fn clear(folder: &Path, process: &Process, alone: bool) -> Result<Claim, TuneError> {
    let pid = process.pid();
    let others = if alone { Vec::new() } else { fettle_live::members_of(process) };
    let claim = Claim::of(pid, others.iter().map(|member| member.pid))?;
    let unfit = |why: String| TuneError::Unfit { pid, why };
    let own = |process: &Process| {
        Journal::look(folder, process.pid()).map(|log| log.filter(|log| log.is_of(process)))
    };
    let log = match own(process)? {
        Some(log) => Some(log),
        None => inherited_log(folder, process)?,
    };
    if log.is_some_and(|log| is_redirected(process, &log)) {
        return Err(unfit(format!("it is changed already: `fettle undo {pid}` first")));
    }
    let mut journals = VecDeque::new();
    for member in fettle_live::members_of(process) {
        let Ok(member) = Process::open(member.pid) else { continue };
        // A log of another process that is unreadable, or in use, only prevents that one from being
        // cleaned up.
        let Ok(Some(log)) = own(&member) else { continue };
        if !is_redirected(&member, &log) {
            journals.extend(Journal::open(folder, member.pid()).ok().flatten());
        }
    }
    let reverted = revert(folder, journals, &|_| Vec::new(), PATIENCE)?;
    match reverted.stuck.into_iter().find(|(stuck, _)| *stuck == pid) {
        None => Ok(claim),
        Some((_, why)) => Err(unfit(format!("it still has code of an earlier recording: {why}"))),
    }
}

/// Whether a process has patches that lead to what a log records.
pub fn is_redirected(process: &Process, log: &Journal) -> bool {
    log.entries().iter().any(|entry| is_there(process, entry))
}
