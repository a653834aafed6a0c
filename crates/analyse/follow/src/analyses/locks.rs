//! Locks, semaphores and queues: how long threads wait at them and stay inside, and what they are.
//!
//! What one is used as follows from which threads go down and which go up on it. A critical section is
//! left by the thread that came in: of a *mutex*, one is inside at a time, of a *counter*, several are.
//! Between *producers and consumers*, those that go up are others than those that go down. The kernel
//! sees futexes only when a thread has to wait, so of those only contended uses are seen; the calls of
//! the C library's functions (`record --locks`) report every use.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use fettle_stats::Distribution;

use super::analysis::{Analysis, Wanted};
use super::found::{Cell, Findable, Found, Unit, share};
use crate::session::Context;

const EVENTS: [Wanted; 7] = [
    ("futex_wait_begin", &["pid", "tid", "address"]),
    ("futex_wait", &["pid", "tid", "address", "result"]),
    ("futex_wake", &["pid", "tid", "address", "woken"]),
    ("lock_wait", &["pid", "tid", "lock"]),
    ("lock_acquired", &["pid", "tid", "lock"]),
    ("lock_released", &["pid", "tid", "lock"]),
    ("lock_given_up", &["pid", "tid", "lock"]),
];

/// Share of ups by threads that are inside, from which on it is a critical section.
const CRITICAL: f64 = 0.8;
/// Share up to which it is producers and consumers.
const PRODUCERS: f64 = 0.2;

/// One lock.
#[derive(Default)]
struct Lock {
    /// Reported by probes: every use is seen.
    whole: bool,
    /// Times it was entered.
    downs: u64,
    ups: u64,
    /// Ups by threads that were inside.
    ups_inside: u64,
    timed_out: u64,
    /// Threads that wait, and since when.
    waiting: HashMap<u64, u64>,
    /// Threads inside, and since when.
    inside: HashMap<u64, u64>,
    inside_max: usize,
    waits_ns: Distribution,
    held_ns: Distribution,
    /// Threads that waited already when one more came.
    queue: Distribution,
    threads_down: HashSet<u64>,
    threads_up: HashSet<u64>,
}

impl Lock {
    fn wait(&mut self, tid: u64, ns: u64) {
        self.queue.add(self.waiting.len() as u64, 1);
        self.waiting.insert(tid, ns);
    }

    fn down(&mut self, tid: u64, ns: u64) {
        if let Some(since_ns) = self.waiting.remove(&tid) {
            self.waits_ns.add(ns.saturating_sub(since_ns), 1);
        }
        self.downs += 1;
        self.threads_down.insert(tid);
        self.inside.insert(tid, ns);
        self.inside_max = self.inside_max.max(self.inside.len());
    }

    fn up(&mut self, tid: u64, ns: u64) {
        self.ups += 1;
        self.threads_up.insert(tid);
        if let Some(since_ns) = self.inside.remove(&tid) {
            self.ups_inside += 1;
            self.held_ns.add(ns.saturating_sub(since_ns), 1);
        }
    }

    fn used_as(&self) -> &'static str {
        if self.ups == 0 || self.downs == 0 {
            return if self.ups == 0 { "only waits seen" } else { "only wake-ups seen" };
        }
        let inside = self.ups_inside as f64 / self.ups as f64;
        match self.inside_max {
            _ if inside <= PRODUCERS => "producer-consumer",
            _ if inside < CRITICAL => "mixed",
            0 | 1 => "mutex",
            _ => "counter",
        }
    }
}

/// The analysis.
#[derive(Default)]
pub(super) struct Locks {
    /// By process and address.
    locks: HashMap<(u64, u64), Lock>,
}

