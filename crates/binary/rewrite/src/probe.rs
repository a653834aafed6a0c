//! The machine code of probes.
//!
//! A probe is inlined where it stands and may write only registers that are dead there; where
//! too few are, it saves and restores on the stack. At a function's entry and exits nothing below
//! the stack pointer is in use, so pushing is safe. Everything a probe reads or writes lies in
//! the thread block, reached through `gs`, so that its data is far from any code.
//!
//! What a signal may interrupt:
//! - A frame of the call-stack mirror is reserved before it is filled, so a handler's frames lie above it.
//! - Accumulators change by single read-modify-write instructions.
//! - Ring room is reserved by one `xadd` before it is stored to.

use std::mem::offset_of;

use fettle_abi::block::{Accumulator, MIRROR, MirrorFrame, RING, ThreadBlock};
use fettle_abi::record::ID_HALF_BITS;
use fettle_abi::ring::RingCursors;
use fettle_code::pointers::BUCKET_BITS;
use fettle_code::{AgentEntry, Depth, Mode, Moment, ProbeFixup, Probes, UserProbe, user_call};
use fettle_isa::asm::{Asm, Condition, gs, gs_at};
use fettle_isa::{Gpr, RegSet};

/// A piece of probe code: what is inlined, and what is out of line.
#[derive(Clone, Debug, Default)]
pub struct Snippet {
    /// Inlined.
    pub code: Vec<u8>,
    /// Places in `code` to be filled in.
    pub fixups: Vec<(u32, ProbeFixup)>,
    /// Out of line; reached by fixups of `code` only.
    pub cold: Vec<u8>,
    /// Places in `cold` to be filled in.
    pub cold_fixups: Vec<(u32, ProbeFixup)>,
    /// Changes of the stack pointer's distance from where the snippet began: offsets in `code`
    /// and bytes pushed from there on.
    pub pushed: Vec<(u32, u32)>,
    /// The same for `cold`, from its start on.
    pub cold_pushed: Vec<(u32, u32)>,
}

const MIRROR_USED: i32 = offset_of!(ThreadBlock, mirror_used) as i32;
const TOP_STACK_POINTER: i32 = offset_of!(ThreadBlock, top_stack_pointer) as i32;
const ENDED: i32 = offset_of!(ThreadBlock, ended) as i32;
const RESERVED: i32 = (offset_of!(ThreadBlock, ring) + offset_of!(RingCursors, reserved)) as i32;
const LIMIT: i32 = (offset_of!(ThreadBlock, ring) + offset_of!(RingCursors, limit)) as i32;
const FRAME: i32 = size_of::<MirrorFrame>() as i32;
const START: i32 = MIRROR as i32 + offset_of!(MirrorFrame, start) as i32;
const STACK_POINTER: i32 = MIRROR as i32 + offset_of!(MirrorFrame, stack_pointer) as i32;
const CHILD: i32 = MIRROR as i32 + offset_of!(MirrorFrame, child_ticks) as i32;
const NUMBER: i32 = MIRROR as i32 + offset_of!(MirrorFrame, function) as i32;
const CHILDREN: i32 = MIRROR as i32 + offset_of!(MirrorFrame, children) as i32;
const ENDED_BEFORE: i32 = MIRROR as i32 + offset_of!(MirrorFrame, ended_before) as i32;
/// Field of the accumulator that [`Mode::Count`] counts calls in of functions that are always left.
const PASSES_FIELD: u32 = SELF_FIELD;
/// Field of the accumulator that [`Mode::Count`] counts exits in.
const EXITS_FIELD: u32 = offset_of!(Accumulator, total_ticks) as u32;
const CALLS_FIELD: u32 = offset_of!(Accumulator, calls) as u32;
const TOTAL_FIELD: u32 = offset_of!(Accumulator, total_ticks) as u32;
const SELF_FIELD: u32 = offset_of!(Accumulator, self_ticks) as u32;
const CHILDREN_FIELD: u32 = offset_of!(Accumulator, children) as u32;
const BELOW_FIELD: u32 = offset_of!(Accumulator, below) as u32;
const SAMPLING_FIELD: u32 = offset_of!(Accumulator, sampling) as u32;

