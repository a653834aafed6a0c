//! A thread's way to its slots.
//!
//! What a thread knows about a slot, its [`Writer`], lies in memory that a fork wipes. So a child
//! finds no slot and takes the slow path to a sensor of its own, and the process id need not be
//! compared at each event.

use std::cell::Cell;
use std::mem::offset_of;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::*;

use fettle_abi::sensor::Head;

use crate::origin::{Origin, TABLE};
use crate::process::{NONE, Process, Writer};
use crate::shared::Shared;
use crate::sys;

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
                writer.fill(shape, slot, tid, false);
                return writer;
            }
        }
    }
    process.writer(0)
}
