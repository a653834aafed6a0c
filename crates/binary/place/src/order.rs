//! From code with counts to an order of all of it.

use fettle_lift::{BlockId, Chunk, Placement};
use serde::Serialize;

use crate::code::{Code, End, Piece, Procedure};
use crate::group::Hot;
use crate::model::{self, Addresses, Cost, Geometry, Walk, Ways};
use crate::score::Graph;
use crate::{affinity, chains, ext_tsp};

/// How blocks are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Method {
    /// Chains by weight ([`crate::chains`]).
    PettisHansen,
    /// The extended travelling salesman problem ([`crate::ext_tsp`]).
    ExtTsp,
}

/// How far a function's hot blocks may lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// They stay together.
    Function,
    /// Each chain is placed by itself, across functions.
    Chain,
}

/// A method of laying code out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The order within functions.
    pub method: Method,
    /// What is ordered across functions.
    pub unit: Unit,
}

impl Choice {
    /// Every method.
    pub const ALL: [Choice; 4] = [
        Choice { method: Method::ExtTsp, unit: Unit::Function },
        Choice { method: Method::ExtTsp, unit: Unit::Chain },
        Choice { method: Method::PettisHansen, unit: Unit::Function },
        Choice { method: Method::PettisHansen, unit: Unit::Chain },
    ];
}

/// What to lay out, and for which cache.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which blocks are hot.
    pub hot: Hot,
    /// The cache of the model.
    pub geometry: Geometry,
    /// Pieces that run at least as often as this share of the hottest block start a line.
    pub align_share: f64,
    /// Segments of the model's walk.
    pub segments: usize,
    /// Seed of the walk.
    pub seed: u64,
    /// Take the layout at this rank by the model's cost, 0 being the best.
    pub rank: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            hot: Hot::Run,
            geometry: Geometry::L1I,
            align_share: 0.5,
            segments: 2_000_000,
            seed: 1,
            rank: 0,
        }
    }
}

/// All blocks in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// The pieces; all hot ones before all cold ones.
    pub pieces: Vec<Piece>,
    /// How it was made.
    pub choice: Choice,
}

/// The cost of a layout by the model.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Modelled {
    /// The cost of fetching.
    pub cost: Cost,
    /// The transitions between blocks.
    pub ways: Ways,
    /// Instructions run, on the scale of `ways`.
    pub run: u64,
}

impl Modelled {
    /// The share of the time in which the front end delivers nothing, by the model: because of a
    /// miss, or a taken jump.
    pub fn stall_share(&self) -> f64 {
        let per = |n: u64, of: u64| n as f64 / of.max(1) as f64;
        let stall = MISS_CYCLES * per(self.cost.misses, self.cost.insns)
            + TAKEN_CYCLES * per(self.ways.taken(), self.run);
        stall / (CYCLES + stall)
    }
}

/// A layout with its cost, and the original's.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The layout with the least cost, or the one at the rank that was asked for.
    pub layout: Layout,
    /// Its cost.
    pub after: Modelled,
    /// The original's cost.
    pub before: Modelled,
    /// The cost of each method's layout.
    pub all: Vec<(Choice, Modelled)>,
}

/// Where the model places rewritten text: far from everything, at the start of a page.
const NEW_CODE: u64 = 1 << 32;

/// Lays `code` out by every method and takes the layout with the least cost, or the one at `rank`.
pub fn lay_out(code: &Code, options: &Options) -> Chosen {
    let walk = Walk::new(code, options.segments, options.seed);
    let all_run: u64 = code.procedures.iter().flat_map(|p| &p.blocks).map(run).sum();
    let modelled = |addresses: &Addresses| Modelled {
        cost: model::simulate(code, &walk, addresses, options.geometry),
        ways: model::ways(code, addresses),
        run: all_run,
    };
    let before = modelled(&Addresses::original(code));
    let mut layouts: Vec<(Layout, Modelled)> = Choice::ALL
        .iter()
        .map(|choice| {
            let layout = lay_out_as(code, *choice, options);
            let after = modelled(&Addresses::of_pieces(code, &layout.pieces, NEW_CODE));
            (layout, after)
        })
        .collect();
    let all = layouts.iter().map(|(layout, m)| (layout.choice, *m)).collect();
    layouts.sort_by(|a, b| a.1.stall_share().total_cmp(&b.1.stall_share()));
    let (layout, after) = layouts.swap_remove(options.rank.min(Choice::ALL.len() - 1));
    Chosen { layout, after, before, all }
}

