//! From pieces to bytes: sizes, short and long jumps, fields that wait for an address.

use fettle_code::{Emitted, Fixup, Inserted, UnwindPoint};
use fettle_image::{Image, LinkAddr};
use fettle_isa::{Flow, Insn, Jump};
use fettle_lift::function::{BlockId, Function};
use fettle_lift::{SkipReason, TableKind};

use super::append::Append;
use super::items::{CALL, ColdPart, Destination, Item, JUMP_OUT, Promotion, THROUGH_SLOT, TRAP};
use super::{Tools, Writer};

impl Writer<'_> {
    /// The field of `insn` that depends on where it stands, if there is one.
    fn address_fixup(&self, insn: &Insn) -> Option<(u8, Fixup)> {
        // Bytes of immediate operand that follow the distance.
        let after = |field: u8| insn.len() as u8 - field - 4;
        if let Some(t) = self.t.copies.named_by(insn) {
            if insn.is_ip_rel_memory_operand() {
                return Some((insn.ip_rel_field(), Fixup::Table(t)));
            }
            debug_assert_eq!(self.function.tables[t as usize].kind, TableKind::Absolute);
            if self.context.low_addresses {
                // The displacement is the last field of `jmp [table + i*8]` and `mov` alike.
                return Some((insn.len() as u8 - 4, Fixup::TableAddress(t)));
            }
        }
        if insn.is_ip_rel_memory_operand() {
            let field = insn.ip_rel_field();
            let to = LinkAddr(insn.ip_rel_memory_address());
            return Some((field, Fixup::Original { to, after: after(field) }));
        }
        None
    }

    /// The address of instruction `from`, and the bytes from it up to instruction `to`: all lie in
    /// one block.
    fn copied(&self, from: u32, to: u32) -> (u64, u32) {
        let insns = &self.function.insns;
        let start = insns[from as usize].ip();
        (start, (insns[to as usize - 1].next_ip() - start) as u32)
    }

    fn size(&self, item: &Item, offset: u32) -> u32 {
        match item {
            Item::Copy { from, to } => self.copied(*from, *to).1,
            Item::Operand(o) => self.t.operands[*o as usize].bytes.len() as u32,
            Item::Promoted(p) => self.t.promotions[*p as usize].guard_size() + CALL,
            Item::PromotedTail(p) => self.t.promotions[*p as usize].guard_size(),
            Item::Jump { jump, short, .. } => jump.size(*short),
            Item::Fall { short, .. } => Jump::Always.size(*short),
            Item::ToCold { insn, .. } | Item::BranchOut { insn, .. } => {
                Jump::of(&self.function.insns[*insn as usize]).size(false)
            }
            Item::Probe(p) => self.t.snippet(&self.t.probes[*p as usize]).code.len() as u32,
            Item::Align(to) => offset.next_multiple_of(*to) - offset,
            Item::Label(_) | Item::Chunk | Item::Gone { .. } => 0,
            Item::JumpOut { .. } | Item::RunOn { .. } => JUMP_OUT,
            Item::Trap => 1,
            Item::Bound { .. } => THROUGH_SLOT,
            Item::Cold(c) => match &self.t.cold[*c as usize] {
                ColdPart::OfProbe(p) => {
                    self.t.snippet(&self.t.probes[*p as usize]).cold.len() as u32
                }
                // The jump itself is written after the probe; see `encode`.
                ColdPart::Branch { .. } => 0,
                ColdPart::Call(p) => {
                    let insn = self.t.promotions[*p as usize].insn;
                    self.function.insns[insn as usize].len() as u32 + JUMP_OUT
                }
            },
        }
    }

    /// Notes for each block the chunk that it is in.
    fn find_chunks(&mut self) {
        let Tools { items, chunks, .. } = &mut *self.t;
        chunks.clear();
        chunks.resize(self.function.blocks.len(), 1);
        if !self.placed {
            return;
        }
        let mut chunk = 0;
        for item in items {
            match item {
                Item::Chunk => chunk += 1,
                Item::Label(b) => chunks[b.index()] = chunk,
                _ => {}
            }
        }
    }

    pub(super) fn encode(mut self) -> Result<Emitted, (SkipReason, LinkAddr)> {
        self.find_chunks();
        let chunks = std::mem::take(&mut self.t.chunks);
        let mut offsets = std::mem::take(&mut self.t.offsets);
        let result = self.encode_in(&mut offsets, &chunks);
        (self.t.chunks, self.t.offsets) = (chunks, offsets);
        result
    }

    fn encode_in(
        &mut self,
        offsets: &mut Vec<u32>,
        chunks: &[u32],
    ) -> Result<Emitted, (SkipReason, LinkAddr)> {
        offsets.clear();
        offsets.resize(self.t.items.len() + 1, 0);
        let mut out = self.t.start();
        out.block_offsets.resize(self.function.blocks.len(), 0);
        let block_offsets = &mut out.block_offsets;
        loop {
            let mut offset = 0;
            let mut pending_exit = 0;
            for (i, item) in self.t.items.iter().enumerate() {
                offsets[i] = offset;
                offset += self.size(item, offset) + std::mem::take(&mut pending_exit);
                match item {
                    Item::Label(b) => block_offsets[b.index()] = offset,
                    // The probe that follows carries the jump out behind it.
                    Item::Cold(c) => {
                        if let ColdPart::Branch { .. } = self.t.cold[*c as usize] {
                            pending_exit = JUMP_OUT;
                        }
                    }
                    _ => {}
                }
            }
            offsets[self.t.items.len()] = offset;
            let mut grown = false;
            let mut chunk = 0;
            for (i, item) in self.t.items.iter_mut().enumerate() {
                let (jump, to, short) = match item {
                    Item::Jump { jump, to, short, .. } => (*jump, *to, short),
                    Item::Fall { to, short } => (Jump::Always, *to, short),
                    Item::Chunk => {
                        chunk += 1;
                        continue;
                    }
                    _ => continue,
                };
                if !*short {
                    continue;
                }
                let end = i64::from(offsets[i]) + i64::from(jump.size(true));
                let distance = i64::from(block_offsets[to.index()]) - end;
                if i8::try_from(distance).is_err() || chunks[to.index()] != chunk {
                    *short = false;
                    grown = true;
                }
            }
            if !grown {
                break;
            }
        }
        self.write(offsets, chunks, out)
    }

    /// Notes where blocks end, and where the parts of probes, the out-of-line parts and promotions came to
    /// lie.
    fn note_places(&mut self, offsets: &[u32], block_ends: &mut Vec<u32>) {
        let Tools { items, probes, cold, promotions, cold_at, .. } = &mut *self.t;
        cold_at.clear();
        cold_at.resize(cold.len(), 0);
        block_ends.resize(self.function.blocks.len(), 0);
        let mut block: Option<BlockId> = None;
        for (item, ends) in items.iter().zip(offsets.windows(2)) {
            let ends_block =
                matches!(item, Item::Label(_) | Item::Align(_) | Item::Chunk | Item::Cold(_));
            if let Some(block) = block.take_if(|_| ends_block) {
                block_ends[block.index()] = ends[0];
            }
            match item {
                Item::Label(b) => block = Some(*b),
                Item::Probe(p) => probes[*p as usize].parts.0 = ends[0],
                Item::Promoted(p) => promotions[*p as usize].end = ends[1],
                Item::Cold(c) => {
                    cold_at[*c as usize] = ends[0];
                    if let ColdPart::OfProbe(p) = &cold[*c as usize] {
                        probes[*p as usize].parts.1 = ends[0];
                    }
                }
                _ => {}
            }
        }
        if let Some(block) = block {
            block_ends[block.index()] = offsets[self.t.items.len()];
        }
    }

    fn write(
        &mut self,
        offsets: &[u32],
        chunks: &[u32],
        mut out: Emitted,
    ) -> Result<Emitted, (SkipReason, LinkAddr)> {
        let function = self.function;
        out.code.reserve_exact(offsets[self.t.items.len()] as usize);
        out.insn_offsets.resize(function.insns.len(), u32::MAX);
        out.counters = std::mem::take(&mut self.counters);
        out.pointers = std::mem::take(&mut self.pointers);
        out.pointers.sort_unstable();
        self.note_places(offsets, &mut out.block_ends);
        let cold_at = &self.t.cold_at;
        let ip = |insn: u32| LinkAddr(function.insns[insn as usize].ip());
        let mut original_code = OriginalCode { image: self.context.image, start: 0, bytes: &[] };
        let mut pending_exit = None;
        for (i, item) in self.t.items.iter().enumerate() {
            let offset = offsets[i];
            debug_assert_eq!(out.code.len() as u32, offset);
            match item {
                Item::Copy { from, to } => {
                    let bytes = original_code
                        .of(function, self.copied(*from, *to))
                        .ok_or((SkipReason::Undecodable, ip(*from)))?;
                    self.write_copies(&mut out, bytes, (*from, *to));
                }
                Item::Operand(o) => {
                    let operand = &self.t.operands[*o as usize];
                    out.point(offset, ip(operand.insn), 0);
                    out.operand(operand);
                }
                Item::Promoted(p) | Item::PromotedTail(p) => {
                    let promotion = &self.t.promotions[*p as usize];
                    out.stands(promotion.insn, offset, ip(promotion.insn));
                    match matches!(item, Item::Promoted(_)) {
                        true => out.promoted(promotion, cold_at[promotion.cold as usize]),
                        false => out.promoted_tail(promotion),
                    }
                }
                Item::Jump { insn, jump, to, short } => {
                    out.stands(*insn, offset, ip(*insn));
                    out.jump(*jump, *short, *to, chunks);
                }
                Item::Fall { to, short } => {
                    // Control has left the block before, and comes to the other.
                    out.point(offset, ip(self.first_insn(*to)), 0);
                    out.jump(Jump::Always, *short, *to, chunks);
                }
                Item::Gone { insn, to } => {
                    out.insn_offsets[*insn as usize] = out.block_offsets[to.index()];
                }
                Item::JumpOut { insn, to } => {
                    out.stands(*insn, offset, ip(*insn));
                    out.jump_out(*to);
                }
                Item::Bound { insn, slot, calls } => {
                    out.stands(*insn, offset, ip(*insn));
                    out.through_slot(*insn, *slot, *calls);
                }
                Item::RunOn { insn, to } => {
                    out.point(offset, ip(*insn), 0);
                    out.jump_out(*to);
                }
                Item::Trap => out.code.push(TRAP),
                Item::BranchOut { insn, to } => {
                    out.stands(*insn, offset, ip(*insn));
                    Jump::of(&function.insns[*insn as usize]).write(&mut out.code, false, 0);
                    out.fixups.push((out.code.len() as u32 - 4, Fixup::Function(*to)));
                }
                Item::ToCold { insn, cold } => {
                    out.stands(*insn, offset, ip(*insn));
                    let jump = Jump::of(&function.insns[*insn as usize]);
                    let distance = cold_at[*cold as usize].wrapping_sub(offset + jump.size(false));
                    jump.write(&mut out.code, false, distance);
                }
                Item::Probe(p) => {
                    let probe = &self.t.probes[*p as usize];
                    let snippet = self.t.snippet(probe);
                    let end = offset + snippet.code.len() as u32;
                    out.inserted.push(Inserted { start: offset, end });
                    out.point(offset, ip(probe.at), 0);
                    for (at, pushed) in &snippet.pushed {
                        out.point(offset + at, ip(probe.at), *pushed);
                    }
                    out.snippet(&snippet.code, &snippet.fixups, probe);
                    if let Some((to, insn)) = pending_exit.take() {
                        let at = match to {
                            Destination::Function(_) => ip(insn),
                            Destination::Block(b) => ip(self.first_insn(b)),
                        };
                        out.point(out.code.len() as u32, at, 0);
                        out.jump_to(to, chunks);
                    }
                }
                Item::Align(_) => {
                    // Control that falls into padding has done what stands before it.
                    if let Some(Item::Label(b)) = self.t.items.get(i + 1) {
                        out.point(offset, function.blocks[b.index()].start, 0);
                    }
                    pad(&mut out.code, (offsets[i + 1] - offset) as usize);
                }
                Item::Chunk => out.chunk_starts.push(offset),
                Item::Label(b) => {
                    let at = ip(self.first_insn(*b));
                    let range = function.ranges.iter().position(|r| r.contains(&at)).unwrap_or(0);
                    out.part(range as u32, offset);
                }
                Item::Cold(c) => match &self.t.cold[*c as usize] {
                    ColdPart::OfProbe(p) => {
                        let probe = &self.t.probes[*p as usize];
                        let snippet = self.t.snippet(probe);
                        for (at, pushed) in &snippet.cold_pushed {
                            out.point(offset + at, ip(probe.at), *pushed);
                        }
                        out.snippet(&snippet.cold, &snippet.cold_fixups, probe);
                    }
                    ColdPart::Branch { to, insn, .. } => {
                        pending_exit = Some((*to, *insn));
                    }
                    ColdPart::Call(p) => {
                        let promotion = &self.t.promotions[*p as usize];
                        self.cold_call(&mut out, &mut original_code, promotion)?;
                    }
                },
            }
        }
        // Padding that was left out stands for whatever follows it.
        let mut next = out.code.len() as u32;
        for (i, offset) in out.insn_offsets.iter_mut().enumerate().rev() {
            if *offset == u32::MAX {
                let after = function.insns.get(i + 1).map(|n| LinkAddr(n.ip()));
                let block = after.and_then(|a| function.block_at(a));
                *offset = block.map_or(next, |b| out.block_offsets[b.index()]);
            }
            next = *offset;
        }
        Ok(out)
    }

    /// Writes the call of a promotion as it was, and the jump back.
    fn cold_call(
        &self,
        out: &mut Emitted,
        original_code: &mut OriginalCode<'_>,
        promotion: &Promotion,
    ) -> Result<(), (SkipReason, LinkAddr)> {
        let call = &self.function.insns[promotion.insn as usize];
        let bytes = original_code
            .of(self.function, (call.ip(), call.len() as u32))
            .ok_or((SkipReason::Undecodable, LinkAddr(call.ip())))?;
        out.point(out.end(), LinkAddr(call.ip()), 0);
        out.copy(bytes, self.address_fixup(call));
        out.returns_here(promotion.insn);
        out.jump_back(promotion.end);
        Ok(())
    }

    /// Writes instructions `from` up to `to`, whose bytes are `bytes`.
    fn write_copies(&self, out: &mut Emitted, bytes: &[u8], (from, to): (u32, u32)) {
        let function = self.function;
        let range = from as usize..to as usize;
        let (start, offset) = (function.insns[range.start].ip(), out.end());
        let first = UnwindPoint {
            offset,
            original: LinkAddr(start),
            pushed: 0,
            in_step: bytes.len() as u32,
        };
        out.unwind.push(first);
        out.code.extend_from_slice(bytes);
        let has_tables = self.t.copies.any_named(start, start + bytes.len() as u64);
        let insns = function.insns[range.clone()].iter().zip(&function.facts[range.clone()]);
        for ((i, (insn, facts)), place) in insns.enumerate().zip(&mut out.insn_offsets[range]) {
            let at = offset + (insn.ip() - start) as u32;
            *place = at;
            let plain = facts.goes_on() && !insn.is_syscall() && !insn.is_ip_rel_memory_operand();
            if plain && !has_tables {
                continue;
            }
            let fix = match facts.flow(insn) {
                Flow::Call(to) => Some((insn.len() as u8 - 4, Fixup::Function(LinkAddr(to)))),
                _ => self.address_fixup(insn),
            };
            out.fixups.extend(fix.map(|(field, fix)| (at + u32::from(field), fix)));
            if facts.calls() || insn.is_syscall() {
                out.returns.push((from + i as u32, at + insn.len() as u32));
            }
        }
    }
}