/// Writes one snippet.
struct Builder {
    asm: Asm,
    fixups: Vec<(u32, ProbeFixup)>,
    cold: Asm,
    cold_fixups: Vec<(u32, ProbeFixup)>,
    pushed: Vec<(u32, u32)>,
    depth: u32,
    /// Operands of the agent on the stack, by offset in `cold`.
    cold_operands: Vec<(u32, u32)>,
    /// Registers that may be written, and are not in use by the snippet.
    free: RegSet,
    /// What to do at the end, in reverse order.
    undo: Vec<Undo>,
}

enum Undo {
    Move { to: Gpr, from: Gpr },
    Pop(Gpr),
    PopFlags,
}

impl Builder {
    fn new(dead: RegSet) -> Builder {
        Builder {
            asm: Asm::default(),
            fixups: Vec::new(),
            cold: Asm::default(),
            cold_fixups: Vec::new(),
            pushed: Vec::new(),
            depth: 0,
            cold_operands: Vec::new(),
            free: dead.minus(RegSet::of(&[Gpr::Rsp, Gpr::R12])),
            undo: Vec::new(),
        }
    }

    fn fix(&mut self, at: usize, fixup: ProbeFixup) {
        self.fixups.push((at as u32, fixup));
    }

    fn fix_cold(&mut self, at: usize, fixup: ProbeFixup) {
        self.cold_fixups.push((at as u32, fixup));
    }

    fn set_depth(&mut self, depth: u32) {
        self.depth = depth;
        self.pushed.push((self.asm.here() as u32, depth));
    }

    fn push(&mut self, reg: Gpr) {
        self.asm.push(reg);
        self.set_depth(self.depth + 8);
        self.undo.push(Undo::Pop(reg));
    }

    /// Makes the flags free to write.
    fn free_flags(&mut self) {
        if !self.free.has_flags() {
            self.asm.pushf();
            self.set_depth(self.depth + 8);
            self.undo.push(Undo::PopFlags);
        }
    }

    /// Registers that the snippet needs by name: pushed where they are not free, unless another
    /// free register can hold their value.
    fn free_these(&mut self, registers: &[Gpr], spare: &[Gpr]) {
        let mut spares =
            spare.iter().copied().filter(|r| self.free.contains(*r)).collect::<Vec<_>>();
        spares.retain(|r| !registers.contains(r));
        // Pushes first: what is moved to a register needs no stack.
        let mut moves = Vec::new();
        for register in registers {
            if self.free.contains(*register) {
                continue;
            }
            match spares.pop() {
                Some(to) => moves.push((*register, to)),
                None => self.push(*register),
            }
        }
        for (register, to) in moves {
            self.asm.mov(to, register);
            self.free = self.free.minus(RegSet::of(&[to]));
            self.undo.push(Undo::Move { to: register, from: to });
        }
    }

    /// A register to work with other than those of `not`.
    fn scratch(&mut self, not: &[Gpr]) -> Gpr {
        const ORDER: [Gpr; 8] =
            [Gpr::Rcx, Gpr::Rsi, Gpr::Rdi, Gpr::R8, Gpr::R9, Gpr::R10, Gpr::R11, Gpr::Rbx];
        let candidates = || ORDER.into_iter().filter(|r| !not.contains(r));
        let register = match candidates().find(|r| self.free.contains(*r)) {
            Some(register) => register,
            None => {
                let register = candidates().next_back().expect("more registers than are in use");
                self.push(register);
                register
            }
        };
        self.free = self.free.minus(RegSet::of(&[register]));
        register
    }

    fn finish(mut self) -> Snippet {
        // Cold parts run with all that the inline part pushed.
        let mut cold_pushed = vec![(0, self.depth)];
        cold_pushed.extend(self.cold_operands.iter().map(|(at, n)| (*at, self.depth + n)));
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Move { to, from } => self.asm.mov(to, from),
                Undo::Pop(reg) => {
                    self.asm.pop(reg);
                    self.set_depth(self.depth - 8);
                }
                Undo::PopFlags => {
                    self.asm.popf();
                    self.set_depth(self.depth - 8);
                }
            }
        }
        Snippet {
            code: self.asm.bytes,
            fixups: self.fixups,
            cold: self.cold.bytes,
            cold_fixups: self.cold_fixups,
            pushed: self.pushed,
            cold_pushed,
        }
    }

    /// Leaves the time-stamp counter in `rax`; writes `rdx` and the flags.
    fn timestamp(&mut self) {
        self.asm.rdtsc();
        self.asm.shl(Gpr::Rdx, 32);
        self.asm.or(Gpr::Rax, Gpr::Rdx);
    }
}

