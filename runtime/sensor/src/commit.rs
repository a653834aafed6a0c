//! Committing an event: reserve first, store second.
//!
//! The thread's position moves by one `cmpxchg` without a lock prefix. A signal handler may come
//! before it (then it fails and we look again) or after it (then the handler gets the next cell).
//! The mark is stored last: a program that is killed at any instruction leaves whole records, and
//! cells whose mark is of an earlier lap.

use std::mem::offset_of;
use std::sync::atomic::Ordering::*;

use fettle_abi::ring::{Policy, RingCursors};
use fettle_abi::sensor::{Head, LIST_RING, Mark, WAIT_LIMIT_NS};

use crate::inject::{self, point};
use crate::origin::Origin;
use crate::process::{Process, Writer};
use crate::shared::Shared;
use crate::sys;
use crate::thread;

const RESERVED: usize = offset_of!(RingCursors, reserved);
const LIMIT: usize = offset_of!(RingCursors, limit);
const LOST: usize = offset_of!(RingCursors, lost);
const CONSUMED: usize = offset_of!(RingCursors, consumed);
/// Visits of the consumer to this ring.
const VISITS: usize = offset_of!(RingCursors, consumer_beat);

/// Turns that a waiting producer spins before it sleeps.
const SPINS: u32 = 64;

/// Commits an event to a list.
#[inline]
pub(crate) fn commit(origin: &Origin, number: u16, words: &[u64]) {
    let now = sys::rdtsc();
    let writer = thread::known_writer(origin);
    point(inject::BEGUN);
    if !commit_fast(writer, now, number, words) {
        commit_slow(origin, now, number, words);
    }
}

/// Commits to the thread's own ring, if it has one and there is room.
#[inline]
fn commit_fast(writer: &Writer, now: u64, number: u16, words: &[u64]) -> bool {
    let Some(slot) = writer.slot() else { return false };
    if words.len() > writer.payload_words.load(Relaxed) as usize {
        return false;
    }
    let cell_bytes = writer.cell_bytes.load(Relaxed);
    let mut position = slot.word(RESERVED).load(Relaxed);
    let overwrites = loop {
        let limit = slot.word(LIMIT).load(Relaxed);
        if position.wrapping_add(cell_bytes) > limit {
            return false;
        }
        point(inject::ROOM);
        match slot.exchange_local(RESERVED, position, position.wrapping_add(cell_bytes)) {
            Ok(()) => break limit == u64::MAX,
            Err(moved) => position = moved,
        }
    };
    let record = Record { mark: writer.mark.load(Relaxed), now, number, words };
    fill_cell(writer, slot, (position, overwrites), record);
    true
}

/// What is stored.
struct Record<'a> {
    /// The part of its mark that the thread knows.
    mark: u64,
    now: u64,
    number: u16,
    words: &'a [u64],
}

/// Stores a record, which is no longer than the cell.
#[inline]
fn fill_cell(writer: &Writer, slot: Shared, (position, overwrites): (u64, bool), record: Record) {
    let Record { mark, now, number, words } = record;
    let cell = slot.at(u64::from(LIST_RING) + (position & writer.mask.load(Relaxed)));
    let mark_at = 8 + 8 * writer.payload_words.load(Relaxed) as usize;
    let lap = Mark::lap(position, writer.ring_log2.load(Relaxed));
    point(inject::RESERVED);
    if overwrites && !claim_cell(cell, mark_at, lap, writer.slot().is_none()) {
        return;
    }
    cell.word(0).store(now, Relaxed);
    for (i, &word) in words.iter().enumerate() {
        cell.word(8 + 8 * i).store(word, Relaxed);
    }
    point(inject::STORED);
    let mark = mark
        | u64::from(lap) << Mark::LAP_SHIFT
        | u64::from(number) << Mark::EVENT_SHIFT
        | (words.len() as u64) << Mark::WORDS_SHIFT;
    cell.word(mark_at).store(mark, Release);
    point(inject::COMMITTED);
}

