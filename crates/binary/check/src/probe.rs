//! Probe code, executed symbolically.
//!
//! Registers start as symbols for their own values. Every path through the code is followed to
//! the end of its inline part; on the way each memory access must be one that probes make, and
//! what it does to the measurement is noted as an effect. At the end the stack pointer must be
//! where it was, and registers and flags that do not hold their own symbol are *clobbered*: the
//! caller proves them dead. The sets of effects on all paths tell what kind of probe it is, so
//! nothing depends on who says that it is one.
//!
//! There are few shapes of probes and many probes, so each shape is executed once. A shape is
//! the code with everything left out that depends on where it stands.

use std::collections::HashMap;
use std::mem::offset_of;

use fettle_abi::block::{Accumulator, RING, SHADOW, SHADOW_BYTES, ShadowFrame, ThreadBlock};
use fettle_abi::record::ID_HALF_BITS;
use fettle_abi::ring::RingCursors;
use fettle_isa::RegSet;
use iced_x86::{ConditionCode, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use fettle_code::pointers::BUCKET_BITS;
use fettle_code::{AgentEntry, Fixup, ProbeFixup};

use crate::summary::{Depth, Kind, MAX_PARTS, ProbeFault, Summary};

/// A probe found in code.
#[derive(Debug)]
pub struct Found {
    /// Index of its shape.
    pub shape: usize,
    /// Offsets of its parts; the inline one first.
    pub parts: [u32; MAX_PARTS],
    /// The counter of a block probe, or the first one of a table.
    pub counter: Option<u32>,
}

struct Part {
    bytes: Vec<u8>,
    /// Stretches of `bytes` that do not depend on where the part stands.
    fixed: Vec<(u32, u32)>,
    fixups: Vec<(u32, ProbeFixup)>,
    /// Jumps to other parts: place of the 32-bit distance, part, offset there.
    jumps: Vec<(u32, u32, u32)>,
}

struct Shape {
    parts: Vec<Part>,
    summary: Summary,
}

/// The shapes met so far.
#[derive(Default)]
pub struct Shapes {
    shapes: Vec<Shape>,
    /// By length and first bytes of the inline part.
    index: HashMap<(u32, u64), Vec<u32>>,
}

impl Shapes {
    /// What is known of shape `index`.
    pub fn summary(&self, index: usize) -> &Summary {
        &self.shapes[index].summary
    }

    /// Checks the probe whose inline part is `start..end` of `code`; `fixups` are sorted. Where
    /// probes are the user's `own`, a straight line is one of them.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(
        &mut self,
        code: &[u8],
        fixups: &[(u32, Fixup)],
        (start, end): (u32, u32),
        own: bool,
    ) -> Result<Found, ProbeFault> {
        let inline = code.get(start as usize..end as usize).ok_or(ProbeFault::Undecodable)?;
        let mut first = [0; 8];
        let n = inline.len().min(4);
        first[..n].copy_from_slice(&inline[..n]);
        let key = (end.wrapping_sub(start), u64::from_le_bytes(first));
        for shape in self.index.get(&key).into_iter().flatten() {
            let shape = *shape as usize;
            if let Some((parts, counter)) = matches(&self.shapes[shape], code, fixups, start) {
                return Ok(Found { shape, parts, counter });
            }
        }
        // A user's line may look like a probe of Fettle's: one that counts calls does.
        let found = if own { own_shape(code, fixups, (start, end)) } else { Err(ProbeFault::Kind) };
        let (shape, parts, counter) = found.or_else(|_| {
            let mut machine = Machine::new(code, fixups, start, end);
            machine.run().and_then(|()| machine.shape())
        })?;
        self.index.entry(key).or_default().push(self.shapes.len() as u32);
        self.shapes.push(shape);
        Ok(Found { shape: self.shapes.len() - 1, parts, counter })
    }
}

/// The shape of straight-line code that the user's compiler made.
fn own_shape(
    code: &[u8],
    fixups: &[(u32, Fixup)],
    (start, end): (u32, u32),
) -> Result<(Shape, [u32; MAX_PARTS], Option<u32>), ProbeFault> {
    let bytes = code.get(start as usize..end as usize).ok_or(ProbeFault::Undecodable)?;
    let mut own_fixups = Vec::new();
    for (at, fixup) in fixups_in(fixups, start.saturating_sub(3), end) {
        let Fixup::Probe(fixup) = fixup else { return Err(ProbeFault::Fixup) };
        own_fixups.push((at.checked_sub(start).ok_or(ProbeFault::Fixup)?, *fixup));
    }
    let summary = super::own::summarize(bytes, &own_fixups)?;
    let mut fixed = Vec::new();
    let mut begin = 0;
    for (at, _) in &own_fixups {
        fixed.push((begin, *at));
        begin = at + 4;
    }
    fixed.push((begin, end - start));
    let part = Part { bytes: bytes.to_vec(), fixed, fixups: own_fixups, jumps: Vec::new() };
    let mut bases = [u32::MAX; MAX_PARTS];
    bases[0] = start;
    Ok((Shape { parts: vec![part], summary }, bases, None))
}

/// The fixups that lie in `start..end`.
fn fixups_in(fixups: &[(u32, Fixup)], start: u32, end: u32) -> &[(u32, Fixup)] {
    let from = fixups.partition_point(|(at, _)| *at < start);
    let to = from + fixups[from..].partition_point(|(at, _)| *at < end);
    &fixups[from..to]
}

fn field(code: &[u8], at: u32) -> Option<i32> {
    Some(i32::from_le_bytes(code.get(at as usize..at as usize + 4)?.try_into().ok()?))
}

