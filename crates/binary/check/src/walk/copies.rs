//! Copies of instructions, what they wait for, and padding.

use fettle_code::Fixup;
use fettle_isa::Insn;

use crate::fault::{CheckError, Fault, fail};
use crate::walk::{Pair, Walk};
impl Walk<'_, '_> {
    /// The only fixup in the `len` bytes from `n`; its offset from `n`.
    pub(crate) fn fixup_in(
        &mut self,
        a: u64,
        n: u32,
        len: u32,
    ) -> Result<Option<(u32, Fixup)>, CheckError> {
        while self.s.fixups.get(self.fixup).is_some_and(|(at, _)| *at < n) {
            self.fixup += 1;
        }
        // One that begins before must not reach in here.
        if let Some(before) = self.fixup.checked_sub(1)
            && self.s.fixups[before].0 + 4 > n
        {
            return fail(a, Fault::Fixup);
        }
        match self.s.fixups.get(self.fixup) {
            Some((at, fixup)) if *at < n + len => {
                let next = self.s.fixups.get(self.fixup + 1);
                if *at + 4 > n + len || next.is_some_and(|(at, _)| *at < n + len) {
                    return fail(a, Fault::Fixup);
                }
                Ok(Some((*at - n, *fixup)))
            }
            _ => Ok(None),
        }
    }

    pub(crate) fn fixup_is(
        &mut self,
        a: u64,
        n: u32,
        field: u32,
        want: Fixup,
    ) -> Result<(), CheckError> {
        match self.fixup_in(a, n + field, 4)? {
            Some((0, fixup)) if fixup == want => Ok(()),
            _ => fail(a, Fault::Address),
        }
    }

    /// Wants the bytes at `n` to be those at `a`, but for the four at `field`.
    pub(crate) fn same_but(&self, a: u64, len: u32, n: u32, field: u32) -> Result<(), CheckError> {
        let old = self.original(a, len);
        let new = self.new_bytes(a, n, old.len())?;
        let field = field as usize;
        if field + 4 > old.len() {
            return fail(a, Fault::Fixup);
        }
        if old[..field] != new[..field] || old[field + 4..] != new[field + 4..] {
            return fail(a, Fault::Instruction);
        }
        Ok(())
    }

    /// Checks the copy at `n` of an instruction that control goes through or ends at.
    pub(crate) fn copy(&mut self, index: usize, n: u32) -> Result<u32, CheckError> {
        let insn = &self.s.pairs[index].insn;
        let (a, len) = (insn.ip(), insn.len() as u32);
        let relative = insn.is_ip_rel_memory_operand();
        let Some((field, fixup)) = self.fixup_in(a, n, len)? else {
            if relative {
                return fail(a, Fault::Address);
            }
            return match self.new_bytes(a, n, len as usize)? == self.original(a, len) {
                true => Ok(n + len),
                false => fail(a, Fault::Instruction),
            };
        };
        // Only a displacement of 32 bits can be fixed up.
        if self.displacement(index) != Some(field) {
            return fail(a, Fault::Fixup);
        }
        self.same_but(a, len, n, field)?;
        let Pair { insn, seen, .. } = &self.s.pairs[index];
        if relative && seen.by_half {
            return fail(a, Fault::Address);
        }
        match fixup {
            Fixup::Original { to, after }
                if relative
                    && to.0 == insn.ip_rel_memory_address()
                    && u32::from(after) == len - field - 4 => {}
            // Nothing may follow the field: the distance is from its end.
            Fixup::Table(t) if relative && field + 4 == len => self.s.moved.push((t, a)),
            Fixup::TableAddress(t) if !relative && self.context.low_addresses => {
                self.s.moved.push((t, a));
            }
            _ => return fail(a, Fault::Address),
        }
        Ok(n + len)
    }

    /// The offset after padding at `n`, which stands before the original's `a`.
    pub(crate) fn skip_padding(&mut self, a: u64, n: u32) -> u32 {
        let end = self.past_padding(n);
        if end != n && !self.may_end() && !self.padded {
            self.s.extra.push((a, n, end - n));
        }
        end
    }

    pub(crate) fn past_padding(&mut self, mut n: u32) -> u32 {
        while self.may_be_padding(n) {
            let decoded = self.forms.decode(self.code, n as usize, n.into());
            let nop = decoded.map(|(insn, _)| insn).filter(Insn::is_nop);
            match nop.map(|insn| n + insn.len() as u32).filter(|end| *end <= self.chunk.1) {
                Some(end) => n = end,
                None => break,
            }
        }
        n
    }

    /// Whether prefixes stand at `n`, if any, and then one of the two opcodes of `nop`.
    pub(crate) fn may_be_padding(&self, n: u32) -> bool {
        let mut at = n as usize;
        while let Some(0x66 | 0x2e | 0x3e | 0x40..=0x4f) = self.code.get(at) {
            at += 1;
        }
        match self.code.get(at) {
            Some(0x90) => true,
            Some(0x0f) => self.code.get(at + 1) == Some(&0x1f),
            _ => false,
        }
    }
}
