//! The order of rewritten text: which block follows which, within a function and across functions.
//!
//! What lays code out (`crates/binary/place`, or a test with dice) makes one; `crates/binary/rewrite` emits
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

/// The chunks of rewritten text in their order. A function may have several, with others between.
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

    /// Every function's blocks in any order, in chunks that lie anywhere: what no layout that
    /// makes sense would find out about emission, this does.
    pub fn shuffled(functions: &[Function], seed: u64) -> Placement {
        let mut dice = Dice(seed | 1);
        let mut chunks = Vec::new();
        for function in functions {
            let entry = function.entry_block();
            let all = (0..function.blocks.len() as u32).map(BlockId);
            let mut others: Vec<BlockId> = all.filter(|b| *b != entry).collect();
            dice.shuffle(&mut others);
            let align = [1, 16, 64][dice.below(3)];
            let mut blocks = vec![entry];
            for block in others {
                if dice.below(8) == 0 {
                    let blocks = std::mem::take(&mut blocks);
                    chunks.push(Chunk { function: function.entry, blocks, align });
                }
                blocks.push(block);
            }
            chunks.push(Chunk { function: function.entry, blocks, align });
        }
        dice.shuffle(&mut chunks);
        Placement::new(chunks)
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
    /// chunk. Entry patches and calls lead to where a chunk starts.
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

/// Marsaglia's xorshift64*.
struct Dice(u64);

impl Dice {
    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for i in (1..all.len()).rev() {
            all.swap(i, self.below(i + 1));
        }
    }
}
