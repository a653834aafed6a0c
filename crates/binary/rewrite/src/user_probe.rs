//! The user probe: machine code that the user's compiler made, to be called or, where
//! it is one straight line, to be inlined.
//!
//! The two functions of a probe take the address of their counters in `rdi` and of what is known
//! of the call in `rsi` (`runtime/probe/fettle_probe.h`). Inlined there is neither: a counter is
//! reached through `gs`, an argument or result is still in its register.

use fettle_check::user_probe::may_be_in_line;
use fettle_code::user_probe::STATE_BYTES;
use fettle_code::{Inline, UserFunction, UserProbe};
use fettle_isa::{EffectsFactory, Flow, Gpr, RegSet, flow};
use iced_x86::{Decoder, DecoderOptions, Encoder, Instruction, Mnemonic, OpKind, Register};

use crate::agent;

/// Offset of the result in what is known of a call; arguments come before it.
const RESULT: u64 = 48;
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

/// Whether a function runs at entries or at exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Entries: arguments are in their registers.
    Enter,
    /// Exits: the result may be.
    Leave,
}

/// The probe whose functions start at these offsets of `code`.
pub fn compiled(code: Vec<u8>, enter: Option<u32>, leave: Option<u32>) -> UserProbe {
    let function = |offset: u32, side| UserFunction {
        offset,
        inline: inline(code.get(offset as usize..).unwrap_or_default(), side)
            .filter(may_be_in_line),
    };
    UserProbe {
        vectors: uses_vectors(&code),
        from_agent: agent::user_at(),
        enter: enter.map(|at| function(at, Side::Enter)),
        leave: leave.map(|at| function(at, Side::Leave)),
        code,
    }
}

/// Whether some instruction names a vector register. Constants may look like one; that costs time
/// only.
fn uses_vectors(code: &[u8]) -> bool {
    let vector = |r: Register| r.is_vector_register() || r.is_mm() || r.is_st() || r.is_k();
    Decoder::new(64, code, DecoderOptions::NONE)
        .iter()
        .any(|i| i.op_kinds().count() > 0 && (0..i.op_count()).any(|n| vector(i.op_register(n))))
}

/// The function at the start of `code` as straight-line code.
fn inline(code: &[u8], side: Side) -> Option<Inline> {
    let mut line = Line {
        side,
        out: Inline {
            code: Vec::new(),
            fixups: Vec::new(),
            writes: RegSet::NONE,
            reads_result: false,
        },
        encoder: Encoder::new(64),
        factory: EffectsFactory::new(),
    };
    for insn in &mut Decoder::new(64, code, DecoderOptions::NONE) {
        match flow(&insn) {
            Flow::Return => return Some(line.out),
            Flow::Next if matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Endbr64) => {}
            Flow::Next if !insn.is_invalid() => line.add(insn)?,
            _ => return None,
        }
    }
    None
}

struct Line {
    side: Side,
    out: Inline,
    encoder: Encoder,
    factory: EffectsFactory,
}

impl Line {
    /// Takes an instruction over; `None` if it cannot be inlined.
    fn add(&mut self, mut insn: Instruction) -> Option<()> {
        if !self.keeps_pointers(&insn) {
            return None;
        }
        let mut field = None;
        let memory = (0..insn.op_count()).find(|n| insn.op_kind(*n) == OpKind::Memory);
        if let Some(operand) = memory {
            let at = insn.memory_displacement64();
            let plain = insn.memory_index() == Register::None
                && insn.segment_prefix() == Register::None
                && !self.is_written(insn.memory_base());
            match insn.memory_base() {
                Register::RDI if plain => {
                    let size = insn.memory_size().size() as u64;
                    if size == 0 || at.checked_add(size)? > u64::from(STATE_BYTES) {
                        return None;
                    }
                    insn.set_segment_prefix(Register::GS);
                    insn.set_memory_base(Register::None);
                    insn.set_memory_displ_size(4);
                    insn.set_memory_displacement64(0);
                    field = Some(at as u32);
                }
                Register::RSI if plain => self.take_from_register(&mut insn, operand, at)?,
                _ => return None,
            }
        }
        let effects = self.factory.effects(&insn);
        // The stack is in another place when the code is inlined.
        if effects.reads.union(effects.writes).contains(Gpr::Rsp) {
            return None;
        }
        self.out.writes = self.out.writes.union(effects.writes);
        let start = self.out.code.len() as u32;
        self.encoder.encode(&insn, 0).ok()?;
        let offsets = self.encoder.get_constant_offsets();
        self.out.code.extend(self.encoder.take_buffer());
        if let Some(field) = field {
            if offsets.displacement_size() != 4 {
                return None;
            }
            self.out.fixups.push((start + offsets.displacement_offset() as u32, field));
        }
        Some(())
    }

    /// Whether the addresses that were passed are used as addresses only, or written over.
    fn keeps_pointers(&self, insn: &Instruction) -> bool {
        use Mnemonic::{Mov, Movsx, Movsxd, Movzx};
        let replaces = matches!(insn.mnemonic(), Mov | Movzx | Movsx | Movsxd);
        (0..insn.op_count()).all(|n| match insn.op_kind(n) {
            OpKind::Register => {
                let register = insn.op_register(n).full_register();
                let pointer = matches!(register, Register::RDI | Register::RSI);
                !pointer
                    || self.is_written(register)
                    || (n == 0 && replaces && insn.op_register(n).size() >= 4)
            }
            OpKind::Memory => true,
            OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => true,
            // Strings and the like.
            _ => false,
        })
    }

    /// Replaces an operand in memory by the register that holds what would be there.
    fn take_from_register(&mut self, insn: &mut Instruction, operand: u32, at: u64) -> Option<()> {
        let register = match (self.side, at) {
            (Side::Enter, 0..RESULT) if at.is_multiple_of(8) => ARGUMENTS[at as usize / 8],
            (Side::Leave, RESULT) => {
                self.out.reads_result = true;
                Register::RAX
            }
            _ => return None,
        };
        // Only what is read as a whole, and not as an operand that is written.
        if operand == 0 || insn.memory_size().size() != 8 || self.is_written(register) {
            return None;
        }
        insn.set_op_kind(operand, OpKind::Register);
        insn.set_op_register(operand, register);
        insn.set_memory_base(Register::None);
        insn.set_memory_displ_size(0);
        insn.set_memory_displacement64(0);
        Some(())
    }

    fn is_written(&self, register: Register) -> bool {
        Gpr::containing(register).is_some_and(|r| self.out.writes.contains(r))
    }
}
