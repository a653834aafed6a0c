//! The call tree as rows, pruned to what matters.

use serde::Serialize;

use crate::report::Analysis;
use crate::tree::{NodeId, ROOT, Weight};

/// Rows of a call tree at most, whatever was asked for.
const ROWS_MAX: usize = 100_000;

/// A call tree as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct TreeView {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// Nanoseconds of all outermost calls, as measured: what shares are of.
    pub total_ns: u64,
    /// Whether records are missing.
    pub partial: bool,
    /// Rows, callers before callees, longest first.
    pub rows: Vec<TreeRow>,
    /// Rows left out because their share was too small, or the tree too long.
    pub left_out: u64,
}

/// One chain of callers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TreeRow {
    /// Callers around it.
    pub depth: u32,
    /// Function.
    pub name: String,
    /// Recorded calls.
    pub calls: u64,
    /// Nanoseconds with callees, as measured.
    pub total_ns: u64,
    /// Nanoseconds outside recorded callees, as measured.
    pub self_ns: u64,
    /// Part of all time, 0 to 1.
    pub share: f64,
}

impl Analysis {
    /// The call tree without chains of callers whose share of the time is below `share_min`, and
    /// of `rows_max` rows at most.
    pub fn tree(&self, share_min: f64, rows_max: usize) -> TreeView {
        let nodes = self.profile.tree.nodes();
        let children = self.profile.tree.children_by(Weight::Wall);
        let total_ns = nodes[ROOT as usize].child_ns;
        let mut view = TreeView {
            version: crate::JSON_VERSION,
            total_ns,
            partial: self.partial(),
            rows: Vec::new(),
            left_out: 0,
        };
        // The rows to come, next one last. No recursion: trees are as deep as a file says.
        let mut to_come: Vec<(NodeId, u32)> = Vec::new();
        let push = |to_come: &mut Vec<_>, node: NodeId, depth| {
            to_come.extend(children[node as usize].iter().rev().map(|&child| (child, depth)));
        };
        push(&mut to_come, ROOT, 0);
        while let Some((id, depth)) = to_come.pop() {
            let node = &nodes[id as usize];
            let share = if total_ns == 0 { 0.0 } else { node.total_ns as f64 / total_ns as f64 };
            if share < share_min || view.rows.len() >= rows_max.min(ROWS_MAX) {
                view.left_out += 1;
                continue;
            }
            view.rows.push(TreeRow {
                depth,
                name: self.names.shown(node.function),
                calls: node.calls,
                total_ns: node.total_ns,
                self_ns: node.self_ns(),
                share,
            });
            push(&mut to_come, id, depth + 1);
        }
        view
    }
}
