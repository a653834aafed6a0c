//! All that Fettle asks of most instructions, in one word, and a fast way to it.
//!
//! Asking a decoder's tables what an instruction reads and writes costs more than decoding it.
//! But programs use few *forms* (code and registers; addresses and most constants do not matter):
//! a small table that remembers the answers knows all but some in a thousand.

use iced_x86::{Instruction, OpKind};

use crate::effects::{Effects, EffectsFactory, Flow, flow};
use crate::regs::RegSet;

/// What an instruction reads and writes, and where control goes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts(u64);

/// Bits of a set of registers.
const SET_BITS: u32 = RegSet::ALL.bits().count_ones();
const KILLS: u32 = SET_BITS;
const WRITES: u32 = 2 * SET_BITS;
const FLOW: u32 = 3 * SET_BITS;

impl Facts {
    fn new(effects: Effects, flow: Flow) -> Facts {
        let flow = match flow {
            Flow::Next => 0,
            Flow::Jump(_) => 1,
            Flow::Branch(_) => 2,
            Flow::IndirectJump => 3,
            Flow::Call(_) => 4,
            Flow::IndirectCall => 5,
            Flow::Return => 6,
            Flow::Stop => 7,
            Flow::Strange => 8,
        };
        let bits = |set: RegSet| u64::from(set.bits());
        let (reads, kills, writes) = (effects.reads, effects.kills, effects.writes);
        Facts(bits(reads) | bits(kills) << KILLS | bits(writes) << WRITES | flow << FLOW)
    }

    fn set(self, shift: u32) -> RegSet {
        // Bits beyond the set's are dropped.
        RegSet::from_bits((self.0 >> shift) as u32)
    }

    /// Read before anything is written; see [`Effects::reads`].
    pub fn reads(self) -> RegSet {
        self.set(0)
    }

    /// Written whole, whatever happens.
    pub fn kills(self) -> RegSet {
        self.set(KILLS)
    }

    /// Perhaps written.
    pub fn writes(self) -> RegSet {
        self.set(WRITES)
    }

    /// The three sets.
    pub fn effects(self) -> Effects {
        Effects { reads: self.reads(), kills: self.kills(), writes: self.writes() }
    }

    /// Where control goes after `instruction`, whose facts these are.
    pub fn flow(self, instruction: &Instruction) -> Flow {
        match self.0 >> FLOW {
            0 => Flow::Next,
            1 => Flow::Jump(instruction.near_branch_target()),
            2 => Flow::Branch(instruction.near_branch_target()),
            3 => Flow::IndirectJump,
            4 => Flow::Call(instruction.near_branch_target()),
            5 => Flow::IndirectCall,
            6 => Flow::Return,
            7 => Flow::Stop,
            _ => Flow::Strange,
        }
    }

    /// Whether control goes to the next instruction only.
    pub fn goes_on(self) -> bool {
        self.0 >> FLOW == 0
    }

    /// Whether it is a call.
    pub fn calls(self) -> bool {
        matches!(self.0 >> FLOW, 4 | 5)
    }
}

/// Whatever of an instruction decides about its facts.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Form {
    /// Code and registers, those of memory operands included.
    code: u64,
    /// Kinds of operands, prefixes, and the constant of shifts, which may shift by nothing.
    rest: u64,
}

impl Form {
    /// The form of no instruction.
    const NONE: Form = Form { code: 0, rest: u64::MAX };

    fn of(i: &Instruction) -> Form {
        let kinds = [i.op0_kind(), i.op1_kind(), i.op2_kind(), i.op3_kind()];
        let byte = kinds.iter().any(|k| matches!(k, OpKind::Immediate8 | OpKind::Immediate8_2nd));
        let registers = [
            i.op0_register(),
            i.op1_register(),
            i.op2_register(),
            i.op3_register(),
            i.memory_base(),
            i.memory_index(),
        ];
        let pack = |bytes: [u64; 6]| bytes.into_iter().rev().fold(0, |all, b| all << 8 | b);
        let [a, b, c, d] = kinds.map(|k| k as u64);
        let immediate = if byte { u64::from(i.immediate8()) } else { 0 };
        let prefixes = u64::from(i.has_rep_prefix()) | u64::from(i.has_repne_prefix()) << 1;
        Form {
            code: pack(registers.map(|r| r as u64)) | (i.code() as u64) << 48,
            rest: pack([a, b, c, d, immediate, prefixes]),
        }
    }

    /// Its place in a table of `1 << bits` entries.
    fn place(self, bits: u32) -> usize {
        let mixed = (self.code ^ self.rest.rotate_left(24)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (64 - bits)) as usize
    }
}

/// Bits of an index of the table.
const TABLE_BITS: u32 = 12;

/// Makes [`Facts`]; keep one per thread, it remembers.
pub struct FactsFactory {
    effects: EffectsFactory,
    known: Box<[(Form, Facts)]>,
}

impl Default for FactsFactory {
    fn default() -> Self {
        FactsFactory::new()
    }
}

impl FactsFactory {
    /// One that knows nothing yet.
    pub fn new() -> FactsFactory {
        FactsFactory {
            effects: EffectsFactory::new(),
            known: vec![(Form::NONE, Facts(0)); 1 << TABLE_BITS].into_boxed_slice(),
        }
    }

    /// The facts of `instruction`.
    pub fn facts(&mut self, instruction: &Instruction) -> Facts {
        let form = Form::of(instruction);
        let known = &mut self.known[form.place(TABLE_BITS)];
        if known.0 != form {
            *known = (form, Facts::new(self.effects.effects(instruction), flow(instruction)));
        }
        known.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// Every byte sequence of a kind that differs in what the table may forget: whatever the
    /// table says must be what the slow way says.
    #[test]
    fn what_is_remembered_is_right() {
        let mut facts = FactsFactory::new();
        let mut slow = EffectsFactory::new();
        let mut seed = 1u64;
        let mut seen = 0;
        for round in 0..400_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut bytes = [0u8; 15];
            bytes[..8].copy_from_slice(&(seed >> 8).to_le_bytes());
            bytes[8..].copy_from_slice(&seed.to_be_bytes()[..7]);
            // Common opcodes, often: shifts by constants, exclusive or, string instructions.
            match round % 8 {
                0 => bytes[..2].copy_from_slice(&[0x48, 0xc1]),
                1 => bytes[0] = 0x31,
                2 => bytes[..2].copy_from_slice(&[0xf3, 0xa4 + (round / 8 % 12) as u8]),
                3 => bytes[..2].copy_from_slice(&[0x0f, (round / 8) as u8]),
                _ => {}
            }
            let mut decoder = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE);
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                continue;
            }
            seen += 1;
            let got = facts.facts(&instruction);
            assert_eq!(got.effects(), slow.effects(&instruction), "{instruction} {bytes:x?}");
            assert_eq!(got.flow(&instruction), flow(&instruction), "{instruction} {bytes:x?}");
        }
        assert!(seen > 300_000, "{seen}");
    }
}