/// Whether the probe at `start` of `code` has this shape; where its parts are.
fn matches(
    shape: &Shape,
    code: &[u8],
    fixups: &[(u32, Fixup)],
    start: u32,
) -> Option<([u32; MAX_PARTS], Option<u32>)> {
    let mut bases = [u32::MAX; MAX_PARTS];
    bases[0] = start;
    // The counter that comes first, here and in the shape: others are as far from it.
    let mut counter: Option<(u32, u32)> = None;
    for (i, part) in shape.parts.iter().enumerate() {
        let base = bases[i];
        if base == u32::MAX {
            return None;
        }
        let end = base.checked_add(part.bytes.len() as u32)?;
        let bytes = code.get(base as usize..end as usize)?;
        for (from, to) in &part.fixed {
            let range = *from as usize..*to as usize;
            if bytes[range.clone()] != part.bytes[range] {
                return None;
            }
        }
        // A field may begin before the part and reach into it.
        let found = fixups_in(fixups, base.saturating_sub(3), end);
        if found.len() != part.fixups.len() {
            return None;
        }
        for ((at, fixup), (want_at, want)) in found.iter().zip(&part.fixups) {
            let Fixup::Probe(fixup) = fixup else { return None };
            if *at != base + want_at {
                return None;
            }
            match (fixup, want) {
                (ProbeFixup::Counter(n), ProbeFixup::Counter(want)) => {
                    let (first, want_first) = *counter.get_or_insert((*n, *want));
                    if n.wrapping_sub(first) != want.wrapping_sub(want_first) {
                        return None;
                    }
                }
                (fixup, want) if fixup == want => {}
                _ => return None,
            }
        }
        for (at, to_part, to) in &part.jumps {
            let at = base + at;
            let target = at.wrapping_add(4).wrapping_add_signed(field(code, at)?);
            let to_base = target.wrapping_sub(*to);
            let known = &mut bases[*to_part as usize];
            if *known == u32::MAX {
                *known = to_base;
            } else if *known != to_base {
                return None;
            }
        }
    }
    Some((bases, counter.map(|(first, _)| first)))
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum V {
    /// What the register held at the start.
    Own(u8),
    /// The stack pointer at the start, plus this.
    Sp(i32),
    Const(u64),
    /// The function's number.
    Number,
    Flags(F),
    /// Bytes of shadow stack in use.
    Used,
    TscLow,
    TscHigh,
    /// The upper half, in place.
    TscUp,
    Tsc,
    Start,
    StartUp,
    Word0,
    Ticks,
    TicksUp,
    Word1,
    SelfTicks,
    /// Calls that ended in the thread.
    Ended,
    /// Calls that ended since the one on top began.
    BelowIt,
    /// Calls that the one on top made.
    Children,
    Position,
    Place,
    Count,
    CountUp,
    /// The bits of this register's own value that choose a bucket.
    Bucket(u8),
    Any,
}

/// What the flags tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum F {
    Own,
    /// Shadow stack in use, compared with its room.
    Bound,
    /// Stack pointer at entry, compared with that of the frame on top.
    Top,
    /// As `Top`, by the copy of its stack pointer that sampling keeps.
    TopSampled,
    /// Position, compared with the ring's limit.
    Limit,
    /// The countdown of sampling.
    Countdown,
    /// The agent's answer about frames.
    Frame,
    /// The agent's answer about the ring.
    Room,
    /// The target of a call, compared with that of its bucket.
    Target,
    Any,
}

const FRAME: i64 = size_of::<ShadowFrame>() as i64;
const SHADOW_USED: i64 = offset_of!(ThreadBlock, shadow_used) as i64;
const TOP_STACK_POINTER: i64 = offset_of!(ThreadBlock, top_stack_pointer) as i64;
const ENDED: i64 = offset_of!(ThreadBlock, ended) as i64;
const RESERVED: i64 = (offset_of!(ThreadBlock, ring) + offset_of!(RingCursors, reserved)) as i64;
const LIMIT: i64 = (offset_of!(ThreadBlock, ring) + offset_of!(RingCursors, limit)) as i64;
const START: i64 = SHADOW as i64 + offset_of!(ShadowFrame, start) as i64;
const STACK_POINTER: i64 = SHADOW as i64 + offset_of!(ShadowFrame, stack_pointer) as i64;
const CHILD: i64 = SHADOW as i64 + offset_of!(ShadowFrame, child_ticks) as i64;
const NUMBER: i64 = SHADOW as i64 + offset_of!(ShadowFrame, function) as i64;
const CHILDREN: i64 = SHADOW as i64 + offset_of!(ShadowFrame, children) as i64;
const ENDED_BEFORE: i64 = SHADOW as i64 + offset_of!(ShadowFrame, ended_before) as i64;
const CALLS: u32 = offset_of!(Accumulator, calls) as u32;
const TOTAL: u32 = offset_of!(Accumulator, total_ticks) as u32;
const SELF: u32 = offset_of!(Accumulator, self_ticks) as u32;
const MADE: u32 = offset_of!(Accumulator, children) as u32;
const BELOW_IT: u32 = offset_of!(Accumulator, below) as u32;
const SAMPLING: u32 = offset_of!(Accumulator, sampling) as u32;

/// Effects, as bits.
mod effect {
    pub const COUNTED: u64 = 1;
    pub const EXIT_COUNTED: u64 = 1 << 1;
    pub const ROOM: u64 = 1 << 2;
    pub const NO_ROOM: u64 = 1 << 3;
    pub const PUSHED: u64 = 1 << 4;
    pub const STACK_POINTER: u64 = 1 << 5;
    pub const CHILD: u64 = 1 << 6;
    pub const NUMBER: u64 = 1 << 7;
    pub const START: u64 = 1 << 8;
    pub const OVERFLOW: u64 = 1 << 9;
    pub const TOP: u64 = 1 << 10;
    pub const OTHER: u64 = 1 << 11;
    pub const NOT_FOUND: u64 = 1 << 12;
    pub const FOUND: u64 = 1 << 13;
    pub const PARENT: u64 = 1 << 14;
    pub const TOTAL: u64 = 1 << 15;
    pub const SELF: u64 = 1 << 16;
    pub const POPPED: u64 = 1 << 17;
    pub const RESERVED: u64 = 1 << 18;
    pub const BELOW: u64 = 1 << 19;
    pub const ABOVE: u64 = 1 << 20;
    pub const LOST: u64 = 1 << 21;
    pub const HAS_ROOM: u64 = 1 << 22;
    pub const WORD0: u64 = 1 << 23;
    pub const WORD1: u64 = 1 << 24;
    pub const COUNTDOWN: u64 = 1 << 25;
    pub const DUE: u64 = 1 << 26;
    pub const NOT_DUE: u64 = 1 << 27;
    pub const SAMPLED: u64 = 1 << 28;
    pub const LEFT: u64 = 1 << 29;
    pub const DEEPER: u64 = 1 << 30;
    pub const NOT_DEEPER: u64 = 1 << 31;
    pub const ENTERED: u64 = 1 << 32;
    pub const CLOSED_BY_AGENT: u64 = 1 << 33;
    pub const OWN: u64 = 1 << 34;
    pub const SAME_TARGET: u64 = 1 << 35;
    pub const OTHER_TARGET: u64 = 1 << 36;
    pub const TARGET_COUNTED: u64 = 1 << 37;
    pub const TARGET_PUT: u64 = 1 << 38;
    pub const BEFORE: u64 = 1 << 39;
    pub const CHILDREN: u64 = 1 << 40;
    pub const BELOW_IT: u64 = 1 << 41;
    pub const ENDED: u64 = 1 << 42;
    pub const CHILD_OF: u64 = 1 << 43;
    pub const PASS_COUNTED: u64 = 1 << 44;
    pub const LOCK: u64 = 1 << 45;
}

