//! Room for a jump behind a function's fentry nop.
//!
//! The jump lies behind the nop, so that a probe at the function's address sees each call. Its
//! five bytes replace several instructions as a rule. Control must come to the first of them only: no
//! branch, fixup or return may lead to the others, and the kernel itself must not write there.

use fettle_kernel_image::Image;
use fettle_lift::Function;

use crate::step::Step;

/// A jump's size.
pub const JUMP: u64 = 5;

/// Room for a jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Where it is.
    pub at: u64,
    /// What stands there.
    pub replaced: [u8; 5],
    /// Where the second and later of the replaced instructions begin, as distances from `at`.
    pub inside: Vec<u8>,
}

/// The room at `at`, behind the nop of `function`, if there is any. `steps` are those of its instructions.
pub fn room(image: &Image, function: &Function, steps: &[Step], at: u64) -> Option<Room> {
    let end = at + JUMP;
    let own = &function.ranges[0];
    let replaced = *image.bytes(at, JUMP as usize)?.first_chunk::<5>()?;
    if end > own.end.0 {
        return None;
    }
    let leads_inside = function.blocks.iter().any(|b| at < b.start.0 && b.start.0 < end);
    let tables = &image.tables;
    // A site that begins before the jump ends in it, too: none has more than five bytes.
    let written = (at.saturating_sub(JUMP - 1)..end)
        .any(|at| tables.jump_label(at).is_some() || tables.static_call(at).is_some());
    let faults = (at..end).any(|at| tables.exception(at).is_some() || tables.bug(at).is_some());
    if leads_inside || written || faults {
        return None;
    }
    let first = function.insns.partition_point(|insn| insn.ip() < at);
    let mut inside = Vec::new();
    let mut next = at;
    for (insn, step) in function.insns[first..].iter().zip(&steps[first..]) {
        if insn.ip() != next || next >= end {
            break;
        }
        if next > at {
            inside.push((next - at) as u8);
        }
        next = insn.next_ip();
        let comes_back = matches!(step, Step::Call(_) | Step::IndirectCall | Step::StaticCall(_));
        if comes_back && next < end {
            return None;
        }
    }
    (next >= end).then_some(Room { at, replaced, inside })
}
