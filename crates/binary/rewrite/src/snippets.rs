//! Probe code that was made before.
//!
//! What a probe looks like depends on little more than which registers it may write, and in most
//! functions those are the same few. So each is made once, and copied afterwards.

use fettle_code::{Arguments, Probes};
use fettle_isa::{Gpr, RegSet};
use rustc_hash::FxHashMap;

use crate::probe::{self, Snippet};

/// All that decides about a snippet, beside what probes of one plan have in common; sets are what
/// may be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Wanted {
    Entry(Arguments, RegSet),
    Exit {
        arguments: Arguments,
        returns: bool,
        dead: RegSet,
    },
    /// A call of a function that is always left.
    Pass(RegSet),
    Left,
    /// A counter, which is filled in as the first.
    Block {
        dead: RegSet,
        red_zone: bool,
    },
    /// Where a pointer leads is counted, by counters from the first on.
    Target {
        target: Gpr,
        dead: RegSet,
    },
}

/// The snippets of one plan.
#[derive(Default)]
pub(crate) struct Snippets {
    made: Vec<Snippet>,
    numbers: FxHashMap<Wanted, u32>,
}

impl Snippets {
    /// The number of the snippet that is wanted by a function whose probes are `probes`.
    pub(crate) fn number(&mut self, probes: Probes<'_>, wanted: Wanted) -> u32 {
        *self.numbers.entry(wanted).or_insert_with(|| {
            self.made.push(match wanted {
                Wanted::Entry(_, dead) => probe::entry(probes, dead),
                Wanted::Exit { returns, dead, .. } => probe::exit(probes, returns, dead),
                Wanted::Pass(dead) => probe::pass(dead),
                Wanted::Left => probe::left(),
                Wanted::Block { dead, red_zone } => probe::block(0, dead, red_zone),
                Wanted::Target { target, dead } => probe::target(0, target, dead),
            });
            self.made.len() as u32 - 1
        })
    }

    /// The snippet with that number.
    pub(crate) fn get(&self, number: u32) -> &Snippet {
        &self.made[number as usize]
    }
}
