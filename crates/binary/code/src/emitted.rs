//! A function's rewritten text, and what the emitter knew of it.

use fettle_image::{Image, LinkAddr};
use fettle_lift::Placement;
use fettle_lift::edges::Place;
use fettle_lift::liveness::Callees;

use crate::fixup::Fixup;
use crate::pointers::Pointers;
use crate::probing::Probing;

/// A function's rewritten text, still without an address.
#[derive(Clone, Debug, Default)]
pub struct Emitted {
    /// Machine code.
    pub code: Vec<u8>,
    /// Fields in `code` to be filled in.
    pub fixups: Vec<(u32, Fixup)>,
    /// For each block, the target offset of jumps to it.
    pub block_offsets: Vec<u32>,
    /// For each block, the end of the code that begins at its offset: nothing between is jumped to.
    pub block_ends: Vec<u32>,
    /// For each original instruction, where its copy starts (padding: where its successor does).
    pub insn_offsets: Vec<u32>,
    /// Return offsets of calls and system calls, with the original instruction. A call that is
    /// compared with a target first returns to two places.
    pub returns: Vec<(u32, u32)>,
    /// Where unwind information changes, in order.
    pub unwind: Vec<UnwindPoint>,
    /// Inlined probe code.
    pub inserted: Vec<Inserted>,
    /// Where each of the function's chunks starts; the first at 0.
    pub chunk_starts: Vec<u32>,
    /// Ranges with one unwind entry each; the first at 0, none across chunks.
    pub parts: Vec<Part>,
    /// Counters that the function uses: the place that each counts.
    pub counters: Vec<Place>,
    /// Indirect calls, in order, whose targets are counted (their tables lie behind the counters),
    /// or that are compared with a target.
    pub pointers: Vec<LinkAddr>,
}

/// Where unwind information may change: from `offset` on, that of the original address holds, with
/// the stack pointer lower by `pushed` bytes. In the first `in_step` bytes the original's changes
/// are followed byte by byte; behind them the last one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindPoint {
    /// Offset in the function's rewritten text.
    pub offset: u32,
    /// Address of the original instruction.
    pub original: LinkAddr,
    /// Bytes pushed by probe code.
    pub pushed: u32,
    /// Bytes of instructions that were copied without anything between them.
    pub in_step: u32,
}

/// A stretch of probe code, for the checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// First byte, as an offset in the function's rewritten text.
    pub start: u32,
    /// End.
    pub end: u32,
}

/// A stretch of rewritten text whose unwind information comes from one range of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte, as an offset in the function's rewritten text. It ends where the next one
    /// starts.
    pub start: u32,
    /// Index of the range in the function.
    pub range: u32,
}

/// What emission needs to know beyond the function itself.
pub struct Context<'a> {
    /// The image.
    pub image: &'a Image,
    /// What probes do.
    pub probes: &'a Probing<'a>,
    /// What calls may change, and what they read.
    pub callees: Callees<'a>,
    /// Addresses of functions that return twice, sorted.
    pub returns_twice: &'a [LinkAddr],
    /// Code is placed in the lowest 2 GiB, so that addresses fit 32 bits.
    pub low_addresses: bool,
    /// The order of blocks; functions that are not in it keep theirs.
    pub placement: Option<&'a Placement>,
    /// How indirect calls are rewritten.
    pub pointers: Pointers<'a>,
    /// Some calls preserve more registers than the ABI says (`pointer::has_descriptors`).
    pub descriptors: bool,
    /// Landing pads must be relative to what they are for (`crate::unwind::omits_base`).
    pub omits_base: bool,
}
