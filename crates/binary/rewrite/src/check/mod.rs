//! The checker: does new code do what the original did?
//!
//! It decodes the original again, walks both codes in step and takes nothing of what the planner
//! and emitter say for granted: what they say is a claim that is looked up and compared.
//!
//! 1. *Walk* (this file): from the entry and every block, each original instruction must meet
//!    its like. Only distances may differ, and those must be fixed up to the same address.
//!    Blocks may lie in any order: control that fell into a block may jump there and the reverse,
//!    and a conditional jump may be turned round. Control stays in one chunk unless a jump that
//!    waits for the chunks' places leads to another.
//! 2. *Probes* ([`probe`]): whatever stands between the instructions is executed symbolically.
//!    What it leaves changed must be dead there ([`dead`]).
//! 3. *Tables* ([`tables`]): copies of jump tables and springboards lead to the same code.
//! 4. *Unwinding* ([`unwind`]): rules for finding the caller, and handlers of exceptions.
//!
//! What is trusted: how the function was lifted (its ranges, the targets of indirect jumps, that
//! a call at the end of a range does not return), what a callee may change
//! ([`Context::clobbers`]) and that it reads what the ABI says, what callers need beyond the ABI
//! ([`ExitLiveness`]), where exception tables put landing pads, and the fillers of fixups
//! ([`crate::link`]).

mod calls;
mod convention;
mod dead;
pub(crate) mod own;
mod pointer;
pub mod probe;
mod seen;
mod tables;
mod unwind;

use std::collections::HashMap;

use fettle_image::{Image, LinkAddr};
use fettle_isa::{Decides, Forms, Insn, RegSet};
use fettle_lift::edges::Place;
use fettle_lift::function::{BlockId, Function};
use fettle_lift::liveness::ExitLiveness;
use fettle_lift::lsda::Lsda;
use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::arguments::Arguments;
use crate::emit::{Context, Emitted, Fixup};
use crate::plan::PlannedTable;
use crate::probe::{Mode, Moment, own_call};
use crate::unwind::PartUnwind;
use probe::{Kind, MAX_PARTS, ProbeFault, Shapes};
use seen::{Eyes, Seen, Step};

/// What the checker found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("new code for {at}: {what}")]
pub struct CheckError {
    /// Original address.
    pub at: LinkAddr,
    /// What is wrong there.
    pub what: Fault,
}

/// What is wrong with new code.
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
    /// The new code ends.
    #[error("the new code ends too early")]
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
    /// Another condition, or a target that is no offset of the new code.
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
    /// Code in line that is not the user's own probe.
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
    /// A jump table's copy, or a springboard, leads elsewhere.
    #[error("a jump table's copy leads elsewhere")]
    Table,
    /// A jump table was moved and something else than its jump may use its address.
    #[error("a jump table that may not be moved")]
    Unmovable,
    /// A jump from original to new code is missing or leads elsewhere.
    #[error("a springboard is missing or leads elsewhere")]
    Springboard,
    /// Rules for finding the caller differ, or cannot be read.
    #[error("other unwind rules")]
    Unwind,
    /// An exception table differs, or cannot be read.
    #[error("another exception handler")]
    Handler,
}

/// A function's new code, as its makers claim it to be.
#[derive(Clone, Copy)]
pub struct Claim<'a> {
    /// The original.
    pub function: &'a Function,
    /// Its new code.
    pub emitted: &'a Emitted,
    /// The new code's unwind information.
    pub unwind: &'a [PartUnwind],
    /// Copies of jump tables, with their index in the function; entries are offsets in the
    /// function's new code.
    pub tables: &'a [(u32, PlannedTable)],
    /// Jumps from original to new code.
    pub springboards: &'a [(LinkAddr, u32)],
    /// What is needed when control leaves.
    pub exits: ExitLiveness,
    /// The function counts on its callees to keep more than the ABI says: what it was made by takes no
    /// call to end the life of anything.
    pub keeps: bool,
    /// The original's exception tables, by the start of their unwind entry.
    pub exception_tables: &'a HashMap<LinkAddr, Lsda>,
}

/// An original instruction and where its copy is.
#[derive(Clone, Copy)]
struct Pair {
    insn: Insn,
    seen: Seen,
    new: u32,
    /// Length of the copy: none for a jump that led to what now follows.
    len: u32,
}

impl Pair {
    /// Where control goes after the original.
    fn step(&self) -> Option<Step> {
        self.seen.step(&self.insn)
    }

    /// Whether control may not come back, or go on, from here.
    fn may_keep(&self) -> bool {
        let step = self.step();
        let may_trap = matches!(step, Some(Step::Stop | Step::Trap));
        self.insn.is_syscall() || self.seen.is_call() || may_trap
    }
}

const UNPAIRED: u32 = u32::MAX;
const PADDING: u32 = u32::MAX - 1;

/// A block starts here, by the lifter's word.
const BLOCK: u32 = 1 << 31;
/// A landing pad starts here.
const PAD: u32 = 1 << 30;
/// Control was followed into the block that starts here, at the place that it is said to be at.
const DONE: u32 = 1 << 29;
const INDEX: u32 = DONE - 1;

/// What may not come back, so that nothing need stand behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    Call,
    /// `int3`, whose handler may return.
    Trap,
    Other,
}

impl Behind {
    fn of(step: Step) -> Behind {
        match step {
            Step::Call(_) | Step::CallIndirect => Behind::Call,
            Step::Trap => Behind::Trap,
            _ => Behind::Other,
        }
    }
}

/// A stretch of probe code and what it was found to be.
#[derive(Clone, Copy)]
struct Stretch {
    start: u32,
    end: u32,
    /// The original address it stands before; `None` until control came to it.
    at: Option<u64>,
    /// Index of its shape.
    shape: u32,
    kind: Kind,
    counter: u32,
    /// Control leaves the function behind it.
    leaving: bool,
    /// What else was changed for it, before it.
    before: RegSet,
    /// Offsets of its parts.
    parts: [u32; MAX_PARTS],
}

