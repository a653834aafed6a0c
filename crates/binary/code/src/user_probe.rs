//! The user probe, compiled.

use fettle_isa::RegSet;

/// Bytes of counters of a function.
pub const STATE_BYTES: u32 = 32;

/// A compiled probe.
#[derive(Clone, Debug)]
pub struct UserProbe {
    /// Code and constants; nothing in it depends on its address.
    pub code: Vec<u8>,
    /// It uses vector registers, which the program's functions do not expect to change.
    pub vectors: bool,
    /// Distance of the code from the agent's start.
    pub from_agent: u32,
    /// What runs at entries.
    pub enter: Option<UserFunction>,
    /// What runs at exits.
    pub leave: Option<UserFunction>,
}

/// One function of a probe.
#[derive(Clone, Debug)]
pub struct UserFunction {
    /// Where it starts in the probe's code.
    pub offset: u32,
    /// The same for inlining, if that is possible.
    pub inline: Option<Inline>,
}

/// Straight-line code of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inline {
    /// Machine code.
    pub code: Vec<u8>,
    /// Displacements in it that are to reach a byte of the function's counters.
    pub fixups: Vec<(u32, u32)>,
    /// What it writes.
    pub writes: RegSet,
    /// It reads the result, so it can run before a return only.
    pub reads_result: bool,
}

/// When a function of the user probe runs; the discriminant is passed to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Moment {
    /// At the entry.
    Enters = 0,
    /// Before a return.
    Returns = 1 << 28,
    /// Before a jump to another function.
    TailCalls = 2 << 28,
}

/// The word that is passed to the agent for a function of the user probe: its distance from the
/// agent, and `moment`. `None` if there is nothing to run.
pub fn user_call(user_probe: &UserProbe, moment: Moment) -> Option<u32> {
    let function = match moment {
        Moment::Enters => user_probe.enter.as_ref(),
        Moment::Returns | Moment::TailCalls => user_probe.leave.as_ref(),
    };
    Some((user_probe.from_agent + function?.offset) | moment as u32)
}
