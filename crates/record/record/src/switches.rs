//! When recorded threads were off-CPU.
//!
//! The kernel's records come by processor, so what one thread did is spread over several rings that
//! cannot be read at one time. Records are looked at a drain later, when everything older has come, and
//! then in order of time.

use std::collections::HashMap;
use std::io;

use fettle_trace::ClockPair;
use fettle_types::Tid;

use crate::clock;
use crate::perf::{Edge, EdgeKind, PcSamples, Place, Rings, SwitchRecord};

/// A time that a thread was switched out, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Out {
    /// When it stopped running.
    pub off: u64,
    /// When it ran again.
    pub on: u64,
    /// It could have gone on.
    pub preempted: bool,
}

/// Follows the switches of all recorded threads.
#[derive(Debug)]
pub struct Switches {
    rings: Rings,
    clock: Clock,
    /// Records that are not old enough yet.
    waiting: Vec<Edge>,
    /// Where recorded threads were.
    places: Vec<Place>,
    /// Everything before this has been looked at: `CLOCK_MONOTONIC` in nanoseconds.
    settled_ns: u64,
    threads: HashMap<Tid, Track>,
    /// Records that found no room.
    pub lost: u64,
}

/// One thread.
#[derive(Debug)]
struct Track {
    /// When it was first seen.
    start: u64,
    /// Since when it is out, and whether it could have gone on.
    out: Option<(u64, bool)>,
    /// When it last came back.
    on: u64,
    /// When it ended.
    end: Option<u64>,
}

/// Converts times of the kernel's clock into ticks.
#[derive(Clone, Copy, Debug)]
struct Clock {
    begin: ClockPair,
    now: ClockPair,
}

impl Clock {
    /// The tick at `time_ns`, counted from the last reading of both clocks at their average rate:
    /// records are a few milliseconds old, so that a clock which is being adjusted does no harm.
    fn tick(&self, time_ns: u64) -> u64 {
        let ticks = self.now.tsc.saturating_sub(self.begin.tsc) as f64;
        let ns = self.now.monotonic_ns.saturating_sub(self.begin.monotonic_ns).max(1) as f64;
        let distance = time_ns as i64 - self.now.monotonic_ns as i64;
        self.now.tsc.saturating_add_signed((distance as f64 * (ticks / ns)) as i64)
    }
}

impl Switches {
    /// Follows threads and their descendants; with `pc_samples`, samples their PC as well. `begin` was read a
    /// while ago.
    ///
    /// # Errors
    ///
    /// When the kernel does not permit it or has no room.
    pub fn follow(
        threads: &[Tid],
        pc_samples: Option<PcSamples>,
        begin: ClockPair,
    ) -> io::Result<Switches> {
        let rings = Rings::follow(threads, pc_samples)?;
        let clock = Clock { begin, now: clock::now() };
        let settled_ns = clock.now.monotonic_ns;
        let (waiting, places, threads) = Default::default();
        Ok(Switches { rings, clock, waiting, places, settled_ns, threads, lost: 0 })
    }

    /// Follows further threads and their descendants.
    ///
    /// # Errors
    ///
    /// When the kernel has no room.
    pub fn add(&mut self, threads: &[Tid]) -> io::Result<()> {
        self.rings.add(threads)
    }

    /// A thread is recorded from now on; it is stopped.
    pub fn open(&mut self, tid: Tid, start: u64) {
        self.threads.insert(tid, Track::new(start));
    }

    /// The tick up to which [`Switches::drain`] has reported everything.
    pub fn settled(&self) -> u64 {
        self.clock.tick(self.settled_ns)
    }

    /// Takes new records and reports what has become clear: the thread, and when it was off-CPU.
    pub fn drain(&mut self, mut notify: impl FnMut(Tid, Out)) {
        let until = self.clock.now.monotonic_ns;
        self.take();
        let mut edges: Vec<Edge> = self.waiting.extract_if(.., |e| e.time_ns < until).collect();
        edges.sort_by_key(|edge| edge.time_ns);
        for edge in edges {
            self.apply(edge, &mut notify);
        }
        self.settled_ns = until;
    }

