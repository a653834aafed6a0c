//! A thread's way to its slots.
//!
//! What a thread knows about a slot, its [`Writer`], lies in memory that a fork wipes. So a child
//! finds no slot and takes the slow path to a sensor of its own, and nobody has to ask for the
//! process id at each event.

use std::cell::Cell;
use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use fettle_abi::ring::{Policy, RingCursors};
use fettle_abi::sensor::{Head, Kind, ListSlot, Mark};

use crate::origin::Origin;
use crate::shared::Shared;
use crate::sys;

/// Sensors of a process for which threads have slots of their own; all others use shared slots.
const TABLE: usize = 64;

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

static NONE: Writer = Writer {
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
    pub(crate) fn fill(&self, origin: &Origin, slot: Shared, tid: u32, is_shared: bool) {
        let shape = &origin.shape;
        self.any_slot.store(slot.start(), Relaxed);
        if shape.kind() == Kind::List {
            self.mask.store(shape.ring_bytes() - shape.cell_bytes(), Relaxed);
            self.cell_bytes.store(shape.cell_bytes(), Relaxed);
            self.mark.store((tid as u64) << Mark::THREAD_SHIFT | 1, Relaxed);
            self.ring_log2.store(shape.ring_log2(), Relaxed);
            self.payload_words.store(shape.payload_words() as u32, Relaxed);
            slot.half(offset_of!(RingCursors, policy)).store(shape.policy() as u32, Relaxed);
            slot.half(offset_of!(RingCursors, capacity_log2)).store(shape.ring_log2(), Relaxed);
            if shape.policy() == Policy::Overwrite {
                slot.word(offset_of!(RingCursors, limit)).store(u64::MAX, Relaxed);
            }
            if !is_shared {
                // Whoever reserved up to here is gone.
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

    fn has(&'static self, writer: *const Writer) -> bool {
        let first = std::ptr::from_ref(self.writer(0));
        (first..first.wrapping_add(self.slots.load(Relaxed) as usize)).contains(&writer)
    }
}

/// What a thread keeps. It has no destructor: a slot is claimed again once its owner is gone.
struct Mine {
    tid: Cell<u32>,
    /// The owner's word of the slot that it is about to claim.
    claiming: Cell<*const AtomicU32>,
    writers: [Cell<*const Writer>; TABLE],
}

thread_local! {
    static MINE: Mine = const {
        Mine {
            tid: Cell::new(0),
            claiming: Cell::new(std::ptr::null()),
            writers: [const { Cell::new(&raw const NONE) }; TABLE],
        }
    };
}

/// A place in the threads' tables that no sensor had before; 0 if there is none left.
pub(crate) fn new_index() -> u32 {
    static USED: AtomicU32 = AtomicU32::new(1);
    let next = |used| if used < TABLE as u32 { Some(used + 1) } else { None };
    USED.fetch_update(Relaxed, Relaxed, next).unwrap_or(0)
}

/// The writer that this thread has used before; one without a slot if there is none.
#[inline]
pub(crate) fn known_writer(origin: &Origin) -> &'static Writer {
    let index = origin.index.load(Relaxed) as usize % TABLE;
    // SAFETY: points to `NONE` or into a `Process`, neither of which ever goes away.
    MINE.with(|mine| unsafe { &*mine.writers[index].get() })
}

/// The thread's own slot, if it has one.
#[inline]
pub(crate) fn own_slot(origin: &Origin) -> Option<Shared> {
    known_writer(origin).slot()
}

/// The process's part of the sensor, if it is on.
#[inline]
pub(crate) fn process(origin: &Origin) -> Option<&'static Process> {
    match own_slot(origin) {
        Some(_) => origin.process(),
        None => {
            writer(origin)?;
            origin.process()
        }
    }
}

/// Id of this thread, once it has a writer.
pub(crate) fn tid() -> u32 {
    MINE.with(|mine| mine.tid.get())
}

/// The thread's writer, after making the sensor and claiming a slot where that is still to be
/// done; `None` if the sensor is off.
#[cold]
#[inline(never)]
pub(crate) fn writer(origin: &Origin) -> Option<&'static Writer> {
    let _errno = sys::KeepErrno::new();
    let process = origin.made()?;
    let known = known_writer(origin);
    if process.has(known) {
        return Some(known);
    }
    let index = origin.index.load(Relaxed) as usize;
    MINE.with(|mine| {
        if index == 0 {
            if mine.tid.get() == 0 {
                mine.tid.set(sys::tid());
            }
            return Some(process.writer(0));
        }
        mine.tid.set(sys::tid());
        let writer = claim(origin, process, mine);
        mine.writers[index].set(writer);
        Some(writer)
    })
}

/// The writer of a slot of this thread's own, or of the shared one if all have living owners.
fn claim(origin: &Origin, process: &'static Process, mine: &Mine) -> &'static Writer {
    let tid = mine.tid.get();
    let shape = &origin.shape;
    // First look for free slots, then for those of dead threads.
    for dead in [false, true] {
        for index in 1..shape.slots() {
            let owner_word = process.head().half(offset_of!(Head, owners) + 4 * index as usize);
            let owner = owner_word.load(Acquire);
            // Ours already, if we are a signal handler that interrupted this very loop. A slot
            // that merely has our id was left by a thread that had it before, and others may be
            // about to claim it.
            let ours = owner == tid && std::ptr::eq(mine.claiming.get(), owner_word);
            if !ours && owner != 0 && (!dead || owner == tid || sys::thread_lives(owner)) {
                continue;
            }
            let slot = process.head().at(shape.slot(index));
            if owner == 0 && !sys::populate(slot.start(), shape.slot_bytes()) {
                return process.writer(0);
            }
            mine.claiming.set(owner_word);
            if ours || owner_word.compare_exchange(owner, tid, AcqRel, Relaxed).is_ok() {
                let writer = process.writer(index);
                writer.fill(origin, slot, tid, false);
                return writer;
            }
        }
    }
    process.writer(0)
}