/// Memory that is used again for the next function.
#[derive(Default)]
struct Scratch {
    /// By original byte: marks, and the pair's index plus one.
    at: Vec<u32>,
    /// By original byte that is marked as a block's first: the block.
    blocks: Vec<u32>,
    pairs: Vec<Pair>,
    work: Vec<(u64, u32)>,
    fixups: Vec<(u32, Fixup)>,
    stretches: Vec<Stretch>,
    /// Tables that instructions refer to by a copy: index and the instruction.
    moved: Vec<(u32, u64)>,
    /// New code that is no copy of one instruction, with the original address whose unwind rules
    /// hold there: padding that control comes to, jumps behind probes. Offset and length.
    extra: Vec<(u64, u32, u32)>,
    /// Where control runs on behind an end of the original.
    runs_on: Vec<u64>,
    /// Calls through pointers with a comparison before them: the pair, and the end of the call as
    /// it was.
    promoted: Vec<(u32, u32)>,
    /// By pair: what was proved dead there.
    dead: Vec<RegSet>,
    search: Vec<(u64, RegSet)>,
    /// Whether some calls in the image keep more registers than the ABI says.
    resolvers: bool,
}

impl Scratch {
    /// Makes room for a function of so many bytes.
    fn clear(&mut self, bytes: usize) {
        self.at.clear();
        self.at.resize(bytes, 0);
        // Of bytes without a mark nothing is read.
        self.blocks.resize(bytes.max(self.blocks.len()), 0);
        self.pairs.clear();
        self.work.clear();
        self.moved.clear();
        self.extra.clear();
        self.runs_on.clear();
        self.promoted.clear();
    }
}

/// Checks functions of one image; one per thread.
pub struct Checker<'a> {
    image: &'a Image,
    shapes: Shapes,
    scratch: Scratch,
    forms: Forms<Eyes>,
    rows: Option<unwind::Rows<'a>>,
}

impl<'a> Checker<'a> {
    /// A checker for `image`.
    pub fn new(image: &'a Image) -> Checker<'a> {
        Checker {
            image,
            shapes: Shapes::default(),
            scratch: Scratch { resolvers: pointer::has_resolvers(image), ..Scratch::default() },
            forms: Forms::default(),
            rows: unwind::Rows::new(image),
        }
    }

    /// Checks one function.
    ///
    /// # Errors
    ///
    /// The first difference that was found.
    pub fn check(&mut self, claim: Claim<'_>, context: &Context<'_>) -> Result<(), CheckError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.check_with(&mut scratch, claim, context);
        self.scratch = scratch;
        result
    }

    fn check_with(
        &mut self,
        scratch: &mut Scratch,
        claim: Claim<'_>,
        context: &Context<'_>,
    ) -> Result<(), CheckError> {
        let memory = (scratch, &mut self.shapes, &mut self.forms);
        let mut walk = Walk::new(self.image, memory, claim, context)?;
        walk.all()?;
        dead::check(&mut walk)?;
        tables::check(&mut walk)?;
        match &mut self.rows {
            Some(rows) => unwind::check(&walk, rows),
            None if claim.unwind.is_empty() => Ok(()),
            None => Err(CheckError { at: claim.function.entry, what: Fault::Unwind }),
        }
    }
}

/// Checks one function, without memory of others; for tests.
///
/// # Errors
///
/// The first difference that was found.
pub fn check(claim: Claim<'_>, context: &Context<'_>) -> Result<(), CheckError> {
    Checker::new(context.image).check(claim, context)
}

/// A direct jump of the new code.
struct NewJump {
    insn: Insn,
    seen: Seen,
    /// What its last four bytes wait for.
    fixup: Option<Fixup>,
}

/// A range of the original.
#[derive(Clone, Copy)]
struct Range<'a> {
    start: u64,
    end: u64,
    /// Slot of its first byte.
    base: usize,
    bytes: &'a [u8],
}

/// Whether the first `len` bytes are the same; there are no more than 16.
fn begin_alike(a: &[u8], b: &[u8], len: usize) -> bool {
    match (a.first_chunk::<16>(), b.first_chunk::<16>()) {
        (Some(a), Some(b)) => {
            let differ = u128::from_le_bytes(*a) ^ u128::from_le_bytes(*b);
            differ << (128 - 8 * len as u32) == 0
        }
        _ => a.get(..len).is_some_and(|a| Some(a) == b.get(..len)),
    }
}

/// How control comes to an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// From a caller.
    Entry,
    /// From a function that may return twice.
    Twice,
    /// Any other way.
    Inside,
}

struct Walk<'w, 'a> {
    claim: Claim<'w>,
    context: &'w Context<'w>,
    code: &'w [u8],
    ranges: Vec<Range<'a>>,
    s: &'w mut Scratch,
    shapes: &'w mut Shapes,
    forms: &'w mut Forms<Eyes>,
    /// First fixup not before the place of the copy.
    fixup: usize,
    /// First stretch not before the place of the copy.
    stretch: usize,
    /// Landing pads.
    pads: Vec<u64>,
    /// The chunk of new code at hand: start and end.
    chunk: (u32, u32),
    /// What stands before the place where control is.
    behind: Behind,
    /// The original has padding here, too, with rules of its own.
    padded: bool,
    /// Only calls are counted: nothing in the function may keep who enters it.
    passed: bool,
}

fn fail<T>(at: u64, what: impl Into<Fault>) -> Result<T, CheckError> {
    Err(CheckError { at: LinkAddr(at), what: what.into() })
}