/// Shadow stack in use from which on there is no room for a frame.
pub const NO_ROOM_FROM: u32 = SHADOW_BYTES - FRAME as u32;

/// What a probe is by the effects of all its paths, with what it compares the shadow stack in use
/// with and what it tells the agent.
fn kind_of(paths: &[u64], bound: Option<u32>, told: Option<u32>) -> Option<Kind> {
    use effect::*;
    const PUSH: u64 = ROOM | PUSHED | STACK_POINTER | CHILD | NUMBER | START | BEFORE;
    const CALLS: u64 = COUNTED | CHILDREN | BELOW_IT | ENDED | CHILD_OF;
    const CLOSED: u64 = TOP | PARENT | TOTAL | CALLS | SELF | POPPED;
    const RECORDED: u64 = CLOSED | RESERVED | BELOW | WORD0 | WORD1;
    const LOST_ONE: u64 = CLOSED | RESERVED | ABOVE | LOST;
    const ORPHAN: u64 = OTHER | NOT_FOUND;
    const ABOVE_TOP: u64 = ORPHAN | NOT_DEEPER;
    let (limit, told) = (bound.unwrap_or(0), told.unwrap_or(0));
    let kinds: [(Kind, &[u64]); 19] = [
        (Kind::CountEntry, &[COUNTED]),
        (Kind::CountExit, &[EXIT_COUNTED]),
        (Kind::CountPass, &[PASS_COUNTED]),
        (Kind::TimedEntry(NO_ROOM_FROM), &[PUSH, NO_ROOM | OVERFLOW]),
        (Kind::TimedEntry(limit), &[PUSH, NO_ROOM]),
        (Kind::TimeExit { limited: false }, &[CLOSED, ORPHAN]),
        (Kind::TimeExit { limited: true }, &[CLOSED, ABOVE_TOP, OTHER | DEEPER]),
        (Kind::EventsExit { limited: false }, &[RECORDED, LOST_ONE, ORPHAN]),
        (Kind::EventsExit { limited: true }, &[RECORDED, LOST_ONE, ABOVE_TOP, OTHER | DEEPER]),
        (Kind::SampleEntry, &[COUNTDOWN | NOT_DUE, COUNTDOWN | DUE | SAMPLED]),
        (Kind::SampleExit, &[DEEPER, NOT_DEEPER | SAMPLED]),
        (Kind::Enter(told), &[ENTERED]),
        (Kind::Leave(told), &[CLOSED_BY_AGENT]),
        (Kind::OwnCall(told), &[OWN]),
        (Kind::LockEnter, &[LOCK]),
        (Kind::LockLeave, &[DEEPER, NOT_DEEPER | LOCK]),
        (Kind::Left, &[LEFT]),
        (Kind::Target(told as u8), &[SAME_TARGET | TARGET_COUNTED, OTHER_TARGET | TARGET_PUT]),
        (Kind::Block, &[0]),
    ];
    let kind = kinds
        .into_iter()
        .find(|(_, want)| want.len() == paths.len() && want.iter().all(|p| paths.contains(p)))
        .map(|(kind, _)| kind)?;
    // Frames that are not there for want of room are counted, others are not.
    let sound = match kind {
        Kind::TimedEntry(NO_ROOM_FROM) => {
            bound == Some(NO_ROOM_FROM) && paths.contains(&(NO_ROOM | OVERFLOW))
        }
        Kind::TimedEntry(limit) => limit < NO_ROOM_FROM,
        _ => true,
    };
    sound.then_some(kind)
}

const MAX_PUSHES: usize = 12;

#[derive(Clone, PartialEq, Eq)]
struct State {
    regs: [V; 16],
    flags: F,
    /// Bytes that the stack pointer lies below where it began.
    depth: i32,
    /// What was pushed: depth after the push, and value.
    stack: [(i32, V); MAX_PUSHES],
    pushes: usize,
    effects: u64,
    /// A block counter was incremented.
    block: bool,
}

/// A word of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Target,
    Count,
}

/// What a memory operand reaches.
enum Operand {
    /// A fixed offset in the thread block.
    Block(i64),
    Accumulator(u32),
    Counter,
    /// A word of the bucket that this register's own value chooses: of the target, or its count.
    Bucket(u8, Word),
    /// Shadow stack, from the end of what is in use.
    Shadow(i64),
    /// The place for a record.
    Record(i64),
}

/// An instruction that was executed.
struct Executed {
    at: u32,
    len: u32,
    depth: i32,
    /// Place and target of a jump's 32-bit distance; `MAX` for other instructions.
    jump: (u32, u32),
}

struct Machine<'a> {
    code: &'a [u8],
    fixups: &'a [(u32, Fixup)],
    start: u32,
    end: u32,
    executed: Vec<Executed>,
    paths: Vec<u64>,
    blocks: Vec<bool>,
    clobbers: u32,
    counter: Option<u32>,
    /// What the shadow stack in use was compared with.
    bound: Option<u32>,
    /// What the agent is told to record.
    told: Option<u32>,
    uses_red_zone: bool,
}

type Step = Result<(), ProbeFault>;

const RSP: u8 = 4;
const FLAGS_BIT: u32 = 1 << 16;

fn number(register: Register) -> Option<u8> {
    register.is_gpr64().then(|| register as u8 - Register::RAX as u8)
}

fn number32(register: Register) -> Option<u8> {
    register.is_gpr32().then(|| register as u8 - Register::EAX as u8)
}

