//! How indirect calls are rewritten.

use std::collections::HashMap;

use fettle_image::LinkAddr;

/// How indirect calls are rewritten.
#[derive(Clone, Copy, Debug, Default)]
pub enum Pointers<'a> {
    /// They are left unmodified.
    #[default]
    Kept,
    /// Their targets are counted, beside the counters of [`crate::Mode::Edges`].
    Counted,
    /// Each of these calls, by its address, is compared with its most frequent target, and then
    /// calls that directly.
    Promoted(&'a HashMap<LinkAddr, LinkAddr>),
}

/// Words of each of a call's [`BUCKETS`]: the target seen last, and how often it was seen in a row.
pub const WORDS: u32 = 2;

/// Targets whose addresses differ in [`BUCKET_BITS`] have a bucket each.
pub const BUCKETS: u32 = 8;

/// The bits of a target's address that choose its bucket, unshifted: functions start at multiples
/// of 16, and a bucket has 16 bytes.
pub const BUCKET_BITS: u8 = 0x70;

/// Counters that one call has.
pub const COUNTERS: u32 = WORDS * BUCKETS;
