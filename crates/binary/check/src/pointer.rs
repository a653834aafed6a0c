//! What is emitted before indirect calls: the comparison of indirect-call promotion, or a counter of targets.
//!
//! A probe that counts targets is executed like every other, and has to count what the call's own
//! operand holds: a register, or `r11` after that was loaded from the same place.
//!
//! A promoted call compares its operand with a function's address, in `r11`, and calls the function
//! where the two are equal. Neither needs a profile to be right.

use fettle_image::{Image, LinkAddr, RelocKind};
use fettle_isa::{Decides, Gpr, RegSet};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use crate::fault::{CheckError, Fault, fail};
use crate::summary::Kind;
use crate::walk::{NewJump, Walk};
use fettle_code::pointers::COUNTERS;
use fettle_code::{Fixup, Mode, Pointers};

/// `lea r11, [rip + ..]`
const LEA_R11: [u8; 3] = [0x4c, 0x8d, 0x1d];

/// Conditions, by their numbers in machine code.
const EQUAL: Decides = Decides::Flags(4);
const NOT_EQUAL: Decides = Decides::Flags(5);

/// The register that operands are loaded to.
pub(crate) const SCRATCH: RegSet = RegSet::of(&[Gpr::R11]);

impl Walk<'_, '_> {
    /// Wants the counter of targets at `n`, if there is one, before the call or jump of pair
    /// `index`; where it ends.
    pub(crate) fn target_counter(&mut self, index: usize, n: u32) -> Result<u32, CheckError> {
        let a = self.s.pairs[index].insn.ip();
        let known = self.claim.emitted.pointers.binary_search(&LinkAddr(a));
        let (Pointers::Counted, Ok(number)) = (self.context.pointers, known) else { return Ok(n) };
        let mut n = self.skip_padding(a, n);
        let mut before = RegSet::NONE;
        let insn = self.full(index);
        let target = match insn.op0_kind() {
            OpKind::Register => insn.op0_register(),
            _ => {
                n = self.operand(&insn, n, Mnemonic::Mov)?;
                before = SCRATCH;
                Register::R11
            }
        };
        if !self.keeps_the_abi(&insn) {
            return fail(a, Fault::Live(SCRATCH));
        }
        let Some(target) = Gpr::containing(target) else { return fail(a, Fault::Instruction) };
        let end = self.probe(a, n, Kind::Target(target.number()))?;
        let table = self.claim.emitted.counters.len() as u32 + number as u32 * COUNTERS;
        let stretch = self.stretch_at(n).map(|i| &mut self.s.stretches[i]);
        match stretch.filter(|s| s.counter == table) {
            Some(stretch) => {
                stretch.before = before;
                Ok(end)
            }
            None => fail(a, Fault::Counter),
        }
    }

    /// Whether a comparison stands at `n`, in the place of the call or jump of pair `index`: nothing
    /// else begins as it does.
    pub(crate) fn is_promoted(&self, n: u32) -> bool {
        let begins = self.code.get(n as usize..).is_some_and(|code| code.starts_with(&LEA_R11));
        begins && matches!(self.context.pointers, Pointers::Promoted(_))
    }

    /// Checks the call of pair `index` with a comparison before it: where the pointer is that of a
    /// function, that is called at once; else the original call is emitted out of line, and control
    /// returns behind the other.
    pub(crate) fn promoted_call(&mut self, index: usize, n: u32) -> Result<u32, CheckError> {
        let a = self.s.pairs[index].insn.ip();
        let (to, at) = self.guard(index, n)?;
        let jump = self.jump_at(a, at)?;
        if jump.insn.decides() != Some(NOT_EQUAL) {
            return fail(a, Fault::Jump);
        }
        let NewJump { fixup: None, .. } = jump else { return fail(a, Fault::Fixup) };
        let other = self.target(a, &jump)?;
        let at = at + jump.insn.len() as u32;
        if self.new_bytes(a, at, 5)?[0] != 0xe8 {
            return fail(a, Fault::Instruction);
        }
        self.fixup_is(a, at, 1, Fixup::Function(to))?;
        let end = at + 5;
        self.s.pairs[index].len = end - n;
        let cursors = self.cursors();
        self.seek(other);
        let behind = self.copy(index, other)?;
        let back = self.jump_at(a, behind)?;
        let returns = back.seen.is_jump() && back.fixup.is_none();
        if !returns || self.target(a, &back)? != end {
            return fail(a, Fault::Jump);
        }
        let len = behind + back.insn.len() as u32 - other;
        self.set_cursors(cursors);
        self.s.extra.push((a, other, len));
        self.s.promoted.push((index as u32, behind));
        Ok(end)
    }

    /// Checks the tail call of pair `index` with a comparison before it: where the pointer is that of
    /// a function, control goes there at once.
    pub(crate) fn promoted_tail(&mut self, index: usize, n: u32) -> Result<(), CheckError> {
        let a = self.s.pairs[index].insn.ip();
        let (to, at) = self.guard(index, n)?;
        let jump = self.jump_at(a, at)?;
        if jump.insn.decides() != Some(EQUAL) || jump.fixup != Some(Fixup::Function(to)) {
            return fail(a, Fault::Jump);
        }
        let end = self.copy(index, at + jump.insn.len() as u32)?;
        self.s.pairs[index].len = end - n;
        self.s.promoted.push((index as u32, end));
        Ok(())
    }

