//! The call tree: one node per chain of callers that was seen.
//!
//! Calls arrive last first. A caller ends after its callees, so backwards it comes before them,
//! and the node of a call's caller is simply what stands one level up on a stack of nodes.

use fettle_trace::Call;
use fettle_types::FunctionIndex;

use crate::hash::FastMap;

/// Number of a node: 0 is the root, which stands for no function.
pub type NodeId = u32;

/// The root of every tree.
pub const ROOT: NodeId = 0;
/// Parent of the nodes that were folded; there from the beginning, usually without children.
pub const FOLDED: NodeId = 1;
/// Function of nodes that stand for none.
pub const NO_FUNCTION: FunctionIndex = FunctionIndex(u32::MAX);
/// A tree of more nodes than this is folded: further chains of callers are merged by their last
/// function. 80 bytes a node, so at most 80 MiB.
const NODES_MAX: usize = 1 << 20;

/// All calls of one function by one chain of callers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Node {
    /// The caller's node; always a smaller number.
    pub parent: NodeId,
    /// Function, or [`NO_FUNCTION`].
    pub function: FunctionIndex,
    /// Number of the function among those of the tree; see [`CallTree::slot_of`].
    pub slot: u32,
    /// Calls.
    pub calls: u64,
    /// Nanoseconds from entry to exit.
    pub total_ns: u64,
    /// Calls that these calls made.
    pub child_calls: u64,
    /// Nanoseconds spent in them.
    pub child_ns: u64,
    /// Off-CPU nanoseconds of `total_ns`.
    pub off_cpu_ns: u64,
    /// Off-CPU nanoseconds of `child_ns`.
    pub child_off_cpu_ns: u64,
    /// The child found last: calls repeat.
    last: (FunctionIndex, NodeId),
}

/// What counts in a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// Time that passed.
    #[default]
    Wall,
    /// Time on a processor.
    Cpu,
}

impl Node {
    /// Nanoseconds from entry to exit.
    pub fn total(&self, weight: Weight) -> u64 {
        match weight {
            Weight::Wall => self.total_ns,
            Weight::Cpu => self.cpu_ns(),
        }
    }

    /// Nanoseconds outside recorded callees.
    pub fn own(&self, weight: Weight) -> u64 {
        match weight {
            Weight::Wall => self.self_ns(),
            Weight::Cpu => self.cpu_self_ns(),
        }
    }

    /// Nanoseconds in calls that these calls made.
    pub fn in_callees(&self, weight: Weight) -> u64 {
        match weight {
            Weight::Wall => self.child_ns,
            Weight::Cpu => self.child_ns.saturating_sub(self.child_off_cpu_ns),
        }
    }

    /// Nanoseconds outside recorded callees.
    pub fn self_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.child_ns)
    }

    /// Nanoseconds on a processor, from entry to exit.
    pub fn cpu_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.off_cpu_ns)
    }

    /// Nanoseconds on a processor outside recorded callees.
    pub fn cpu_self_ns(&self) -> u64 {
        let off_cpu_ns = self.off_cpu_ns.saturating_sub(self.child_off_cpu_ns);
        self.self_ns().saturating_sub(off_cpu_ns)
    }
}

/// A call tree, over all threads.
#[derive(Clone, Debug)]
pub struct CallTree {
    nodes: Vec<Node>,
    children: FastMap<u64, NodeId>,
    /// Folded nodes, by function.
    folded: FastMap<FunctionIndex, NodeId>,
    /// Functions of the tree, numbered in order of appearance: identifiers are claims of a file
    /// and too large to index tables with.
    slots: FastMap<FunctionIndex, u32>,
    nodes_max: usize,
}

impl Default for CallTree {
    fn default() -> CallTree {
        CallTree::with_limit(NODES_MAX)
    }
}

impl CallTree {
    pub(crate) fn with_limit(nodes_max: usize) -> CallTree {
        let node = |parent| Node { parent, function: NO_FUNCTION, ..Node::default() };
        let mut nodes = vec![node(ROOT), node(ROOT)];
        for node in &mut nodes {
            node.last = (NO_FUNCTION, ROOT);
        }
        let (children, folded, slots) = Default::default();
        CallTree { nodes, children, folded, slots, nodes_max }
    }

    /// The nodes by number. The first two are [`ROOT`] and [`FOLDED`].
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The number of a function among those of the tree, from 0 to [`CallTree::functions`].
    pub fn slot_of(&self, function: FunctionIndex) -> Option<usize> {
        self.slots.get(&function).map(|&slot| slot as usize)
    }

    /// Functions in the tree.
    pub fn functions(&self) -> usize {
        self.slots.len()
    }

    /// Calls whose chain of callers was not kept.
    pub fn folded_calls(&self) -> u64 {
        let nodes = self.nodes.iter().filter(|node| node.parent == FOLDED);
        nodes.fold(0, |sum, node| sum.saturating_add(node.calls))
    }

