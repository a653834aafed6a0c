//! Probe code, executed symbolically.
//!
//! Registers start as symbols for their own values. Every path through the code is followed to
//! the end of its inline part; on the way each memory access must be one that probes make, and
//! what it does to the measurement is noted as an effect. At the end the stack pointer must be
//! where it was, and registers and flags that do not hold their own symbol are *clobbered*: the
//! caller proves them dead. The sets of effects on all paths say what kind of probe it is, so
//! nothing depends on what its maker says it is.
//!
//! There are few shapes of probes and many probes, so each shape is executed once. A shape is
//! the code with everything left out that depends on where it stands.

mod machine;
mod shape;
mod symbols;

pub use symbols::NO_ROOM_FROM;

use std::collections::HashMap;

use fettle_code::{Fixup, ProbeFixup};

use crate::summary::{MAX_PARTS, ProbeFault, Summary};
use machine::Machine;
use shape::{Part, Shape, fixups_in};

/// A probe found in code.
#[derive(Debug)]
pub struct Found {
    /// Index of its shape.
    pub shape: usize,
    /// Offsets of its parts; the inline one first.
    pub parts: [u32; MAX_PARTS],
    /// The counter of a block probe, or the first one of a table.
    pub counter: Option<u32>,
}

/// The shapes met so far.
#[derive(Default)]
pub struct Shapes {
    shapes: Vec<Shape>,
    /// By length and first bytes of the inline part.
    index: HashMap<(u32, u64), Vec<u32>>,
}

impl Shapes {
    /// What is known of shape `index`.
    pub fn summary(&self, index: usize) -> &Summary {
        &self.shapes[index].summary
    }

    /// Checks the probe whose inline part is `start..end` of `code`; `fixups` are sorted. Where
    /// probes are the user's `own`, a straight line is one of them.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(
        &mut self,
        code: &[u8],
        fixups: &[(u32, Fixup)],
        (start, end): (u32, u32),
        user_probe: bool,
    ) -> Result<Found, ProbeFault> {
        let inline = code.get(start as usize..end as usize).ok_or(ProbeFault::Undecodable)?;
        let mut first = [0; 8];
        let n = inline.len().min(4);
        first[..n].copy_from_slice(&inline[..n]);
        let key = (end.wrapping_sub(start), u64::from_le_bytes(first));
        for shape in self.index.get(&key).into_iter().flatten() {
            let shape = *shape as usize;
            if let Some((parts, counter)) = matches(&self.shapes[shape], code, fixups, start) {
                return Ok(Found { shape, parts, counter });
            }
        }
        // A user's line may look like a probe of Fettle's: one that counts calls does.
        let found =
            if user_probe { user_shape(code, fixups, (start, end)) } else { Err(ProbeFault::Kind) };
        let (shape, parts, counter) = found.or_else(|_| {
            let mut machine = Machine::new(code, fixups, start, end);
            machine.run().and_then(|()| machine.shape())
        })?;
        self.index.entry(key).or_default().push(self.shapes.len() as u32);
        self.shapes.push(shape);
        Ok(Found { shape: self.shapes.len() - 1, parts, counter })
    }
}

/// The shape of straight-line code that the user's compiler made.
fn user_shape(
    code: &[u8],
    fixups: &[(u32, Fixup)],
    (start, end): (u32, u32),
) -> Result<(Shape, [u32; MAX_PARTS], Option<u32>), ProbeFault> {
    let bytes = code.get(start as usize..end as usize).ok_or(ProbeFault::Undecodable)?;
    let mut user_fixups = Vec::new();
    for (at, fixup) in fixups_in(fixups, start.saturating_sub(3), end) {
        let Fixup::Probe(fixup) = fixup else { return Err(ProbeFault::Fixup) };
        user_fixups.push((at.checked_sub(start).ok_or(ProbeFault::Fixup)?, *fixup));
    }
    let summary = super::user_probe::summarize(bytes, &user_fixups)?;
    let mut fixed = Vec::new();
    let mut begin = 0;
    for (at, _) in &user_fixups {
        fixed.push((begin, *at));
        begin = at + 4;
    }
    fixed.push((begin, end - start));
    let part = Part { bytes: bytes.to_vec(), fixed, fixups: user_fixups, jumps: Vec::new() };
    let mut bases = [u32::MAX; MAX_PARTS];
    bases[0] = start;
    Ok((Shape { parts: vec![part], summary }, bases, None))
}

fn field(code: &[u8], at: u32) -> Option<i32> {
    Some(i32::from_le_bytes(code.get(at as usize..at as usize + 4)?.try_into().ok()?))
}

/// Whether the probe at `start` of `code` has this shape; where its parts are.
fn matches(
    shape: &Shape,
    code: &[u8],
    fixups: &[(u32, Fixup)],
    start: u32,
) -> Option<([u32; MAX_PARTS], Option<u32>)> {
    let mut bases = [u32::MAX; MAX_PARTS];
    bases[0] = start;
    // The counter that comes first, here and in the shape: others are as far from it.
    let mut counter: Option<(u32, u32)> = None;
    for (i, part) in shape.parts.iter().enumerate() {
        let base = bases[i];
        if base == u32::MAX {
            return None;
        }
        let end = base.checked_add(part.bytes.len() as u32)?;
        let bytes = code.get(base as usize..end as usize)?;
        for (from, to) in &part.fixed {
            let range = *from as usize..*to as usize;
            if bytes[range.clone()] != part.bytes[range] {
                return None;
            }
        }
        // A field may begin before the part and reach into it.
        let found = fixups_in(fixups, base.saturating_sub(3), end);
        if found.len() != part.fixups.len() {
            return None;
        }
        for ((at, fixup), (want_at, want)) in found.iter().zip(&part.fixups) {
            let Fixup::Probe(fixup) = fixup else { return None };
            if *at != base + want_at {
                return None;
            }
            match (fixup, want) {
                (ProbeFixup::Counter(n), ProbeFixup::Counter(want)) => {
                    let (first, want_first) = *counter.get_or_insert((*n, *want));
                    if n.wrapping_sub(first) != want.wrapping_sub(want_first) {
                        return None;
                    }
                }
                (fixup, want) if fixup == want => {}
                _ => return None,
            }
        }
        for (at, to_part, to) in &part.jumps {
            let at = base + at;
            let target = at.wrapping_add(4).wrapping_add_signed(field(code, at)?);
            let to_base = target.wrapping_sub(*to);
            let known = &mut bases[*to_part as usize];
            if *known == u32::MAX {
                *known = to_base;
            } else if *known != to_base {
                return None;
            }
        }
    }
    Some((bases, counter.map(|(first, _)| first)))
}