    /// A thread is not recorded any more: reports the rest of it, and when it ended, if it did.
    pub fn close(&mut self, tid: Tid, mut notify: impl FnMut(Tid, Out)) -> Option<u64> {
        self.take();
        let mut edges: Vec<Edge> = self.waiting.extract_if(.., |e| e.tid == tid).collect();
        edges.sort_by_key(|edge| edge.time_ns);
        for edge in edges {
            self.apply(edge, &mut notify);
        }
        let track = self.threads.remove(&tid)?;
        let now = track.end.unwrap_or(self.clock.now.tsc);
        if let Some((off, preempted)) = track.out.filter(|(off, _)| *off < now) {
            notify(tid, Out { off, on: now, preempted });
        }
        track.end
    }

    /// Where recorded threads were, as far as that has come.
    pub fn places(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.places)
    }

    fn take(&mut self) {
        // Read first: what is older than this is in the rings by the next time.
        self.clock.now = clock::now();
        let (waiting, places, threads) = (&mut self.waiting, &mut self.places, &self.threads);
        // Children of the program that are not recorded are followed too.
        self.lost += self.rings.drain(|reported| match reported {
            SwitchRecord::Edge(edge) if threads.contains_key(&edge.tid) => waiting.push(edge),
            SwitchRecord::Place(place) if threads.contains_key(&place.tid) => places.push(place),
            _ => {}
        });
    }

    fn apply(&mut self, edge: Edge, notify: &mut impl FnMut(Tid, Out)) {
        let tick = self.clock.tick(edge.time_ns);
        if let Some(out) = self.threads.get_mut(&edge.tid).and_then(|track| track.apply(edge, tick))
        {
            notify(edge.tid, out);
        }
    }
}

impl Track {
    fn new(start: u64) -> Track {
        Track { start, out: Some((start, false)), on: start, end: None }
    }

    fn apply(&mut self, edge: Edge, tick: u64) -> Option<Out> {
        if tick < self.start {
            return None;
        }
        match edge.kind {
            // Out twice: the record between them was lost, and how long it ran is not known. It counts
            // as running.
            EdgeKind::Out { preempted } => {
                self.out = Some((tick.max(self.on), preempted));
                None
            }
            EdgeKind::In => {
                let (off, preempted) = self.out.take()?;
                self.on = tick.max(off);
                (off < tick).then_some(Out { off, on: tick, preempted })
            }
            EdgeKind::Exit => {
                self.end = Some(tick);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outs(edges: &[(u64, char)]) -> Vec<(u64, u64, bool)> {
        let (tid, mut track) = (Tid::try_from(1).unwrap(), Track::new(10));
        let edges = edges.iter().filter_map(|(time_ns, kind)| {
            let kind = match kind {
                'i' => EdgeKind::In,
                kind => EdgeKind::Out { preempted: *kind == 'p' },
            };
            track.apply(Edge { tid, time_ns: *time_ns, kind }, *time_ns)
        });
        edges.map(|out| (out.off, out.on, out.preempted)).collect()
    }

    #[test]
    fn intervals_of_a_thread() {
        // Before its start; the stop at its creation; a wait; a preemption.
        let edges = [(5, 'o'), (6, 'i'), (12, 'i'), (20, 'o'), (25, 'i'), (30, 'p'), (31, 'i')];
        assert_eq!(outs(&edges), [(10, 12, false), (20, 25, false), (30, 31, true)]);
        // The stop at its creation is reported after it was seen.
        assert_eq!(outs(&[(11, 'o'), (12, 'i')]), [(11, 12, false)]);
    }

    #[test]
    fn a_lost_record_shortens_and_never_stretches() {
        assert_eq!(outs(&[(12, 'i'), (20, 'o'), (30, 'o'), (35, 'i')])[1..], [(30, 35, false)]);
        assert_eq!(outs(&[(12, 'i'), (20, 'o'), (25, 'i'), (35, 'i')])[1..], [(20, 25, false)]);
    }

    #[test]
    fn moments_become_ticks() {
        let pair = |tsc, monotonic_ns| ClockPair { tsc, monotonic_ns };
        let clock = Clock { begin: pair(1000, 0), now: pair(3000, 1000) };
        assert_eq!(clock.tick(900), 2800);
        assert_eq!(clock.tick(1100), 3200);
    }
}
