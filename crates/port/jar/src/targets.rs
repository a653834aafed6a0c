//! Where a jump through a register may lead: what tables and a function's own code hold.

use std::collections::BTreeSet;

use crate::constants;
use crate::image::Image;
use crate::ir::{Bin, Block, BlockId, Cmp, Cond, Expr, Function, Stmt, Var};

/// The entries of a function's jump table. How many there are is known from the comparison before the
/// jump, else from the first word that does not lead into the function.
pub fn table(image: &Image, entry: u32, base: u32, add: u32, bound: Option<u32>) -> BTreeSet<u32> {
    let function = entry..image.end_of(entry);
    let mut targets = BTreeSet::new();
    for index in 0..bound.unwrap_or(1 << 16) {
        let Some(word) = image.word(base.wrapping_add(index * 4)) else { break };
        let target = word.wrapping_add(add);
        let inside = function.contains(&target) || image.is_cold(target);
        if !inside || !image.is_code(target) {
            break;
        }
        targets.insert(target);
    }
    targets
}

/// Addresses within a function that data or its own code hold: where a computed jump may go.
pub fn labels(image: &Image, entry: u32, function: &Function) -> BTreeSet<u32> {
    let range = entry + 1..image.end_of(entry);
    let mut labels: BTreeSet<u32> = image.labels(range.clone()).iter().copied().collect();
    let known = constants::solve(image, function);
    let mut folded = function.clone();
    constants::apply(image, &mut folded, &known);
    for (_, step) in folded.blocks.iter().flat_map(|block| &block.steps) {
        step.visit(&mut |e| {
            if let Expr::Int(value) = e
                && range.contains(&(*value as u32))
                && image.is_code(*value as u32)
            {
                labels.insert(*value as u32);
            }
        });
    }
    labels
}

/// Blocks before a jump in which its bound is looked for.
const GUARDS_MAX: usize = 4;

/// What the index of a table is compared with, in a block that must be passed on the way to the jump.
/// Other comparisons stand there too: only one of the register that is scaled counts.
pub fn bound(function: &Function, jump: BlockId) -> Option<u32> {
    let mut index = None;
    let mut at = jump;
    for _ in 0..GUARDS_MAX {
        let block = &function.blocks[at];
        index = index.or_else(|| scaled(block));
        let limit = index.and_then(|index| limit_of(block, index));
        if let Some(limit) = limit.filter(|&limit| limit < 1 << 16) {
            return Some(limit);
        }
        let before: Vec<BlockId> = (0..function.blocks.len())
            .filter(|&id| function.blocks[id].end.successors().contains(&at))
            .collect();
        let [only] = before[..] else { return None };
        at = only;
    }
    None
}

/// The variable that a block multiplies by the size of a word, if it is one.
fn scaled(block: &Block) -> Option<Var> {
    block.steps.iter().rev().find_map(|(_, step)| match step {
        Stmt::Set(_, Expr::Bin(Bin::Shl, index, by)) if **by == Expr::Int(2) => match **index {
            Expr::Var(index) => Some(index),
            _ => None,
        },
        _ => None,
    })
}

/// What a block compares a variable with.
fn limit_of(block: &Block, index: Var) -> Option<u32> {
    let mut found = None;
    let mut look = |e: &Expr| {
        if let Expr::Cond(cond) = e
            && let Cond::Int(Cmp::LtU, Expr::Var(var), Expr::Int(limit)) = &**cond
            && *var == index
        {
            found = Some(*limit as u32);
        }
    };
    block.steps.iter().for_each(|(_, step)| step.visit(&mut look));
    block.end.visit(&mut look);
    found
}
