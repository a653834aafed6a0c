//! Sensors: shared memory that a program commits its own events to.
//!
//! A sensor is one file in a sensor directory and belongs to one process. It starts with a page
//! that holds the [`Head`]; then come its *slots*, all of one size:
//!
//! ```text
//! 0                         Head: who, what, since when; owners of the slots
//! 4096                      slot 0, shared by all threads: locked instructions
//! 4096 + slot_bytes         slot 1, owned by one thread: plain instructions
//! ...
//! ```
//!
//! A thread claims a free slot at its first event by writing its id to [`Head::owners`], and keeps
//! it. Slots of threads that have ended are claimed again: nothing has to run when a thread ends.
//! Threads that find no slot use slot 0. The content of a slot depends on the sensor's [`Kind`].
//!
//! A list's slot is a ring of fixed-size *cells*. Its producer reserves first and stores second,
//! as in [`crate::ring`], with two differences. It reserves by one `cmpxchg` instead of an `xadd`
//! (without a lock prefix in slots with an owner), so that a record without room reserves nothing
//! and there is nothing to undo. And a cell's last word, its [`Mark`], says which lap of the ring
//! it was stored in, so that cells need not be cleared and [`Policy::Overwrite`] can be read while
//! its producer runs.
//!
//! Format changelog: version 1 is the first.

use crate::ring::{Policy, RingCursors};

/// Version of the layouts in this module.
pub const VERSION: u32 = 1;
/// Least version of a reader that understands sensors of [`VERSION`].
pub const VERSION_MIN: u32 = 1;

/// Bytes before the first slot.
pub const SLOTS: u32 = 4096;
/// Most slots of a sensor, the shared one included.
pub const SLOTS_MAX: u32 = 256;
/// Bytes of a name, zero-padded; the last is always zero.
pub const NAME_BYTES: usize = 64;

/// Slots of a sensor when nothing else is asked for: 64 threads and the shared one.
pub const DEFAULT_SLOTS: u32 = 65;
/// Cells of 32 bytes when nothing else is asked for: two words and the head of an event.
pub const DEFAULT_CELL_LOG2: u32 = 5;
/// Rings of 256 KiB when nothing else is asked for.
pub const DEFAULT_RING_LOG2: u32 = 18;

/// [`Head::clock`] of a producer whose time stamps are nanoseconds of `CLOCK_MONOTONIC`.
pub const CLOCK_MONOTONIC: u32 = 1;

/// A producer that waits ([`Policy::Wait`]) takes its consumer for dead after so long without a
/// heartbeat.
pub const WAIT_LIMIT_NS: u64 = 2_000_000_000;
/// How long a thread waits for another thread that is making the sensor.
pub const MAKING_LIMIT_NS: u64 = 100_000_000;

/// What a sensor measures.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One number: a level that is set plus sums that are added to it.
    Scalar = 1,
    /// Events, each with a timestamp.
    List = 2,
    /// How often each magnitude occurred.
    Histogram = 3,
    /// The counterpart of a scalar: a number that the program reads and others set.
    Knob = 4,
}

impl Kind {
    /// The kind with this number, if there is one.
    pub const fn from_u32(n: u32) -> Option<Kind> {
        match n {
            1 => Some(Kind::Scalar),
            2 => Some(Kind::List),
            3 => Some(Kind::Histogram),
            4 => Some(Kind::Knob),
            _ => None,
        }
    }
}

/// First 2048 bytes of a sensor.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Head {
    /// [`crate::MAGIC`]; stored last, so a sensor without it is not yet made.
    pub magic: u64,
    /// [`VERSION`] of the producer.
    pub version: u32,
    /// [`VERSION_MIN`] of the producer.
    pub version_min: u32,
    /// A [`Kind`].
    pub kind: u32,
    /// A [`Policy`]; lists only.
    pub policy: u32,
    /// First half of the sensor's global number, as of a device: the group.
    pub major: u32,
    /// Second half: the sensor in the group.
    pub minor: u32,
    /// Distinguishes sensors with the same numbers in one process.
    pub instance: u32,
    /// Process that the sensor belongs to.
    pub pid: u32,
    /// When that process started, in clock ticks since boot (field 22 of `/proc/PID/stat`); 0 if
    /// unknown. With `pid` it identifies a process uniquely.
    pub start_time: u64,
    /// Time-stamp counter when the sensor was made.
    pub tsc_at_open: u64,
    /// `CLOCK_MONOTONIC` at the same instant.
    pub monotonic_ns_at_open: u64,
    /// `CLOCK_REALTIME` at the same instant.
    pub realtime_ns_at_open: u64,
    /// Slots, the shared one included.
    pub slots: u32,
    /// A list's cells hold `1 << cell_log2` bytes; 0 for other kinds.
    pub cell_log2: u32,
    /// A list's rings hold `1 << ring_log2` bytes; 0 for other kinds.
    pub ring_log2: u32,
    /// Which clock time stamps are of: 0 the time-stamp counter, [`CLOCK_MONOTONIC`] for producers that
    /// cannot read it.
    pub clock: u32,
    /// Name, zero-padded.
    pub name: [u8; NAME_BYTES],
    /// Zeros.
    pub pad1: [u64; 5],
    /// A scalar's level.
    pub level: u64,
    /// Events of signal handlers that interrupted the making of this sensor.
    pub lost_opening: u64,
    /// Zeros.
    pub pad2: [u64; 6],
    /// Incremented by the consumer as a heartbeat; 0 means that there is none.
    pub consumer_beat: u64,
    /// Written by the consumer: losses that were reported to a consumer.
    pub lost_reported: u64,
    /// Zeros.
    pub pad3: [u64; 94],
    /// Thread that owns each slot; 0 for one that was never used. Slot 0 has no owner.
    pub owners: [u32; SLOTS_MAX as usize],
}