/// Claims a cell for a record of lap `lap`, where rings are overwritten: other writers may be a lap
/// further when the writer stores, if it was switched out or a signal handler filled the ring.
/// False if the cell is a later record's, or another writer is at it: then this record is one of
/// those that were overwritten. A writer that dies while it has a claim leaves the cell unusable.
#[inline]
fn claim_cell(cell: Shared, mark_at: usize, lap: u16, is_shared: bool) -> bool {
    let word = cell.word(mark_at);
    let mut seen = word.load(Acquire);
    loop {
        let Some(Mark(claimed)) = Mark(seen).claimed_for(lap) else { return false };
        let claimed = match is_shared {
            true => word.compare_exchange(seen, claimed, AcqRel, Acquire).map(drop),
            false => cell.exchange_local(mark_at, seen, claimed),
        };
        match claimed {
            Ok(()) => return true,
            Err(other) => seen = other,
        }
    }
}

/// Commits where the fast path cannot: first event, full ring, shared ring, child of a fork.
#[cold]
#[inline(never)]
fn commit_slow(origin: &Origin, now: u64, number: u16, words: &[u64]) {
    let Some(writer) = thread::writer(origin) else { return };
    let Some(process) = origin.process() else { return };
    let slot = writer.any_slot();
    let is_shared = writer.slot().is_none();
    let cell_bytes = origin.shape.cell_bytes();
    let mut position = slot.word(RESERVED).load(Relaxed);
    loop {
        let next = position.wrapping_add(cell_bytes);
        if next > slot.word(LIMIT).load(Relaxed) {
            let room = slot.word(CONSUMED).load(Acquire).wrapping_add(origin.shape.ring_bytes());
            if next > room {
                if origin.shape.policy() == Policy::Wait && wait(process, writer) {
                    position = slot.word(RESERVED).load(Relaxed);
                    continue;
                }
                return match is_shared {
                    true => _ = slot.word(LOST).fetch_add(1, Relaxed),
                    false => slot.add_local(LOST, 1),
                };
            }
            slot.word(LIMIT).store(room, Relaxed);
        }
        point(inject::ROOM);
        let moved = match is_shared {
            true => slot.word(RESERVED).compare_exchange(position, next, AcqRel, Relaxed).map(drop),
            false => slot.exchange_local(RESERVED, position, next),
        };
        match moved {
            Ok(()) => break,
            Err(moved) => position = moved,
        }
    }
    let mark = u64::from(thread::tid()) << Mark::THREAD_SHIFT | 1;
    let words = &words[..words.len().min(origin.shape.payload_words())];
    let overwrites = origin.shape.policy() == Policy::Overwrite;
    fill_cell(writer, slot, (position, overwrites), Record { mark, now, number, words });
}

/// Waits until the consumer made room. Gives false if it will not: there is none, it gave no sign
/// of life for [`WAIT_LIMIT_NS`], or it came by twice and could take nothing.
#[cold]
fn wait(process: &Process, writer: &Writer) -> bool {
    let _errno = sys::KeepErrno::new();
    let (head, slot) = (process.head(), writer.any_slot());
    let beat = || head.word(offset_of!(Head, consumer_beat)).load(Acquire);
    let visits = slot.word(VISITS).load(Acquire);
    let consumed = slot.word(CONSUMED).load(Acquire);
    let (mut last, mut since) = (beat(), sys::clock_ns(libc::CLOCK_MONOTONIC));
    if last == process.dead_beat.load(Relaxed)
        || consumed.wrapping_add(1) == writer.stuck_at.load(Relaxed)
    {
        return false;
    }
    for turn in 0u32.. {
        let now = beat();
        if now == 0 {
            return false;
        }
        if now != last {
            (last, since) = (now, sys::clock_ns(libc::CLOCK_MONOTONIC));
        } else if turn >= SPINS && sys::clock_ns(libc::CLOCK_MONOTONIC) - since > WAIT_LIMIT_NS {
            process.dead_beat.store(last, Relaxed);
            return false;
        }
        // Visits before `consumed`: a visit is counted after what it took.
        let came_by = slot.word(VISITS).load(Acquire).wrapping_sub(visits);
        if slot.word(CONSUMED).load(Acquire) != consumed {
            return true;
        }
        if came_by >= 2 {
            writer.stuck_at.store(consumed.wrapping_add(1), Relaxed);
            return false;
        }
        if turn < SPINS { std::hint::spin_loop() } else { sys::sleep_ns(20_000) }
    }
    false
}
