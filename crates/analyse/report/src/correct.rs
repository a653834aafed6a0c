//! Taking the probes' own cost out of the times.
//!
//! A probe costs twice: a part of it lies inside the interval it measures (`inner`), the rest
//! falls on the caller (`outer`). So a function's own time holds `inner` once per call of it and
//! `outer` once per call it makes; its total time holds, further, both for every call below it.
//! The costs are means: a call may have had less, and no more is taken out than there is. What is
//! too much for the callees is not taken from their caller instead.

use fettle_trace::ProbeCost;

use crate::tree::CallTree;

/// Calls under the calls of one function, by records.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Below {
    /// Recorded calls of the function.
    pub(crate) calls: u64,
    /// Recorded calls that they made.
    pub(crate) children: u64,
    /// Recorded calls below them, at any depth. Below a recursive function's calls, calls count
    /// once for each activation around them, as they do in its total time.
    pub(crate) descendants: u64,
}

/// The calls under each function's, by [`CallTree::slot_of`] the function.
pub(crate) fn below(tree: &CallTree) -> Vec<Below> {
    let descendants = tree.descendants();
    let mut by_function = vec![Below::default(); tree.functions()];
    for (node, descendants) in tree.nodes().iter().zip(descendants).skip(2) {
        let below = &mut by_function[node.slot as usize];
        below.calls = below.calls.saturating_add(node.calls);
        below.children = below.children.saturating_add(node.child_calls);
        below.descendants = below.descendants.saturating_add(descendants);
    }
    by_function
}

/// Self and total nanoseconds without the probes' cost: the first never below 0, the second never
/// below the first. `calls` may be more than were recorded: those that were not are taken to have made as many calls.
pub(crate) fn corrected(
    cost: ProbeCost,
    below: Below,
    calls: u64,
    self_ns: u64,
    total_ns: u64,
) -> (u64, u64) {
    // Costs are claims of a file.
    let sane = |ns: f64| if ns.is_finite() { ns.clamp(0.0, 1e6) } else { 0.0 };
    let (inner, outer) = (sane(cost.inner_ns), sane(cost.outer_ns));
    let scale = if below.calls == 0 { 0.0 } else { calls as f64 / below.calls as f64 };
    let (children, descendants) = (below.children as f64 * scale, below.descendants as f64 * scale);
    let calls = calls as f64;
    let self_cost = calls * inner + children * outer;
    let callees_cost = descendants * inner + (descendants - children) * outer;
    let without = |ns: u64, cost: f64| ns.saturating_sub(cost.round() as u64);
    let self_corrected_ns = without(self_ns, self_cost);
    let callees_corrected_ns = without(total_ns.saturating_sub(self_ns), callees_cost);
    (self_corrected_ns, self_corrected_ns.saturating_add(callees_corrected_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_taken_out_and_never_more() {
        let cost = ProbeCost { inner_ns: 5.0, outer_ns: 10.0 };
        let below = Below { calls: 2, children: 3, descendants: 7 };
        assert_eq!(corrected(cost, below, 2, 1000, 5000), (960, 4885));
        assert_eq!(corrected(cost, below, 2, 30, 100), (0, 0));
        // The callees took less than their probes are said to cost: all of it was theirs.
        assert_eq!(corrected(cost, below, 2, 1000, 1070), (960, 960));
        assert_eq!(corrected(cost, below, 2, 1000, 1080), (960, 965));
        assert_eq!(corrected(cost, below, 2, 30, 1030), (0, 925));
        // Four calls, of which two were recorded: twice as much below them.
        assert_eq!(corrected(cost, below, 4, 1000, 5000), (920, 4770));
        assert_eq!(corrected(cost, Below::default(), 4, 1000, 5000), (980, 4980));
        let nonsense = ProbeCost { inner_ns: f64::NAN, outer_ns: -1.0 };
        assert_eq!(corrected(nonsense, below, 2, 1000, 5000), (1000, 5000));
    }
}
