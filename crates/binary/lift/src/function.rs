//! The lifted form of a function.

use std::ops::Range;
use std::sync::Arc;

use fettle_image::{Image, LinkAddr};
use fettle_isa::{Facts, Flow, Insn};
use iced_x86::Instruction;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Index of a block in its function, in order of address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockId(pub u32);

impl BlockId {
    /// The index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How control leaves a function at the end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// `ret`
    Return,
    /// `jmp` to the entry of another function, or of this one's caller's choice; or what stands behind
    /// the function, if control falls through to there: see [`Function::runs_on`].
    TailJump(LinkAddr),
    /// A conditional jump to the entry of another function; the other way stays inside.
    TailBranch(LinkAddr),
    /// `jmp` through a register or memory that is no jump table.
    TailIndirect,
}

/// Blocks that control may go to next: few, as a rule.
pub type Succs = SmallVec<[BlockId; 4]>;

/// Where the code of a function is: in one place, as a rule.
pub type Ranges = SmallVec<[Range<LinkAddr>; 1]>;

/// A straight run of instructions with one entry, at its top.
#[derive(Clone, Debug)]
pub struct Block {
    /// Where its first instruction is.
    pub start: LinkAddr,
    /// Its instructions in [`Function::insns`].
    pub insns: Range<u32>,
    /// Where control may go inside the function: the fall-through first, if there is one.
    pub succs: Succs,
    /// The first of `succs` is reached by falling through.
    pub falls_through: bool,
    /// How control may leave the function from here.
    pub exit: Option<Exit>,
    /// The exception handler of some call: control comes from the unwinder.
    pub landing_pad: bool,
    /// The last instruction goes through a jump table.
    pub switches: bool,
}

/// How a jump table's entries say where to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TableKind {
    /// Signed 32-bit distances from this address (as a rule the table's own).
    Relative {
        /// What entries are added to.
        base: LinkAddr,
    },
    /// 64-bit addresses, relocated at load where the image is position-independent.
    Absolute,
}

/// What is known of the number of a table's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A comparison: so many.
    Exact(u64),
    /// A mask: no more than that. An interpreter masks an instruction's bits, and has fewer.
    AtMost(u64),
}

/// A table of code addresses that an indirect jump goes through: a `switch`, or the labels of a
/// computed `goto`.
#[derive(Clone, Debug)]
pub struct JumpTable {
    /// The jump.
    pub jump: LinkAddr,
    /// First entry.
    pub start: LinkAddr,
    /// How entries are read.
    pub kind: TableKind,
    /// Where each entry leads, in order; `None` for those that are null: an array of labels may have
    /// holes. Tables that lie in one place may share it.
    pub entries: Arc<[Option<LinkAddr>]>,
    /// What a comparison or mask before the jump says of the number of entries.
    pub bound: Option<Bound>,
    /// The instruction that names the table: `lea`, `mov`, or the jump itself.
    pub named_at: LinkAddr,
    /// Every use of that name is an access to this table: a copy can take the table's place.
    pub movable: bool,
}

impl JumpTable {
    /// Whether there are no more entries than were read.
    pub fn is_bounded(&self) -> bool {
        match self.bound {
            Some(Bound::Exact(_)) => true,
            Some(Bound::AtMost(most)) => self.entries.len() as u64 == most,
            None => false,
        }
    }

    /// Where it leads.
    pub fn targets(&self) -> impl Iterator<Item = LinkAddr> {
        self.entries.iter().copied().flatten()
    }
}

/// A function that was lifted with certainty.
#[derive(Clone, Debug)]
pub struct Function {
    /// Where callers come in.
    pub entry: LinkAddr,
    /// Symbol name, mangled.
    pub name: Option<String>,
    /// The ranges of code it consists of: its own first, then its cold parts.
    pub ranges: Ranges,
    /// Its instructions in order of address.
    pub insns: Vec<Insn>,
    /// Facts of each instruction.
    pub facts: Vec<Facts>,
    /// Its blocks in order of address.
    pub blocks: Vec<Block>,
    /// Its jump tables.
    pub tables: Vec<JumpTable>,
}

