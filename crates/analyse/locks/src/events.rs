//! Single events of locks, in order of time, become the tables that threads would have added up ([`ThreadTable`]):
//! the same report of a recording of every call, of a kernel's own log, or of a program's own events.
//!
//! Ticks are nanoseconds. Places are numbers that the caller gives, from [`FIRST_PLACE`].

use std::collections::{BTreeMap, HashMap};

use fettle_abi::locking::{
    Blame, Convoy, Edge, Event, GATES, HEAD_WORDS, HeadWord, NOBODY, OTHERS, Operation, QUEUES,
    Row, Stretch, bucket_ticks,
};

use crate::classes::Kind;
use crate::{Names, Report, ThreadTable, report};

/// The least number of a place: lower ones say that there is none.
pub const FIRST_PLACE: u64 = OTHERS + 1;

/// The part of an edge's lock that is its address; above it is the generation.
const ADDRESS: u64 = 0xffff_ffff_ffff;

/// A thread does something with a lock.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// When.
    pub ns: u64,
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The lock's address.
    pub lock: u64,
    /// Where.
    pub place: u64,
    /// What it asks for.
    pub operation: Operation,
}

/// Adds up events.
#[derive(Debug, Default)]
pub struct Events {
    threads: BTreeMap<(u32, u32), Thread>,
    locks: HashMap<(u32, u64), Lock>,
    first_ns: Option<u64>,
    last_ns: u64,
}

/// What events add up to.
#[derive(Debug, Default)]
pub struct Added {
    /// By thread.
    pub tables: Vec<ThreadTable>,
    /// Locks that went from thread to thread while others waited.
    pub convoys: Vec<Convoy>,
    /// From the first event to the last.
    pub duration_ns: u64,
}

impl Added {
    /// The report.
    pub fn report(&self, names: &dyn Names) -> Report {
        report(&self.tables, &self.convoys, (self.duration_ns, self.duration_ns), names)
    }
}

/// A row's key: lock, place, operation.
type RowKey = (u64, u64, Operation);

#[derive(Debug, Default)]
struct Thread {
    start: u64,
    end: u64,
    rows: Vec<Row>,
    by_key: HashMap<RowKey, u32>,
    held: Vec<Held>,
    edges: HashMap<EdgeKey, Edge>,
    blames: BTreeMap<(u32, u64), Blame>,
    unmatched: u64,
}

/// An edge without its count: locks, places, flags, other locks.
type EdgeKey = (u64, u64, u64, u64, u32, [u64; GATES]);

#[derive(Clone, Copy, Debug)]
struct Held {
    lock: u64,
    row: u32,
    since: u64,
    shared: bool,
    depth: u32,
}

#[derive(Debug, Default)]
struct Lock {
    generation: u16,
    used: bool,
    holders: Vec<(u32, u64)>,
    waiting: Vec<Waiter>,
    changed_ns: u64,
    convoy: Convoy,
    /// How long no thread had it while threads waited.
    passing: u64,
}

#[derive(Debug)]
struct Waiter {
    tid: u32,
    row: u32,
    since: u64,
    blames: BTreeMap<u64, u64>,
}

fn is_shared(operation: Operation) -> bool {
    matches!(operation, Operation::ReadLock | Operation::ReadTry | Operation::ReadTimed)
}

/// Whether a thread that asks so gives up by itself: it is in no deadlock.
fn gives_up(operation: Operation) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::MutexTry
            | O::MutexTimed
            | O::ReadTry
            | O::ReadTimed
            | O::WriteTry
            | O::WriteTimed
            | O::SpinTry
            | O::SemTry
            | O::SemTimed
    )
}

fn bucket(ticks: u64) -> usize {
    (0..32).rfind(|bucket| bucket_ticks(*bucket) <= ticks).unwrap_or(0) as usize
}

