//! Chains of callers, one per line, with the nanoseconds spent at their end.

use std::io::Write;

use crate::error::Result;
use crate::report::{Analysis, FunctionRow};
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

/// The functions of a trace without single calls that took time, in order of their numbers.
pub(super) fn flat(analysis: &Analysis) -> Vec<FunctionRow> {
    let mut rows = match analysis.has_own_times() {
        true => analysis.functions(),
        false => Vec::new(),
    };
    rows.sort_by_key(|row| row.id);
    rows
}

/// A name without the separator of this format, which is a character of some names.
fn frame(name: &str) -> impl Iterator<Item = char> {
    name.chars().map(|c| if c == ';' { ':' } else { c })
}

pub(super) fn write(analysis: &Analysis, weight: Weight, out: &mut dyn Write) -> Result<()> {
    for row in flat(analysis) {
        let own = match weight {
            Weight::Wall => row.self_ns,
            Weight::Cpu => row.cpu_self_ns.unwrap_or(0),
        };
        if own > 0 {
            writeln!(out, "{} {own}", frame(&row.name).collect::<String>())?;
        }
    }
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
            line.extend(frame(&name));
        }
        writeln!(out, "{line} {}", node.own(weight))?;
    }
    out.flush()?;
    Ok(())
}