const SPARES: [Gpr; 7] = [Gpr::R11, Gpr::R10, Gpr::R9, Gpr::R8, Gpr::Rdi, Gpr::Rsi, Gpr::Rcx];

/// The probe at a function's entry; `dead` is what it may write.
pub fn entry(probes: Probes, dead: RegSet) -> Snippet {
    let mut b = Builder::new(dead);
    match probes.mode {
        _ if probes.by_agent() => {
            push_inline(&mut b, probes.arguments.at_entry());
            let at = push_inline(&mut b, 0);
            b.fix(at, ProbeFixup::Number);
            call_agent_inline(&mut b, AgentEntry::Enter);
        }
        Mode::Count => count(&mut b, CALLS_FIELD),
        Mode::User => user_probe(&mut b, probes.user_probe, Moment::Enters),
        Mode::Locks => {
            let at = push_inline(&mut b, 0);
            b.fix(at, ProbeFixup::Number);
            call_agent_inline(&mut b, AgentEntry::LockEnter);
        }
        Mode::Blocks | Mode::Edges | Mode::Cpu | Mode::Plain => {}
        Mode::Time | Mode::Events => timed_entry(&mut b, probes.depth),
        Mode::Sample => {
            b.free_flags();
            let at = b.asm.dec32(gs(0));
            b.fix(at, ProbeFixup::Accumulator(SAMPLING_FIELD));
            let at = b.asm.jcc(Condition::Negative);
            b.fix(at, ProbeFixup::OutOfLine(0));
            ask_for_sample(&mut b, AgentEntry::SampleEntry);
        }
    }
    b.finish()
}

/// The probe at the entry of a function that is always left, where nothing but calls is counted;
/// there is none at its exits. `dead` is what it may write.
pub fn pass(dead: RegSet) -> Snippet {
    let mut b = Builder::new(dead);
    count(&mut b, PASSES_FIELD);
    b.finish()
}

/// Counts in this field of the accumulator.
fn count(b: &mut Builder, field: u32) {
    b.free_flags();
    let at = b.asm.inc(gs(0));
    b.fix(at, ProbeFixup::Accumulator(field));
}

/// Out of line, notifies the agent of a call that it may sample: how far the stack pointer is from the
/// entry's, and the function.
fn ask_for_sample(b: &mut Builder, entry: AgentEntry) {
    let back = b.asm.here() as u32;
    call_agent_of(b, entry);
    let at = b.cold.jmp();
    b.fix_cold(at, ProbeFixup::Inline(back));
}

/// Pushes an operand of the agent; returns the offset of the immediate.
fn push_imm(b: &mut Builder, imm: u32) -> usize {
    let at = b.cold.push_imm32(imm);
    operand(b);
    at
}

/// Notes that an operand was pushed.
fn operand(b: &mut Builder) {
    let before = b.cold_operands.last().map_or(0, |(_, n)| *n);
    b.cold_operands.push((b.cold.here() as u32, before + 8));
}

/// Calls the agent with the function's number and what the probe has pushed.
fn call_agent_of(b: &mut Builder, entry: AgentEntry) {
    push_imm(b, b.depth);
    let at = push_imm(b, 0);
    b.fix_cold(at, ProbeFixup::Number);
    call_agent(b, entry);
}

/// Calls the agent, which takes its operands off.
fn call_agent(b: &mut Builder, entry: AgentEntry) {
    let at = b.cold.call();
    b.fix_cold(at, ProbeFixup::Agent(entry));
    b.cold_operands.push((b.cold.here() as u32, 0));
}

/// Pushes an operand of the agent, inlined; returns the offset of the immediate.
fn push_inline(b: &mut Builder, imm: u32) -> usize {
    let at = b.asm.push_imm32(imm);
    b.set_depth(b.depth + 8);
    at
}

/// Calls the agent from inlined code; it takes off all that was pushed.
fn call_agent_inline(b: &mut Builder, entry: AgentEntry) {
    let at = b.asm.call();
    b.fix(at, ProbeFixup::Agent(entry));
    b.set_depth(0);
}

