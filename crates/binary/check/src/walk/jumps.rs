//! Jumps: within the function, and out of it.

use fettle_code::Fixup;
use fettle_image::LinkAddr;
use fettle_isa::Decides;
use fettle_lift::edges::Place;
use fettle_lift::function::BlockId;

use crate::fault::{CheckError, Fault, fail};
use crate::summary::Kind;
use crate::walk::{BLOCK, NewJump, Walk};
impl Walk<'_, '_> {
    /// Whether the block at `a` is said to be at `n`, or behind padding there.
    pub(crate) fn is_label(&mut self, a: u64, n: u32) -> Result<bool, CheckError> {
        let Some(label) = self.label(a) else { return fail(a, Fault::Table) };
        Ok(label == n && n < self.chunk.1
            || n < label && label < self.chunk.1 && label <= self.past_padding(n))
    }

    /// Control comes to the block at `a`, and there must be a jump to it at `n`.
    pub(crate) fn jump_to_label(&mut self, a: u64, n: u32) -> Result<(), CheckError> {
        let n = self.skip_padding(a, n);
        match self.plain_jump(a, n)? {
            Some((len, to)) if self.label(a) == Some(to) => {
                self.s.extra.push((a, n, len));
                Ok(())
            }
            Some(_) => fail(a, Fault::Jump),
            None => fail(a, Fault::Instruction),
        }
    }

    /// The length and target of the jump inside the function at `n`, if one stands there.
    pub(crate) fn plain_jump(&mut self, a: u64, n: u32) -> Result<Option<(u32, u32)>, CheckError> {
        if n >= self.chunk.1 {
            return Ok(None);
        }
        // Of what is no jump nothing is asked here.
        let jumps = matches!(self.code.get(n as usize), Some(0xe9 | 0xeb));
        if !jumps || self.stretch_at(n).is_some() {
            return Ok(None);
        }
        let jump = self.jump_at(a, n)?;
        if let Some(Fixup::Function(_)) = jump.fixup {
            return Ok(None);
        }
        Ok(Some((jump.insn.len() as u32, self.target(a, &jump)?)))
    }

    /// The jump at `n`; nothing of it may be left to be filled in but where it leads.
    pub(crate) fn jump_at(&mut self, a: u64, n: u32) -> Result<NewJump, CheckError> {
        if n as usize > self.code.len() {
            return fail(a, Fault::TooShort);
        }
        let Some((insn, seen)) = self.forms.decode(self.code, n as usize, n.into()) else {
            return fail(a, Fault::Instruction);
        };
        let len = insn.len() as u32;
        if n + len > self.chunk.1 {
            return fail(a, Fault::TooShort);
        }
        match self.fixup_in(a, n, len)? {
            None => Ok(NewJump { insn, seen, fixup: None }),
            Some((field, fixup)) if field + 4 == len => {
                Ok(NewJump { insn, seen, fixup: Some(fixup) })
            }
            Some(_) => fail(a, Fault::Fixup),
        }
    }

    /// Where a jump leads: to an offset of its own chunk, or of any that is filled in later.
    pub(crate) fn target(&self, a: u64, jump: &NewJump) -> Result<u32, CheckError> {
        let to = match jump.fixup {
            None => u32::try_from(jump.insn.near_branch_target()).ok(),
            Some(Fixup::Across(to)) if (to as usize) < self.code.len() => return Ok(to),
            Some(_) => return fail(a, Fault::Fixup),
        };
        match to.filter(|to| (self.chunk.0..self.chunk.1).contains(to)) {
            Some(to) => Ok(to),
            None => fail(a, Fault::Jump),
        }
    }

    /// A jump out of the function must stand at `n`.
    pub(crate) fn jump_out(&mut self, a: u64, n: u32, to: u64) -> Result<(), CheckError> {
        if self.new_bytes(a, n, 5)?[0] != 0xe9 {
            return fail(a, Fault::Instruction);
        }
        self.fixup_is(a, n, 1, Fixup::Function(LinkAddr(to)))
    }

    /// Where the original falls through past its end, to `to`, the rewritten text leaves for it.
    pub(crate) fn runs_on(&mut self, to: u64, mut n: u32) -> Result<(), CheckError> {
        let before = self.s.pairs.iter().find(|pair| pair.insn.next_ip() == to);
        let Some(last) = before.map(|pair| pair.insn.ip()) else { return fail(to, Fault::RunsOff) };
        if self.passed {
            // It is there to fault.
            return fail(last, Fault::NotLeft);
        }
        if let Some(kind) = self.exit_kind(false) {
            n = self.exit_probe(last, n, kind)?;
        }
        n = self.skip_padding(last, n);
        self.jump_out(last, n, to)?;
        self.s.extra.push((last, n, 5));
        self.s.runs_on.push(to);
        Ok(())
    }

