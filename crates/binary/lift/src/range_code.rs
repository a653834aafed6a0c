//! The instructions of one range, as far as control was followed.

use std::ops::Range;

use fettle_image::LinkAddr;
use fettle_isa::{Facts, Insn};

use crate::function::{JumpTable, SkipReason};

/// Instructions of one range, found by following control.
#[derive(Debug)]
pub struct RangeCode {
    /// The range.
    pub range: Range<LinkAddr>,
    /// There may be other functions in it that are not known: only its start is certain.
    pub(crate) end_guessed: bool,
    /// Instructions in the order in which they were found.
    pub insns: Vec<Insn>,
    /// Facts of each instruction.
    pub facts: Vec<Facts>,
    /// Bytes of all instructions found.
    pub code_bytes: u64,
    /// For each byte of the range, the instruction that starts there, plus one.
    pub(crate) at: Vec<u32>,
    /// Addresses in the range that control comes to other than by falling through.
    pub leaders: Vec<LinkAddr>,
    /// Direct jumps out of the range: from and to.
    pub outgoing: Vec<(LinkAddr, LinkAddr)>,
    /// Jump tables, with targets inside and outside of the range.
    pub tables: Vec<JumpTable>,
    /// Indirect jumps that are tail calls.
    pub tail_jumps: Vec<LinkAddr>,
    /// Direct calls: targets.
    pub calls: Vec<LinkAddr>,
    /// Addresses of code out of the range that an instruction names (`lea`).
    pub named: Vec<LinkAddr>,
    /// Why the range cannot be lifted, and where.
    pub failure: Option<(SkipReason, LinkAddr)>,
    /// Where following began, as indices into `insns`: instructions lie one behind the other up to
    /// the next of these.
    pub(crate) runs: Vec<u32>,
    /// Entries still to be followed.
    pub(crate) work: Vec<LinkAddr>,
    /// Indirect jumps still to be resolved (indices into `insns`).
    pub(crate) unresolved: Vec<u32>,
    /// The first instruction that another one reaches into.
    pub(crate) overlap: Option<LinkAddr>,
    /// Targets of jumps that are one byte behind the start of an instruction with a `lock` prefix.
    ///
    /// Programs jump over the prefix while they have one thread. What is jumped to does the same
    /// as the whole instruction, so such jumps are lifted as jumps to that.
    pub unlocked: Vec<LinkAddr>,
}
