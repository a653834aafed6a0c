//! What a piece of probe code was found to be and to do.

use fettle_isa::RegSet;

/// What a probe measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Counts an entry.
    CountEntry,
    /// Counts an exit.
    CountExit,
    /// Counts a call of a function that is always left.
    CountPass,
    /// Pushes a frame on the call-stack mirror, if less than this of it is in use; what is not pushed
    /// is counted if it is for want of room.
    TimedEntry(u32),
    /// Pops a frame of the call-stack mirror; calls deeper than the last of them are passed by if `limited`.
    TimeExit {
        /// Calls may be too deep to be measured.
        limited: bool,
    },
    /// Pops a frame of the call-stack mirror and records it.
    EventsExit {
        /// Calls may be too deep to be measured.
        limited: bool,
    },
    /// Has the agent push a frame on the call-stack mirror and record these arguments.
    Enter(u32),
    /// Has the agent pop a frame of the call-stack mirror and record these results.
    Leave(u32),
    /// Asks now and then that the call be timed.
    SampleEntry,
    /// Ends a timed call.
    SampleExit,
    /// Has the agent call this function of the user probe.
    UserCall(u32),
    /// Tells the agent that a function of locks begins.
    LockEnter,
    /// Tells it that one returns, if it has asked for that.
    LockLeave,
    /// Straight-line code that touches nothing but the counters of the function.
    Own,
    /// Asks the agent to close frames that were left.
    Left,
    /// Counts a block.
    Block,
    /// Counts what this register holds, by the table of an indirect call.
    Target(u8),
}

/// What is wrong with probe code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeFault {
    /// Bytes that are no instruction, or past the code.
    #[error("bytes that are no instruction")]
    Undecodable,
    /// An instruction that probes are not made of.
    #[error("an instruction that probes are not made of")]
    Instruction,
    /// A memory access that probes do not make.
    #[error("a memory access that probes do not make")]
    Memory,
    /// A place to be filled in that its instruction does not have.
    #[error("a fixup where none can be")]
    Fixup,
    /// Pushes and pops do not match.
    #[error("pushes and pops do not match")]
    Stack,
    /// The agent is not called as it wants to be.
    #[error("an operand that the agent does not expect")]
    Agent,
    /// A jump on a condition that means nothing.
    #[error("a condition that means nothing")]
    Condition,
    /// Something is measured twice, or in the wrong order.
    #[error("an effect twice or out of order")]
    Order,
    /// More paths than any probe has.
    #[error("more paths than any probe has")]
    TooLong,
    /// What it measures is nothing that a probe measures.
    #[error("paths that do not add up to a probe")]
    Kind,
}

/// A stretch of a probe with the bytes pushed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Part of the probe: 0 is the inline one.
    pub part: u32,
    /// Offset in the part.
    pub start: u32,
    /// End.
    pub end: u32,
    /// Bytes pushed.
    pub pushed: u32,
}

/// What is known of a probe's shape.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What it measures.
    pub kind: Kind,
    /// What it may leave changed.
    pub clobbers: RegSet,
    /// It writes to the 128 bytes below the stack pointer.
    pub uses_red_zone: bool,
    /// Bytes pushed, by stretch.
    pub depths: Vec<Depth>,
    /// [`Kind::Own`] only: what stands between saving and restoring, as offsets in the probe.
    pub work: (u32, u32),
}

/// Parts that one probe may have.
pub const MAX_PARTS: usize = 4;
