//! Rewritten text that the checker agrees with.

use std::collections::HashSet;

use fettle_kernel_check::refusals;
use fettle_kernel_emit as emit;
use fettle_kernel_emit::{BlockPlace, Counter, Counting, Order, Promotions};
use fettle_kernel_lift::{KernelFunction, Lifter, Reason, Skipped};
use fettle_kernel_plan::Plan;

/// A checked plan.
#[derive(Debug, Default)]
pub struct Checked {
    /// The rewritten text.
    pub plan: Plan,
    /// By counter: what it counts.
    pub counters: Vec<Counter>,
    /// Where all blocks are.
    pub blocks: Vec<BlockPlace>,
    /// Functions that are left unmodified after all.
    pub skipped: Vec<Skipped>,
}

/// Emits `functions` and checks the result. What the checker does not agree with is left unmodified, which
/// changes calls of it in the others, so all is emitted and checked again.
pub fn emit_checked(
    lifter: &Lifter<'_>,
    functions: &[KernelFunction],
    order: &Order,
    counting: Counting,
    promotions: &Promotions,
) -> Checked {
    let mut functions = functions.to_vec();
    let mut skipped = Vec::new();
    loop {
        let emission = emit::emit_promoted(lifter, &functions, order, counting, promotions);
        let refused: HashSet<String> =
            refusals(lifter.image(), &emission.plan).into_iter().map(|one| one.function).collect();
        if refused.is_empty() {
            skipped.extend(emission.skipped);
            let emit::Emission { plan, counters, blocks, .. } = emission;
            return Checked { plan, counters, blocks, skipped };
        }
        let before = functions.len();
        functions.retain(|function| {
            let is_refused = refused.contains(&function.name);
            if is_refused {
                skipped.push(Skipped {
                    name: function.name.clone(),
                    entry: function.entry(),
                    reason: Reason::CheckFailed,
                    at: function.entry(),
                });
            }
            !is_refused
        });
        // A refusal of the plan as a whole names no function.
        if functions.len() == before {
            functions.clear();
        }
    }
}
