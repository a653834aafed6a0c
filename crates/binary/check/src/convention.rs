//! Functions that keep to a calling convention of their own, as the checker finds them.
//!
//! The lifter asks of every instruction whether it would be pointless under the ABI. Here only those
//! count that stand in front of an exit, or behind a call, with no jump in between: fewer, but found by
//! the checker's own reading of the code.

use fettle_image::LinkAddr;
use fettle_isa::{Gpr, RegSet};
use iced_x86::{Code, Mnemonic, OpKind};

use crate::seen::Step;
use crate::walk::{Pair, Walk};

/// What a compiler expects to be changed by every call, and reads behind none.
const NEVER_READ: RegSet = RegSet::CALLER_SAVED.minus(RegSet::RESULTS).minus(RegSet::FLAGS);

/// Where the function answers in what only its callers can read: an instruction whose whole effect is
/// dead at the exit `at`, if `needed` is what is needed there.
pub(crate) fn answer(walk: &Walk<'_, '_>, at: u64, needed: RegSet) -> Option<u64> {
    let exit = &walk.s.pairs[walk.pair_at(at)?];
    // Where a branch is not taken, something else may be needed.
    if matches!(exit.step(), Some(Step::Branch(_))) {
        return None;
    }
    let mut live = needed.union(exit.seen.uses.reads);
    let mut end = at;
    while let Some(index) = before(walk, end) {
        let pair = &walk.s.pairs[index];
        if pair.step() != Some(Step::Next) {
            return None;
        }
        let uses = pair.seen.uses;
        let written = uses.writes.union(uses.kills).minus(RegSet::of(&[Gpr::Rsp]));
        if written.intersection(live).is_empty() && is_answer(walk, index) {
            return Some(pair.insn.ip());
        }
        live = live.minus(uses.kills).union(uses.reads);
        end = pair.insn.ip();
    }
    None
}

/// The instruction in front of `end`, past padding, if control only comes from there.
fn before(walk: &Walk<'_, '_>, mut end: u64) -> Option<usize> {
    let function = walk.claim.function;
    while function.block_at(LinkAddr(end)).is_none() {
        let next = function.insns.partition_point(|insn| insn.ip() < end);
        let insn = function.insns.get(next.checked_sub(1)?)?;
        if insn.next_ip() != end {
            return None;
        }
        // From padding, one is led to what stands behind it.
        let index = walk.pair_at(insn.ip())?;
        if walk.s.pairs[index].insn.ip() == insn.ip() {
            return Some(index);
        }
        end = insn.ip();
    }
    None
}

/// Whether an instruction that writes nothing that is needed has no other purpose than to answer.
fn is_answer(walk: &Walk<'_, '_>, index: usize) -> bool {
    let insn = walk.full(index);
    let to = Gpr::containing(insn.op0_register()).filter(|_| insn.op0_kind() == OpKind::Register);
    let is_itself =
        insn.op1_kind() == OpKind::Register && insn.op1_register() == insn.op0_register();
    match insn.mnemonic() {
        Mnemonic::Cmp
        | Mnemonic::Test
        | Mnemonic::Bt
        | Mnemonic::Stc
        | Mnemonic::Clc
        | Mnemonic::Cmc => true,
        Mnemonic::Mov => to.is_some_and(|to| to != Gpr::Rsp) && !is_itself,
        // A function that pushes a register and pops it saves it for callers; `rax` is pushed to make room.
        Mnemonic::Pop => {
            to.is_some_and(|to| to != Gpr::Rax && NEVER_READ.contains(to) && pushes(walk, to))
        }
        _ => false,
    }
}

fn pushes(walk: &Walk<'_, '_>, register: Gpr) -> bool {
    let insns = &walk.claim.function.insns;
    let short = insns.iter().filter(|insn| insn.len() <= 2);
    short.filter_map(|insn| walk.pair_at(insn.ip())).any(|index| {
        let insn = walk.full(index);
        insn.code() == Code::Push_r64 && Gpr::containing(insn.op0_register()) == Some(register)
    })
}

/// Whether the code behind the call of pair `index` shows that the call keeps registers that the ABI
/// lets it change: it reads one that the callee may write, `clobbers`, before anything writes it or the block ends.
pub(crate) fn keeps(walk: &Walk<'_, '_>, index: usize, clobbers: RegSet) -> bool {
    let mut set = clobbers.intersection(NEVER_READ);
    let mut at = walk.s.pairs[index].insn.next_ip();
    let blocks = &walk.claim.function.blocks;
    let next_block = blocks.get(blocks.partition_point(|block| block.start.0 < at));
    let end = next_block.map_or(u64::MAX, |block| block.start.0);
    while !set.is_empty() && at < end {
        let Some(next) = walk.pair_at(at) else { return false };
        let Pair { insn, seen, .. } = &walk.s.pairs[next];
        // Padding behind a noreturn call leads to code that others jump to.
        if insn.ip() >= end {
            return false;
        }
        if !seen.uses.reads.intersection(set).is_empty() {
            return true;
        }
        if !seen.goes_on() {
            return false;
        }
        set = set.minus(seen.uses.kills);
        at = insn.next_ip();
    }
    false
}

/// Whether the function changes nothing that a call may change, and calls no other: it only hands on
/// what it is given.
pub(crate) fn hands_on(walk: &Walk<'_, '_>) -> bool {
    walk.s.pairs.iter().all(|pair| {
        let uses = pair.seen.uses;
        !pair.seen.is_call()
            && uses.writes.union(uses.kills).intersection(RegSet::CALLER_SAVED).is_empty()
    })
}
