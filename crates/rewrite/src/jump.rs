//! Jumps inside a function, which are written anew: their form depends on where code came to lie.

use iced_x86::{Code, ConditionCode, Instruction, Mnemonic};

/// What a jump depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jump {
    /// `jmp`
    Always,
    /// `jcc`, by the condition's number in machine code.
    If(u8),
    /// `jrcxz`, `loop` and their like, by their opcode. They have no form that reaches far.
    Count {
        opcode: u8,
        /// Only the lower half of the register is looked at.
        ecx: bool,
    },
}

impl Jump {
    /// The kind of a direct jump.
    pub(crate) fn of(insn: &Instruction) -> Jump {
        // Other prefixes mean nothing and are left out.
        let ecx = matches!(
            insn.code(),
            Code::Jecxz_rel8_64
                | Code::Loop_rel8_64_ECX
                | Code::Loope_rel8_64_ECX
                | Code::Loopne_rel8_64_ECX
        );
        match insn.mnemonic() {
            Mnemonic::Loopne => Jump::Count { opcode: 0xe0, ecx },
            Mnemonic::Loope => Jump::Count { opcode: 0xe1, ecx },
            Mnemonic::Loop => Jump::Count { opcode: 0xe2, ecx },
            Mnemonic::Jrcxz | Mnemonic::Jecxz => Jump::Count { opcode: 0xe3, ecx },
            _ if insn.is_jcc_short_or_near() => Jump::If(condition_number(insn)),
            _ => Jump::Always,
        }
    }

    /// The jump that is taken when this one is not.
    pub(crate) fn inverted(self) -> Option<Jump> {
        match self {
            Jump::If(condition) => Some(Jump::If(condition ^ 1)),
            Jump::Always | Jump::Count { .. } => None,
        }
    }

    /// Its size in bytes.
    pub(crate) fn size(self, short: bool) -> u32 {
        match (self, short) {
            (Jump::Count { ecx, .. }, true) => 2 + u32::from(ecx),
            // jrcxz +2; jmp +5; jmp target
            (Jump::Count { ecx, .. }, false) => 2 + u32::from(ecx) + 2 + 5,
            (_, true) => 2,
            (Jump::If(_), false) => 6,
            (Jump::Always, false) => 5,
        }
    }

    /// Appends the jump to `code` so that it goes `distance` bytes on from its end. Long forms
    /// have the distance in their last four bytes.
    pub(crate) fn write(self, code: &mut Vec<u8>, short: bool, distance: u32) {
        match (self, short) {
            (Jump::Count { opcode, ecx }, _) => {
                if ecx {
                    code.push(0x67);
                }
                code.push(opcode);
                if !short {
                    code.extend_from_slice(&[2, 0xeb, 5, 0xe9]);
                }
            }
            (Jump::If(condition), true) => code.push(0x70 | condition),
            (Jump::If(condition), false) => code.extend_from_slice(&[0x0f, 0x80 | condition]),
            (Jump::Always, true) => code.push(0xeb),
            (Jump::Always, false) => code.push(0xe9),
        }
        match short {
            true => code.push(distance as u8),
            false => code.extend_from_slice(&distance.to_le_bytes()),
        }
    }
}

/// The condition's number in machine code.
fn condition_number(insn: &Instruction) -> u8 {
    use ConditionCode as C;
    match insn.condition_code() {
        C::o => 0,
        C::no => 1,
        C::b => 2,
        C::ae => 3,
        C::e => 4,
        C::ne => 5,
        C::be => 6,
        C::a => 7,
        C::s => 8,
        C::ns => 9,
        C::p => 10,
        C::np => 11,
        C::l => 12,
        C::ge => 13,
        C::le => 14,
        C::g => 15,
        C::None => unreachable!("a conditional jump has a condition"),
    }
}