impl<'a> Machine<'a> {
    fn new(code: &'a [u8], fixups: &'a [(u32, Fixup)], start: u32, end: u32) -> Machine<'a> {
        Machine {
            code,
            fixups,
            start,
            end,
            executed: Vec::new(),
            paths: Vec::new(),
            blocks: Vec::new(),
            clobbers: 0,
            counter: None,
            bound: None,
            told: None,
            uses_red_zone: false,
        }
    }

    fn run(&mut self) -> Step {
        let mut state = State {
            regs: [V::Any; 16],
            flags: F::Own,
            depth: 0,
            stack: [(0, V::Any); MAX_PUSHES],
            pushes: 0,
            effects: 0,
            block: false,
        };
        for (i, v) in state.regs.iter_mut().enumerate() {
            *v = V::Own(i as u8);
        }
        let mut work = vec![(self.start, state)];
        let mut seen: Vec<(u32, State)> = Vec::new();
        while let Some(item) = work.pop() {
            if item.0 == self.end {
                self.finish(&item.1)?;
                continue;
            }
            if seen.contains(&item) {
                continue;
            }
            if seen.len() > 500 {
                return Err(ProbeFault::TooLong);
            }
            let (at, mut state) = item.clone();
            seen.push(item);
            let bytes = self.code.get(at as usize..).ok_or(ProbeFault::Undecodable)?;
            let mut decoder = Decoder::with_ip(64, bytes, u64::from(at), DecoderOptions::NONE);
            let insn = decoder.decode();
            if insn.is_invalid() {
                return Err(ProbeFault::Undecodable);
            }
            let next = at + insn.len() as u32;
            // An inline instruction must not reach over the end.
            if at < self.end && next > self.end && at >= self.start {
                return Err(ProbeFault::Undecodable);
            }
            let offsets = decoder.get_constant_offsets(&insn);
            let mut fixups = Fields::default();
            for (place, fixup) in fixups_in(self.fixups, at.saturating_sub(3), next) {
                let Fixup::Probe(fixup) = fixup else { return Err(ProbeFault::Fixup) };
                let place = place.checked_sub(at).ok_or(ProbeFault::Fixup)? as usize;
                let (disp, imm) = (offsets.displacement_offset(), offsets.immediate_offset());
                if offsets.has_displacement()
                    && place == disp
                    && offsets.displacement_size() == 4
                    && fixups.displacement.is_none()
                {
                    fixups.displacement = Some(*fixup);
                } else if offsets.has_immediate()
                    && place == imm
                    && offsets.immediate_size() == 4
                    && fixups.immediate.is_none()
                {
                    fixups.immediate = Some(*fixup);
                } else {
                    return Err(ProbeFault::Fixup);
                }
            }
            let mut jump = (u32::MAX, u32::MAX);
            if insn.is_jmp_short_or_near() || insn.is_jcc_short_or_near() {
                let target = u32::try_from(insn.near_branch_target())
                    .map_err(|_| ProbeFault::Undecodable)?;
                if offsets.immediate_size() == 4 {
                    jump = (at + offsets.immediate_offset() as u32, target);
                } else if (target < self.start || target > self.end)
                    != (at < self.start || at >= self.end)
                {
                    // Between parts only far jumps are known.
                    return Err(ProbeFault::Instruction);
                }
                if fixups.displacement.is_some() || fixups.immediate.is_some() {
                    return Err(ProbeFault::Fixup);
                }
                if insn.is_jcc_short_or_near() {
                    let mut taken = state.clone();
                    branch(&insn, &mut taken, true)?;
                    branch(&insn, &mut state, false)?;
                    work.push((target, taken));
                    work.push((next, state.clone()));
                } else {
                    work.push((target, state.clone()));
                }
                state = work.last().expect("just pushed").1.clone();
                self.note(at, insn.len(), state.depth, jump)?;
                continue;
            }
            self.note(at, insn.len(), state.depth, jump)?;
            self.step(&insn, fixups, &mut state)?;
            work.push((next, state));
        }
        Ok(())
    }

    fn note(&mut self, at: u32, len: usize, depth: i32, jump: (u32, u32)) -> Step {
        match self.executed.iter().find(|e| e.at == at) {
            Some(e) if e.depth == depth => {}
            Some(_) => return Err(ProbeFault::Stack),
            None => self.executed.push(Executed { at, len: len as u32, depth, jump }),
        }
        Ok(())
    }

    fn finish(&mut self, state: &State) -> Step {
        if state.depth != 0 || state.pushes != 0 {
            return Err(ProbeFault::Stack);
        }
        for (i, v) in state.regs.iter().enumerate() {
            if i as u8 != RSP && *v != V::Own(i as u8) {
                self.clobbers |= 1 << i;
            }
        }
        if state.flags != F::Own {
            self.clobbers |= FLAGS_BIT;
        }
        if !self.paths.contains(&state.effects) {
            self.paths.push(state.effects);
        }
        if !self.blocks.contains(&state.block) {
            self.blocks.push(state.block);
        }
        Ok(())
    }

    fn read(&self, state: &State, register: Register) -> Result<V, ProbeFault> {
        match number(register) {
            Some(RSP) => Ok(V::Sp(-state.depth)),
            Some(r) => Ok(state.regs[r as usize]),
            None => Err(ProbeFault::Instruction),
        }
    }

    fn write(&self, state: &mut State, register: Register, value: V) -> Step {
        match number(register).or_else(|| number32(register)) {
            None | Some(RSP) => Err(ProbeFault::Instruction),
            Some(r) => {
                state.regs[r as usize] = value;
                Ok(())
            }
        }
    }

    fn push(&mut self, state: &mut State, value: V) -> Step {
        if state.pushes == MAX_PUSHES {
            return Err(ProbeFault::Stack);
        }
        self.uses_red_zone |= state.depth < 128;
        state.depth += 8;
        state.stack[state.pushes] = (state.depth, value);
        state.pushes += 1;
        Ok(())
    }

    fn pop(&mut self, state: &mut State) -> Result<V, ProbeFault> {
        let top = state.pushes.checked_sub(1).ok_or(ProbeFault::Stack)?;
        let (depth, value) = state.stack[top];
        if depth != state.depth {
            return Err(ProbeFault::Stack);
        }
        state.pushes = top;
        // Dead slots must not make equal states different.
        state.stack[top] = (0, V::Any);
        state.depth -= 8;
        Ok(value)
    }

    fn operand(
        &mut self,
        insn: &Instruction,
        fixups: &mut Fields,
        state: &State,
    ) -> Result<Operand, ProbeFault> {
        if insn.memory_segment() != Register::GS
            || insn.memory_index() != Register::None
            || insn.is_ip_rel_memory_operand()
        {
            return Err(ProbeFault::Memory);
        }
        let disp = insn.memory_displacement64() as i64;
        match insn.memory_base() {
            Register::None => match fixups.displacement.take() {
                None => Ok(Operand::Block(disp)),
                Some(ProbeFixup::Accumulator(n)) => Ok(Operand::Accumulator(n)),
                Some(ProbeFixup::Counter(n)) => {
                    if *self.counter.get_or_insert(n) != n {
                        return Err(ProbeFault::Fixup);
                    }
                    Ok(Operand::Counter)
                }
                Some(_) => Err(ProbeFault::Fixup),
            },
            base => match self.read(state, base)? {
                V::Bucket(of) => self.bucket(of, fixups),
                V::Used => Ok(Operand::Shadow(disp)),
                V::Place => Ok(Operand::Record(disp)),
                _ => Err(ProbeFault::Memory),
            },
        }
    }

    /// A word of a bucket, by the counter that its table is known by.
    fn bucket(&mut self, of: u8, fixups: &mut Fields) -> Result<Operand, ProbeFault> {
        let Some(ProbeFixup::Counter(n)) = fixups.displacement.take() else {
            return Err(ProbeFault::Fixup);
        };
        let table = *self.counter.get_or_insert(n);
        if *self.told.get_or_insert(u32::from(of)) != u32::from(of) {
            return Err(ProbeFault::Memory);
        }
        match n.checked_sub(table) {
            Some(0) => Ok(Operand::Bucket(of, Word::Target)),
            Some(1) => Ok(Operand::Bucket(of, Word::Count)),
            _ => Err(ProbeFault::Fixup),
        }
    }

    /// Executes an instruction that is no jump.
    fn step(&mut self, insn: &Instruction, mut fixups: Fields, state: &mut State) -> Step {
        use OpKind::{Memory, Register as Reg};
        if insn.has_lock_prefix() || insn.has_rep_prefix() || insn.has_repne_prefix() {
            return Err(ProbeFault::Instruction);
        }
        let wide = insn.op0_kind() != Memory || insn.memory_size().size() == 8;
        match (insn.mnemonic(), insn.op0_kind(), insn.op1_kind()) {
            (Mnemonic::Push, Reg, _) => {
                if number(insn.op0_register()).is_none_or(|r| r == RSP) {
                    return Err(ProbeFault::Instruction);
                }
                let value = self.read(state, insn.op0_register())?;
                self.push(state, value)?;
            }
            (Mnemonic::Push, OpKind::Immediate32to64, _) => {
                let value = match fixups.immediate.take() {
                    None => V::Const(insn.immediate(0)),
                    Some(ProbeFixup::Number) => V::Number,
                    Some(_) => return Err(ProbeFault::Fixup),
                };
                self.push(state, value)?;
            }
            (Mnemonic::Pushfq, ..) => self.push(state, V::Flags(state.flags))?,
            (Mnemonic::Pop, Reg, _) => {
                if number(insn.op0_register()).is_none() {
                    return Err(ProbeFault::Instruction);
                }
                let value = self.pop(state)?;
                self.write(state, insn.op0_register(), value)?;
            }
            (Mnemonic::Popfq, ..) => match self.pop(state)? {
                V::Flags(flags) => state.flags = flags,
                _ => return Err(ProbeFault::Stack),
            },
            (Mnemonic::Mov, Reg, Reg) => {
                let value = self.read(state, insn.op1_register())?;
                self.write(state, insn.op0_register(), value)?;
            }
            (Mnemonic::Mov, Reg, OpKind::Immediate32) if insn.op0_register().is_gpr32() => {
                self.write(state, insn.op0_register(), V::Const(insn.immediate(1)))?;
            }
            (Mnemonic::Mov, Reg, Memory) => {
                let size = insn.op0_register().size();
                let value = loaded(self.operand(insn, &mut fixups, state)?, size)?;
                self.write(state, insn.op0_register(), value)?;
            }
            (Mnemonic::Mov, Memory, Reg) if wide => {
                let value = self.read(state, insn.op1_register())?;
                let to = self.operand(insn, &mut fixups, state)?;
                store(state, to, value)?;
            }
            (Mnemonic::Mov, Memory, OpKind::Immediate32to64) if wide => {
                let value = match fixups.immediate.take() {
                    None => V::Const(insn.immediate(1)),
                    Some(ProbeFixup::Number) => V::Number,
                    Some(_) => return Err(ProbeFault::Fixup),
                };
                let to = self.operand(insn, &mut fixups, state)?;
                store(state, to, value)?;
            }
            (Mnemonic::Lea, Reg, Memory) => self.lea(insn, state)?,
            (Mnemonic::Rdtsc, ..) => {
                state.regs[0] = V::TscLow;
                state.regs[2] = V::TscHigh;
            }
            (Mnemonic::Call, ..) => return self.call(insn, fixups, state),
            _ => {
                let flags = self.arithmetic(insn, &mut fixups, state)?;
                state.flags = flags;
            }
        }
        if fixups.displacement.is_some() || fixups.immediate.is_some() {
            return Err(ProbeFault::Fixup);
        }
        Ok(())
    }

    fn lea(&mut self, insn: &Instruction, state: &mut State) -> Step {
        if insn.memory_index() != Register::None || insn.op0_register().size() != 8 {
            return Err(ProbeFault::Instruction);
        }
        let disp = insn.memory_displacement64() as i64;
        let small = i32::try_from(disp).map_err(|_| ProbeFault::Instruction)?;
        if insn.op0_register() == Register::RSP {
            if insn.memory_base() != Register::RSP {
                return Err(ProbeFault::Stack);
            }
            state.depth = state.depth.checked_sub(small).ok_or(ProbeFault::Stack)?;
            let top = state.pushes.checked_sub(1).map_or(0, |t| state.stack[t].0);
            if state.depth < top || state.depth > 4096 {
                return Err(ProbeFault::Stack);
            }
            return Ok(());
        }
        let value = match self.read(state, insn.memory_base())? {
            V::Sp(n) => V::Sp(n.checked_add(small).ok_or(ProbeFault::Stack)?),
            V::Count if small == 1 => V::CountUp,
            _ => V::Any,
        };
        self.write(state, insn.op0_register(), value)
    }

    /// Instructions that write the flags; returns what the flags tell then.
    fn arithmetic(
        &mut self,
        insn: &Instruction,
        fixups: &mut Fields,
        state: &mut State,
    ) -> Result<F, ProbeFault> {
        use OpKind::{Memory, Register as Reg};
        let size = match insn.op0_kind() {
            Memory => insn.memory_size().size(),
            _ => insn.op0_register().size(),
        };
        match (insn.mnemonic(), insn.op0_kind(), insn.op1_kind(), size) {
            (Mnemonic::Shl, Reg, OpKind::Immediate8, 8) => {
                let value = match (self.read(state, insn.op0_register())?, insn.immediate(1)) {
                    (V::TscHigh, 32) => V::TscUp,
                    (V::Start, n) if n == u64::from(ID_HALF_BITS) => V::StartUp,
                    (V::Ticks, n) if n == u64::from(ID_HALF_BITS) => V::TicksUp,
                    _ => V::Any,
                };
                self.write(state, insn.op0_register(), value)?;
            }
            (Mnemonic::Or, Reg, Reg, 8) => {
                let a = self.read(state, insn.op0_register())?;
                let b = self.read(state, insn.op1_register())?;
                let value = match (a, b) {
                    (V::TscLow, V::TscUp) | (V::TscUp, V::TscLow) => V::Tsc,
                    _ => V::Any,
                };
                self.write(state, insn.op0_register(), value)?;
            }
            (Mnemonic::Or, Reg, OpKind::Immediate32to64, 8) => {
                let a = self.read(state, insn.op0_register())?;
                let value = match (a, fixups.immediate.take()) {
                    (V::StartUp, Some(ProbeFixup::IdHigh)) => V::Word0,
                    (V::TicksUp, Some(ProbeFixup::IdLow)) => V::Word1,
                    (_, Some(_)) => return Err(ProbeFault::Fixup),
                    (_, None) => V::Any,
                };
                self.write(state, insn.op0_register(), value)?;
            }
            (Mnemonic::And, Reg, OpKind::Immediate32, 4) => {
                let register = insn.op0_register();
                let a = self.read(state, register.full_register())?;
                let value = match (a, fixups.immediate.take()) {
                    (V::Position, Some(ProbeFixup::RingMask)) => V::Place,
                    _ => return Err(ProbeFault::Fixup),
                };
                self.write(state, register, value)?;
            }
            (Mnemonic::And, Reg, OpKind::Immediate8to32, 4) => {
                let register = insn.op0_register();
                let value = match self.read(state, register.full_register())? {
                    V::Own(of) if insn.immediate(1) == u64::from(BUCKET_BITS) => V::Bucket(of),
                    _ => return Err(ProbeFault::Instruction),
                };
                self.write(state, register, value)?;
            }
            (Mnemonic::Sub, Reg, Reg, 8) => {
                let a = self.read(state, insn.op0_register())?;
                let b = self.read(state, insn.op1_register())?;
                let value = if (a, b) == (V::Tsc, V::Start) { V::Ticks } else { V::Any };
                self.write(state, insn.op0_register(), value)?;
            }
            (Mnemonic::Sub, Reg, Memory, 8) => {
                let a = self.read(state, insn.op0_register())?;
                let value = match (a, self.operand(insn, fixups, state)?) {
                    (V::Tsc, Operand::Shadow(d)) if d == START - FRAME => V::Ticks,
                    (V::Ticks, Operand::Shadow(d)) if d == CHILD - FRAME => V::SelfTicks,
                    (V::Ended, Operand::Shadow(d)) if d == ENDED_BEFORE - FRAME => V::BelowIt,
                    _ => return Err(ProbeFault::Memory),
                };
                self.write(state, insn.op0_register(), value)?;
            }
            (Mnemonic::Add, Memory, Reg, 8) => {
                let value = self.read(state, insn.op1_register())?;
                added(state, self.operand(insn, fixups, state)?, value)?;
            }
            (Mnemonic::Add, Memory, OpKind::Immediate8to64, 8) => {
                match (self.operand(insn, fixups, state)?, insn.immediate(1) as i64) {
                    (Operand::Block(SHADOW_USED), FRAME) => {
                        once(state, effect::PUSHED, effect::ROOM)?;
                    }
                    (Operand::Block(SHADOW_USED), n) if n == -FRAME => {
                        once(state, effect::POPPED, effect::TOP | effect::SELF | effect::BELOW_IT)?;
                    }
                    _ => return Err(ProbeFault::Memory),
                }
            }
            (Mnemonic::Inc, Memory, _, 8) => {
                incremented(state, self.operand(insn, fixups, state)?)?;
            }
            (Mnemonic::Inc, Memory, _, 4) => match self.operand(insn, fixups, state)? {
                Operand::Shadow(d) if d == CHILDREN - 2 * FRAME => {
                    once(state, effect::CHILD_OF, effect::TOP)?;
                }
                _ => return Err(ProbeFault::Memory),
            },
            (Mnemonic::Dec, Memory, _, 4) => match self.operand(insn, fixups, state)? {
                Operand::Accumulator(SAMPLING) => {
                    once(state, effect::COUNTDOWN, 0)?;
                    return Ok(F::Countdown);
                }
                _ => return Err(ProbeFault::Memory),
            },
            (Mnemonic::Cmp, Reg, OpKind::Immediate32, 4) => {
                let value = self.read(state, insn.op0_register().full_register())?;
                let bound = insn.immediate(1) as u32;
                if value == V::Used && bound <= NO_ROOM_FROM {
                    if *self.bound.get_or_insert(bound) != bound {
                        return Err(ProbeFault::Condition);
                    }
                    return Ok(F::Bound);
                }
            }
            (Mnemonic::Cmp, Reg, Memory, 8) => {
                let value = self.read(state, insn.op0_register())?;
                return match (value, self.operand(insn, fixups, state)?) {
                    (V::Sp(0), Operand::Shadow(d)) if d == STACK_POINTER - FRAME => {
                        // What an earlier comparison told is void.
                        use effect::*;
                        state.effects &= !(TOP | OTHER | FOUND | NOT_FOUND | DEEPER | NOT_DEEPER);
                        Ok(F::Top)
                    }
                    (V::Own(r), Operand::Bucket(of, Word::Target)) if r == of => {
                        // Nothing was told or done before.
                        match state.effects {
                            0 => Ok(F::Target),
                            _ => Err(ProbeFault::Order),
                        }
                    }
                    (V::Sp(0), Operand::Block(TOP_STACK_POINTER)) => Ok(F::TopSampled),
                    (V::Position, Operand::Block(LIMIT)) => Ok(F::Limit),
                    _ => Err(ProbeFault::Memory),
                };
            }
            (Mnemonic::Xadd, Memory, Reg, 8) => {
                let value = self.read(state, insn.op1_register())?;
                match (self.operand(insn, fixups, state)?, value) {
                    (Operand::Block(RESERVED), V::Const(16)) => {
                        once(state, effect::RESERVED, effect::TOP)?;
                    }
                    _ => return Err(ProbeFault::Memory),
                }
                self.write(state, insn.op1_register(), V::Position)?;
            }
            _ => return Err(ProbeFault::Instruction),
        }
        Ok(F::Any)
    }

    /// A call of the agent: operands are pushed and taken off by the agent, all registers come
    /// back, and of the flags only the answer (`runtime/agent/entries.S`).
    fn call(&mut self, insn: &Instruction, mut fixups: Fields, state: &mut State) -> Step {
        let Some(ProbeFixup::Agent(entry)) = fixups.immediate.take() else {
            return Err(ProbeFault::Agent);
        };
        if !insn.is_call_near() || fixups.displacement.is_some() {
            return Err(ProbeFault::Agent);
        }
        self.uses_red_zone |= state.depth < 128;
        let mut operands = [V::Any; 2];
        let count = match entry {
            AgentEntry::Left | AgentEntry::Full => 0,
            AgentEntry::Ring | AgentEntry::LockEnter => 1,
            AgentEntry::Exit
            | AgentEntry::Leave
            | AgentEntry::SampleEntry
            | AgentEntry::SampleExit
            | AgentEntry::LockLeave
            | AgentEntry::Enter
            | AgentEntry::Own
            | AgentEntry::OwnVectors => 2,
        };
        for operand in &mut operands[..count] {
            *operand = self.pop(state)?;
        }
        let pushed = V::Const(state.depth as u64);
        match (entry, operands) {
            (AgentEntry::Left, _) if state.depth == 0 => once(state, effect::LEFT, 0)?,
            (AgentEntry::Full, _) => once(state, effect::OVERFLOW, effect::NO_ROOM)?,
            (AgentEntry::Exit, [V::Number, p])
                if p == pushed && state.regs[0] == V::Tsc && state.effects & effect::OTHER != 0 =>
            {
                state.flags = F::Frame;
            }
            (AgentEntry::Ring, [V::Position, _]) if state.effects & effect::ABOVE != 0 => {
                state.flags = F::Room;
            }
            (AgentEntry::SampleEntry, [V::Number, p]) if p == pushed => {
                once(state, effect::SAMPLED, effect::DUE)?;
                state.flags = F::Any;
            }
            // These find the stack pointer, and the registers of the function, as they are.
            (AgentEntry::Enter, [V::Number, V::Const(told)]) if untouched(state) => {
                once(state, effect::ENTERED, 0)?;
                self.told = Some(told as u32);
            }
            (AgentEntry::Own | AgentEntry::OwnVectors, [V::Number, V::Const(told)])
                if untouched(state) =>
            {
                once(state, effect::OWN, 0)?;
                self.told = Some(told as u32);
            }
            (AgentEntry::LockEnter, [V::Number, _]) if untouched(state) => {
                once(state, effect::LOCK, 0)?;
            }
            (AgentEntry::LockLeave, [V::Number, p]) if p == pushed => {
                once(state, effect::LOCK, effect::NOT_DEEPER)?;
                state.flags = F::Any;
            }
            (AgentEntry::Leave, [V::Number, V::Const(told)]) if untouched(state) => {
                once(state, effect::CLOSED_BY_AGENT, 0)?;
                self.told = Some(told as u32);
            }
            (AgentEntry::SampleExit, [V::Number, p]) if p == pushed => {
                once(state, effect::SAMPLED, effect::NOT_DEEPER)?;
                state.flags = F::Any;
            }
            _ => return Err(ProbeFault::Agent),
        }
        Ok(())
    }

    /// What was executed, as a shape; with its parts' places and its counter.
    fn shape(mut self) -> Result<(Shape, [u32; MAX_PARTS], Option<u32>), ProbeFault> {
        let kind = kind_of(&self.paths, self.bound, self.told).ok_or(ProbeFault::Kind)?;
        let counts = matches!(kind, Kind::Block | Kind::Target(_));
        if (kind == Kind::Block) != (self.blocks == [true])
            || counts != self.counter.is_some()
            || self.blocks.len() != 1
        {
            return Err(ProbeFault::Kind);
        }
        // Other probes of this shape are known by the counter that stands first.
        let first = fixups_in(self.fixups, self.start, self.end).first().map(|(_, fixup)| *fixup);
        if counts && first != self.counter.map(|n| Fixup::Probe(ProbeFixup::Counter(n))) {
            return Err(ProbeFault::Kind);
        }
        self.executed.sort_by_key(|e| e.at);
        // The inline part, then contiguous runs of what lies elsewhere.
        let mut ranges = vec![(self.start, self.end)];
        let mut last = u32::MAX;
        for e in &self.executed {
            if (self.start..self.end).contains(&e.at) {
                continue;
            }
            if e.at == last {
                ranges.last_mut().expect("there is one").1 = e.at + e.len;
            } else if last != u32::MAX && e.at < last {
                return Err(ProbeFault::Undecodable);
            } else {
                ranges.push((e.at, e.at + e.len));
            }
            last = e.at + e.len;
        }
        if ranges.len() > MAX_PARTS {
            return Err(ProbeFault::TooLong);
        }
        let part_of = |at: u32| ranges.iter().position(|(from, to)| (*from..*to).contains(&at));
        let mut parts = Vec::new();
        let mut depths: Vec<Depth> = Vec::new();
        for (i, (from, to)) in ranges.iter().enumerate() {
            let mut loose: Vec<u32> = Vec::new();
            let mut jumps = Vec::new();
            let mut fixups = Vec::new();
            for (at, fixup) in fixups_in(self.fixups, from.saturating_sub(3), *to) {
                let Fixup::Probe(fixup) = fixup else { return Err(ProbeFault::Fixup) };
                let at = at.checked_sub(*from).ok_or(ProbeFault::Fixup)?;
                fixups.push((at, *fixup));
                loose.push(at);
            }
            for e in self.executed.iter().filter(|e| (*from..*to).contains(&e.at)) {
                let pushed = e.depth as u32;
                let (start, end) = (e.at - from, e.at + e.len - from);
                match depths.last_mut() {
                    Some(d) if d.part == i as u32 && d.end == start && d.pushed == pushed => {
                        d.end = end;
                    }
                    _ => depths.push(Depth { part: i as u32, start, end, pushed }),
                }
                let (at, target) = e.jump;
                if at == u32::MAX {
                    continue;
                }
                // The end of the inline part belongs to it.
                let to_part = if target == self.end { Some(0) } else { part_of(target) };
                let to_part = to_part.ok_or(ProbeFault::Undecodable)?;
                if to_part != i {
                    jumps.push((at - from, to_part as u32, target - ranges[to_part].0));
                    loose.push(at - from);
                }
            }
            loose.sort_unstable();
            let mut fixed = Vec::new();
            let mut begin = 0;
            for at in loose {
                if at < begin {
                    return Err(ProbeFault::Fixup);
                }
                fixed.push((begin, at));
                begin = at + 4;
            }
            let len = to - from;
            if begin > len {
                return Err(ProbeFault::Fixup);
            }
            fixed.push((begin, len));
            let bytes = self.code[*from as usize..*to as usize].to_vec();
            parts.push(Part { bytes, fixed, fixups, jumps });
        }
        let summary = Summary {
            kind,
            clobbers: RegSet::from_bits(self.clobbers),
            uses_red_zone: self.uses_red_zone,
            depths,
            work: (0, 0),
        };
        let mut bases = [u32::MAX; MAX_PARTS];
        for (base, (from, _)) in bases.iter_mut().zip(&ranges) {
            *base = *from;
        }
        Ok((Shape { parts, summary }, bases, self.counter))
    }
}

