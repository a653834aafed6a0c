//! Functions of another build: the same instructions at other addresses.
//!
//! An upgrade of a program changes few of its functions and moves all others. The *shape* of a function
//! is a hash of its instructions without the distances that depend on where it and its neighbours lie:
//! those of operands in memory, and those of jumps and calls out of the piece of code that they are in.
//! Functions with the same name and shape have the same blocks, at the same offsets.

use std::ops::Range;

use fettle_image::{Image, LinkAddr};
use fettle_lift::Function;
use rustc_hash::FxHashMap;

use super::{START, SavedFunction, fnv};

/// The shape of a function.
pub(super) fn shape_of(image: &Image, function: &Function) -> u64 {
    let piece = |at: u64| function.ranges.iter().position(|r| r.contains(&LinkAddr(at)));
    let mut hash = START;
    for insn in &function.insns {
        let Some(bytes) = image.read(LinkAddr(insn.ip()), insn.len()) else { continue };
        let mut bytes = bytes.to_vec();
        let distance = usize::from(insn.ip_rel_field());
        if insn.is_ip_rel_memory_operand()
            && let Some(field) = bytes.get_mut(distance..distance + 4)
        {
            field.fill(0);
        }
        let leads = insn.near_branch_target();
        let leaves = leads != 0 && piece(leads) != piece(insn.ip());
        let end = bytes.len();
        if leaves && end > 4 {
            bytes[end - 4..].fill(0);
        }
        hash = fnv(hash, &bytes);
    }
    let sizes = function.ranges.iter().map(|range| range.end.0 - range.start.0);
    sizes.fold(hash, |hash, size| fnv(hash, &size.to_le_bytes()))
}

/// Functions by name and shape, those left out of which there are several.
pub(super) struct Shapes<'a>(FxHashMap<(&'a str, u64), Option<&'a Function>>);

impl<'a> Shapes<'a> {
    /// The functions of an image.
    pub(super) fn of(image: &Image, functions: &'a [Function]) -> Shapes<'a> {
        let mut shapes: FxHashMap<_, Option<&Function>> = FxHashMap::default();
        for function in functions {
            let key = (name(function.name.as_deref()), shape_of(image, function));
            shapes.entry(key).and_modify(|one| *one = None).or_insert(Some(function));
        }
        Shapes(shapes)
    }

    /// The one that a saved function is now.
    pub(super) fn find(&self, saved: &SavedFunction) -> Option<&'a Function> {
        *self.0.get(&(name(saved.name.as_deref()), saved.shape?))?
    }
}

fn name(name: Option<&str>) -> &str {
    name.unwrap_or_default()
}

/// Leads addresses in the pieces that a function had to those that it has.
#[derive(Clone, Debug)]
pub(super) struct Moved(Vec<(Range<u64>, u64)>);

impl Moved {
    /// From a saved function to the one with the same shape; `None` if the pieces differ, or are not
    /// known: profiles of older versions do not say.
    pub(super) fn new(saved: &SavedFunction, now: &Function) -> Option<Moved> {
        if saved.pieces.len() != now.ranges.len() {
            return None;
        }
        let pairs = saved.pieces.iter().zip(now.ranges.iter()).map(|(&(start, end), range)| {
            (end.checked_sub(start)? == range.end.0 - range.start.0)
                .then_some((start..end, range.start.0))
        });
        pairs.collect::<Option<_>>().map(Moved)
    }

    /// Where an address is now.
    pub(super) fn lead(&self, at: u64) -> Option<LinkAddr> {
        let (range, to) = self.0.iter().find(|(range, _)| range.contains(&at))?;
        Some(LinkAddr(to + (at - range.start)))
    }
}
