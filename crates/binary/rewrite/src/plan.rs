//! Plans: rewritten text for an image's functions, with everything still relative.

use std::sync::atomic::AtomicUsize;

use fettle_code::{Mode, PartUnwind, PlannedTable, Pointers, Probing};
use fettle_image::LinkAddr;
use fettle_lift::edges::{Edge, Place};
use fettle_lift::function::{Function, Skipped};
use fettle_lift::{Coverage, Placement};
use serde::{Deserialize, Serialize};

use crate::osr_map::OsrMap;

/// What to put where.
#[derive(Clone)]
pub struct PlanOptions<'a> {
    /// What probes do.
    pub probes: Probing<'a>,
    /// Which functions get probes; the others are left unmodified.
    pub select: &'a (dyn Fn(&Function) -> bool + Sync),
    /// Addresses of fields in instructions whose places in rewritten text are wanted, sorted.
    pub places: &'a [LinkAddr],
    /// The order of rewritten text; functions that are not in it come last, with their blocks as they
    /// were.
    pub placement: Option<&'a Placement>,
    /// What becomes of indirect calls.
    pub pointers: Pointers<'a>,
    /// Whether [`PlannedFunction::osr_map`] are wanted: only what changes a running process asks for
    /// them, and they take a tenth of the time.
    pub osr_map: bool,
    /// Where it is counted how many functions are done, for a thread that waits.
    pub done: Option<&'a AtomicUsize>,
}

impl<'a> PlanOptions<'a> {
    /// These probes in all functions, which stay in their order.
    pub fn new(probes: Probing<'a>) -> PlanOptions<'a> {
        PlanOptions {
            probes,
            select: &|_| true,
            places: &[],
            placement: None,
            pointers: Pointers::Kept,
            osr_map: false,
            done: None,
        }
    }
}

/// A function with rewritten text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedFunction {
    /// Where the original starts.
    pub entry: LinkAddr,
    /// Symbol name, mangled.
    pub name: Option<String>,
    /// Size of the original in bytes.
    pub size: u64,
    /// Offset of the rewritten text's first chunk, where the entry is, in [`Plan::text`].
    pub text_offset: u32,
    /// Size of the first chunk.
    pub text_size: u32,
    /// First of the function's counters in the plan, and where each stands.
    pub counters: (u32, Vec<Place>),
    /// Indirect calls whose targets are counted, by `crate::pointer::COUNTERS` for each,
    /// behind the function's counters; or that are compared with a target.
    pub pointers: Vec<LinkAddr>,
    /// Its blocks' addresses, if there are counters.
    pub blocks: Vec<LinkAddr>,
    /// Its OSR entries and deopt points, if [`PlanOptions::osr_map`] are
    /// wanted.
    pub osr_map: OsrMap,
    /// Its edges, if they are what is counted.
    pub edges: Vec<(Edge, Option<Place>)>,
    /// Of the [`PlanOptions::places`], those in instructions that were copied as they are, with
    /// their offset in [`Plan::text`].
    pub places: Vec<(LinkAddr, u32)>,
}

/// A piece of a function's rewritten text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedChunk {
    /// Index of the function in the plan.
    pub function: u32,
    /// Offset in [`Plan::text`].
    pub start: u32,
    /// End.
    pub end: u32,
}

/// A jump to be written over original code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPatch {
    /// Where the five bytes go.
    pub at: LinkAddr,
    /// Where it leads, as an offset in [`Plan::text`].
    pub to: u32,
}

/// Rewritten text for an image, without addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What its probes measure.
    pub mode: Mode,
    /// Functions with rewritten text, in order of original entry; a function's number in the plan is
    /// its index.
    pub functions: Vec<PlannedFunction>,
    /// Functions that are left unmodified.
    pub skipped: Vec<Skipped>,
    /// The functions' code in order of place.
    pub chunks: Vec<PlannedChunk>,
    /// The agent, the user probe if there is one, then the functions' code.
    #[serde(with = "serde_bytes")]
    pub text: Vec<u8>,
    /// Places in `text` to be filled in, with the function they belong to.
    pub fixups: Vec<PlanFixup>,
    /// Copies of jump tables.
    pub tables: Vec<PlannedTable>,
    /// Entry patches: jumps from original to rewritten text.
    pub entry_patches: Vec<EntryPatch>,
    /// Unwind information, with the function's index.
    pub unwind: Vec<(u32, PartUnwind)>,
    /// Number of block counters.
    pub counters: u32,
    /// How much of the image's code is in functions that are known.
    pub coverage: Coverage,
}

impl Plan {
    /// The index of the function whose code is at `offset` in the text, or ends there: a return
    /// address may be the first byte behind.
    pub fn function_at(&self, offset: u32) -> Option<usize> {
        let i = self.chunks.partition_point(|c| c.start <= offset).checked_sub(1)?;
        (offset <= self.chunks[i].end).then_some(self.chunks[i].function as usize)
    }
}

/// A 32-bit place in a plan's text to be filled in.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PlanFixup {
    /// Offset in [`Plan::text`].
    pub at: u32,
    /// Index of the function it belongs to.
    pub function: u32,
    /// With what.
    pub kind: PlanFixupKind,
}

/// With what a place is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlanFixupKind {
    /// Distance to an original address.
    Original {
        /// The address.
        to: LinkAddr,
        /// Bytes of the instruction after the field.
        after: u8,
    },
    /// Distance to an offset in [`Plan::text`].
    New(u32),
    /// Distance to an index of [`Plan::tables`].
    Table(u32),
    /// Address of an index of [`Plan::tables`].
    TableAddress(u32),
    /// Displacement of a field of the function's accumulator.
    Accumulator(u32),
    /// Displacement of a counter of the plan.
    Counter(u32),
    /// Upper half of the function's identifier.
    IdHigh,
    /// Lower half of the function's identifier.
    IdLow,
    /// Number of the function in the session.
    Number,
    /// Size of the ring less one.
    RingMask,
}