impl<'w, 'a> Walk<'w, 'a> {
    fn new(
        image: &'a Image,
        (s, shapes, forms): (&'w mut Scratch, &'w mut Shapes, &'w mut Forms<Eyes>),
        claim: Claim<'w>,
        context: &'w Context<'w>,
    ) -> Result<Walk<'w, 'a>, CheckError> {
        let function = claim.function;
        let emitted = claim.emitted;
        let entry = function.entry.0;
        let mut ranges = Vec::with_capacity(function.ranges.len());
        let mut slots = 0;
        for range in &function.ranges {
            let len = range.end.0.saturating_sub(range.start.0) as usize;
            let Some(bytes) = image.read(range.start, len) else {
                return fail(range.start.0, Fault::Original);
            };
            ranges.push(Range { start: range.start.0, end: range.end.0, base: slots, bytes });
            slots += len;
        }
        s.clear(slots);
        s.fixups.clear();
        s.fixups.extend_from_slice(&emitted.fixups);
        if !s.fixups.is_sorted_by_key(|(at, _)| *at) {
            s.fixups.sort_unstable_by_key(|(at, _)| *at);
        }
        let apart = s.fixups.windows(2).all(|w| w[1].0 - w[0].0 >= 4);
        let inside =
            s.fixups.last().is_none_or(|(at, _)| u64::from(*at) + 4 <= emitted.code.len() as u64);
        if !apart || !inside {
            return fail(entry, Fault::Overlap);
        }
        s.stretches.clear();
        s.stretches.extend(emitted.inserted.iter().map(|i| Stretch {
            start: i.start,
            end: i.end,
            at: None,
            shape: 0,
            kind: Kind::Left,
            counter: u32::MAX,
            leaving: false,
            before: RegSet::NONE,
            parts: [u32::MAX; MAX_PARTS],
        }));
        s.stretches.sort_unstable_by_key(|i| i.start);
        if s.stretches.windows(2).any(|w| w[1].start < w[0].end)
            || s.stretches.iter().any(|i| i.end <= i.start)
        {
            return fail(entry, Fault::Overlap);
        }
        // They are looked up by place; a place has one counter.
        if !emitted.counters.windows(2).all(|w| w[0] < w[1])
            || !emitted.pointers.windows(2).all(|w| w[0] < w[1])
        {
            return fail(entry, Fault::Counter);
        }
        let starts = &emitted.chunk_starts;
        let end = emitted.code.len() as u32;
        if starts.first() != Some(&0)
            || !starts.windows(2).all(|w| w[0] < w[1])
            || starts.last().is_none_or(|s| *s >= end)
        {
            return fail(entry, Fault::Overlap);
        }
        if ranges.is_empty() {
            return fail(entry, Fault::Original);
        }
        let mut walk = Walk {
            claim,
            context,
            code: &emitted.code,
            ranges,
            s,
            shapes,
            forms,
            fixup: 0,
            stretch: 0,
            pads: Vec::new(),
            chunk: (0, 0),
            behind: Behind::Other,
            padded: false,
            passed: context.probes.counts_once(function),
        };
        for (i, block) in function.blocks.iter().enumerate() {
            let start = block.start.0;
            let Some((_, slot)) = walk.slot(start) else { return fail(start, Fault::Original) };
            walk.s.at[slot] |= BLOCK;
            walk.s.blocks[slot] = i as u32;
        }
        walk.mark_pads();
        Ok(walk)
    }

    /// Marks landing pads: whatever the exception tables of the function's ranges lead to.
    fn mark_pads(&mut self) {
        let fdes = self.context.image.fdes();
        for range in &self.claim.function.ranges {
            let from = fdes.partition_point(|f| f.end <= range.start);
            for fde in fdes[from..].iter().take_while(|f| f.start < range.end) {
                let Some(table) = self.claim.exception_tables.get(&fde.start) else { continue };
                for pad in table.call_sites.iter().filter_map(|s| s.landing_pad) {
                    if let Some((_, slot)) = self.slot(pad.0)
                        && self.s.at[slot] & PAD == 0
                    {
                        self.s.at[slot] |= PAD;
                        self.pads.push(pad.0);
                    }
                }
            }
        }
    }

    /// The slot of an original address, with its range.
    fn slot(&self, a: u64) -> Option<(usize, usize)> {
        let r = &self.ranges[0];
        if a >= r.start && a < r.end {
            return Some((0, (a - r.start) as usize));
        }
        self.ranges
            .iter()
            .enumerate()
            .skip(1)
            .find(|(_, r)| a >= r.start && a < r.end)
            .map(|(i, r)| (i, r.base + (a - r.start) as usize))
    }

    fn contains(&self, a: u64) -> bool {
        self.slot(a).is_some()
    }

    /// The pair at `a`, past padding; `None` where control runs off the end.
    fn pair_at(&self, mut a: u64) -> Option<usize> {
        loop {
            let index = (self.s.at[self.slot(a)?.1] & INDEX).checked_sub(1)? as usize;
            let pair = &self.s.pairs[index];
            if pair.new != PADDING {
                return Some(index);
            }
            a = pair.insn.next_ip();
        }
    }

    fn all(&mut self) -> Result<(), CheckError> {
        let (function, emitted) = (self.claim.function, self.claim.emitted);
        self.follow(function.entry.0, 0, Arrival::Entry)?;
        self.drain()?;
        // Whatever jump tables, springboards and the unwinder lead to.
        for (block, offset) in function.blocks.iter().zip(&emitted.block_offsets) {
            let start = block.start.0;
            if !self.is_done(start, *offset) {
                self.follow(start, *offset, Arrival::Inside)?;
                self.drain()?;
            }
        }
        if function.blocks.len() != emitted.block_offsets.len() {
            return fail(function.entry.0, Fault::Table);
        }
        match self.s.pairs.iter().find(|pair| self.passed && pair.may_keep()) {
            Some(pair) => fail(pair.insn.ip(), Fault::NotLeft),
            None => Ok(()),
        }
    }

    fn drain(&mut self) -> Result<(), CheckError> {
        while let Some((a, n)) = self.s.work.pop() {
            if !self.is_done(a, n) {
                self.follow(a, n, Arrival::Inside)?;
            }
        }
        Ok(())
    }

    /// Whether control was followed before from where the block at `a` is said to be, which is `n`.
    fn is_done(&self, a: u64, n: u32) -> bool {
        let done = self.slot(a).is_some_and(|(_, slot)| self.s.at[slot] & DONE != 0);
        done && self.label(a) == Some(n)
    }

    /// The block that starts at `a`.
    fn block_at(&self, a: u64) -> Option<BlockId> {
        let (_, slot) = self.slot(a)?;
        (self.s.at[slot] & BLOCK != 0).then(|| BlockId(self.s.blocks[slot]))
    }

    /// Follows both codes from `a` and `n` as far as control goes straight on.
    fn follow(&mut self, mut a: u64, mut n: u32, mut arrival: Arrival) -> Result<(), CheckError> {
        let timed = self.context.probes.mode.is_timed();
        let mut block = BlockId(u32::MAX);
        // Jumps in a row that are not there any more.
        let mut gone = 0;
        self.behind = Behind::Other;
        self.seek(n);
        loop {
            match arrival {
                Arrival::Entry => {
                    if let Some(kind) = self.entry_kind() {
                        n = self.probe(a, n, kind)?;
                    }
                    n = self.counter(a, n, Place::Entry)?;
                }
                Arrival::Twice if timed => n = self.probe(a, n, Kind::Left)?,
                Arrival::Twice | Arrival::Inside => {}
            }
            arrival = Arrival::Inside;
            self.padded = false;
            // Padding of the original, and what stands before it.
            let index = loop {
                let Some((range, slot)) = self.slot(a).filter(|_| self.goes_on_at(a)) else {
                    // Nothing comes back from the call or trap that was last.
                    return if self.may_end() { Ok(()) } else { self.runs_on(a, n) };
                };
                let mark = self.s.at[slot];
                if mark & BLOCK != 0 && !self.is_label(a, n)? {
                    // The block is elsewhere, and is followed there.
                    return self.jump_to_label(a, n);
                }
                if mark & BLOCK != 0 {
                    block = BlockId(self.s.blocks[slot]);
                }
                n = self.enter(a, n, slot)?;
                let mark = self.s.at[slot];
                let index = match (mark & INDEX).checked_sub(1) {
                    Some(index) => index as usize,
                    None => match self.decode(a, range) {
                        true => {
                            let index = self.s.pairs.len();
                            self.s.at[slot] = mark | index as u32;
                            index - 1
                        }
                        false if self.may_end() => return Ok(()),
                        false => return fail(a, Fault::Original),
                    },
                };
                let pair = &self.s.pairs[index];
                if pair.new != PADDING {
                    break index;
                }
                a = pair.insn.next_ip();
                self.padded = true;
            };
            let pair = &self.s.pairs[index];
            let next_a = pair.insn.next_ip();
            let Some(step) = pair.step() else { return fail(a, Fault::StrangeFlow) };
            let leaves = match step {
                Step::Return => true,
                Step::Jump(to) => !self.contains(to),
                Step::JumpIndirect => self.table_of(a).is_none(),
                _ => false,
            };
            if leaves && let Some(kind) = self.exit_kind(step == Step::Return) {
                n = self.exit_probe(a, n, kind)?;
            }
            if step == Step::CallIndirect || leaves && step == Step::JumpIndirect {
                n = self.target_counter(index, n)?;
            }
            // In the place of a jump may be what it led to.
            let elsewhere = matches!(step, Step::Jump(to) if self.contains(to));
            let before = n;
            n = if elsewhere { self.past_padding(n) } else { self.skip_padding(a, n) };
            if self.stretch_at(n).is_some() && !elsewhere {
                return fail(a, Fault::ExtraProbe);
            }
            match self.s.pairs[index].new {
                UNPAIRED => self.s.pairs[index].new = n,
                // What is not there proves nothing: see what follows.
                known if known == n && self.s.pairs[index].len == 0 => {}
                known if known == n => return Ok(()),
                _ => return fail(a, Fault::TwoCopies),
            }
            let next = match step {
                Step::CallIndirect if self.is_promoted(n) => self.promoted_call(index, n)?,
                Step::Next | Step::Trap | Step::CallIndirect => self.copy(index, n)?,
                Step::Return | Step::Stop => {
                    self.copy(index, n)?;
                    return Ok(());
                }
                Step::JumpIndirect if leaves && self.is_promoted(n) => {
                    return self.promoted_tail(index, n);
                }
                Step::JumpIndirect => {
                    self.copy(index, n)?;
                    return self.check_targets(a);
                }
                Step::Call(to) => {
                    let end = self.call(index, n, to)?;
                    if self.context.returns_twice.binary_search(&LinkAddr(to)).is_ok() {
                        arrival = Arrival::Twice;
                    }
                    end
                }
                Step::Jump(to) => {
                    if !self.contains(to) {
                        return self.tail_call(index, n, to);
                    }
                    let jump = self.plain_jump(a, n)?;
                    let label = self.label(to);
                    if self.is_label(to, before)? && jump.is_none_or(|(_, to)| Some(to) != label) {
                        self.s.pairs[index].len = 0;
                        gone += 1;
                        if gone > self.claim.function.blocks.len() {
                            return fail(a, Fault::Jump);
                        }
                        self.behind = Behind::Other;
                        (a, n) = (to, before);
                        continue;
                    }
                    self.skip_padding(a, before);
                    let Some((len, target)) = jump else { return fail(a, Fault::Instruction) };
                    self.s.pairs[index].len = len;
                    self.s.work.push((to, target));
                    return Ok(());
                }
                Step::Branch(to) => {
                    let (next_a, next) = self.branch(index, block, n, to)?;
                    self.behind = Behind::Other;
                    gone = 0;
                    (a, n) = (next_a, next);
                    continue;
                }
            };
            self.behind = Behind::of(step);
            gone = 0;
            (a, n) = (next_a, next);
            if arrival == Arrival::Inside {
                (a, n) = self.straight(a, n);
            }
        }
    }

    /// Wants whatever stands at `n` before the block or landing pad at `a`, if one begins there;
    /// where that ends.
    fn enter(&mut self, a: u64, mut n: u32, slot: usize) -> Result<u32, CheckError> {
        let mark = self.s.at[slot];
        let is_block = mark & BLOCK != 0;
        // Who comes by padding, or where nobody may come, leaves something to be looked at.
        if is_block && self.label(a) == Some(n) && !self.may_end() && !self.padded {
            self.s.at[slot] |= DONE;
        }
        if mark & PAD != 0 && self.context.probes.mode.is_timed() {
            n = self.probe(a, n, Kind::Left)?;
        }
        if is_block {
            n = self.counter(a, n, Place::Block(BlockId(self.s.blocks[slot])))?;
        }
        Ok(n)
    }

    /// Follows both codes over instructions that are the same byte by byte, where nothing is filled
    /// in, nothing was put in between and no block begins; where that ends. What is left is for
    /// [`Walk::follow`]: most of a program is not.
    fn straight(&mut self, mut a: u64, mut n: u32) -> (u64, u32) {
        while self.s.fixups.get(self.fixup).is_some_and(|(at, _)| *at < n) {
            self.fixup += 1;
        }
        let stretch = self.stretch_at(n);
        let reaches_in = |before: usize| self.s.fixups[before].0 + 4 > n;
        let Some((range, mut slot)) = self.slot(a) else { return (a, n) };
        if stretch.is_some() || self.fixup.checked_sub(1).is_some_and(reaches_in) {
            return (a, n);
        }
        let fixup = self.s.fixups.get(self.fixup).map_or(u32::MAX, |(at, _)| *at);
        let stretch = self.s.stretches.get(self.stretch).map_or(u32::MAX, |s| s.start);
        let limit = fixup.min(stretch).min(self.chunk.1);
        let Range { start, end, bytes, .. } = self.ranges[range];
        while a < end && n < limit && self.s.at[slot] == 0 {
            let offset = (a - start) as usize;
            let Some((insn, seen)) = self.forms.decode(bytes, offset, a) else { break };
            let len = insn.len();
            let plain = seen.goes_on() && !insn.is_nop() && !insn.is_ip_rel_memory_operand();
            let (old, new) = (&bytes[offset..], &self.code[n as usize..]);
            if !plain || n + len as u32 > limit || !begin_alike(old, new, len) {
                break;
            }
            self.s.pairs.push(Pair { insn, seen, new: n, len: len as u32 });
            self.s.at[slot] = self.s.pairs.len() as u32;
            slot += len;
            n += len as u32;
            a = insn.next_ip();
            self.behind = Behind::Other;
        }
        (a, n)
    }

    /// Whether control comes here only if a call, or the handler of a trap, returns.
    fn may_end(&self) -> bool {
        self.behind != Behind::Other
    }

    /// Whether the function goes on at `a`: behind a trap, that is the lifter's to say.
    fn goes_on_at(&self, a: u64) -> bool {
        let is_claimed = || self.claim.function.insns.binary_search_by_key(&a, Insn::ip).is_ok();
        self.behind != Behind::Trap || is_claimed()
    }

    /// Decodes the instruction at `a` into a new pair; false if there is none.
    fn decode(&mut self, a: u64, range: usize) -> bool {
        let r = &self.ranges[range];
        let decoded = self.forms.decode(r.bytes, (a - r.start) as usize, a);
        let Some((mut insn, seen)) = decoded else { return false };
        let new = if insn.is_nop() { PADDING } else { UNPAIRED };
        if let Some(Step::Jump(to) | Step::Branch(to)) = seen.step(&insn)
            && self.is_locked(to)
        {
            insn.jump_shorter(1);
        }
        self.s.pairs.push(Pair { insn, seen, new, len: insn.len() as u32 });
        true
    }

    /// Whether a block begins with a `lock` prefix just before `to`, where no block begins: what
    /// is jumped to does the same as the instruction with its prefix.
    fn is_locked(&self, to: u64) -> bool {
        let places = to.checked_sub(1).and_then(|before| {
            let (_, slot) = self.slot(to)?;
            let (range, slot_before) = self.slot(before)?;
            Some((before, slot, range, slot_before))
        });
        let Some((before, slot, range, slot_before)) = places else { return false };
        if self.s.at[slot] & BLOCK != 0 || self.s.at[slot_before] & BLOCK == 0 {
            return false;
        }
        let r = &self.ranges[range];
        let bytes = &r.bytes[(before - r.start) as usize..];
        let insn = Decoder::with_ip(64, bytes, before, DecoderOptions::NONE).decode();
        bytes[0] == 0xf0 && !insn.is_invalid() && insn.has_lock_prefix()
    }

    /// All that a decoder knows of the original of pair `index`.
    fn full(&self, index: usize) -> Instruction {
        let insn = &self.s.pairs[index].insn;
        insn.full(self.original(insn.ip(), insn.len() as u32))
    }

    /// Where a displacement of 32 bits is in the original of pair `index`.
    fn displacement(&self, index: usize) -> Option<u32> {
        let insn = &self.s.pairs[index].insn;
        if insn.is_ip_rel_memory_operand() {
            return Some(insn.ip_rel_field().into());
        }
        let bytes = self.original(insn.ip(), insn.len() as u32);
        let mut decoder = Decoder::with_ip(64, bytes, insn.ip(), DecoderOptions::NONE);
        let full = decoder.decode();
        let offsets = decoder.get_constant_offsets(&full);
        (offsets.displacement_size() == 4).then(|| offsets.displacement_offset() as u32)
    }

    /// Sets the cursors to offset `n`.
    fn seek(&mut self, n: u32) {
        self.fixup = self.s.fixups.partition_point(|(at, _)| *at < n);
        self.stretch = self.s.stretches.partition_point(|s| s.start < n);
        let starts = &self.claim.emitted.chunk_starts;
        let next = starts.partition_point(|s| *s <= n);
        let end = self.code.len() as u32;
        self.chunk = (starts[next.max(1) - 1], starts.get(next).copied().unwrap_or(end));
    }

    /// Where the block at `a` is said to be.
    fn label(&self, a: u64) -> Option<u32> {
        let block = self.block_at(a)?;
        self.claim.emitted.block_offsets.get(block.index()).copied()
    }

    /// Whether the block at `a` is said to be at `n`, or behind padding there.
    fn is_label(&mut self, a: u64, n: u32) -> Result<bool, CheckError> {
        let Some(label) = self.label(a) else { return fail(a, Fault::Table) };
        Ok(label == n && n < self.chunk.1
            || n < label && label < self.chunk.1 && label <= self.past_padding(n))
    }

    /// Control comes to the block at `a`, and there must be a jump to it at `n`.
    fn jump_to_label(&mut self, a: u64, n: u32) -> Result<(), CheckError> {
        let n = self.skip_padding(a, n);
        match self.plain_jump(a, n)? {
            Some((len, to)) if self.label(a) == Some(to) => {
                self.s.extra.push((a, n, len));
                Ok(())
            }
            Some(_) => fail(a, Fault::Jump),
            None => fail(a, Fault::Instruction),
        }
    }

    /// The length and target of the jump inside the function at `n`, if one stands there.
    fn plain_jump(&mut self, a: u64, n: u32) -> Result<Option<(u32, u32)>, CheckError> {
        if n >= self.chunk.1 {
            return Ok(None);
        }
        // Of what is no jump nothing is asked here.
        let jumps = matches!(self.code.get(n as usize), Some(0xe9 | 0xeb));
        if !jumps || self.stretch_at(n).is_some() {
            return Ok(None);
        }
        let jump = self.jump_at(a, n)?;
        if let Some(Fixup::Function(_)) = jump.fixup {
            return Ok(None);
        }
        Ok(Some((jump.insn.len() as u32, self.target(a, &jump)?)))
    }

    /// The stretch that starts at `n`.
    fn stretch_at(&mut self, n: u32) -> Option<usize> {
        while self.s.stretches.get(self.stretch).is_some_and(|s| s.start < n) {
            self.stretch += 1;
        }
        self.s.stretches.get(self.stretch).filter(|s| s.start == n).map(|_| self.stretch)
    }

    /// The only fixup in the `len` bytes from `n`; its offset from `n`.
    fn fixup_in(&mut self, a: u64, n: u32, len: u32) -> Result<Option<(u32, Fixup)>, CheckError> {
        while self.s.fixups.get(self.fixup).is_some_and(|(at, _)| *at < n) {
            self.fixup += 1;
        }
        // One that begins before must not reach in here.
        if let Some(before) = self.fixup.checked_sub(1)
            && self.s.fixups[before].0 + 4 > n
        {
            return fail(a, Fault::Fixup);
        }
        match self.s.fixups.get(self.fixup) {
            Some((at, fixup)) if *at < n + len => {
                let next = self.s.fixups.get(self.fixup + 1);
                if *at + 4 > n + len || next.is_some_and(|(at, _)| *at < n + len) {
                    return fail(a, Fault::Fixup);
                }
                Ok(Some((*at - n, *fixup)))
            }
            _ => Ok(None),
        }
    }

    fn fixup_is(&mut self, a: u64, n: u32, field: u32, want: Fixup) -> Result<(), CheckError> {
        match self.fixup_in(a, n + field, 4)? {
            Some((0, fixup)) if fixup == want => Ok(()),
            _ => fail(a, Fault::Address),
        }
    }

    /// The `len` bytes of an original instruction.
    fn original(&self, a: u64, len: u32) -> &'a [u8] {
        let (range, _) = self.slot(a).expect("decoded there");
        let r = &self.ranges[range];
        let from = (a - r.start) as usize;
        &r.bytes[from..from + len as usize]
    }