/// The bytes of the original, one range after another.
struct OriginalCode<'a> {
    image: &'a Image,
    start: u64,
    bytes: &'a [u8],
}

impl<'a> OriginalCode<'a> {
    /// The `len` bytes at `at`.
    fn of(&mut self, function: &Function, (at, len): (u64, u32)) -> Option<&'a [u8]> {
        let within = |start: u64, bytes: &'a [u8]| {
            let from = usize::try_from(at.checked_sub(start)?).ok()?;
            bytes.get(from..from + len as usize)
        };
        if let Some(bytes) = within(self.start, self.bytes) {
            return Some(bytes);
        }
        let range = function.ranges.iter().find(|r| r.contains(&LinkAddr(at)))?;
        self.start = range.start.0;
        self.bytes = self.image.read(range.start, (range.end.0 - range.start.0) as usize)?;
        within(self.start, self.bytes)
    }
}

/// Appends `count` bytes of padding in as few instructions as there can be.
fn pad(code: &mut Vec<u8>, mut count: usize) {
    // Intel's recommended sequences (Software Developer's Manual, NOP).
    const NOPS: [&[u8]; 9] = [
        &[0x90],
        &[0x66, 0x90],
        &[0x0f, 0x1f, 0x00],
        &[0x0f, 0x1f, 0x40, 0x00],
        &[0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
        &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
    ];
    while count > 0 {
        let n = count.min(9);
        code.extend_from_slice(NOPS[n - 1]);
        count -= n;
    }
}
