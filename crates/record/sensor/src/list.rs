//! Draining a list: each event is read once or counted as lost.
//!
//! `reserved` says how far a ring's producer came, `consumed` how far we did. In between, a cell
//! whose mark is of this lap holds a whole record. One whose mark is not is a commit under way,
//! and we stop there; or a *hole*: its producer died before it stored. Then we count it as missed
//! and go on. Overwriting rings are read the same way, but what we copied is only believed if the
//! producer has not since reserved the same cells a lap later.
//!
//! Positions in shared memory may be anything. They are brought into a sane range first, and their
//! low bits alone choose the cell.

use std::mem::offset_of;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicU64, fence};

use fettle_abi::ring::{Policy, RingCursors};
use fettle_abi::sensor::{Head, Kind, LIST_RING, ListSlot, Mark};

use crate::heart::Heart;
use crate::{Error, Sensor};

/// Cells that are copied before they are given out.
const BATCH: u64 = 64;

/// An event of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Time-stamp counter when the event was committed. [`crate::Clock`] translates it.
    pub timestamp: u64,
    /// Thread that committed it.
    pub thread: u32,
    /// Its number in the sensor.
    pub number: u16,
    /// What the program had to say.
    pub words: &'a [u64],
}

/// What one pass over a list gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Events that were read.
    pub read: u64,
    /// Events that were found lost, and that no pass before reported, not even a former consumer's.
    pub lost: u64,
}

/// A list's balance since it was made, over all consumers: `read + lost + pending = produced`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Events that the program committed or tried to.
    pub produced: u64,
    /// Events that were read.
    pub read: u64,
    /// Events that will never be read: they found no room, were overwritten, or their thread died
    /// before it stored them.
    pub lost: u64,
    /// Events that wait to be read.
    pub pending: u64,
}

/// An event of the pass that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    ring: u32,
    index: u32,
}

/// What a pass has found in one ring.
#[derive(Debug)]
struct Found {
    slot: u32,
    /// Up to here room has been made.
    taken: u64,
    /// Behind the last cell that was dealt with.
    end: u64,
    /// Position of each event, and whether it is safe.
    events: Vec<(u64, bool)>,
    /// The first that is not, or was not when room was made.
    next: usize,
}

/// A list with us as its one consumer.
#[derive(Debug)]
pub struct List {
    /// Dropped first: the next consumer of the list has a heartbeat of its own.
    _heart: Heart,
    sensor: Sensor,
    /// Cells that were copied, each behind its position.
    batch: Vec<u64>,
    /// What the pass that is under way has found.
    found: Vec<Found>,
}

impl List {
    pub(crate) fn new(sensor: Sensor) -> Result<List, Error> {
        // The kernel gives this lock back when we end, however we do (and our forks, if any).
        if sensor.file.try_lock().is_err() {
            return Err(Error::Busy { name: sensor.description().name.clone() });
        }
        sensor.account()?;
        let waits = sensor.shape().policy() == Policy::Wait;
        let heart = Heart::new(&sensor.map, waits).map_err(Error::io(sensor.path()))?;
        Ok(List { _heart: heart, sensor, batch: Vec::new(), found: Vec::new() })
    }

    /// The sensor behind the list.
    pub fn sensor(&self) -> &Sensor {
        &self.sensor
    }

    /// Gives every event that is there to `sink`, ring by ring, each ring's in the order of their
    /// places (sort by time stamp to merge them), and makes their room free.
    ///
    /// One pass ends, however fast the producer: it stops at what was there when it began. Room
    /// is made free after the sink has seen the events, so if we are killed the next consumer sees
    /// at most one batch twice, and misses none; what the sink keeps is lost then ([`List::look`]).
    pub fn drain(&mut self, mut sink: impl FnMut(Event)) -> Result<Drained, Error> {
        let mut read = 0;
        for slot in self.sensor.used_slots() {
            let ring = Ring::new(&self.sensor, slot);
            let (mut position, end) = ring.range();
            while is_before(position, end) {
                let copied = ring.copy(position, end, &mut self.batch);
                for cell in self.batch.chunks_exact(ring.entry_words()) {
                    sink(ring.event(&cell[1..]));
                    read += 1;
                }
                ring.take(position, copied.end, copied.missed);
                position = copied.end;
                if copied.under_way {
                    break;
                }
            }
            ring.visited();
        }
        self.drained(read)
    }

