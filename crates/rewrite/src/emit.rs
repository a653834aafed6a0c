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

use fettle_cfg::edges::{EdgeGraph, Place};
use fettle_cfg::function::{Block, BlockId, Exit, Function};
use fettle_cfg::liveness::{Callees, ExitLiveness, Liveness};
use fettle_cfg::{Placement, SkipReason, TableKind};
use fettle_image::{Image, LinkAddr};
use fettle_isa::asm::Condition;
use fettle_isa::{Flow, Gpr, RegSet};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::jump::Jump;
use crate::pointer::{self, Pointers, Source};
use crate::probe::{self, Mode, ProbeFixup, Probes, Probing, Snippet};

/// What a place in a function's new code waits for; all are 32 bits wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixup {
    /// Distance to an address of the original image, from `after` bytes past the field.
    Original {
        /// The address.
        to: LinkAddr,
        /// Bytes of immediate operand that follow the field.
        after: u8,
    },
    /// Distance to the new copy of the function that starts here, or to the original if it has
    /// none.
    Function(LinkAddr),
    /// Distance to the copy of a jump table (index into the function's tables).
    Table(u32),
    /// Address of the copy of a jump table.
    TableAddress(u32),
    /// Distance to this offset of the function's own new code, in another chunk.
    Across(u32),
    /// Something of a probe's.
    Probe(ProbeFixup),
}

/// Where unwind information changes: from `offset` on, that of the original address holds, with
/// the stack pointer lower by `pushed` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindPoint {
    /// Offset in the function's new code.
    pub offset: u32,
    /// Address of the original instruction.
    pub original: LinkAddr,
    /// Bytes pushed by probe code.
    pub pushed: u32,
}

/// A stretch of probe code, for the checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// First byte, as an offset in the function's new code.
    pub start: u32,
    /// End.
    pub end: u32,
}

/// A stretch of new code whose unwind information comes from one range of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte, as an offset in the function's new code. It ends where the next one starts.
    pub start: u32,
    /// Index of the range in the function.
    pub range: u32,
}

/// A function's new code, still without an address.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// Machine code.
    pub code: Vec<u8>,
    /// Places in `code` to be filled in.
    pub fixups: Vec<(u32, Fixup)>,
    /// For each block, where jumps to it go.
    pub block_offsets: Vec<u32>,
    /// For each original instruction, where its copy starts (padding: where its successor does).
    pub insn_offsets: Vec<u32>,
    /// Behind each call and system call: the original instruction, and the offset. A call that is compared with a
    /// target first comes back to two places.
    pub returns: Vec<(u32, u32)>,
    /// Where unwind information changes, in order.
    pub unwind: Vec<UnwindPoint>,
    /// Probe code in line.
    pub inserted: Vec<Inserted>,
    /// Where each of the function's chunks starts; the first at 0.
    pub chunk_starts: Vec<u32>,
    /// What unwind information covers in one piece; the first at 0, none across chunks.
    pub parts: Vec<Part>,
    /// Counters that the function uses: where each stands.
    pub counters: Vec<Place>,
    /// Calls through pointers, in order, whose targets are counted (their tables lie behind the
    /// counters), or that are compared with a target.
    pub pointers: Vec<LinkAddr>,
}

/// What emission needs to know beyond the function itself.
pub struct Context<'a> {
    /// The image.
    pub image: &'a Image,
    /// What probes do.
    pub probes: &'a Probing<'a>,
    /// What calls may change, and what they read.
    pub callees: Callees<'a>,
    /// Addresses of functions that return twice, sorted.
    pub returns_twice: &'a [LinkAddr],
    /// Code is placed in the lowest 2 GiB, so that addresses fit 32 bits.
    pub low_addresses: bool,
    /// The order of blocks; functions that are not in it keep theirs.
    pub placement: Option<&'a Placement>,
    /// What becomes of calls through pointers.
    pub pointers: Pointers<'a>,
    /// There are calls that keep more registers than the ABI says ([`pointer::has_descriptors`]).
    pub descriptors: bool,
}

/// A piece of the new code.
enum Item {
    /// An instruction as it is, perhaps with one field to fill in.
    Copy { insn: u32, fix: Option<(u8, Fixup)> },
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
}

impl Promotion {
    /// Bytes of `lea r11, [rip + ..]`, the comparison, and a conditional jump.
    fn guard_size(&self) -> u32 {
        LEA + self.compare.bytes.len() as u32 + JCC
    }
}

