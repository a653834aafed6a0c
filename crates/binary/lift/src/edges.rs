//! Edges of a function: where to count so that few counters tell all of them.
//!
//! As much control enters a block as leaves it. So along a spanning tree of the graph (with one
//! node more for everything outside the function) no edge needs a counter: what the other edges
//! say determines it (Knuth, The Art of Computer Programming, volume 1, section 2.3.4.1; Ball and
//! Larus 1994 choose the tree so that the edges left over are seldom taken). [`Flow`] goes the way
//! back, from whatever was counted to all that follows from it, be it edges or blocks.
//!
//! The law does not hold for a block whose call is left by an exception or `longjmp`, or does not
//! come back; then edges after that call come out too high by as much.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::function::{BlockId, Exit, Function};

/// A block, or `None` for what is outside of the function: its callers, the unwinder.
pub type Node = Option<BlockId>;

/// Control going from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Edge {
    /// Where from.
    pub from: Node,
    /// Where to.
    pub to: Node,
}

/// Where a counter can stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// Before the entry block, where only callers come by.
    Entry,
    /// At the start of a block.
    Block(BlockId),
    /// On a branch from one block to another that has its own ways in, and the first its own ways
    /// out.
    Between(BlockId, BlockId),
    /// On a branch from this block out of the function.
    Leaving(BlockId),
}

/// The edges of one function.
#[derive(Clone, Debug)]
pub struct EdgeGraph {
    /// All edges, each once, in order of the blocks they leave; those from outside first.
    pub edges: Vec<Edge>,
    /// For each edge, where it can be counted, if anywhere.
    pub places: Vec<Option<Place>>,
    /// For each edge, how often it is thought to be taken, relative to the others.
    weights: Vec<f64>,
    blocks: usize,
}

impl EdgeGraph {
    /// The edges of `function`.
    pub fn new(function: &Function) -> EdgeGraph {
        let blocks = &function.blocks;
        let entry = function.entry_block();
        let mut preds = vec![0usize; blocks.len()];
        let mut inside = Vec::new();
        for (i, block) in blocks.iter().enumerate() {
            let mut succs = block.succs.clone();
            succs.sort_unstable();
            succs.dedup();
            for to in succs {
                preds[to.index()] += 1;
                inside.push((BlockId(i as u32), to));
            }
        }
        // The entry; landing pads, and blocks that only something unseen leads to.
        let mut from_outside = vec![entry];
        from_outside.extend(blocks.iter().enumerate().filter_map(|(i, block)| {
            let id = BlockId(i as u32);
            (id != entry && (block.landing_pad || preds[i] == 0)).then_some(id)
        }));
        let depths = loop_depths(function);
        let frequency = |b: BlockId| 8f64.powi(depths[b.index()].min(12));
        let mut graph = EdgeGraph {
            edges: Vec::new(),
            places: Vec::new(),
            weights: Vec::new(),
            blocks: blocks.len(),
        };
        for to in from_outside {
            let place = match (to == entry, preds[to.index()]) {
                (true, _) => Some(Place::Entry),
                (false, 0) => Some(Place::Block(to)),
                // A landing pad that branches lead to as well.
                (false, _) => None,
            };
            // Pads are seldom come to.
            let weight = if to == entry { 1.0 } else { 0.01 };
            graph.add(Edge { from: None, to: Some(to) }, place, weight);
        }
        let mut inside = inside.into_iter().peekable();
        for (i, block) in blocks.iter().enumerate() {
            let id = BlockId(i as u32);
            let mut succs = Vec::new();
            while let Some((_, to)) = inside.next_if(|(from, _)| *from == id) {
                succs.push(to);
            }
            let leaves = block.exit.is_some() || block.succs.is_empty();
            let ways = succs.len() + usize::from(leaves);
            let weight = frequency(id) / ways as f64;
            let alone = (ways == 1).then_some(Place::Block(id));
            for to in succs {
                let only_way_in =
                    preds[to.index()] == 1 && to != entry && !blocks[to.index()].landing_pad;
                let place = alone
                    .or(only_way_in.then_some(Place::Block(to)))
                    .or(can_split(function, id).then_some(Place::Between(id, to)));
                // Loops go round more often than they are left.
                let weight = weight.min(frequency(to));
                graph.add(Edge { from: Some(id), to: Some(to) }, place, weight);
            }
            if leaves {
                let place = alone.or(match block.exit {
                    Some(Exit::TailBranch(_)) if branches(function, id) => Some(Place::Leaving(id)),
                    _ => None,
                });
                graph.add(Edge { from: Some(id), to: None }, place, weight);
            }
        }
        graph
    }

