//! From lifted functions and counters to [`Code`].

use std::sync::Arc;

use fettle_image::{Image, LinkAddr, Symbol, unversioned};
use fettle_isa::Flow;
use fettle_lift::edges::{Edge, EdgeGraph, Flow as Counted};
use fettle_lift::{BlockId, Exit, Function};
use rustc_hash::FxHashMap;

use crate::code::{Block, Call, Callee, Code, End, Jump, Pointer, Procedure};

/// The counts of one function, by link addresses.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Executions of blocks.
    pub blocks: FxHashMap<LinkAddr, u64>,
    /// Passages from block to block.
    pub edges: FxHashMap<(LinkAddr, LinkAddr), u64>,
    /// Targets of indirect calls: the instruction, the target, how often at least.
    pub targets: FxHashMap<(LinkAddr, Target), u64>,
    /// These are estimates from samples: none of it is exact.
    pub estimated: bool,
}

impl Counts {
    /// The counts multiplied by a factor.
    pub fn times(mut self, factor: u64) -> Counts {
        let blocks = self.blocks.values_mut();
        let counts = blocks.chain(self.edges.values_mut()).chain(self.targets.values_mut());
        counts.for_each(|count| *count = count.saturating_mul(factor));
        self
    }
}

/// A target of an indirect call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// To this address of the same module.
    Here(LinkAddr),
    /// To this address of another module, of this build.
    Module(Arc<str>, LinkAddr),
    /// To something that is not known by any name.
    Unknown,
}

/// How many edges have exact counts, of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exactness {
    /// Edges whose count was measured or follows from what was.
    pub exact: u64,
    /// All edges.
    pub edges: u64,
    /// Functions all of whose edges are exact.
    pub functions_exact: u64,
    /// All functions.
    pub functions: u64,
}

impl Code {
    /// The code of `functions` of a file with their counts; functions without counts are left out.
    pub fn of<'a>(
        image: &Image,
        functions: impl IntoIterator<Item = &'a Function>,
        counts: impl Fn(LinkAddr) -> Option<&'a Counts>,
    ) -> (Code, Exactness) {
        Code::of_lifted(functions, own_stubs(image), counts)
    }

    /// The same of functions that are in no file; `stubs` are addresses that lead to some of them, with where
    /// they lead.
    pub fn of_lifted<'a>(
        functions: impl IntoIterator<Item = &'a Function>,
        stubs: impl Iterator<Item = (LinkAddr, LinkAddr)>,
        counts: impl Fn(LinkAddr) -> Option<&'a Counts>,
    ) -> (Code, Exactness) {
        let counted: Vec<(&Function, &Counts)> =
            functions.into_iter().filter_map(|f| Some((f, counts(f.entry)?))).collect();
        let mut index: FxHashMap<LinkAddr, usize> =
            counted.iter().enumerate().map(|(i, (f, _))| (f.entry, i)).collect();
        let own = stubs.filter_map(|(stub, to)| Some((stub, *index.get(&to)?)));
        let own: Vec<(LinkAddr, usize)> = own.collect();
        index.extend(own);
        let mut exactness = Exactness::default();
        let procedures = counted
            .iter()
            .map(|(function, counts)| procedure(function, counts, &index, &mut exactness))
            .collect();
        (Code { procedures }, exactness)
    }
}

/// PLT entries that lead to functions of the file itself: a library calls those so that they can be
/// interposed, which they hardly ever are.
fn own_stubs(image: &Image) -> impl Iterator<Item = (LinkAddr, LinkAddr)> {
    let shown = |symbol: &&Symbol| symbol.global && symbol.is_function();
    let own =
        image.symbols().iter().filter(shown).map(|symbol| (unversioned(&symbol.name), symbol.addr));
    let own: FxHashMap<&str, LinkAddr> = own.collect();
    image
        .plt()
        .iter()
        .filter_map(move |stub| Some((stub.start, *own.get(unversioned(&stub.target))?)))
}

/// The name of a function; one without a symbol has the form that Fettle uses everywhere.
pub fn name_of(function: &Function) -> String {
    function.name.clone().unwrap_or_else(|| format!("sub_{:x}", function.entry.0))
}

fn procedure(
    function: &Function,
    counts: &Counts,
    index: &FxHashMap<LinkAddr, usize>,
    exactness: &mut Exactness,
) -> Procedure {
    let start = |b: usize| function.blocks[b].start;
    let graph = EdgeGraph::new(function);
    let mut flow = Counted::new(&graph.edges, function.blocks.len());
    for (b, count) in flow.block_counts.iter_mut().enumerate() {
        *count = counts.blocks.get(&start(b)).copied();
    }
    for (edge, count) in graph.edges.iter().zip(&mut flow.edge_counts) {
        if let (Some(from), Some(to)) = (edge.from, edge.to) {
            *count = counts.edges.get(&(start(from.index()), start(to.index()))).copied();
        }
    }
    let exact = flow.complete();
    let right = exact.iter().filter(|e| **e && !counts.estimated).count() as u64;
    exactness.exact += right;
    exactness.edges += exact.len() as u64;
    exactness.functions_exact += u64::from(right == exact.len() as u64);
    exactness.functions += 1;
    let count = |edge: Edge| {
        let i = graph.edges.iter().position(|e| *e == edge);
        i.and_then(|i| flow.edge_counts[i]).unwrap_or(0)
    };
    let entry = function.entry_block();
    let jumps = graph.edges.iter().zip(&flow.edge_counts).filter_map(|(edge, count)| {
        let (from, to) = (edge.from?.index(), edge.to?.index());
        Some(Jump { from, to, count: count.unwrap_or(0) })
    });
    let seen = seen(counts);
    let blocks: Vec<Block> = (0..function.blocks.len())
        .map(|b| block(function, b, flow.block_counts[b].unwrap_or(0), (index, &seen)))
        .collect();
    Procedure {
        entry: function.entry,
        name: name_of(function),
        pointers: pointers(function, &blocks, index, &seen),
        blocks,
        head: entry.index(),
        calls: count(Edge { from: None, to: Some(entry) }),
        jumps: jumps.collect(),
        table_bytes: function.tables.iter().map(|t| t.entries.len() as u64 * 4).sum(),
    }
}

