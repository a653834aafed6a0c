//! Which registers a call of a function may change, callees included.
//!
//! GCC's `-fipa-ra`, on at `-O2`, lets a caller keep a value in a caller-saved register across a
//! call of a function that it knows not to write that register. A probe may therefore write only
//! what its function writes anyway (or put back what it wrote).

use std::collections::HashMap;

use fettle_image::LinkAddr;
use fettle_isa::{EffectsFactory, Flow, RegSet, flow};

use crate::function::{Exit, Function};

/// For each function of `functions`, in order: what a call of it may change of what the ABI lets
/// calls change.
pub fn solve(functions: &[Function]) -> Vec<RegSet> {
    let index: HashMap<LinkAddr, usize> =
        functions.iter().enumerate().map(|(i, f)| (f.entry, i)).collect();
    let mut sets = Vec::with_capacity(functions.len());
    // Callers by callee, for what flows up.
    let mut callers: Vec<Vec<u32>> = vec![Vec::new(); functions.len()];
    for (i, function) in functions.iter().enumerate() {
        sets.push(own(function, &index, |callee| callers[callee].push(i as u32)));
    }
    let mut work: Vec<usize> = (0..functions.len()).collect();
    while let Some(callee) = work.pop() {
        for caller in &callers[callee] {
            let caller = *caller as usize;
            let joined = sets[caller].union(sets[callee]);
            if joined != sets[caller] {
                sets[caller] = joined;
                work.push(caller);
            }
        }
    }
    sets
}

/// What `function` writes itself; `callee` is told of functions that it calls and that are known.
fn own(
    function: &Function,
    index: &HashMap<LinkAddr, usize>,
    mut callee: impl FnMut(usize),
) -> RegSet {
    let mut known = Vec::new();
    for block in &function.blocks {
        for insn in function.block_insns(block) {
            match flow(insn) {
                Flow::IndirectCall => return RegSet::CALLER_SAVED,
                Flow::Call(to) => match index.get(&LinkAddr(to)) {
                    Some(i) => known.push(*i),
                    None => return RegSet::CALLER_SAVED,
                },
                _ => {}
            }
        }
        match block.exit {
            Some(Exit::TailIndirect) => return RegSet::CALLER_SAVED,
            Some(Exit::TailJump(to) | Exit::TailBranch(to)) => match index.get(&to) {
                Some(i) => known.push(*i),
                None => return RegSet::CALLER_SAVED,
            },
            Some(Exit::Return) | None => {}
        }
    }
    let mut factory = EffectsFactory::new();
    let mut written = RegSet::NONE;
    for insn in &function.insns {
        let effects = factory.effects(insn);
        written = written.union(effects.writes).union(effects.kills);
    }
    known.into_iter().for_each(&mut callee);
    written.intersection(RegSet::CALLER_SAVED)
}