impl Function {
    /// Bytes of its code, cold parts included.
    pub fn size(&self) -> u64 {
        self.ranges.iter().map(|range| range.end.0 - range.start.0).sum()
    }

    /// The block whose first instruction is at `addr`.
    pub fn block_at(&self, addr: LinkAddr) -> Option<BlockId> {
        self.blocks.binary_search_by_key(&addr, |b| b.start).ok().map(|i| BlockId(i as u32))
    }

    /// The block at `addr` that control goes to from the end of `block`. There are few, so that this
    /// is found sooner than among all.
    #[inline]
    pub fn succ_at(&self, block: &Block, addr: LinkAddr) -> Option<BlockId> {
        block.succs.iter().copied().find(|succ| self.blocks[succ.index()].start == addr)
    }

    /// The block where callers come in.
    pub fn entry_block(&self) -> BlockId {
        self.block_at(self.entry).expect("the entry starts a block")
    }

    /// Instructions of a block.
    #[inline]
    pub fn block_insns(&self, block: &Block) -> &[Insn] {
        &self.insns[block.insns.start as usize..block.insns.end as usize]
    }

    /// Where control goes after instruction `index`.
    #[inline]
    pub fn flow(&self, index: usize) -> Flow {
        self.facts[index].flow(&self.insns[index])
    }

    /// All that a decoder knows of instruction `index`, whose bytes `image` has.
    pub fn full(&self, image: &Image, index: usize) -> Instruction {
        let insn = &self.insns[index];
        insn.full(image.read(LinkAddr(insn.ip()), insn.len()).unwrap_or_default())
    }

    /// Instructions of a block with their facts.
    pub fn block_facts(
        &self,
        block: &Block,
    ) -> impl DoubleEndedIterator<Item = (&Insn, Facts)> + ExactSizeIterator {
        let range = block.insns.start as usize..block.insns.end as usize;
        self.insns[range.clone()].iter().zip(self.facts[range].iter().copied())
    }

    /// Where control goes on if `block` is left without a jump, at the function's end: compilers let
    /// instructions be the last that fault as a rule.
    pub fn runs_on(&self, block: &Block) -> Option<LinkAddr> {
        match block.exit {
            Some(Exit::TailJump(to)) if self.facts[block.insns.end as usize - 1].goes_on() => {
                Some(to)
            }
            _ => None,
        }
    }

    /// Bytes of code lifted.
    pub fn code_bytes(&self) -> u64 {
        self.insns.iter().map(|i| i.len() as u64).sum()
    }

    /// Whether each entry is followed by an exit: it calls no function and no kernel, and nothing in it
    /// traps or is there to fault.
    pub fn is_always_left(&self) -> bool {
        let goes_on = |facts: &Facts, insn: &Insn| {
            !facts.may_return() && !insn.is_syscall() && facts.flow(insn) != Flow::Stop
        };
        self.facts.iter().zip(&self.insns).all(|(facts, insn)| goes_on(facts, insn))
            && self.blocks.iter().all(|block| self.runs_on(block).is_none())
    }

    /// Whether `addr` lies in one of the function's ranges.
    pub fn contains(&self, addr: LinkAddr) -> bool {
        self.ranges.iter().any(|r| r.contains(&addr))
    }
}

