//! Chains of blocks by the extended travelling salesman objective ([`crate::score`]).
//!
//! Every block starts as a chain. Then always the two chains with the largest gain are merged; the
//! first may be split for that, and the other put in between (A. Newell and S. Pupyrev).

use crate::score::{Graph, worth};

/// Chains longer than this are not split: it would take long and gain little.
const CUT_MAX: usize = 96;

/// A chain of blocks.
#[derive(Default)]
struct Chain {
    blocks: Vec<usize>,
    score: f64,
    /// Edges that touch it, as indices.
    ways: Vec<usize>,
}

/// The best merger of a pair of chains.
#[derive(Clone)]
struct Merger {
    gain: f64,
    blocks: Vec<usize>,
}

struct Merging<'a> {
    graph: &'a Graph,
    head: usize,
    chains: Vec<Chain>,
    of: Vec<usize>,
    /// Where blocks start, of the order that is tried.
    at: Vec<u64>,
}

/// The order of all blocks of `graph`, with `head` in front.
pub fn ext_tsp(graph: &Graph, head: usize) -> Vec<usize> {
    let blocks = graph.sizes.len();
    let mut merging = Merging {
        graph,
        head,
        chains: (0..blocks).map(|b| Chain { blocks: vec![b], ..Chain::default() }).collect(),
        of: (0..blocks).collect(),
        at: vec![u64::MAX; blocks],
    };
    for (i, (from, to, count)) in graph.ways.iter().enumerate() {
        if *count > 0 {
            merging.chains[*from].ways.push(i);
            if from != to {
                merging.chains[*to].ways.push(i);
            }
        }
    }
    for c in 0..blocks {
        merging.chains[c].score = merging.score(&[c], &merging.chains[c].ways.clone());
    }
    merging.run();
    merging.concatenate()
}

impl Merging<'_> {
    fn run(&mut self) {
        let mut mergers: std::collections::BTreeMap<(usize, usize), Merger> = Default::default();
        let mut changed: Vec<usize> = (0..self.chains.len()).collect();
        loop {
            for chain in changed.drain(..) {
                for other in self.neighbours(chain) {
                    let pair = (chain.min(other), chain.max(other));
                    if let Some(merger) = self.best(pair.0, pair.1) {
                        mergers.insert(pair, merger);
                    } else {
                        mergers.remove(&pair);
                    }
                }
            }
            let best =
                mergers.iter().max_by(|a, b| a.1.gain.total_cmp(&b.1.gain).then(b.0.cmp(a.0)));
            let Some(((a, b), merger)) = best.map(|(pair, m)| (*pair, m.clone())) else { return };
            mergers.retain(|(x, y), _| ![*x, *y].iter().any(|c| *c == a || *c == b));
            let gone = std::mem::take(&mut self.chains[b]);
            let chain = &mut self.chains[a];
            chain.score += gone.score + merger.gain;
            chain.blocks = merger.blocks;
            chain.ways.extend(gone.ways);
            chain.ways.sort_unstable();
            chain.ways.dedup();
            for block in &gone.blocks {
                self.of[*block] = a;
            }
            changed.push(a);
        }
    }

    fn neighbours(&self, chain: usize) -> Vec<usize> {
        let ways = self.chains[chain].ways.iter().map(|i| self.graph.ways[*i]);
        let mut all: Vec<usize> =
            ways.flat_map(|(from, to, _)| [self.of[from], self.of[to]]).collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|c| *c != chain);
        all
    }

    /// The best way to merge `a` and `b` that is better than two chains.
    fn best(&mut self, a: usize, b: usize) -> Option<Merger> {
        let mut ways = [self.chains[a].ways.as_slice(), &self.chains[b].ways].concat();
        ways.sort_unstable();
        ways.dedup();
        ways.retain(|i| {
            let (from, to, _) = self.graph.ways[*i];
            [a, b].contains(&self.of[from]) && [a, b].contains(&self.of[to])
        });
        let before = self.chains[a].score + self.chains[b].score;
        let mut best: Option<Merger> = None;
        let mut order = Vec::new();
        for (whole, cut) in [(a, b), (b, a)] {
            let len = self.chains[cut].blocks.len();
            let cuts = if len <= CUT_MAX { 0..len } else { 0..1 };
            for at in cuts {
                for form in 0..3 {
                    let (x, y) = (&self.chains[cut].blocks, &self.chains[whole].blocks);
                    let (x1, x2) = x.split_at(at);
                    order.clear();
                    // Where nothing is cut off the three forms are two.
                    match form {
                        0 => order.extend(x1.iter().chain(y).chain(x2)),
                        1 if at > 0 => order.extend(y.iter().chain(x2).chain(x1)),
                        2 if at > 0 => order.extend(x2.iter().chain(x1).chain(y)),
                        _ => continue,
                    }
                    let head = order.iter().position(|b| *b == self.head);
                    if head.is_some_and(|h| h > 0) {
                        continue;
                    }
                    let gain = self.score(&order, &ways) - before;
                    if gain > 1e-9 && best.as_ref().is_none_or(|m| gain > m.gain + 1e-9) {
                        best = Some(Merger { gain, blocks: order.clone() });
                    }
                }
            }
        }
        best
    }

    fn score(&mut self, order: &[usize], ways: &[usize]) -> f64 {
        let mut end = 0;
        for block in order {
            self.at[*block] = end;
            end += self.graph.sizes[*block];
        }
        let mut score = 0.0;
        for i in ways {
            let (from, to, count) = self.graph.ways[*i];
            if self.at[from] != u64::MAX && self.at[to] != u64::MAX {
                let from_end = self.at[from] + self.graph.sizes[from];
                score += worth(from_end, self.at[to]) * count as f64;
            }
        }
        for block in order {
            self.at[*block] = u64::MAX;
        }
        score
    }

    /// The chain of the head, then the others by density.
    fn concatenate(self) -> Vec<usize> {
        let mut heat = vec![0u64; self.graph.sizes.len()];
        for (_, to, count) in &self.graph.ways {
            heat[*to] += count;
        }
        let density = |chain: &Chain| {
            let size: u64 = chain.blocks.iter().map(|b| self.graph.sizes[*b]).sum();
            let heat: u64 = chain.blocks.iter().map(|b| heat[*b]).sum();
            heat as f64 / size.max(1) as f64
        };
        let head = self.of[self.head];
        let mut chains: Vec<(usize, &Chain)> =
            self.chains.iter().enumerate().filter(|(_, c)| !c.blocks.is_empty()).collect();
        chains.sort_by(|a, b| {
            (b.0 == head)
                .cmp(&(a.0 == head))
                .then(density(b.1).total_cmp(&density(a.1)))
                .then(a.0.cmp(&b.0))
        });
        chains.into_iter().flat_map(|(_, c)| c.blocks.iter().copied()).collect()
    }
}
