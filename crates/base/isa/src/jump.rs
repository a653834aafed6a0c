//! Jumps that are written anew: inside a function, where their form depends on where code came to lie, and
//! from one text to another.

use crate::{Decides, Insn};

/// What a jump depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// `jmp`
    Always,
    /// `jcc`, by the condition's number in machine code.
    If(u8),
    /// `jrcxz`, `loop` and their like, by their opcode. They have no form that reaches far.
    Count {
        /// Which of them.
        opcode: u8,
        /// Only the lower half of the register is looked at.
        ecx: bool,
    },
}

impl Jump {
    /// The kind of a direct jump.
    pub fn of(insn: &Insn) -> Jump {
        // Prefixes mean nothing else, and are left out.
        match insn.decides() {
            None => Jump::Always,
            Some(Decides::Flags(condition)) => Jump::If(condition),
            Some(Decides::Counter { opcode, ecx }) => Jump::Count { opcode, ecx },
        }
    }

    /// The jump that is taken when this one is not.
    pub fn inverted(self) -> Option<Jump> {
        match self {
            Jump::If(condition) => Some(Jump::If(condition ^ 1)),
            Jump::Always | Jump::Count { .. } => None,
        }
    }

    /// Its size in bytes.
    pub fn size(self, short: bool) -> u32 {
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
    pub fn write(self, code: &mut Vec<u8>, short: bool, distance: u32) {
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

/// The size of a jump with a distance of 32 bits, in bytes.
pub const NEAR: usize = 5;

/// `jmp` from one address to another, with a distance of 32 bits; `None` if that is out of reach.
pub fn near(from: u64, to: u64) -> Option<[u8; NEAR]> {
    let distance = i32::try_from(to.wrapping_sub(from.wrapping_add(NEAR as u64)) as i64).ok()?;
    let [a, b, c, d] = distance.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_jumps_reach_two_gigabytes() {
        assert_eq!(near(0x1000, 0x2000), Some([0xe9, 0xfb, 0x0f, 0, 0]));
        assert_eq!(near(0x2000, 0x1000), Some([0xe9, 0xfb, 0xef, 0xff, 0xff]));
        assert_eq!(near(0x1000, 0x2_0000_0000), None);
    }
}
