//! Writing a function anew: its own instructions in their order, with probes between them.
//!
//! Instructions are copied byte by byte; only what depends on their address is changed. Branches
//! keep their short form where the distance allows. Padding in front of aligned blocks is
//! replaced by as much as the new address needs.
//!
//! Blocks are written in the original's order, or in that of a [`Placement`]. Then a conditional
//! jump may be turned round, a jump may be needed where control fell through, and another may
//! not be needed any more. A function's chunks lie one behind the other here; where each of them
//! goes is decided later, so jumps between them wait for it ([`Fixup::Across`]).

use fettle_code::pointers::COUNTERS;
use fettle_code::{
    Context, Emitted, Fixup, Inserted, Mode, Part, Pointers, ProbeFixup, Probes, UnwindPoint,
};
use fettle_image::{Image, LinkAddr};
use fettle_isa::asm::Condition;
use fettle_isa::{Flow, Gpr, Insn, RegSet};
use fettle_lift::edges::{EdgeGraph, Place};
use fettle_lift::function::{Block, BlockId, Exit, Function};
use fettle_lift::liveness::{ExitLiveness, Liveness};
use fettle_lift::{SkipReason, TableKind};

use crate::copies::Copies;
use crate::jump::Jump;
use crate::pointer::{self, Source};
use crate::probe::Snippet;
use crate::snippets::{Snippets, Wanted};

/// What is left of a function's new code when it has been checked: see [`Emitted`].
pub struct Kept {
    /// Machine code.
    pub code: Vec<u8>,
    /// Places in it to be filled in.
    pub fixups: Box<[(u32, Fixup)]>,
    /// Where each of the function's chunks starts.
    pub chunk_starts: Vec<u32>,
    /// Where counters stand.
    pub counters: Vec<Place>,
    /// Calls through pointers that are counted or compared.
    pub pointers: Vec<LinkAddr>,
}

/// A piece of the new code.
enum Item {
    /// Instructions of one block as they are, but for fields to fill in.
    Copy { from: u32, to: u32 },
    /// Something with the operand of a call through memory (index into the list of those).
    Operand(u32),
    /// A call through a pointer that is compared first (index into the list of those).
    Promoted(u32),
    /// What stands before a tail call through a pointer that is compared first.
    PromotedTail(u32),
    /// A jump to a block, with the instruction that it is a copy of; the last field says whether
    /// the short form is used.
    Jump { insn: u32, jump: Jump, to: BlockId, short: bool },
    /// A jump to a block that control fell into.
    Fall { to: BlockId, short: bool },
    /// A jump that led to what now follows.
    Gone { insn: u32, to: BlockId },
    /// A jump to another function.
    JumpOut { insn: u32, to: LinkAddr },
    /// A call or jump to an entry of a procedure linkage table, by the address that the entry jumps to.
    Bound { insn: u32, slot: LinkAddr, calls: bool },
    /// A jump to what stands behind the function, where control runs on there behind an instruction.
    RunOn { insn: u32, to: LinkAddr },
    /// What stands behind a call that does not come back: the address that it would come back to is no other
    /// code's.
    Trap,
    /// A conditional jump to another function.
    BranchOut { insn: u32, to: LinkAddr },
    /// A conditional jump to code out of line (index into the list of those).
    ToCold { insn: u32, cold: u32 },
    /// A probe (index into the list of those).
    Probe(u32),
    /// Padding to a multiple of this, with the block it precedes.
    Align(u32),
    /// A chunk begins.
    Chunk,
    /// A block begins.
    Label(BlockId),
    /// Code out of line begins.
    Cold(u32),
}

/// An instruction that has the operand of another, which it stands before.
struct Operand {
    insn: u32,
    bytes: Vec<u8>,
    /// The field that depends on where it stands.
    fix: Option<(u8, Fixup)>,
}

/// A call through a pointer that becomes a direct one where the pointer is that of one function.
struct Promotion {
    insn: u32,
    to: LinkAddr,
    /// `cmp` of the pointer with `r11`.
    compare: Operand,
    /// What is out of line for it; none for tail calls.
    cold: u32,
    /// Where it came to end.
    end: u32,
}

impl Promotion {
    /// Bytes of `lea r11, [rip + ..]`, the comparison, and a conditional jump.
    fn guard_size(&self) -> u32 {
        LEA + self.compare.bytes.len() as u32 + JCC
    }
}

struct Probe {
    /// The snippet's number.
    snippet: u32,
    /// What its counters are counted from.
    counters: u32,
    /// Original instruction it stands before.
    at: u32,
    /// Where it came to lie, and its part out of line.
    parts: (u32, u32),
}

/// Code out of line: the cold part of a probe, or a probe on a branch and a jump to where the
/// branch led.
enum ColdPart {
    OfProbe(u32),
    Branch {
        probe: u32,
        to: Destination,
        insn: u32,
    },
    /// The call of a promotion as it was, and a jump back.
    Call(u32),
}

/// Where a branch led that goes through code out of line.
#[derive(Clone, Copy)]
enum Destination {
    Function(LinkAddr),
    Block(BlockId),
}

/// `int3`.
pub const TRAP: u8 = 0xcc;
/// Bytes of a `jmp` with a 32-bit distance.
const JUMP_OUT: u32 = 5;
/// Bytes of a `call` or `jmp` through a word at a 32-bit distance.
const THROUGH_SLOT: u32 = 6;
/// Bytes of a `call` with a 32-bit distance.
const CALL: u32 = 5;
/// Bytes of a conditional jump with a 32-bit distance.
const JCC: u32 = 6;
/// Bytes of `lea r11, [rip + ..]`.
const LEA: u32 = 7;

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
    /// Where each part out of line is.
    cold_at: Vec<u32>,
    order: Vec<BlockId>,
    copies: Copies,
    /// What was taken back.
    spare: Emitted,
}