/// Head of a list's slot; its ring lies [`LIST_RING`] bytes into the slot.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct ListSlot {
    /// Cursors; positions in them are bytes. `consumer_beat` counts the consumer's visits.
    pub cursors: RingCursors,
    /// Positions below this were reserved by former owners of the slot, which have ended: what they
    /// have not stored will never be.
    pub settled: u64,
    /// Zeros.
    pub pad0: [u64; 7],
    /// Written by the consumer: records that were reserved and that it did not get, because their
    /// producer died before it stored them or because they were overwritten.
    pub missed: u64,
    /// Zeros.
    pub pad1: [u64; 7],
}

/// Offset of the ring in a list's slot.
pub const LIST_RING: u32 = 4096;

/// A scalar's slot.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct ScalarSlot {
    /// Sum of what the slot's threads added, modulo 2^64.
    pub sum: u64,
    /// Zeros.
    pub pad: [u64; 7],
}

/// Each power of two is divided into `1 << SUB_BITS` buckets, so that a bucket's width is at most
/// an eighth of its values.
pub const SUB_BITS: u32 = 3;
/// Buckets of a histogram: all 64-bit values have one.
pub const BUCKETS: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;

/// A histogram's slot.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct HistogramSlot {
    /// Sum of the recorded values, modulo 2^64.
    pub sum: u64,
    /// Zeros.
    pub pad0: [u64; 7],
    /// Values recorded, by [`bucket`].
    pub buckets: [u64; BUCKETS],
    /// Zeros.
    pub pad1: [u64; 8],
}

/// What a knob's [`KnobSlot::value`] is in a program that has not made its file yet; no knob has this value.
pub const KNOB_UNOPENED: i64 = i64::MIN;

/// A knob's only slot: a page of its file, which the program maps over a page of its own data, so that reading
/// the knob is one load from a fixed address.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct KnobSlot {
    /// What the program reads; written by others.
    pub value: i64,
    /// Zeros.
    pub pad0: [u64; 7],
    /// What the program has chosen.
    pub default_value: i64,
    /// The least value that may be set.
    pub least: i64,
    /// The greatest value that may be set.
    pub greatest: i64,
    /// What `value` is while no process holds the knob; `default_value` at first.
    pub resting: i64,
    /// 1 while a process holds the knob, and has locked its file. Without a lock, its holder died.
    pub held: u64,
    /// How often the value was set.
    pub sets: u64,
    /// Zeros.
    pub pad1: [u64; 498],
}

/// The bucket that counts `value`: below 8 the value itself, then eight to each power of two.
pub const fn bucket(value: u64) -> usize {
    if value < 1 << SUB_BITS {
        return value as usize;
    }
    let exponent = value.ilog2();
    let sub = (value >> (exponent - SUB_BITS)) as usize & ((1 << SUB_BITS) - 1);
    ((exponent - SUB_BITS + 1) as usize) << SUB_BITS | sub
}

/// The least value that a bucket counts.
pub const fn bucket_floor(bucket: usize) -> u64 {
    let octave = bucket >> SUB_BITS;
    let sub = bucket & ((1 << SUB_BITS) - 1);
    if octave == 0 { sub as u64 } else { ((1 << SUB_BITS | sub) as u64) << (octave - 1) }
}

/// Last word of a cell, stored last: shows that the cell holds a record, and has the rest of its
/// head.
///
/// ```text
/// 63           40 39      24 23      8 7     1  0
/// | thread       | lap      | event   | words | 1 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub u64);

impl Mark {
    /// Lowest bit of the payload's length in words.
    pub const WORDS_SHIFT: u32 = 1;
    /// Lowest bit of the event's number in its sensor.
    pub const EVENT_SHIFT: u32 = 8;
    /// Lowest bit of the lap.
    pub const LAP_SHIFT: u32 = 24;
    /// Lowest bit of the thread's id (Linux has at most 2^22).
    pub const THREAD_SHIFT: u32 = 40;
    /// The bit that is set while a record is stored, where rings are overwritten: no other writer
    /// may store to the cell.
    pub const CLAIMED_SHIFT: u32 = 63;

