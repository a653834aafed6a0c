//! From counters to counts of blocks and edges.

use fettle_cfg::edges::{Edge, Flow, Place};
use fettle_image::LinkAddr;
use fettle_rewrite::PlannedFunction;
use fettle_trace::{Counter, CounterKind};

/// Appends what the counters of one function tell; `count` gives each counter's value. False if control was seen to
/// leave a block in the middle, so that counts do not add up.
pub fn rows(
    function: u32,
    planned: &PlannedFunction,
    count: impl Fn(usize) -> u64,
    rows: &mut Vec<Counter>,
) -> bool {
    let edges: Vec<Edge> = planned.edges.iter().map(|e| e.0).collect();
    let mut flow = Flow::new(&edges, planned.blocks.len());
    for (k, place) in planned.counters.1.iter().enumerate() {
        if let Place::Block(block) = place {
            flow.block_counts[block.index()] = Some(count(k));
        }
        for (i, (_, at)) in planned.edges.iter().enumerate() {
            if at == &Some(*place) {
                flow.edge_counts[i] = Some(count(k));
            }
        }
    }
    flow.solve();
    let row = |kind, from: LinkAddr, to: Option<LinkAddr>, count| Counter {
        thread: None,
        function,
        kind,
        from_address: from.0,
        to_address: to.map(|to| to.0),
        count,
    };
    let counted = planned.blocks.iter().zip(&flow.block_counts);
    rows.extend(
        counted.filter_map(|(block, count)| Some(row(CounterKind::Block, *block, None, (*count)?))),
    );
    let inside = edges.iter().zip(&flow.edge_counts);
    rows.extend(inside.filter_map(|(edge, count)| {
        let (from, to) = (edge.from?, edge.to?);
        let (from, to) = (planned.blocks[from.index()], planned.blocks[to.index()]);
        Some(row(CounterKind::Edge, from, Some(to), (*count)?))
    }));
    !flow.inconsistent
}