    fn add(&mut self, edge: Edge, place: Option<Place>, weight: f64) {
        self.edges.push(edge);
        self.places.push(place);
        self.weights.push(weight);
    }

    /// The edges to count: those outside of the spanning tree of the greatest weight. `None` if
    /// that takes an edge that cannot be counted.
    pub fn counted(&self) -> Option<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.edges.len()).collect();
        // Edges that cannot be counted have to be in the tree.
        order.sort_by(|a, b| {
            let countable = |i: &usize| self.places[*i].is_some();
            countable(a)
                .cmp(&countable(b))
                .then(self.weights[*b].total_cmp(&self.weights[*a]))
                .then(a.cmp(b))
        });
        let mut trees = Trees::new(self.blocks + 1);
        let mut counted = Vec::new();
        for i in order {
            let node = |n: Node| n.map_or(self.blocks, BlockId::index);
            let edge = self.edges[i];
            if !trees.join(node(edge.from), node(edge.to)) {
                self.places[i]?;
                counted.push(i);
            }
        }
        counted.sort_unstable();
        Some(counted)
    }
}

/// Whether the last instruction is a conditional jump of the kind that can be given another
/// target.
fn branches(function: &Function, block: BlockId) -> bool {
    let block = &function.blocks[block.index()];
    function.insns[block.insns.end as usize - 1].is_jcc_short_or_near()
}

/// Whether a counter can be put between a block and any of its successors.
fn can_split(function: &Function, block: BlockId) -> bool {
    !function.blocks[block.index()].switches && branches(function, block)
}

/// How many loops a block lies in, as compilers lay loops out: from the target of a jump backwards
/// to the jump.
fn loop_depths(function: &Function) -> Vec<i32> {
    let mut change = vec![0; function.blocks.len() + 1];
    let mut seen = HashMap::new();
    for (i, block) in function.blocks.iter().enumerate() {
        for to in block.succs.iter().filter(|to| to.index() <= i) {
            // Several jumps to one head are one loop.
            let end = seen.entry(to.index()).or_insert(i);
            *end = i.max(*end);
        }
    }
    for (head, end) in seen {
        change[head] += 1;
        change[end + 1] -= 1;
    }
    let mut depth = 0;
    change[..function.blocks.len()]
        .iter()
        .map(|c| {
            depth += c;
            depth
        })
        .collect()
}

/// Disjoint sets of nodes.
struct Trees(Vec<usize>);

impl Trees {
    fn new(nodes: usize) -> Trees {
        Trees((0..nodes).collect())
    }

    fn root(&mut self, mut node: usize) -> usize {
        while self.0[node] != node {
            self.0[node] = self.0[self.0[node]];
            node = self.0[node];
        }
        node
    }

    /// Joins the sets of two nodes; false if they are one already.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a] = b;
        a != b
    }
}

/// Counts of edges and blocks, and what follows from them.
#[derive(Clone, Debug)]
pub struct Flow<'a> {
    edges: &'a [Edge],
    /// Executions of each edge, as far as known.
    pub edge_counts: Vec<Option<u64>>,
    /// Executions of each block, as far as known.
    pub block_counts: Vec<Option<u64>>,
    /// A count would have come out below zero: control left a block in the middle.
    pub inconsistent: bool,
}