    /// Checks the comparison of the pointer that pair `index` uses; the function that it is compared
    /// with, and where the comparison ends.
    ///
    /// Whatever function that is, calling it is what the original does with its address. It must
    /// not find other values in what the comparison writes than callers left there.
    fn guard(&mut self, index: usize, n: u32) -> Result<(LinkAddr, u32), CheckError> {
        let insn = self.full(index);
        let a = insn.ip();
        if self.new_bytes(a, n, 7)?[..3] != LEA_R11 {
            return fail(a, Fault::Instruction);
        }
        let Some((3, Fixup::Original { to, after: 0 })) = self.fixup_in(a, n, 7)? else {
            return fail(a, Fault::Address);
        };
        let at = n + 7;
        let end = match insn.op0_kind() {
            OpKind::Register => {
                let new = self.new_insn(a, at)?;
                let same = new.code() == Code::Cmp_rm64_r64
                    && new.op0_kind() == OpKind::Register
                    && new.op0_register() == insn.op0_register()
                    && new.op0_register() != Register::R11
                    && new.op1_register() == Register::R11;
                if !same || self.fixup_in(a, at, new.len() as u32)?.is_some() {
                    return fail(a, Fault::Instruction);
                }
                at + new.len() as u32
            }
            _ => self.operand(&insn, at, Mnemonic::Cmp)?,
        };
        let changed = SCRATCH.union(RegSet::FLAGS);
        let reads = self.context.callees.inputs(to).intersection(changed);
        if self.context.probes.mode != Mode::Plain
            || !self.keeps_the_abi(&insn)
            || !reads.is_empty()
        {
            return fail(a, Fault::Live(changed));
        }
        Ok((to, end))
    }

    /// Wants an instruction of `r11` and the memory operand of `insn` at `n`; where it ends.
    fn operand(&mut self, insn: &Instruction, n: u32, want: Mnemonic) -> Result<u32, CheckError> {
        let a = insn.ip();
        let new = self.new_insn(a, n)?;
        let len = new.len() as u32;
        let relative = insn.is_ip_rel_memory_operand();
        let same = new.mnemonic() == want
            && new.op_count() == 2
            && new.op0_kind() == OpKind::Register
            && new.op0_register() == Register::R11
            && new.op1_kind() == OpKind::Memory
            && insn.op0_kind() == OpKind::Memory
            && new.memory_size().size() == 8
            && !(new.has_lock_prefix() || new.has_rep_prefix() || new.has_repne_prefix())
            && new.memory_base() == insn.memory_base()
            && new.memory_index() == insn.memory_index()
            && (insn.memory_index() == Register::None
                || new.memory_index_scale() == insn.memory_index_scale())
            && segment(&new) == segment(insn)
            && segment(insn) != Register::GS
            && (relative || new.memory_displacement64() == insn.memory_displacement64());
        if !same {
            return fail(a, Fault::Instruction);
        }
        let place = Fixup::Original { to: LinkAddr(insn.ip_rel_memory_address()), after: 0 };
        match self.fixup_in(a, n, len)? {
            None if !relative => {}
            // Nothing follows the field.
            Some((field, fixup))
                if relative
                    && insn.memory_base() == Register::RIP
                    && field + 4 == len
                    && fixup == place => {}
            _ => return fail(a, Fault::Address),
        }
        self.s.extra.push((a, n, len));
        Ok(n + len)
    }

    /// The instruction at `n` of the chunk at hand.
    fn new_insn(&mut self, a: u64, n: u32) -> Result<Instruction, CheckError> {
        let Some(code) = self.code.get(n as usize..) else { return fail(a, Fault::TooShort) };
        let insn = Decoder::with_ip(64, code, n.into(), DecoderOptions::NONE).decode();
        match !insn.is_invalid() && n + insn.len() as u32 <= self.chunk.1 {
            true => Ok(insn),
            false => fail(a, Fault::TooShort),
        }
    }

    /// Whether what is called can be taken to leave only what the ABI says. The loader's resolvers
    /// of thread-local variables leave all but `rax`; they are called through what it points to.
    fn keeps_the_abi(&self, insn: &Instruction) -> bool {
        let resolves = insn.op0_kind() == OpKind::Memory
            && insn.memory_base() == Register::RAX
            && insn.memory_index() == Register::None
            && insn.memory_displacement64() == 0;
        !resolves || !self.s.resolvers
    }
}

/// Whether the loader fills in resolvers of thread-local variables.
pub(crate) fn has_resolvers(image: &Image) -> bool {
    /// `R_X86_64_TLSDESC`
    const DESCRIPTOR: RelocKind = RelocKind::Other(36);
    image.relocs().iter().any(|reloc| reloc.kind == DESCRIPTOR)
}

/// The segment of a memory operand, if it means something.
fn segment(insn: &Instruction) -> Register {
    match insn.segment_prefix() {
        prefix @ (Register::FS | Register::GS) => prefix,
        _ => Register::None,
    }
}
