//! Min-cost-flow profile inference: execution counts that agree with each other and are nearest to
//! samples.
//!
//! Samples of threads' program counters say of some blocks that they ran, roughly how often, and
//! nothing of edges. A block is entered as often as it is left. The flow that obeys this and
//! departs from the samples at the least cost is a minimum-cost one (R. Levin, I. Newman and
//! G. Haber, HiPEAC 2008). It is found by successive shortest paths.
//!
//! An additional execution of a block costs as much as the block has instructions: so many samples
//! would have hit it. One execution less costs twice that: what was sampled did run, what was not
//! may have.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fettle_lift::BlockId;
use fettle_lift::edges::Edge;

/// The samples of a block.
#[derive(Clone, Copy, Debug)]
pub struct SampledCount {
    /// Executions, by the samples.
    pub count: u64,
    /// The cost of an additional execution, and half of that of one less: its instructions.
    pub weight: u32,
}

/// Execution counts that agree with each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferredCounts {
    /// Of blocks.
    pub blocks: Vec<u64>,
    /// Of edges.
    pub edges: Vec<u64>,
}

const MUCH: u64 = u64::MAX / 4;

impl InferredCounts {
    /// The flow nearest to the samples of `blocks`, with the cost of each execution of an edge: of
    /// flows that fit equally well, the cheapest is taken.
    pub fn nearest(edges: &[(Edge, u64)], blocks: &[SampledCount]) -> InferredCounts {
        let mut network = Network::new(2 * blocks.len() + 1);
        let outside = 2 * blocks.len();
        for (b, sampled_count) in blocks.iter().enumerate() {
            let (way_in, way_out) = (2 * b, 2 * b + 1);
            let cost = u64::from(sampled_count.weight.max(1));
            network.add(way_in, way_out, MUCH, cost);
            network.add(way_out, way_in, sampled_count.count, 2 * cost);
            network.excess[way_out] += sampled_count.count as i64;
            network.excess[way_in] -= sampled_count.count as i64;
        }
        for (edge, cost) in edges {
            let from = edge.from.map_or(outside, |b| 2 * b.index() + 1);
            let to = edge.to.map_or(outside, |b| 2 * b.index());
            network.add(from, to, MUCH, *cost);
        }
        network.settle();
        let block = |(b, sampled_count): (usize, &SampledCount)| {
            sampled_count.count + network.flow(2 * b) - network.flow(2 * b + 1)
        };
        let mut found = InferredCounts {
            blocks: blocks.iter().enumerate().map(block).collect(),
            edges: (0..edges.len()).map(|e| network.flow(2 * blocks.len() + e)).collect(),
        };
        found.connect(edges);
        found
    }

    /// Has every block that runs be reached from outside: a loop of which only iterations were
    /// sampled was entered, and left, once at least.
    fn connect(&mut self, edges: &[(Edge, u64)]) {
        let outside = self.blocks.len();
        let node = |n: Option<BlockId>| n.map_or(outside, BlockId::index);
        let ends = edges.iter().map(|(edge, _)| (node(edge.from), node(edge.to))).collect();
        let ways = Ways::new(ends, outside + 1);
        let mut reached = ways.from(outside, |edge| self.edges[edge] > 0);
        for block in 0..outside {
            if self.blocks[block] == 0 || reached[block].is_some() {
                continue;
            }
            let there = ways.path(outside, block);
            let Some((there, back)) = there.zip(ways.path(block, outside)) else { continue };
            for edge in there.into_iter().chain(back) {
                self.edges[edge] += 1;
                if let Some(count) = self.blocks.get_mut(ways.ends[edge].1) {
                    *count += 1;
                }
            }
            reached = ways.from(outside, |edge| self.edges[edge] > 0);
        }
    }
}

/// Edges between nodes.
struct Ways {
    ends: Vec<(usize, usize)>,
    /// The edges that leave each node.
    out: Vec<Vec<usize>>,
}

impl Ways {
    fn new(ends: Vec<(usize, usize)>, nodes: usize) -> Ways {
        let mut out = vec![Vec::new(); nodes];
        ends.iter().enumerate().for_each(|(edge, (from, _))| out[*from].push(edge));
        Ways { ends, out }
    }

