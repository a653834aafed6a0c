//! A model of instruction fetch: which lines code touches as it runs, and which jumps it takes.
//!
//! It is a model: one cache, no prefetching, no prediction. It compares layouts of one program;
//! its misses are not those of any processor.

pub mod addresses;
pub mod cache;
pub mod taken;
pub mod walk;

pub use addresses::Addresses;
pub use cache::{Cache, Geometry};
pub use taken::{Ways, ways};
pub use walk::{Segment, Walk};

use crate::code::Code;

/// The cost of a run by the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Cost {
    /// Instructions run.
    pub insns: u64,
    /// Lines fetched.
    pub fetches: u64,
    /// Lines that missed.
    pub misses: u64,
}

impl Cost {
    /// Misses per thousand instructions.
    pub fn misses_per_thousand(&self) -> f64 {
        self.misses as f64 * 1000.0 / self.insns.max(1) as f64
    }
}

/// Runs a walk through code at `addresses` over a cache that is empty at first.
pub fn simulate(code: &Code, walk: &Walk, addresses: &Addresses, geometry: Geometry) -> Cost {
    let mut cache = Cache::new(geometry);
    let mut cost = Cost::default();
    for segment in &walk.segments {
        let place = addresses.of(segment.procedure as usize, segment.block as usize);
        let block = &code.procedures[segment.procedure as usize].blocks[segment.block as usize];
        let to = if segment.to >= block.size { place.size } else { segment.to };
        let (from, to) = (place.at + u64::from(segment.from), place.at + u64::from(to));
        cost.insns += u64::from(segment.insns);
        if to > from {
            for line in from / geometry.line..=(to - 1) / geometry.line {
                cost.fetches += 1;
                cost.misses += u64::from(!cache.fetch(line));
            }
        }
    }
    cost
}
