//! Indirect-call promotion: which indirect calls are worth a comparison with their most frequent
//! target.
//!
//! A function pointer holds the address of the original, where an entry patch leads to rewritten
//! text: a cache line and a jump more for every call. A call that compares first goes straight to
//! the rewritten text of its most frequent target.

use std::collections::HashMap;

use fettle_image::LinkAddr;

use crate::code::{Code, Pointer};
use crate::group::Hot;

/// The share of a call's runs that one target must have.
pub const SHARE: f64 = 0.6;
/// Calls that make up less than this share of all indirect calls are left unmodified.
const LEAST: f64 = 1e-4;

/// What is known of indirect calls in some code, and which were promoted.
#[derive(Clone, Debug, Default)]
pub struct Promoted {
    /// Calls to be compared, by address, and the function that each is compared with.
    pub targets: HashMap<LinkAddr, LinkAddr>,
    /// How often each of these is expected to have that target.
    found: HashMap<LinkAddr, u64>,
    /// How many indirect calls were made.
    pub calls: u64,
    /// How many of these had a known target.
    pub known: u64,
}

impl Promoted {
    /// Only those calls for which this holds.
    pub fn keep(&mut self, holds: impl Fn(LinkAddr) -> bool) {
        self.targets.retain(|call, _| holds(*call));
        self.found.retain(|call, _| holds(*call));
    }

    /// How many indirect calls had the target that a comparison tests.
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
