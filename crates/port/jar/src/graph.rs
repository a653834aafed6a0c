//! The blocks of a function while they are made, for programs of every machine.

use std::collections::BTreeMap;

use crate::ir::{Block, BlockId, Callee, End, Stmt};

/// Blocks by the addresses at which they begin, some of them still to be filled.
pub struct Graph {
    entry: u32,
    ids: BTreeMap<u32, BlockId>,
    blocks: Vec<Option<Block>>,
}

impl Graph {
    /// Makes room for the blocks that begin at these addresses. The entry is the first block, whatever lies
    /// before it.
    pub fn new(entry: u32, starts: impl IntoIterator<Item = u32>) -> Graph {
        let mut graph = Graph { entry, ids: BTreeMap::new(), blocks: Vec::new() };
        graph.id(entry);
        for start in starts {
            graph.id(start);
        }
        graph
    }

    /// The block that begins at an address.
    pub fn id(&mut self, pc: u32) -> BlockId {
        let blocks = &mut self.blocks;
        *self.ids.entry(pc).or_insert_with(|| {
            blocks.push(None);
            blocks.len() - 1
        })
    }

    /// Adds a block that only others lead to.
    pub fn add(&mut self, block: Block) -> BlockId {
        self.blocks.push(Some(block));
        self.blocks.len() - 1
    }

    /// Fills the block that begins where this one does.
    pub fn fill(&mut self, block: Block) {
        let id = self.id(block.pc);
        self.blocks[id] = Some(block);
    }

    /// The block that a branch to an address leads to: for another function, one that calls it, and leaves
    /// its results where they are.
    pub fn leading_to(&mut self, from: u32, target: u32, is_other_function: bool) -> BlockId {
        if is_other_function {
            let call = Stmt::Call { callee: Callee::Direct(target), pc: from };
            return self.add(Block { pc: from, steps: vec![(from, call)], end: End::Return });
        }
        match self.ids.get(&target) {
            Some(&id) => id,
            None => self.add(Block { pc: target, steps: Vec::new(), end: End::Nowhere(target) }),
        }
    }

    /// All blocks. Those that were never filled lead nowhere.
    pub fn finish(self) -> Vec<Block> {
        let entry = self.entry;
        let nowhere = || Block { pc: entry, steps: Vec::new(), end: End::Nowhere(entry) };
        self.blocks.into_iter().map(|block| block.unwrap_or_else(nowhere)).collect()
    }
}
