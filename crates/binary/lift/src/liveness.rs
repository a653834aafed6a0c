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
    pub fn new(clobbered: RegSet) -> ExitLiveness {
        let kept = RegSet::CALLER_SAVED.minus(clobbered).minus(RegSet::FLAGS);
        ExitLiveness {
            at_return: RegSet::CALLEE_SAVED.union(RegSet::RESULTS).union(kept),
            at_tail_call: RegSet::CALLEE_SAVED.union(RegSet::ARGUMENTS).union(kept),
        }
    }

    /// For a function that keeps to a convention of its own: everything.
    pub const ALL: ExitLiveness =
        ExitLiveness { at_return: RegSet::ALL, at_tail_call: RegSet::ALL };

    /// The same where functions that are not known may read these registers, too.
    pub fn with_inputs(self, inputs: RegSet) -> ExitLiveness {
        ExitLiveness { at_tail_call: self.at_tail_call.union(inputs), ..self }
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

/// What a function itself reads of [`HIDDEN`] before its first call.
pub fn read_at_once(summary: &Summary, memory: &mut Memory) -> RegSet {
    let nothing = |_| (RegSet::NONE, RegSet::ALL);
    summary.solve_alone(nothing, &mut memory.0);
    summary.at_entry(&memory.0).intersection(HIDDEN)
}

/// Finds what is live at the borders of all blocks.
fn spread(summary: &Summary, exits: ExitLiveness, callees: Callees<'_>, live: &mut Vec<Live>) {
    let behind = |returns| if returns { exits.at_return } else { exits.at_tail_call };
    let does = |call| called(call, summary.keeps, callees);
    summary.solve(behind, does, callees.inputs, live);
}

/// Liveness at the borders of a function's blocks.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// By block: before it, and behind it.
    live: Box<[(RegSet, RegSet)]>,
    /// What indirect calls are.
    indirect: Call,
    /// See [`Summary`].
    keeps: bool,
    /// Nothing is known to be dead.
    all: bool,
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
    /// What functions that are not known, or called through pointers, may read beyond what the ABI
    /// passes.
    pub pointed: RegSet,
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

    /// What the function at `to` reads of [`HIDDEN`]; if it is not known, what any may.
    pub fn inputs(&self, to: LinkAddr) -> RegSet {
        self.index.get(&to).map_or(self.pointed, |i| self.inputs[*i])
    }
}

/// What a call reads and changes, beside what the instruction does itself; `keeps` is about the
/// function that it is in.
///
/// A call ends the life of whatever its callee may write, unless the caller shows that it counts on
/// more. The flags live on across a direct call, for hand-written code that returns them.
fn called(call: Call, keeps: bool, callees: Callees<'_>) -> (RegSet, RegSet) {
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
        Call::Unknown | Call::Foreign => {
            (RegSet::CALLER_SAVED.minus(RegSet::FLAGS), callees.pointed)
        }
        Call::Indirect => (RegSet::CALLER_SAVED, callees.pointed),
        Call::Constant => (RegSet::NONE, RegSet::NONE),
    };
    let kills = if keeps { RegSet::NONE } else { kills };
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
        Liveness {
            live: summary.by_block(live).map(|block| (block.before, block.behind)).collect(),
            indirect: summary.indirect,
            keeps: summary.keeps,
            all: false,
        }
    }

    /// For a function that keeps to a convention of its own: nothing of it is known to be dead.
    pub fn all(self) -> Liveness {
        let live = self.live.iter().map(|_| (RegSet::ALL, RegSet::ALL)).collect();
        Liveness { live, all: true, ..self }
    }

    /// Whether calls in the function are taken to change nothing (see [`Summary`]).
    pub fn keeps(&self) -> bool {
        self.keeps
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
        let mut live = self.at_end(block);
        let range = &function.blocks[block.index()].insns;
        for i in (index..range.end).rev() {
            live = self.before_one(function, i, live, callees);
        }
        live
    }

    /// Live before instruction `index`, given what is live behind it.
    pub fn before_one(
        &self,
        function: &Function,
        index: u32,
        live: RegSet,
        callees: Callees<'_>,
    ) -> RegSet {
        if self.all {
            return RegSet::ALL;
        }
        let call = match callees.call(function.flow(index as usize)) {
            Call::Indirect => self.indirect,
            call => call,
        };
        let (reads, changes) = called(call, self.keeps, callees);
        let own = function.facts[index as usize].effects();
        live.minus(changes).union(reads).minus(own.kills).union(own.reads)
    }
}
