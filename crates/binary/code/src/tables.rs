//! Copies of jump tables, and the entry patches that lead from original to rewritten text.

use fettle_image::LinkAddr;
use fettle_lift::TableKind;
use serde::{Deserialize, Serialize};

/// A copy of a jump table that leads into rewritten text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedTable {
    /// The table that it is a copy of.
    pub original: LinkAddr,
    /// How entries are written.
    pub kind: TableKind,
    /// The target of each entry.
    pub entries: Vec<PlannedEntry>,
}

/// An entry of a copied jump table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlannedEntry {
    /// To this offset in `Plan::text`.
    New(u32),
    /// To this address, as in the original.
    Original(LinkAddr),
    /// It is null, as in the original.
    Null,
}

/// Size of an entry patch in bytes: `jmp` with a 32-bit distance.
pub const ENTRY_PATCH_SIZE: u64 = fettle_isa::jump::NEAR as u64;
