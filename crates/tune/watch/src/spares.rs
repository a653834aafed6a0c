//! Spares: processes that stand ready to take the places of those that are watched.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fettle_live::{Spare, SpareState};
use fettle_types::Pid;

use crate::look::ProcessId;
use crate::original;
use crate::proc::Watched;

/// Where there is none, it is tried again after so long.
const AGAIN: Duration = Duration::from_secs(10);
/// A process that was just started has not come to listen yet.
const FIRST: Duration = Duration::from_millis(500);

/// The spares of all processes that a rule would replace.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    of: BTreeMap<ProcessId, Kept>,
}

#[derive(Debug)]
struct Kept {
    spare: Option<Spare>,
    /// What was said of it last.
    said: Option<SpareState>,
    next: Instant,
}

impl Spares {
    /// Has a spare for each of these processes, and says what has changed of them.
    pub(crate) fn tend<'a>(
        &mut self,
        wanted: impl Iterator<Item = &'a Watched>,
        now: Instant,
    ) -> Vec<(Pid, SpareState)> {
        let mut changes = Vec::new();
        let mut living = Vec::new();
        for process in wanted {
            living.push(process.id);
            let first = Kept { spare: None, said: None, next: now + FIRST };
            let kept = self.of.entry(process.id).or_insert(first);
            let state = match &kept.spare {
                Some(spare) => spare.state(),
                None if now >= kept.next => match start(process) {
                    Ok(spare) => {
                        kept.spare = Some(spare);
                        SpareState::Starting
                    }
                    Err(why) => SpareState::Failed(why),
                },
                None => continue,
            };
            if let SpareState::Failed(_) = state {
                kept.spare = None;
                kept.next = now + AGAIN;
            }
            if state != SpareState::Starting && kept.said.as_ref() != Some(&state) {
                kept.said = Some(state.clone());
                changes.push((process.id.pid, state));
            }
        }
        self.of.retain(|id, _| living.contains(id));
        changes
    }

    /// Has a process's spare take its place. Its old one is for the caller to end.
    pub(crate) fn let_go(&mut self, id: ProcessId) -> Result<Pid, String> {
        let kept = self.of.get_mut(&id);
        let none = || "it has no spare yet".to_owned();
        let kept = kept.ok_or_else(none)?;
        match kept.spare.as_ref().map(Spare::state) {
            Some(SpareState::Ready(_)) => {}
            Some(SpareState::Starting) => return Err("its spare is not ready yet".into()),
            Some(SpareState::Failed(why)) => return Err(format!("it has no spare: {why}")),
            None => match &kept.said {
                Some(SpareState::Failed(why)) => return Err(format!("it has no spare: {why}")),
                _ => return Err(none()),
            },
        }
        let spare = kept.spare.take().ok_or_else(none)?;
        kept.next = Instant::now() + AGAIN;
        spare.let_go().map_err(|why| format!("its spare does not serve: {why}"))
    }
}

fn start(process: &Watched) -> Result<Spare, String> {
    Spare::start(original::of(process)?).map_err(|error| format!("no thread for it: {error}"))
}