impl Tools {
    /// Takes back what is of no use once the code has its place: together that is larger than what
    /// is left.
    pub fn take_back(&mut self, emitted: Emitted) -> Kept {
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
                // Blocks tell most of the edges as well.
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
    /// The range that unwind information of the code out of line comes from.
    cold_range: usize,
    counters: Vec<Place>,
    /// Calls through pointers whose targets are counted, sorted.
    pointers: Vec<LinkAddr>,
    /// The block behind the one at hand.
    next: Option<BlockId>,
    /// The order is not the original's.
    placed: bool,
    red_zone: bool,
    /// Calls are counted, and whoever enters leaves: exits need no probes.
    passed: bool,
}

impl Writer<'_> {
    fn lay_out(&mut self) -> Result<(), (SkipReason, LinkAddr)> {
        let function = self.function;
        match self.context.placement.and_then(|p| Some((p, p.of(function)?))) {
            None => {
                let mut order = std::mem::take(&mut self.t.order);
                let found = original_order(function, &mut order);
                let result = found.and_then(|()| self.chunk(&order));
                self.t.order = order;
                result
            }
            Some((placement, _)) if !placement.fits(function) => {
                Err((SkipReason::Order, function.entry))
            }
            Some((placement, chunks)) => {
                self.placed = true;
                chunks.iter().try_for_each(|i| self.chunk(&placement.chunks()[*i].blocks))
            }
        }
    }

    /// Blocks one behind the other, then what their probes have out of line.
    fn chunk(&mut self, order: &[BlockId]) -> Result<(), (SkipReason, LinkAddr)> {
        let function = self.function;
        let entry = function.entry_block();
        let cold = self.t.cold.len();
        self.cold_range = order.last().map_or(0, |last| self.range_of(*last));
        self.t.items.push(Item::Chunk);
        for (i, id) in order.iter().enumerate() {
            let block = &function.blocks[id.index()];
            if *id == entry {
                let dead = RegSet::ALL.minus(self.liveness.at_start(entry));
                let wanted = match self.passed {
                    true => Wanted::Pass(dead),
                    false => Wanted::Entry(self.wanted.arguments, dead),
                };
                self.probe(wanted, 0, block.insns.start);
                self.count(Place::Entry, *id);
            }
            let padded = !self.placed
                && i > 0
                && block.start.0.is_multiple_of(16)
                && self.follows_padding(*id, order[i - 1]);
            if padded {
                self.t.items.push(Item::Align(16));
            }
            self.t.items.push(Item::Label(*id));
            self.next = order.get(i + 1).copied();
            self.block(*id, block)?;
        }
        for i in cold..self.t.cold.len() {
            self.t.items.push(Item::Cold(i as u32));
            if let ColdPart::Branch { probe: p, .. } = self.t.cold[i] {
                self.t.items.push(Item::Probe(p));
            }
        }
        Ok(())
    }

    fn follows_padding(&self, id: BlockId, previous: BlockId) -> bool {
        let block = &self.function.blocks[id.index()];
        let before = &self.function.blocks[previous.index()];
        let last = &self.function.insns[before.insns.end as usize - 1];
        last.next_ip() != block.start.0 || is_padding(last)
    }

    /// Puts a probe before instruction `at`.
    fn probe(&mut self, wanted: Wanted, counters: u32, at: u32) {
        if let Some(probe) = self.new_probe(wanted, counters, at) {
            self.t.items.push(Item::Probe(probe));
        }
    }

    /// The index of a new probe, with whatever it has out of line; `None` if nothing is to be done.
    fn new_probe(&mut self, wanted: Wanted, counters: u32, at: u32) -> Option<u32> {
        let number = self.t.snippets.number(self.wanted, wanted);
        let snippet = self.t.snippets.get(number);
        if snippet.code.is_empty() {
            return None;
        }
        let index = self.t.probes.len() as u32;
        if !snippet.cold.is_empty() {
            self.t.cold.push(ColdPart::OfProbe(index));
        }
        self.t.probes.push(Probe { snippet: number, counters, at, parts: (0, 0) });
        Some(index)
    }

    fn block(&mut self, id: BlockId, block: &Block) -> Result<(), (SkipReason, LinkAddr)> {
        let function = self.function;
        let timed = self.wanted.mode.is_timed();
        if block.landing_pad && timed {
            self.probe(Wanted::Left, 0, block.insns.start);
        }
        self.count(Place::Block(id), id);
        let end = block.insns.end - self.padding_at_end(id, block);
        // Instructions from here on are copied as they are.
        let mut from = block.insns.start;
        for index in block.insns.start..end {
            let facts = function.facts[index as usize];
            if facts.goes_on() {
                continue;
            }
            let last = index + 1 == block.insns.end;
            match function.flow(index as usize) {
                Flow::Return => {
                    self.copy(&mut from, index);
                    self.exit_probe(index, true, self.exits.at_return);
                }
                flow @ (Flow::IndirectJump | Flow::IndirectCall) => {
                    self.copy(&mut from, index);
                    if flow == Flow::IndirectJump && block.exit.is_some() {
                        let live = self.exits.at_tail_call.union(facts.reads());
                        self.exit_probe(index, false, live);
                    }
                    from += u32::from(self.pointer_call(id, index));
                }
                Flow::Jump(to) => {
                    self.copy(&mut from, index);
                    from = index + 1;
                    match block.exit {
                        Some(Exit::TailJump(_)) if last => self.jump_out(index, LinkAddr(to)),
                        _ => self.jump(id, index, to)?,
                    }
                }
                Flow::Branch(to) => {
                    self.copy(&mut from, index);
                    from = index + 1;
                    match block.exit {
                        Some(Exit::TailBranch(_)) if last => {
                            self.branch_out(id, index, LinkAddr(to))?;
                        }
                        _ if self.turned_round(id, index, to) => return Ok(()),
                        _ => self.branch(id, index, to)?,
                    }
                    self.not_taken(id);
                }
                Flow::Call(to) => self.call(&mut from, index, LinkAddr(to))?,
                Flow::Next | Flow::Trap | Flow::Stop | Flow::Strange => {}
            }
        }
        self.copy(&mut from, end);
        self.run_on(block);
        self.trap(block);
        if block.falls_through && self.placed && self.next != Some(block.succs[0]) {
            self.t.items.push(Item::Fall { to: block.succs[0], short: true });
        }
        Ok(())
    }

    /// A call, with what stands before it from `from` on, as far as it is not copied as it is.
    fn call(
        &mut self,
        from: &mut u32,
        index: u32,
        to: LinkAddr,
    ) -> Result<(), (SkipReason, LinkAddr)> {
        self.leads_out(index, to)?;
        if let Some(slot) = self.slot_of(index, to) {
            self.copy(from, index);
            *from = index + 1;
            self.t.items.push(Item::Bound { insn: index, slot, calls: true });
        }
        let returns_twice = self.context.returns_twice.binary_search(&to).is_ok();
        if self.wanted.mode.is_timed() && returns_twice {
            self.copy(from, index + 1);
            let next = (index + 1).min(self.function.insns.len() as u32 - 1);
            self.probe(Wanted::Left, 0, next);
        }
        Ok(())
    }