    fn new_bytes(&self, a: u64, n: u32, len: usize) -> Result<&'w [u8], CheckError> {
        match self.code.get(n as usize..n as usize + len) {
            Some(bytes) if n as usize + len <= self.chunk.1 as usize => Ok(bytes),
            _ => fail(a, Fault::TooShort),
        }
    }

    /// Wants the bytes at `n` to be those at `a`, but for the four at `field`.
    fn same_but(&self, a: u64, len: u32, n: u32, field: u32) -> Result<(), CheckError> {
        let old = self.original(a, len);
        let new = self.new_bytes(a, n, old.len())?;
        let field = field as usize;
        if field + 4 > old.len() {
            return fail(a, Fault::Fixup);
        }
        if old[..field] != new[..field] || old[field + 4..] != new[field + 4..] {
            return fail(a, Fault::Instruction);
        }
        Ok(())
    }

    /// Checks the copy at `n` of an instruction that control goes through or ends at.
    fn copy(&mut self, index: usize, n: u32) -> Result<u32, CheckError> {
        let insn = &self.s.pairs[index].insn;
        let (a, len) = (insn.ip(), insn.len() as u32);
        let relative = insn.is_ip_rel_memory_operand();
        let Some((field, fixup)) = self.fixup_in(a, n, len)? else {
            if relative {
                return fail(a, Fault::Address);
            }
            return match self.new_bytes(a, n, len as usize)? == self.original(a, len) {
                true => Ok(n + len),
                false => fail(a, Fault::Instruction),
            };
        };
        // Only a displacement of 32 bits can be fixed up.
        if self.displacement(index) != Some(field) {
            return fail(a, Fault::Fixup);
        }
        self.same_but(a, len, n, field)?;
        let Pair { insn, seen, .. } = &self.s.pairs[index];
        if relative && seen.by_half {
            return fail(a, Fault::Address);
        }
        match fixup {
            Fixup::Original { to, after }
                if relative
                    && to.0 == insn.ip_rel_memory_address()
                    && u32::from(after) == len - field - 4 => {}
            // Nothing may follow the field: the distance is from its end.
            Fixup::Table(t) if relative && field + 4 == len => self.s.moved.push((t, a)),
            Fixup::TableAddress(t) if !relative && self.context.low_addresses => {
                self.s.moved.push((t, a));
            }
            _ => return fail(a, Fault::Address),
        }
        Ok(n + len)
    }

    /// The jump at `n`; nothing of it may be left to be filled in but where it leads.
    fn jump_at(&mut self, a: u64, n: u32) -> Result<NewJump, CheckError> {
        if n as usize > self.code.len() {
            return fail(a, Fault::TooShort);
        }
        let Some((insn, seen)) = self.forms.decode(self.code, n as usize, n.into()) else {
            return fail(a, Fault::Instruction);
        };
        let len = insn.len() as u32;
        if n + len > self.chunk.1 {
            return fail(a, Fault::TooShort);
        }
        match self.fixup_in(a, n, len)? {
            None => Ok(NewJump { insn, seen, fixup: None }),
            Some((field, fixup)) if field + 4 == len => {
                Ok(NewJump { insn, seen, fixup: Some(fixup) })
            }
            Some(_) => fail(a, Fault::Fixup),
        }
    }

    /// Where a jump leads: to an offset of its own chunk, or of any that is filled in later.
    fn target(&self, a: u64, jump: &NewJump) -> Result<u32, CheckError> {
        let to = match jump.fixup {
            None => u32::try_from(jump.insn.near_branch_target()).ok(),
            Some(Fixup::Across(to)) if (to as usize) < self.code.len() => return Ok(to),
            Some(_) => return fail(a, Fault::Fixup),
        };
        match to.filter(|to| (self.chunk.0..self.chunk.1).contains(to)) {
            Some(to) => Ok(to),
            None => fail(a, Fault::Jump),
        }
    }

    /// A jump out of the function must stand at `n`.
    fn jump_out(&mut self, a: u64, n: u32, to: u64) -> Result<(), CheckError> {
        if self.new_bytes(a, n, 5)?[0] != 0xe9 {
            return fail(a, Fault::Instruction);
        }
        self.fixup_is(a, n, 1, Fixup::Function(LinkAddr(to)))
    }

    /// Where the original runs on behind its end, to `to`, the new code leaves for it.
    fn runs_on(&mut self, to: u64, mut n: u32) -> Result<(), CheckError> {
        let before = self.s.pairs.iter().find(|pair| pair.insn.next_ip() == to);
        let Some(last) = before.map(|pair| pair.insn.ip()) else { return fail(to, Fault::RunsOff) };
        if self.passed {
            // It is there to fault.
            return fail(last, Fault::NotLeft);
        }
        if let Some(kind) = self.exit_kind(false) {
            n = self.exit_probe(last, n, kind)?;
        }
        n = self.skip_padding(last, n);
        self.jump_out(last, n, to)?;
        self.s.extra.push((last, n, 5));
        self.s.runs_on.push(to);
        Ok(())
    }

    /// Checks the copy at `n` of a conditional jump to `to`; where control goes on, in both codes,
    /// if it is not taken.
    fn branch(
        &mut self,
        index: usize,
        block: BlockId,
        n: u32,
        to: u64,
    ) -> Result<(u64, u32), CheckError> {
        let a = self.s.pairs[index].insn.ip();
        let jump = self.jump_at(a, n)?;
        let mut next = n + jump.insn.len() as u32;
        self.s.pairs[index].len = jump.insn.len() as u32;
        let insn = &self.s.pairs[index].insn;
        let next_a = insn.next_ip();
        let (same, turned) = match (insn.decides(), jump.insn.decides()) {
            (Some(Decides::Flags(old)), Some(Decides::Flags(new))) => (old == new, old ^ 1 == new),
            _ => (false, false),
        };
        if same && !self.contains(to) && jump.fixup == Some(Fixup::Function(LinkAddr(to))) {
            if let Some(kind) = self.exit_kind(false) {
                return fail(a, Fault::NoProbe(kind));
            }
            if self.counter_at(Place::Leaving(block)).is_some() {
                return fail(a, Fault::NoProbe(Kind::Block));
            }
            next = self.counter_between(block, next_a, next)?;
            return Ok((next_a, next));
        }
        let mut taken = self.target(a, &jump)?;
        if turned && self.contains(to) {
            let between = |to| self.block_at(to).map(|to| Place::Between(block, to));
            let ways = [between(to), between(next_a)];
            if ways.into_iter().flatten().any(|p| self.counter_at(p).is_some()) {
                return fail(a, Fault::NoProbe(Kind::Block));
            }
            self.s.work.push((next_a, taken));
            return Ok((to, next));
        }
        if self.s.pairs[index].insn.is_jcc_short_or_near() {
            if !same {
                return fail(a, Fault::Jump);
            }
        } else {
            // `jrcxz`, `loop`: the same, or around a jump that reaches farther.
            if jump.insn.decides() != self.s.pairs[index].insn.decides() {
                return fail(a, Fault::Jump);
            }
            let bytes = self.code.get(next as usize..next as usize + 7).unwrap_or_default();
            if taken == next + 2 && bytes.starts_with(&[0xeb, 5, 0xe9]) {
                let cursors = self.cursors();
                self.seek(taken);
                let far = self.jump_at(a, taken)?;
                taken = self.target(a, &far)?;
                self.set_cursors(cursors);
                self.s.extra.push((a, next, 7));
                next += 7;
            }
        }
        let cursors = self.cursors();
        if self.contains(to) {
            let place = self.block_at(to).map(|to| Place::Between(block, to));
            if let Some(place) = place.filter(|p| self.counter_at(*p).is_some()) {
                self.seek(taken);
                taken = self.counter(to, taken, place)?;
                let jump = self.jump_at(to, taken)?;
                if !jump.seen.is_jump() {
                    return fail(to, Fault::Instruction);
                }
                self.s.extra.push((to, taken, jump.insn.len() as u32));
                taken = self.target(to, &jump)?;
                self.set_cursors(cursors);
            }
            self.s.work.push((to, taken));
        } else {
            self.seek(taken);
            taken = self.counter(a, taken, Place::Leaving(block))?;
            if let Some(kind) = self.exit_kind(false) {
                taken = self.exit_probe(a, taken, kind)?;
            }
            taken = self.skip_padding(a, taken);
            self.jump_out(a, taken, to)?;
            self.s.extra.push((a, taken, 5));
            self.set_cursors(cursors);
        }
        next = self.counter_between(block, next_a, next)?;
        Ok((next_a, next))
    }

    /// Wants the counter at `n`, if there is one, of control that goes from `block` straight on.
    fn counter_between(&mut self, block: BlockId, to: u64, n: u32) -> Result<u32, CheckError> {
        match self.block_at(to) {
            Some(next) => self.counter(to, n, Place::Between(block, next)),
            None => Ok(n),
        }
    }

    /// Where the walk is in the lists of fixups, stretches and chunks.
    fn cursors(&self) -> (usize, usize, (u32, u32)) {
        (self.fixup, self.stretch, self.chunk)
    }

    fn set_cursors(&mut self, cursors: (usize, usize, (u32, u32))) {
        (self.fixup, self.stretch, self.chunk) = cursors;
    }

    fn table_of(&self, a: u64) -> Option<usize> {
        self.claim.function.tables.iter().position(|t| t.jump.0 == a)
    }

    /// Every target of the jump through a table at `a` must be a block.
    fn check_targets(&self, a: u64) -> Result<(), CheckError> {
        let Some(table) = self.table_of(a) else { return Ok(()) };
        for to in self.claim.function.tables[table].targets() {
            match self.slot(to.0) {
                Some((_, slot)) if self.s.at[slot] & BLOCK != 0 => {}
                _ => return fail(a, Fault::Table),
            }
        }
        Ok(())
    }

    /// The offset after padding at `n`, which stands before the original's `a`.
    fn skip_padding(&mut self, a: u64, n: u32) -> u32 {
        let end = self.past_padding(n);
        if end != n && !self.may_end() && !self.padded {
            self.s.extra.push((a, n, end - n));
        }
        end
    }

    fn past_padding(&mut self, mut n: u32) -> u32 {
        while self.may_be_padding(n) {
            let decoded = self.forms.decode(self.code, n as usize, n.into());
            let nop = decoded.map(|(insn, _)| insn).filter(Insn::is_nop);
            match nop.map(|insn| n + insn.len() as u32).filter(|end| *end <= self.chunk.1) {
                Some(end) => n = end,
                None => break,
            }
        }
        n
    }

    /// Whether prefixes stand at `n`, if any, and then one of the two opcodes of `nop`.
    fn may_be_padding(&self, n: u32) -> bool {
        let mut at = n as usize;
        while let Some(0x66 | 0x2e | 0x3e | 0x40..=0x4f) = self.code.get(at) {
            at += 1;
        }
        match self.code.get(at) {
            Some(0x90) => true,
            Some(0x0f) => self.code.get(at + 1) == Some(&0x1f),
            _ => false,
        }
    }

    /// Wants a probe of `kind` at `n`, before the original's `a`; where it ends.
    fn probe(&mut self, a: u64, n: u32, want: Kind) -> Result<u32, CheckError> {
        let n = self.skip_padding(a, n);
        let Some(i) = self.stretch_at(n) else { return fail(a, Fault::NoProbe(want)) };
        let stretch = self.s.stretches[i];
        match stretch.at {
            Some(at) if at == a => {}
            Some(_) => return fail(a, Fault::TwoCopies),
            None => {
                let range = (stretch.start, stretch.end);
                let own = self.context.probes.mode == Mode::Own;
                let found = match self.shapes.check(self.code, &self.s.fixups, range, own) {
                    Ok(found) => found,
                    Err(fault) => return fail(a, fault),
                };
                let summary = self.shapes.summary(found.shape);
                let inside = summary.depths.iter().all(|d| {
                    let base = found.parts[d.part as usize];
                    base + d.start >= self.chunk.0 && base + d.end <= self.chunk.1
                });
                if !inside || stretch.end > self.chunk.1 {
                    return fail(a, Fault::TooShort);
                }
                let kind = summary.kind;
                let stretch = &mut self.s.stretches[i];
                stretch.at = Some(a);
                stretch.shape = found.shape as u32;
                stretch.kind = kind;
                stretch.counter = found.counter.unwrap_or(u32::MAX);
                stretch.parts = found.parts;
            }
        }
        let stretch = &self.s.stretches[i];
        let in_line = stretch.kind == Kind::Own && matches!(want, Kind::OwnCall(_));
        if in_line && !self.is_own_code(i, want) {
            return fail(a, Fault::Own);
        }
        let stretch = &self.s.stretches[i];
        if stretch.kind != want && !in_line {
            return fail(a, Fault::OtherProbe { found: stretch.kind, want });
        }
        Ok(stretch.end)
    }

    /// Whether stretch `i`, which is safe, is the function of the user's own probe that `want`
    /// would call.
    fn is_own_code(&self, i: usize, want: Kind) -> bool {
        let stretch = &self.s.stretches[i];
        let (from, to) = self.shapes.summary(stretch.shape as usize).work;
        let range = (stretch.start + from, stretch.start + to);
        let Some(own) = self.context.probes.own else { return false };
        let moments = [Moment::Enters, Moment::Returns, Moment::TailCalls];
        let moment =
            moments.into_iter().find(|m| own_call(own, *m).map(Kind::OwnCall) == Some(want));
        let function = match moment {
            Some(Moment::Enters) => own.enter.as_ref(),
            _ => own.leave.as_ref(),
        };
        let inline = function.and_then(|f| f.inline.as_ref());
        inline.is_some_and(|inline| {
            (moment != Some(Moment::TailCalls) || !inline.reads_result)
                && own::is_code(inline, self.code, &self.s.fixups, range)
        })
    }

    /// Wants a probe of `kind` at `n`, before the original's `a`, from where control leaves; where
    /// it ends.
    fn exit_probe(&mut self, a: u64, n: u32, kind: Kind) -> Result<u32, CheckError> {
        let start = self.skip_padding(a, n);
        let end = self.probe(a, n, kind)?;
        if let Some(i) = self.stretch_at(start) {
            self.s.stretches[i].leaving = true;
        }
        Ok(end)
    }

    /// The counter that is said to stand at `place`. In the mode that counts blocks all are there.
    fn counter_at(&self, place: Place) -> Option<u32> {
        self.claim.emitted.counters.binary_search(&place).ok().map(|n| n as u32)
    }

    /// Wants the counter of `place` at `n`, before the original's `a`, if there is one; where it
    /// ends.
    fn counter(&mut self, a: u64, n: u32, place: Place) -> Result<u32, CheckError> {
        let counter = match (self.context.probes.mode, place) {
            (Mode::Blocks, Place::Block(_)) | (Mode::Edges, _) => self.counter_at(place),
            _ => return Ok(n),
        };
        let Some(counter) = counter else {
            return match self.context.probes.mode {
                Mode::Blocks => fail(a, Fault::NoProbe(Kind::Block)),
                _ => Ok(n),
            };
        };
        let start = self.skip_padding(a, n);
        let end = self.probe(a, n, Kind::Block)?;
        let stretch = self.stretch_at(start).map(|i| &mut self.s.stretches[i]);
        match stretch.filter(|s| s.counter == counter) {
            Some(stretch) => {
                stretch.leaving = matches!(place, Place::Leaving(_));
                Ok(end)
            }
            None => fail(a, Fault::Counter),
        }
    }

    /// What the probe at the function's entry should be.
    fn entry_kind(&self) -> Option<Kind> {
        let probes = self.context.probes;
        let arguments = self.arguments();
        match probes.mode {
            Mode::Count if self.passed => Some(Kind::CountPass),
            Mode::Count => Some(Kind::CountEntry),
            Mode::Cpu => Some(Kind::Enter(arguments.at_entry())),
            Mode::Events if !arguments.is_none() => Some(Kind::Enter(arguments.at_entry())),
            Mode::Time | Mode::Events => Some(Kind::TimedEntry(probes.depth.limit())),
            Mode::Sample => Some(Kind::SampleEntry),
            Mode::Own => self.own(Moment::Enters),
            Mode::Blocks | Mode::Edges | Mode::Plain => None,
        }
    }

    /// What a probe before an exit should be, which `returns` or goes on elsewhere.
    fn exit_kind(&self, returns: bool) -> Option<Kind> {
        let probes = self.context.probes;
        let arguments = self.arguments();
        let limited = probes.depth.limit() != probe::NO_ROOM_FROM;
        match probes.mode {
            Mode::Count if self.passed => None,
            Mode::Count => Some(Kind::CountExit),
            Mode::Cpu => Some(Kind::Leave(arguments.at_exit(returns))),
            Mode::Events if !arguments.is_none() => Some(Kind::Leave(arguments.at_exit(returns))),
            Mode::Time => Some(Kind::TimeExit { limited }),
            Mode::Events => Some(Kind::EventsExit { limited }),
            Mode::Sample => Some(Kind::SampleExit),
            Mode::Own if returns => self.own(Moment::Returns),
            Mode::Own => self.own(Moment::TailCalls),
            Mode::Blocks | Mode::Edges | Mode::Plain => None,
        }
    }

    /// The user's own probe, as a call.
    fn own(&self, moment: Moment) -> Option<Kind> {
        own_call(self.context.probes.own?, moment).map(Kind::OwnCall)
    }

    /// What is to be recorded of the function's arguments.
    fn arguments(&self) -> Arguments {
        let entry = self.claim.function.entry;
        self.context.probes.arguments.get(&entry).copied().unwrap_or_default()
    }
}
