//! One pass over all calls of a trace, last to first: the call tree and every function's
//! distribution of durations.
//!
//! One thread decodes the columns while another looks at the calls; memory is bounded by the
//! tree and three parts of about a million calls.

use std::sync::mpsc;

use fettle_trace::{Call, Trace};
use fettle_types::FunctionIndex;

use crate::Result;
use crate::tree::{CallTree, Nesting};
use fettle_stats::Distribution;

/// Identifiers have 24 bits; whatever is larger was never one.
const FUNCTIONS_MAX: u32 = 1 << 24;

/// What the calls of a trace say.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Who called whom.
    pub tree: CallTree,
    /// Durations by [`CallTree::slot_of`] the function.
    pub durations: Vec<Distribution>,
    /// Calls that were read.
    pub records: u64,
    /// What was wrong with the calls, one sentence each.
    pub warnings: Vec<String>,
    /// What a reader should know, though nothing is wrong, one sentence each.
    pub notes: Vec<String>,
}

impl Profile {
    /// Reads all calls of a trace.
    pub fn read(trace: &Trace) -> Result<Profile> {
        let mut profile = Profile::default();
        let mut nesting = Nesting::default();
        let mut unknown = 0u64;
        let mut open = 0u64;
        let warnings = for_each_part_backwards(trace, |calls| {
            profile.records += calls.len() as u64;
            for call in calls.iter().rev() {
                if call.function.get() >= FUNCTIONS_MAX {
                    unknown += 1;
                    continue;
                }
                let node = nesting.visit(&mut profile.tree, call);
                if call.flags & Call::OPEN != 0 {
                    // Its true duration is not known.
                    open += 1;
                    continue;
                }
                let slot = profile.tree.nodes()[node as usize].slot as usize;
                if slot >= profile.durations.len() {
                    profile.durations.resize_with(slot + 1, Distribution::default);
                }
                profile.durations[slot].add(call.duration_ns, u64::from(call.weight));
            }
        })?;
        profile.warnings = warnings;
        let counted = |list: &mut Vec<String>, count: u64, what: &str| {
            if count > 0 {
                list.push(format!("{} {what}", crate::render::count(count)));
            }
        };
        let warnings = &mut profile.warnings;
        counted(warnings, unknown, "calls of functions that cannot exist were left out");
        counted(warnings, nesting.gaps, "calls claim a depth that their callers do not have");
        let (notes, folded) = (&mut profile.notes, profile.tree.folded_calls());
        counted(notes, open, "calls were still open at the end: in trees, not in latencies");
        counted(notes, folded, "calls lie in a part of the call tree that was folded");
        Ok(profile)
    }

    /// The durations of a function, if it has recorded calls.
    pub fn durations_of(&self, function: FunctionIndex) -> Option<&Distribution> {
        let slot = self.tree.slot_of(function)?;
        self.durations.get(slot).filter(|durations| durations.count() > 0)
    }
}

/// Calls `with` on the calls of each part, last part first; the rows of a part stand in their
/// order. Parts that cannot be read are left out and named in the result.
pub(crate) fn for_each_part_backwards(
    trace: &Trace,
    mut with: impl FnMut(&[Call]),
) -> Result<Vec<String>> {
    let (parts, damaged) = trace.parts()?;
    let mut warnings: Vec<String> = damaged.iter().map(ToString::to_string).collect();
    std::thread::scope(|scope| {
        let (decoded, parts_decoded) = mpsc::sync_channel(1);
        let (spent, empty) = mpsc::channel::<Vec<Call>>();
        let parts = &parts;
        scope.spawn(move || {
            for part in parts.iter().rev() {
                let mut calls = empty.try_recv().unwrap_or_default();
                let result = trace.read_part(part, &mut calls).map(|()| calls);
                if decoded.send(result).is_err() {
                    return;
                }
            }
        });
        for result in parts_decoded {
            match result {
                Ok(calls) => {
                    with(&calls);
                    let _ = spent.send(calls);
                }
                Err(error) => warnings.push(error.to_string()),
            }
        }
    });
    Ok(warnings)
}
