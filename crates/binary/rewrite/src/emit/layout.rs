//! Which pieces a function's rewritten text has, and in which order.

use fettle_code::pointers::COUNTERS;
use fettle_code::{Fixup, Mode, Pointers};
use fettle_image::LinkAddr;
use fettle_isa::{Flow, Gpr, Jump, RegSet};
use fettle_lift::SkipReason;
use fettle_lift::edges::Place;
use fettle_lift::function::{Block, BlockId, Exit};

use super::items::{ColdPart, Destination, Item, Operand, Probe, Promotion};
use super::original_order;
use super::{Writer, is_padding};
use crate::pointer::{self, Source};
use crate::snippets::Wanted;

impl Writer<'_> {
    pub(super) fn lay_out(&mut self) -> Result<(), (SkipReason, LinkAddr)> {
        let function = self.function;
        match self.context.placement.and_then(|p| Some((p, p.of(function)?))) {
            None => {
                let mut order = std::mem::take(&mut self.t.order);
                let found = original_order(function, &mut order);
                let result = found.and_then(|()| self.chunk(&order));
                self.t.order = order;
                result
            }
            Some((placement, _)) if !placement.fits(function) => {
                Err((SkipReason::Order, function.entry))
            }
            Some((placement, chunks)) => {
                self.placed = true;
                chunks.iter().try_for_each(|i| self.chunk(&placement.chunks()[*i].blocks))
            }
        }
    }

    /// Blocks one behind the other, then the out-of-line parts of their probes.
    fn chunk(&mut self, order: &[BlockId]) -> Result<(), (SkipReason, LinkAddr)> {
        let function = self.function;
        let entry = function.entry_block();
        let cold = self.t.cold.len();
        self.cold_range = order.last().map_or(0, |last| self.range_of(*last));
        self.t.items.push(Item::Chunk);
        for (i, id) in order.iter().enumerate() {
            let block = &function.blocks[id.index()];
            if *id == entry {
                let dead = RegSet::ALL.minus(self.liveness.at_start(entry));
                let wanted = match self.passed {
                    true => Wanted::Pass(dead),
                    false => Wanted::Entry(self.wanted.arguments, dead),
                };
                self.probe(wanted, 0, block.insns.start);
                self.count(Place::Entry, *id);
            }
            let padded = !self.placed
                && i > 0
                && block.start.0.is_multiple_of(16)
                && self.follows_padding(*id, order[i - 1]);
            if padded {
                self.t.items.push(Item::Align(16));
            }
            self.t.items.push(Item::Label(*id));
            self.next = order.get(i + 1).copied();
            self.block(*id, block)?;
        }
        for i in cold..self.t.cold.len() {
            self.t.items.push(Item::Cold(i as u32));
            if let ColdPart::Branch { probe: p, .. } = self.t.cold[i] {
                self.t.items.push(Item::Probe(p));
            }
        }
        Ok(())
    }

    fn follows_padding(&self, id: BlockId, previous: BlockId) -> bool {
        let block = &self.function.blocks[id.index()];
        let before = &self.function.blocks[previous.index()];
        let last = &self.function.insns[before.insns.end as usize - 1];
        last.next_ip() != block.start.0 || is_padding(last)
    }

    /// Puts a probe before instruction `at`.
    fn probe(&mut self, wanted: Wanted, counters: u32, at: u32) {
        if let Some(probe) = self.new_probe(wanted, counters, at) {
            self.t.items.push(Item::Probe(probe));
        }
    }

    /// The index of a new probe, with its out-of-line part; `None` if nothing is to be done.
    fn new_probe(&mut self, wanted: Wanted, counters: u32, at: u32) -> Option<u32> {
        let number = self.t.snippets.number(self.wanted, wanted);
        let snippet = self.t.snippets.get(number);
        if snippet.code.is_empty() {
            return None;
        }
        let index = self.t.probes.len() as u32;
        if !snippet.cold.is_empty() {
            self.t.cold.push(ColdPart::OfProbe(index));
        }
        self.t.probes.push(Probe { snippet: number, counters, at, parts: (0, 0) });
        Some(index)
    }

    fn block(&mut self, id: BlockId, block: &Block) -> Result<(), (SkipReason, LinkAddr)> {
        let function = self.function;
        let timed = self.wanted.mode.is_timed();
        if block.landing_pad && timed {
            self.probe(Wanted::Left, 0, block.insns.start);
        }
        self.count(Place::Block(id), id);
        let end = block.insns.end - self.padding_at_end(id, block);
        // Instructions from here on are copied as they are.
        let mut from = block.insns.start;
        for index in block.insns.start..end {
            let facts = function.facts[index as usize];
            if facts.goes_on() {
                continue;
            }
            let last = index + 1 == block.insns.end;
            match function.flow(index as usize) {
                Flow::Return => {
                    self.copy(&mut from, index);
                    self.exit_probe(index, true, self.exits.at_return);
                }
                flow @ (Flow::IndirectJump | Flow::IndirectCall) => {
                    self.copy(&mut from, index);
                    if flow == Flow::IndirectJump && block.exit.is_some() {
                        let live = self.exits.at_tail_call.union(facts.reads());
                        self.exit_probe(index, false, live);
                    }
                    from += u32::from(self.pointer_call(id, index));
                }
                Flow::Jump(to) => {
                    self.copy(&mut from, index);
                    from = index + 1;
                    match block.exit {
                        Some(Exit::TailJump(_)) if last => self.jump_out(index, LinkAddr(to)),
                        _ => self.jump(id, index, to)?,
                    }
                }
                Flow::Branch(to) => {
                    self.copy(&mut from, index);
                    from = index + 1;
                    match block.exit {
                        Some(Exit::TailBranch(_)) if last => {
                            self.branch_out(id, index, LinkAddr(to))?;
                        }
                        _ if self.inverted(id, index, to) => return Ok(()),
                        _ => self.branch(id, index, to)?,
                    }
                    self.not_taken(id);
                }
                Flow::Call(to) => self.call(&mut from, index, LinkAddr(to))?,
                Flow::Next | Flow::Trap | Flow::Stop | Flow::Strange => {}
            }
        }
        self.copy(&mut from, end);
        self.run_on(block);
        self.trap(block);
        if block.falls_through && self.placed && self.next != Some(block.succs[0]) {
            self.t.items.push(Item::Fall { to: block.succs[0], short: true });
        }
        Ok(())
    }

    /// A call, with what stands before it from `from` on, as far as it is not copied as it is.
    fn call(
        &mut self,
        from: &mut u32,
        index: u32,
        to: LinkAddr,
    ) -> Result<(), (SkipReason, LinkAddr)> {
        self.leads_out(index, to)?;
        if let Some(slot) = self.slot_of(index, to) {
            self.copy(from, index);
            *from = index + 1;
            self.t.items.push(Item::Bound { insn: index, slot, calls: true });
        }
        let returns_twice = self.context.returns_twice.binary_search(&to).is_ok();
        if self.wanted.mode.is_timed() && returns_twice {
            self.copy(from, index + 1);
            let next = (index + 1).min(self.function.insns.len() as u32 - 1);
            self.probe(Wanted::Left, 0, next);
        }
        Ok(())
    }

    /// Refuses a call into the middle of the function: a way to learn the program counter, and the
    /// like.
    fn leads_out(&self, index: u32, to: LinkAddr) -> Result<(), (SkipReason, LinkAddr)> {
        let at = LinkAddr(self.function.insns[index as usize].ip());
        match self.function.contains(to) && to != self.function.entry {
            true => Err((SkipReason::StrangeFlow, at)),
            false => Ok(()),
        }
    }

    /// Copies the instructions up to `to` that were not yet, from where `from` is left.
    fn copy(&mut self, from: &mut u32, to: u32) {
        if *from < to {
            self.t.items.push(Item::Copy { from: *from, to });
            *from = to;
        }
    }

    /// Whatever stands before a call or jump through a pointer; true if that is written, too.
    fn pointer_call(&mut self, id: BlockId, index: u32) -> bool {
        if matches!(self.context.pointers, Pointers::Kept) {
            return false;
        }
        if self.promote(id, index) {
            return true;
        }
        self.count_target(id, index);
        false
    }

    /// A conditional jump to the block that now follows becomes one to the block that did,
    /// if neither way is counted.
    fn inverted(&mut self, id: BlockId, index: u32, to: u64) -> bool {
        if !self.placed {
            return false;
        }
        let Some(taken) = self.function.block_at(LinkAddr(to)) else { return false };
        let insn = &self.function.insns[index as usize];
        let next = BlockId(id.0 + 1);
        let counted = [taken, next].iter().any(|b| self.counter(Place::Between(id, *b)).is_some());
        if counted || self.next != Some(taken) || next == taken {
            return false;
        }
        let Some(jump) = Jump::of(insn).inverted() else { return false };
        self.t.items.push(Item::Jump { insn: index, jump, to: next, short: true });
        true
    }

    /// How many instructions at the end of `block` only pad up to the next block.
    fn padding_at_end(&self, id: BlockId, block: &Block) -> u32 {
        let insns = self.function.block_insns(block);
        let aligned = self
            .function
            .blocks
            .get(id.index() + 1)
            .is_some_and(|next| next.start.0.is_multiple_of(16));
        if !block.falls_through || !aligned {
            return 0;
        }
        insns.iter().rev().take_while(|i| is_padding(i)).count() as u32
    }

    fn exit_probe(&mut self, index: u32, returns: bool, live: RegSet) {
        if self.passed {
            return;
        }
        let dead = RegSet::ALL.minus(live);
        self.probe(Wanted::Exit { arguments: self.wanted.arguments, returns, dead }, 0, index);
    }

    /// A jump out of the function.
    fn jump_out(&mut self, index: u32, to: LinkAddr) {
        self.leave_for(index, to);
        self.t.items.push(match self.slot_of(index, to) {
            Some(slot) => Item::Bound { insn: index, slot, calls: false },
            None => Item::JumpOut { insn: index, to },
        });
    }

    /// Where the address lies that instruction `index` leads to, if that is an entry of a procedure
    /// linkage table which only jumps there. What has probes is left as it was.
    fn slot_of(&self, index: u32, to: LinkAddr) -> Option<LinkAddr> {
        let context = self.context;
        // Other lengths have prefixes: calls that the linker may have changed have them to be told by.
        let plain = context.probes.mode == Mode::Plain
            && self.function.insns[index as usize].len() == 5
            && context.returns_twice.binary_search(&to).is_err();
        let entry = context.image.plt_at(to).filter(|entry| plain && entry.start == to)?;
        entry.slot
    }

    /// A jump to where control goes on if a block at the function's end is left without one.
    fn run_on(&mut self, block: &Block) {
        let Some(to) = self.function.runs_on(block) else { return };
        let last = block.insns.end - 1;
        self.leave_for(last, to);
        self.t.items.push(Item::RunOn { insn: last, to });
    }

    /// Puts a trap behind a call, or a system call, at the end of a block that it does not return to.
    fn trap(&mut self, block: &Block) {
        let last = block.insns.end as usize - 1;
        let calls = self.function.facts[last].calls() || self.function.insns[last].is_syscall();
        if calls && !block.falls_through && self.function.runs_on(block).is_none() {
            self.t.items.push(Item::Trap);
        }
    }

    /// The probe where control leaves for another function.
    fn leave_for(&mut self, index: u32, to: LinkAddr) {
        let inputs = self.context.callees.inputs(to);
        self.exit_probe(index, false, self.exits.at_tail_call.union(inputs));
    }

    /// A conditional jump out of the function: through a probe that is put out of line.
    fn branch_out(
        &mut self,
        id: BlockId,
        index: u32,
        to: LinkAddr,
    ) -> Result<(), (SkipReason, LinkAddr)> {
        if !self.function.insns[index as usize].is_jcc_short_or_near() {
            return Err((SkipReason::StrangeFlow, to));
        }
        if self.passed {
            self.t.items.push(Item::BranchOut { insn: index, to });
            return Ok(());
        }
        let inputs = self.context.callees.inputs(to);
        let dead = RegSet::ALL.minus(self.exits.at_tail_call.union(inputs));
        let (wanted, counter) = match self.counter(Place::Leaving(id)) {
            // Arguments are on their way; only the flags are safe to change.
            Some(counter) => {
                let dead = dead.intersection(RegSet::FLAGS);
                (Wanted::Block { dead, red_zone: false }, counter)
            }
            None => (Wanted::Exit { arguments: self.wanted.arguments, returns: false, dead }, 0),
        };
        match self.new_probe(wanted, counter, index) {
            None => self.t.items.push(Item::BranchOut { insn: index, to }),
            Some(probe) => self.through_cold(index, probe, Destination::Function(to)),
        }
        Ok(())
    }

    /// A conditional jump inside the function, with counters on both ways where there are any.
    fn branch(&mut self, id: BlockId, index: u32, to: u64) -> Result<(), (SkipReason, LinkAddr)> {
        let block = &self.function.blocks[id.index()];
        let taken = self.function.succ_at(block, LinkAddr(to));
        match taken.and_then(|taken| Some((taken, self.counter(Place::Between(id, taken))?))) {
            Some((taken, counter)) => {
                let wanted = self.counting(taken);
                let probe = self.new_probe(wanted, counter, self.first_insn(taken));
                let probe = probe.expect("counting takes code");
                self.through_cold(index, probe, Destination::Block(taken));
            }
            None => self.jump(id, index, to)?,
        }
        Ok(())
    }

    /// Counts, where there is a counter, that a conditional jump at the end of block `id` was not
    /// taken.
    fn not_taken(&mut self, id: BlockId) {
        let next = BlockId(id.0 + 1);
        if let Some(counter) = self.counter(Place::Between(id, next)) {
            self.probe(self.counting(next), counter, self.first_insn(next));
        }
    }

    /// A conditional jump that goes through a probe, which is put out of line.
    fn through_cold(&mut self, insn: u32, probe: u32, to: Destination) {
        self.t.cold.push(ColdPart::Branch { probe, to, insn });
        let cold = self.t.cold.len() as u32 - 1;
        self.t.items.push(Item::ToCold { insn, cold });
    }

    /// The indirect calls whose targets are to be counted.
    pub(super) fn counted_pointers(&self) -> Vec<LinkAddr> {
        let mut all = Vec::new();
        if !matches!(self.context.pointers, Pointers::Counted) {
            return all;
        }
        for (b, block) in self.function.blocks.iter().enumerate() {
            let calls =
                block.insns.clone().filter(|i| self.pointer(BlockId(b as u32), *i).is_some());
            all.extend(calls.map(|i| LinkAddr(self.function.insns[i as usize].ip())));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Where instruction `index` of block `id` reads its target from, if it is an indirect call or tail
    /// call that something can be put before; and what that may write.
    fn pointer(&self, id: BlockId, index: u32) -> Option<(Source, RegSet)> {
        let function = self.function;
        let exit = function.blocks[id.index()].exit;
        let image = (self.context.image, self.context.descriptors);
        let source = pointer::source(function, index as usize, exit, image)?;
        let live = self.liveness.before_insn(function, id, index, self.context.callees);
        let free = pointer::FREE.minus(live);
        let fits = match source {
            Source::Register(_) => free.has_flags(),
            Source::Memory => free == pointer::FREE && self.with_operand(index, 0x8b).is_some(),
        };
        fits.then_some((source, free))
    }

    /// The range of the original that a block is in.
    fn range_of(&self, block: BlockId) -> usize {
        let at = self.function.blocks[block.index()].start;
        self.function.ranges.iter().position(|r| r.contains(&at)).unwrap_or(0)
    }

    /// Compares the pointer that instruction `index` calls with the function that it mostly leads
    /// to, if that is asked for and can be done; true if the call is written, too.
    ///
    /// Memory is read by the comparison and, where that fails, once more by the call as it was: as
    /// if the call had come then.
    fn promote(&mut self, id: BlockId, index: u32) -> bool {
        let at = LinkAddr(self.function.insns[index as usize].ip());
        let Pointers::Promoted(targets) = self.context.pointers else { return false };
        let Some(to) = targets.get(&at).copied() else { return false };
        let Some((source, free)) = self.pointer(id, index) else { return false };
        let compare = match source {
            Source::Register(register) => {
                // cmp register, r11
                let bytes = vec![0x4c | register.number() >> 3, 0x39, 0xd8 | register.number() & 7];
                Some(Operand { insn: index, bytes, fix: None })
            }
            // cmp r11, [..]
            Source::Memory => self.with_operand(index, 0x3b),
        };
        let context = self.context;
        let fits = free == pointer::FREE
            && context.probes.mode == Mode::Plain
            && context.callees.inputs(to).intersection(pointer::FREE).is_empty()
            && context.returns_twice.binary_search(&to).is_err()
            && self.range_of(id) == self.cold_range;
        let Some(compare) = compare.filter(|_| fits) else { return false };
        let number = self.t.promotions.len() as u32;
        let tail = self.function.blocks[id.index()].exit == Some(Exit::TailIndirect)
            && self.function.flow(index as usize) == Flow::IndirectJump;
        let cold = self.t.cold.len() as u32;
        self.t.promotions.push(Promotion { insn: index, to, compare, cold, end: 0 });
        self.pointers.push(at);
        if tail {
            self.t.items.push(Item::PromotedTail(number));
        } else {
            self.t.cold.push(ColdPart::Call(number));
            self.t.items.push(Item::Promoted(number));
        }
        !tail
    }

    /// Counts where instruction `index` leads, if it is an indirect call that is counted.
    fn count_target(&mut self, id: BlockId, index: u32) {
        let at = LinkAddr(self.function.insns[index as usize].ip());
        let Pointers::Counted = self.context.pointers else { return };
        let Ok(n) = self.pointers.binary_search(&at) else { return };
        let Some((source, mut free)) = self.pointer(id, index) else { return };
        let target = match source {
            Source::Register(register) => register,
            Source::Memory => {
                // mov r11, [..]
                self.t.operands.extend(self.with_operand(index, 0x8b));
                self.t.items.push(Item::Operand(self.t.operands.len() as u32 - 1));
                free = RegSet::FLAGS;
                Gpr::R11
            }
        };
        let table = self.counters.len() as u32 + n as u32 * COUNTERS;
        self.probe(Wanted::Target { target, dead: free }, table, index);
    }

    /// `opcode r11, [..]` with the operand of instruction `index`.
    fn with_operand(&self, index: u32, opcode: u8) -> Option<Operand> {
        let insn = &self.function.insns[index as usize];
        let call = self.context.image.read(LinkAddr(insn.ip()), insn.len())?;
        let (bytes, field) = pointer::with_operand(call, insn, opcode)?;
        let to = LinkAddr(insn.ip_rel_memory_address());
        // Nothing follows the field.
        let fix = field.map(|field| (field, Fixup::Original { to, after: 0 }));
        Some(Operand { insn: index, bytes, fix })
    }

    pub(super) fn first_insn(&self, block: BlockId) -> u32 {
        self.function.blocks[block.index()].insns.start
    }

    /// The number of the counter that stands at `place`.
    #[inline]
    fn counter(&self, place: Place) -> Option<u32> {
        if self.counters.is_empty() {
            return None;
        }
        self.counters.binary_search(&place).ok().map(|n| n as u32)
    }

    /// Counts at `place`, if there is a counter, before the start of `block`.
    #[inline]
    fn count(&mut self, place: Place, block: BlockId) {
        if let Some(counter) = self.counter(place) {
            self.probe(self.counting(block), counter, self.first_insn(block));
        }
    }

    fn jump(&mut self, id: BlockId, insn: u32, to: u64) -> Result<(), (SkipReason, LinkAddr)> {
        let block = &self.function.blocks[id.index()];
        let Some(to) = self.function.succ_at(block, LinkAddr(to)) else {
            return Err((SkipReason::OverlappingInstructions, LinkAddr(to)));
        };
        let i = &self.function.insns[insn as usize];
        let jump = Jump::of(i);
        if self.placed && jump == Jump::Always && self.next == Some(to) {
            self.t.items.push(Item::Gone { insn, to });
            return Ok(());
        }
        let short = self.placed || i.len() < 5;
        self.t.items.push(Item::Jump { insn, jump, to, short });
        Ok(())
    }

    /// Counts before the start of block `id`.
    fn counting(&self, id: BlockId) -> Wanted {
        let dead = RegSet::ALL.minus(self.liveness.at_start(id));
        // `al` as an argument count may be live where `rax` is not.
        let dead = if dead.is_superset(RegSet::VECTOR_COUNT) {
            dead
        } else {
            dead.minus(RegSet::of(&[Gpr::Rax]))
        };
        // So may `r10`, the static chain of a nested function, up to a call.
        let dead = dead.intersection(RegSet::CALLER_SAVED).minus(RegSet::of(&[Gpr::R10]));
        Wanted::Block { dead, red_zone: self.red_zone }
    }
}
