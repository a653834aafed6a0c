//! Which indirect calls are promoted: hot ones that nearly always lead to one function.

use std::collections::BTreeMap;

use fettle_image::LinkAddr;
use fettle_kernel_emit::Promotions;
use fettle_kernel_lift::step::Step;
use fettle_kernel_lift::{KernelFunction, Lifter};
use fettle_place::group::Hot;
use fettle_place::lifted::Target;
use rustc_hash::FxHashMap;

use crate::profile::ByFunction;

/// A comparison and a direct call are three instructions, a thunk's four; where another function is meant they are seven. So
/// it takes three of four calls that lead to one function to lose nothing.
const SHARE: (u64, u64) = (3, 4);

/// Promotes calls by thunks, of blocks that are hot, of which at least three of four lead to one function. Where a call leads
/// is what the kernel's tracer has seen; where it leads elsewhere later, it is only slower.
pub(crate) fn choose(
    lifter: &Lifter<'_>,
    functions: &[KernelFunction],
    counts: &ByFunction,
    hot: Hot,
) -> Promotions {
    let mut promotions = Promotions::default();
    for function in functions {
        let Some(counts) = counts.get(&function.code.entry) else { continue };
        let mut targets: FxHashMap<u64, Vec<(u64, u64)>> = FxHashMap::default();
        for ((call, target), count) in &counts.targets {
            if let Target::Here(target) = target {
                targets.entry(call.0).or_default().push((*count, target.0));
            }
        }
        for block in &function.code.blocks {
            let made = counts.blocks.get(&block.start).copied().unwrap_or(0);
            if made == 0 || !hot.is(made) {
                continue;
            }
            for index in block.insns.start as usize..block.insns.end as usize {
                let insn = &function.code.insns[index];
                let by_thunk = lifter.steps().thunk_register(insn).is_some();
                if function.steps[index] != Step::IndirectCall || !by_thunk {
                    continue;
                }
                let Some(targets) = targets.get(&insn.ip()) else { continue };
                let all: u64 = targets.iter().map(|(count, _)| count).sum();
                let most = targets.iter().max().copied().unwrap_or_default();
                if most.0 > 0 && most.0 * SHARE.1 >= all * SHARE.0 {
                    promotions.0.insert(insn.ip(), most.1);
                }
            }
        }
    }
    promotions
}

/// Of what was seen at one call, what the call itself led to. A function that ends by a jump to another is seen there with
/// that other, as if the call had led to both.
pub(crate) fn without_tails(
    targets: &BTreeMap<u64, u64>,
    by_entry: &FxHashMap<LinkAddr, &KernelFunction>,
) -> BTreeMap<u64, u64> {
    let jumps = |from: u64, to: u64| {
        let function = by_entry.get(&LinkAddr(from));
        from != to
            && function.is_some_and(|function| {
                let mut steps = function.steps.iter();
                steps.any(|step| matches!(step, Step::Jump(at) | Step::Branch(at) if *at == to))
            })
    };
    let is_tail = |to: u64| targets.keys().any(|from| jumps(*from, to));
    targets.iter().filter(|(to, _)| !is_tail(**to)).map(|(to, count)| (*to, *count)).collect()
}