    /// The edge by which each node is first reached from one of them; none for that one itself.
    fn from(&self, start: usize, open: impl Fn(usize) -> bool) -> Vec<Option<usize>> {
        let mut by = vec![None; self.out.len()];
        by[start] = Some(usize::MAX);
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for edge in self.out[node].iter().copied().filter(|edge| open(*edge)) {
                let to = self.ends[edge].1;
                if by[to].is_none() {
                    by[to] = Some(edge);
                    queue.push_back(to);
                }
            }
        }
        by
    }

    /// The edges of a shortest path, the last first.
    fn path(&self, start: usize, end: usize) -> Option<Vec<usize>> {
        let by = self.from(start, |_| true);
        let mut path = Vec::new();
        let mut at = end;
        while at != start {
            let edge = by[at]?;
            path.push(edge);
            at = self.ends[edge].0;
        }
        Some(path)
    }
}

/// Arcs with capacity for flow, which is sent from nodes with excess to nodes with deficit.
struct Network {
    arcs: Vec<Arc>,
    /// The arcs that leave each node; the opposite of an arc differs from it in the last bit.
    out: Vec<Vec<u32>>,
    excess: Vec<i64>,
    /// Node potentials: how much nearer each node was to where searches ended than the farthest
    /// one. With their difference included, no arc with capacity has a negative cost (J. Edmonds,
    /// R. Karp, 1972).
    nearness: Vec<u64>,
}

struct Arc {
    to: u32,
    room: u64,
    cost: i64,
}

/// The result of one search.
struct Search {
    distance: Vec<u64>,
    /// The arc by which a node was reached.
    by: Vec<u32>,
    /// The nodes whose distance is final.
    settled: Vec<u32>,
    end: usize,
}

impl Network {
    fn new(nodes: usize) -> Network {
        let out = vec![Vec::new(); nodes];
        Network { arcs: Vec::new(), out, excess: vec![0; nodes], nearness: vec![0; nodes] }
    }

    fn add(&mut self, from: usize, to: usize, room: u64, cost: u64) {
        self.out[from].push(self.arcs.len() as u32);
        self.arcs.push(Arc { to: to as u32, room, cost: cost as i64 });
        self.out[to].push(self.arcs.len() as u32);
        self.arcs.push(Arc { to: from as u32, room: 0, cost: -(cost as i64) });
    }

    /// The flow through the arc that was added as this one.
    fn flow(&self, added: usize) -> u64 {
        self.arcs[2 * added + 1].room
    }

    /// Sends flow from nodes with excess to nodes with deficit.
    fn settle(&mut self) {
        let nodes = self.out.len();
        let mut search = Search {
            distance: vec![u64::MAX; nodes],
            by: vec![0; nodes],
            settled: Vec::new(),
            end: 0,
        };
        for start in 0..nodes {
            while self.excess[start] > 0 && self.search(start, &mut search) {
                self.push(start, search.end, &search.by);
            }
        }
    }

    /// Looks for the nearest node with a deficit (E. Dijkstra, 1959); false if there is none.
    fn search(&mut self, start: usize, search: &mut Search) -> bool {
        search.distance.fill(u64::MAX);
        search.settled.clear();
        search.distance[start] = 0;
        let mut next = BinaryHeap::from([Reverse((0u64, start))]);
        while let Some(Reverse((distance, node))) = next.pop() {
            if distance > search.distance[node] {
                continue;
            }
            search.settled.push(node as u32);
            if self.excess[node] < 0 {
                for node in &search.settled {
                    let node = *node as usize;
                    self.nearness[node] += distance - search.distance[node];
                }
                search.end = node;
                return true;
            }
            for at in &self.out[node] {
                let arc = &self.arcs[*at as usize];
                let to = arc.to as usize;
                if arc.room == 0 {
                    continue;
                }
                let reduced = arc.cost + self.nearness[to] as i64 - self.nearness[node] as i64;
                debug_assert!(reduced >= 0);
                let further = distance + reduced.max(0) as u64;
                if further < search.distance[to] {
                    search.distance[to] = further;
                    search.by[to] = *at;
                    next.push(Reverse((further, to)));
                }
            }
        }
        false
    }

