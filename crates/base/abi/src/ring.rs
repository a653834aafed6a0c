//! The single-producer ring that every event in Fettle goes through.
//!
//! The producer is one thread and its signal handlers. It *reserves* first and stores second, by
//! one `xadd` without a lock prefix, so that a signal handler that interrupts it between the two
//! gets a range of its own. A range that is reserved and not yet stored to reads as zeros, because
//! the consumer clears what it has taken (not so under [`Policy::Overwrite`], which has no consumer
//! until the producer stopped). A record's last word is never zero and is stored last: a producer
//! that is killed at any instruction leaves only whole records and at most one gap per nested
//! handler, which the consumer counts as lost.
//!
//! `reserved`, `limit` and `consumed` are byte positions that only grow; a position's place in
//! the ring is its low bits.

/// What a producer does when its ring is full.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Count the record as lost and go on. The default.
    Drop = 0,
    /// Overwrite the oldest record: a flight recorder.
    Overwrite = 1,
    /// Spin until the consumer made room (or is found dead; then as [`Policy::Drop`]).
    Wait = 2,
}

impl Policy {
    /// The policy with this number, if there is one.
    pub const fn from_u32(n: u32) -> Option<Policy> {
        match n {
            0 => Some(Policy::Drop),
            1 => Some(Policy::Overwrite),
            2 => Some(Policy::Wait),
            _ => None,
        }
    }
}

/// The cursors of a ring: one cache line that the producer writes, one that the consumer writes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct RingCursors {
    /// Bytes ever reserved by the producer.
    pub reserved: u64,
    /// The producer may store below this position without reading `consumed`. `u64::MAX` under
    /// [`Policy::Overwrite`].
    pub limit: u64,
    /// Records that found no room.
    pub lost: u64,
    /// A [`Policy`].
    pub policy: u32,
    /// The ring holds `1 << capacity_log2` bytes.
    pub capacity_log2: u32,
    /// The consumer's beat when the producer last gave up on it: no wait while it stays at that.
    pub dead_beat: u64,
    /// Zeros.
    pub pad0: [u64; 3],
    /// Bytes ever taken (and cleared) by the consumer.
    pub consumed: u64,
    /// Incremented by the consumer as a heartbeat; 0 means that it has ended.
    pub consumer_beat: u64,
    /// Zeros.
    pub pad1: [u64; 6],
}

const _: () = {
    assert!(size_of::<RingCursors>() == 128);
    assert!(core::mem::offset_of!(RingCursors, limit) == 8);
    assert!(core::mem::offset_of!(RingCursors, lost) == 16);
    assert!(core::mem::offset_of!(RingCursors, policy) == 24);
    assert!(core::mem::offset_of!(RingCursors, capacity_log2) == 28);
    assert!(core::mem::offset_of!(RingCursors, dead_beat) == 32);
    assert!(core::mem::offset_of!(RingCursors, consumed) == 64);
    assert!(core::mem::offset_of!(RingCursors, consumer_beat) == 72);
};
