//! Registers that functions return values in, beyond what the ABI says.
//!
//! Hand-written assembly (OpenSSL's, say) has local functions with conventions of their own:
//! their callers find values in any register. Who they are shows in their callers, which read a
//! register after a call that may have written it. A probe at such a function's exits must leave
//! these registers alone.

use std::collections::HashMap;

use fettle_image::{Image, LinkAddr};
use fettle_isa::{EffectsFactory, Flow, RegSet, flow};
use rayon::prelude::*;

use crate::function::{Exit, Function};
use crate::module::Lifted;

/// What a call of a function leaves that is read: callee's index, registers.
type Wanted = Vec<(usize, RegSet)>;

/// For each lifted function, in order: the registers that its callers read after it although the
/// ABI says that it may have changed them.
pub fn solve(image: &Image, lifted: &Lifted, clobbers: &[RegSet]) -> Vec<RegSet> {
    let functions = &lifted.functions;
    let index: HashMap<LinkAddr, usize> =
        functions.iter().enumerate().map(|(i, f)| (f.entry, i)).collect();
    let mut results = vec![RegSet::NONE; functions.len()];
    // Of callers that are not understood nothing is known.
    for callee in called_by_skipped(image, lifted, &index) {
        results[callee] = RegSet::CALLER_SAVED;
    }
    let first: Vec<Wanted> = functions
        .par_iter()
        .enumerate()
        .map(|(i, f)| wanted(f, results[i], clobbers, &index))
        .collect();
    let mut work = Vec::new();
    let merge = |results: &mut Vec<RegSet>, work: &mut Vec<usize>, wanted: Wanted| {
        for (callee, registers) in wanted {
            let joined = results[callee].union(registers);
            if joined != results[callee] {
                results[callee] = joined;
                work.push(callee);
            }
        }
    };
    for wanted in first {
        merge(&mut results, &mut work, wanted);
    }
    // What a function returns it may have from one that it calls.
    while let Some(i) = work.pop() {
        let wanted = wanted(&functions[i], results[i], clobbers, &index);
        merge(&mut results, &mut work, wanted);
    }
    results
}

/// Functions that code which was not lifted may call: every place that would be a call counts.
fn called_by_skipped(
    image: &Image,
    lifted: &Lifted,
    index: &HashMap<LinkAddr, usize>,
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

/// Backward over one function, with the reads that its instructions make themselves.
fn wanted(
    function: &Function,
    own: RegSet,
    clobbers: &[RegSet],
    index: &HashMap<LinkAddr, usize>,
) -> Wanted {
    let beyond = |registers: RegSet, callee: usize| {
        registers
            .intersection(clobbers[callee])
            .minus(RegSet::RESULTS)
            .minus(RegSet::FLAGS)
            .minus(RegSet::VECTOR_COUNT)
    };
    let calls_known = function.insns.iter().any(|insn| match flow(insn) {
        Flow::Call(to) => index.contains_key(&LinkAddr(to)),
        _ => false,
    });
    let mut wanted = Wanted::new();
    let mut live_out = vec![RegSet::NONE; function.blocks.len()];
    for (i, block) in function.blocks.iter().enumerate() {
        if block.exit.is_some() {
            live_out[i] = own;
        }
        if let Some(Exit::TailJump(to) | Exit::TailBranch(to)) = block.exit
            && let Some(callee) = index.get(&to)
        {
            wanted.push((*callee, beyond(own, *callee)));
        }
    }
    if !calls_known {
        return wanted;
    }
    let mut factory = EffectsFactory::new();
    let mut live_in = vec![RegSet::NONE; function.blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (i, block) in function.blocks.iter().enumerate().rev() {
            for succ in &block.succs {
                live_out[i] = live_out[i].union(live_in[succ.index()]);
            }
            let mut live = live_out[i];
            for insn in function.block_insns(block).iter().rev() {
                let mut effects = factory.effects(insn);
                match flow(insn) {
                    Flow::Call(to) => match index.get(&LinkAddr(to)) {
                        Some(callee) => {
                            let registers = beyond(live, *callee);
                            if registers != RegSet::NONE {
                                wanted.push((*callee, registers));
                            }
                            effects.kills = effects.kills.union(clobbers[*callee]);
                        }
                        None => effects.kills = effects.kills.union(RegSet::CALLER_SAVED),
                    },
                    Flow::IndirectCall => effects.kills = effects.kills.union(RegSet::CALLER_SAVED),
                    _ => {}
                }
                live = live.minus(effects.kills).union(effects.reads);
            }
            if live != live_in[i] {
                live_in[i] = live;
                changed = true;
            }
        }
    }
    wanted
}
