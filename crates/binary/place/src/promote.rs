//! Which calls through pointers are worth a comparison with their most frequent target.
//!
//! A function pointer holds the address of the original, where a jump leads to new code: a line of
//! the cache and a jump more for every call. A call that compares first goes straight to the new
//! code of the function that it mostly leads to.

use std::collections::HashMap;

use fettle_image::LinkAddr;

use crate::code::{Code, Pointer};
use crate::group::Hot;

/// The share of a call's runs that one target must have.
pub const SHARE: f64 = 0.6;
/// Calls that make up less than this share of all calls through pointers stay as they are.
const LEAST: f64 = 1e-4;

/// What is known of calls through pointers in some code, and what was made of it.
#[derive(Clone, Debug, Default)]
pub struct Promoted {
    /// Calls to be compared, by address, and the function that each is compared with.
    pub targets: HashMap<LinkAddr, LinkAddr>,
    /// How often each of these is to find that function.
    found: HashMap<LinkAddr, u64>,
    /// How often calls through pointers were made.
    pub calls: u64,
    /// How often of these it was seen where they lead.
    pub known: u64,
}

impl Promoted {
    /// Only those calls for which this holds.
    pub fn keep(&mut self, holds: impl Fn(LinkAddr) -> bool) {
        self.targets.retain(|call, _| holds(*call));
        self.found.retain(|call, _| holds(*call));
    }

    /// How often calls through pointers led where a comparison is to find them.
    pub fn found(&self) -> u64 {
        self.found.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// Chooses the calls of `code` to be promoted.
pub fn choose(code: &Code, hot: Hot) -> Promoted {
    let mut chosen = Promoted::default();
    let pointers = || {
        code.procedures.iter().flat_map(|procedure| {
            procedure.pointers.iter().map(|pointer| (pointer, made(procedure, pointer)))
        })
    };
    chosen.calls = pointers().fold(0, |sum, (_, made)| sum.saturating_add(made));
    for (pointer, made) in pointers() {
        chosen.known = chosen.known.saturating_add(pointer.known.min(made));
        let Some((to, count)) = pointer.targets.first().copied() else { continue };
        let often = made as f64 >= chosen.calls as f64 * LEAST;
        if hot.is(made) && often && count as f64 >= made as f64 * SHARE {
            chosen.found.insert(pointer.at, count.min(made));
            chosen.targets.insert(pointer.at, code.procedures[to].entry);
        }
    }
    chosen
}

/// How often a call was made.
fn made(procedure: &crate::Procedure, pointer: &Pointer) -> u64 {
    procedure.blocks[pointer.block].count
}