    /// Refuses a call into the middle of the function: a way to learn the program counter, and the
    /// like.
    fn leads_out(&self, index: u32, to: LinkAddr) -> Result<(), (SkipReason, LinkAddr)> {
        let at = LinkAddr(self.function.insns[index as usize].ip());
        match self.function.contains(to) && to != self.function.entry {
            true => Err((SkipReason::StrangeFlow, at)),
            false => Ok(()),
        }
    }

    /// Copies the instructions up to `to` that were not yet, from where `from` is left.
    fn copy(&mut self, from: &mut u32, to: u32) {
        if *from < to {
            self.t.items.push(Item::Copy { from: *from, to });
            *from = to;
        }
    }

    /// Whatever stands before a call or jump through a pointer; true if that is written, too.
    fn pointer_call(&mut self, id: BlockId, index: u32) -> bool {
        if matches!(self.context.pointers, Pointers::Kept) {
            return false;
        }
        if self.promote(id, index) {
            return true;
        }
        self.count_target(id, index);
        false
    }

    /// A conditional jump to the block that now follows becomes one to the block that did,
    /// if neither way is counted.
    fn turned_round(&mut self, id: BlockId, index: u32, to: u64) -> bool {
        if !self.placed {
            return false;
        }
        let Some(taken) = self.function.block_at(LinkAddr(to)) else { return false };
        let insn = &self.function.insns[index as usize];
        let next = BlockId(id.0 + 1);
        let counted = [taken, next].iter().any(|b| self.counter(Place::Between(id, *b)).is_some());
        if counted || self.next != Some(taken) || next == taken {
            return false;
        }
        let Some(jump) = Jump::of(insn).inverted() else { return false };
        self.t.items.push(Item::Jump { insn: index, jump, to: next, short: true });
        true
    }

    /// How many instructions at the end of `block` only pad up to the next block.
    fn padding_at_end(&self, id: BlockId, block: &Block) -> u32 {
        let insns = self.function.block_insns(block);
        let aligned = self
            .function
            .blocks
            .get(id.index() + 1)
            .is_some_and(|next| next.start.0.is_multiple_of(16));
        if !block.falls_through || !aligned {
            return 0;
        }
        insns.iter().rev().take_while(|i| is_padding(i)).count() as u32
    }

    fn exit_probe(&mut self, index: u32, returns: bool, live: RegSet) {
        if self.passed {
            return;
        }
        let dead = RegSet::ALL.minus(live);
        self.probe(Wanted::Exit { arguments: self.wanted.arguments, returns, dead }, 0, index);
    }

    /// A jump out of the function.
    fn jump_out(&mut self, index: u32, to: LinkAddr) {
        self.leave_for(index, to);
        self.t.items.push(match self.slot_of(index, to) {
            Some(slot) => Item::Bound { insn: index, slot, calls: false },
            None => Item::JumpOut { insn: index, to },
        });
    }

    /// Where the address lies that instruction `index` leads to, if that is an entry of a procedure
    /// linkage table which only jumps there. What has probes is left as it was.
    fn slot_of(&self, index: u32, to: LinkAddr) -> Option<LinkAddr> {
        let context = self.context;
        // Other lengths have prefixes: calls that the linker may have changed have them to be told by.
        let plain = context.probes.mode == Mode::Plain
            && self.function.insns[index as usize].len() == 5
            && context.returns_twice.binary_search(&to).is_err();
        let entry = context.image.plt_at(to).filter(|entry| plain && entry.start == to)?;
        entry.slot
    }

    /// A jump to where control goes on if a block at the function's end is left without one.
    fn run_on(&mut self, block: &Block) {
        let Some(to) = self.function.runs_on(block) else { return };
        let last = block.insns.end - 1;
        self.leave_for(last, to);
        self.t.items.push(Item::RunOn { insn: last, to });
    }

    /// Puts a trap behind a call, or a system call, at the end of a block that it does not come back to.
    fn trap(&mut self, block: &Block) {
        let last = block.insns.end as usize - 1;
        let calls = self.function.facts[last].calls() || self.function.insns[last].is_syscall();
        if calls && !block.falls_through && self.function.runs_on(block).is_none() {
            self.t.items.push(Item::Trap);
        }
    }

    /// The probe where control leaves for another function.
    fn leave_for(&mut self, index: u32, to: LinkAddr) {
        let inputs = self.context.callees.inputs(to);
        self.exit_probe(index, false, self.exits.at_tail_call.union(inputs));
    }

    /// A conditional jump out of the function: through a probe that is put out of line.
    fn branch_out(
        &mut self,
        id: BlockId,
        index: u32,
        to: LinkAddr,
    ) -> Result<(), (SkipReason, LinkAddr)> {
        if !self.function.insns[index as usize].is_jcc_short_or_near() {
            return Err((SkipReason::StrangeFlow, to));
        }
        if self.passed {
            self.t.items.push(Item::BranchOut { insn: index, to });
            return Ok(());
        }
        let inputs = self.context.callees.inputs(to);
        let dead = RegSet::ALL.minus(self.exits.at_tail_call.union(inputs));
        let (wanted, counter) = match self.counter(Place::Leaving(id)) {
            // Arguments are on their way; only the flags are safe to change.
            Some(counter) => {
                let dead = dead.intersection(RegSet::FLAGS);
                (Wanted::Block { dead, red_zone: false }, counter)
            }
            None => (Wanted::Exit { arguments: self.wanted.arguments, returns: false, dead }, 0),
        };
        match self.new_probe(wanted, counter, index) {
            None => self.t.items.push(Item::BranchOut { insn: index, to }),
            Some(probe) => self.through_cold(index, probe, Destination::Function(to)),
        }
        Ok(())
    }

    /// A conditional jump inside the function, with counters on both ways where there are any.
    fn branch(&mut self, id: BlockId, index: u32, to: u64) -> Result<(), (SkipReason, LinkAddr)> {
        let block = &self.function.blocks[id.index()];
        let taken = self.function.succ_at(block, LinkAddr(to));
        match taken.and_then(|taken| Some((taken, self.counter(Place::Between(id, taken))?))) {
            Some((taken, counter)) => {
                let wanted = self.counting(taken);
                let probe = self.new_probe(wanted, counter, self.first_insn(taken));
                let probe = probe.expect("counting takes code");
                self.through_cold(index, probe, Destination::Block(taken));
            }
            None => self.jump(id, index, to)?,
        }
        Ok(())
    }

