//! Chains of blocks as K. Pettis and R. Hansen make them (Profile Guided Code Positioning, PLDI
//! 1990): edges between blocks in order of weight, each of which joins two chains if it leads from
//! the end of one to the start of the other.

use crate::score::Graph;

/// The chains of all blocks, in order of weight; that of `head`, which stays in front, first.
pub fn pettis_hansen(graph: &Graph, head: usize) -> Vec<Vec<usize>> {
    let blocks = graph.sizes.len();
    let mut chains: Vec<Vec<usize>> = (0..blocks).map(|b| vec![b]).collect();
    let mut of: Vec<usize> = (0..blocks).collect();
    let mut ways = graph.ways.clone();
    ways.sort_by(|a, b| b.2.cmp(&a.2).then(a.cmp(b)));
    for (from, to, count) in ways {
        let (a, b) = (of[from], of[to]);
        let joins = chains[a].last() == Some(&from) && chains[b].first() == Some(&to);
        if count == 0 || a == b || to == head || !joins {
            continue;
        }
        let tail = std::mem::take(&mut chains[b]);
        for block in &tail {
            of[*block] = a;
        }
        chains[a].extend(tail);
    }
    let first = of[head];
    by_precedence(graph, chains, first)
}

/// The chain `first`, then always the one that those before it lead to most often.
fn by_precedence(graph: &Graph, chains: Vec<Vec<usize>>, first: usize) -> Vec<Vec<usize>> {
    let mut of = vec![0; graph.sizes.len()];
    for (c, chain) in chains.iter().enumerate() {
        for block in chain {
            of[*block] = c;
        }
    }
    let mut into: Vec<Vec<(usize, u64)>> = vec![Vec::new(); chains.len()];
    for (from, to, count) in &graph.ways {
        if of[*from] != of[*to] {
            into[of[*from]].push((of[*to], *count));
        }
    }
    let mut waiting: Vec<bool> = chains.iter().map(|c| !c.is_empty()).collect();
    let mut weight = vec![0u64; chains.len()];
    let mut order = Vec::new();
    let mut next = Some(first);
    while let Some(chain) = next {
        waiting[chain] = false;
        order.push(chain);
        for (to, count) in &into[chain] {
            weight[*to] += count;
        }
        next = (0..chains.len()).filter(|c| waiting[*c]).max_by_key(|c| (weight[*c], !*c));
    }
    let mut chains = chains;
    order.into_iter().map(|c| std::mem::take(&mut chains[c])).collect()
}
