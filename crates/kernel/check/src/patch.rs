//! The jump from the original to rewritten text.

use fettle_isa::{FactsFactory, Flow};
use fettle_kernel_plan::EntryPatch;
use rustc_hash::FxHashSet;

use crate::original::Original;

const JUMP: u64 = 5;

/// Whether the jump may lie where the plan says. `seen` are the addresses of the original's instructions
/// that control comes to, `targets` those that branches, fixups and static keys lead to.
pub(crate) fn allows(
    original: &Original<'_>,
    patch: &EntryPatch,
    targets: &FxHashSet<u64>,
    facts: &mut FactsFactory,
) -> bool {
    let Some(end) = patch.at.checked_add(JUMP) else { return false };
    let image = original.image;
    if image.bytes(patch.at, JUMP as usize) != Some(&patch.replaced) {
        return false;
    }
    if (patch.at + 1..end).any(|at| targets.contains(&at)) {
        return false;
    }
    let tables = &image.tables;
    // What begins before the jump's place may end in it.
    let sites = (patch.at.saturating_sub(JUMP - 1)..end)
        .any(|at| tables.jump_label(at).is_some() || tables.static_call(at).is_some());
    let faults =
        (patch.at..end).any(|at| tables.exception(at).is_some() || tables.bug(at).is_some());
    if sites || faults {
        return false;
    }
    let Some(inside) = patch.inside.get(..usize::from(patch.insides)) else { return false };
    let mut expected = inside.iter();
    let mut at = patch.at;
    while at < end {
        let Some(found) = original.at(at, facts) else { return false };
        if at > patch.at && expected.next().map(|inside| patch.at + u64::from(*inside)) != Some(at)
        {
            return false;
        }
        at = found.insn.next_ip();
        let ends_here = matches!(found.flow(), Flow::Next);
        // Only the last may lead elsewhere, and a call must not come back to the middle.
        if at < end && !ends_here {
            return false;
        }
    }
    let own = image.functions.containing(patch.at);
    expected.next().is_none() && own.is_some_and(|function| end <= function.range.end)
}