fn user_probe(b: &mut Builder, user_probe: Option<&UserProbe>, moment: Moment) {
    let Some(user_probe) = user_probe else { return };
    let Some(reported) = user_call(user_probe, moment) else { return };
    let function = if moment == Moment::Enters { &user_probe.enter } else { &user_probe.leave };
    let inline = function.as_ref().and_then(|f| f.inline.as_ref());
    if let Some(inline) = inline.filter(|i| moment != Moment::TailCalls || !i.reads_result) {
        if inline.writes.has_flags() {
            b.free_flags();
        }
        let taken: Vec<Gpr> = inline.writes.registers().filter(|r| !b.free.contains(*r)).collect();
        taken.into_iter().for_each(|register| b.push(register));
        let start = b.asm.here();
        b.asm.bytes.extend_from_slice(&inline.code);
        for (at, field) in &inline.fixups {
            b.fix(start + *at as usize, ProbeFixup::Accumulator(*field));
        }
        return;
    }
    push_inline(b, reported);
    let at = push_inline(b, 0);
    b.fix(at, ProbeFixup::Number);
    call_agent_inline(
        b,
        if user_probe.vectors { AgentEntry::UserVectors } else { AgentEntry::User },
    );
}

fn timed_entry(b: &mut Builder, depth: Depth) {
    b.free_flags();
    b.free_these(&[Gpr::Rax, Gpr::Rdx], &SPARES);
    // The clock is read first: read last, behind the stores, it takes 1.5 ns more of each call, and
    // what it measures of the probe is known and taken out either way.
    b.timestamp();
    let p = Gpr::Rdx;
    b.asm.load32(p, gs(MIRROR_USED));
    b.asm.cmp_imm32(p, depth.limit());
    let no_room = b.asm.jcc(Condition::AboveOrEqual);
    b.asm.add_imm8(gs(MIRROR_USED), FRAME as i8);
    b.asm.store(gs_at(p, START), Gpr::Rax);
    if b.depth == 0 {
        b.asm.store(gs_at(p, STACK_POINTER), Gpr::Rsp);
    } else {
        // Adding to what was only just stored would have a load wait for a store, for 2 ns.
        b.asm.lea(Gpr::Rax, Gpr::Rsp, b.depth as i8);
        b.asm.store(gs_at(p, STACK_POINTER), Gpr::Rax);
    }
    b.asm.store_imm(gs_at(p, CHILD), 0);
    // No children: that is the upper half.
    let (_, at) = b.asm.store_imm(gs_at(p, NUMBER), 0);
    b.fix(at, ProbeFixup::Number);
    b.asm.load(Gpr::Rax, gs(ENDED));
    b.asm.store(gs_at(p, ENDED_BEFORE), Gpr::Rax);
    let end = b.asm.here() as u32;
    if depth == Depth::ALL {
        b.fix(no_room, ProbeFixup::OutOfLine(0));
        // The agent counts it, and makes room if calls were left without an exit.
        call_agent(b, AgentEntry::Full);
        let at = b.cold.jmp();
        b.fix_cold(at, ProbeFixup::Inline(end));
    } else {
        b.fix(no_room, ProbeFixup::Inline(end));
    }
}

/// The probe before a function's exit, which `returns` to the caller or goes on elsewhere; `dead`
/// is what it may write.
pub fn exit(probes: Probes, returns: bool, dead: RegSet) -> Snippet {
    let mut b = Builder::new(dead);
    match probes.mode {
        _ if probes.by_agent() => {
            push_inline(&mut b, probes.arguments.at_exit(returns));
            let at = push_inline(&mut b, 0);
            b.fix(at, ProbeFixup::Number);
            call_agent_inline(&mut b, AgentEntry::Leave);
        }
        Mode::Count => count(&mut b, EXITS_FIELD),
        Mode::User if returns => user_probe(&mut b, probes.user_probe, Moment::Returns),
        Mode::User => user_probe(&mut b, probes.user_probe, Moment::TailCalls),
        Mode::Blocks | Mode::Edges | Mode::Cpu | Mode::Plain => {}
        Mode::Time => timed_exit(&mut b, probes.depth, false),
        Mode::Events => timed_exit(&mut b, probes.depth, true),
        Mode::Sample => exit_if_expected(&mut b, AgentEntry::SampleExit),
        // A thread that goes on elsewhere has no answer yet.
        Mode::Locks if returns => exit_if_expected(&mut b, AgentEntry::LockLeave),
        Mode::Locks => {}
    }
    b.finish()
}