    /// Begins a pass over all that is there, and frees nothing: each event stays in the list until
    /// it is [safe](List::safe). This is for a consumer that keeps events for a while, to sort them
    /// or to write them to a slow reader: if it is killed meanwhile, the next consumer sees those
    /// events again that were not safe. What an earlier pass found and was not safe is seen again,
    /// too.
    pub fn look(&mut self, mut sink: impl FnMut(EventId, Event)) -> Result<(), Error> {
        self.found.clear();
        for slot in self.sensor.used_slots() {
            let ring = Ring::new(&self.sensor, slot);
            let (from, end) = ring.range();
            let id = self.found.len() as u32;
            let mut found = Found { slot, taken: from, end: from, events: Vec::new(), next: 0 };
            while is_before(found.end, end) {
                let copied = ring.copy(found.end, end, &mut self.batch);
                for cell in self.batch.chunks_exact(ring.entry_words()) {
                    let index = found.events.len() as u32;
                    found.events.push((cell[0], false));
                    sink(EventId { ring: id, index }, ring.event(&cell[1..]));
                }
                found.end = copied.end;
                if copied.under_way {
                    break;
                }
            }
            self.found.push(found);
        }
        self.sensor.expect_whole()
    }

    /// An event of this pass is not needed again.
    pub fn safe(&mut self, event: EventId) {
        let found = self.found.get_mut(event.ring as usize);
        if let Some((_, safe)) = found.and_then(|f| f.events.get_mut(event.index as usize)) {
            *safe = true;
        }
    }

    /// Makes the room free of events that are safe, as far as none before them is not.
    pub fn make_room(&mut self) {
        for found in &mut self.found {
            let ring = Ring::new(&self.sensor, found.slot);
            let rest = &found.events[found.next..];
            let count = rest.iter().take_while(|(_, safe)| *safe).count();
            found.next += count;
            let to = found.events.get(found.next).map_or(found.end, |(position, _)| *position);
            let cells = to.wrapping_sub(found.taken) / ring.cell;
            ring.take(found.taken, to, cells.wrapping_sub(count as u64));
            found.taken = to;
        }
    }

    /// Ends a pass.
    pub fn finish(&mut self) -> Result<Drained, Error> {
        self.make_room();
        let read = self.found.iter().map(|found| found.next as u64).sum();
        for found in self.found.drain(..) {
            Ring::new(&self.sensor, found.slot).visited();
        }
        self.drained(read)
    }

    /// The result of a pass.
    fn drained(&self, read: u64) -> Result<Drained, Error> {
        self.sensor.expect_whole()?;
        let lost = self.sensor.account()?.lost;
        let reported = self.sensor.map.u64(LOST_REPORTED).swap(lost, Relaxed);
        Ok(Drained { read, lost: lost.wrapping_sub(reported) })
    }
}

impl Sensor {
    /// Becomes the one consumer of a list.
    pub fn into_list(self) -> Result<List, Error> {
        self.expect(Kind::List)?;
        List::new(self)
    }

    /// The last events of a list, at most so many of each ring, whether a consumer has read them or not: ring by ring,
    /// each ring's in the order of their places. None is taken. What is being stored or overwritten just now is left
    /// out.
    pub fn last_events(&self, most: u64, mut sink: impl FnMut(Event)) -> Result<(), Error> {
        self.expect(Kind::List)?;
        let mut cells = Vec::new();
        for slot in self.used_slots() {
            let ring = Ring::new(self, slot);
            ring.copy_last(most, &mut cells);
            for cell in cells.chunks_exact(ring.entry_words()) {
                sink(ring.event(&cell[1..]));
            }
        }
        self.expect_whole()
    }

