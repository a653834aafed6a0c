//! Direct calls, and jumps to other functions: as they were, or without the way over
//! the PLT.
//!
//! Where a call leads to is read from the original's code: if nothing stands there but a jump by the
//! address in some word, a call by the address in that word does the same. Which section it is in, and
//! when the loader fills that word, makes no difference.

use fettle_image::{Image, LinkAddr};

use crate::fault::{CheckError, Fault, fail};
use crate::walk::Walk;
use fettle_code::{Fixup, Mode};

/// Bytes of a call or jump through a word.
const LEN: u32 = 6;
const CALL: u8 = 0x15;
const JUMP: u8 = 0x25;

impl Walk<'_, '_> {
    /// Checks the call of `to` of pair `index` at `n`; where it ends.
    pub(crate) fn call(&mut self, index: usize, n: u32, to: u64) -> Result<u32, CheckError> {
        if self.is_bound(n) {
            return self.bound(index, n, to);
        }
        let insn = &self.s.pairs[index].insn;
        let (a, len) = (insn.ip(), insn.len() as u32);
        // Nothing follows the distance.
        let field = len - 4;
        self.same_but(a, len, n, field)?;
        self.fixup_is(a, n, field, Fixup::Function(LinkAddr(to)))?;
        Ok(n + len)
    }

    /// Checks the jump of pair `index` to another function at `n`.
    pub(crate) fn tail_call(&mut self, index: usize, n: u32, to: u64) -> Result<(), CheckError> {
        match self.is_bound(n) {
            true => self.bound(index, n, to).map(drop),
            false => self.jump_out(self.s.pairs[index].insn.ip(), n, to),
        }
    }

    /// Whether a call or jump through a word stands at `n`, where the original has one with a distance.
    fn is_bound(&self, n: u32) -> bool {
        let begins = self.code.get(n as usize..).is_some_and(|code| code.first() == Some(&0xff));
        begins && self.context.probes.mode == Mode::Plain
    }

    /// Checks what stands in the place of the call of `to`, or jump to it, of pair `index`; where it ends.
    fn bound(&mut self, index: usize, n: u32, to: u64) -> Result<u32, CheckError> {
        let insn = &self.s.pairs[index].insn;
        let (a, len) = (insn.ip(), insn.len() as u32);
        let want = match self.original(a, len) {
            [0xe8, ..] => CALL,
            [0xe9, ..] => JUMP,
            _ => return fail(a, Fault::Instruction),
        };
        if self.new_bytes(a, n, LEN as usize)?[..2] != [0xff, want] {
            return fail(a, Fault::Instruction);
        }
        // What returns twice may be looked for by other means.
        if self.context.returns_twice.binary_search(&LinkAddr(to)).is_ok() {
            return fail(a, Fault::Instruction);
        }
        let Some(slot) = word_behind(self.context.image, to) else {
            return fail(a, Fault::Address);
        };
        self.fixup_is(a, n, 2, Fixup::Original { to: slot, after: 0 })?;
        self.s.pairs[index].len = LEN;
        Ok(n + LEN)
    }
}

/// Where the address lies that the code at `at` jumps to, if it does nothing else.
fn word_behind(image: &Image, at: u64) -> Option<LinkAddr> {
    /// `endbr64`
    const MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let read = |at: u64, len: usize| image.read(LinkAddr(at), len);
    let at = if read(at, MARK.len()) == Some(&MARK) { at + MARK.len() as u64 } else { at };
    // `bnd`, which does nothing any more.
    let at = if read(at, 1) == Some(&[0xf2]) { at + 1 } else { at };
    let [0xff, JUMP, distance @ ..] = read(at, LEN as usize)? else { return None };
    let distance = i32::from_le_bytes(distance.try_into().ok()?);
    let end = at + u64::from(LEN);
    image.is_code(LinkAddr(at)).then(|| LinkAddr(end.wrapping_add_signed(distance.into())))
}
