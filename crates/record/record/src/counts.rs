//! From counters to counts of blocks and edges.

use fettle_lift::BlockId;
use fettle_lift::edges::{Edge, Flow, Place};
use fettle_rewrite::PlannedFunction;
use fettle_trace::{Counter, CounterKind};
use fettle_types::FunctionIndex;
use serde::{Deserialize, Serialize};

/// Where the counters of a function stand.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Each block's address, and its counter if it has one.
    blocks: Vec<(u64, Option<u32>)>,
    edges: Vec<CountedEdge>,
}

/// Between two blocks, or a block and the outside.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct CountedEdge {
    from: Option<u32>,
    to: Option<u32>,
    counter: Option<u32>,
}

impl Counted {
    /// How many counters there are.
    pub fn counters(&self) -> usize {
        let of_blocks = self.blocks.iter().filter_map(|(_, counter)| *counter);
        let all = of_blocks.chain(self.edges.iter().filter_map(|e| e.counter));
        all.max().map_or(0, |last| last as usize + 1)
    }

    /// Where the counters of `planned` stand.
    pub fn of(planned: &PlannedFunction) -> Counted {
        let places = &planned.counters.1;
        // In order, by which the checker looks them up as well.
        let counter = |at: Place| places.binary_search(&at).ok().map(|k| k as u32);
        let number = |block: BlockId| block.index() as u32;
        Counted {
            blocks: (0..planned.blocks.len())
                .map(|i| (planned.blocks[i].0, counter(Place::Block(BlockId(i as u32)))))
                .collect(),
            edges: planned
                .edges
                .iter()
                .map(|(edge, at)| CountedEdge {
                    from: edge.from.map(number),
                    to: edge.to.map(number),
                    counter: at.and_then(counter),
                })
                .collect(),
        }
    }
}

/// Appends what the counters of one function say; `count` gives each counter's value. False if control
/// was seen to leave a block in the middle, so that counts do not add up.
pub fn rows(
    function: FunctionIndex,
    counted: &Counted,
    count: impl Fn(usize) -> u64,
    rows: &mut Vec<Counter>,
) -> bool {
    let blocks = counted.blocks.len();
    let node = |block: Option<u32>| match block.map(|b| b as usize) {
        Some(block) if block >= blocks => Err(()),
        block => Ok(block.map(|b| BlockId(b as u32))),
    };
    let edges: Result<Vec<Edge>, ()> =
        counted.edges.iter().map(|e| Ok(Edge { from: node(e.from)?, to: node(e.to)? })).collect();
    let Ok(edges) = edges else { return false };
    let value = |counter: Option<u32>| counter.map(|k| count(k as usize));
    let mut flow = Flow::new(&edges, blocks);
    for (i, (_, counter)) in counted.blocks.iter().enumerate() {
        flow.block_counts[i] = value(*counter);
    }
    for (i, edge) in counted.edges.iter().enumerate() {
        flow.edge_counts[i] = value(edge.counter);
    }
    flow.solve();
    let row = |kind, from_address, to_address, count| Counter {
        thread: None,
        function,
        kind,
        from_address,
        to_address,
        count,
    };
    let of_blocks = counted.blocks.iter().zip(&flow.block_counts);
    rows.extend(
        of_blocks.filter_map(|((block, _), count)| {
            Some(row(CounterKind::Block, *block, None, (*count)?))
        }),
    );
    let inside = edges.iter().zip(&flow.edge_counts);
    rows.extend(inside.filter_map(|(edge, count)| {
        let at = |block: BlockId| counted.blocks[block.index()].0;
        let (from, to) = (at(edge.from?), at(edge.to?));
        Some(row(CounterKind::Edge, from, Some(to), (*count)?))
    }));
    !flow.inconsistent
}