    /// Counts, where there is a counter, that a conditional jump at the end of block `id` was not
    /// taken.
    fn not_taken(&mut self, id: BlockId) {
        let next = BlockId(id.0 + 1);
        if let Some(counter) = self.counter(Place::Between(id, next)) {
            self.probe(self.counting(next), counter, self.first_insn(next));
        }
    }

    /// A conditional jump that goes through a probe, which is put out of line.
    fn through_cold(&mut self, insn: u32, probe: u32, to: Destination) {
        self.t.cold.push(ColdPart::Branch { probe, to, insn });
        let cold = self.t.cold.len() as u32 - 1;
        self.t.items.push(Item::ToCold { insn, cold });
    }

    /// The calls through pointers whose targets are to be counted.
    fn counted_pointers(&self) -> Vec<LinkAddr> {
        let mut all = Vec::new();
        if !matches!(self.context.pointers, Pointers::Counted) {
            return all;
        }
        for (b, block) in self.function.blocks.iter().enumerate() {
            let calls =
                block.insns.clone().filter(|i| self.pointer(BlockId(b as u32), *i).is_some());
            all.extend(calls.map(|i| LinkAddr(self.function.insns[i as usize].ip())));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Where instruction `index` of block `id` reads its target from, if it is a call or tail call
    /// through a pointer that something can be put before; and what that may write.
    fn pointer(&self, id: BlockId, index: u32) -> Option<(Source, RegSet)> {
        let function = self.function;
        let exit = function.blocks[id.index()].exit;
        let image = (self.context.image, self.context.descriptors);
        let source = pointer::source(function, index as usize, exit, image)?;
        let live = self.liveness.before_insn(function, id, index, self.context.callees);
        let free = pointer::FREE.minus(live);
        let fits = match source {
            Source::Register(_) => free.has_flags(),
            Source::Memory => free == pointer::FREE && self.with_operand(index, 0x8b).is_some(),
        };
        fits.then_some((source, free))
    }

    /// The range of the original that a block is in.
    fn range_of(&self, block: BlockId) -> usize {
        let at = self.function.blocks[block.index()].start;
        self.function.ranges.iter().position(|r| r.contains(&at)).unwrap_or(0)
    }

    /// Compares the pointer that instruction `index` calls with the function that it mostly leads
    /// to, if that is asked for and can be done; true if the call is written, too.
    ///
    /// Memory is read by the comparison and, where that fails, once more by the call as it was: as
    /// if the call had come then.
    fn promote(&mut self, id: BlockId, index: u32) -> bool {
        let at = LinkAddr(self.function.insns[index as usize].ip());
        let Pointers::Promoted(targets) = self.context.pointers else { return false };
        let Some(to) = targets.get(&at).copied() else { return false };
        let Some((source, free)) = self.pointer(id, index) else { return false };
        let compare = match source {
            Source::Register(register) => {
                // cmp register, r11
                let bytes = vec![0x4c | register.number() >> 3, 0x39, 0xd8 | register.number() & 7];
                Some(Operand { insn: index, bytes, fix: None })
            }
            // cmp r11, [..]
            Source::Memory => self.with_operand(index, 0x3b),
        };
        let context = self.context;
        let fits = free == pointer::FREE
            && context.probes.mode == Mode::Plain
            && context.callees.inputs(to).intersection(pointer::FREE).is_empty()
            && context.returns_twice.binary_search(&to).is_err()
            && self.range_of(id) == self.cold_range;
        let Some(compare) = compare.filter(|_| fits) else { return false };
        let number = self.t.promotions.len() as u32;
        let tail = self.function.blocks[id.index()].exit == Some(Exit::TailIndirect)
            && self.function.flow(index as usize) == Flow::IndirectJump;
        let cold = self.t.cold.len() as u32;
        self.t.promotions.push(Promotion { insn: index, to, compare, cold, end: 0 });
        self.pointers.push(at);
        if tail {
            self.t.items.push(Item::PromotedTail(number));
        } else {
            self.t.cold.push(ColdPart::Call(number));
            self.t.items.push(Item::Promoted(number));
        }
        !tail
    }

    /// Counts where instruction `index` leads, if it is a call through a pointer that is counted.
    fn count_target(&mut self, id: BlockId, index: u32) {
        let at = LinkAddr(self.function.insns[index as usize].ip());
        let Pointers::Counted = self.context.pointers else { return };
        let Ok(n) = self.pointers.binary_search(&at) else { return };
        let Some((source, mut free)) = self.pointer(id, index) else { return };
        let target = match source {
            Source::Register(register) => register,
            Source::Memory => {
                // mov r11, [..]
                self.t.operands.extend(self.with_operand(index, 0x8b));
                self.t.items.push(Item::Operand(self.t.operands.len() as u32 - 1));
                free = RegSet::FLAGS;
                Gpr::R11
            }
        };
        let table = self.counters.len() as u32 + n as u32 * COUNTERS;
        self.probe(Wanted::Target { target, dead: free }, table, index);
    }

    /// `opcode r11, [..]` with the operand of instruction `index`.
    fn with_operand(&self, index: u32, opcode: u8) -> Option<Operand> {
        let insn = &self.function.insns[index as usize];
        let call = self.context.image.read(LinkAddr(insn.ip()), insn.len())?;
        let (bytes, field) = pointer::with_operand(call, insn, opcode)?;
        let to = LinkAddr(insn.ip_rel_memory_address());
        // Nothing follows the field.
        let fix = field.map(|field| (field, Fixup::Original { to, after: 0 }));
        Some(Operand { insn: index, bytes, fix })
    }

    fn first_insn(&self, block: BlockId) -> u32 {
        self.function.blocks[block.index()].insns.start
    }

    /// The number of the counter that stands at `place`.
    #[inline]
    fn counter(&self, place: Place) -> Option<u32> {
        if self.counters.is_empty() {
            return None;
        }
        self.counters.binary_search(&place).ok().map(|n| n as u32)
    }

    /// Counts at `place`, if there is a counter, before the start of `block`.
    #[inline]
    fn count(&mut self, place: Place, block: BlockId) {
        if let Some(counter) = self.counter(place) {
            self.probe(self.counting(block), counter, self.first_insn(block));
        }
    }

    fn jump(&mut self, id: BlockId, insn: u32, to: u64) -> Result<(), (SkipReason, LinkAddr)> {
        let block = &self.function.blocks[id.index()];
        let Some(to) = self.function.succ_at(block, LinkAddr(to)) else {
            return Err((SkipReason::OverlappingInstructions, LinkAddr(to)));
        };
        let i = &self.function.insns[insn as usize];
        let jump = Jump::of(i);
        if self.placed && jump == Jump::Always && self.next == Some(to) {
            self.t.items.push(Item::Gone { insn, to });
            return Ok(());
        }
        let short = self.placed || i.len() < 5;
        self.t.items.push(Item::Jump { insn, jump, to, short });
        Ok(())
    }

    /// Counts before the start of block `id`.
    fn counting(&self, id: BlockId) -> Wanted {
        let dead = RegSet::ALL.minus(self.liveness.at_start(id));
        // `al` as an argument count may be live where `rax` is not.
        let dead = if dead.is_superset(RegSet::VECTOR_COUNT) {
            dead
        } else {
            dead.minus(RegSet::of(&[Gpr::Rax]))
        };
        // So may `r10`, the static chain of a nested function, up to a call.
        let dead = dead.intersection(RegSet::CALLER_SAVED).minus(RegSet::of(&[Gpr::R10]));
        Wanted::Block { dead, red_zone: self.red_zone }
    }

    /// The field of `insn` that depends on where it stands, if there is one.
    fn address_fixup(&self, insn: &Insn) -> Option<(u8, Fixup)> {
        // Bytes of immediate operand that follow the distance.
        let after = |field: u8| insn.len() as u8 - field - 4;
        if let Some(t) = self.t.copies.named_by(insn) {
            if insn.is_ip_rel_memory_operand() {
                return Some((insn.ip_rel_field(), Fixup::Table(t)));
            }
            debug_assert_eq!(self.function.tables[t as usize].kind, TableKind::Absolute);
            if self.context.low_addresses {
                // The displacement is the last field of `jmp [table + i*8]` and `mov` alike.
                return Some((insn.len() as u8 - 4, Fixup::TableAddress(t)));
            }
        }
        if insn.is_ip_rel_memory_operand() {
            let field = insn.ip_rel_field();
            let to = LinkAddr(insn.ip_rel_memory_address());
            return Some((field, Fixup::Original { to, after: after(field) }));
        }
        None
    }

    /// The address of instruction `from`, and the bytes from it up to instruction `to`: all lie in
    /// one block.
    fn copied(&self, from: u32, to: u32) -> (u64, u32) {
        let insns = &self.function.insns;
        let start = insns[from as usize].ip();
        (start, (insns[to as usize - 1].next_ip() - start) as u32)
    }

    fn size(&self, item: &Item, offset: u32) -> u32 {
        match item {
            Item::Copy { from, to } => self.copied(*from, *to).1,
            Item::Operand(o) => self.t.operands[*o as usize].bytes.len() as u32,
            Item::Promoted(p) => self.t.promotions[*p as usize].guard_size() + CALL,
            Item::PromotedTail(p) => self.t.promotions[*p as usize].guard_size(),
            Item::Jump { jump, short, .. } => jump.size(*short),
            Item::Fall { short, .. } => Jump::Always.size(*short),
            Item::ToCold { insn, .. } | Item::BranchOut { insn, .. } => {
                Jump::of(&self.function.insns[*insn as usize]).size(false)
            }
            Item::Probe(p) => self.t.snippet(&self.t.probes[*p as usize]).code.len() as u32,
            Item::Align(to) => offset.next_multiple_of(*to) - offset,
            Item::Label(_) | Item::Chunk | Item::Gone { .. } => 0,
            Item::JumpOut { .. } | Item::RunOn { .. } => JUMP_OUT,
            Item::Trap => 1,
            Item::Bound { .. } => THROUGH_SLOT,
            Item::Cold(c) => match &self.t.cold[*c as usize] {
                ColdPart::OfProbe(p) => {
                    self.t.snippet(&self.t.probes[*p as usize]).cold.len() as u32
                }
                // The jump itself is written after the probe; see `encode`.
                ColdPart::Branch { .. } => 0,
                ColdPart::Call(p) => {
                    let insn = self.t.promotions[*p as usize].insn;
                    self.function.insns[insn as usize].len() as u32 + JUMP_OUT
                }
            },
        }
    }

    /// Notes for each block the chunk that it is in.
    fn find_chunks(&mut self) {
        let Tools { items, chunks, .. } = &mut *self.t;
        chunks.clear();
        chunks.resize(self.function.blocks.len(), 1);
        if !self.placed {
            return;
        }
        let mut chunk = 0;
        for item in items {
            match item {
                Item::Chunk => chunk += 1,
                Item::Label(b) => chunks[b.index()] = chunk,
                _ => {}
            }
        }
    }

    fn encode(mut self) -> Result<Emitted, (SkipReason, LinkAddr)> {
        self.find_chunks();
        let chunks = std::mem::take(&mut self.t.chunks);
        let mut offsets = std::mem::take(&mut self.t.offsets);
        let result = self.encode_in(&mut offsets, &chunks);
        (self.t.chunks, self.t.offsets) = (chunks, offsets);
        result
    }

    fn encode_in(
        &mut self,
        offsets: &mut Vec<u32>,
        chunks: &[u32],
    ) -> Result<Emitted, (SkipReason, LinkAddr)> {
        offsets.clear();
        offsets.resize(self.t.items.len() + 1, 0);
        let mut out = self.t.start();
        out.block_offsets.resize(self.function.blocks.len(), 0);
        let block_offsets = &mut out.block_offsets;
        loop {
            let mut offset = 0;
            let mut pending_exit = 0;
            for (i, item) in self.t.items.iter().enumerate() {
                offsets[i] = offset;
                offset += self.size(item, offset) + std::mem::take(&mut pending_exit);
                match item {
                    Item::Label(b) => block_offsets[b.index()] = offset,
                    // The probe that follows carries the jump out behind it.
                    Item::Cold(c) => {
                        if let ColdPart::Branch { .. } = self.t.cold[*c as usize] {
                            pending_exit = JUMP_OUT;
                        }
                    }
                    _ => {}
                }
            }
            offsets[self.t.items.len()] = offset;
            let mut grown = false;
            let mut chunk = 0;
            for (i, item) in self.t.items.iter_mut().enumerate() {
                let (jump, to, short) = match item {
                    Item::Jump { jump, to, short, .. } => (*jump, *to, short),
                    Item::Fall { to, short } => (Jump::Always, *to, short),
                    Item::Chunk => {
                        chunk += 1;
                        continue;
                    }
                    _ => continue,
                };
                if !*short {
                    continue;
                }
                let end = i64::from(offsets[i]) + i64::from(jump.size(true));
                let distance = i64::from(block_offsets[to.index()]) - end;
                if i8::try_from(distance).is_err() || chunks[to.index()] != chunk {
                    *short = false;
                    grown = true;
                }
            }
            if !grown {
                break;
            }
        }
        self.write(offsets, chunks, out)
    }

    /// Notes where blocks end, and where the parts of probes, the parts out of line and promotions came to
    /// lie.
    fn note_places(&mut self, offsets: &[u32], block_ends: &mut Vec<u32>) {
        let Tools { items, probes, cold, promotions, cold_at, .. } = &mut *self.t;
        cold_at.clear();
        cold_at.resize(cold.len(), 0);
        block_ends.resize(self.function.blocks.len(), 0);
        let mut block: Option<BlockId> = None;
        for (item, ends) in items.iter().zip(offsets.windows(2)) {
            let ends_block =
                matches!(item, Item::Label(_) | Item::Align(_) | Item::Chunk | Item::Cold(_));
            if let Some(block) = block.take_if(|_| ends_block) {
                block_ends[block.index()] = ends[0];
            }
            match item {
                Item::Label(b) => block = Some(*b),
                Item::Probe(p) => probes[*p as usize].parts.0 = ends[0],
                Item::Promoted(p) => promotions[*p as usize].end = ends[1],
                Item::Cold(c) => {
                    cold_at[*c as usize] = ends[0];
                    if let ColdPart::OfProbe(p) = &cold[*c as usize] {
                        probes[*p as usize].parts.1 = ends[0];
                    }
                }
                _ => {}
            }
        }
        if let Some(block) = block {
            block_ends[block.index()] = offsets[self.t.items.len()];
        }
    }

    fn write(
        &mut self,
        offsets: &[u32],
        chunks: &[u32],
        mut out: Emitted,
    ) -> Result<Emitted, (SkipReason, LinkAddr)> {
        let function = self.function;
        out.code.reserve_exact(offsets[self.t.items.len()] as usize);
        out.insn_offsets.resize(function.insns.len(), u32::MAX);
        out.counters = std::mem::take(&mut self.counters);
        out.pointers = std::mem::take(&mut self.pointers);
        out.pointers.sort_unstable();
        self.note_places(offsets, &mut out.block_ends);
        let cold_at = &self.t.cold_at;
        let ip = |insn: u32| LinkAddr(function.insns[insn as usize].ip());
        let mut original_code = OriginalCode { image: self.context.image, start: 0, bytes: &[] };
        let mut pending_exit = None;
        for (i, item) in self.t.items.iter().enumerate() {
            let offset = offsets[i];
            debug_assert_eq!(out.code.len() as u32, offset);
            match item {
                Item::Copy { from, to } => {
                    let bytes = original_code
                        .of(function, self.copied(*from, *to))
                        .ok_or((SkipReason::Undecodable, ip(*from)))?;
                    self.write_copies(&mut out, bytes, (*from, *to));
                }
                Item::Operand(o) => {
                    let operand = &self.t.operands[*o as usize];
                    out.point(offset, ip(operand.insn), 0);
                    out.operand(operand);
                }
                Item::Promoted(p) | Item::PromotedTail(p) => {
                    let promotion = &self.t.promotions[*p as usize];
                    out.stands(promotion.insn, offset, ip(promotion.insn));
                    match matches!(item, Item::Promoted(_)) {
                        true => out.promoted(promotion, cold_at[promotion.cold as usize]),
                        false => out.promoted_tail(promotion),
                    }
                }
                Item::Jump { insn, jump, to, short } => {
                    out.stands(*insn, offset, ip(*insn));
                    out.jump(*jump, *short, *to, chunks);
                }
                Item::Fall { to, short } => {
                    // Control has left the block before, and comes to the other.
                    out.point(offset, ip(self.first_insn(*to)), 0);
                    out.jump(Jump::Always, *short, *to, chunks);
                }
                Item::Gone { insn, to } => {
                    out.insn_offsets[*insn as usize] = out.block_offsets[to.index()];
                }
                Item::JumpOut { insn, to } => {
                    out.stands(*insn, offset, ip(*insn));
                    out.jump_out(*to);
                }
                Item::Bound { insn, slot, calls } => {
                    out.stands(*insn, offset, ip(*insn));
                    out.through_slot(*insn, *slot, *calls);
                }
                Item::RunOn { insn, to } => {
                    out.point(offset, ip(*insn), 0);
                    out.jump_out(*to);
                }
                Item::Trap => out.code.push(TRAP),
                Item::BranchOut { insn, to } => {
                    out.stands(*insn, offset, ip(*insn));
                    Jump::of(&function.insns[*insn as usize]).write(&mut out.code, false, 0);
                    out.fixups.push((out.code.len() as u32 - 4, Fixup::Function(*to)));
                }
                Item::ToCold { insn, cold } => {
                    out.stands(*insn, offset, ip(*insn));
                    let jump = Jump::of(&function.insns[*insn as usize]);
                    let distance = cold_at[*cold as usize].wrapping_sub(offset + jump.size(false));
                    jump.write(&mut out.code, false, distance);
                }
                Item::Probe(p) => {
                    let probe = &self.t.probes[*p as usize];
                    let snippet = self.t.snippet(probe);
                    let end = offset + snippet.code.len() as u32;
                    out.inserted.push(Inserted { start: offset, end });
                    out.point(offset, ip(probe.at), 0);
                    for (at, pushed) in &snippet.pushed {
                        out.point(offset + at, ip(probe.at), *pushed);
                    }
                    out.snippet(&snippet.code, &snippet.fixups, probe);
                    if let Some((to, insn)) = pending_exit.take() {
                        let at = match to {
                            Destination::Function(_) => ip(insn),
                            Destination::Block(b) => ip(self.first_insn(b)),
                        };
                        out.point(out.code.len() as u32, at, 0);
                        out.jump_to(to, chunks);
                    }
                }
                Item::Align(_) => {
                    // Control that falls into padding has done what stands before it.
                    if let Some(Item::Label(b)) = self.t.items.get(i + 1) {
                        out.point(offset, function.blocks[b.index()].start, 0);
                    }
                    pad(&mut out.code, (offsets[i + 1] - offset) as usize);
                }
                Item::Chunk => out.chunk_starts.push(offset),
                Item::Label(b) => {
                    let at = ip(self.first_insn(*b));
                    let range = function.ranges.iter().position(|r| r.contains(&at)).unwrap_or(0);
                    out.part(range as u32, offset);
                }
                Item::Cold(c) => match &self.t.cold[*c as usize] {
                    ColdPart::OfProbe(p) => {
                        let probe = &self.t.probes[*p as usize];
                        let snippet = self.t.snippet(probe);
                        for (at, pushed) in &snippet.cold_pushed {
                            out.point(offset + at, ip(probe.at), *pushed);
                        }
                        out.snippet(&snippet.cold, &snippet.cold_fixups, probe);
                    }
                    ColdPart::Branch { to, insn, .. } => {
                        pending_exit = Some((*to, *insn));
                    }
                    ColdPart::Call(p) => {
                        let promotion = &self.t.promotions[*p as usize];
                        self.cold_call(&mut out, &mut original_code, promotion)?;
                    }
                },
            }
        }
        // Padding that was left out stands for whatever follows it.
        let mut next = out.code.len() as u32;
        for (i, offset) in out.insn_offsets.iter_mut().enumerate().rev() {
            if *offset == u32::MAX {
                let after = function.insns.get(i + 1).map(|n| LinkAddr(n.ip()));
                let block = after.and_then(|a| function.block_at(a));
                *offset = block.map_or(next, |b| out.block_offsets[b.index()]);
            }
            next = *offset;
        }
        Ok(out)
    }

    /// Writes the call of a promotion as it was, and the jump back.
    fn cold_call<'i>(
        &self,
        out: &mut Emitted,
        original_code: &mut OriginalCode<'i>,
        promotion: &Promotion,
    ) -> Result<(), (SkipReason, LinkAddr)> {
        let call = &self.function.insns[promotion.insn as usize];
        let bytes = original_code
            .of(self.function, (call.ip(), call.len() as u32))
            .ok_or((SkipReason::Undecodable, LinkAddr(call.ip())))?;
        out.point(out.end(), LinkAddr(call.ip()), 0);
        out.copy(bytes, self.address_fixup(call));
        out.returns_here(promotion.insn);
        out.jump_back(promotion.end);
        Ok(())
    }

    /// Writes instructions `from` up to `to`, whose bytes are `bytes`.
    fn write_copies(&self, out: &mut Emitted, bytes: &[u8], (from, to): (u32, u32)) {
        let function = self.function;
        let range = from as usize..to as usize;
        let (start, offset) = (function.insns[range.start].ip(), out.end());
        let first = UnwindPoint {
            offset,
            original: LinkAddr(start),
            pushed: 0,
            in_step: bytes.len() as u32,
        };
        out.unwind.push(first);
        out.code.extend_from_slice(bytes);
        let has_tables = self.t.copies.any_named(start, start + bytes.len() as u64);
        let insns = function.insns[range.clone()].iter().zip(&function.facts[range.clone()]);
        for ((i, (insn, facts)), place) in insns.enumerate().zip(&mut out.insn_offsets[range]) {
            let at = offset + (insn.ip() - start) as u32;
            *place = at;
            let plain = facts.goes_on() && !insn.is_syscall() && !insn.is_ip_rel_memory_operand();
            if plain && !has_tables {
                continue;
            }
            let fix = match facts.flow(insn) {
                Flow::Call(to) => Some((insn.len() as u8 - 4, Fixup::Function(LinkAddr(to)))),
                _ => self.address_fixup(insn),
            };
            out.fixups.extend(fix.map(|(field, fix)| (at + u32::from(field), fix)));
            if facts.calls() || insn.is_syscall() {
                out.returns.push((from + i as u32, at + insn.len() as u32));
            }
        }
    }
}

/// The writer's steps on what is emitted so far.
trait Append {
    /// A block from this range begins at `offset`.
    fn part(&mut self, range: u32, offset: u32);
    /// The chunk that is being written, counted from one.
    fn chunk(&self) -> u32;
    /// A jump to a block; `chunks` says in which chunk each is.
    fn jump(&mut self, jump: Jump, short: bool, to: BlockId, chunks: &[u32]);
    /// Offset behind what was written last.
    fn end(&self) -> u32;
    /// What was written last is a call.
    fn returns_here(&mut self, insn: u32);
    /// An instruction that is written anew stands at `offset`.
    fn stands(&mut self, insn: u32, offset: u32, original: LinkAddr);
    fn point(&mut self, offset: u32, original: LinkAddr, pushed: u32);
    fn jump_to(&mut self, to: Destination, chunks: &[u32]);
    /// An instruction with the operand of another.
    fn operand(&mut self, operand: &Operand);
    /// An instruction as it is, but for one field perhaps.
    fn copy(&mut self, bytes: &[u8], fix: Option<(u8, Fixup)>);
    /// The comparison of a promotion: with the address of the original, which pointers hold.
    fn guard(&mut self, promotion: &Promotion);
    /// A promoted call; `other` is where the call as it was stands.
    fn promoted(&mut self, promotion: &Promotion, other: u32);
    /// What stands before a promoted tail call.
    fn promoted_tail(&mut self, promotion: &Promotion);
    /// A jump to an offset of the same chunk.
    fn jump_back(&mut self, to: u32);
    fn jump_out(&mut self, to: LinkAddr);
    /// A call or jump to whatever a word says, in the place of `insn`.
    fn through_slot(&mut self, insn: u32, slot: LinkAddr, calls: bool);
    /// Appends code of a probe.
    fn snippet(&mut self, code: &[u8], fixups: &[(u32, ProbeFixup)], probe: &Probe);
}

impl Append for Emitted {
    fn part(&mut self, range: u32, offset: u32) {
        let chunk = self.chunk_starts.last().copied().unwrap_or(0);
        match self.parts.last() {
            Some(part) if part.start >= chunk && part.range == range => {}
            Some(part) if part.start >= chunk => self.parts.push(Part { start: offset, range }),
            // Probes at the entry stand before the first block.
            _ => self.parts.push(Part { start: chunk, range }),
        }
    }

