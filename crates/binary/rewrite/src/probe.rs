//! The machine code of probes.
//!
//! A probe is inlined where it stands and may write only registers that are dead there; where
//! too few are, it saves and restores on the stack. At a function's entry and exits nothing below
//! the stack pointer is in use, so pushing is safe. Everything a probe reads or writes lies in
//! the thread block, reached through `gs`, so that its data is far from any code.
//!
//! What a signal may interrupt:
//! - A shadow frame is reserved before it is filled, so a handler's frames lie above it.
//! - Accumulators change by single read-modify-write instructions.
//! - Ring room is reserved by one `xadd` before it is stored to.

use fettle_abi::block::{Accumulator, RING, SHADOW, SHADOW_BYTES, ShadowFrame, ThreadBlock};
use fettle_abi::record::ID_HALF_BITS;
use fettle_abi::ring::RingCursors;
use fettle_image::LinkAddr;
use fettle_isa::asm::{Asm, Condition, gs, gs_at};
use fettle_isa::{Gpr, RegSet};
use fettle_lift::Function;
use std::borrow::Cow;
use std::collections::HashMap;
use std::mem::offset_of;

use crate::agent;
use crate::arguments::Arguments;
use crate::own::OwnProbe;
use crate::pointer::BUCKET_BITS;

/// What probes measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Mode {
    /// How often functions are entered and left.
    Count,
    /// Calls, total and self time of functions.
    Time,
    /// As [`Mode::Time`], and a record of every call.
    Events,
    /// As [`Mode::Time`] for one call in about 64 of functions that are called often.
    Sample,
    /// As [`Mode::Time`], in processor time of the thread.
    Cpu,
    /// How often each basic block runs.
    Blocks,
    /// How often control goes along each edge between blocks.
    Edges,
    /// What the user's own probe makes of it.
    Own,
    /// Nothing: there are no probes, code is only laid out anew.
    Plain,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 9] = [
        Mode::Events,
        Mode::Time,
        Mode::Cpu,
        Mode::Count,
        Mode::Sample,
        Mode::Blocks,
        Mode::Edges,
        Mode::Own,
        Mode::Plain,
    ];

    /// Its name, for people and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Count => "count",
            Mode::Time => "time",
            Mode::Cpu => "cpu",
            Mode::Events => "events",
            Mode::Sample => "sample",
            Mode::Blocks => "blocks",
            Mode::Edges => "edges",
            Mode::Own => "own",
            Mode::Plain => "plain",
        }
    }

    /// The mode of that name.
    pub fn named(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether functions are measured from entry to exit, on the shadow stack.
    pub const fn is_timed(self) -> bool {
        matches!(self, Mode::Time | Mode::Events | Mode::Sample | Mode::Cpu)
    }

    /// Whether it is counted how many calls were made below each.
    pub const fn counts_below(self) -> bool {
        matches!(self, Mode::Time | Mode::Events | Mode::Cpu)
    }

    /// Whether exits are counted beside entries: [`Accumulator::entries_and_exits`].
    pub const fn counts_exits(self) -> bool {
        matches!(self, Mode::Count)
    }

    /// Whether counters stand in the middle of functions.
    pub const fn has_counters(self) -> bool {
        matches!(self, Mode::Blocks | Mode::Edges)
    }

    /// Whether [`Depth`] can limit it.
    pub const fn has_depth(self) -> bool {
        matches!(self, Mode::Time | Mode::Events)
    }
}

/// How deeply calls are nested that are measured; deeper ones are as if they had no probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Depth(u32);

impl Depth {
    /// As deep as the shadow stack has room.
    pub const ALL: Depth = Depth(SHADOW_BYTES - FRAME as u32);

    /// So many calls; at least one.
    pub fn new(calls: u32) -> Depth {
        // One frame's room is in use from the start on.
        let bytes = calls.max(1).saturating_add(1).saturating_mul(FRAME as u32);
        Depth(bytes.min(Depth::ALL.0))
    }

    /// Bytes of shadow stack in use from which on no frame is pushed.
    pub const fn limit(self) -> u32 {
        self.0
    }
}

/// What the probes of one function do.
#[derive(Clone, Copy, Debug)]
pub struct Probes<'a> {
    /// What they measure.
    pub mode: Mode,
    /// How deeply nested it is measured.
    pub depth: Depth,
    /// What they record of its arguments and result.
    pub arguments: Arguments,
    /// The user's own.
    pub own: Option<&'a OwnProbe>,
}

