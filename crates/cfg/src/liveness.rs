//! Which registers and flags hold a value that is still needed.

use fettle_image::LinkAddr;
use fettle_isa::effects::Effects;
use fettle_isa::{Facts, Flow, Gpr, Insn, RegSet};
use rustc_hash::FxHashMap;

use crate::function::{Block, BlockId, Exit, Function};

/// What is needed when control leaves a function.
#[derive(Clone, Copy, Debug)]
pub struct ExitLiveness {
    /// At a `ret`.
    pub at_return: RegSet,
    /// At a tail call.
    pub at_tail_call: RegSet,
}

impl ExitLiveness {
    /// By the System V ABI, for a function that may write `clobbered` itself or through those
    /// that it calls.
    ///
    /// A caller that knows the function (`-fipa-ra`) may count on any register that it does not
    /// write, whatever the ABI says; so those stay needed.
    pub fn new(clobbered: RegSet, flags_needed_by_callers: bool) -> ExitLiveness {
        let kept = RegSet::CALLER_SAVED.minus(clobbered).minus(RegSet::FLAGS);
        let mut at_return = RegSet::CALLEE_SAVED.union(RegSet::RESULTS).union(kept);
        if flags_needed_by_callers {
            at_return = at_return.union(RegSet::FLAGS);
        }
        ExitLiveness {
            at_return,
            at_tail_call: RegSet::CALLEE_SAVED.union(RegSet::ARGUMENTS).union(kept),
        }
    }

    /// The same for a function that leaves values in these registers, too (see
    /// [`crate::results`]).
    pub fn with_results(self, results: RegSet) -> ExitLiveness {
        ExitLiveness {
            at_return: self.at_return.union(results),
            at_tail_call: self.at_tail_call.union(results),
        }
    }
}

/// Liveness at the borders of a function's blocks.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// By block: before it, and behind it.
    live: Vec<(RegSet, RegSet)>,
    /// Functions called directly whose callers need the flags that they leave.
    pub flags_from: Vec<LinkAddr>,
}

/// What is known of the functions that others call directly.
#[derive(Clone, Copy, Debug)]
pub struct Callees<'a> {
    /// Numbers of functions by their entries.
    pub index: &'a FxHashMap<LinkAddr, usize>,
    /// By number: what a call may change (see [`crate::clobbers`]).
    pub clobbers: &'a [RegSet],
    /// By number: what the function reads beyond what the ABI passes (see [`HIDDEN`]).
    pub inputs: &'a [RegSet],
}

/// What only hand-written code passes to a function, but for the static chain of nested functions and
/// the count of vectors. Calls read whatever else may be passed.
pub const HIDDEN: RegSet = RegSet::of(&[Gpr::Rax, Gpr::R10, Gpr::R11]).union(RegSet::FLAGS);

impl Callees<'_> {
    /// What a call of the function at `to` may change: what the ABI lets it if it is not known.
    pub fn clobbers(&self, to: LinkAddr) -> RegSet {
        self.index.get(&to).map_or(RegSet::CALLER_SAVED, |i| self.clobbers[*i])
    }

    /// What the function at `to` reads of [`HIDDEN`].
    pub fn inputs(&self, to: LinkAddr) -> RegSet {
        self.index.get(&to).map_or(RegSet::NONE, |i| self.inputs[*i])
    }
}

/// What a call needs and defines, beside what the instruction does itself.
///
/// A call ends the life of whatever its callee may write: no caller can count on that. The flags
/// live on across a direct call, for hand-written code that returns them.
fn called(insn: &Insn, facts: Facts, callees: Callees<'_>) -> Effects {
    const PASSED: RegSet = RegSet::ARGUMENTS
        .minus(RegSet::of(&[Gpr::Rax, Gpr::R10]))
        .union(RegSet::VECTOR_COUNT)
        .union(RegSet::CALLEE_SAVED);
    let mut effects = facts.effects();
    let (clobbered, inputs) = match facts.flow(insn) {
        Flow::Call(to) => {
            let to = LinkAddr(to);
            (callees.clobbers(to).minus(RegSet::FLAGS), callees.inputs(to))
        }
        _ => (RegSet::CALLER_SAVED, RegSet::NONE),
    };
    effects.kills = effects.kills.union(clobbered).union(RegSet::VECTOR_COUNT);
    effects.reads = effects.reads.union(PASSED).union(inputs);
    effects
}