    /// The mark of a record at `position` of a ring.
    pub const fn new(thread: u32, position: u64, ring_log2: u32, event: u16, words: u32) -> Mark {
        Mark(
            (thread as u64) << Mark::THREAD_SHIFT
                | (Mark::lap(position, ring_log2) as u64) << Mark::LAP_SHIFT
                | (event as u64) << Mark::EVENT_SHIFT
                | (words as u64 & 0x7f) << Mark::WORDS_SHIFT
                | 1,
        )
    }

    /// How often the ring has wrapped before `position`, as far as marks have bits for it.
    pub const fn lap(position: u64, ring_log2: u32) -> u16 {
        (position >> ring_log2) as u16
    }

    /// The mark that claims a cell with this mark for a record of lap `lap`, if it may be claimed:
    /// not while another record is stored, nor for a record of an earlier lap.
    pub const fn claimed_for(self, lap: u16) -> Option<Mark> {
        let later = (self.0 >> Mark::LAP_SHIFT) as u16;
        let is_claimed = self.0 >> Mark::CLAIMED_SHIFT != 0;
        match !is_claimed && later.wrapping_sub(lap) as i16 <= 0 {
            true => Some(Mark(1 << Mark::CLAIMED_SHIFT | (lap as u64) << Mark::LAP_SHIFT)),
            false => None,
        }
    }

    /// Whether this is the mark of a record that was stored at this position, not a lap before.
    pub const fn is_of(self, position: u64, ring_log2: u32) -> bool {
        self.0 & 1 == 1 && (self.0 >> Mark::LAP_SHIFT) as u16 == Mark::lap(position, ring_log2)
    }

    /// Thread that committed the record.
    pub const fn thread(self) -> u32 {
        (self.0 >> Mark::THREAD_SHIFT) as u32
    }

    /// Number of the event in its sensor.
    pub const fn event(self) -> u16 {
        (self.0 >> Mark::EVENT_SHIFT) as u16
    }

    /// Words of payload.
    pub const fn words(self) -> usize {
        (self.0 >> Mark::WORDS_SHIFT) as usize & 0x7f
    }
}

/// Sizes of a sensor. Made only by [`Shape::checked`], so that its arithmetic cannot overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    kind: Kind,
    policy: Policy,
    slots: u32,
    cell_log2: u32,
    ring_log2: u32,
}

impl Shape {
    /// The shape with these numbers, which may come from memory that other processes write, or
    /// `None`.
    ///
    /// Cells hold 16 to 256 bytes, rings 4 KiB to 1 GiB.
    pub const fn checked(
        kind: u32,
        policy: u32,
        slots: u32,
        cell_log2: u32,
        ring_log2: u32,
    ) -> Option<Shape> {
        let (Some(kind), Some(policy)) = (Kind::from_u32(kind), Policy::from_u32(policy)) else {
            return None;
        };
        let ring = match kind {
            Kind::List => 4 <= cell_log2 && cell_log2 <= 8 && 12 <= ring_log2 && ring_log2 <= 30,
            Kind::Knob => cell_log2 == 0 && ring_log2 == 0 && slots == 1,
            _ => cell_log2 == 0 && ring_log2 == 0,
        };
        if ring && 1 <= slots && slots <= SLOTS_MAX {
            Some(Shape { kind, policy, slots, cell_log2, ring_log2 })
        } else {
            None
        }
    }

    /// What the sensor measures.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// What a list does when it is full.
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// Slots, the shared one included.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// Logarithm of a cell's bytes.
    pub const fn cell_log2(&self) -> u32 {
        self.cell_log2
    }

    /// Logarithm of a ring's bytes.
    pub const fn ring_log2(&self) -> u32 {
        self.ring_log2
    }

    /// Bytes of a cell.
    pub const fn cell_bytes(&self) -> u64 {
        1 << self.cell_log2
    }

    /// Bytes of a ring.
    pub const fn ring_bytes(&self) -> u64 {
        1 << self.ring_log2
    }

    /// Words of payload that a cell has room for: all but the timestamp and the mark.
    pub const fn payload_words(&self) -> usize {
        (self.cell_bytes() as usize / 8).saturating_sub(2)
    }

    /// Bytes from one slot to the next.
    pub const fn slot_bytes(&self) -> u64 {
        match self.kind {
            Kind::Scalar => size_of::<ScalarSlot>() as u64,
            Kind::List => LIST_RING as u64 + self.ring_bytes(),
            Kind::Histogram => size_of::<HistogramSlot>() as u64,
            Kind::Knob => size_of::<KnobSlot>() as u64,
        }
    }

