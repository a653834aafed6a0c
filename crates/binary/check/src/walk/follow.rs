//! Control, from the entry and every block on.

use fettle_image::LinkAddr;
use fettle_lift::edges::Place;
use fettle_lift::function::BlockId;

use crate::fault::{CheckError, Fault, fail};
use crate::seen::Step;
use crate::summary::Kind;
use crate::walk::{
    Arrival, BLOCK, Behind, DONE, INDEX, PAD, PADDING, Pair, Range, UNPAIRED, Walk, begin_alike,
};
impl Walk<'_, '_> {
    pub(crate) fn all(&mut self) -> Result<(), CheckError> {
        let (function, emitted) = (self.claim.function, self.claim.emitted);
        self.follow(function.entry.0, 0, Arrival::Entry)?;
        self.drain()?;
        // Whatever jump tables, entry patches and the unwinder lead to.
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

    pub(crate) fn drain(&mut self) -> Result<(), CheckError> {
        while let Some((a, n)) = self.s.work.pop() {
            if !self.is_done(a, n) {
                self.follow(a, n, Arrival::Inside)?;
            }
        }
        Ok(())
    }

    /// Follows both codes from `a` and `n` as far as control goes straight on.
    pub(crate) fn follow(
        &mut self,
        mut a: u64,
        mut n: u32,
        mut arrival: Arrival,
    ) -> Result<(), CheckError> {
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
                    // The call or trap that was last does not return.
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
    pub(crate) fn enter(&mut self, a: u64, mut n: u32, slot: usize) -> Result<u32, CheckError> {
        let mark = self.s.at[slot];
        let is_block = mark & BLOCK != 0;
        // Control that comes by padding, or where none may come, leaves something to be looked at.
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
    pub(crate) fn straight(&mut self, mut a: u64, mut n: u32) -> (u64, u32) {
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
}