/// Places to be filled in, by the field of the instruction.
#[derive(Clone, Copy, Default)]
struct Fields {
    displacement: Option<ProbeFixup>,
    immediate: Option<ProbeFixup>,
}

/// Notes an effect that must not have happened before, and wants others to have.
fn once(state: &mut State, bit: u64, after: u64) -> Step {
    if state.effects & bit != 0 || state.effects & after != after {
        return Err(ProbeFault::Order);
    }
    state.effects |= bit;
    Ok(())
}

/// Whether the function's own registers, flags and stack pointer are as they were.
fn untouched(state: &State) -> bool {
    let own = |(i, v): (usize, &V)| i == RSP as usize || *v == V::Own(i as u8);
    state.depth == 0 && state.flags == F::Own && state.regs.iter().enumerate().all(own)
}

fn count_block(state: &mut State) -> Step {
    if std::mem::replace(&mut state.block, true) {
        return Err(ProbeFault::Order);
    }
    Ok(())
}

/// What a load of so many bytes gives.
fn loaded(from: Operand, size: usize) -> Result<V, ProbeFault> {
    Ok(match (from, size) {
        (Operand::Block(SHADOW_USED), 4 | 8) => V::Used,
        (Operand::Counter, 8) => V::Count,
        (Operand::Shadow(disp), 8) if disp == START - FRAME => V::Start,
        (Operand::Shadow(disp), 4) if disp == CHILDREN - FRAME => V::Children,
        (Operand::Block(ENDED), 8) => V::Ended,
        _ => return Err(ProbeFault::Memory),
    })
}

