//! An interval of time: which function called which, and which took the time.
//!
//! Calls count with the part of their duration that lies in the range. The call tree of a thread
//! is found by walking its tracks together: the calls that a call made are those of the next depth
//! that begin before it ends.

use rustc_hash::FxHashMap;

use crate::timelines::{Timeline, Timelines};
use crate::track::{Span, Track};

/// Distinct chains of callers at most; further ones count for their caller.
const NODES_MAX: usize = 1 << 20;

/// Number of a node in a tree.
type NodeId = u32;

/// All calls of one function by one chain of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The caller's node, always a smaller number; the root is its own.
    pub parent: NodeId,
    /// Function.
    pub label: u32,
    /// Calls.
    pub calls: u64,
    /// Nanoseconds in the range, callees included.
    pub total_ns: u64,
    /// Nanoseconds of it in callees.
    pub in_callees_ns: u64,
}

/// One function's share of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Calls that have some time in the range.
    pub calls: u64,
    /// Nanoseconds in it, callees included; nested activations count each.
    pub total_ns: u64,
    /// Nanoseconds in it outside of recorded callees.
    pub self_ns: u64,
}

/// The call tree of a range.
#[derive(Debug)]
pub struct RangeTree {
    /// Nodes; the first is the root, which is no function.
    pub nodes: Vec<Node>,
    /// Calls of chains that were merged.
    pub folded: u64,
    children: FxHashMap<(NodeId, u32), NodeId>,
}

/// What of a recording is meant.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Beginning, nanoseconds of trace time.
    pub from_ns: u64,
    /// End, nanoseconds of trace time.
    pub to_ns: u64,
    /// Index of the only thread that is meant.
    pub thread: Option<u32>,
    /// Whether only time on a processor counts.
    pub cpu: bool,
}

impl RangeTree {
    /// The tree of a range.
    pub fn new(timelines: &Timelines, range: Range) -> RangeTree {
        let root = Node { parent: 0, label: u32::MAX, calls: 0, total_ns: 0, in_callees_ns: 0 };
        let mut tree = RangeTree { nodes: vec![root], folded: 0, children: FxHashMap::default() };
        for timeline in &timelines.threads {
            if range.thread.is_none_or(|index| index == timeline.thread.index) {
                tree.add(timeline, range);
            }
        }
        tree.nodes[0].total_ns = tree.nodes[0].in_callees_ns;
        tree
    }

    fn add(&mut self, timeline: &Timeline, range: Range) {
        let Range { from_ns, to_ns, .. } = range;
        // Where each depth is, and where it ends.
        let depths = timeline.depths.iter();
        let mut cursors: Vec<_> = depths.map(|track| track.between(from_ns, to_ns)).collect();
        // Calls around the next one: node and end.
        let mut open: Vec<(NodeId, u64)> = Vec::new();
        loop {
            // The next call is the first of the depth below the open ones, unless it begins after
            // the innermost ended: then that one is closed.
            let depth = open.len();
            let next = cursors.get(depth).and_then(|cursor| {
                let span = timeline.depths[depth].span(cursor.start)?;
                let within = open.last().is_none_or(|&(_, end_ns)| span.start_ns < end_ns);
                (!cursor.is_empty() && within).then_some(span)
            });
            let Some(span) = next else {
                if open.pop().is_none() {
                    return;
                }
                continue;
            };
            cursors[depth].start += 1;
            let parent = open.last().map_or(0, |&(node, _)| node);
            let weight = u64::from(span.weight);
            let ns = counted(timeline, span, range).saturating_mul(weight);
            let node = self.call(parent, span.label, weight, ns);
            open.push((node, span.end_ns()));
        }
    }

    /// Counts calls of a function under `parent`, and returns their node.
    fn call(&mut self, parent: NodeId, label: u32, calls: u64, ns: u64) -> NodeId {
        let next = self.nodes.len() as NodeId;
        let node = match self.children.get(&(parent, label)) {
            Some(&node) => node,
            None if self.nodes.len() >= NODES_MAX => {
                self.folded += calls;
                return parent;
            }
            None => {
                self.children.insert((parent, label), next);
                self.nodes.push(Node { parent, label, calls: 0, total_ns: 0, in_callees_ns: 0 });
                next
            }
        };
        let found = &mut self.nodes[node as usize];
        found.calls += calls;
        found.total_ns = found.total_ns.saturating_add(ns);
        let caller = &mut self.nodes[parent as usize];
        caller.in_callees_ns = caller.in_callees_ns.saturating_add(ns);
        node
    }

    /// What each function has of the range, by label.
    pub fn shares(&self) -> FxHashMap<u32, Share> {
        let mut shares: FxHashMap<u32, Share> = FxHashMap::default();
        for node in self.nodes.iter().skip(1) {
            let share = shares.entry(node.label).or_default();
            share.calls += node.calls;
            share.total_ns = share.total_ns.saturating_add(node.total_ns);
            let self_ns = node.total_ns.saturating_sub(node.in_callees_ns);
            share.self_ns = share.self_ns.saturating_add(self_ns);
        }
        shares
    }
}