impl Lock {
    /// Charges the time since the last change to those that have the lock.
    fn charge(&mut self, ns: u64) {
        let passed = ns.saturating_sub(self.changed_ns);
        self.changed_ns = self.changed_ns.max(ns);
        if passed == 0 {
            return;
        }
        let share = passed / self.holders.len().max(1) as u64;
        for waiter in &mut self.waiting {
            for (_, place) in &self.holders {
                *waiter.blames.entry(*place).or_default() += share;
            }
            if self.holders.is_empty() {
                *waiter.blames.entry(NOBODY).or_default() += passed;
            }
        }
        if self.holders.is_empty() && !self.waiting.is_empty() {
            self.passing += passed;
        }
    }

    /// No thread has it any more: a stretch of releases for which threads wait begins, goes on or ends.
    fn let_go(&mut self, ns: u64) {
        let Convoy { since, passing_before, now, .. } = &mut self.convoy;
        if let Some(last) = self.waiting.len().checked_sub(1) {
            if now.releases == 0 {
                (*since, *passing_before) = (ns, self.passing);
            }
            now.releases += 1;
            (now.ticks, now.passing) = (ns - *since, self.passing - *passing_before);
            now.queues[last.min(QUEUES - 1)] += 1;
        } else {
            (self.convoy.all, self.convoy.stretches) = self.convoy.ended();
            self.convoy.now = Stretch::default();
        }
    }

    fn identity(&self, address: u64) -> u64 {
        address & ADDRESS | u64::from(self.generation) << 48
    }
}

impl Thread {
    fn row(&mut self, key: RowKey) -> u32 {
        let next = self.rows.len() as u32;
        let row = *self.by_key.entry(key).or_insert(next);
        if row == next {
            let (lock, site, operation) = key;
            self.rows.push(Row { lock, site, operation: operation as u32, ..Row::default() });
        }
        row
    }
}

impl Events {
    fn thread(&mut self, of: &Use) -> &mut Thread {
        self.first_ns.get_or_insert(of.ns);
        self.last_ns = self.last_ns.max(of.ns);
        let new = || Thread { start: of.ns, ..Thread::default() };
        let thread = self.threads.entry((of.pid, of.tid)).or_insert_with(new);
        thread.end = thread.end.max(of.ns);
        thread
    }

    /// A lock comes to be; what was at its address is another one.
    pub fn made(&mut self, pid: u32, lock: u64) {
        let lock = self.locks.entry((pid, lock)).or_default();
        if lock.used {
            let generation = lock.generation.wrapping_add(1);
            *lock = Lock { generation, changed_ns: lock.changed_ns, ..Lock::default() };
        }
    }

    /// The thread asks for a lock and has to wait.
    pub fn wait(&mut self, of: Use) {
        let row = self.thread(&of).row((of.lock, of.place, of.operation));
        self.order(&of);
        let lock = self.locks.entry((of.pid, of.lock)).or_default();
        lock.used = true;
        lock.charge(of.ns);
        lock.waiting.retain(|waiter| waiter.tid != of.tid);
        lock.waiting.push(Waiter { tid: of.tid, row, since: of.ns, blames: BTreeMap::new() });
        let queue = lock.waiting.len() as u32;
        let row = &mut self.thread(&of).rows[row as usize];
        row.contended += 1;
        row.queue_max = row.queue_max.max(queue);
        row.queue_sum += u64::from(queue);
    }

    /// The wait of a thread is over: its row, if it waited.
    fn waited(&mut self, of: &Use) -> Option<u32> {
        let lock = self.locks.entry((of.pid, of.lock)).or_default();
        lock.used = true;
        lock.charge(of.ns);
        let at = lock.waiting.iter().position(|waiter| waiter.tid == of.tid)?;
        let Waiter { row, since, blames, .. } = lock.waiting.remove(at);
        let thread = self.thread(of);
        let waited = of.ns.saturating_sub(since);
        let sums = &mut thread.rows[row as usize];
        sums.waited += waited;
        sums.waited_max = sums.waited_max.max(waited);
        sums.waited_log2[bucket(waited)] += 1;
        for (holder, ticks) in blames {
            let blame = thread.blames.entry((row, holder)).or_insert(Blame {
                row,
                holder,
                ..Blame::default()
            });
            blame.count += 1;
            blame.ticks += ticks;
        }
        Some(row)
    }

