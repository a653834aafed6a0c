//! Fields of rewritten text that wait for an address.

use fettle_image::LinkAddr;

/// What a place in a function's rewritten text waits for; all are 32 bits wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixup {
    /// Distance to an address of the original image, from `after` bytes past the field.
    Original {
        /// The address.
        to: LinkAddr,
        /// Bytes of immediate operand that follow the field.
        after: u8,
    },
    /// Distance to the new copy of the function that starts here, or to the original if it has
    /// none.
    Function(LinkAddr),
    /// Distance to the copy of a jump table (index into the function's tables).
    Table(u32),
    /// Address of the copy of a jump table.
    TableAddress(u32),
    /// Distance to this offset of the function's own rewritten text, in another chunk.
    Across(u32),
    /// Something of a probe's.
    Probe(ProbeFixup),
}

/// What a field of a probe waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeFixup {
    /// 32-bit displacement of a field of the function's accumulator.
    Accumulator(u32),
    /// 32-bit displacement of a counter of the module.
    Counter(u32),
    /// Upper half of the function's identifier, 32-bit immediate.
    IdHigh,
    /// Lower half of the function's identifier, 32-bit immediate.
    IdLow,
    /// Number of the function in the session, 32-bit immediate.
    Number,
    /// Size of the ring less one, 32-bit immediate.
    RingMask,
    /// 32-bit distance to an entry of the agent.
    Agent(AgentEntry),
    /// 32-bit distance to offset `.0` of the probe's inline part.
    Inline(u32),
    /// 32-bit distance to offset `.0` of the probe's out-of-line part.
    OutOfLine(u32),
}

/// Entries of the agent, in the order of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum AgentEntry {
    /// An exit found another frame than its own on top of the call-stack mirror.
    Exit = 0,
    /// Frames may have been unwound by an exception or `longjmp`.
    Left = 1,
    /// The ring is full.
    Ring = 2,
    /// A call to be timed begins.
    SampleEntry = 3,
    /// A call ends that may have been timed, or lasted over a checkpoint.
    SampleExit = 4,
    /// A call begins whose arguments are recorded, or whose clock is not the time-stamp counter.
    Enter = 5,
    /// Such a call ends.
    Leave = 6,
    /// A function of the user probe is to run.
    User = 9,
    /// The same, and it uses vector registers.
    UserVectors = 10,
    /// The call-stack mirror has no room for a call.
    Full = 11,
    /// A function of locks begins.
    LockEnter = 12,
    /// One returns, and its entry has asked for that.
    LockLeave = 13,
}