/// Calls the agent out of line where an entry has asked for this exit, or one further out.
fn exit_if_expected(b: &mut Builder, entry: AgentEntry) {
    b.free_flags();
    if b.depth == 0 {
        b.asm.cmp(Gpr::Rsp, gs(TOP_STACK_POINTER));
    } else {
        let q = b.scratch(&[]);
        b.asm.lea(q, Gpr::Rsp, b.depth as i8);
        b.asm.cmp(q, gs(TOP_STACK_POINTER));
    }
    let at = b.asm.jcc(Condition::AboveOrEqual);
    b.fix(at, ProbeFixup::OutOfLine(0));
    ask_for_sample(b, entry);
}

fn timed_exit(b: &mut Builder, limit: Depth, record: bool) {
    b.free_flags();
    let p = b.scratch(&[Gpr::Rax, Gpr::Rdx]);
    let position = record.then(|| b.scratch(&[Gpr::Rax, Gpr::Rdx, p]));
    b.free_these(&[Gpr::Rax, Gpr::Rdx], &SPARES);

    b.timestamp();
    let retry = b.asm.here() as u32;
    b.asm.load32(p, gs(MIRROR_USED));
    if b.depth == 0 {
        b.asm.cmp(Gpr::Rsp, gs_at(p, STACK_POINTER - FRAME));
    } else {
        b.asm.lea(Gpr::Rdx, Gpr::Rsp, b.depth as i8);
        b.asm.cmp(Gpr::Rdx, gs_at(p, STACK_POINTER - FRAME));
    }
    let at = b.asm.jcc(Condition::NotEqual);
    b.fix(at, ProbeFixup::OutOfLine(0));

    // From here on `rax` is the duration.
    if record {
        b.asm.load(Gpr::Rdx, gs_at(p, START - FRAME));
        b.asm.sub_register(Gpr::Rax, Gpr::Rdx);
    } else {
        b.asm.sub(Gpr::Rax, gs_at(p, START - FRAME));
    }
    b.asm.add_to(gs_at(p, CHILD - 2 * FRAME), Gpr::Rax);
    let at = b.asm.add_to(gs(0), Gpr::Rax);
    b.fix(at, ProbeFixup::Accumulator(TOTAL_FIELD));
    let at = b.asm.inc(gs(0));
    b.fix(at, ProbeFixup::Accumulator(CALLS_FIELD));

    let mut ring_full = None;
    if let Some(x) = position {
        b.asm.mov_imm32(x, 16);
        b.asm.xadd(gs(RESERVED), x);
        let again = b.asm.here() as u32;
        b.asm.cmp(x, gs(LIMIT));
        let at = b.asm.jcc(Condition::AboveOrEqual);
        ring_full = Some((at, again, x));
        b.asm.and_imm32(x, 0);
        b.fix(b.asm.here() - 4, ProbeFixup::RingMask);
        b.asm.shl(Gpr::Rdx, ID_HALF_BITS as u8);
        let at = b.asm.or_imm32(Gpr::Rdx, 0);
        b.fix(at, ProbeFixup::IdHigh);
        b.asm.store(gs_at(x, RING as i32), Gpr::Rdx);
        b.asm.mov(Gpr::Rdx, Gpr::Rax);
        b.asm.shl(Gpr::Rdx, ID_HALF_BITS as u8);
        let at = b.asm.or_imm32(Gpr::Rdx, 0);
        b.fix(at, ProbeFixup::IdLow);
        b.asm.store(gs_at(x, RING as i32 + 8), Gpr::Rdx);
    }
    let after_record = b.asm.here() as u32;
    b.asm.sub(Gpr::Rax, gs_at(p, CHILD - FRAME));
    let at = b.asm.add_to(gs(0), Gpr::Rax);
    b.fix(at, ProbeFixup::Accumulator(SELF_FIELD));
    end_call(b, p);
    let end = b.asm.here() as u32;

    if limit != Depth::ALL {
        // As a rule it is the last that was pushed, and lies above a call too deep to have one.
        let at = b.cold.jcc(Condition::Below);
        b.fix_cold(at, ProbeFixup::Inline(end));
    }
    // Another frame is on top: the agent closes what was left, or finds that none is ours.
    call_agent_of(b, AgentEntry::Exit);
    let at = b.cold.jcc(Condition::Equal);
    b.fix_cold(at, ProbeFixup::Inline(retry));
    let at = b.cold.jmp();
    b.fix_cold(at, ProbeFixup::Inline(end));
    if let Some((at, again, x)) = ring_full {
        let here = b.cold.here() as u32;
        b.fix(at, ProbeFixup::OutOfLine(here));
        // The agent is given the position and says whether it may be stored to now.
        b.cold.push(x);
        operand(b);
        call_agent(b, AgentEntry::Ring);
        let at = b.cold.jcc(Condition::Equal);
        b.fix_cold(at, ProbeFixup::Inline(again));
        let at = b.cold.jmp();
        b.fix_cold(at, ProbeFixup::Inline(after_record));
    }
}