/// Observed targets of indirect calls, by instruction.
type Seen<'a> = FxHashMap<LinkAddr, Vec<(&'a Target, u64)>>;

fn seen(counts: &Counts) -> Seen<'_> {
    let mut seen = Seen::default();
    for ((at, target), count) in &counts.targets {
        seen.entry(*at).or_default().push((target, *count));
    }
    seen
}

/// The indirect calls of a function.
fn pointers(
    function: &Function,
    blocks: &[Block],
    index: &FxHashMap<LinkAddr, usize>,
    seen: &Seen<'_>,
) -> Vec<Pointer> {
    let mut all = Vec::new();
    for (b, block) in blocks.iter().enumerate() {
        let first = function.blocks[b].insns.start as usize;
        let of_calls = block.calls.iter().enumerate();
        let of_calls = of_calls.filter(|(_, call)| call.callee == Callee::Indirect);
        let of_calls = of_calls.map(|(c, call)| (Some(c), first + call.insns as usize - 1));
        let tail = matches!(block.end, End::Tail { callee: Callee::Indirect, .. });
        let last = function.blocks[b].insns.end as usize - 1;
        for (call, insn) in of_calls.chain(tail.then_some((None, last))) {
            let at = LinkAddr(function.insns[insn].ip());
            let seen = seen.get(&at).map_or(&[][..], Vec::as_slice);
            let here = |(target, count): &(&Target, u64)| match target {
                Target::Here(to) => Some((*index.get(to)?, *count)),
                Target::Module(..) | Target::Unknown => None,
            };
            let mut targets: Vec<(usize, u64)> = seen.iter().filter_map(here).collect();
            targets.sort_unstable_by_key(|(to, count)| (std::cmp::Reverse(*count), *to));
            let known = seen.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
            all.push(Pointer { at, block: b, call, known, targets });
        }
    }
    all
}

fn block(
    function: &Function,
    b: usize,
    count: u64,
    (index, seen): (&FxHashMap<LinkAddr, usize>, &Seen<'_>),
) -> Block {
    let block = &function.blocks[b];
    let range = block.insns.start as usize..block.insns.end as usize;
    let at = LinkAddr(function.insns[range.start].ip());
    let callee = |to: LinkAddr| index.get(&to).map_or(Callee::Outside, |i| Callee::Procedure(*i));
    let mut calls = Vec::new();
    let mut size = 0;
    for (n, i) in range.clone().enumerate() {
        size += function.insns[i].len() as u32;
        let callee = match function.flow(i) {
            // By a thunk, which is no function.
            Flow::Call(to)
                if !index.contains_key(&LinkAddr(to))
                    && seen.contains_key(&LinkAddr(function.insns[i].ip())) =>
            {
                Callee::Indirect
            }
            Flow::Call(to) => callee(LinkAddr(to)),
            // Through the GOT it is another module's; through a variable its targets are in the
            // samples.
            Flow::IndirectCall
                if function.insns[i].is_ip_rel_memory_operand()
                    && !seen.contains_key(&LinkAddr(function.insns[i].ip())) =>
            {
                Callee::Outside
            }
            Flow::IndirectCall => Callee::Indirect,
            _ => continue,
        };
        calls.push(Call { offset: size, insns: n as u32 + 1, callee });
    }
    let last = range.end - 1;
    let insn = &function.insns[last];
    let falls = block.falls_through.then(|| block.succs[0].index());
    let to = |to: u64| function.block_at(LinkAddr(to)).map(BlockId::index);
    let end = match (block.exit, function.flow(last)) {
        (Some(Exit::TailJump(to) | Exit::TailBranch(to)), _) => {
            End::Tail { callee: callee(to), falls }
        }
        (Some(Exit::TailIndirect), _) => End::Tail { callee: Callee::Indirect, falls },
        (None, Flow::Branch(target)) => match (to(target), falls) {
            (Some(to), Some(falls)) => End::Branches {
                to,
                falls,
                size: insn.len() as u32,
                turns: insn.is_jcc_short_or_near(),
            },
            _ => End::Leaves,
        },
        (None, Flow::Jump(target)) => match to(target) {
            Some(to) => End::Jumps { to, size: insn.len() as u32 },
            None => End::Leaves,
        },
        (None, _) if block.switches => End::Switches,
        _ => falls.map_or(End::Leaves, End::Falls),
    };
    Block { at, size, insns: range.len() as u32, count, calls, end }
}
