//! Where blocks lie in rewritten text.

use fettle_lift::BlockId;

/// Where a block of a function begins in rewritten text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// The function, by its entry.
    pub function: u64,
    /// The block.
    pub block: BlockId,
    /// The part of the plan that it lies in.
    pub part: u32,
    /// Where in that part.
    pub offset: u32,
}
