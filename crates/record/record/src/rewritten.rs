//! Rewritten text in a process.

use fettle_types::{LiveAddr, LoadBias, ModuleIndex};

/// Rewritten text where a process has it.
#[derive(Clone, Copy, Debug)]
pub struct Rewritten {
    /// Which module of the session it is of.
    pub module: ModuleIndex,
    /// Where it begins.
    pub text: LiveAddr,
    /// Its bytes.
    pub text_len: u64,
    /// What the loader has added to link addresses.
    pub bias: LoadBias,
}
