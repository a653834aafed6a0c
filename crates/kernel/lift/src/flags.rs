//! Where the arithmetic flags hold a value that is still needed.
//!
//! A counter changes them. Functions that a compiler made and that tracers may attach to neither take nor
//! give anything in them; of all others that is not certain.

use fettle_kernel_image::Image;
use fettle_lift::BlockId;

use crate::follow::{KernelFunction, Lifter};
use crate::step::Step;

/// By block: whether the flags are needed where it begins.
#[derive(Clone, Debug)]
pub struct Flags(Vec<bool>);

/// What is known of the functions that are called.
#[derive(Clone, Copy, Debug)]
pub struct Callees<'a> {
    image: &'a Image,
}

impl<'a> Callees<'a> {
    /// Those of one kernel.
    pub fn new(lifter: &Lifter<'a>) -> Callees<'a> {
        Callees { image: lifter.image() }
    }

    /// Whether the function at `to` may read the flags of its caller.
    fn reads(self, to: u64) -> bool {
        use fettle_kernel_image::Entry;
        let known = self.image.functions.starting(to);
        known.is_none_or(|function| function.entry == Entry::Plain)
    }
}

/// What an instruction does to the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Reads,
    Sets,
    Neither,
}

fn of_insn(function: &KernelFunction, index: usize, callees: Callees<'_>) -> Use {
    let facts = function.code.facts[index];
    if facts.reads().has_flags() {
        return Use::Reads;
    }
    match function.steps[index] {
        Step::Call(to) if callees.reads(to) => Use::Reads,
        Step::Jump(to) if function.block_at(to).is_none() => match callees.reads(to) {
            true => Use::Reads,
            false => Use::Sets,
        },
        // What is called leaves them undefined, unless it is assembly.
        Step::Call(_) | Step::IndirectCall | Step::StaticCall(_) => Use::Sets,
        // Assembly may give something in the flags.
        Step::Return | Step::TailIndirect | Step::StaticTail(_) if function.fentry.is_none() => {
            Use::Reads
        }
        Step::Return | Step::TailIndirect | Step::StaticTail(_) | Step::Stop => Use::Sets,
        _ if facts.kills().has_flags() => Use::Sets,
        _ => Use::Neither,
    }
}

impl Flags {
    /// Solves it for a function.
    pub fn solve(function: &KernelFunction, callees: Callees<'_>) -> Flags {
        let blocks = &function.code.blocks;
        // What a block does to them, first thing.
        let uses: Vec<Use> = blocks
            .iter()
            .map(|block| {
                let insns = block.insns.start as usize..block.insns.end as usize;
                let mut uses = insns.map(|index| of_insn(function, index, callees));
                uses.find(|use_| *use_ != Use::Neither).unwrap_or(Use::Neither)
            })
            .collect();
        let mut needed: Vec<bool> = uses.iter().map(|use_| *use_ == Use::Reads).collect();
        let mut changed = true;
        while changed {
            changed = false;
            for (i, block) in blocks.iter().enumerate().rev() {
                if needed[i] || uses[i] != Use::Neither {
                    continue;
                }
                // A way out that is neither a tail call nor a return is one that others go on with.
                let outside = block.exit.is_some();
                if outside || block.succs.iter().any(|succ| needed[succ.index()]) {
                    needed[i] = true;
                    changed = true;
                }
            }
        }
        Flags(needed)
    }

    /// Whether they are needed where a block begins.
    pub fn at_start(&self, block: BlockId) -> bool {
        self.0[block.index()]
    }

    /// Whether they are needed before instruction `index` of `block`.
    pub fn before(
        &self,
        function: &KernelFunction,
        block: BlockId,
        index: u32,
        callees: Callees<'_>,
    ) -> bool {
        let block = &function.code.blocks[block.index()];
        for i in index..block.insns.end {
            match of_insn(function, i as usize, callees) {
                Use::Reads => return true,
                Use::Sets => return false,
                Use::Neither => {}
            }
        }
        block.exit.is_some() || block.succs.iter().any(|succ| self.0[succ.index()])
    }
}