    fn chunk(&self) -> u32 {
        self.chunk_starts.len() as u32
    }

    fn jump(&mut self, jump: Jump, short: bool, to: BlockId, chunks: &[u32]) {
        let end = self.code.len() as u32 + jump.size(short);
        let to_offset = self.block_offsets[to.index()];
        if chunks[to.index()] == self.chunk() {
            jump.write(&mut self.code, short, to_offset.wrapping_sub(end));
        } else {
            jump.write(&mut self.code, false, 0);
            self.fixups.push((end - 4, Fixup::Across(to_offset)));
        }
    }

    fn end(&self) -> u32 {
        self.code.len() as u32
    }

    fn returns_here(&mut self, insn: u32) {
        self.returns.push((insn, self.end()));
    }

    fn stands(&mut self, insn: u32, offset: u32, original: LinkAddr) {
        self.insn_offsets[insn as usize] = offset;
        self.point(offset, original, 0);
    }

    fn point(&mut self, offset: u32, original: LinkAddr, pushed: u32) {
        self.unwind.push(UnwindPoint { offset, original, pushed, in_step: 0 });
    }

    fn jump_to(&mut self, to: Destination, chunks: &[u32]) {
        match to {
            Destination::Function(to) => self.jump_out(to),
            Destination::Block(to) => self.jump(Jump::Always, false, to, chunks),
        }
    }

