//! One decoded instruction and its fields.

use crate::names::{FpReg, Reg};
use crate::table::{self, Op};

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Insn {
    /// Which instruction it is.
    pub op: Op,
    /// The word that it was decoded from, which holds its fields.
    pub word: u32,
}

/// What an instruction does to the flow of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The next instruction follows.
    Plain,
    /// A conditional branch; the instruction behind it, in its delay slot, is always executed.
    Branch,
    /// A conditional branch whose delay slot is executed only when it is taken.
    BranchLikely,
    /// A branch that stores a return address, taken on a condition.
    BranchAndLink,
    /// `j`: an unconditional jump to an absolute address.
    Jump,
    /// `jal`: a call of an absolute address.
    JumpAndLink,
    /// `jr`: a jump to the address in a register.
    JumpRegister,
    /// `jalr`: a call of the address in a register.
    JumpRegisterAndLink,
}

impl Kind {
    /// Whether the next instruction is in a delay slot.
    pub fn has_delay_slot(self) -> bool {
        self != Self::Plain
    }

    /// Whether it stores a return address.
    pub fn is_call(self) -> bool {
        matches!(self, Self::BranchAndLink | Self::JumpAndLink | Self::JumpRegisterAndLink)
    }
}

impl Insn {
    /// Decodes a word, if it is an instruction of MIPS32 release 2 that a program may execute.
    pub fn decode(word: u32) -> Option<Self> {
        table::find(word).map(|op| Self { op, word })
    }

    /// What it does to the flow of control.
    pub fn kind(self) -> Kind {
        match self.op {
            Op::J => Kind::Jump,
            Op::Jal => Kind::JumpAndLink,
            Op::Jr | Op::JrHb => Kind::JumpRegister,
            Op::Jalr | Op::JalrHb => Kind::JumpRegisterAndLink,
            Op::Bltzal | Op::Bgezal => Kind::BranchAndLink,
            Op::Beq | Op::Bne | Op::Blez | Op::Bgtz | Op::Bltz | Op::Bgez => Kind::Branch,
            Op::Bc1f | Op::Bc1t => Kind::Branch,
            Op::Beql | Op::Bnel | Op::Blezl | Op::Bgtzl | Op::Bltzl | Op::Bgezl => {
                Kind::BranchLikely
            }
            Op::Bc1fl | Op::Bc1tl => Kind::BranchLikely,
            _ => Kind::Plain,
        }
    }

    /// Where a branch or an absolute jump leads when it is at `pc`.
    pub fn target(self, pc: u32) -> Option<u32> {
        match self.kind() {
            Kind::Jump | Kind::JumpAndLink => {
                let region = pc.wrapping_add(4) & 0xf000_0000;
                Some(region | ((self.word & 0x03ff_ffff) << 2))
            }
            Kind::Branch | Kind::BranchLikely | Kind::BranchAndLink => {
                Some(pc.wrapping_add(4).wrapping_add((self.imm() as u32) << 2))
            }
            _ => None,
        }
    }

    /// First source register, and the base of an address.
    pub fn rs(self) -> Reg {
        Reg::new(self.word >> 21)
    }

    /// Second source register, or the destination of an instruction with an immediate.
    pub fn rt(self) -> Reg {
        Reg::new(self.word >> 16)
    }

    /// Destination register.
    pub fn rd(self) -> Reg {
        Reg::new(self.word >> 11)
    }

    /// Amount of a shift; position of a field.
    pub fn sa(self) -> u32 {
        (self.word >> 6) & 31
    }

    /// The immediate, sign-extended.
    pub fn imm(self) -> i32 {
        i32::from(self.word as u16 as i16)
    }

    /// The immediate, zero-extended.
    pub fn uimm(self) -> u32 {
        self.word & 0xffff
    }

    /// Destination of a floating-point instruction.
    pub fn fd(self) -> FpReg {
        FpReg::new(self.word >> 6)
    }

    /// First source of a floating-point instruction.
    pub fn fs(self) -> FpReg {
        FpReg::new(self.word >> 11)
    }

    /// Second source of a floating-point instruction, and the register of its loads and stores.
    pub fn ft(self) -> FpReg {
        FpReg::new(self.word >> 16)
    }

    /// Third source of a fused floating-point instruction.
    pub fn fr(self) -> FpReg {
        FpReg::new(self.word >> 21)
    }

    /// The condition flag that a floating-point branch or conditional move reads.
    pub fn cc(self) -> u8 {
        ((self.word >> 18) & 7) as u8
    }

    /// The condition flag that a floating-point comparison sets.
    pub fn compared_cc(self) -> u8 {
        ((self.word >> 8) & 7) as u8
    }

    /// Of `ext` and `ins`: the width of the field.
    pub fn field_width(self) -> u32 {
        match self.op {
            Op::Ins => (u32::from(self.rd().number()) + 1).wrapping_sub(self.sa()) & 63,
            _ => u32::from(self.rd().number()) + 1,
        }
    }

    /// The code of a trap on a condition.
    pub fn trap_code(self) -> u32 {
        (self.word >> 6) & 0x3ff
    }
}