    /// Checks the copy at `n` of a conditional jump to `to`; where control goes on, in both codes,
    /// if it is not taken.
    pub(crate) fn branch(
        &mut self,
        index: usize,
        block: BlockId,
        n: u32,
        to: u64,
    ) -> Result<(u64, u32), CheckError> {
        let a = self.s.pairs[index].insn.ip();
        let jump = self.jump_at(a, n)?;
        let mut next = n + jump.insn.len() as u32;
        self.s.pairs[index].len = jump.insn.len() as u32;
        let insn = &self.s.pairs[index].insn;
        let next_a = insn.next_ip();
        let (same, turned) = match (insn.decides(), jump.insn.decides()) {
            (Some(Decides::Flags(old)), Some(Decides::Flags(new))) => (old == new, old ^ 1 == new),
            _ => (false, false),
        };
        if same && !self.contains(to) && jump.fixup == Some(Fixup::Function(LinkAddr(to))) {
            if let Some(kind) = self.exit_kind(false) {
                return fail(a, Fault::NoProbe(kind));
            }
            if self.counter_at(Place::Leaving(block)).is_some() {
                return fail(a, Fault::NoProbe(Kind::Block));
            }
            next = self.counter_between(block, next_a, next)?;
            return Ok((next_a, next));
        }
        let mut taken = self.target(a, &jump)?;
        if turned && self.contains(to) {
            let between = |to| self.block_at(to).map(|to| Place::Between(block, to));
            let ways = [between(to), between(next_a)];
            if ways.into_iter().flatten().any(|p| self.counter_at(p).is_some()) {
                return fail(a, Fault::NoProbe(Kind::Block));
            }
            self.s.work.push((next_a, taken));
            return Ok((to, next));
        }
        if self.s.pairs[index].insn.is_jcc_short_or_near() {
            if !same {
                return fail(a, Fault::Jump);
            }
        } else {
            // `jrcxz`, `loop`: the same, or around a jump that reaches farther.
            if jump.insn.decides() != self.s.pairs[index].insn.decides() {
                return fail(a, Fault::Jump);
            }
            if let Some(far) = self.around(a, to, (taken, next))? {
                taken = far;
                self.s.extra.push((a, next, 7));
                next += 7;
            }
        }
        let cursors = self.cursors();
        if self.contains(to) {
            let place = self.block_at(to).map(|to| Place::Between(block, to));
            if let Some(place) = place.filter(|p| self.counter_at(*p).is_some()) {
                self.seek(taken);
                taken = self.counter(to, taken, place)?;
                let jump = self.jump_at(to, taken)?;
                if !jump.seen.is_jump() {
                    return fail(to, Fault::Instruction);
                }
                self.s.extra.push((to, taken, jump.insn.len() as u32));
                taken = self.target(to, &jump)?;
                self.set_cursors(cursors);
            }
            self.s.work.push((to, taken));
        } else {
            self.seek(taken);
            taken = self.counter(a, taken, Place::Leaving(block))?;
            if let Some(kind) = self.exit_kind(false) {
                taken = self.exit_probe(a, taken, kind)?;
            }
            taken = self.skip_padding(a, taken);
            self.jump_out(a, taken, to)?;
            self.s.extra.push((a, taken, 5));
            self.set_cursors(cursors);
        }
        next = self.counter_between(block, next_a, next)?;
        Ok((next_a, next))
    }

    /// Where the jump leads that a `jrcxz` or `loop` to `to` has around a jump, which begins at `next`. The same
    /// bytes may be the jump to where it is not taken, with the block at `to` behind it, which begins with a jump.
    fn around(
        &mut self,
        a: u64,
        to: u64,
        (taken, next): (u32, u32),
    ) -> Result<Option<u32>, CheckError> {
        let bytes = self.code.get(next as usize..next as usize + 7).unwrap_or_default();
        let is_around = taken == next + 2 && bytes.starts_with(&[0xeb, 5, 0xe9]);
        if !is_around || self.label(to) == Some(taken) {
            return Ok(None);
        }
        let cursors = self.cursors();
        self.seek(taken);
        let far = self.jump_at(a, taken)?;
        let far = self.target(a, &far)?;
        self.set_cursors(cursors);
        Ok(Some(far))
    }

    /// Every target of the jump through a table at `a` must be a block.
    pub(crate) fn check_targets(&self, a: u64) -> Result<(), CheckError> {
        let Some(table) = self.table_of(a) else { return Ok(()) };
        for to in self.claim.function.tables[table].targets() {
            match self.slot(to.0) {
                Some((_, slot)) if self.s.at[slot] & BLOCK != 0 => {}
                _ => return fail(a, Fault::Table),
            }
        }
        Ok(())
    }
}