impl<'a> Flow<'a> {
    /// Nothing is known yet of these edges between so many blocks.
    pub fn new(edges: &'a [Edge], blocks: usize) -> Flow<'a> {
        Flow {
            edges,
            edge_counts: vec![None; edges.len()],
            block_counts: vec![None; blocks],
            inconsistent: false,
        }
    }

    /// Derives whatever follows from what is known, by the law that as much control leaves a
    /// block as enters it.
    pub fn solve(&mut self) {
        let blocks = self.block_counts.len();
        let mut ins = vec![Vec::new(); blocks];
        let mut outs = vec![Vec::new(); blocks];
        for (i, edge) in self.edges.iter().enumerate() {
            if let Some(list) = edge.to.and_then(|to| ins.get_mut(to.index())) {
                list.push(i);
            }
            if let Some(list) = edge.from.and_then(|from| outs.get_mut(from.index())) {
                list.push(i);
            }
        }
        let mut work: Vec<usize> = (0..blocks).collect();
        while let Some(block) = work.pop() {
            for side in [&ins[block], &outs[block]] {
                let known: u64 = side.iter().filter_map(|i| self.edge_counts[*i]).sum();
                let mut unknown = side.iter().filter(|i| self.edge_counts[**i].is_none());
                match (unknown.next(), unknown.next(), self.block_counts[block]) {
                    (None, _, None) => {
                        self.block_counts[block] = Some(known);
                        work.push(block);
                    }
                    (Some(i), None, Some(count)) => {
                        self.inconsistent |= known > count;
                        self.edge_counts[*i] = Some(count.saturating_sub(known));
                        let ends = [self.edges[*i].from, self.edges[*i].to];
                        work.extend(ends.into_iter().flatten().map(BlockId::index));
                    }
                    _ => {}
                }
            }
        }
    }
}

impl Flow<'_> {
    /// Derives every edge that follows from the counts of blocks, and estimates the rest; which
    /// of them are exact.
    ///
    /// An edge is exact exactly when it is a bridge: its loss would cut the graph in two that has
    /// each block's way in and way out as nodes and the unknown edges between them. What leads to
    /// or from an unknown count ties everything of the kind together. Edges of blocks that never
    /// ran, and edges that nothing is left for, are zero and make bridges of others.
    pub fn complete(&mut self) -> Vec<bool> {
        loop {
            self.solve();
            if !self.prune() && !self.cross_bridges() {
                break;
            }
        }
        let exact = self.edge_counts.iter().map(Option::is_some).collect();
        self.estimate();
        exact
    }

    /// The nodes of an edge: the way out of a block, the way into one, and `None` for where
    /// nothing is known of the sum.
    fn ends(&self, edge: usize) -> [Option<usize>; 2] {
        let known = |node: Node| node.filter(|b| self.block_counts[b.index()].is_some());
        let Edge { from, to } = self.edges[edge];
        [known(from).map(|b| 2 * b.index()), known(to).map(|b| 2 * b.index() + 1)]
    }

    /// What is left of each node's sum for its unknown edges.
    fn left(&self) -> Vec<i64> {
        let counts = self.block_counts.iter().map(|c| c.unwrap_or(0) as i64);
        let mut left: Vec<i64> = counts.flat_map(|c| [c, c]).collect();
        for (edge, count) in self.edge_counts.iter().enumerate() {
            for end in self.ends(edge).into_iter().flatten() {
                left[end] -= count.unwrap_or(0) as i64;
            }
        }
        left
    }

    /// Where nothing is left, edges are zero; whether there were any.
    fn prune(&mut self) -> bool {
        let left = self.left();
        let unknown = (0..self.edges.len()).filter(|e| self.edge_counts[*e].is_none());
        let zero: Vec<usize> = unknown
            .filter(|e| self.ends(*e).into_iter().flatten().any(|end| left[end] <= 0))
            .collect();
        for edge in &zero {
            self.edge_counts[*edge] = Some(0);
        }
        !zero.is_empty()
    }

