//! The order of new code: which block follows which, within a function and across functions.
//!
//! Whoever lays code out (`crates/layout`, or a test with dice) makes one; `crates/rewrite` emits
//! what it says.

use std::collections::HashMap;

use fettle_image::LinkAddr;

use crate::function::{BlockId, Function};

/// Blocks of one function that lie one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The function, by its entry.
    pub function: LinkAddr,
    /// Its blocks, in order.
    pub blocks: Vec<BlockId>,
    /// The chunk starts at a multiple of this: 1 for right behind the one before.
    pub align: u32,
}

/// The chunks of new code in their order. A function may have several, with others between.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    chunks: Vec<Chunk>,
    of: HashMap<LinkAddr, Vec<usize>>,
}

impl Placement {
    /// This order.
    pub fn new(chunks: Vec<Chunk>) -> Placement {
        let mut of: HashMap<LinkAddr, Vec<usize>> = HashMap::new();
        for (i, chunk) in chunks.iter().enumerate() {
            of.entry(chunk.function).or_default().push(i);
        }
        Placement { chunks, of }
    }

    /// All chunks.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Indices of a function's chunks, the one with its entry first; `None` for a function that
    /// is not in the order.
    pub fn of(&self, function: &Function) -> Option<Vec<usize>> {
        let mut indices = self.of.get(&function.entry)?.clone();
        let entry = function.entry_block();
        let head = indices.iter().position(|i| self.chunks[*i].blocks.first() == Some(&entry));
        indices.swap(0, head.unwrap_or(0));
        Some(indices)
    }

    /// Whether the order has each block of `function` once, and its entry at the start of a
    /// chunk. Springboards and calls lead to where a chunk starts.
    pub fn fits(&self, function: &Function) -> bool {
        let Some(indices) = self.of(function) else { return false };
        let mut seen = vec![false; function.blocks.len()];
        let once = indices
            .iter()
            .flat_map(|i| &self.chunks[*i].blocks)
            .all(|b| seen.get_mut(b.index()).is_some_and(|seen| !std::mem::replace(seen, true)));
        let full = indices.iter().all(|i| !self.chunks[*i].blocks.is_empty());
        let head = self.chunks[indices[0]].blocks.first() == Some(&function.entry_block());
        once && full && head && seen.into_iter().all(|seen| seen)
    }
}
