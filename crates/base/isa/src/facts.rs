//! What most instructions are asked, in one word.

use iced_x86::Instruction;

use crate::effects::{Effects, EffectsFactory, Flow, flow};
use crate::forms::{Forms, Learn};
use crate::insn::Insn;
use crate::regs::RegSet;

/// What an instruction reads and writes, and where control goes after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
            Flow::Trap => 9,
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
    pub fn flow(self, instruction: &Insn) -> Flow {
        match self.0 >> FLOW {
            0 => Flow::Next,
            1 => Flow::Jump(instruction.near_branch_target()),
            2 => Flow::Branch(instruction.near_branch_target()),
            3 => Flow::IndirectJump,
            4 => Flow::Call(instruction.near_branch_target()),
            5 => Flow::IndirectCall,
            6 => Flow::Return,
            7 => Flow::Stop,
            9 => Flow::Trap,
            _ => Flow::Strange,
        }
    }

    /// Whether control goes to the next instruction only, for certain.
    pub fn goes_on(self) -> bool {
        self.0 >> FLOW == 0
    }

    /// Whether it is a call.
    pub fn calls(self) -> bool {
        matches!(self.0 >> FLOW, 4 | 5)
    }

    /// Whether control goes to the next instruction if the callee, or the signal's handler,
    /// returns: there may be no next instruction if it never does.
    pub fn may_return(self) -> bool {
        matches!(self.0 >> FLOW, 4 | 5 | 9)
    }
}

/// What [`Facts`] are learned from.
pub type FactsFactory = Forms<EffectsFactory>;

impl Learn for EffectsFactory {
    type Known = Facts;

    fn learn(&mut self, instruction: &Instruction) -> Facts {
        Facts::new(self.effects(instruction), flow(instruction))
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
        let mut facts = FactsFactory::default();
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
            let (insn, got) = facts.decode(&bytes, 0, 0x1000).unwrap();
            assert_eq!(got.effects(), slow.effects(&instruction), "{instruction} {bytes:x?}");
            assert_eq!(got.flow(&insn), flow(&instruction), "{instruction} {bytes:x?}");
        }
        assert!(seen > 300_000, "{seen}");
    }
}