/// What `insn` needs and defines, with what a call does.
fn call_aware(insn: &Insn, facts: Facts, callees: Callees<'_>) -> Effects {
    if facts.calls() { called(insn, facts, callees) } else { facts.effects() }
}

fn before(effects: Effects, live_after: RegSet) -> RegSet {
    live_after.minus(effects.kills).union(effects.reads)
}

impl Liveness {
    /// Solves the backward problem over all blocks of `function`.
    pub fn solve(function: &Function, exits: ExitLiveness, callees: Callees<'_>) -> Liveness {
        // Each block as one pair of sets: needed before, and defined in it.
        let mut sums = Vec::with_capacity(function.blocks.len());
        let mut live = Vec::with_capacity(function.blocks.len());
        for block in &function.blocks {
            let (mut need, mut kill) = (RegSet::NONE, RegSet::NONE);
            for (insn, facts) in function.block_facts(block).rev() {
                let effects = call_aware(insn, facts, callees);
                need = before(effects, need);
                kill = kill.union(effects.kills);
            }
            sums.push((need, kill));
            let at_exit = match block.exit {
                None => RegSet::NONE,
                Some(Exit::Return) => exits.at_return,
                Some(Exit::TailJump(to) | Exit::TailBranch(to)) => {
                    exits.at_tail_call.union(callees.inputs(to))
                }
                Some(Exit::TailIndirect) => exits.at_tail_call,
            };
            live.push((RegSet::NONE, at_exit));
        }
        let mut changed = true;
        while changed {
            changed = false;
            for (i, block) in function.blocks.iter().enumerate().rev() {
                let out = block.succs.iter().fold(live[i].1, |out, s| out.union(live[s.index()].0));
                let (need, kill) = sums[i];
                let into = need.union(out.minus(kill));
                if (into, out) != live[i] {
                    live[i] = (into, out);
                    changed = true;
                }
            }
        }
        let mut liveness = Liveness { live, flags_from: Vec::new() };
        for (i, block) in function.blocks.iter().enumerate() {
            // Flags that live into a call were left there by the callee.
            let mut live = liveness.live[i].1;
            if !live.has_flags() && !needs_flags(function, block) {
                continue;
            }
            for (insn, facts) in function.block_facts(block).rev() {
                if live.has_flags()
                    && let Flow::Call(to) = facts.flow(insn)
                {
                    liveness.flags_from.push(LinkAddr(to));
                }
                live = before(call_aware(insn, facts, callees), live);
            }
        }
        liveness
    }

    /// Live before a block's first instruction.
    pub fn at_start(&self, block: BlockId) -> RegSet {
        self.live[block.index()].0
    }

    /// Live after a block's last instruction.
    pub fn at_end(&self, block: BlockId) -> RegSet {
        self.live[block.index()].1
    }

    /// Live before instruction `index` (in [`Function::insns`]) of `block`.
    pub fn before_insn(
        &self,
        function: &Function,
        block: BlockId,
        index: u32,
        callees: Callees<'_>,
    ) -> RegSet {
        let range = &function.blocks[block.index()].insns;
        let mut live = self.live[block.index()].1;
        for i in (index..range.end).rev() {
            let i = i as usize;
            live = before(call_aware(&function.insns[i], function.facts[i], callees), live);
        }
        live
    }
}

/// Whether a call in `block` is followed by something that reads flags and nothing that sets
/// them: a cheap look, before the exact one.
fn needs_flags(function: &Function, block: &Block) -> bool {
    let mut after_call = false;
    for (insn, facts) in function.block_facts(block) {
        if after_call && facts.reads().has_flags() {
            return true;
        }
        if facts.writes().has_flags() {
            after_call = false;
        } else if facts.calls() {
            after_call |= matches!(facts.flow(insn), Flow::Call(_));
        }
    }
    false
}