    /// Finds bridges (R. Tarjan, A Note on Finding the Bridges of a Graph, 1974) and what goes
    /// over them; whether there were any.
    fn cross_bridges(&mut self) -> bool {
        let outside = 2 * self.block_counts.len();
        let mut at: Vec<Vec<(usize, usize)>> = vec![Vec::new(); outside + 1];
        for edge in (0..self.edges.len()).filter(|e| self.edge_counts[*e].is_none()) {
            let [a, b] = self.ends(edge).map(|end| end.unwrap_or(outside));
            at[a].push((edge, b));
            at[b].push((edge, a));
        }
        // Signed by direction, what lies inside of a part cancels out.
        let mut sum = self.left();
        sum.iter_mut().skip(1).step_by(2).for_each(|s| *s = -*s);
        sum.push(0);
        const UNSEEN: usize = usize::MAX;
        let mut number = vec![UNSEEN; outside + 1];
        let mut low = number.clone();
        let mut next = 0;
        let mut found = Vec::new();
        // From outside first: then no part behind a bridge has it inside.
        for root in std::iter::once(outside).chain(0..outside) {
            if number[root] != UNSEEN {
                continue;
            }
            let mut stack = vec![(root, usize::MAX, 0)];
            while let Some((node, through, child)) = stack.pop() {
                if child == 0 {
                    (number[node], low[node]) = (next, next);
                    next += 1;
                }
                if let Some((edge, to)) = at[node].get(child).copied() {
                    stack.push((node, through, child + 1));
                    if edge != through && number[to] == UNSEEN {
                        stack.push((to, edge, 0));
                    } else if edge != through {
                        low[node] = low[node].min(number[to]);
                    }
                    continue;
                }
                let Some((parent, ..)) = stack.last().copied() else { continue };
                low[parent] = low[parent].min(low[node]);
                sum[parent] += sum[node];
                if low[node] == number[node] {
                    // It counts for the way out that is inside, and against the way in.
                    let leads_out = self.ends(through)[0] == Some(node);
                    found.push((through, if leads_out { sum[node] } else { -sum[node] }));
                }
            }
        }
        for (edge, count) in &found {
            self.inconsistent |= *count < 0;
            self.edge_counts[*edge] = Some((*count).max(0) as u64);
        }
        !found.is_empty()
    }

    /// Shares what is left out among the edges that nothing else is known of, so that sums come
    /// out as nearly as a few rounds of scaling bring them.
    fn estimate(&mut self) {
        let left = self.left();
        let unknown: Vec<usize> =
            (0..self.edges.len()).filter(|e| self.edge_counts[*e].is_none()).collect();
        let bound = |edge: usize| {
            let ends = self.ends(edge).into_iter().flatten();
            ends.map(|end| left[end].max(0) as f64).reduce(f64::min).unwrap_or(0.0)
        };
        let mut counts: Vec<f64> = unknown.iter().map(|e| bound(*e)).collect();
        for side in [0, 1].repeat(8) {
            let mut sums = vec![0.0; left.len()];
            let ends: Vec<Option<usize>> = unknown.iter().map(|e| self.ends(*e)[side]).collect();
            for (end, count) in ends.iter().zip(&counts) {
                if let Some(end) = end {
                    sums[*end] += count;
                }
            }
            for (end, count) in ends.iter().zip(&mut counts) {
                if let Some(end) = end.filter(|end| sums[*end] > 0.0) {
                    *count *= left[end].max(0) as f64 / sums[end];
                }
            }
        }
        for (edge, count) in unknown.into_iter().zip(counts) {
            self.edge_counts[edge] = Some(count.round() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: i32, to: i32) -> Edge {
        let node = |n: i32| u32::try_from(n).ok().map(BlockId);
        Edge { from: node(from), to: node(to) }
    }

    #[test]
    fn a_diamond_in_a_loop() {
        // Outside to 0; 0 to 1 or 2; both to 3; 3 back to 0 or out.
        let edges =
            [edge(-1, 0), edge(0, 1), edge(0, 2), edge(1, 3), edge(2, 3), edge(3, 0), edge(3, -1)];
        let counts = [3, 70, 33, 70, 33, 100, 3];
        for known in [vec![0, 1, 5], vec![6, 4, 5], vec![0, 2, 5]] {
            let mut flow = Flow::new(&edges, 4);
            for i in known {
                flow.edge_counts[i] = Some(counts[i]);
            }
            flow.solve();
            assert_eq!(flow.edge_counts, counts.map(Some));
            assert_eq!(flow.block_counts, [103, 70, 33, 103].map(Some));
            assert!(!flow.inconsistent);
        }
        // Blocks tell as much here.
        let mut flow = Flow::new(&edges, 4);
        flow.block_counts = [103, 70, 33, 103].map(Some).to_vec();
        flow.edge_counts[0] = Some(3);
        flow.solve();
        assert_eq!(flow.edge_counts, counts.map(Some));
    }

    #[test]
    fn a_call_that_was_left() {
        // Ten came, four went on to the end: the rest left by an exception.
        let edges = [edge(-1, 0), edge(0, 1), edge(0, -1), edge(1, -1)];
        let mut flow = Flow::new(&edges, 2);
        flow.edge_counts[0] = Some(4);
        flow.edge_counts[1] = Some(10);
        flow.solve();
        assert!(flow.inconsistent);
        assert_eq!(flow.edge_counts[2], Some(0));
    }
}