    fn push(&mut self, start: usize, end: usize, by: &[u32]) {
        let mut amount = self.excess[start].min(-self.excess[end]) as u64;
        let mut arcs = Vec::new();
        let mut node = end;
        while node != start {
            let arc = by[node] as usize;
            amount = amount.min(self.arcs[arc].room);
            arcs.push(arc);
            node = self.arcs[arc ^ 1].to as usize;
        }
        for arc in arcs {
            self.arcs[arc].room -= amount;
            self.arcs[arc ^ 1].room += amount;
        }
        self.excess[start] -= amount as i64;
        self.excess[end] += amount as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges between blocks by number, where one number beyond all is outside; each with its cost.
    fn edges(blocks: usize, ends: &[(usize, usize, u64)]) -> Vec<(Edge, u64)> {
        let node = |n: usize| (n < blocks).then_some(BlockId(n as u32));
        ends.iter()
            .map(|(from, to, cost)| (Edge { from: node(*from), to: node(*to) }, *cost))
            .collect()
    }

    fn nearest(ends: &[(usize, usize, u64)], seen: &[(u64, u32)]) -> InferredCounts {
        let sampled_counts: Vec<SampledCount> = seen
            .iter()
            .map(|(count, insns)| SampledCount { count: *count, weight: *insns })
            .collect();
        let found = InferredCounts::nearest(&edges(seen.len(), ends), &sampled_counts);
        for block in 0..seen.len() {
            let sum = |side: fn(&(usize, usize, u64)) -> usize| -> u64 {
                let counts = ends.iter().zip(&found.edges);
                counts.filter(|(ends, _)| side(ends) == block).map(|(_, count)| count).sum()
            };
            let ran = found.blocks[block];
            assert_eq!((sum(|e| e.1), sum(|e| e.0)), (ran, ran), "block {block} of {found:?}");
        }
        found
    }

    #[test]
    fn what_was_seen_and_agrees_stays() {
        // A branch whose arms join again.
        let ends = [(4, 0, 0), (0, 1, 0), (0, 2, 1), (1, 3, 1), (2, 3, 0), (3, 4, 0)];
        let found = nearest(&ends, &[(100, 5), (70, 5), (30, 5), (100, 5)]);
        assert_eq!(found.edges, [100, 70, 30, 70, 30, 100]);
    }

    #[test]
    fn what_was_not_seen_is_filled_in_and_noise_evened_out() {
        let ends = [(4, 0, 0), (0, 1, 0), (0, 2, 1), (1, 3, 1), (2, 3, 0), (3, 4, 0)];
        // A short block between sampled ones must have run; the branch without samples has not.
        let found = nearest(&ends, &[(100, 9), (0, 1), (0, 7), (90, 9)]);
        assert_eq!(found.edges, [100, 100, 0, 100, 0, 100]);
        // Of one block only iterations are known.
        let ends = [(3, 0, 0), (0, 1, 0), (1, 1, 1), (1, 2, 0), (2, 3, 0)];
        let found = nearest(&ends, &[(0, 20), (1000, 3), (0, 20)]);
        assert_eq!((found.blocks[0], found.edges[2]), (1, 1000));
        assert_eq!(found.blocks[1], 1001);
    }

    #[test]
    fn what_nothing_leads_to_is_left() {
        assert_eq!(nearest(&[(2, 0, 0), (0, 2, 0)], &[(7, 1), (5, 1)]).blocks, [7, 0]);
        assert_eq!(InferredCounts::nearest(&[], &[]), InferredCounts::default());
    }

    /// Graphs of all kinds: execution counts always agree with each other, which [`nearest`]
    /// asserts, and none is further from the samples than no executions at all would be.
    #[test]
    fn any_graph_has_one() {
        let mut state = 1795u64;
        let mut random = move |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..300 {
            let blocks = 1 + random(24);
            let mut ends = vec![(blocks, 0, 0)];
            for block in 0..blocks {
                ends.extend((0..random(4)).map(|_| (block, random(blocks + 1), random(3) as u64)));
            }
            ends.sort_unstable();
            ends.dedup_by_key(|(from, to, _)| (*from, *to));
            let seen: Vec<(u64, u32)> = (0..blocks)
                .map(|_| (random(5) as u64 * random(1000) as u64, 1 + random(9) as u32))
                .collect();
            let found = nearest(&ends, &seen);
            let cost: u64 = seen
                .iter()
                .zip(&found.blocks)
                .map(|((count, insns), ran)| {
                    u64::from(*insns) * if ran < count { 2 * (count - ran) } else { ran - count }
                })
                .sum();
            let nothing: u64 =
                seen.iter().map(|(count, insns)| 2 * count * u64::from(*insns)).sum();
            // The cost of connecting loops with the outside is added.
            let connected = 10 * blocks as u64 * 2 * blocks as u64;
            assert!(cost <= nothing + connected, "{ends:?} {seen:?}: {found:?}");
        }
    }
}