/// An addition to eight bytes.
fn added(state: &mut State, to: Operand, value: V) -> Step {
    match (to, value) {
        (Operand::Shadow(d), V::Ticks) if d == CHILD - 2 * FRAME => {
            once(state, effect::PARENT, effect::TOP)?;
        }
        (Operand::Accumulator(TOTAL), V::Ticks) => {
            once(state, effect::TOTAL, effect::TOP)?;
        }
        (Operand::Accumulator(SELF), V::SelfTicks) => {
            once(state, effect::SELF, effect::TOP)?;
        }
        (Operand::Accumulator(MADE), V::Children) => {
            once(state, effect::CHILDREN, effect::TOP)?;
        }
        (Operand::Accumulator(BELOW_IT), V::BelowIt) => {
            once(state, effect::BELOW_IT, effect::TOP)?;
        }
        _ => return Err(ProbeFault::Memory),
    }
    Ok(())
}

/// An increment of eight bytes.
fn incremented(state: &mut State, what: Operand) -> Step {
    match what {
        Operand::Accumulator(CALLS) => once(state, effect::COUNTED, 0)?,
        Operand::Accumulator(TOTAL) => once(state, effect::EXIT_COUNTED, 0)?,
        Operand::Accumulator(SELF) => once(state, effect::PASS_COUNTED, 0)?,
        // Not before it is known how many ended below.
        Operand::Block(ENDED) => once(state, effect::ENDED, effect::BELOW_IT)?,
        Operand::Counter => count_block(state)?,
        Operand::Bucket(_, Word::Count) => {
            once(state, effect::TARGET_COUNTED, effect::SAME_TARGET)?;
        }
        _ => return Err(ProbeFault::Memory),
    }
    Ok(())
}

