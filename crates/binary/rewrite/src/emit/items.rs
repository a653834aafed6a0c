//! The pieces that rewritten text is put together from.

use fettle_code::Fixup;
use fettle_image::LinkAddr;
use fettle_isa::Jump;
use fettle_lift::function::BlockId;

/// A piece of the rewritten text.
pub(super) enum Item {
    /// Instructions of one block as they are, but for fields to fill in.
    Copy { from: u32, to: u32 },
    /// Something with the operand of a call through memory (index into the list of those).
    Operand(u32),
    /// An indirect call that is compared first (index into the list of those).
    Promoted(u32),
    /// What is emitted before a indirect tail call that is compared first.
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
    /// A call or jump to an entry of a PLT, by the address that the entry jumps to.
    Bound { insn: u32, slot: LinkAddr, calls: bool },
    /// A jump to what is behind the function, where control falls through to there behind an instruction.
    RunOn { insn: u32, to: LinkAddr },
    /// What is emitted behind a noreturn call: the address that it would return to is no other
    /// code's.
    Trap,
    /// A conditional jump to another function.
    BranchOut { insn: u32, to: LinkAddr },
    /// A conditional jump to out-of-line code (index into the list of those).
    ToCold { insn: u32, cold: u32 },
    /// A probe (index into the list of those).
    Probe(u32),
    /// Padding to a multiple of this, with the block it precedes.
    Align(u32),
    /// A chunk begins.
    Chunk,
    /// A block begins.
    Label(BlockId),
    /// Out-of-line code begins.
    Cold(u32),
}

/// An instruction that has the operand of another, which it stands before.
pub(super) struct Operand {
    pub(super) insn: u32,
    pub(super) bytes: Vec<u8>,
    /// The field that depends on where it stands.
    pub(super) fix: Option<(u8, Fixup)>,
}

/// An indirect call that becomes a direct one where the pointer is that of one function.
pub(super) struct Promotion {
    pub(super) insn: u32,
    pub(super) to: LinkAddr,
    /// `cmp` of the pointer with `r11`.
    pub(super) compare: Operand,
    /// Its out-of-line part; none for tail calls.
    pub(super) cold: u32,
    /// Where it came to end.
    pub(super) end: u32,
}

impl Promotion {
    /// Bytes of `lea r11, [rip + ..]`, the comparison, and a conditional jump.
    pub(super) fn guard_size(&self) -> u32 {
        LEA + self.compare.bytes.len() as u32 + JCC
    }
}

pub(super) struct Probe {
    /// The snippet's number.
    pub(super) snippet: u32,
    /// What its counters are counted from.
    pub(super) counters: u32,
    /// Original instruction it stands before.
    pub(super) at: u32,
    /// Where it came to lie, and its out-of-line part.
    pub(super) parts: (u32, u32),
}

/// Out-of-line code: the cold part of a probe, or a probe on a branch and a jump to where the
/// branch led.
pub(super) enum ColdPart {
    OfProbe(u32),
    Branch {
        probe: u32,
        to: Destination,
        insn: u32,
    },
    /// The call of a promotion as it was, and a jump back.
    Call(u32),
}

/// Where a branch led that goes through out-of-line code.
#[derive(Clone, Copy)]
pub(super) enum Destination {
    Function(LinkAddr),
    Block(BlockId),
}

/// `int3`.
pub const TRAP: u8 = 0xcc;
/// Bytes of a `jmp` with a 32-bit distance.
pub(super) const JUMP_OUT: u32 = 5;
/// Bytes of a `call` or `jmp` through a word at a 32-bit distance.
pub(super) const THROUGH_SLOT: u32 = 6;
/// Bytes of a `call` with a 32-bit distance.
pub(super) const CALL: u32 = 5;
/// Bytes of a conditional jump with a 32-bit distance.
pub(super) const JCC: u32 = 6;
/// Bytes of `lea r11, [rip + ..]`.
pub(super) const LEA: u32 = 7;
