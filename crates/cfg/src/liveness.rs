//! Which registers and flags hold a value that is still needed.

use fettle_image::LinkAddr;
use fettle_isa::effects::Effects;
use fettle_isa::{Facts, Flow, Gpr, RegSet};
use iced_x86::Instruction;
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
    live_in: Vec<RegSet>,
    live_out: Vec<RegSet>,
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

/// What only hand-written code passes to a function. Calls read whatever else may be passed.
pub const HIDDEN: RegSet = RegSet::of(&[Gpr::R11]).union(RegSet::FLAGS);

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

/// What `insn` needs and defines, with what a call does.
///
/// A call ends the life of whatever its callee may write: no caller can count on that. The flags
/// live on across a direct call, for hand-written code that returns them.
fn call_aware(insn: &Instruction, facts: Facts, callees: Callees<'_>) -> Effects {
    const PASSED: RegSet = RegSet::ARGUMENTS
        .minus(RegSet::of(&[Gpr::Rax, Gpr::R10]))
        .union(RegSet::VECTOR_COUNT)
        .union(RegSet::CALLEE_SAVED);
    let mut effects = facts.effects();
    if effects.writes.contains(Gpr::Rax) || effects.kills.contains(Gpr::Rax) {
        effects.kills = effects.kills.union(RegSet::VECTOR_COUNT);
    }
    if !facts.calls() {
        return effects;
    }
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

fn before(effects: Effects, live_after: RegSet) -> RegSet {
    live_after.minus(effects.kills).union(effects.reads)
}

impl Liveness {
    /// Solves the backward problem over all blocks of `function`.
    pub fn solve(function: &Function, exits: ExitLiveness, callees: Callees<'_>) -> Liveness {
        let count = function.blocks.len();
        // Each block as one pair of sets: needed before, and defined in it.
        let mut needs = vec![RegSet::NONE; count];
        let mut kills = vec![RegSet::NONE; count];
        let mut at_exit = vec![RegSet::NONE; count];
        for (i, block) in function.blocks.iter().enumerate() {
            let (mut need, mut kill) = (RegSet::NONE, RegSet::NONE);
            for (insn, facts) in function.block_facts(block).rev() {
                let effects = call_aware(insn, facts, callees);
                need = before(effects, need);
                kill = kill.union(effects.kills);
            }
            needs[i] = need;
            kills[i] = kill;
            at_exit[i] = match block.exit {
                None => RegSet::NONE,
                Some(Exit::Return) => exits.at_return,
                Some(Exit::TailJump(to) | Exit::TailBranch(to)) => {
                    exits.at_tail_call.union(callees.inputs(to))
                }
                Some(Exit::TailIndirect) => exits.at_tail_call,
            };
        }
        let mut live_in = vec![RegSet::NONE; count];
        let mut live_out = at_exit;
        let mut changed = true;
        while changed {
            changed = false;
            for i in (0..count).rev() {
                let mut out = live_out[i];
                for succ in &function.blocks[i].succs {
                    out = out.union(live_in[succ.index()]);
                }
                let into = needs[i].union(out.minus(kills[i]));
                if into != live_in[i] || out != live_out[i] {
                    live_in[i] = into;
                    live_out[i] = out;
                    changed = true;
                }
            }
        }
        let mut liveness = Liveness { live_in, live_out, flags_from: Vec::new() };
        for (i, block) in function.blocks.iter().enumerate() {
            // Flags that live into a call were left there by the callee.
            let mut live = liveness.live_out[i];
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
        self.live_in[block.index()]
    }

    /// Live after a block's last instruction.
    pub fn at_end(&self, block: BlockId) -> RegSet {
        self.live_out[block.index()]
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
        let mut live = self.live_out[block.index()];
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