/// Pops the call on top of the call-stack mirror, of which `p` is in use, and adds up how many calls it
/// made and how many there were below it: probes' cost in its times follows from that. Writes `rdx`.
fn end_call(b: &mut Builder, p: Gpr) {
    b.asm.load32(Gpr::Rdx, gs_at(p, CHILDREN - FRAME));
    let at = b.asm.add_to(gs(0), Gpr::Rdx);
    b.fix(at, ProbeFixup::Accumulator(CHILDREN_FIELD));
    b.asm.load(Gpr::Rdx, gs(ENDED));
    b.asm.sub(Gpr::Rdx, gs_at(p, ENDED_BEFORE - FRAME));
    let at = b.asm.add_to(gs(0), Gpr::Rdx);
    b.fix(at, ProbeFixup::Accumulator(BELOW_FIELD));
    b.asm.inc(gs(ENDED));
    b.asm.inc32(gs_at(p, CHILDREN - 2 * FRAME));
    b.asm.add_imm8(gs(MIRROR_USED), -FRAME as i8);
}

/// The probe at a place that an exception or `longjmp` may have come to.
pub fn left() -> Snippet {
    let mut asm = Asm::default();
    let at = asm.call();
    Snippet {
        code: asm.bytes,
        fixups: vec![(at as u32, ProbeFixup::Agent(AgentEntry::Left))],
        ..Snippet::default()
    }
}

/// The probe that counts where an indirect call leads, which is what `target` holds, by a
/// table whose first counter is `table`; `dead` is what it may write. What it saves goes below the
/// stack pointer, where nothing is in use: the call puts its own things there.
///
/// Threads that count at the same moment may have a target counted as another: what is counted
/// decides where to look, never where to go.
pub fn target(table: u32, target: Gpr, dead: RegSet) -> Snippet {
    let mut b = Builder::new(dead);
    b.free_flags();
    let index = match target {
        Gpr::R11 => Gpr::Rcx,
        _ => Gpr::R11,
    };
    if !b.free.contains(index) {
        b.push(index);
    }
    b.asm.mov(index, target);
    b.asm.and_imm8(index, BUCKET_BITS as i8);
    let at = b.asm.cmp(target, gs_at(index, 0));
    b.fix(at, ProbeFixup::Counter(table));
    let other = b.asm.jcc(Condition::NotEqual);
    b.fix(other, ProbeFixup::OutOfLine(0));
    let at = b.asm.inc(gs_at(index, 0));
    b.fix(at, ProbeFixup::Counter(table + 1));
    let end = b.asm.here() as u32;
    let at = b.cold.store(gs_at(index, 0), target);
    b.fix_cold(at, ProbeFixup::Counter(table));
    let at = b.cold.jmp();
    b.fix_cold(at, ProbeFixup::Inline(end));
    b.finish()
}

/// The probe that counts a block. `red_zone` says that memory below the stack pointer may be in
/// use.
pub fn block(counter: u32, dead: RegSet, red_zone: bool) -> Snippet {
    let mut b = Builder::new(dead);
    if dead.has_flags() {
        let at = b.asm.inc(gs(0));
        b.fix(at, ProbeFixup::Counter(counter));
        return b.finish();
    }
    // `lea` counts without flags, but needs a register.
    let free = SPARES.into_iter().chain([Gpr::Rax, Gpr::Rdx]).find(|r| dead.contains(*r));
    let skip = red_zone && free.is_none();
    if skip {
        b.asm.lea(Gpr::Rsp, Gpr::Rsp, -128);
        b.set_depth(128);
    }
    let r = free.unwrap_or(Gpr::Rax);
    if free.is_none() {
        b.push(r);
    }
    let at = b.asm.load(r, gs(0));
    b.fix(at, ProbeFixup::Counter(counter));
    b.asm.lea(r, r, 1);
    let at = b.asm.store(gs(0), r);
    b.fix(at, ProbeFixup::Counter(counter));
    let mut snippet = b.finish();
    if skip {
        // lea rsp, [rsp + 128]
        snippet.code.extend_from_slice(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
        snippet.pushed.push((snippet.code.len() as u32, 0));
    }
    snippet
}