    /// A list's balance so far, which takes no events. Exact when its producer is dead or idle;
    /// while it runs, the counters are read one after another.
    pub fn account(&self) -> Result<Account, Error> {
        self.expect(Kind::List)?;
        let opening = self.head(offset_of!(Head, lost_opening));
        let mut sum = Account { produced: opening, lost: opening, ..Account::default() };
        for slot in self.used_slots() {
            let ring = Ring::new(self, slot);
            let one = ring.account();
            sum.produced = sum.produced.wrapping_add(one.produced);
            sum.read = sum.read.wrapping_add(one.read);
            sum.lost = sum.lost.wrapping_add(one.lost);
            sum.pending = sum.pending.wrapping_add(one.pending);
        }
        self.expect_whole()?;
        Ok(sum)
    }
}

const LOST_REPORTED: u64 = offset_of!(Head, lost_reported) as u64;

/// Positions only grow, but in hostile memory they may be anywhere and wrap.
fn is_before(position: u64, end: u64) -> bool {
    (end.wrapping_sub(position) as i64) > 0
}

/// What [`Ring::copy`] found.
struct Copied {
    /// Position after the last cell that was dealt with.
    end: u64,
    /// Cells among them that hold no record, or one that was overwritten.
    missed: u64,
    /// Whether the cell at `end` is being stored to right now.
    under_way: bool,
}

/// The ring of one slot.
struct Ring<'a> {
    sensor: &'a Sensor,
    slot: u32,
    base: u64,
    cell: u64,
    capacity: u64,
}

impl<'a> Ring<'a> {
    fn new(sensor: &'a Sensor, slot: u32) -> Ring<'a> {
        let shape = sensor.shape();
        Ring {
            sensor,
            slot,
            base: shape.slot(slot),
            cell: shape.cell_bytes(),
            capacity: shape.ring_bytes(),
        }
    }

    /// A word of the slot's head.
    fn word(&self, offset: usize) -> &'a AtomicU64 {
        self.sensor.map.u64(self.base + offset as u64)
    }

    /// `reserved`, at the start of a cell.
    fn reserved(&self) -> u64 {
        self.word(offset_of!(RingCursors, reserved)).load(Acquire) & !(self.cell - 1)
    }

    /// `consumed`, at the start of a cell.
    fn consumed(&self) -> u64 {
        self.word(offset_of!(RingCursors, consumed)).load(Relaxed) & !(self.cell - 1)
    }

    fn account(&self) -> Account {
        // In this order, so that a running producer makes us see too much pending, not too little.
        let dropped = self.word(offset_of!(RingCursors, lost)).load(Relaxed);
        let missed = self.word(offset_of!(ListSlot, missed)).load(Relaxed);
        let (consumed, reserved) = (self.consumed(), self.reserved());
        let unread = reserved.wrapping_sub(consumed);
        let overwritten = unread.saturating_sub(self.capacity) / self.cell;
        Account {
            produced: (reserved / self.cell).wrapping_add(dropped),
            read: (consumed / self.cell).wrapping_sub(missed),
            lost: dropped.wrapping_add(missed).wrapping_add(overwritten),
            pending: unread.min(self.capacity) / self.cell,
        }
    }

    /// What there is to read: never more than the ring holds. What was overwritten before we came
    /// is counted as missed here.
    fn range(&self) -> (u64, u64) {
        let (consumed, reserved) = (self.consumed(), self.reserved());
        let unread = reserved.wrapping_sub(consumed);
        if unread <= self.capacity {
            return (consumed, reserved);
        }
        let oldest = reserved.wrapping_sub(self.capacity);
        self.take(consumed, oldest, oldest.wrapping_sub(consumed) / self.cell);
        (oldest, reserved)
    }

    /// Words of a cell in the batch: its position, and what it holds.
    fn entry_words(&self) -> usize {
        1 + self.cell as usize / 8
    }

