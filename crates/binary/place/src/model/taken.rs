//! How often control falls through, and how often jumps are taken.

use serde::Serialize;

use crate::code::{Code, End};
use crate::model::Addresses;

/// Transitions from block to block inside procedures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ways {
    /// Control fell through.
    pub straight: u64,
    /// A conditional jump was taken.
    pub branches: u64,
    /// An unconditional jump was taken, one of the original or one that the layout added.
    pub jumps: u64,
}

impl Ways {
    /// Jumps taken of either kind.
    pub fn taken(&self) -> u64 {
        self.branches + self.jumps
    }
}

/// The transitions that are counted, with the code at `addresses`. Jumps through tables are left
/// out: no layout avoids them.
pub fn ways(code: &Code, addresses: &Addresses) -> Ways {
    let mut ways = Ways::default();
    for (p, procedure) in code.procedures.iter().enumerate() {
        for jump in &procedure.jumps {
            let place = addresses.of(p, jump.from);
            let follows = place.next == Some(jump.to as u32) && place.jump == 0;
            match procedure.blocks[jump.from].end {
                End::Switches => {}
                // The original may jump to what follows, and that is a jump.
                End::Jumps { size, .. } => {
                    match place.size < procedure.blocks[jump.from].size && follows && size > 0 {
                        true => ways.straight += jump.count,
                        false => ways.jumps += jump.count,
                    }
                }
                _ if follows => ways.straight += jump.count,
                End::Branches { to, falls, turns, .. } => {
                    let turned = turns && place.next == Some(to as u32);
                    // Where neither follows, control falls into a jump.
                    match jump.to == falls && !turned {
                        true => ways.jumps += jump.count,
                        false => ways.branches += jump.count,
                    }
                }
                _ => ways.jumps += jump.count,
            }
        }
    }
    ways
}