/// Why a function is left unmodified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SkipReason {
    /// Bytes that are no instruction.
    Undecodable,
    /// A jump into the middle of an instruction.
    OverlappingInstructions,
    /// The last instruction does not end the function.
    RunsOffEnd,
    /// An indirect jump that may be a jump table, whose table was not found.
    UnresolvedJump,
    /// Code that several functions jump into.
    SharedCode,
    /// A far transfer, transaction or interrupt.
    StrangeFlow,
    /// No room for a jump at its entry.
    TooSmall,
    /// Too little room at a place that jump tables lead to.
    CrowdedTargets,
    /// It uses the segment that probes use.
    UsesGs,
    /// Its unwind information could not be carried over.
    Unwind,
    /// Its exception tables could not be carried over.
    ExceptionTable,
    /// It returns to its caller twice, first in a child that has the same memory (`vfork`): the child
    /// would take the call from those in progress.
    ReturnsTwice,
    /// Others than itself know addresses in its middle, and ask where a thread is: in a copy it never is
    /// there.
    NamedInside,
    /// It asks for more stack (`-fsplit-stack`) by a call that returns behind the instruction after it.
    SplitStack,
    /// The kernel takes threads out of the middle of it (`rseq`), as it does not in a copy.
    Restartable,
    /// It asks the loader who its caller is (`dlsym(RTLD_NEXT)` and the like).
    CallerSensitive,
    /// Its language's runtime finds frames by the addresses of code.
    FramesByAddress,
    /// Its program translates other programs, and some of its own functions with them, which must not
    /// lead to rewritten text that those do not have.
    Translator,
    /// The loader changes its code (a text relocation), or an object file's relocation is not known, or
    /// not where it could be moved.
    Relocation,
    /// The checker did not agree with the rewritten code.
    CheckFailed,
    /// An order of blocks that does not have each of its blocks once.
    Order,
    /// It begins in the middle of another function, which has its bytes.
    InsideAnother,
    /// It is a PLT entry with a symbol, or what the loader calls first or last in a file without sections, of
    /// which nothing says where it ends.
    LinkerMade,
    /// A part of a function that none was found for: nothing that is known leads to it.
    NothingLeads,
    /// The user left it out.
    NotSelected,
}

impl SkipReason {
    /// One short phrase for tables.
    pub const fn describe(self) -> &'static str {
        match self {
            SkipReason::Undecodable => "bytes that are no instruction",
            SkipReason::OverlappingInstructions => "a jump into the middle of an instruction",
            SkipReason::RunsOffEnd => "control runs past its end",
            SkipReason::UnresolvedJump => "an indirect jump whose targets are not certain",
            SkipReason::SharedCode => "code shared with another function",
            SkipReason::StrangeFlow => "a far transfer, transaction or interrupt",
            SkipReason::TooSmall => "no room for a jump at its entry",
            SkipReason::CrowdedTargets => "jump targets too close to each other",
            SkipReason::UsesGs => "it uses the gs segment itself",
            SkipReason::Unwind => "unwind information that cannot be carried over",
            SkipReason::ExceptionTable => "exception tables that cannot be carried over",
            SkipReason::ReturnsTwice => "it returns twice, once in a child with the same memory",
            SkipReason::NamedInside => "addresses in its middle are known elsewhere",
            SkipReason::SplitStack => "its stack is split (-fsplit-stack)",
            SkipReason::Restartable => "a restartable sequence (rseq), known to the kernel",
            SkipReason::CallerSensitive => "it asks the loader who called",
            SkipReason::FramesByAddress => "its runtime looks return addresses up in tables",
            SkipReason::Translator => {
                "its program translates others, and parts of itself with them"
            }
            SkipReason::Relocation => "a relocation that cannot be carried over",
            SkipReason::CheckFailed => "the checker did not agree with the rewritten text",
            SkipReason::Order => "an order of blocks that is not one of its own",
            SkipReason::InsideAnother => "an entry in the middle of another function",
            SkipReason::LinkerMade => "made by the linker, without a known end",
            SkipReason::NothingLeads => "a part of a function that nothing known leads to",
            SkipReason::NotSelected => "not selected",
        }
    }
}

/// A function that is left unmodified.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Skipped {
    /// Where it starts.
    pub entry: LinkAddr,
    /// Its size in bytes.
    pub size: u64,
    /// Symbol name, mangled.
    pub name: Option<String>,
    /// Why.
    pub reason: SkipReason,
    /// The address that decided it.
    pub at: LinkAddr,
}