impl Analysis for Locks {
    fn events(&self) -> &'static [Wanted] {
        &EVENTS
    }

    fn event(&mut self, which: usize, ns: u64, values: &[u64]) {
        let (pid, tid, address) = (values[0], values[1], values[2]);
        let result = values.get(3).copied().unwrap_or(0) as i64;
        let lock = self.locks.entry((pid, address)).or_default();
        // Of a lock that probes report, the kernel's events are the same waits once more.
        match (which >= 3, lock.whole) {
            (false, true) => return,
            (true, false) => *lock = Lock { whole: true, ..Lock::default() },
            _ => {}
        }
        match which {
            0 | 3 => lock.wait(tid, ns),
            // Woken, or never slept because the word had changed; both try again or go in.
            1 if result == 0 => lock.down(tid, ns),
            1 | 6 => {
                if let Some(since_ns) = lock.waiting.remove(&tid) {
                    lock.waits_ns.add(ns.saturating_sub(since_ns), 1);
                    lock.timed_out += 1;
                }
            }
            2 | 5 => lock.up(tid, ns),
            _ => lock.down(tid, ns),
        }
    }

    fn finish(self: Box<Self>, context: &Context<'_>) -> Found {
        let columns = [
            ("waits", Unit::Count),
            ("waited", Unit::Ns),
            ("p50", Unit::Ns),
            ("p99", Unit::Ns),
            ("max", Unit::Ns),
            ("queue", Unit::Count),
            ("inside p50", Unit::Ns),
            ("p99 ", Unit::Ns),
            ("contended", Unit::Share),
            ("in vain", Unit::Count),
            ("threads", Unit::Count),
            ("used as, process and lock", Unit::Text),
        ];
        let mut table = Findable::new("Locks and queues, longest waited for first", &columns);
        let mut locks: Vec<_> = self.locks.into_iter().collect();
        locks.sort_by_key(|(key, lock)| (Reverse((lock.waits_ns.sum(), lock.downs)), *key));
        for ((pid, address), lock) in &locks {
            let threads = lock.threads_down.union(&lock.threads_up).count() as u64;
            let of = |h: &Distribution, share| match h.count() {
                0 => Cell::None,
                _ => Cell::Number(h.quantile(share)),
            };
            let contended =
                if lock.whole { share(lock.waits_ns.count(), lock.downs) } else { Cell::None };
            table.rows.push(vec![
                Cell::Number(lock.waits_ns.count()),
                Cell::Number(lock.waits_ns.sum()),
                of(&lock.waits_ns, 0.5),
                of(&lock.waits_ns, 0.99),
                of(&lock.waits_ns, 1.0),
                of(&lock.queue, 1.0),
                of(&lock.held_ns, 0.5),
                of(&lock.held_ns, 0.99),
                contended,
                Cell::Number(lock.timed_out),
                Cell::Number(threads),
                Cell::Text(format!(
                    "{:<17}  {} {address:#x}",
                    lock.used_as(),
                    context.process(*pid)
                )),
            ]);
        }
        let mut notes = vec![
            "`queue` is how many waited already at most when one more came; `in vain` are waits \
             that ended without a wake-up: time-outs, or the word had changed"
                .to_owned(),
        ];
        if locks.iter().any(|(_, lock)| !lock.whole) {
            notes.push(
                "of futexes the kernel sees contended uses only: `inside` is from a wake-up to the \
                 next one by the same thread"
                    .to_owned(),
            );
        }
        Found { tables: vec![table], notes, dot: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds downs (`d`) and ups (`u`) of threads, as probes report them.
    fn used_as(uses: &[(u64, char)]) -> &'static str {
        let mut lock = Lock { whole: true, ..Lock::default() };
        for (ns, (tid, way)) in uses.iter().enumerate() {
            match way {
                'd' => lock.down(*tid, ns as u64),
                _ => lock.up(*tid, ns as u64),
            }
        }
        lock.used_as()
    }

    #[test]
    fn what_a_lock_is_used_as_follows_from_who_ups_and_downs() {
        assert_eq!(used_as(&[(1, 'd'), (1, 'u'), (2, 'd'), (2, 'u')]), "mutex");
        assert_eq!(used_as(&[(1, 'd'), (2, 'd'), (1, 'u'), (2, 'u')]), "counter");
        assert_eq!(used_as(&[(1, 'u'), (2, 'd'), (1, 'u'), (3, 'd')]), "producer-consumer");
        assert_eq!(used_as(&[(1, 'd'), (1, 'u'), (2, 'u')]), "mixed");
        assert_eq!(used_as(&[(1, 'd')]), "only waits seen");
    }

    #[test]
    fn waits_and_queues_are_measured() {
        let mut locks = Locks::default();
        for (which, ns, tid) in [(0, 0, 1), (0, 10, 2), (2, 100, 9), (1, 150, 1), (1, 300, 2)] {
            locks.event(which, ns, &[7, tid, 0x1000, 0]);
        }
        let lock = &locks.locks[&(7, 0x1000)];
        assert_eq!((lock.waits_ns.count(), lock.waits_ns.sum()), (2, 150 + 290));
        assert_eq!((lock.queue.max(), lock.used_as()), (1, "producer-consumer"));
        locks.event(0, 400, &[7, 1, 0x1000]);
        locks.event(1, 500, &[7, 1, 0x1000, -110i64 as u64]);
        assert_eq!(locks.locks[&(7, 0x1000)].timed_out, 1);
    }
}