impl Probes<'_> {
    /// Probes that measure everything, without arguments.
    pub const fn new(mode: Mode) -> Probes<'static> {
        Probes { mode, depth: Depth::ALL, arguments: Arguments::NONE, own: None }
    }

    /// Whether the agent does all of it, because what is to be done is long.
    pub fn by_agent(&self) -> bool {
        self.mode == Mode::Cpu || (self.mode == Mode::Events && !self.arguments.is_none())
    }
}

/// What probes do in a module.
#[derive(Clone, Debug)]
pub struct Probing<'a> {
    /// What they measure.
    pub mode: Mode,
    /// How deeply nested it is measured.
    pub depth: Depth,
    /// Functions whose arguments are recorded, by entry.
    pub arguments: Cow<'a, HashMap<LinkAddr, Arguments>>,
    /// The user's own probe, in the mode of that name.
    pub own: Option<&'a OwnProbe>,
}

impl Probing<'_> {
    /// Probes that measure everything, without arguments.
    pub fn new(mode: Mode) -> Probing<'static> {
        Probing { mode, depth: Depth::ALL, arguments: Cow::default(), own: None }
    }

    /// Whether calls of `function` are counted once for entry and exit: whoever enters it leaves it.
    pub fn counts_once(&self, function: &Function) -> bool {
        self.mode.counts_exits() && function.is_always_left()
    }

    /// What the probes of the function at `entry` do.
    pub fn of(&self, entry: LinkAddr) -> Probes<'_> {
        let arguments = self.arguments.get(&entry).copied().unwrap_or_default();
        Probes { mode: self.mode, depth: self.depth, arguments, own: self.own }
    }
}

/// What a place in emitted code waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeFixup {
    /// 32-bit displacement of a field of the function's accumulator.
    Accumulator(u32),
    /// 32-bit displacement of a counter of the module.
    Counter(u32),
    /// Upper half of the function's identifier, 32-bit immediate.
    IdHigh,
    /// Lower half of the function's identifier, 32-bit immediate.
    IdLow,
    /// Number of the function in the session, 32-bit immediate.
    Number,
    /// Size of the ring less one, 32-bit immediate.
    RingMask,
    /// 32-bit distance to an entry of the agent.
    Agent(AgentEntry),
    /// 32-bit distance to offset `.0` of the probe's inline part.
    Inline(u32),
    /// 32-bit distance to offset `.0` of the probe's part out of line.
    OutOfLine(u32),
}

/// Entries of the agent, in the order of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum AgentEntry {
    /// An exit found another frame than its own on top of the shadow stack.
    Exit = 0,
    /// Frames may have been left by an exception or `longjmp`.
    Left = 1,
    /// The ring is full.
    Ring = 2,
    /// A call to be timed begins.
    SampleEntry = 3,
    /// A call ends that may have been timed, or lasted over a mark.
    SampleExit = 4,
    /// A call begins whose arguments are recorded, or whose clock is not the time-stamp counter.
    Enter = 5,
    /// Such a call ends.
    Leave = 6,
    /// A function of the user's own probe is to run.
    Own = 9,
    /// The same, and it uses vector registers.
    OwnVectors = 10,
    /// The shadow stack has no room for a call.
    Full = 11,
}