    /// Offset of a slot in the sensor.
    pub const fn slot(&self, index: u32) -> u64 {
        SLOTS as u64 + index as u64 * self.slot_bytes()
    }

    /// Bytes of the whole sensor, in whole pages.
    pub const fn file_bytes(&self) -> u64 {
        self.slot(self.slots).next_multiple_of(4096)
    }
}

/// Whether a sensor may have this name: letters, digits, `.`, `-` and `_`, the first no dot, as it
/// becomes part of a file's name.
pub const fn is_name(name: &[u8]) -> bool {
    if name.is_empty() || name.len() >= NAME_BYTES || name[0] == b'.' {
        return false;
    }
    let mut i = 0;
    while i < name.len() {
        if !name[i].is_ascii_alphanumeric() && !matches!(name[i], b'.' | b'-' | b'_') {
            return false;
        }
        i += 1;
    }
    true
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Head>() == 2048);
    assert!(offset_of!(Head, version) == 8);
    assert!(offset_of!(Head, kind) == 16);
    assert!(offset_of!(Head, major) == 24);
    assert!(offset_of!(Head, instance) == 32);
    assert!(offset_of!(Head, pid) == 36);
    assert!(offset_of!(Head, start_time) == 40);
    assert!(offset_of!(Head, tsc_at_open) == 48);
    assert!(offset_of!(Head, slots) == 72);
    assert!(offset_of!(Head, name) == 88);
    assert!(offset_of!(Head, level) == 192);
    assert!(offset_of!(Head, consumer_beat) == 256);
    assert!(offset_of!(Head, lost_reported) == 264);
    assert!(offset_of!(Head, owners) == 1024);
    assert!(size_of::<ListSlot>() == 256);
    assert!(offset_of!(ListSlot, settled) == 128);
    assert!(offset_of!(ListSlot, missed) == 192);
    assert!(size_of::<ScalarSlot>() == 64);
    assert!(size_of::<HistogramSlot>() == 4096);
    assert!(offset_of!(HistogramSlot, buckets) == 64);
    assert!(BUCKETS == 496);
    assert!(size_of::<KnobSlot>() == 4096);
    assert!(offset_of!(KnobSlot, default_value) == 64);
    assert!(offset_of!(KnobSlot, held) == 96);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_keep_their_parts() {
        let mark = Mark::new(4_194_303, 5 << 12 | 64, 12, 0xabcd, 30);
        assert_eq!((mark.thread(), mark.event(), mark.words()), (4_194_303, 0xabcd, 30));
        assert!(mark.is_of(5 << 12, 12));
        assert!(!mark.is_of(4 << 12, 12));
        assert!(!Mark(0).is_of(0, 12));
        let claimed = mark.claimed_for(6).expect("of a lap before");
        assert!(!claimed.is_of(6 << 12, 12));
        assert_eq!((mark.claimed_for(4), claimed.claimed_for(7)), (None, None));
        assert!(Mark::new(1, 0xffff << 12, 12, 1, 1).claimed_for(0).is_some());
    }

    #[test]
    fn buckets_cover_all_values_in_order() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        for b in 0..BUCKETS {
            let floor = bucket_floor(b);
            assert_eq!(bucket(floor), b);
            if b > 0 {
                assert_eq!(bucket(floor - 1), b - 1);
            }
        }
    }

    #[test]
    fn shapes_are_checked() {
        let list = Shape::checked(2, 0, 3, 5, 12).unwrap();
        assert_eq!(list.slot(1), 4096 + 8192);
        assert_eq!(list.file_bytes(), 4096 + 3 * 8192);
        assert_eq!(list.payload_words(), 2);
        assert_eq!(Shape::checked(1, 0, 65, 0, 0).unwrap().file_bytes(), 4096 + 8192);
        assert_eq!(Shape::checked(4, 0, 1, 0, 0).unwrap().file_bytes(), 8192);
        for (kind, policy, slots, cell, ring) in [
            (0, 0, 1, 5, 12),
            (2, 3, 1, 5, 12),
            (2, 0, 0, 5, 12),
            (2, 0, 257, 5, 12),
            (2, 0, 1, 3, 12),
            (2, 0, 1, 9, 12),
            (2, 0, 1, 5, 11),
            (2, 0, 1, 5, 31),
            (1, 0, 1, 5, 0),
            (4, 0, 2, 0, 0),
            (5, 0, 1, 0, 0),
        ] {
            assert_eq!(Shape::checked(kind, policy, slots, cell, ring), None);
        }
    }

    #[test]
    fn names_are_file_names() {
        assert!(is_name(b"web.request-2_x"));
        for bad in [&b""[..], b".x", b"a/b", b"a b", &[b'a'; 64]] {
            assert!(!is_name(bad));
        }
    }
}
