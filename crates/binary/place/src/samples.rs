//! From samples of program counters to counts of blocks and edges.

use fettle_lift::edges::{Edge, EdgeGraph};
use fettle_lift::{BlockId, Function};

use crate::lifted::Counts;
use crate::min_cost_flow::{InferredCounts, SampledCount};

/// A taken jump costs so much more than falling through, where samples do not decide: as compilers
/// lay code out, falling through is the better guess. So it is with exception handlers.
const JUMP: u64 = 1;
const HANDLER: u64 = 100;
/// Larger functions are not worth the search for the flow that fits their samples.
const MOST_BLOCKS: usize = 20_000;

/// The counts that the samples of a function stand for: `samples` samples of each of its blocks, each
/// for so many instructions that ran.
pub fn counts(function: &Function, samples: &[u64], insns: u64) -> Counts {
    let start = |block: usize| function.blocks[block].start;
    let sampled_count = |(block, samples): (usize, &u64)| {
        let range = &function.blocks[block].insns;
        let own = range.end - range.start;
        SampledCount { count: samples.saturating_mul(insns) / u64::from(own.max(1)), weight: own }
    };
    let sampled_counts: Vec<SampledCount> = samples.iter().enumerate().map(sampled_count).collect();
    let mut counts = Counts { estimated: true, ..Counts::default() };
    if sampled_counts.len() > MOST_BLOCKS {
        counts.blocks =
            sampled_counts.iter().enumerate().map(|(b, s)| (start(b), s.count)).collect();
        return counts;
    }
    let edges: Vec<(Edge, u64)> =
        EdgeGraph::new(function).edges.into_iter().map(|e| (e, cost(function, e))).collect();
    let found = InferredCounts::nearest(&edges, &sampled_counts);
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
