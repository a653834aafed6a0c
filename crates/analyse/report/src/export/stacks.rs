//! Chains of callers, one per line, with the nanoseconds spent at their end.

use std::io::Write;

use crate::error::Result;
use crate::report::Analysis;
use crate::tree::{CallTree, NodeId, ROOT, Weight};

/// Callers in a chain at most: a deeply recursive program would otherwise write a line as long
/// as its recursion for every depth of it. The outermost are left out.
pub(super) const FRAMES_MAX: usize = 1024;

/// The nodes from a node to its outermost caller, innermost first, and whether more were left
/// out.
pub(super) fn chain(tree: &CallTree, node: NodeId, out: &mut Vec<NodeId>) -> bool {
    out.clear();
    let mut at = node;
    while at != ROOT {
        if out.len() == FRAMES_MAX {
            return true;
        }
        out.push(at);
        at = tree.nodes()[at as usize].parent;
    }
    false
}

pub(super) fn write(analysis: &Analysis, weight: Weight, out: &mut dyn Write) -> Result<()> {
    let tree = &analysis.profile.tree;
    let mut nodes = Vec::new();
    let mut line = String::new();
    for (id, node) in tree.nodes().iter().enumerate().skip(2) {
        if node.own(weight) == 0 {
            continue;
        }
        line.clear();
        if chain(tree, id as NodeId, &mut nodes) {
            line.push_str("[…];");
        }
        for (at, &node) in nodes.iter().rev().enumerate() {
            if at > 0 {
                line.push(';');
            }
            let name = analysis.names.shown(tree.nodes()[node as usize].function);
            // The separator of this format is a character of some names.
            line.extend(name.chars().map(|c| if c == ';' { ':' } else { c }));
        }
        writeln!(out, "{line} {}", node.own(weight))?;
    }
    out.flush()?;
    Ok(())
}
