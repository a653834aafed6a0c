//! From samples of program counters to counts of blocks and edges.

use fettle_lift::edges::{Edge, EdgeGraph};
use fettle_lift::{BlockId, Function};

use crate::circulation::{Circulation, Sight};
use crate::lifted::Counts;

/// A taken jump costs so much more than falling through, where samples do not decide: as compilers
/// lay code out, falling through is the better guess. So it is with exception handlers.
const JUMP: u64 = 1;
const HANDLER: u64 = 100;
/// Larger functions are not worth the search for the flow that fits their samples.
const MOST_BLOCKS: usize = 20_000;

/// The counts that the samples of a function stand for: `looks` samples of each of its blocks, each
/// for so many instructions that ran.
pub fn counts(function: &Function, looks: &[u64], insns: u64) -> Counts {
    let start = |block: usize| function.blocks[block].start;
    let sight = |(block, looks): (usize, &u64)| {
        let range = &function.blocks[block].insns;
        let own = range.end - range.start;
        Sight { count: looks.saturating_mul(insns) / u64::from(own.max(1)), weight: own }
    };
    let sights: Vec<Sight> = looks.iter().enumerate().map(sight).collect();
    let mut counts = Counts { estimated: true, ..Counts::default() };
    if sights.len() > MOST_BLOCKS {
        counts.blocks = sights.iter().enumerate().map(|(b, s)| (start(b), s.count)).collect();
        return counts;
    }
    let edges: Vec<(Edge, u64)> =
        EdgeGraph::new(function).edges.into_iter().map(|e| (e, cost(function, e))).collect();
    let found = Circulation::nearest(&edges, &sights);
    counts.blocks = found.blocks.iter().enumerate().map(|(b, count)| (start(b), *count)).collect();
    let inside = edges.iter().zip(&found.edges).filter_map(|((edge, _), count)| {
        Some(((start(edge.from?.index()), start(edge.to?.index())), *count))
    });
    counts.edges = inside.collect();
    counts
}

fn cost(function: &Function, edge: Edge) -> u64 {
    let falls = |from: BlockId| {
        let block = &function.blocks[from.index()];
        block.falls_through.then(|| block.succs[0])
    };
    match (edge.from, edge.to) {
        (Some(from), to @ Some(_)) if falls(from) == to => 0,
        (None, Some(to)) if to != function.entry_block() => HANDLER,
        (None, _) => 0,
        _ => JUMP,
    }
}