/// A store of eight bytes.
fn store(state: &mut State, to: Operand, value: V) -> Step {
    use effect::*;
    match (to, value) {
        // A frame is reserved before it is filled, for signal handlers.
        (Operand::Shadow(self::STACK_POINTER), V::Sp(0)) => once(state, STACK_POINTER, PUSHED),
        (Operand::Shadow(self::CHILD), V::Const(0)) => once(state, CHILD, PUSHED),
        (Operand::Shadow(self::NUMBER), V::Number) => once(state, NUMBER, PUSHED),
        (Operand::Shadow(self::ENDED_BEFORE), V::Ended) => once(state, BEFORE, PUSHED),
        (Operand::Shadow(self::START), V::Tsc) => once(state, START, PUSHED),
        (Operand::Record(d), V::Word0) if d == i64::from(RING) => {
            once(state, WORD0, RESERVED | BELOW)
        }
        // The word that says that a record is whole comes last.
        (Operand::Record(d), V::Word1) if d == i64::from(RING) + 8 => once(state, WORD1, WORD0),
        (Operand::Counter, V::CountUp) => count_block(state),
        (Operand::Bucket(of, Word::Target), V::Own(r)) if r == of => {
            once(state, TARGET_PUT, OTHER_TARGET)
        }
        _ => Err(ProbeFault::Memory),
    }
}

