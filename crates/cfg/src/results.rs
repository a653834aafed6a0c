//! Registers that functions return values in, beyond what the ABI says.
//!
//! Hand-written assembly (OpenSSL's, say) has local functions with conventions of their own:
//! their callers find values in any register. Who they are shows in their callers, which read a
//! register after a call that may have written it. A probe at such a function's exits must leave
//! these registers alone.

use fettle_image::{Image, LinkAddr};
use fettle_isa::{Flow, RegSet};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::function::{Exit, Function};
use crate::module::Lifted;

/// For each lifted function, in order: the registers that its callers read after it although the
/// ABI says that it may have changed them.
pub fn solve(image: &Image, lifted: &Lifted, clobbers: &[RegSet]) -> Vec<RegSet> {
    let functions = &lifted.functions;
    let index: FxHashMap<LinkAddr, usize> =
        functions.iter().enumerate().map(|(i, f)| (f.entry, i)).collect();
    let summaries: Vec<Summary> =
        functions.par_iter().map(|f| Summary::of(f, clobbers, &index)).collect();
    let mut results = vec![RegSet::NONE; functions.len()];
    // Of callers that are not understood nothing is known.
    for callee in called_by_skipped(image, lifted, &index) {
        results[callee] = RegSet::CALLER_SAVED;
    }
    let mut solver = Solver::default();
    let mut work: Vec<usize> = (0..functions.len()).rev().collect();
    let mut waiting = vec![true; functions.len()];
    // What a function returns it may have from one that it calls.
    while let Some(i) = work.pop() {
        waiting[i] = false;
        solver.wanted(&functions[i], &summaries[i], results[i], |callee, live| {
            let wanted = live.intersection(clobbers[callee]).minus(BY_THE_ABI);
            let joined = results[callee].union(wanted);
            if joined != results[callee] {
                results[callee] = joined;
                if !std::mem::replace(&mut waiting[callee], true) {
                    work.push(callee);
                }
            }
        });
    }
    results
}

/// What callers may read anyway.
const BY_THE_ABI: RegSet = RegSet::RESULTS.union(RegSet::FLAGS).union(RegSet::VECTOR_COUNT);

/// Functions that code which was not lifted may call: every place that would be a call counts.
fn called_by_skipped(
    image: &Image,
    lifted: &Lifted,
    index: &FxHashMap<LinkAddr, usize>,
) -> Vec<usize> {
    let mut called = Vec::new();
    for skipped in &lifted.skipped {
        let Some(bytes) = image.read(skipped.entry, skipped.size as usize) else { continue };
        for (i, window) in bytes.windows(5).enumerate() {
            if !matches!(window[0], 0xe8 | 0xe9) {
                continue;
            }
            let distance = i32::from_le_bytes(window[1..].try_into().expect("four bytes"));
            let to = (skipped.entry.0 + i as u64 + 5).wrapping_add_signed(distance.into());
            called.extend(index.get(&LinkAddr(to)));
        }
    }
    called
}

/// A call of a known function: what is needed after it of the rest of its block, and what is
/// not because the rest defines it.
struct Call {
    block: u32,
    callee: u32,
    needs: RegSet,
    kills: RegSet,
}

/// What matters of a function here, so that it is read once however often it is solved.
struct Summary {
    /// By block: what it needs, and what it defines. Empty if the function calls none that is
    /// known.
    blocks: Vec<(RegSet, RegSet)>,
    calls: Vec<Call>,
    /// Known functions that it ends with a jump to.
    tails: Vec<u32>,
}

impl Summary {
    fn of(function: &Function, clobbers: &[RegSet], index: &FxHashMap<LinkAddr, usize>) -> Summary {
        let mut calls = Vec::new();
        let mut tails = Vec::new();
        let mut blocks = Vec::with_capacity(function.blocks.len());
        for (b, block) in function.blocks.iter().enumerate() {
            if let Some(Exit::TailJump(to) | Exit::TailBranch(to)) = block.exit
                && let Some(callee) = index.get(&to)
            {
                tails.push(*callee as u32);
            }
            let (mut needs, mut kills) = (RegSet::NONE, RegSet::NONE);
            for (insn, facts) in function.block_facts(block).rev() {
                let mut own = facts.kills();
                if facts.calls() {
                    let callee = match facts.flow(insn) {
                        Flow::Call(to) => index.get(&LinkAddr(to)).copied(),
                        _ => None,
                    };
                    if let Some(callee) = callee {
                        calls.push(Call { block: b as u32, callee: callee as u32, needs, kills });
                    }
                    own = own.union(callee.map_or(RegSet::CALLER_SAVED, |c| clobbers[c]));
                }
                needs = needs.minus(own).union(facts.reads());
                kills = kills.union(own);
            }
            blocks.push((needs, kills));
        }
        if calls.is_empty() {
            blocks = Vec::new();
        }
        Summary { blocks, calls, tails }
    }
}

/// Solves functions backwards, one after another in the same memory.
#[derive(Default)]
struct Solver {
    live_in: Vec<RegSet>,
    live_out: Vec<RegSet>,
}

impl Solver {
    /// Tells `tell` of every known function that `function` calls and what may be read after it,
    /// if callers of `function` itself read `own`.
    fn wanted(
        &mut self,
        function: &Function,
        summary: &Summary,
        own: RegSet,
        mut tell: impl FnMut(usize, RegSet),
    ) {
        for callee in &summary.tails {
            tell(*callee as usize, own);
        }
        if summary.calls.is_empty() {
            return;
        }
        let count = function.blocks.len();
        self.live_in.clear();
        self.live_in.resize(count, RegSet::NONE);
        self.live_out.clear();
        self.live_out.extend(
            function.blocks.iter().map(|b| if b.exit.is_some() { own } else { RegSet::NONE }),
        );
        let mut changed = true;
        while changed {
            changed = false;
            for (i, block) in function.blocks.iter().enumerate().rev() {
                let mut out = self.live_out[i];
                for succ in &block.succs {
                    out = out.union(self.live_in[succ.index()]);
                }
                self.live_out[i] = out;
                let (needs, kills) = summary.blocks[i];
                let into = needs.union(out.minus(kills));
                if into != self.live_in[i] {
                    self.live_in[i] = into;
                    changed = true;
                }
            }
        }
        for call in &summary.calls {
            let out = self.live_out[call.block as usize];
            tell(call.callee as usize, call.needs.union(out.minus(call.kills)));
        }
    }
}
