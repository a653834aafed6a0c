//! What is the same in all probes of a shape.

use fettle_code::{Fixup, ProbeFixup};

use crate::summary::Summary;

pub(super) struct Part {
    pub(super) bytes: Vec<u8>,
    /// Stretches of `bytes` that do not depend on where the part stands.
    pub(super) fixed: Vec<(u32, u32)>,
    pub(super) fixups: Vec<(u32, ProbeFixup)>,
    /// Jumps to other parts: place of the 32-bit distance, part, offset there.
    pub(super) jumps: Vec<(u32, u32, u32)>,
}

pub(super) struct Shape {
    pub(super) parts: Vec<Part>,
    pub(super) summary: Summary,
}

/// The fixups that lie in `start..end`.
pub(super) fn fixups_in(fixups: &[(u32, Fixup)], start: u32, end: u32) -> &[(u32, Fixup)] {
    let from = fixups.partition_point(|(at, _)| *at < start);
    let to = from + fixups[from..].partition_point(|(at, _)| *at < end);
    &fixups[from..to]
}