/// What is known on one side of a conditional jump.
fn branch(insn: &Instruction, state: &mut State, taken: bool) -> Step {
    use ConditionCode as C;
    use effect::*;
    // A call whose frame is not on top may be deeper than the one on top.
    if state.flags == F::Top && state.effects & OTHER != 0 {
        let deeper = match insn.condition_code() {
            C::b => taken,
            C::ae => !taken,
            _ => return Err(ProbeFault::Condition),
        };
        state.effects |= if deeper { DEEPER } else { NOT_DEEPER };
        return Ok(());
    }
    // The effect where the condition's first form holds, and where it does not.
    let (form, inverse, yes, no) = match state.flags {
        F::Bound => (C::ae, C::b, NO_ROOM, ROOM),
        F::TopSampled => (C::ae, C::b, NOT_DEEPER, DEEPER),
        F::Top => (C::ne, C::e, OTHER, TOP),
        F::Limit => (C::ae, C::b, ABOVE, BELOW),
        F::Countdown => (C::s, C::ns, DUE, NOT_DUE),
        F::Frame => (C::e, C::ne, FOUND, NOT_FOUND),
        F::Room => (C::e, C::ne, HAS_ROOM, LOST),
        F::Target => (C::e, C::ne, SAME_TARGET, OTHER_TARGET),
        F::Own | F::Any => return Err(ProbeFault::Condition),
    };
    let holds = match insn.condition_code() {
        c if c == form => taken,
        c if c == inverse => !taken,
        _ => return Err(ProbeFault::Condition),
    };
    // A comparison that is made again makes what was known before it void.
    state.effects &= match state.flags {
        F::TopSampled => !(DEEPER | NOT_DEEPER),
        F::Limit => !(ABOVE | BELOW | HAS_ROOM | LOST),
        _ => !0,
    };
    state.effects |= if holds { yes } else { no };
    Ok(())
}
