//! Both codes in step: what is known of the walk, and of a place in it.

mod copies;
mod follow;
mod jumps;
mod probes;

use fettle_code::{Context, Fixup};
use fettle_image::Image;
use fettle_isa::{Forms, Insn, RegSet};
use fettle_lift::function::BlockId;
use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::claim::Claim;
use crate::fault::{CheckError, Fault, fail};
use crate::probe::Shapes;
use crate::seen::{FormDecoder, Seen, Step};
use crate::summary::{Kind, MAX_PARTS};
/// An original instruction and where its copy is.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) insn: Insn,
    pub(crate) seen: Seen,
    pub(crate) new: u32,
    /// Length of the copy: none for a jump that led to what now follows.
    pub(crate) len: u32,
}

impl Pair {
    /// Where control goes after the original.
    pub(crate) fn step(&self) -> Option<Step> {
        self.seen.step(&self.insn)
    }

    /// Whether control may not return, or go on, from here.
    pub(crate) fn may_keep(&self) -> bool {
        let step = self.step();
        let may_trap = matches!(step, Some(Step::Stop | Step::Trap));
        self.insn.is_syscall() || self.seen.is_call() || may_trap
    }
}

pub(crate) const UNPAIRED: u32 = u32::MAX;
pub(crate) const PADDING: u32 = u32::MAX - 1;

/// A block starts here, by the lifter's word.
pub(crate) const BLOCK: u32 = 1 << 31;
/// A landing pad starts here.
pub(crate) const PAD: u32 = 1 << 30;
/// Control was followed into the block that starts here, at the place that it is said to be at.
pub(crate) const DONE: u32 = 1 << 29;
pub(crate) const INDEX: u32 = DONE - 1;

/// What may be noreturn, so that nothing need be behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    Call,
    /// `int3`, whose handler may return.
    Trap,
    Other,
}

impl Behind {
    pub(crate) fn of(step: Step) -> Behind {
        match step {
            Step::Call(_) | Step::CallIndirect => Behind::Call,
            Step::Trap => Behind::Trap,
            _ => Behind::Other,
        }
    }
}

/// A stretch of probe code and what it was found to be.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// The original address it stands before; `None` until control came to it.
    pub(crate) at: Option<u64>,
    /// Index of its shape.
    pub(crate) shape: u32,
    pub(crate) kind: Kind,
    pub(crate) counter: u32,
    /// Control leaves the function behind it.
    pub(crate) leaving: bool,
    /// What else was changed for it, before it.
    pub(crate) before: RegSet,
    /// Offsets of its parts.
    pub(crate) parts: [u32; MAX_PARTS],
}

/// Memory that is used again for the next function.
#[derive(Default)]
pub(crate) struct Scratch {
    /// By original byte: marks, and the pair's index plus one.
    pub(crate) at: Vec<u32>,
    /// By original byte that is marked as a block's first: the block.
    pub(crate) blocks: Vec<u32>,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) work: Vec<(u64, u32)>,
    pub(crate) fixups: Vec<(u32, Fixup)>,
    pub(crate) stretches: Vec<Stretch>,
    /// Tables that instructions refer to by a copy: index and the instruction.
    pub(crate) moved: Vec<(u32, u64)>,
    /// Rewritten text that is no copy of one instruction, with the original address whose unwind rules
    /// hold there: padding that control comes to, jumps behind probes. Offset and length.
    pub(crate) extra: Vec<(u64, u32, u32)>,
    /// Where control falls through past an end of the original.
    pub(crate) runs_on: Vec<u64>,
    /// Indirect calls with a comparison before them: the pair, and the end of the call as
    /// it was.
    pub(crate) promoted: Vec<(u32, u32)>,
    /// By pair: what was proved dead there.
    pub(crate) dead: Vec<RegSet>,
    pub(crate) search: Vec<(u64, RegSet)>,
    /// Whether some calls in the image keep more registers than the ABI says.
    pub(crate) resolvers: bool,
}

