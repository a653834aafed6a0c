//! Which indirect calls become direct ones.

use rustc_hash::FxHashMap;

/// Indirect-call promotion: at which calls of a thunk a register is compared with the address of one function, and
/// that is called directly if it is the one.
///
/// It is what `INDIRECT_CALL_1` does in the kernel's sources, at the calls that its authors thought of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promotions(
    /// By the address of the call: that of the function.
    pub FxHashMap<u64, u64>,
);
