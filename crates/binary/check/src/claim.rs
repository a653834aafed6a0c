//! What is to be proven.

use std::collections::HashMap;

use fettle_code::{Emitted, PartUnwind, PlannedTable};
use fettle_image::LinkAddr;
use fettle_lift::function::Function;
use fettle_lift::liveness::ExitLiveness;
use fettle_lift::lsda::Lsda;

/// A function's rewritten text, as its makers claim it to be.
#[derive(Clone, Copy)]
pub struct Claim<'a> {
    /// The original.
    pub function: &'a Function,
    /// Its rewritten text.
    pub emitted: &'a Emitted,
    /// The rewritten text's unwind information.
    pub unwind: &'a [PartUnwind],
    /// Copies of jump tables, with their index in the function; entries are offsets in the
    /// function's rewritten text.
    pub tables: &'a [(u32, PlannedTable)],
    /// Jumps from original to rewritten text.
    pub entry_patches: &'a [(LinkAddr, u32)],
    /// What is needed when control leaves.
    pub exits: ExitLiveness,
    /// The function counts on its callees to keep more than the ABI says: what it was made by takes no
    /// call to end the life of anything.
    pub keeps: bool,
    /// The original's exception tables, by the start of their unwind entry.
    pub exception_tables: &'a HashMap<LinkAddr, Lsda>,
}