/// A piece of probe code: what runs in line, and what is put out of the way.
#[derive(Clone, Debug, Default)]
pub struct Snippet {
    /// In line.
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

const SHADOW_USED: i32 = offset_of!(ThreadBlock, shadow_used) as i32;
const TOP_STACK_POINTER: i32 = offset_of!(ThreadBlock, top_stack_pointer) as i32;
const ENDED: i32 = offset_of!(ThreadBlock, ended) as i32;
const RESERVED: i32 = (offset_of!(ThreadBlock, ring) + offset_of!(RingCursors, reserved)) as i32;
const LIMIT: i32 = (offset_of!(ThreadBlock, ring) + offset_of!(RingCursors, limit)) as i32;
const FRAME: i32 = size_of::<ShadowFrame>() as i32;
const START: i32 = SHADOW as i32 + offset_of!(ShadowFrame, start) as i32;
const STACK_POINTER: i32 = SHADOW as i32 + offset_of!(ShadowFrame, stack_pointer) as i32;
const CHILD: i32 = SHADOW as i32 + offset_of!(ShadowFrame, child_ticks) as i32;
const NUMBER: i32 = SHADOW as i32 + offset_of!(ShadowFrame, function) as i32;
const CHILDREN: i32 = SHADOW as i32 + offset_of!(ShadowFrame, children) as i32;
const ENDED_BEFORE: i32 = SHADOW as i32 + offset_of!(ShadowFrame, ended_before) as i32;
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
        Mode::Own => own(&mut b, probes.own, Moment::Enters),
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

/// Tells the agent out of line of a call that it may sample: how far the stack pointer is from the
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

/// Calls the agent, and tells it which function it is and what the probe has pushed.
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

/// Pushes an operand of the agent in line; returns the offset of the immediate.
fn push_inline(b: &mut Builder, imm: u32) -> usize {
    let at = b.asm.push_imm32(imm);
    b.set_depth(b.depth + 8);
    at
}

/// Calls the agent in line; it takes off all that was pushed.
fn call_agent_inline(b: &mut Builder, entry: AgentEntry) {
    let at = b.asm.call();
    b.fix(at, ProbeFixup::Agent(entry));
    b.set_depth(0);
}

/// When the user's own probe runs; the discriminant is what the agent is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Moment {
    /// At the entry.
    Enters = 0,
    /// Before a return.
    Returns = 1 << 28,
    /// Before a jump to another function.
    TailCalls = 2 << 28,
}

/// What the agent is told of a function of the user's own probe: how far it is from the agent, and
/// the moment. `None` if there is nothing to run.
pub fn own_call(own: &OwnProbe, moment: Moment) -> Option<u32> {
    let function = match moment {
        Moment::Enters => own.enter.as_ref(),
        Moment::Returns | Moment::TailCalls => own.leave.as_ref(),
    };
    Some((agent::own_at() + function?.offset) | moment as u32)
}

fn own(b: &mut Builder, own: Option<&OwnProbe>, moment: Moment) {
    let Some(own) = own else { return };
    let Some(told) = own_call(own, moment) else { return };
    let function = if moment == Moment::Enters { &own.enter } else { &own.leave };
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
    push_inline(b, told);
    let at = push_inline(b, 0);
    b.fix(at, ProbeFixup::Number);
    call_agent_inline(b, if own.vectors { AgentEntry::OwnVectors } else { AgentEntry::Own });
}

fn timed_entry(b: &mut Builder, depth: Depth) {
    b.free_flags();
    b.free_these(&[Gpr::Rax, Gpr::Rdx], &SPARES);
    // The clock is read first: read last, behind the stores, it takes 1.5 ns more of each call, and
    // what it measures of the probe is known and taken out either way.
    b.timestamp();
    let p = Gpr::Rdx;
    b.asm.load32(p, gs(SHADOW_USED));
    b.asm.cmp_imm32(p, depth.limit());
    let no_room = b.asm.jcc(Condition::AboveOrEqual);
    b.asm.add_imm8(gs(SHADOW_USED), FRAME as i8);
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
        Mode::Own if returns => own(&mut b, probes.own, Moment::Returns),
        Mode::Own => own(&mut b, probes.own, Moment::TailCalls),
        Mode::Blocks | Mode::Edges | Mode::Cpu | Mode::Plain => {}
        Mode::Time => timed_exit(&mut b, probes.depth, false),
        Mode::Events => timed_exit(&mut b, probes.depth, true),
        Mode::Sample => {
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
            ask_for_sample(&mut b, AgentEntry::SampleExit);
        }
    }
    b.finish()
}

fn timed_exit(b: &mut Builder, limit: Depth, record: bool) {
    b.free_flags();
    let p = b.scratch(&[Gpr::Rax, Gpr::Rdx]);
    let position = record.then(|| b.scratch(&[Gpr::Rax, Gpr::Rdx, p]));
    b.free_these(&[Gpr::Rax, Gpr::Rdx], &SPARES);

    b.timestamp();
    let retry = b.asm.here() as u32;
    b.asm.load32(p, gs(SHADOW_USED));
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

/// Takes the call on top off the shadow stack, of which `p` is in use, and adds up how many calls it
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
    b.asm.add_imm8(gs(SHADOW_USED), -FRAME as i8);
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

/// The probe that counts where a call through a pointer leads, which is what `target` holds, by a
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

/// The probe that counts a block. `red_zone` tells that memory below the stack pointer may be in
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