impl Scratch {
    /// Makes room for a function of so many bytes.
    pub(crate) fn clear(&mut self, bytes: usize) {
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

/// A direct jump of the rewritten text.
pub(crate) struct NewJump {
    pub(crate) insn: Insn,
    pub(crate) seen: Seen,
    /// What its last four bytes wait for.
    pub(crate) fixup: Option<Fixup>,
}

/// A range of the original.
#[derive(Clone, Copy)]
pub(crate) struct Range<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Slot of its first byte.
    pub(crate) base: usize,
    pub(crate) bytes: &'a [u8],
}

/// Whether the first `len` bytes are the same; there are no more than 16.
pub(crate) fn begin_alike(a: &[u8], b: &[u8], len: usize) -> bool {
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
pub(crate) enum Arrival {
    /// From a caller.
    Entry,
    /// From a function that may return twice.
    Twice,
    /// Any other way.
    Inside,
}

pub(crate) struct Walk<'w, 'a> {
    pub(crate) claim: Claim<'w>,
    pub(crate) context: &'w Context<'w>,
    pub(crate) code: &'w [u8],
    pub(crate) ranges: Vec<Range<'a>>,
    pub(crate) s: &'w mut Scratch,
    pub(crate) shapes: &'w mut Shapes,
    pub(crate) forms: &'w mut Forms<FormDecoder>,
    /// First fixup not before the place of the copy.
    pub(crate) fixup: usize,
    /// First stretch not before the place of the copy.
    pub(crate) stretch: usize,
    /// Landing pads.
    pub(crate) pads: Vec<u64>,
    /// The chunk of rewritten text at hand: start and end.
    pub(crate) chunk: (u32, u32),
    /// What stands before the place where control is.
    pub(crate) behind: Behind,
    /// The original has padding here, too, with rules of its own.
    pub(crate) padded: bool,
    /// Only calls are counted: nothing in the function may keep control from its exits.
    pub(crate) passed: bool,
}

impl<'w, 'a> Walk<'w, 'a> {
    pub(crate) fn new(
        image: &'a Image,
        (s, shapes, forms): (&'w mut Scratch, &'w mut Shapes, &'w mut Forms<FormDecoder>),
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
    pub(crate) fn mark_pads(&mut self) {
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
    pub(crate) fn slot(&self, a: u64) -> Option<(usize, usize)> {
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

    pub(crate) fn contains(&self, a: u64) -> bool {
        self.slot(a).is_some()
    }

    /// The pair at `a`, past padding; `None` where control runs off the end.
    pub(crate) fn pair_at(&self, mut a: u64) -> Option<usize> {
        loop {
            let index = (self.s.at[self.slot(a)?.1] & INDEX).checked_sub(1)? as usize;
            let pair = &self.s.pairs[index];
            if pair.new != PADDING {
                return Some(index);
            }
            a = pair.insn.next_ip();
        }
    }

    /// Whether control was followed before from where the block at `a` is said to be, which is `n`.
    pub(crate) fn is_done(&self, a: u64, n: u32) -> bool {
        let done = self.slot(a).is_some_and(|(_, slot)| self.s.at[slot] & DONE != 0);
        done && self.label(a) == Some(n)
    }

    /// The block that starts at `a`.
    pub(crate) fn block_at(&self, a: u64) -> Option<BlockId> {
        let (_, slot) = self.slot(a)?;
        (self.s.at[slot] & BLOCK != 0).then(|| BlockId(self.s.blocks[slot]))
    }

    /// Whether control comes here only if a call, or the handler of a trap, returns.
    pub(crate) fn may_end(&self) -> bool {
        self.behind != Behind::Other
    }

    /// Whether the function goes on at `a`: behind a trap, that is the lifter's to say.
    pub(crate) fn goes_on_at(&self, a: u64) -> bool {
        let is_claimed = || self.claim.function.insns.binary_search_by_key(&a, Insn::ip).is_ok();
        self.behind != Behind::Trap || is_claimed()
    }

    /// Decodes the instruction at `a` into a new pair; false if there is none.
    pub(crate) fn decode(&mut self, a: u64, range: usize) -> bool {
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
    pub(crate) fn is_locked(&self, to: u64) -> bool {
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
    pub(crate) fn full(&self, index: usize) -> Instruction {
        let insn = &self.s.pairs[index].insn;
        insn.full(self.original(insn.ip(), insn.len() as u32))
    }

    /// Where a displacement of 32 bits is in the original of pair `index`.
    pub(crate) fn displacement(&self, index: usize) -> Option<u32> {
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
    pub(crate) fn seek(&mut self, n: u32) {
        self.fixup = self.s.fixups.partition_point(|(at, _)| *at < n);
        self.stretch = self.s.stretches.partition_point(|s| s.start < n);
        let starts = &self.claim.emitted.chunk_starts;
        let next = starts.partition_point(|s| *s <= n);
        let end = self.code.len() as u32;
        self.chunk = (starts[next.max(1) - 1], starts.get(next).copied().unwrap_or(end));
    }

    /// Where the block at `a` is said to be.
    pub(crate) fn label(&self, a: u64) -> Option<u32> {
        let block = self.block_at(a)?;
        self.claim.emitted.block_offsets.get(block.index()).copied()
    }

    /// The `len` bytes of an original instruction.
    pub(crate) fn original(&self, a: u64, len: u32) -> &'a [u8] {
        let (range, _) = self.slot(a).expect("decoded there");
        let r = &self.ranges[range];
        let from = (a - r.start) as usize;
        &r.bytes[from..from + len as usize]
    }

    pub(crate) fn new_bytes(&self, a: u64, n: u32, len: usize) -> Result<&'w [u8], CheckError> {
        match self.code.get(n as usize..n as usize + len) {
            Some(bytes) if n as usize + len <= self.chunk.1 as usize => Ok(bytes),
            _ => fail(a, Fault::TooShort),
        }
    }

    /// Where the walk is in the lists of fixups, stretches and chunks.
    pub(crate) fn cursors(&self) -> (usize, usize, (u32, u32)) {
        (self.fixup, self.stretch, self.chunk)
    }

    pub(crate) fn set_cursors(&mut self, cursors: (usize, usize, (u32, u32))) {
        (self.fixup, self.stretch, self.chunk) = cursors;
    }

    pub(crate) fn table_of(&self, a: u64) -> Option<usize> {
        self.claim.function.tables.iter().position(|t| t.jump.0 == a)
    }
}