    /// The thread gives up waiting, or tried in vain.
    pub fn given_up(&mut self, of: Use) {
        let waited = self.waited(&of);
        let thread = self.thread(&of);
        let row = waited.unwrap_or_else(|| thread.row((of.lock, of.place, of.operation)));
        thread.rows[row as usize].failed += 1;
    }

    /// The thread has the lock.
    pub fn acquired(&mut self, of: Use) {
        let waited = self.waited(&of);
        if waited.is_none() {
            self.order(&of);
        }
        let thread = self.thread(&of);
        let row = waited.unwrap_or_else(|| thread.row((of.lock, of.place, of.operation)));
        thread.rows[row as usize].acquired += 1;
        if Kind::of(of.operation) == Some(Kind::Semaphore) {
            return;
        }
        if let Some(held) = thread.held.iter_mut().find(|held| held.lock == of.lock) {
            held.depth += 1;
            return;
        }
        let shared = is_shared(of.operation);
        thread.held.push(Held { lock: of.lock, row, since: of.ns, shared, depth: 1 });
        let place = thread.rows[row as usize].site;
        let lock = self.locks.entry((of.pid, of.lock)).or_default();
        lock.holders.push((of.tid, place));
        if waited.is_some() && lock.convoy.now.releases > 0 {
            lock.convoy.now.handed += 1;
        }
    }

    /// The thread lets the lock go.
    pub fn released(&mut self, of: Use) {
        let lock = self.locks.entry((of.pid, of.lock)).or_default();
        lock.charge(of.ns);
        let thread = self.thread(&of);
        let Some(at) = thread.held.iter().position(|held| held.lock == of.lock) else {
            if Kind::of(of.operation) != Some(Kind::Semaphore) {
                thread.unmatched += 1;
            }
            return;
        };
        thread.held[at].depth -= 1;
        if thread.held[at].depth > 0 {
            return;
        }
        let held = thread.held.remove(at);
        let row = &mut thread.rows[held.row as usize];
        let ticks = of.ns.saturating_sub(held.since);
        row.held += ticks;
        row.held_timed += 1;
        row.held_max = row.held_max.max(ticks);
        row.held_log2[bucket(ticks)] += 1;
        if let Some(lock) = self.locks.get_mut(&(of.pid, of.lock)) {
            lock.holders.retain(|(tid, _)| *tid != of.tid);
            if lock.holders.is_empty() {
                lock.let_go(of.ns);
            }
        }
    }

    /// Notes the locks that the thread has while it asks for another.
    fn order(&mut self, of: &Use) {
        if gives_up(of.operation) || Kind::of(of.operation) == Some(Kind::Semaphore) {
            return;
        }
        let Some(thread) = self.threads.get_mut(&(of.pid, of.tid)) else { return };
        let identity = |address: u64| {
            let lock = self.locks.get(&(of.pid, address));
            lock.map_or(address & ADDRESS, |lock| lock.identity(address))
        };
        for outer in thread.held.iter().filter(|held| held.lock != of.lock) {
            let others = thread.held.iter().filter(|h| h.lock != outer.lock && h.lock != of.lock);
            let mut flags = if outer.shared { Edge::OUTER_SHARED } else { 0 }
                | if is_shared(of.operation) { Edge::INNER_SHARED } else { 0 };
            let mut gates = [0; GATES];
            for (n, other) in others.enumerate() {
                match gates.get_mut(n) {
                    Some(gate) => *gate = identity(other.lock) & !1 | u64::from(other.shared),
                    None => flags |= Edge::MORE_GATES,
                }
            }
            let taken = thread.rows[outer.row as usize].site;
            let locks = (identity(outer.lock), identity(of.lock));
            let key = (locks.0, locks.1, taken, of.place, flags, gates);
            let new = || Edge { count: 0, gates, ..Edge::new(locks, (taken, of.place), 0, flags) };
            thread.edges.entry(key).or_insert_with(new).count += 1;
        }
    }