struct Probe {
    snippet: Snippet,
    /// Original instruction it stands before.
    at: u32,
}

/// Code out of line: the cold part of a probe, or a probe on a branch and a jump to where the
/// branch led.
enum ColdPart {
    OfProbe(u32),
    Branch {
        probe: Option<u32>,
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

/// Bytes of a `jmp` with a 32-bit distance.
const JUMP_OUT: u32 = 5;
/// Bytes of a `call` with a 32-bit distance.
const CALL: u32 = 5;
/// Bytes of a conditional jump with a 32-bit distance.
const JCC: u32 = 6;
/// Bytes of `lea r11, [rip + ..]`.
const LEA: u32 = 7;

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
) -> Result<Emitted, (SkipReason, LinkAddr)> {
    let mut writer = Writer {
        function,
        exits,
        liveness,
        context,
        wanted: context.probes.of(function.entry),
        items: Vec::with_capacity(function.insns.len() + function.blocks.len() * 2),
        probes: Vec::new(),
        cold: Vec::new(),
        operands: Vec::new(),
        promotions: Vec::new(),
        cold_range: 0,
        counters: counters(function, context.probes.mode),
        pointers: Vec::new(),
        next: None,
        placed: false,
        red_zone: context.probes.mode.has_counters() && uses_red_zone(function),
    };
    writer.pointers = writer.counted_pointers();
    writer.lay_out()?;
    writer.encode()
}

/// Whether some instruction may reach below the stack pointer. In functions without calls that
/// may be through any register that once held an address of the stack, so those all count.
fn uses_red_zone(function: &Function) -> bool {
    !function.facts.iter().any(|f| f.calls())
        || function.insns.iter().any(|i| {
            matches!(i.memory_base(), Register::RSP | Register::RBP)
                && (i.memory_displacement64() as i64) < 0
        })
}

/// Blocks as they were: ranges in order, the function's own first.
fn original_order(function: &Function) -> Result<Vec<BlockId>, (SkipReason, LinkAddr)> {
    let mut order: Vec<BlockId> = Vec::with_capacity(function.blocks.len());
    for range in &function.ranges {
        let first = function.blocks.partition_point(|b| b.start < range.start);
        let blocks = function.blocks.iter().enumerate().skip(first);
        let inside = blocks.take_while(|(_, b)| b.start < range.end);
        order.extend(inside.map(|(i, _)| BlockId(i as u32)));
    }
    match order.first() == Some(&function.entry_block()) {
        true => Ok(order),
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
    items: Vec<Item>,
    probes: Vec<Probe>,
    cold: Vec<ColdPart>,
    operands: Vec<Operand>,
    promotions: Vec<Promotion>,
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
}

impl Writer<'_> {
    fn lay_out(&mut self) -> Result<(), (SkipReason, LinkAddr)> {
        let function = self.function;
        match self.context.placement.and_then(|p| Some((p, p.of(function)?))) {
            None => self.chunk(&original_order(function)?),
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
        let cold = self.cold.len();
        self.cold_range = order.last().map_or(0, |last| self.range_of(*last));
        self.items.push(Item::Chunk);
        for (i, id) in order.iter().enumerate() {
            let block = &function.blocks[id.index()];
            if *id == entry {
                let dead = RegSet::ALL.minus(self.liveness.at_start(entry));
                let snippet = probe::entry(self.wanted, dead);
                self.probe(snippet, block.insns.start);
                self.count(Place::Entry, *id);
            }
            let padded = !self.placed
                && i > 0
                && block.start.0.is_multiple_of(16)
                && self.follows_padding(*id, order[i - 1]);
            if padded {
                self.items.push(Item::Align(16));
            }
            self.items.push(Item::Label(*id));
            self.next = order.get(i + 1).copied();
            self.block(*id, block)?;
        }
        for i in cold..self.cold.len() {
            self.items.push(Item::Cold(i as u32));
            if let ColdPart::Branch { probe: Some(p), .. } = self.cold[i] {
                self.items.push(Item::Probe(p));
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

    fn probe(&mut self, snippet: Snippet, at: u32) {
        if snippet.code.is_empty() {
            return;
        }
        let index = self.probes.len() as u32;
        if !snippet.cold.is_empty() {
            self.cold.push(ColdPart::OfProbe(index));
        }
        self.probes.push(Probe { snippet, at });
        self.items.push(Item::Probe(index));
    }

    fn block(&mut self, id: BlockId, block: &Block) -> Result<(), (SkipReason, LinkAddr)> {
        let function = self.function;
        let timed = self.wanted.mode.is_timed();
        if block.landing_pad && timed {
            self.probe(probe::left(), block.insns.start);
        }
        self.count(Place::Block(id), id);
        let padding = self.padding_at_end(id, block);
        for index in block.insns.start..block.insns.end - padding {
            let insn = &function.insns[index as usize];
            let last = index + 1 == block.insns.end;
            match function.flow(index as usize) {
                Flow::Return => self.exit_probe(index, true, self.exits.at_return),
                Flow::IndirectJump if block.exit.is_some() => {
                    let reads = function.facts[index as usize].reads();
                    self.exit_probe(index, false, self.exits.at_tail_call.union(reads));
                }
                Flow::Jump(to) => {
                    if let (true, Some(Exit::TailJump(_))) = (last, block.exit) {
                        let inputs = self.context.callees.inputs(LinkAddr(to));
                        self.exit_probe(index, false, self.exits.at_tail_call.union(inputs));
                        self.items.push(Item::JumpOut { insn: index, to: LinkAddr(to) });
                    } else {
                        self.jump(index, to)?;
                    }
                    continue;
                }
                Flow::Branch(to) => {
                    if let (true, Some(Exit::TailBranch(_))) = (last, block.exit) {
                        self.branch_out(id, index, LinkAddr(to))?;
                    } else {
                        if self.turned_round(id, index, to) {
                            return Ok(());
                        }
                        self.branch(id, index, to)?;
                    }
                    self.not_taken(id);
                    continue;
                }
                Flow::Call(to) => {
                    let to = LinkAddr(to);
                    if function.contains(to) && to != function.entry {
                        // `call` as a way to learn the program counter, and the like.
                        return Err((SkipReason::StrangeFlow, LinkAddr(insn.ip())));
                    }
                    let fix = Some((insn.len() as u8 - 4, Fixup::Function(to)));
                    self.items.push(Item::Copy { insn: index, fix });
                    if timed && self.context.returns_twice.binary_search(&to).is_ok() {
                        let next = (index + 1).min(function.insns.len() as u32 - 1);
                        self.probe(probe::left(), next);
                    }
                    continue;
                }
                _ => {}
            }
            if self.promote(id, index) {
                continue;
            }
            self.count_target(id, index);
            let fix = self.address_fixup(insn)?;
            self.items.push(Item::Copy { insn: index, fix });
        }
        if block.falls_through && self.placed && self.next != Some(block.succs[0]) {
            self.items.push(Item::Fall { to: block.succs[0], short: true });
        }
        Ok(())
    }

    /// A conditional jump to the block that now follows becomes one to the block that did,
    /// if neither way is counted.
    fn turned_round(&mut self, id: BlockId, index: u32, to: u64) -> bool {
        let Some(taken) = self.function.block_at(LinkAddr(to)) else { return false };
        let insn = &self.function.insns[index as usize];
        let next = BlockId(id.0 + 1);
        let counted = [taken, next].iter().any(|b| self.counter(Place::Between(id, *b)).is_some());
        if !self.placed || counted || self.next != Some(taken) || next == taken {
            return false;
        }
        let Some(jump) = Jump::of(insn).inverted() else { return false };
        self.items.push(Item::Jump { insn: index, jump, to: next, short: true });
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
        let snippet = probe::exit(self.wanted, returns, RegSet::ALL.minus(live));
        self.probe(snippet, index);
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
        let inputs = self.context.callees.inputs(to);
        let dead = RegSet::ALL.minus(self.exits.at_tail_call.union(inputs));
        let snippet = match self.counter(Place::Leaving(id)) {
            // Arguments are on their way; only the flags are safe to change.
            Some(counter) => probe::block(counter, dead.intersection(RegSet::FLAGS), false),
            None => probe::exit(self.wanted, false, dead),
        };
        if snippet.code.is_empty() {
            self.items.push(Item::BranchOut { insn: index, to });
            return Ok(());
        }
        self.through_cold(index, snippet, index, Destination::Function(to));
        Ok(())
    }

    /// A conditional jump inside the function, with counters on both ways where there are any.
    fn branch(&mut self, id: BlockId, index: u32, to: u64) -> Result<(), (SkipReason, LinkAddr)> {
        let taken = self.function.block_at(LinkAddr(to));
        match taken.and_then(|taken| Some((taken, self.counter(Place::Between(id, taken))?))) {
            Some((taken, counter)) => {
                let snippet = self.counting(counter, taken);
                let at = self.first_insn(taken);
                self.through_cold(index, snippet, at, Destination::Block(taken));
            }
            None => self.jump(index, to)?,
        }
        Ok(())
    }

    /// Counts, where there is a counter, that a conditional jump at the end of block `id` was not
    /// taken.
    fn not_taken(&mut self, id: BlockId) {
        let next = BlockId(id.0 + 1);
        if let Some(counter) = self.counter(Place::Between(id, next)) {
            let snippet = self.counting(counter, next);
            self.probe(snippet, self.first_insn(next));
        }
    }

    /// A conditional jump that goes through a probe, which is put out of line; `at` is where what
    /// the jump leads to stands.
    fn through_cold(&mut self, insn: u32, snippet: Snippet, at: u32, to: Destination) {
        let probe = (!snippet.code.is_empty()).then(|| {
            let p = self.probes.len() as u32;
            if !snippet.cold.is_empty() {
                self.cold.push(ColdPart::OfProbe(p));
            }
            self.probes.push(Probe { snippet, at });
            p
        });
        self.cold.push(ColdPart::Branch { probe, to, insn });
        let cold = self.cold.len() as u32 - 1;
        self.items.push(Item::ToCold { insn, cold });
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
        let number = self.promotions.len() as u32;
        let tail = self.function.blocks[id.index()].exit == Some(Exit::TailIndirect)
            && self.function.flow(index as usize) == Flow::IndirectJump;
        self.promotions.push(Promotion { insn: index, to, compare, cold: self.cold.len() as u32 });
        self.pointers.push(at);
        if tail {
            self.items.push(Item::PromotedTail(number));
        } else {
            self.cold.push(ColdPart::Call(number));
            self.items.push(Item::Promoted(number));
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
                self.operands.extend(self.with_operand(index, 0x8b));
                self.items.push(Item::Operand(self.operands.len() as u32 - 1));
                free = RegSet::FLAGS;
                Gpr::R11
            }
        };
        let table = self.counters.len() as u32 + n as u32 * pointer::COUNTERS;
        self.probe(probe::target(table, target, free), index);
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

    /// Whether control comes back behind an instruction from somewhere else.
    fn comes_back(&self, insn: u32) -> bool {
        self.function.facts[insn as usize].calls()
            || self.function.insns[insn as usize].mnemonic() == Mnemonic::Syscall
    }

    /// The number of the counter that stands at `place`.
    fn counter(&self, place: Place) -> Option<u32> {
        self.counters.binary_search(&place).ok().map(|n| n as u32)
    }

    /// Counts at `place`, if there is a counter, before the start of `block`.
    fn count(&mut self, place: Place, block: BlockId) {
        if let Some(counter) = self.counter(place) {
            let snippet = self.counting(counter, block);
            self.probe(snippet, self.first_insn(block));
        }
    }

    fn jump(&mut self, insn: u32, to: u64) -> Result<(), (SkipReason, LinkAddr)> {
        let Some(to) = self.function.block_at(LinkAddr(to)) else {
            return Err((SkipReason::OverlappingInstructions, LinkAddr(to)));
        };
        let i = &self.function.insns[insn as usize];
        let jump = Jump::of(i);
        if self.placed && jump == Jump::Always && self.next == Some(to) {
            self.items.push(Item::Gone { insn, to });
            return Ok(());
        }
        let short = self.placed || i.len() < 5;
        self.items.push(Item::Jump { insn, jump, to, short });
        Ok(())
    }

    /// Counts before the start of block `id`.
    fn counting(&self, counter: u32, id: BlockId) -> Snippet {
        let dead = RegSet::ALL.minus(self.liveness.at_start(id));
        // `al` as an argument count may be live where `rax` is not.
        let dead = if dead.is_superset(RegSet::VECTOR_COUNT) {
            dead
        } else {
            dead.minus(RegSet::of(&[Gpr::Rax]))
        };
        // So may `r10`, the static chain of a nested function, up to a call.
        let dead = dead.intersection(RegSet::CALLER_SAVED).minus(RegSet::of(&[Gpr::R10]));
        probe::block(counter, dead, self.red_zone)
    }

    /// The field of `insn` that depends on where it stands, if there is one.
    fn address_fixup(
        &self,
        insn: &Instruction,
    ) -> Result<Option<(u8, Fixup)>, (SkipReason, LinkAddr)> {
        let at = LinkAddr(insn.ip());
        let table =
            self.function.tables.iter().position(|t| {
                t.movable && (t.named_at == at || fettle_cfg::tables::names(insn, t))
            });
        if let Some(t) = table {
            let kind = self.function.tables[t].kind;
            if insn.is_ip_rel_memory_operand() {
                let field = self.rip_field(insn).ok_or((SkipReason::Undecodable, at))?;
                return Ok(Some((field.0, Fixup::Table(t as u32))));
            }
            debug_assert_eq!(kind, TableKind::Absolute);
            if self.context.low_addresses {
                // The displacement is the last field of `jmp [table + i*8]` and `mov` alike.
                return Ok(Some((insn.len() as u8 - 4, Fixup::TableAddress(t as u32))));
            }
        }
        if insn.is_ip_rel_memory_operand() {
            let (field, after) = self.rip_field(insn).ok_or((SkipReason::Undecodable, at))?;
            let to = LinkAddr(insn.ip_rel_memory_address());
            return Ok(Some((field, Fixup::Original { to, after })));
        }
        Ok(None)
    }

    /// Offset of the displacement of a `rip`-relative operand, and the bytes that follow it.
    fn rip_field(&self, insn: &Instruction) -> Option<(u8, u8)> {
        let bytes = self.context.image.read(LinkAddr(insn.ip()), insn.len())?;
        let immediate = (0..insn.op_count())
            .map(|i| match insn.op_kind(i) {
                OpKind::Immediate8
                | OpKind::Immediate8_2nd
                | OpKind::Immediate8to16
                | OpKind::Immediate8to32
                | OpKind::Immediate8to64 => 1,
                OpKind::Immediate16 => 2,
                OpKind::Immediate32 | OpKind::Immediate32to64 => 4,
                _ => 0,
            })
            .sum::<usize>();
        // A register in the immediate byte shows as a register operand, hence the second guess.
        [immediate, 1, 0].into_iter().find_map(|after| {
            let field = insn.len().checked_sub(4 + after)?;
            let disp = i32::from_le_bytes(bytes.get(field..field + 4)?.try_into().ok()?);
            let to = insn.next_ip().wrapping_add_signed(i64::from(disp));
            (to == insn.ip_rel_memory_address()).then_some((field as u8, after as u8))
        })
    }

    fn size(&self, item: &Item, offset: u32) -> u32 {
        match item {
            Item::Copy { insn, .. } => self.function.insns[*insn as usize].len() as u32,
            Item::Operand(o) => self.operands[*o as usize].bytes.len() as u32,
            Item::Promoted(p) => self.promotions[*p as usize].guard_size() + CALL,
            Item::PromotedTail(p) => self.promotions[*p as usize].guard_size(),
            Item::Jump { jump, short, .. } => jump.size(*short),
            Item::Fall { short, .. } => Jump::Always.size(*short),
            Item::ToCold { insn, .. } | Item::BranchOut { insn, .. } => {
                Jump::of(&self.function.insns[*insn as usize]).size(false)
            }
            Item::Probe(p) => self.probes[*p as usize].snippet.code.len() as u32,
            Item::Align(to) => offset.next_multiple_of(*to) - offset,
            Item::Label(_) | Item::Chunk | Item::Gone { .. } => 0,
            Item::JumpOut { .. } => JUMP_OUT,
            Item::Cold(c) => match &self.cold[*c as usize] {
                ColdPart::OfProbe(p) => self.probes[*p as usize].snippet.cold.len() as u32,
                // The jump itself is written after the probe; see `encode`.
                ColdPart::Branch { probe: None, .. } => JUMP_OUT,
                ColdPart::Branch { probe: Some(_), .. } => 0,
                ColdPart::Call(p) => {
                    let insn = self.promotions[*p as usize].insn;
                    self.function.insns[insn as usize].len() as u32 + JUMP_OUT
                }
            },
        }
    }

    /// For each block, the chunk that it is in.
    fn chunk_of_blocks(&self) -> Vec<u32> {
        let mut chunks = vec![0; self.function.blocks.len()];
        let mut chunk = 0;
        for item in &self.items {
            match item {
                Item::Chunk => chunk += 1,
                Item::Label(b) => chunks[b.index()] = chunk,
                _ => {}
            }
        }
        chunks
    }

    fn encode(mut self) -> Result<Emitted, (SkipReason, LinkAddr)> {
        let chunks = self.chunk_of_blocks();
        let mut offsets = vec![0u32; self.items.len() + 1];
        let mut block_offsets = vec![0u32; self.function.blocks.len()];
        loop {
            let mut offset = 0;
            let mut pending_exit = 0;
            for (i, item) in self.items.iter().enumerate() {
                offsets[i] = offset;
                offset += self.size(item, offset) + std::mem::take(&mut pending_exit);
                match item {
                    Item::Label(b) => block_offsets[b.index()] = offset,
                    // The probe that follows carries the jump out behind it.
                    Item::Cold(c) => {
                        if let ColdPart::Branch { probe: Some(_), .. } = self.cold[*c as usize] {
                            pending_exit = JUMP_OUT;
                        }
                    }
                    _ => {}
                }
            }
            offsets[self.items.len()] = offset;
            let mut grown = false;
            let mut chunk = 0;
            for (i, item) in self.items.iter_mut().enumerate() {
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
        self.write(&offsets, block_offsets)
    }

    fn write(
        mut self,
        offsets: &[u32],
        block_offsets: Vec<u32>,
    ) -> Result<Emitted, (SkipReason, LinkAddr)> {
        let function = self.function;
        let mut out = Emitted {
            code: Vec::with_capacity(offsets[self.items.len()] as usize),
            fixups: Vec::new(),
            block_offsets,
            insn_offsets: vec![u32::MAX; function.insns.len()],
            returns: Vec::new(),
            unwind: Vec::with_capacity(self.items.len()),
            inserted: Vec::new(),
            chunk_starts: Vec::new(),
            parts: Vec::new(),
            counters: std::mem::take(&mut self.counters),
            pointers: std::mem::take(&mut self.pointers),
        };
        out.pointers.sort_unstable();
        let chunks = self.chunk_of_blocks();
        // Where the parts of probes and the parts out of line came to lie.
        let mut probe_at = vec![0u32; self.probes.len()];
        let mut cold_at = vec![0u32; self.cold.len()];
        let mut cold_of_probe = vec![0u32; self.probes.len()];
        let mut behind_promoted = vec![0u32; self.promotions.len()];
        for (i, item) in self.items.iter().enumerate() {
            match item {
                Item::Probe(p) => probe_at[*p as usize] = offsets[i],
                Item::Promoted(p) => {
                    behind_promoted[*p as usize] = offsets[i] + self.size(item, offsets[i]);
                }
                Item::Cold(c) => {
                    cold_at[*c as usize] = offsets[i];
                    if let ColdPart::OfProbe(p) = &self.cold[*c as usize] {
                        cold_of_probe[*p as usize] = offsets[i];
                    }
                }
                _ => {}
            }
        }
        let ip = |insn: u32| LinkAddr(function.insns[insn as usize].ip());
        let mut original_code = OriginalCode { image: self.context.image, start: 0, bytes: &[] };
        let mut pending_exit = None;
        for (i, item) in self.items.iter().enumerate() {
            let offset = offsets[i];
            debug_assert_eq!(out.code.len() as u32, offset);
            match item {
                Item::Copy { insn, fix } => {
                    let original = &function.insns[*insn as usize];
                    let bytes = original_code
                        .of(function, original)
                        .ok_or((SkipReason::Undecodable, ip(*insn)))?;
                    out.insn_offsets[*insn as usize] = offset;
                    out.point(offset, ip(*insn), 0);
                    out.copy(bytes, *fix);
                    out.returns.extend(self.comes_back(*insn).then(|| (*insn, out.end())));
                }
                Item::Operand(o) => {
                    let operand = &self.operands[*o as usize];
                    out.point(offset, ip(operand.insn), 0);
                    out.operand(operand);
                }
                Item::Promoted(p) | Item::PromotedTail(p) => {
                    let promotion = &self.promotions[*p as usize];
                    out.insn_offsets[promotion.insn as usize] = offset;
                    out.point(offset, ip(promotion.insn), 0);
                    match matches!(item, Item::Promoted(_)) {
                        true => out.promoted(promotion, cold_at[promotion.cold as usize]),
                        false => out.promoted_tail(promotion),
                    }
                }
                Item::Jump { insn, jump, to, short } => {
                    out.insn_offsets[*insn as usize] = offset;
                    out.point(offset, ip(*insn), 0);
                    out.jump(*jump, *short, *to, &chunks);
                }
                Item::Fall { to, short } => {
                    // Control has left the block before, and comes to the other.
                    out.point(offset, ip(self.first_insn(*to)), 0);
                    out.jump(Jump::Always, *short, *to, &chunks);
                }
                Item::Gone { insn, to } => {
                    out.insn_offsets[*insn as usize] = out.block_offsets[to.index()];
                }
                Item::JumpOut { insn, to } => {
                    out.insn_offsets[*insn as usize] = offset;
                    out.point(offset, ip(*insn), 0);
                    out.jump_out(*to);
                }
                Item::BranchOut { insn, to } => {
                    out.insn_offsets[*insn as usize] = offset;
                    out.point(offset, ip(*insn), 0);
                    Jump::of(&function.insns[*insn as usize]).write(&mut out.code, false, 0);
                    out.fixups.push((out.code.len() as u32 - 4, Fixup::Function(*to)));
                }
                Item::ToCold { insn, cold } => {
                    out.insn_offsets[*insn as usize] = offset;
                    out.point(offset, ip(*insn), 0);
                    let jump = Jump::of(&function.insns[*insn as usize]);
                    let distance = cold_at[*cold as usize].wrapping_sub(offset + jump.size(false));
                    jump.write(&mut out.code, false, distance);
                }
                Item::Probe(p) => {
                    let probe = &self.probes[*p as usize];
                    let end = offset + probe.snippet.code.len() as u32;
                    out.inserted.push(Inserted { start: offset, end });
                    out.point(offset, ip(probe.at), 0);
                    for (at, pushed) in &probe.snippet.pushed {
                        out.point(offset + at, ip(probe.at), *pushed);
                    }
                    let (code, fixups) = (&probe.snippet.code, &probe.snippet.fixups);
                    let parts = (offset, cold_of_probe[*p as usize]);
                    out.snippet(code, fixups, parts);
                    if let Some((to, insn)) = pending_exit.take() {
                        let at = match to {
                            Destination::Function(_) => ip(insn),
                            Destination::Block(b) => ip(self.first_insn(b)),
                        };
                        out.point(out.code.len() as u32, at, 0);
                        out.jump_to(to, &chunks);
                    }
                }
                Item::Align(_) => {
                    // Control that falls into padding has done what stands before it.
                    if let Some(Item::Label(b)) = self.items.get(i + 1) {
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
                Item::Cold(c) => match &self.cold[*c as usize] {
                    ColdPart::OfProbe(p) => {
                        let probe = &self.probes[*p as usize];
                        for (at, pushed) in &probe.snippet.cold_pushed {
                            out.point(offset + at, ip(probe.at), *pushed);
                        }
                        let parts = (probe_at[*p as usize], offset);
                        let (code, fixups) = (&probe.snippet.cold, &probe.snippet.cold_fixups);
                        out.snippet(code, fixups, parts);
                    }
                    ColdPart::Branch { probe: None, to, insn } => {
                        out.point(offset, ip(*insn), 0);
                        out.jump_to(*to, &chunks);
                    }
                    ColdPart::Branch { probe: Some(_), to, insn } => {
                        pending_exit = Some((*to, *insn));
                    }
                    ColdPart::Call(p) => {
                        let insn = self.promotions[*p as usize].insn;
                        let call = &function.insns[insn as usize];
                        let bytes = original_code
                            .of(function, call)
                            .ok_or((SkipReason::Undecodable, ip(insn)))?;
                        out.point(offset, ip(insn), 0);
                        let fix = self.address_fixup(call)?;
                        out.copy(bytes, fix);
                        out.returns_here(insn);
                        out.jump_back(behind_promoted[*p as usize]);
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
}

impl Emitted {
    /// Lets go of what is of no use once the code has its place: together that is larger than it.
    pub fn trim(&mut self) {
        (self.unwind, self.insn_offsets) = (Vec::new(), Vec::new());
        self.returns = Vec::new();
    }

    /// A block from this range begins at `offset`.
    fn part(&mut self, range: u32, offset: u32) {
        let chunk = self.chunk_starts.last().copied().unwrap_or(0);
        match self.parts.last() {
            Some(part) if part.start >= chunk && part.range == range => {}
            Some(part) if part.start >= chunk => self.parts.push(Part { start: offset, range }),
            // Probes at the entry stand before the first block.
            _ => self.parts.push(Part { start: chunk, range }),
        }
    }

    /// The chunk that is being written, counted from one.
    fn chunk(&self) -> u32 {
        self.chunk_starts.len() as u32
    }

    /// A jump to a block; `chunks` says in which chunk each is.
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

    /// Offset behind what was written last.
    fn end(&self) -> u32 {
        self.code.len() as u32
    }

    /// What was written last is a call.
    fn returns_here(&mut self, insn: u32) {
        self.returns.push((insn, self.end()));
    }

    fn point(&mut self, offset: u32, original: LinkAddr, pushed: u32) {
        self.unwind.push(UnwindPoint { offset, original, pushed });
    }

    fn jump_to(&mut self, to: Destination, chunks: &[u32]) {
        match to {
            Destination::Function(to) => self.jump_out(to),
            Destination::Block(to) => self.jump(Jump::Always, false, to, chunks),
        }
    }

    /// An instruction with the operand of another.
    fn operand(&mut self, operand: &Operand) {
        self.copy(&operand.bytes, operand.fix);
    }

    /// An instruction as it is, but for one field perhaps.
    fn copy(&mut self, bytes: &[u8], fix: Option<(u8, Fixup)>) {
        let start = self.code.len() as u32;
        self.code.extend_from_slice(bytes);
        self.fixups.extend(fix.map(|(at, fix)| (start + u32::from(at), fix)));
    }

    /// The comparison of a promotion: with the address of the original, which pointers hold.
    fn guard(&mut self, promotion: &Promotion) {
        // lea r11, [rip + ..]
        self.code.extend_from_slice(&[0x4c, 0x8d, 0x1d]);
        let original = Fixup::Original { to: promotion.to, after: 0 };
        self.fixups.push((self.code.len() as u32, original));
        self.code.extend_from_slice(&[0; 4]);
        self.operand(&promotion.compare);
    }

    /// A promoted call; `other` is where the call as it was stands.
    fn promoted(&mut self, promotion: &Promotion, other: u32) {
        self.guard(promotion);
        let distance = other.wrapping_sub(self.code.len() as u32 + JCC);
        Jump::If(Condition::NotEqual as u8).write(&mut self.code, false, distance);
        self.code.push(0xe8);
        self.fixups.push((self.code.len() as u32, Fixup::Function(promotion.to)));
        self.code.extend_from_slice(&[0; 4]);
        self.returns_here(promotion.insn);
    }

    /// What stands before a promoted tail call.
    fn promoted_tail(&mut self, promotion: &Promotion) {
        self.guard(promotion);
        Jump::If(Condition::Equal as u8).write(&mut self.code, false, 0);
        self.fixups.push((self.code.len() as u32 - 4, Fixup::Function(promotion.to)));
    }

    /// A jump to an offset of the same chunk.
    fn jump_back(&mut self, to: u32) {
        let distance = to.wrapping_sub(self.code.len() as u32 + JUMP_OUT);
        Jump::Always.write(&mut self.code, false, distance);
    }

    fn jump_out(&mut self, to: LinkAddr) {
        self.code.push(0xe9);
        self.fixups.push((self.code.len() as u32, Fixup::Function(to)));
        self.code.extend_from_slice(&[0; 4]);
    }

    /// Appends probe code; `parts` says where its inline and its cold part lie.
    fn snippet(&mut self, code: &[u8], fixups: &[(u32, ProbeFixup)], parts: (u32, u32)) {
        let base = self.code.len() as u32;
        self.code.extend_from_slice(code);
        for (at, fixup) in fixups {
            let at = base + at;
            let to = match fixup {
                ProbeFixup::Inline(to) => parts.0 + to,
                ProbeFixup::OutOfLine(to) => parts.1 + to,
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

/// The bytes of original instructions, one range after another.
struct OriginalCode<'a> {
    image: &'a Image,
    start: u64,
    bytes: &'a [u8],
}

impl<'a> OriginalCode<'a> {
    fn of(&mut self, function: &Function, insn: &Instruction) -> Option<&'a [u8]> {
        let within = |start: u64, bytes: &'a [u8]| {
            let from = usize::try_from(insn.ip().checked_sub(start)?).ok()?;
            bytes.get(from..from + insn.len())
        };
        if let Some(bytes) = within(self.start, self.bytes) {
            return Some(bytes);
        }
        let range = function.ranges.iter().find(|r| r.contains(&LinkAddr(insn.ip())))?;
        self.start = range.start.0;
        self.bytes = self.image.read(range.start, (range.end.0 - range.start.0) as usize)?;
        within(self.start, self.bytes)
    }
}

/// Instructions that compilers pad with.
pub fn is_padding(insn: &Instruction) -> bool {
    insn.mnemonic() == Mnemonic::Nop && insn.len() > 0
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
