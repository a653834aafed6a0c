//! The steps by which bytes are appended.

use fettle_code::{Emitted, Fixup, Part, ProbeFixup, UnwindPoint};
use fettle_image::LinkAddr;
use fettle_isa::Jump;
use fettle_isa::asm::Condition;
use fettle_lift::function::BlockId;

use super::items::{Destination, JCC, JUMP_OUT, Operand, Probe, Promotion};

/// The writer's steps on what is emitted so far.
pub(super) trait Append {
    /// A block from this range begins at `offset`.
    fn part(&mut self, range: u32, offset: u32);
    /// The chunk that is being written, counted from one.
    fn chunk(&self) -> u32;
    /// A jump to a block; `chunks` says in which chunk each is.
    fn jump(&mut self, jump: Jump, short: bool, to: BlockId, chunks: &[u32]);
    /// Offset behind what was written last.
    fn end(&self) -> u32;
    /// What was written last is a call.
    fn returns_here(&mut self, insn: u32);
    /// An instruction that is written anew stands at `offset`.
    fn stands(&mut self, insn: u32, offset: u32, original: LinkAddr);
    fn point(&mut self, offset: u32, original: LinkAddr, pushed: u32);
    fn jump_to(&mut self, to: Destination, chunks: &[u32]);
    /// An instruction with the operand of another.
    fn operand(&mut self, operand: &Operand);
    /// An instruction as it is, but for one field perhaps.
    fn copy(&mut self, bytes: &[u8], fix: Option<(u8, Fixup)>);
    /// The comparison of a promotion: with the address of the original, which pointers hold.
    fn guard(&mut self, promotion: &Promotion);
    /// A promoted call; `other` is where the original call is emitted.
    fn promoted(&mut self, promotion: &Promotion, other: u32);
    /// What is emitted before a promoted tail call.
    fn promoted_tail(&mut self, promotion: &Promotion);
    /// A jump to an offset of the same chunk.
    fn jump_back(&mut self, to: u32);
    fn jump_out(&mut self, to: LinkAddr);
    /// A call or jump to whatever a word says, in the place of `insn`.
    fn through_slot(&mut self, insn: u32, slot: LinkAddr, calls: bool);
    /// Appends code of a probe.
    fn snippet(&mut self, code: &[u8], fixups: &[(u32, ProbeFixup)], probe: &Probe);
}

impl Append for Emitted {
    fn part(&mut self, range: u32, offset: u32) {
        let chunk = self.chunk_starts.last().copied().unwrap_or(0);
        match self.parts.last() {
            Some(part) if part.start >= chunk && part.range == range => {}
            Some(part) if part.start >= chunk => self.parts.push(Part { start: offset, range }),
            // Probes at the entry stand before the first block.
            _ => self.parts.push(Part { start: chunk, range }),
        }
    }

    fn chunk(&self) -> u32 {
        self.chunk_starts.len() as u32
    }

    fn jump(&mut self, jump: Jump, short: bool, to: BlockId, chunks: &[u32]) {
        let end = self.code.len() as u32 + jump.size(short);
        let to_offset = self.block_offsets[to.index()];
        if chunks[to.index()] == self.chunk() {
            jump.write(&mut self.code, short, to_offset.wrapping_sub(end));
        } else {
            jump.write(&mut self.code, false, 0);
            self.fixups.push((end - 4, Fixup::Across(to_offset)));
        }
    }

    fn end(&self) -> u32 {
        self.code.len() as u32
    }

    fn returns_here(&mut self, insn: u32) {
        self.returns.push((insn, self.end()));
    }

    fn stands(&mut self, insn: u32, offset: u32, original: LinkAddr) {
        self.insn_offsets[insn as usize] = offset;
        self.point(offset, original, 0);
    }

    fn point(&mut self, offset: u32, original: LinkAddr, pushed: u32) {
        self.unwind.push(UnwindPoint { offset, original, pushed, in_step: 0 });
    }

    fn jump_to(&mut self, to: Destination, chunks: &[u32]) {
        match to {
            Destination::Function(to) => self.jump_out(to),
            Destination::Block(to) => self.jump(Jump::Always, false, to, chunks),
        }
    }

    fn operand(&mut self, operand: &Operand) {
        self.copy(&operand.bytes, operand.fix);
    }

    fn copy(&mut self, bytes: &[u8], fix: Option<(u8, Fixup)>) {
        let start = self.code.len() as u32;
        self.code.extend_from_slice(bytes);
        self.fixups.extend(fix.map(|(at, fix)| (start + u32::from(at), fix)));
    }

    fn guard(&mut self, promotion: &Promotion) {
        // lea r11, [rip + ..]
        self.code.extend_from_slice(&[0x4c, 0x8d, 0x1d]);
        let original = Fixup::Original { to: promotion.to, after: 0 };
        self.fixups.push((self.code.len() as u32, original));
        self.code.extend_from_slice(&[0; 4]);
        self.operand(&promotion.compare);
    }

    fn promoted(&mut self, promotion: &Promotion, other: u32) {
        self.guard(promotion);
        let distance = other.wrapping_sub(self.code.len() as u32 + JCC);
        Jump::If(Condition::NotEqual as u8).write(&mut self.code, false, distance);
        self.code.push(0xe8);
        self.fixups.push((self.code.len() as u32, Fixup::Function(promotion.to)));
        self.code.extend_from_slice(&[0; 4]);
        self.returns_here(promotion.insn);
    }

    fn promoted_tail(&mut self, promotion: &Promotion) {
        self.guard(promotion);
        Jump::If(Condition::Equal as u8).write(&mut self.code, false, 0);
        self.fixups.push((self.code.len() as u32 - 4, Fixup::Function(promotion.to)));
    }

    fn jump_back(&mut self, to: u32) {
        let distance = to.wrapping_sub(self.code.len() as u32 + JUMP_OUT);
        Jump::Always.write(&mut self.code, false, distance);
    }

    fn jump_out(&mut self, to: LinkAddr) {
        self.code.push(0xe9);
        self.fixups.push((self.code.len() as u32, Fixup::Function(to)));
        self.code.extend_from_slice(&[0; 4]);
    }

    fn through_slot(&mut self, insn: u32, slot: LinkAddr, calls: bool) {
        self.code.extend_from_slice(&[0xff, if calls { 0x15 } else { 0x25 }]);
        self.fixups.push((self.code.len() as u32, Fixup::Original { to: slot, after: 0 }));
        self.code.extend_from_slice(&[0; 4]);
        if calls {
            self.returns_here(insn);
        }
    }

    fn snippet(&mut self, code: &[u8], fixups: &[(u32, ProbeFixup)], probe: &Probe) {
        let base = self.code.len() as u32;
        self.code.extend_from_slice(code);
        for (at, fixup) in fixups {
            let at = base + at;
            let to = match fixup {
                ProbeFixup::Inline(to) => probe.parts.0 + to,
                ProbeFixup::OutOfLine(to) => probe.parts.1 + to,
                ProbeFixup::Counter(n) => {
                    let counter = ProbeFixup::Counter(probe.counters + n);
                    self.fixups.push((at, Fixup::Probe(counter)));
                    continue;
                }
                other => {
                    self.fixups.push((at, Fixup::Probe(*other)));
                    continue;
                }
            };
            let distance = to.wrapping_sub(at + 4);
            self.code[at as usize..at as usize + 4].copy_from_slice(&distance.to_le_bytes());
        }
    }
}
