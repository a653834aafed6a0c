//! The execution of probe code on symbols.

use fettle_abi::record::ID_HALF_BITS;
use fettle_code::pointers::BUCKET_BITS;
use fettle_code::{AgentEntry, Fixup, ProbeFixup};
use fettle_isa::RegSet;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::shape::{Part, Shape, fixups_in};
use super::symbols::{
    CHILD, CHILDREN, ENDED_BEFORE, F, FLAGS_BIT, FRAME, Fields, LIMIT, MAX_PUSHES, MIRROR_USED,
    NO_ROOM_FROM, Operand, RESERVED, RSP, SAMPLING, STACK_POINTER, START, State, Step,
    TOP_STACK_POINTER, V, Word, added, branch, effect, incremented, kind_of, loaded, number,
    number32, once, store, untouched,
};
use crate::summary::{Depth, Kind, MAX_PARTS, ProbeFault, Summary};

/// An instruction that was executed.
pub(super) struct Executed {
    pub(super) at: u32,
    pub(super) len: u32,
    pub(super) depth: i32,
    /// Place and target of a jump's 32-bit distance; `MAX` for other instructions.
    pub(super) jump: (u32, u32),
}

pub(super) struct Machine<'a> {
    pub(super) code: &'a [u8],
    pub(super) fixups: &'a [(u32, Fixup)],
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) executed: Vec<Executed>,
    pub(super) paths: Vec<u64>,
    pub(super) blocks: Vec<bool>,
    pub(super) clobbers: u32,
    pub(super) counter: Option<u32>,
    /// What the call-stack mirror in use was compared with.
    pub(super) bound: Option<u32>,
    /// What the agent is to record.
    pub(super) reported: Option<u32>,
    pub(super) uses_red_zone: bool,
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        code: &'a [u8],
        fixups: &'a [(u32, Fixup)],
        start: u32,
        end: u32,
    ) -> Machine<'a> {
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
            reported: None,
            uses_red_zone: false,
        }
    }

    pub(super) fn run(&mut self) -> Step {
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
                V::Used => Ok(Operand::Mirror(disp)),
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
        if *self.reported.get_or_insert(u32::from(of)) != u32::from(of) {
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

    /// Instructions that write the flags; returns what the flags say then.
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
                    (V::Tsc, Operand::Mirror(d)) if d == START - FRAME => V::Ticks,
                    (V::Ticks, Operand::Mirror(d)) if d == CHILD - FRAME => V::SelfTicks,
                    (V::Ended, Operand::Mirror(d)) if d == ENDED_BEFORE - FRAME => V::BelowIt,
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
                    (Operand::Block(MIRROR_USED), FRAME) => {
                        once(state, effect::PUSHED, effect::ROOM)?;
                    }
                    (Operand::Block(MIRROR_USED), n) if n == -FRAME => {
                        once(state, effect::POPPED, effect::TOP | effect::SELF | effect::BELOW_IT)?;
                    }
                    _ => return Err(ProbeFault::Memory),
                }
            }
            (Mnemonic::Inc, Memory, _, 8) => {
                incremented(state, self.operand(insn, fixups, state)?)?;
            }
            (Mnemonic::Inc, Memory, _, 4) => match self.operand(insn, fixups, state)? {
                Operand::Mirror(d) if d == CHILDREN - 2 * FRAME => {
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
                    (V::Sp(0), Operand::Mirror(d)) if d == STACK_POINTER - FRAME => {
                        // What an earlier comparison showed is void.
                        use effect::{DEEPER, FOUND, NOT_DEEPER, NOT_FOUND, OTHER, TOP};
                        state.effects &= !(TOP | OTHER | FOUND | NOT_FOUND | DEEPER | NOT_DEEPER);
                        Ok(F::Top)
                    }
                    (V::Own(r), Operand::Bucket(of, Word::Target)) if r == of => {
                        // Nothing was recorded or done before.
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
            | AgentEntry::User
            | AgentEntry::UserVectors => 2,
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
            (AgentEntry::Enter, [V::Number, V::Const(reported)]) if untouched(state) => {
                once(state, effect::ENTERED, 0)?;
                self.reported = Some(reported as u32);
            }
            (AgentEntry::User | AgentEntry::UserVectors, [V::Number, V::Const(reported)])
                if untouched(state) =>
            {
                once(state, effect::OWN, 0)?;
                self.reported = Some(reported as u32);
            }
            (AgentEntry::LockEnter, [V::Number, _]) if untouched(state) => {
                once(state, effect::LOCK, 0)?;
            }
            (AgentEntry::LockLeave, [V::Number, p]) if p == pushed => {
                once(state, effect::LOCK, effect::NOT_DEEPER)?;
                state.flags = F::Any;
            }
            (AgentEntry::Leave, [V::Number, V::Const(reported)]) if untouched(state) => {
                once(state, effect::CLOSED_BY_AGENT, 0)?;
                self.reported = Some(reported as u32);
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
    pub(super) fn shape(mut self) -> Result<(Shape, [u32; MAX_PARTS], Option<u32>), ProbeFault> {
        let kind = kind_of(&self.paths, self.bound, self.reported).ok_or(ProbeFault::Kind)?;
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