    fn operand(&mut self, operand: &Operand) {
        self.copy(&operand.bytes, operand.fix);
    }

    fn copy(&mut self, bytes: &[u8], fix: Option<(u8, Fixup)>) {
        let start = self.code.len() as u32;
        self.code.extend_from_slice(bytes);
        self.fixups.extend(fix.map(|(at, fix)| (start + u32::from(at), fix)));
    }

    fn guard(&mut self, promotion: &Promotion) {
        // lea r11, [rip + ..]
        self.code.extend_from_slice(&[0x4c, 0x8d, 0x1d]);
        let original = Fixup::Original { to: promotion.to, after: 0 };
        self.fixups.push((self.code.len() as u32, original));
        self.code.extend_from_slice(&[0; 4]);
        self.operand(&promotion.compare);
    }

    fn promoted(&mut self, promotion: &Promotion, other: u32) {
        self.guard(promotion);
        let distance = other.wrapping_sub(self.code.len() as u32 + JCC);
        Jump::If(Condition::NotEqual as u8).write(&mut self.code, false, distance);
        self.code.push(0xe8);
        self.fixups.push((self.code.len() as u32, Fixup::Function(promotion.to)));
        self.code.extend_from_slice(&[0; 4]);
        self.returns_here(promotion.insn);
    }

