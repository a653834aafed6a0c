//! What can be wrong with rewritten text.

use fettle_image::LinkAddr;
use fettle_isa::RegSet;

use crate::summary::{Kind, ProbeFault};

/// What the checker found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rewritten text for {at}: {what}")]
pub struct CheckError {
    /// Original address.
    pub at: LinkAddr,
    /// What is wrong there.
    pub what: Fault,
}

/// What is wrong with rewritten text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The original has no instruction there.
    #[error("the original is no instruction")]
    Original,
    /// Control leaves the original other than by a jump, a return or a call that stays away.
    #[error("control runs past the end of the original")]
    RunsOff,
    /// Control flow that no copy is made of.
    #[error("control flow that is not followed")]
    StrangeFlow,
    /// The rewritten text ends.
    #[error("the rewritten text ends too early")]
    TooShort,
    /// Another instruction than the original's.
    #[error("another instruction than the original's")]
    Instruction,
    /// The field of an address is not fixed up, or fixed up to something else.
    #[error("an address that is not the original's")]
    Address,
    /// A place to be filled in where the original has nothing that depends on its address.
    #[error("a fixup where none can be")]
    Fixup,
    /// Places to be filled in overlap or lie outside of the code.
    #[error("fixups that overlap")]
    Overlap,
    /// Another condition, or a target that is no offset of the rewritten text.
    #[error("another jump than the original's")]
    Jump,
    /// One original instruction has two copies.
    #[error("two copies of one instruction")]
    TwoCopies,
    /// A probe is not there.
    #[error("a probe is missing: {0:?}")]
    NoProbe(Kind),
    /// Exits are not counted of a function that may not be left.
    #[error("a function whose exits are not counted may not be left")]
    NotLeft,
    /// Another probe than there should be.
    #[error("a {found:?} probe in the place of {want:?}")]
    OtherProbe {
        /// What is there.
        found: Kind,
        /// What should be.
        want: Kind,
    },
    /// A probe where none should be.
    #[error("a probe where none belongs")]
    ExtraProbe,
    /// A probe counts another block.
    #[error("a counter of another block")]
    Counter,
    /// A probe's code is wrong.
    #[error("in a probe: {0}")]
    Probe(#[from] ProbeFault),
    /// Inlined code that is not the user probe.
    #[error("code in line that is not the probe's")]
    Own,
    /// A probe changes a register or the flags where their value is needed.
    #[error("a probe changes what is needed ({0:?})")]
    Live(RegSet),
    /// A probe changes a register or the flags in a function that answers in what the ABI lets calls
    /// change.
    #[error("a probe changes {0:?} where a convention of its own may need them")]
    Convention(RegSet),
    /// A probe changes a register that callers can know not to change.
    #[error("a probe changes what the function leaves alone ({0:?})")]
    Kept(RegSet),
    /// A probe writes below the stack pointer, and so does the function.
    #[error("a probe writes to memory below the stack pointer that is in use")]
    RedZone,
    /// A jump table's copy, or an entry patch, leads elsewhere.
    #[error("a jump table's copy leads elsewhere")]
    Table,
    /// A jump table was moved and something else than its jump may use its address.
    #[error("a jump table that may not be moved")]
    Unmovable,
    /// A jump from original to rewritten text is missing or leads elsewhere.
    #[error("an entry patch is missing or leads elsewhere")]
    EntryPatch,
    /// Rules for finding the caller differ, or cannot be read.
    #[error("other unwind rules")]
    Unwind,
    /// An exception table differs, or cannot be read.
    #[error("another exception handler")]
    Handler,
}

/// The fault `what` at original address `at`.
pub(crate) fn fail<T>(at: u64, what: impl Into<Fault>) -> Result<T, CheckError> {
    Err(CheckError { at: LinkAddr(at), what: what.into() })
}
