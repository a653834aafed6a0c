//! What a process keeps of a sensor: its memory, and a writer for each slot.

use std::mem::offset_of;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use fettle_abi::ring::{Policy, RingCursors};
use fettle_abi::sensor::{Kind, ListSlot, Mark, Shape};

use crate::shared::Shared;

/// One slot, as its owner sees it. All zeros: no slot.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Writer {
    /// The slot; null for the shared one, to which the fast path must not go.
    slot: AtomicPtr<u8>,
    /// The slot, also if it is the shared one.
    any_slot: AtomicPtr<u8>,
    /// Place in the ring of a position.
    pub(crate) mask: AtomicU64,
    pub(crate) cell_bytes: AtomicU64,
    /// The part of marks that never changes.
    pub(crate) mark: AtomicU64,
    pub(crate) ring_log2: AtomicU32,
    pub(crate) payload_words: AtomicU32,
    /// `consumed` + 1 of a ring that its consumer cannot empty.
    pub(crate) stuck_at: AtomicU64,
}

pub(crate) static NONE: Writer = Writer {
    slot: AtomicPtr::new(std::ptr::null_mut()),
    any_slot: AtomicPtr::new(std::ptr::null_mut()),
    mask: AtomicU64::new(0),
    cell_bytes: AtomicU64::new(0),
    mark: AtomicU64::new(0),
    ring_log2: AtomicU32::new(0),
    payload_words: AtomicU32::new(0),
    stuck_at: AtomicU64::new(0),
};

impl Writer {
    /// The thread's own slot.
    #[inline]
    pub(crate) fn slot(&self) -> Option<Shared> {
        Shared::new(self.slot.load(Relaxed))
    }

    /// The slot. Only for writers that were filled in.
    pub(crate) fn any_slot(&self) -> Shared {
        Shared::new(self.any_slot.load(Relaxed)).expect("a slot was claimed")
    }

    /// Makes this the writer of a slot. Doing it twice, as when a signal handler interrupts it
    /// and needs the same slot, does no harm.
    pub(crate) fn fill(&self, shape: &Shape, slot: Shared, tid: u32, is_shared: bool) {
        self.any_slot.store(slot.start(), Relaxed);
        if shape.kind() == Kind::List {
            self.mask.store(shape.ring_bytes() - shape.cell_bytes(), Relaxed);
            self.cell_bytes.store(shape.cell_bytes(), Relaxed);
            self.mark.store(u64::from(tid) << Mark::THREAD_SHIFT | 1, Relaxed);
            self.ring_log2.store(shape.ring_log2(), Relaxed);
            self.payload_words.store(shape.payload_words() as u32, Relaxed);
            slot.half(offset_of!(RingCursors, policy)).store(shape.policy() as u32, Relaxed);
            slot.half(offset_of!(RingCursors, capacity_log2)).store(shape.ring_log2(), Relaxed);
            if shape.policy() == Policy::Overwrite {
                slot.word(offset_of!(RingCursors, limit)).store(u64::MAX, Relaxed);
            }
            if !is_shared {
                // The threads that reserved up to here have ended.
                let reserved = slot.word(offset_of!(RingCursors, reserved)).load(Relaxed);
                slot.word(offset_of!(ListSlot, settled)).store(reserved, Release);
            }
        }
        if !is_shared {
            self.slot.store(slot.start(), Release);
        }
    }
}

/// What a process keeps about a sensor; its writers, one to each slot, follow in memory.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Process {
    /// The sensor; null in a child that has not made its own yet.
    base: AtomicPtr<u8>,
    /// Beat of a consumer that was found dead.
    pub(crate) dead_beat: AtomicU64,
    slots: AtomicU32,
}

impl Process {
    /// Makes zeros the process's part of a sensor.
    pub(crate) fn fill(&self, base: Shared, slots: u32) {
        self.slots.store(slots, Relaxed);
        self.base.store(base.start(), Release);
    }

    /// Whether a fork came between.
    pub(crate) fn is_wiped(&self) -> bool {
        self.base.load(Relaxed).is_null()
    }

    /// The sensor's head.
    pub(crate) fn head(&self) -> Shared {
        Shared::new(self.base.load(Relaxed)).expect("the sensor was made")
    }

    /// A slot's writer.
    pub(crate) fn writer(&'static self, slot: u32) -> &'static Writer {
        assert!(slot < self.slots.load(Relaxed));
        // SAFETY: `make` mapped room for this many writers behind every `Process`; zeros are one.
        unsafe { &*std::ptr::from_ref(self).add(1).cast::<Writer>().add(slot as usize) }
    }

    pub(crate) fn has(&'static self, writer: *const Writer) -> bool {
        let first = std::ptr::from_ref(self.writer(0));
        (first..first.wrapping_add(self.slots.load(Relaxed) as usize)).contains(&writer)
    }
}