    /// A thread is known to have lived so long.
    pub fn lived(&mut self, pid: u32, tid: u32, start: u64, end: u64) {
        if let Some(thread) = self.threads.get_mut(&(pid, tid)) {
            (thread.start, thread.end) = (thread.start.min(start), thread.end.max(end));
        }
    }

    /// Everything that was added up.
    ///
    /// A thread that ended before another began counts as over by then: whether the one waited for the other's end is
    /// not in the events, and what is not certain is no deadlock.
    pub fn finish(self) -> Added {
        // Only the ends of threads with orders matter, to each other.
        let with_edges = self.threads.iter().filter(|(_, thread)| !thread.edges.is_empty());
        let ends: Vec<(u32, u64)> = with_edges.map(|((_, tid), t)| (*tid, t.end)).collect();
        let table = |((pid, tid), thread): ((u32, u32), Thread)| {
            let mut head = [0; HEAD_WORDS];
            head[HeadWord::Itself as usize] = u64::from(tid);
            head[HeadWord::Unmatched as usize] = thread.unmatched;
            let over = ends.iter().filter(|(other, end)| {
                *other != tid && *end < thread.start && !thread.edges.is_empty()
            });
            let join = |(segment, (other, _)): (u32, &(u32, u64))| {
                let (kind, object) = (Operation::Join as u32, u64::from(*other));
                Event { kind, segment, object, time: thread.start }
            };
            let events: Vec<Event> = (0..).zip(over).map(join).collect();
            let segment = events.len() as u32;
            let edges = thread.edges.into_values().map(|edge| Edge { segment, ..edge });
            let mut edges: Vec<Edge> = edges.collect();
            edges.sort_by_key(|e| (e.outer, e.inner, e.outer_site, e.inner_site, e.flags, e.gates));
            ThreadTable {
                pid,
                tid,
                name: String::new(),
                start: thread.start,
                end: thread.end,
                head,
                rows: (0..).zip(thread.rows).collect(),
                edges,
                blames: thread.blames.into_values().collect(),
                events,
                held_over: Vec::new(),
            }
        };
        let duration_ns = self.last_ns - self.first_ns.unwrap_or(0);
        let convoy = |((pid, lock), of): ((u32, u64), Lock)| Convoy { pid, lock, ..of.convoy };
        let convoys = self.locks.into_iter().map(convoy).filter(|c| c.ended().1 > 0).collect();
        Added { tables: self.threads.into_iter().map(table).collect(), convoys, duration_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;

    struct Plain;

    impl Names for Plain {
        fn place(&self, _: u32, address: u64) -> Place {
            Place { function: format!("f{address}"), ..Place::default() }
        }

        fn variable(&self, _: u32, address: u64) -> Option<String> {
            Some(format!("lock {address}"))
        }

        fn system_call(&self, number: u32) -> String {
            number.to_string()
        }
    }

    /// Events as words: time, thread, what, lock; the place is ten times the thread's number.
    fn of(events: &[(u64, u32, char, u64)]) -> Report {
        let mut all = Events::default();
        for &(ns, tid, what, lock) in events {
            let operation = match what {
                't' => Operation::MutexTry,
                'R' | 'r' => Operation::ReadLock,
                _ => Operation::MutexLock,
            };
            let of = Use { ns, pid: 1, tid, lock, place: u64::from(tid) * 10, operation };
            match what {
                'w' => all.wait(of),
                'a' | 't' | 'R' => all.acquired(of),
                'g' => all.given_up(of),
                'm' => all.made(1, lock),
                _ => all.released(of),
            }
        }
        all.finish().report(&Plain)
    }

    #[test]
    fn waits_are_charged_to_who_had_the_lock_meanwhile() {
        // 1 has it from 100 to 300, 2 from 310 to 400; 3 waits from 150 to 420, 2 from 200 to 310.
        let report = of(&[
            (100, 1, 'a', 64),
            (150, 3, 'w', 64),
            (200, 2, 'w', 64),
            (300, 1, 'u', 64),
            (310, 2, 'a', 64),
            (400, 2, 'u', 64),
            (420, 3, 'a', 64),
            (500, 3, 'u', 64),
        ]);
        let class = &report.classes[0];
        assert_eq!(class.name, "lock 64");
        let sums = &class.sums;
        assert_eq!((sums.acquired, sums.contended, sums.queue_max), (3, 2, 2));
        assert_eq!((sums.waited_ns, sums.held_ns), (270 + 110, 200 + 90 + 80));
        let blocked: Vec<_> = class
            .blocking
            .iter()
            .map(|b| {
                let holder = b.holder.as_ref().map_or("", |place| &place.function);
                (b.waiter.function.as_str(), holder, b.waited_ns)
            })
            .collect();
        let wanted = [
            ("f30", "f10", 150),
            ("f20", "f10", 100),
            ("f30", "f20", 90),
            ("f30", "", 30),
            ("f20", "", 10),
        ];
        assert_eq!(blocked, wanted);
    }

    #[test]
    fn a_lock_that_is_always_waited_for_and_passed_on_is_a_convoy() {
        // Three threads in turn: each asks again as soon as it has let go, has the lock for `section` ns, and gets it
        // 30 ns after it was let go of.
        let convoy = |section: u64| {
            let mut events = vec![(0, 1, 'a', 64), (1, 2, 'w', 64), (2, 3, 'w', 64)];
            let mut at = 10;
            for turn in 0..300_u64 {
                let (holder, next) = ((turn % 3 + 1) as u32, ((turn + 1) % 3 + 1) as u32);
                events.extend([
                    (at, holder, 'u', 64),
                    (at + 1, holder, 'w', 64),
                    (at + 30, next, 'a', 64),
                ]);
                at += 30 + section;
            }
            of(&events).classes.remove(0).convoy
        };
        let found = convoy(10).unwrap();
        assert_eq!((found.releases, found.hand_overs, found.stretches), (300, 300, 1));
        assert_eq!((found.queue_median, found.section_ns, found.passing_ns), (2, 10, 29));
        assert!(convoy(100).is_none(), "sections are long");
    }

    /// Two threads that take two locks in both orders, the second from `start` on.
    fn both_ways(start: u64, inner: char) -> Vec<(u64, u32, char, u64)> {
        let mut events = vec![(0, 2, 'a', 256), (1, 2, 'u', 256)];
        if start > 100 {
            events.clear();
        }
        events.extend([(10, 1, 'a', 64), (11, 1, 'a', 128), (12, 1, 'u', 128), (13, 1, 'u', 64)]);
        let (a, b) = (start, start + 4);
        events.extend([(a, 2, 'a', 128), (a + 1, 2, inner, 64), (b, 2, 'u', 64), (b, 2, 'u', 128)]);
        events
    }

    #[test]
    fn orders_make_deadlocks_only_where_threads_can_meet() {
        assert_eq!(of(&both_ways(20, 'a')).deadlocks.len(), 1);
        assert_eq!(of(&both_ways(20, 't')).deadlocks.len(), 0, "a try gives up");
        assert_eq!(of(&both_ways(200, 'a')).deadlocks.len(), 0, "one was over before");
        let mut gated = both_ways(20, 'a');
        gated.insert(2, (5, 1, 'a', 512));
        gated.insert(7, (14, 1, 'u', 512));
        assert_eq!(of(&gated).deadlocks.len(), 1, "only one has the gate");
        gated.insert(8, (15, 2, 'a', 512));
        gated.push((26, 2, 'u', 512));
        assert_eq!(of(&gated).deadlocks.len(), 0, "both have it");
    }

    #[test]
    fn a_lock_that_is_made_anew_is_another() {
        let mut events = both_ways(20, 'a');
        events.insert(6, (15, 1, 'm', 64));
        assert_eq!(of(&events).deadlocks.len(), 0);
    }

    #[test]
    fn releases_without_a_beginning_are_counted() {
        let report = of(&[(1, 1, 'u', 64), (2, 1, 'a', 64), (3, 1, 'u', 64)]);
        assert_eq!((report.losses.unmatched, report.classes[0].sums.acquired), (1, 1));
    }
}