/// Cycles of a miss of the first level, and of a taken jump's gap in fetching, roughly: they only
/// weigh the two against each other.
const MISS_CYCLES: f64 = 12.0;
/// Cycles of an instruction without stalls.
const CYCLES: f64 = 0.5;
const TAKEN_CYCLES: f64 = 0.5;

/// Instructions run in a block.
fn run(block: &crate::code::Block) -> u64 {
    block.count.saturating_mul(u64::from(block.insns))
}

/// Lays `code` out by one method.
pub fn lay_out_as(code: &Code, choice: Choice, options: &Options) -> Layout {
    let hot: Vec<Vec<bool>> = code.procedures.iter().map(|p| hot_blocks(p, options.hot)).collect();
    let mut units = Vec::new();
    for (p, procedure) in code.procedures.iter().enumerate() {
        let order = hot_order(procedure, &hot[p], choice.method);
        match choice.unit {
            Unit::Function => units.extend((!order.is_empty()).then_some((p, order))),
            Unit::Chain => units.extend(chains_of(procedure, order).into_iter().map(|c| (p, c))),
        }
    }
    let order = order_units(code, &units);
    let hottest = code.procedures.iter().flat_map(|p| &p.blocks).map(|b| b.count).max();
    let aligned = (hottest.unwrap_or(0) as f64 * options.align_share) as u64;
    let mut pieces: Vec<Piece> = Vec::new();
    for (procedure, blocks) in order.into_iter().map(|u| std::mem::take(&mut units[u])) {
        let first = code.procedures[procedure].blocks[blocks[0]].count;
        let align = if first >= aligned.max(1) { options.geometry.line as u32 } else { 1 };
        let is_head = blocks[0] == code.procedures[procedure].head;
        match pieces.last_mut() {
            // Adjacent ones are merged, and jumps between them are short.
            Some(last) if last.procedure == procedure && !is_head => last.blocks.extend(blocks),
            _ => pieces.push(Piece { procedure, blocks, align, hot: true }),
        }
    }
    for (procedure, hot) in hot.iter().enumerate() {
        let blocks: Vec<usize> = (0..hot.len()).filter(|b| !hot[*b]).collect();
        if blocks.is_empty() {
            continue;
        }
        let all = blocks.len() == hot.len();
        let blocks = if all { head_first(&code.procedures[procedure]) } else { blocks };
        pieces.push(Piece { procedure, blocks, align: if all { 16 } else { 1 }, hot: false });
    }
    Layout { pieces, choice }
}

/// Which blocks are hot. If any is, so is the entry: all control passes it.
fn hot_blocks(procedure: &Procedure, hot: Hot) -> Vec<bool> {
    let mut all: Vec<bool> = procedure.blocks.iter().map(|b| hot.is(b.count)).collect();
    all[procedure.head] = all.contains(&true);
    all
}

/// All blocks in the original's order, but for the entry in front.
fn head_first(procedure: &Procedure) -> Vec<usize> {
    let others = (0..procedure.blocks.len()).filter(|b| *b != procedure.head);
    std::iter::once(procedure.head).chain(others).collect()
}