    /// Copies records from `from` on, at most [`BATCH`] cells of them.
    fn copy(&self, from: u64, end: u64, batch: &mut Vec<u64>) -> Copied {
        batch.clear();
        let stop = from.wrapping_add((BATCH * self.cell).min(end.wrapping_sub(from)));
        let (mut at, mut settled, mut under_way) = (from, None, false);
        while at != stop {
            if !self.copy_cell(at, batch) {
                // A writer that has not stored may still do so, unless it is dead. Once we know
                // that it is, we look again: it may have stored in between.
                let settled = *settled.get_or_insert_with(|| self.settled_below(end));
                if !is_before(at, settled) {
                    under_way = true;
                    break;
                }
                self.copy_cell(at, batch);
            }
            at = at.wrapping_add(self.cell);
        }
        let intact = self.intact_from(from);
        if is_before(from, intact) {
            let lapped = intact.wrapping_sub(from);
            let words = self.entry_words();
            let stale = batch.chunks_exact(words).take_while(|c| c[0].wrapping_sub(from) < lapped);
            batch.drain(..stale.count() * words);
            if is_before(at, intact) {
                (at, under_way) = (intact, false);
            }
        }
        let kept = (batch.len() / self.entry_words()) as u64;
        let missed = (at.wrapping_sub(from) / self.cell).wrapping_sub(kept);
        Copied { end: at, missed, under_way }
    }

    /// Copies the last cells that hold records.
    fn copy_last(&self, most: u64, batch: &mut Vec<u64>) {
        batch.clear();
        let end = self.reserved();
        let mut at = end - most.saturating_mul(self.cell).min(self.capacity).min(end);
        while at != end {
            self.copy_cell(at, batch);
            at = at.wrapping_add(self.cell);
        }
        // As in `intact_from`, but whatever the policy: what was read before may be stored over, too.
        fence(Acquire);
        let oldest = self.reserved().wrapping_sub(self.capacity);
        let words = self.entry_words();
        let stale = batch.chunks_exact(words).take_while(|cell| is_before(cell[0], oldest));
        batch.drain(..stale.count() * words);
    }

    /// Copies one cell, if it holds a record of this lap.
    fn copy_cell(&self, at: u64, batch: &mut Vec<u64>) -> bool {
        let cell = self.base + u64::from(LIST_RING) + (at & (self.capacity - 1));
        let last = self.cell - 8;
        let mark = self.sensor.map.u64(cell + last).load(Acquire);
        if !Mark(mark).is_of(at, self.sensor.shape().ring_log2()) {
            return false;
        }
        batch.push(at);
        let words = (0..last).step_by(8).map(|i| self.sensor.map.u64(cell + i).load(Relaxed));
        batch.extend(words);
        batch.push(mark);
        true
    }

    /// Takes a cell apart.
    fn event<'b>(&self, cell: &'b [u64]) -> Event<'b> {
        let mark = Mark(cell[cell.len() - 1]);
        let words = mark.words().min(cell.len() - 2);
        Event {
            timestamp: cell[0],
            thread: mark.thread(),
            number: mark.event(),
            words: &cell[1..=words],
        }
    }

    /// Position below which no writer will store any more. `end` was read from `reserved` before.
    fn settled_below(&self, end: u64) -> u64 {
        let producer = self.sensor.description().producer;
        // The owner is read after `end`, so what lies below `end` was reserved by him or earlier.
        let owner = self.sensor.owner(self.slot);
        if !producer.is_alive() || self.slot != 0 && !producer.has_thread(owner) {
            return end;
        }
        self.word(offset_of!(ListSlot, settled)).load(Acquire)
    }

    /// Position from which on cells copied just now were not overwritten meanwhile.
    fn intact_from(&self, from: u64) -> u64 {
        if self.sensor.shape().policy() != Policy::Overwrite {
            return from;
        }
        // If we saw any store to a cell's next lap, we also see that it was reserved before.
        fence(Acquire);
        let oldest = self.reserved().wrapping_sub(self.capacity);
        if is_before(from, oldest) { oldest } else { from }
    }

    /// Makes room free up to `to`, `missed` cells of which gave no event.
    fn take(&self, from: u64, to: u64, missed: u64) {
        if from == to {
            return;
        }
        let counter = self.word(offset_of!(ListSlot, missed));
        counter.store(counter.load(Relaxed).wrapping_add(missed), Relaxed);
        self.word(offset_of!(RingCursors, consumed)).store(to, Release);
    }

    /// Increments the heartbeat for a waiting producer, whether or not there was something to take.
    fn visited(&self) {
        let visits = self.word(offset_of!(RingCursors, consumer_beat));
        visits.store(visits.load(Relaxed).wrapping_add(1), Release);
    }
}
