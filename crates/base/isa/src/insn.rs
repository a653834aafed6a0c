//! An instruction, as far as moving it goes: where it is, how long, what it names.
//!
//! A decoder's instruction knows each operand and takes 40 bytes. Of nearly all instructions that
//! is never asked: they are copied as they are, and [`crate::Facts`] tell what they do to
//! registers. [`Insn::full`] decodes the few of which more is.

use iced_x86::{Decoder, DecoderOptions, Instruction};

/// What an instruction is, by bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(pub u8);

impl Marks {
    /// An operand in memory is named by its distance.
    pub const IP_RELATIVE: u8 = 1;
    /// It jumps to or calls an address that is named by its distance.
    pub const BRANCH: u8 = 1 << 1;
    pub const NOP: u8 = 1 << 2;
    pub const LEA: u8 = 1 << 3;
    /// An operand lies below what `rsp` or `rbp` holds.
    pub const BELOW: u8 = 1 << 4;
    pub const SYSCALL: u8 = 1 << 5;
    pub const LOCK: u8 = 1 << 6;
    pub const GS: u8 = 1 << 7;

    fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }
}

/// An instruction of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    pub(crate) ip: u64,
    /// From its end to what it names.
    pub(crate) distance: i32,
    pub(crate) len: u8,
    /// Where the distance of an operand in memory is.
    pub(crate) field: u8,
    pub(crate) marks: Marks,
    /// The opcode of a conditional jump's short form, or 0; without its highest bit if only half of
    /// a counter counts.
    pub(crate) jump: u8,
}

/// What decides whether a conditional jump is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decides {
    /// The flags, by the condition's number in machine code.
    Flags(u8),
    /// `rcx`: `jrcxz`, `loop` and their like, by their opcode.
    Counter {
        /// The opcode.
        opcode: u8,
        /// Only the lower half is looked at.
        ecx: bool,
    },
}

/// The opcode of a counter's jump with an operand of 32 bits is kept with this bit turned.
pub(crate) const HALF: u8 = 0x80;

impl Insn {
    /// Its address.
    pub fn ip(&self) -> u64 {
        self.ip
    }

    /// Its bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// The address behind it.
    pub fn next_ip(&self) -> u64 {
        self.ip.wrapping_add(self.len.into())
    }

    fn named(&self) -> u64 {
        self.next_ip().wrapping_add_signed(self.distance.into())
    }

    /// Where a direct jump or call leads; 0 for others.
    pub fn near_branch_target(&self) -> u64 {
        if self.marks.has(Marks::BRANCH) { self.named() } else { 0 }
    }

    /// Whether it has an operand in memory that is named by its distance.
    pub fn is_ip_rel_memory_operand(&self) -> bool {
        self.marks.has(Marks::IP_RELATIVE)
    }

    /// The address of that operand; 0 without one.
    pub fn ip_rel_memory_address(&self) -> u64 {
        if self.is_ip_rel_memory_operand() { self.named() } else { 0 }
    }

    /// Where that operand's distance is, in bytes from the start; it has 32 bits.
    pub fn ip_rel_field(&self) -> u8 {
        self.field
    }

    /// What decides about a conditional jump, if it is one.
    pub fn decides(&self) -> Option<Decides> {
        match self.jump {
            0 => None,
            flags @ 0x70..=0x7f => Some(Decides::Flags(flags & 15)),
            byte => Some(Decides::Counter { opcode: byte | HALF, ecx: byte & HALF == 0 }),
        }
    }

    /// A conditional jump by the flags.
    pub fn is_jcc_short_or_near(&self) -> bool {
        matches!(self.jump, 0x70..=0x7f)
    }

    /// `nop` of whatever length.
    pub fn is_nop(&self) -> bool {
        self.marks.has(Marks::NOP)
    }

    /// `lea`
    pub fn is_lea(&self) -> bool {
        self.marks.has(Marks::LEA)
    }

    /// `lea` of an address relative to the instruction pointer.
    pub fn is_ip_rel_lea(&self) -> bool {
        self.is_lea() && self.is_ip_rel_memory_operand()
    }

    /// `syscall`
    pub fn is_syscall(&self) -> bool {
        self.marks.has(Marks::SYSCALL)
    }

    /// Whether an operand lies below the address in `rsp` or `rbp`.
    pub fn is_below_stack(&self) -> bool {
        self.marks.has(Marks::BELOW)
    }

    /// Whether it has a `lock` prefix.
    pub fn has_lock_prefix(&self) -> bool {
        self.marks.has(Marks::LOCK)
    }

    /// Whether it has a prefix for the segment `gs`.
    pub fn has_gs_prefix(&self) -> bool {
        self.marks.has(Marks::GS)
    }

    /// Leads a direct jump `bytes` less far.
    pub fn jump_shorter(&mut self, bytes: i32) {
        self.distance = self.distance.wrapping_sub(bytes);
    }

    /// All that a decoder knows; `bytes` begin with the instruction's.
    pub fn full(&self, bytes: &[u8]) -> Instruction {
        let bytes = bytes.get(..self.len()).unwrap_or(bytes);
        Decoder::with_ip(64, bytes, self.ip, DecoderOptions::NONE).decode()
    }
}