/// Nanoseconds of a call that count.
fn counted(timeline: &Timeline, span: Span, range: Range) -> u64 {
    let start_ns = span.start_ns.max(range.from_ns);
    let end_ns = span.end_ns().min(range.to_ns).max(start_ns);
    let off_cpu_ns = match range.cpu {
        false => 0,
        true if end_ns - start_ns == span.duration_ns => span.off_cpu_ns,
        // The few calls that reach over an end of the range.
        true => off_cpu_between(&timeline.off_cpu, start_ns, end_ns),
    };
    (end_ns - start_ns).saturating_sub(off_cpu_ns)
}

fn off_cpu_between(track: &Track, from_ns: u64, to_ns: u64) -> u64 {
    let spans = track.between(from_ns, to_ns).filter_map(|at| track.span(at));
    spans
        .fold(0, |sum, span| sum + span.end_ns().min(to_ns) - span.start_ns.max(from_ns).min(to_ns))
}

#[cfg(test)]
mod tests {
    use fettle_trace::Thread;

    use super::*;

    /// A thread drawn in letters, a row per depth and a column per ten nanoseconds.
    fn drawn(rows: &[&str]) -> Timelines {
        let mut depths = Vec::new();
        for row in rows {
            let (mut track, mut at) = (Track::default(), 0);
            for run in row.as_bytes().chunk_by(|a, b| a == b) {
                let (start_ns, duration_ns) = (at * 10, run.len() as u64 * 10);
                if run[0] != b' ' {
                    let label = u32::from(run[0] - b'a');
                    track.push(Span { start_ns, duration_ns, label, weight: 1, off_cpu_ns: 0 });
                }
                at += run.len() as u64;
            }
            track.finish();
            depths.push(track);
        }
        let thread = Thread::default();
        let threads = vec![Timeline { depths, ..Timeline::new(thread) }];
        Timelines { threads, ..Timelines::default() }
    }

    /// Caller, function, calls, total and self time in tens of nanoseconds.
    fn rows(tree: &RangeTree) -> Vec<(u32, char, u64, u64, u64)> {
        let row = |node: &Node| {
            let own = node.total_ns - node.in_callees_ns;
            let name = char::from(b'a' + node.label as u8);
            (node.parent, name, node.calls, node.total_ns / 10, own / 10)
        };
        tree.nodes.iter().skip(1).map(row).collect()
    }

    const ALL: Range = Range { from_ns: 0, to_ns: u64::MAX, thread: None, cpu: false };

    const PROGRAM: [&str; 3] = [
        "aaaaaaaaaabbbbb aaaa", //
        " ccccddcc  ccc   dd ",
        "  d    d   d        ",
    ];

    #[test]
    fn the_whole() {
        let timelines = drawn(&PROGRAM);
        let tree = RangeTree::new(&timelines, ALL);
        assert_eq!(
            rows(&tree),
            [
                (0, 'a', 2, 14, 4),
                (1, 'c', 2, 6, 4),
                (2, 'd', 2, 2, 2),
                (1, 'd', 2, 4, 4),
                (0, 'b', 1, 5, 2),
                (5, 'c', 1, 3, 2),
                (6, 'd', 1, 1, 1),
            ]
        );
        assert_eq!(tree.nodes[0].total_ns, 190);
        let d = tree.shares()[&3];
        assert_eq!((d.calls, d.total_ns, d.self_ns), (5, 70, 70));
    }

    #[test]
    fn a_part_counts_what_lies_in_it() {
        let timelines = drawn(&PROGRAM);
        let tree = RangeTree::new(&timelines, Range { from_ns: 30, to_ns: 120, ..ALL });
        assert_eq!(
            rows(&tree),
            [
                (0, 'a', 1, 7, 1),
                (1, 'c', 2, 4, 3),
                (1, 'd', 1, 2, 2),
                (2, 'd', 1, 1, 1),
                (0, 'b', 1, 2, 1),
                (5, 'c', 1, 1, 0),
                (6, 'd', 1, 1, 1),
            ]
        );
        let nobody = RangeTree::new(&timelines, Range { thread: Some(9), ..ALL });
        assert_eq!(nobody.nodes.len(), 1);
    }

    #[test]
    fn waiting_is_no_time_on_a_processor() {
        // The only call waits from 20 to 50 and from 60 to 65.
        let mut timelines = drawn(&["aaaaaaaaaa"]);
        let off_cpu = &mut timelines.threads[0].off_cpu;
        for (start_ns, duration_ns) in [(20, 30), (60, 5)] {
            off_cpu.push(Span { start_ns, duration_ns, label: 0, weight: 1, off_cpu_ns: 0 });
        }
        let mut track = Track::default();
        let call = Span { start_ns: 0, duration_ns: 100, label: 0, weight: 1, off_cpu_ns: 35 };
        track.push(call);
        timelines.threads[0].depths = vec![track];
        for (from_ns, to_ns, cpu, wanted) in
            [(0, 200, false, 100), (0, 200, true, 65), (30, 62, false, 32), (30, 62, true, 10)]
        {
            let range = Range { from_ns, to_ns, thread: None, cpu };
            assert_eq!(RangeTree::new(&timelines, range).nodes[0].total_ns, wanted, "{range:?}");
        }
    }
}
