//! Which registers and flags hold a value that is still needed.

use fettle_image::LinkAddr;
use fettle_isa::{Flow, Gpr, RegSet};

use crate::function::{BlockId, Function};
use crate::summary::{Call, Index, Live, Summary};

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

/// Memory that is used again for the next function.
#[derive(Debug, Default)]
pub struct Memory(Vec<Live>);

/// What a function reads of [`HIDDEN`], of which callers know nothing: not what only lives through
/// it, for its callers.
pub fn hidden_inputs(summary: &Summary, callees: Callees<'_>, memory: &mut Memory) -> RegSet {
    let nothing = ExitLiveness { at_return: RegSet::NONE, at_tail_call: RegSet::NONE };
    spread(summary, nothing, callees, &mut memory.0);
    summary.at_entry(&memory.0).intersection(HIDDEN)
}

/// Finds what is live at the borders of all blocks.
fn spread(summary: &Summary, exits: ExitLiveness, callees: Callees<'_>, live: &mut Vec<Live>) {
    let behind = |returns| if returns { exits.at_return } else { exits.at_tail_call };
    summary.solve(behind, |call| called(call, callees), callees.inputs, live);
}

/// Liveness at the borders of a function's blocks.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// By block: before it, and behind it.
    live: Box<[(RegSet, RegSet)]>,
    /// Numbers of functions called directly whose callers need the flags that they leave.
    pub flags_from: Vec<u32>,
    /// What calls through pointers are.
    indirect: Call,
}

/// What is known of the functions that others call directly.
#[derive(Clone, Copy, Debug)]
pub struct Callees<'a> {
    /// Numbers of functions by their entries.
    pub index: &'a Index,
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

    /// What is called, as far as it matters what that changes.
    fn call(&self, flow: Flow) -> Call {
        match flow {
            Flow::Call(to) => match self.index.get(&LinkAddr(to)) {
                Some(callee) => Call::Known(*callee as u32),
                None => Call::Unknown,
            },
            Flow::IndirectCall => Call::Indirect,
            _ => Call::None,
        }
    }

    /// What the function at `to` reads of [`HIDDEN`].
    pub fn inputs(&self, to: LinkAddr) -> RegSet {
        self.index.get(&to).map_or(RegSet::NONE, |i| self.inputs[*i])
    }
}

/// What a call reads and changes, beside what the instruction does itself.
///
/// A call ends the life of whatever its callee may write: no caller can count on that. The flags
/// live on across a direct call, for hand-written code that returns them.
fn called(call: Call, callees: Callees<'_>) -> (RegSet, RegSet) {
    const PASSED: RegSet = RegSet::ARGUMENTS
        .minus(RegSet::of(&[Gpr::Rax, Gpr::R10]))
        .union(RegSet::VECTOR_COUNT)
        .union(RegSet::CALLEE_SAVED);
    let (kills, inputs) = match call {
        Call::None => return (RegSet::NONE, RegSet::NONE),
        Call::Known(callee) => {
            let callee = callee as usize;
            (callees.clobbers[callee].minus(RegSet::FLAGS), callees.inputs[callee])
        }
        Call::Unknown | Call::Foreign => (RegSet::CALLER_SAVED.minus(RegSet::FLAGS), RegSet::NONE),
        Call::Indirect => (RegSet::CALLER_SAVED, RegSet::NONE),
        Call::Constant => (RegSet::NONE, RegSet::NONE),
    };
    (PASSED.union(inputs), kills.union(RegSet::VECTOR_COUNT))
}

impl Liveness {
    /// Solves the backward problem over all blocks of a function, in `memory`.
    pub fn solve(
        summary: &Summary,
        exits: ExitLiveness,
        callees: Callees<'_>,
        memory: &mut Memory,
    ) -> Liveness {
        let live = &mut memory.0;
        spread(summary, exits, callees, live);
        let mut flags_from = Vec::new();
        summary.calls(
            live,
            |call| called(call, callees),
            |callee, live| {
                // Flags that live into a call were left there by the callee.
                if live.has_flags() {
                    flags_from.push(callee);
                }
            },
        );
        Liveness {
            live: summary.by_block(live).map(|block| (block.before, block.behind)).collect(),
            flags_from,
            indirect: summary.indirect,
        }
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
        for i in (index as usize..range.end as usize).rev() {
            let call = match callees.call(function.flow(i)) {
                Call::Indirect => self.indirect,
                call => call,
            };
            let (reads, changes) = called(call, callees);
            let own = function.facts[i].effects();
            live = live.minus(changes).union(reads).minus(own.kills).union(own.reads);
        }
        live
    }
}