    fn promoted_tail(&mut self, promotion: &Promotion) {
        self.guard(promotion);
        Jump::If(Condition::Equal as u8).write(&mut self.code, false, 0);
        self.fixups.push((self.code.len() as u32 - 4, Fixup::Function(promotion.to)));
    }

    fn jump_back(&mut self, to: u32) {
        let distance = to.wrapping_sub(self.code.len() as u32 + JUMP_OUT);
        Jump::Always.write(&mut self.code, false, distance);
    }

    fn jump_out(&mut self, to: LinkAddr) {
        self.code.push(0xe9);
        self.fixups.push((self.code.len() as u32, Fixup::Function(to)));
        self.code.extend_from_slice(&[0; 4]);
    }

    fn through_slot(&mut self, insn: u32, slot: LinkAddr, calls: bool) {
        self.code.extend_from_slice(&[0xff, if calls { 0x15 } else { 0x25 }]);
        self.fixups.push((self.code.len() as u32, Fixup::Original { to: slot, after: 0 }));
        self.code.extend_from_slice(&[0; 4]);
        if calls {
            self.returns_here(insn);
        }
    }

    fn snippet(&mut self, code: &[u8], fixups: &[(u32, ProbeFixup)], probe: &Probe) {
        let base = self.code.len() as u32;
        self.code.extend_from_slice(code);
        for (at, fixup) in fixups {
            let at = base + at;
            let to = match fixup {
                ProbeFixup::Inline(to) => probe.parts.0 + to,
                ProbeFixup::OutOfLine(to) => probe.parts.1 + to,
                ProbeFixup::Counter(n) => {
                    let counter = ProbeFixup::Counter(probe.counters + n);
                    self.fixups.push((at, Fixup::Probe(counter)));
                    continue;
                }
                other => {
                    self.fixups.push((at, Fixup::Probe(*other)));
                    continue;
                }
            };
            let distance = to.wrapping_sub(at + 4);
            self.code[at as usize..at as usize + 4].copy_from_slice(&distance.to_le_bytes());
        }
    }
}

/// The bytes of the original, one range after another.
struct OriginalCode<'a> {
    image: &'a Image,
    start: u64,
    bytes: &'a [u8],
}

