//! Unwind rules and exception handlers of the rewritten text, against the original's.
//!
//! The original's rules are read with gimli, the new ones by the small interpreter here. Every
//! copy of an instruction must have the rules of its original, and inside probes the same with
//! what was pushed added to the stack pointer's distance. Exception tables are read on both
//! sides in the way that the personality routine does it: by the return address less one.

mod handlers;
mod rows;

use crate::fault::{CheckError, Fault, fail};
use crate::walk::{PADDING, Walk};

use handlers::handlers;
pub(crate) use rows::Rows;
use rows::{Cfa, Expressions, RSP, Row, depends, interpret};

pub(crate) fn check<'a>(walk: &Walk<'_, 'a>, rows: &mut Rows<'a>) -> Result<(), CheckError> {
    let entry = walk.claim.function.entry.0;
    rows.old.clear();
    let mut expressions = Expressions::default();
    let image = rows.image;
    let fdes = image.fdes();
    for range in &walk.claim.function.ranges {
        let from = fdes.partition_point(|f| f.end <= range.start);
        for fde in fdes[from..].iter().take_while(|f| f.start < range.end) {
            if rows.read(fde, &mut expressions).is_none() {
                return fail(fde.start.0, Fault::Unwind);
            }
        }
    }
    rows.old.sort_by_key(|r| r.start);
    rows.old.dedup_by_key(|r| (r.start, r.end));
    let parts = walk.claim.unwind;
    if rows.old.is_empty() && parts.is_empty() {
        return Ok(());
    }
    let mut new = std::mem::take(&mut rows.new);
    new.clear();
    // From here on expressions of both codes are numbered together.
    let mut expressions = Expressions(expressions.0);
    let mut at = 0;
    for part in parts {
        if part.start != at || part.end < part.start {
            return fail(entry, Fault::Unwind);
        }
        at = part.end;
        if interpret(part, &mut new, &mut expressions).is_none() {
            return fail(entry, Fault::Unwind);
        }
    }
    // A part stays whole wherever its chunk goes.
    let whole = |chunk: &u32| parts.iter().any(|p| p.start == *chunk);
    if at as usize != walk.code.len() || !walk.claim.emitted.chunk_starts.iter().all(whole) {
        return fail(entry, Fault::Unwind);
    }
    new.retain(|r| r.start < r.end);
    if new.windows(2).any(|w| w[1].start < w[0].end) {
        return fail(entry, Fault::Unwind);
    }
    let mut compare = Compare::new(&rows.old, &new, &expressions.0);
    for pair in walk.s.pairs.iter().filter(|p| p.new < PADDING) {
        compare.at(pair.insn.ip(), u64::from(pair.new), u64::from(pair.len), 0)?;
    }
    for (a, n, len) in &walk.s.extra {
        compare.at(*a, u64::from(*n), u64::from(*len), 0)?;
    }
    for stretch in &walk.s.stretches {
        let Some(at) = stretch.at else { continue };
        let summary = walk.shapes.summary(stretch.shape as usize);
        for d in &summary.depths {
            let base = stretch.parts[d.part as usize];
            let len = u64::from(d.end - d.start);
            compare.at(at, u64::from(base + d.start), len, d.pushed)?;
        }
    }
    rows.new = new;
    handlers(walk, image)
}

struct Compare<'r> {
    old: &'r [Row],
    new: &'r [Row],
    expressions: &'r [&'r [u8]],
    /// Rows looked at last.
    i: usize,
    j: usize,
    pushed: u32,
    /// Whether any were found equal, and where those are that were last: of the original, and of
    /// the rewritten text.
    equal: bool,
    a: (u64, u64),
    n: (u64, u64),
}

impl<'r> Compare<'r> {
    fn new(old: &'r [Row], new: &'r [Row], expressions: &'r [&'r [u8]]) -> Compare<'r> {
        let nowhere = (0, 0);
        Compare {
            old,
            new,
            expressions,
            i: 0,
            j: 0,
            pushed: 0,
            equal: false,
            a: nowhere,
            n: nowhere,
        }
    }

    /// Wants the rules at `a` to hold, with `pushed` bytes more on the stack, for the `len` bytes
    /// from `n`.
    #[inline(always)]
    fn at(&mut self, a: u64, n: u64, len: u64, pushed: u32) -> Result<(), CheckError> {
        let same = self.equal && self.pushed == pushed;
        let inside = a >= self.a.0 && a < self.a.1 && n >= self.n.0 && n + len <= self.n.1;
        if same && inside { Ok(()) } else { self.look(a, n, len, pushed) }
    }

    fn look(&mut self, a: u64, mut n: u64, len: u64, pushed: u32) -> Result<(), CheckError> {
        if !self.old.get(self.i).is_some_and(|r| r.start <= a && a < r.end) {
            self.i = self.old.partition_point(|r| r.end <= a);
            if self.old.get(self.i).is_none_or(|r| r.start > a) {
                // The original has no rules here, and needs none.
                return Ok(());
            }
        }
        let end = n + len;
        while n < end {
            if !self.new.get(self.j).is_some_and(|r| r.start <= n && n < r.end) {
                self.j = self.new.partition_point(|r| r.end <= n);
                if self.new.get(self.j).is_none_or(|r| r.start > n) {
                    return fail(a, Fault::Unwind);
                }
            }
            let (old, new) = (&self.old[self.i], &self.new[self.j]);
            if !same(old, new, pushed, self.expressions) {
                return fail(a, Fault::Unwind);
            }
            (self.a, self.n) = ((old.start, old.end), (new.start, new.end));
            (self.equal, self.pushed) = (true, pushed);
            n = new.end;
        }
        Ok(())
    }
}

fn same(old: &Row, new: &Row, pushed: u32, expressions: &[&[u8]]) -> bool {
    let portable = |e: u32| {
        let (stack, place) = depends(expressions[e as usize]);
        !place && (!stack || pushed == 0)
    };
    let cfa = match (old.cfa, new.cfa) {
        (Cfa::Register(RSP, a), Cfa::Register(RSP, b)) => a + i64::from(pushed) == b,
        (Cfa::Expression(a), Cfa::Expression(b)) => a == b && portable(a),
        (a, b) => a == b,
    };
    let rules = old.rules.iter().zip(&new.rules);
    cfa && rules.into_iter().all(|(old, new)| old.with_pushed(pushed) == Some(*new))
        && old.args_size == new.args_size
        && (expressions.is_empty() || old.rules.iter().filter_map(|r| r.expression()).all(portable))
}