    /// Adds calls of a function under `parent`, and returns their node.
    #[inline]
    pub(crate) fn add(
        &mut self,
        parent: NodeId,
        function: FunctionIndex,
        calls: u64,
        ns: u64,
        off_cpu_ns: u64,
    ) -> NodeId {
        let up = &mut self.nodes[parent as usize];
        up.child_calls = up.child_calls.saturating_add(calls);
        up.child_ns = up.child_ns.saturating_add(ns);
        up.child_off_cpu_ns = up.child_off_cpu_ns.saturating_add(off_cpu_ns);
        let id = if up.last.0 == function { up.last.1 } else { self.child(parent, function) };
        let node = &mut self.nodes[id as usize];
        node.calls = node.calls.saturating_add(calls);
        node.total_ns = node.total_ns.saturating_add(ns);
        node.off_cpu_ns = node.off_cpu_ns.saturating_add(off_cpu_ns);
        id
    }

    fn child(&mut self, parent: NodeId, function: FunctionIndex) -> NodeId {
        // Folded nodes were made when the tree was full, so whatever is below them is folded.
        let below_folded = self.nodes[parent as usize].parent == FOLDED;
        let key = u64::from(parent) << 32 | u64::from(function.get());
        let known = if below_folded { None } else { self.children.get(&key).copied() };
        let id = match known {
            Some(id) => id,
            None if self.nodes.len() < self.nodes_max => {
                let id = self.node(parent, function);
                self.children.insert(key, id);
                id
            }
            None => self.folded(function),
        };
        self.nodes[parent as usize].last = (function, id);
        id
    }

    /// Makes a node.
    fn node(&mut self, parent: NodeId, function: FunctionIndex) -> NodeId {
        let id = self.nodes.len() as NodeId;
        let next = self.slots.len() as u32;
        let slot = *self.slots.entry(function).or_insert(next);
        let last = (NO_FUNCTION, ROOT);
        self.nodes.push(Node { parent, function, slot, last, ..Node::default() });
        id
    }

    /// The folded node of a function.
    fn folded(&mut self, function: FunctionIndex) -> NodeId {
        if let Some(&id) = self.folded.get(&function) {
            return id;
        }
        let id = self.node(FOLDED, function);
        self.folded.insert(function, id);
        id
    }

    /// Calls below each node, at any depth.
    pub fn descendants(&self) -> Vec<u64> {
        let mut below = vec![0u64; self.nodes.len()];
        for (id, node) in self.nodes.iter().enumerate().skip(2).rev() {
            let parent = &mut below[node.parent as usize];
            *parent = parent.saturating_add(node.calls);
            let mine = below[id];
            let parent = &mut below[node.parent as usize];
            *parent = parent.saturating_add(mine);
        }
        below
    }

    /// The children of every node, as lists by total time of a kind, longest first.
    pub fn children_by(&self, weight: Weight) -> Vec<Vec<NodeId>> {
        let mut children = vec![Vec::new(); self.nodes.len()];
        for (id, node) in self.nodes.iter().enumerate().skip(2) {
            children[node.parent as usize].push(id as NodeId);
        }
        if !children[FOLDED as usize].is_empty() {
            children[ROOT as usize].push(FOLDED);
        }
        for list in &mut children {
            list.sort_by_key(|&id| {
                let node = &self.nodes[id as usize];
                (std::cmp::Reverse(node.total(weight)), node.function)
            });
        }
        children
    }
}

/// The stack of nodes while calls arrive last first.
#[derive(Debug, Default)]
pub(crate) struct Nesting {
    thread: Option<u32>,
    open: Vec<NodeId>,
    /// Calls deeper than their caller plus one: impossible in a trace that Fettle wrote.
    pub(crate) gaps: u64,
}

impl Nesting {
    /// Adds a call to the tree and returns its node.
    #[inline]
    pub(crate) fn visit(&mut self, tree: &mut CallTree, call: &Call) -> NodeId {
        if self.thread != Some(call.thread) {
            self.thread = Some(call.thread);
            self.open.clear();
        }
        let depth = usize::from(call.depth);
        if depth > self.open.len() {
            self.gaps += 1;
        } else {
            self.open.truncate(depth);
        }
        let parent = self.open.last().copied().unwrap_or(ROOT);
        let weight = u64::from(call.weight);
        let ns = call.duration_ns.saturating_mul(weight);
        let off_cpu_ns = call.off_cpu_ns.min(call.duration_ns).saturating_mul(weight);
        let node = tree.add(parent, call.function, weight, ns, off_cpu_ns);
        self.open.push(node);
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_tree_folds_and_loses_no_call() {
        // Each depth calls the next function, in every combination of two: 2^10 chains.
        let mut tree = CallTree::with_limit(50);
        let mut nesting = Nesting::default();
        let mut calls = 0;
        for path in 0..1u32 << 10 {
            let depth = if path == 0 { 0 } else { 9 - path.trailing_zeros() as u16 };
            for depth in depth..10 {
                let function = u32::from(depth) * 2 + (path >> (9 - depth) & 1);
                let function = FunctionIndex(function);
                let call = Call { function, depth, duration_ns: 1, weight: 1, ..Call::default() };
                nesting.visit(&mut tree, &call);
                calls += 1;
            }
        }
        assert_eq!(nesting.gaps, 0);
        assert!(tree.nodes().len() <= 50 + 20 && tree.folded_calls() > 0);
        assert_eq!(tree.nodes().iter().map(|node| node.calls).sum::<u64>(), calls);
        assert_eq!(tree.functions(), 20);
    }
}