impl<'a> OriginalCode<'a> {
    /// The `len` bytes at `at`.
    fn of(&mut self, function: &Function, (at, len): (u64, u32)) -> Option<&'a [u8]> {
        let within = |start: u64, bytes: &'a [u8]| {
            let from = usize::try_from(at.checked_sub(start)?).ok()?;
            bytes.get(from..from + len as usize)
        };
        if let Some(bytes) = within(self.start, self.bytes) {
            return Some(bytes);
        }
        let range = function.ranges.iter().find(|r| r.contains(&LinkAddr(at)))?;
        self.start = range.start.0;
        self.bytes = self.image.read(range.start, (range.end.0 - range.start.0) as usize)?;
        within(self.start, self.bytes)
    }
}

/// Instructions that compilers pad with.
pub fn is_padding(insn: &Insn) -> bool {
    insn.is_nop()
}

/// Appends `count` bytes of padding in as few instructions as there can be.
fn pad(code: &mut Vec<u8>, mut count: usize) {
    // Intel's recommended sequences (Software Developer's Manual, NOP).
    const NOPS: [&[u8]; 9] = [
        &[0x90],
        &[0x66, 0x90],
        &[0x0f, 0x1f, 0x00],
        &[0x0f, 0x1f, 0x40, 0x00],
        &[0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
        &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
    ];
    while count > 0 {
        let n = count.min(9);
        code.extend_from_slice(NOPS[n - 1]);
        count -= n;
    }
}
