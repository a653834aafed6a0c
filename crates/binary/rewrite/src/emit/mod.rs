//! Writing a function anew: its own instructions in their order, with probes between them.
//!
//! Instructions are copied byte by byte; only what depends on their address is changed. Branches
//! keep their short form where the distance allows. Padding in front of aligned blocks is
//! replaced by as much as the new address needs.
//!
//! Blocks are written in the original's order, or in that of a `Placement`. Then a conditional
//! jump may be inverted, a jump may be needed where control fell through, and another may
//! not be needed any more. A function's chunks lie one behind the other here; where each of them
//! goes is decided later, so jumps between them wait for it ([`Fixup::Across`]).

mod append;
mod encode;
mod items;
mod layout;

use fettle_code::{Context, Emitted, Fixup, Mode, Probes};
use fettle_image::LinkAddr;
use fettle_isa::Insn;
use fettle_lift::SkipReason;
use fettle_lift::edges::{EdgeGraph, Place};
use fettle_lift::function::{BlockId, Function};
use fettle_lift::liveness::{ExitLiveness, Liveness};

use crate::copies::Copies;
use crate::probe::Snippet;
use crate::snippets::Snippets;
pub use items::TRAP;
use items::{ColdPart, Item, Operand, Probe, Promotion};

/// What is left of a function's rewritten text when it has been checked: see [`Emitted`].
pub struct Kept {
    /// Machine code.
    pub code: Vec<u8>,
    /// Places in it to be filled in.
    pub fixups: Box<[(u32, Fixup)]>,
    /// Where each of the function's chunks starts.
    pub chunk_starts: Vec<u32>,
    /// Where counters stand.
    pub counters: Vec<Place>,
    /// Indirect calls that are counted or compared.
    pub pointers: Vec<LinkAddr>,
}

/// Memory that is used again for the next function, and snippets that were made; for one plan.
#[derive(Default)]
pub struct Tools {
    snippets: Snippets,
    items: Vec<Item>,
    probes: Vec<Probe>,
    cold: Vec<ColdPart>,
    operands: Vec<Operand>,
    promotions: Vec<Promotion>,
    /// Where each item is, and the end.
    offsets: Vec<u32>,
    /// For each block, the chunk that it is in.
    chunks: Vec<u32>,
    /// Where each out-of-line part is.
    cold_at: Vec<u32>,
    order: Vec<BlockId>,
    copies: Copies,
    /// What was given back, to be used again.
    spare: Emitted,
}

impl Tools {
    /// Reclaims what is of no use once the code has its place: together that is larger than what
    /// is left.
    pub fn reclaim(&mut self, emitted: Emitted) -> Kept {
        let kept = Kept {
            fixups: emitted.fixups.as_slice().into(),
            code: emitted.code,
            chunk_starts: emitted.chunk_starts,
            counters: emitted.counters,
            pointers: emitted.pointers,
        };
        self.spare = Emitted {
            fixups: emitted.fixups,
            block_offsets: emitted.block_offsets,
            block_ends: emitted.block_ends,
            insn_offsets: emitted.insn_offsets,
            returns: emitted.returns,
            unwind: emitted.unwind,
            inserted: emitted.inserted,
            parts: emitted.parts,
            ..Emitted::default()
        };
        kept
    }

    /// Nothing emitted yet, in memory that was used before.
    fn start(&mut self) -> Emitted {
        let mut out = std::mem::take(&mut self.spare);
        out.fixups.clear();
        out.block_offsets.clear();
        out.block_ends.clear();
        out.insn_offsets.clear();
        out.returns.clear();
        out.unwind.clear();
        out.inserted.clear();
        out.parts.clear();
        out
    }

    fn clear(&mut self) {
        self.items.clear();
        self.probes.clear();
        self.cold.clear();
        self.operands.clear();
        self.promotions.clear();
    }

    fn snippet(&self, probe: &Probe) -> &Snippet {
        self.snippets.get(probe.snippet)
    }
}

/// Writes `function` anew.
///
/// # Errors
///
/// The reason and address for functions whose form has no place in a copy.
pub fn emit(
    function: &Function,
    exits: ExitLiveness,
    liveness: &Liveness,
    context: &Context<'_>,
    tools: &mut Tools,
) -> Result<Emitted, (SkipReason, LinkAddr)> {
    tools.clear();
    tools.copies.find(function);
    let mut writer = Writer {
        function,
        exits,
        liveness,
        context,
        wanted: context.probes.of(function.entry),
        t: tools,
        cold_range: 0,
        counters: counters(function, context.probes.mode),
        pointers: Vec::new(),
        next: None,
        placed: false,
        red_zone: context.probes.mode.has_counters() && uses_red_zone(function),
        passed: context.probes.counts_once(function),
    };
    writer.pointers = writer.counted_pointers();
    writer.lay_out()?;
    writer.encode()
}

/// Whether some instruction may reach below the stack pointer. In functions without calls that
/// may be through any register that once held an address of the stack, so those all count.
fn uses_red_zone(function: &Function) -> bool {
    !function.facts.iter().any(|f| f.calls()) || function.insns.iter().any(Insn::is_below_stack)
}

/// Blocks as they were: ranges in order, the function's own first.
fn original_order(
    function: &Function,
    order: &mut Vec<BlockId>,
) -> Result<(), (SkipReason, LinkAddr)> {
    order.clear();
    for range in &function.ranges {
        let first = function.blocks.partition_point(|b| b.start < range.start);
        let blocks = function.blocks.iter().enumerate().skip(first);
        let inside = blocks.take_while(|(_, b)| b.start < range.end);
        order.extend(inside.map(|(i, _)| BlockId(i as u32)));
    }
    match order.first() == Some(&function.entry_block()) {
        true => Ok(()),
        false => Err((SkipReason::SharedCode, function.entry)),
    }
}

/// Where the counters of `function` are to stand.
fn counters(function: &Function, mode: Mode) -> Vec<Place> {
    let blocks = || (0..function.blocks.len() as u32).map(|b| Place::Block(BlockId(b))).collect();
    match mode {
        Mode::Blocks => blocks(),
        Mode::Edges => {
            let graph = EdgeGraph::new(function);
            match graph.counted() {
                Some(edges) => {
                    let mut places: Vec<Place> =
                        edges.into_iter().filter_map(|e| graph.places[e]).collect();
                    places.sort_unstable();
                    places
                }
                // Counts of blocks give most of the edges as well.
                None => blocks(),
            }
        }
        _ => Vec::new(),
    }
}

struct Writer<'a> {
    function: &'a Function,
    exits: ExitLiveness,
    liveness: &'a Liveness,
    context: &'a Context<'a>,
    wanted: Probes<'a>,
    t: &'a mut Tools,
    /// The range that unwind information of the out-of-line code comes from.
    cold_range: usize,
    counters: Vec<Place>,
    /// Indirect calls whose targets are counted, sorted.
    pointers: Vec<LinkAddr>,
    /// The block behind the one at hand.
    next: Option<BlockId>,
    /// The order is not the original's.
    placed: bool,
    red_zone: bool,
    /// Calls are counted, and each entry is followed by an exit: exits need no probes.
    passed: bool,
}

/// Instructions that compilers pad with.
pub fn is_padding(insn: &Insn) -> bool {
    insn.is_nop()
}
