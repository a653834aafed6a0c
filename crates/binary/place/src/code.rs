//! Code as far as its layout is concerned: sizes, edges between blocks, and their counts.

use fettle_image::LinkAddr;
use serde::Serialize;

/// Functions that are laid out together.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// The functions; others refer to them by index.
    pub procedures: Vec<Procedure>,
}

/// A function.
#[derive(Clone, Debug, Default)]
pub struct Procedure {
    /// Its entry point.
    pub entry: LinkAddr,
    /// Its name, for tables.
    pub name: String,
    /// Its blocks in order of original address.
    pub blocks: Vec<Block>,
    /// The block at the entry point.
    pub head: usize,
    /// How often it was called.
    pub calls: u64,
    /// Its indirect calls and tail calls.
    pub pointers: Vec<Pointer>,
    /// Edges between its blocks, each once.
    pub jumps: Vec<Jump>,
    /// Bytes of its jump tables.
    pub table_bytes: u64,
}

/// A basic block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Where it is in the original.
    pub at: LinkAddr,
    /// Its size in bytes.
    pub size: u32,
    /// Its instructions.
    pub insns: u32,
    /// How often it ran.
    pub count: u64,
    /// Its calls, in order.
    pub calls: Vec<Call>,
    /// How control goes on from its end.
    pub end: End,
}

/// A call in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Offset in the block of the instruction behind it.
    pub offset: u32,
    /// Instructions of the block up to there.
    pub insns: u32,
    /// What it calls.
    pub callee: Callee,
}

/// An indirect call or tail call, and its observed targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Address of the instruction.
    pub at: LinkAddr,
    /// The block it is in.
    pub block: usize,
    /// Which of the block's calls it is; none of them if it is a tail call.
    pub call: Option<usize>,
    /// How often it was made with a known target.
    pub known: u64,
    /// Functions that were its targets, by index, and how often; the most frequent one first.
    pub targets: Vec<(usize, u64)>,
}

/// The target of a call or jump out of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// One that is laid out with it, by index.
    Procedure(usize),
    /// One that is not, or code of another module.
    Outside,
    /// The target of a pointer.
    Indirect,
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Control falls through to this block.
    Falls(usize),
    /// A jump, of so many bytes.
    Jumps {
        /// Where to.
        to: usize,
        /// Size of the instruction.
        size: u32,
    },
    /// A conditional jump.
    Branches {
        /// Where to if it is taken.
        to: usize,
        /// Where to if not.
        falls: usize,
        /// Size of the instruction.
        size: u32,
        /// It can be inverted.
        turns: bool,
    },
    /// A jump through a table, to any of its successors.
    Switches,
    /// Control leaves the function: it returns, or calls a function that does not return.
    Leaves,
    /// Control leaves the function for another, or falls through if it may.
    Tail {
        /// Where it leaves to.
        callee: Callee,
        /// The block it falls through to otherwise: a conditional tail call.
        falls: Option<usize>,
    },
}

/// An edge from one block to another, or to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Where from.
    pub from: usize,
    /// Where to.
    pub to: usize,
    /// How often it was taken.
    pub count: u64,
}

impl Procedure {
    /// Original bytes of all blocks.
    pub fn size(&self) -> u64 {
        self.blocks.iter().map(|b| u64::from(b.size)).sum()
    }
}

impl Code {
    /// Calls of one of these procedures from another: caller, block, callee, how often. Tail calls
    /// are calls, and so are indirect ones with known targets.
    pub fn calls(&self) -> impl Iterator<Item = (usize, usize, usize, u64)> {
        self.direct_calls().chain(self.procedures.iter().enumerate().flat_map(|(p, procedure)| {
            procedure.pointers.iter().flat_map(move |pointer| {
                pointer.targets.iter().map(move |(to, count)| (p, pointer.block, *to, *count))
            })
        }))
    }

    fn direct_calls(&self) -> impl Iterator<Item = (usize, usize, usize, u64)> {
        self.procedures.iter().enumerate().flat_map(|(p, procedure)| {
            procedure.blocks.iter().enumerate().flat_map(move |(b, block)| {
                let leaves = match block.end {
                    End::Tail { callee, falls: None } => Some((callee, block.count)),
                    End::Tail { callee, falls: Some(falls) } => {
                        let kept = procedure.jumps.iter().filter(|j| j.from == b && j.to == falls);
                        let kept: u64 = kept.map(|j| j.count).sum();
                        Some((callee, block.count.saturating_sub(kept)))
                    }
                    _ => None,
                };
                let calls = block.calls.iter().map(|c| (c.callee, block.count)).chain(leaves);
                calls.filter_map(move |(callee, count)| match callee {
                    Callee::Procedure(to) => Some((p, b, to, count)),
                    Callee::Outside | Callee::Indirect => None,
                })
            })
        })
    }
}

/// Blocks of one procedure that follow one another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// Index of the procedure.
    pub procedure: usize,
    /// Its blocks in order.
    pub blocks: Vec<usize>,
    /// The piece starts at a multiple of this.
    pub align: u32,
    /// It is among the hot ones, which come first.
    pub hot: bool,
}
