//! Numbers within a recording that must not be taken for one another.

/// Number of a slot in the session's memory, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(pub u32);

impl SlotIndex {
    /// The bare number, as thread blocks have it.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The slot behind it.
    pub const fn next(self) -> SlotIndex {
        SlotIndex(self.0 + 1)
    }
}

/// Number of a module among a recording's, in the order in which they were met, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleIndex(pub u32);

impl ModuleIndex {
    /// The bare number, as tables of traces have it.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Its place in a list of all modules.
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}
