//! Which registers a call of a function may change, callees included.
//!
//! GCC's `-fipa-ra`, on at `-O2`, lets a caller keep a value in a caller-saved register across a
//! call of a function that it knows not to write that register. A probe may therefore write only
//! what its function writes anyway (or put back what it wrote).

use fettle_image::LinkAddr;
use fettle_isa::{Flow, RegSet};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::function::{Exit, Function};

/// For each function of `functions`, in order: what a call of it may change of what the ABI lets
/// calls change.
pub fn solve(functions: &[Function]) -> Vec<RegSet> {
    let index: FxHashMap<LinkAddr, usize> =
        functions.iter().enumerate().map(|(i, f)| (f.entry, i)).collect();
    let own: Vec<Own> = functions.par_iter().map(|f| own(f, &index)).collect();
    // Callers by callee, for what flows up.
    let mut callers: Vec<Vec<u32>> = vec![Vec::new(); functions.len()];
    let mut sets = Vec::with_capacity(functions.len());
    for (i, own) in own.into_iter().enumerate() {
        for callee in own.callees {
            callers[callee as usize].push(i as u32);
        }
        sets.push(own.written);
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

/// What a function writes itself, and the known functions that it calls.
struct Own {
    written: RegSet,
    callees: Vec<u32>,
}

fn own(function: &Function, index: &FxHashMap<LinkAddr, usize>) -> Own {
    // Who calls what is not known may change all that calls may.
    let everything = || Own { written: RegSet::CALLER_SAVED, callees: Vec::new() };
    let mut callees = Vec::new();
    let mut written = RegSet::NONE;
    for (insn, facts) in function.insns.iter().zip(&function.facts) {
        written = written.union(facts.writes());
        if facts.calls() {
            match facts.flow(insn) {
                Flow::Call(to) => match index.get(&LinkAddr(to)) {
                    Some(i) => callees.push(*i as u32),
                    None => return everything(),
                },
                _ => return everything(),
            }
        }
    }
    for block in &function.blocks {
        match block.exit {
            Some(Exit::TailIndirect) => return everything(),
            Some(Exit::TailJump(to) | Exit::TailBranch(to)) => match index.get(&to) {
                Some(i) => callees.push(*i as u32),
                None => return everything(),
            },
            Some(Exit::Return) | None => {}
        }
    }
    callees.sort_unstable();
    callees.dedup();
    Own { written: written.intersection(RegSet::CALLER_SAVED), callees }
}
