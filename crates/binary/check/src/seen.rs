//! What the checker knows of an instruction: by its own reading of the decoder's tables, which is
//! not the lifter's, remembered by form.

use fettle_isa::{Insn, Learn};
use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, Register};

use crate::uses::{self, Uses};

/// Where control goes after an original instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Next,
    Call(u64),
    CallIndirect,
    Jump(u64),
    Branch(u64),
    JumpIndirect,
    Return,
    Stop,
    /// To the next instruction, if the signal's handler returns.
    Trap,
}

/// The same without addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Strange,
    Next,
    Call,
    CallIndirect,
    Jump,
    Branch,
    JumpIndirect,
    Return,
    Stop,
    Trap,
}

/// What is known of all instructions of a form.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// What it reads and writes.
    pub uses: Uses,
    way: Way,
    /// Its operand in memory is relative to half of the program counter.
    pub by_half: bool,
}

impl Seen {
    /// Where control goes after `insn`, which is of this form; `None` for what is not followed.
    pub fn step(&self, insn: &Insn) -> Option<Step> {
        Some(match self.way {
            Way::Next => Step::Next,
            Way::Call => Step::Call(insn.near_branch_target()),
            Way::CallIndirect => Step::CallIndirect,
            Way::Jump => Step::Jump(insn.near_branch_target()),
            Way::Branch => Step::Branch(insn.near_branch_target()),
            Way::JumpIndirect => Step::JumpIndirect,
            Way::Return => Step::Return,
            Way::Stop => Step::Stop,
            Way::Trap => Step::Trap,
            Way::Strange => return None,
        })
    }

    /// Whether control goes to the next instruction only.
    pub fn goes_on(&self) -> bool {
        self.way == Way::Next
    }

    /// A direct jump that is always taken.
    pub fn is_jump(&self) -> bool {
        self.way == Way::Jump
    }

    /// A call that is followed.
    pub fn is_call(&self) -> bool {
        matches!(self.way, Way::Call | Way::CallIndirect)
    }
}

/// Looks at instructions that were not seen before.
pub(crate) struct FormDecoder(InstructionInfoFactory);

impl Default for FormDecoder {
    fn default() -> Self {
        FormDecoder(InstructionInfoFactory::new())
    }
}

impl Learn for FormDecoder {
    type Known = Seen;

    fn learn(&mut self, insn: &Instruction) -> Seen {
        let by_half = insn.is_ip_rel_memory_operand() && insn.memory_base() != Register::RIP;
        Seen { uses: uses::uses(insn, &mut self.0), way: way(insn), by_half }
    }
}

fn way(insn: &Instruction) -> Way {
    match insn.flow_control() {
        FlowControl::Next if insn.mnemonic() == Mnemonic::Hlt => Way::Stop,
        FlowControl::Next => Way::Next,
        FlowControl::Call if insn.code() == Code::Call_rel32_64 => Way::Call,
        FlowControl::Call if insn.code() == Code::Syscall => Way::Next,
        FlowControl::IndirectCall if insn.code() == Code::Call_rm64 => Way::CallIndirect,
        FlowControl::UnconditionalBranch
            if matches!(insn.code(), Code::Jmp_rel8_64 | Code::Jmp_rel32_64) =>
        {
            Way::Jump
        }
        FlowControl::ConditionalBranch => Way::Branch,
        FlowControl::IndirectBranch if insn.code() == Code::Jmp_rm64 => Way::JumpIndirect,
        FlowControl::Return if matches!(insn.code(), Code::Retnq | Code::Retnq_imm16) => {
            Way::Return
        }
        FlowControl::Exception => Way::Stop,
        FlowControl::Interrupt if insn.code() == Code::Int3 => Way::Trap,
        _ => Way::Strange,
    }
}