/// Hot blocks in the order of `method`, or in the original's if the objective is better for that.
fn hot_order(procedure: &Procedure, hot: &[bool], method: Method) -> Vec<usize> {
    let blocks: Vec<usize> = head_first(procedure).into_iter().filter(|b| hot[*b]).collect();
    if blocks.len() < 2 {
        return blocks;
    }
    let mut number = vec![usize::MAX; hot.len()];
    for (n, block) in blocks.iter().enumerate() {
        number[*block] = n;
    }
    let inside = procedure.jumps.iter().filter(|j| hot[j.from] && hot[j.to]);
    let graph = Graph {
        sizes: blocks.iter().map(|b| u64::from(procedure.blocks[*b].size)).collect(),
        ways: inside.map(|j| (number[j.from], number[j.to], j.count)).collect(),
    };
    let order = match method {
        Method::ExtTsp => ext_tsp::ext_tsp(&graph, 0),
        Method::PettisHansen => chains::pettis_hansen(&graph, 0).concat(),
    };
    let before: Vec<usize> = (0..blocks.len()).collect();
    let order = if graph.score(&order) < graph.score(&before) { before } else { order };
    order.into_iter().map(|n| blocks[n]).collect()
}

/// An order, split where control does not fall through.
fn chains_of(procedure: &Procedure, order: Vec<usize>) -> Vec<Vec<usize>> {
    let mut chains: Vec<Vec<usize>> = Vec::new();
    for block in order {
        let falls = |from: usize| match procedure.blocks[from].end {
            End::Falls(to) | End::Jumps { to, .. } => to == block,
            End::Branches { to, falls, turns, .. } => falls == block || turns && to == block,
            End::Tail { falls, .. } => falls == Some(block),
            End::Switches | End::Leaves => false,
        };
        match chains.last_mut() {
            Some(chain) if chain.last().is_some_and(|from| falls(*from)) => chain.push(block),
            _ => chains.push(vec![block]),
        }
    }
    chains
}

/// How many chains cover a piece: the paper's measure, of which one is best.
pub fn chain_count(procedure: &Procedure, blocks: &[usize]) -> usize {
    chains_of(procedure, blocks.to_vec()).len()
}

/// The order of units by the calls, and the jumps, between them.
fn order_units(code: &Code, units: &[(usize, Vec<usize>)]) -> Vec<usize> {
    let mut of: Vec<Vec<Option<usize>>> =
        code.procedures.iter().map(|p| vec![None; p.blocks.len()]).collect();
    for (u, (procedure, blocks)) in units.iter().enumerate() {
        for block in blocks {
            of[*procedure][*block] = Some(u);
        }
    }
    let mut arcs: std::collections::BTreeMap<(usize, usize), u64> = Default::default();
    let mut add = |from: Option<usize>, to: Option<usize>, count: u64| {
        if let (Some(from), Some(to)) = (from, to) {
            *arcs.entry((from, to)).or_default() += count;
        }
    };
    for (p, b, callee, count) in code.calls() {
        add(of[p][b], of[callee][code.procedures[callee].head], count);
    }
    for (p, procedure) in code.procedures.iter().enumerate() {
        for jump in &procedure.jumps {
            add(of[p][jump.from], of[p][jump.to], jump.count);
        }
    }
    let arcs: Vec<(usize, usize, u64)> = arcs.into_iter().map(|((a, b), n)| (a, b, n)).collect();
    let pieces: Vec<affinity::Piece> = units
        .iter()
        .map(|(p, blocks)| {
            let blocks = || blocks.iter().map(|b| &code.procedures[*p].blocks[*b]);
            affinity::Piece {
                size: blocks().map(|b| u64::from(b.size)).sum(),
                heat: blocks().map(run).sum(),
            }
        })
        .collect();
    affinity::order(&pieces, &arcs)
}

impl Layout {
    /// The layout in the form that `binary/rewrite` emits.
    pub fn placement(&self, code: &Code) -> Placement {
        let chunk = |piece: &Piece| Chunk {
            function: code.procedures[piece.procedure].entry,
            blocks: piece.blocks.iter().map(|b| BlockId(*b as u32)).collect(),
            align: piece.align,
        };
        Placement::new(self.pieces.iter().map(chunk).collect())
    }
}
