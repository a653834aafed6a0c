//! Values and memory as symbols, the effects of a path, and the kinds of probes that they make.

use std::mem::offset_of;

use fettle_abi::block::{Accumulator, MIRROR, MIRROR_BYTES, MirrorFrame, RING, ThreadBlock};
use fettle_abi::ring::RingCursors;
use fettle_code::ProbeFixup;
use iced_x86::{ConditionCode, Instruction, Register};

use crate::summary::{Kind, ProbeFault};

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum V {
    /// What the register held at the start.
    Own(u8),
    /// The stack pointer at the start, plus this.
    Sp(i32),
    Const(u64),
    /// The function's number.
    Number,
    Flags(F),
    /// Bytes of call-stack mirror in use.
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

/// What the flags say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum F {
    Own,
    /// Call-stack mirror in use, compared with its room.
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

pub(super) const FRAME: i64 = size_of::<MirrorFrame>() as i64;
pub(super) const MIRROR_USED: i64 = offset_of!(ThreadBlock, mirror_used) as i64;
pub(super) const TOP_STACK_POINTER: i64 = offset_of!(ThreadBlock, top_stack_pointer) as i64;
pub(super) const ENDED: i64 = offset_of!(ThreadBlock, ended) as i64;
pub(super) const RESERVED: i64 =
    (offset_of!(ThreadBlock, ring) + offset_of!(RingCursors, reserved)) as i64;
pub(super) const LIMIT: i64 =
    (offset_of!(ThreadBlock, ring) + offset_of!(RingCursors, limit)) as i64;
pub(super) const START: i64 = MIRROR as i64 + offset_of!(MirrorFrame, start) as i64;
pub(super) const STACK_POINTER: i64 = MIRROR as i64 + offset_of!(MirrorFrame, stack_pointer) as i64;
pub(super) const CHILD: i64 = MIRROR as i64 + offset_of!(MirrorFrame, child_ticks) as i64;
pub(super) const NUMBER: i64 = MIRROR as i64 + offset_of!(MirrorFrame, function) as i64;
pub(super) const CHILDREN: i64 = MIRROR as i64 + offset_of!(MirrorFrame, children) as i64;
pub(super) const ENDED_BEFORE: i64 = MIRROR as i64 + offset_of!(MirrorFrame, ended_before) as i64;
pub(super) const CALLS: u32 = offset_of!(Accumulator, calls) as u32;
pub(super) const TOTAL: u32 = offset_of!(Accumulator, total_ticks) as u32;
pub(super) const SELF: u32 = offset_of!(Accumulator, self_ticks) as u32;
pub(super) const MADE: u32 = offset_of!(Accumulator, children) as u32;
pub(super) const BELOW_IT: u32 = offset_of!(Accumulator, below) as u32;
pub(super) const SAMPLING: u32 = offset_of!(Accumulator, sampling) as u32;

/// Effects, as bits.
pub(super) mod effect {
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

/// Call-stack mirror in use from which on there is no room for a frame.
pub const NO_ROOM_FROM: u32 = MIRROR_BYTES - FRAME as u32;

/// What a probe is by the effects of all its paths, with what it compares the call-stack mirror in use
/// with and what it gives to the agent.
pub(super) fn kind_of(paths: &[u64], bound: Option<u32>, reported: Option<u32>) -> Option<Kind> {
    use effect::{
        ABOVE, BEFORE, BELOW, BELOW_IT, CHILD, CHILD_OF, CHILDREN, CLOSED_BY_AGENT, COUNTDOWN,
        COUNTED, DEEPER, DUE, ENDED, ENTERED, EXIT_COUNTED, LEFT, LOCK, LOST, NO_ROOM, NOT_DEEPER,
        NOT_DUE, NOT_FOUND, NUMBER, OTHER, OTHER_TARGET, OVERFLOW, OWN, PARENT, PASS_COUNTED,
        POPPED, PUSHED, RESERVED, ROOM, SAME_TARGET, SAMPLED, SELF, STACK_POINTER, START,
        TARGET_COUNTED, TARGET_PUT, TOP, TOTAL, WORD0, WORD1,
    };
    const PUSH: u64 = ROOM | PUSHED | STACK_POINTER | CHILD | NUMBER | START | BEFORE;
    const CALLS: u64 = COUNTED | CHILDREN | BELOW_IT | ENDED | CHILD_OF;
    const CLOSED: u64 = TOP | PARENT | TOTAL | CALLS | SELF | POPPED;
    const RECORDED: u64 = CLOSED | RESERVED | BELOW | WORD0 | WORD1;
    const LOST_ONE: u64 = CLOSED | RESERVED | ABOVE | LOST;
    const UNMATCHED: u64 = OTHER | NOT_FOUND;
    const ABOVE_TOP: u64 = UNMATCHED | NOT_DEEPER;
    let (limit, reported) = (bound.unwrap_or(0), reported.unwrap_or(0));
    let kinds: [(Kind, &[u64]); 19] = [
        (Kind::CountEntry, &[COUNTED]),
        (Kind::CountExit, &[EXIT_COUNTED]),
        (Kind::CountPass, &[PASS_COUNTED]),
        (Kind::TimedEntry(NO_ROOM_FROM), &[PUSH, NO_ROOM | OVERFLOW]),
        (Kind::TimedEntry(limit), &[PUSH, NO_ROOM]),
        (Kind::TimeExit { limited: false }, &[CLOSED, UNMATCHED]),
        (Kind::TimeExit { limited: true }, &[CLOSED, ABOVE_TOP, OTHER | DEEPER]),
        (Kind::EventsExit { limited: false }, &[RECORDED, LOST_ONE, UNMATCHED]),
        (Kind::EventsExit { limited: true }, &[RECORDED, LOST_ONE, ABOVE_TOP, OTHER | DEEPER]),
        (Kind::SampleEntry, &[COUNTDOWN | NOT_DUE, COUNTDOWN | DUE | SAMPLED]),
        (Kind::SampleExit, &[DEEPER, NOT_DEEPER | SAMPLED]),
        (Kind::Enter(reported), &[ENTERED]),
        (Kind::Leave(reported), &[CLOSED_BY_AGENT]),
        (Kind::UserCall(reported), &[OWN]),
        (Kind::LockEnter, &[LOCK]),
        (Kind::LockLeave, &[DEEPER, NOT_DEEPER | LOCK]),
        (Kind::Left, &[LEFT]),
        (Kind::Target(reported as u8), &[SAME_TARGET | TARGET_COUNTED, OTHER_TARGET | TARGET_PUT]),
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

pub(super) const MAX_PUSHES: usize = 12;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) regs: [V; 16],
    pub(super) flags: F,
    /// Bytes that the stack pointer lies below where it began.
    pub(super) depth: i32,
    /// What was pushed: depth after the push, and value.
    pub(super) stack: [(i32, V); MAX_PUSHES],
    pub(super) pushes: usize,
    pub(super) effects: u64,
    /// A block counter was incremented.
    pub(super) block: bool,
}

/// A word of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Target,
    Count,
}

/// What a memory operand reaches.
pub(super) enum Operand {
    /// A fixed offset in the thread block.
    Block(i64),
    Accumulator(u32),
    Counter,
    /// A word of the bucket that this register's own value chooses: of the target, or its count.
    Bucket(u8, Word),
    /// Call-stack mirror, from the end of what is in use.
    Mirror(i64),
    /// The place for a record.
    Record(i64),
}

pub(super) type Step = Result<(), ProbeFault>;

pub(super) const RSP: u8 = 4;
pub(super) const FLAGS_BIT: u32 = 1 << 16;

pub(super) fn number(register: Register) -> Option<u8> {
    register.is_gpr64().then(|| register as u8 - Register::RAX as u8)
}

pub(super) fn number32(register: Register) -> Option<u8> {
    register.is_gpr32().then(|| register as u8 - Register::EAX as u8)
}

/// Places to be filled in, by the field of the instruction.
#[derive(Clone, Copy, Default)]
pub(super) struct Fields {
    pub(super) displacement: Option<ProbeFixup>,
    pub(super) immediate: Option<ProbeFixup>,
}

/// Notes an effect that must not have happened before, and wants others to have.
pub(super) fn once(state: &mut State, bit: u64, after: u64) -> Step {
    if state.effects & bit != 0 || state.effects & after != after {
        return Err(ProbeFault::Order);
    }
    state.effects |= bit;
    Ok(())
}

/// Whether the function's own registers, flags and stack pointer are as they were.
pub(super) fn untouched(state: &State) -> bool {
    let own = |(i, v): (usize, &V)| i == RSP as usize || *v == V::Own(i as u8);
    state.depth == 0 && state.flags == F::Own && state.regs.iter().enumerate().all(own)
}

pub(super) fn count_block(state: &mut State) -> Step {
    if std::mem::replace(&mut state.block, true) {
        return Err(ProbeFault::Order);
    }
    Ok(())
}

/// What a load of so many bytes gives.
pub(super) fn loaded(from: Operand, size: usize) -> Result<V, ProbeFault> {
    Ok(match (from, size) {
        (Operand::Block(MIRROR_USED), 4 | 8) => V::Used,
        (Operand::Counter, 8) => V::Count,
        (Operand::Mirror(disp), 8) if disp == START - FRAME => V::Start,
        (Operand::Mirror(disp), 4) if disp == CHILDREN - FRAME => V::Children,
        (Operand::Block(ENDED), 8) => V::Ended,
        _ => return Err(ProbeFault::Memory),
    })
}

/// An addition to eight bytes.
pub(super) fn added(state: &mut State, to: Operand, value: V) -> Step {
    match (to, value) {
        (Operand::Mirror(d), V::Ticks) if d == CHILD - 2 * FRAME => {
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
pub(super) fn incremented(state: &mut State, what: Operand) -> Step {
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
pub(super) fn store(state: &mut State, to: Operand, value: V) -> Step {
    use effect::{
        BEFORE, BELOW, CHILD, NUMBER, OTHER_TARGET, PUSHED, RESERVED, STACK_POINTER, START,
        TARGET_PUT, WORD0, WORD1,
    };
    match (to, value) {
        // A frame is reserved before it is filled, for signal handlers.
        (Operand::Mirror(self::STACK_POINTER), V::Sp(0)) => once(state, STACK_POINTER, PUSHED),
        (Operand::Mirror(self::CHILD), V::Const(0)) => once(state, CHILD, PUSHED),
        (Operand::Mirror(self::NUMBER), V::Number) => once(state, NUMBER, PUSHED),
        (Operand::Mirror(self::ENDED_BEFORE), V::Ended) => once(state, BEFORE, PUSHED),
        (Operand::Mirror(self::START), V::Tsc) => once(state, START, PUSHED),
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
pub(super) fn branch(insn: &Instruction, state: &mut State, taken: bool) -> Step {
    use ConditionCode as C;
    use effect::{
        ABOVE, BELOW, DEEPER, DUE, FOUND, HAS_ROOM, LOST, NO_ROOM, NOT_DEEPER, NOT_DUE, NOT_FOUND,
        OTHER, OTHER_TARGET, ROOM, SAME_TARGET, TOP,
    };
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
