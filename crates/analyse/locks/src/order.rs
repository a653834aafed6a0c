//! The order in which locks are taken, and the deadlocks that it makes possible.
//!
//! A thread that asks for a lock while it has another leaves an *edge* from the one to the other. A
//! cycle of edges is a possible deadlock only if all of its threads could be in the middle of their edges
//! at once, each waiting for the next:
//!
//! 1. its edges are of different threads;
//! 2. no common lock that two of them held meanwhile (a `gate lock`) excludes one of them;
//! 3. at each lock, the one that waits and the one that holds it are not both readers;
//! 4. no edge is of a try or of a lock with a time limit, which give up (such edges are not recorded);
//! 5. segments of the threads can run at the same time, by what threads made others and waited for
//!    their ends (vector clocks);
//! 6. a lock that was destroyed, and another one made at its address, are two (generations).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fettle_abi::locking::{Edge, HeadWord, Operation};
use serde::Serialize;

use crate::{Names, Place, ThreadTable};

/// Cycles of more locks are not looked for.
const LONGEST: usize = 5;
/// So many occurrences of one edge are compared, and so many cycles reported.
const OCCURRENCES: usize = 64;
const MOST: usize = 64;

/// A lock of one class was asked for while one of another, or of the same, was held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Order {
    /// The class that was held.
    pub outer: String,
    /// The class that was asked for.
    pub inner: String,
    /// How often.
    pub count: u64,
}

/// All orders, by the names that `lock` gives.
pub fn orders(threads: &[ThreadTable], lock: &dyn Fn(u32, u64) -> String) -> Vec<Order> {
    let mut all: BTreeMap<(String, String), u64> = BTreeMap::new();
    for thread in threads {
        for edge in &thread.edges {
            let name = |identity: u64| lock(thread.pid, identity & ADDRESS);
            *all.entry((name(edge.outer), name(edge.inner))).or_default() += edge.count;
        }
    }
    all.into_iter().map(|((outer, inner), count)| Order { outer, inner, count }).collect()
}

/// The part of a lock's identity that is its address; above it is the generation.
const ADDRESS: u64 = 0xffff_ffff_ffff;

/// One step of a cycle: a thread that has one lock and asks for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub thread: String,
    /// The lock that it has.
    pub holds: String,
    /// Where it took that.
    pub taken: Place,
    /// The lock that it asks for.
    pub wants: String,
    /// Where.
    pub asked: Place,
}

/// Threads that can come to wait for each other in a circle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deadlock {
    /// Each waits for the next, the last one for the first.
    pub steps: Vec<Step>,
}

/// An edge with whose it is.
#[derive(Clone, Copy)]
struct Occurrence<'a> {
    thread: usize,
    edge: &'a Edge,
}

/// Possible deadlocks; `lock` gives a lock's name.
pub fn deadlocks(
    threads: &[ThreadTable],
    names: &dyn Names,
    lock: &dyn Fn(u32, u64) -> String,
) -> Vec<Deadlock> {
    let order = Clocks::of(threads);
    let mut processes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, thread) in threads.iter().enumerate() {
        processes.entry(thread.pid).or_default().push(i);
    }
    let mut found = Vec::new();
    for members in processes.values() {
        let mut graph: BTreeMap<u64, BTreeMap<u64, Vec<Occurrence<'_>>>> = BTreeMap::new();
        for &thread in members {
            for edge in &threads[thread].edges {
                let all = graph.entry(edge.outer).or_default().entry(edge.inner).or_default();
                all.push(Occurrence { thread, edge });
            }
        }
        let mut search =
            Search { graph: &graph, order: &order, seen: BTreeSet::new(), found: vec![] };
        for &start in graph.keys() {
            search.from(start, &mut vec![start]);
        }
        let step = |o: &Occurrence<'_>| {
            let thread = &threads[o.thread];
            let plain = |id: u64| id & ADDRESS;
            Step {
                tid: thread.tid,
                thread: thread.name.clone(),
                holds: lock(thread.pid, plain(o.edge.outer)),
                taken: names.place(thread.pid, o.edge.outer_site),
                wants: lock(thread.pid, plain(o.edge.inner)),
                asked: names.place(thread.pid, o.edge.inner_site),
            }
        };
        let cycles = search.found;
        found.extend(
            cycles.iter().map(|steps| Deadlock { steps: steps.iter().map(step).collect() }),
        );
    }
    dedup(found)
}

/// One report for what is the same in the source, whichever locks of a class it was.
fn dedup(all: Vec<Deadlock>) -> Vec<Deadlock> {
    let mut known = BTreeSet::new();
    let places = |d: &Deadlock| {
        let mut places: Vec<_> =
            d.steps.iter().map(|s| (s.taken.clone(), s.asked.clone())).collect();
        places.sort();
        places
    };
    all.into_iter().filter(|deadlock| known.insert(places(deadlock))).collect()
}

type Graph<'a> = BTreeMap<u64, BTreeMap<u64, Vec<Occurrence<'a>>>>;

struct Search<'g, 'a> {
    graph: &'g Graph<'a>,
    order: &'g Clocks,
    seen: BTreeSet<Vec<u64>>,
    found: Vec<Vec<Occurrence<'a>>>,
}

impl<'a> Search<'_, 'a> {
    /// Goes on from the last lock of `path`; cycles begin at their lowest lock.
    fn from(&mut self, start: u64, path: &mut Vec<u64>) {
        let graph = self.graph;
        let Some(next) = path.last().and_then(|last| graph.get(last)) else { return };
        for &lock in next.keys() {
            if self.found.len() >= MOST {
                return;
            }
            if lock == start && path.len() > 1 {
                if self.seen.insert(path.clone()) {
                    self.close(path);
                }
            } else if lock > start && path.len() < LONGEST && !path.contains(&lock) {
                path.push(lock);
                self.from(start, path);
                path.pop();
            }
        }
    }

    /// Reports a cycle of locks if some occurrences of its edges can meet.
    fn close(&mut self, path: &[u64]) {
        let edges: Vec<&[Occurrence<'a>]> = (0..path.len())
            .map(|i| {
                let all = &self.graph[&path[i]][&path[(i + 1) % path.len()]];
                &all[..all.len().min(OCCURRENCES)]
            })
            .collect();
        let mut chosen = Vec::new();
        if self.choose(&edges, &mut chosen) {
            self.found.push(chosen);
        }
    }

    fn choose(&self, edges: &[&[Occurrence<'a>]], chosen: &mut Vec<Occurrence<'a>>) -> bool {
        let at = chosen.len();
        let Some(candidates) = edges.get(at) else { return true };
        for candidate in *candidates {
            let fits = chosen.iter().all(|other| self.can_meet(other, candidate));
            // Who comes before waits for what this one holds; the last waits for what the first does.
            let waits = chosen.last().is_none_or(|before| blocks(before, candidate));
            let closes =
                at + 1 < edges.len() || chosen.first().is_none_or(|f| blocks(candidate, f));
            if !(fits && waits && closes) {
                continue;
            }
            chosen.push(*candidate);
            if self.choose(edges, chosen) {
                return true;
            }
            chosen.pop();
        }
        false
    }

    /// Whether two threads can be in the middle of these edges at the same time.
    fn can_meet(&self, a: &Occurrence<'_>, b: &Occurrence<'_>) -> bool {
        a.thread != b.thread
            && !gated(a.edge, b.edge)
            && self.order.parallel((a.thread, a.edge.segment), (b.thread, b.edge.segment))
    }
}

/// Whether the one that waits cannot have the lock while the other holds it.
fn blocks(waiter: &Occurrence<'_>, holder: &Occurrence<'_>) -> bool {
    let both =
        waiter.edge.flags & Edge::INNER_SHARED != 0 && holder.edge.flags & Edge::OUTER_SHARED != 0;
    !both
}

/// Whether a lock that both held besides keeps one of them out.
fn gated(a: &Edge, b: &Edge) -> bool {
    // With more locks than are known, nothing can be said for certain: no report.
    if (a.flags | b.flags) & Edge::MORE_GATES != 0 {
        return true;
    }
    let gates = |edge: &Edge| edge.gates.into_iter().filter(|gate| *gate != 0).collect::<Vec<_>>();
    let others = gates(b);
    gates(a)
        .iter()
        .any(|gate| others.iter().any(|other| gate & !1 == other & !1 && (gate & other & 1 == 0)))
}

/// Which segments of which threads come before which, by making threads and waiting for their ends.
struct Clocks {
    /// By thread and segment: for each thread, how many of its segments are over for certain.
    clocks: Vec<Vec<HashMap<usize, u32>>>,
}

impl Clocks {
    fn of(threads: &[ThreadTable]) -> Clocks {
        let mut clocks: Vec<Vec<HashMap<usize, u32>>> = vec![Vec::new(); threads.len()];
        // In the order of their starts, a thread comes after its creator, and after what that did
        // before.
        let mut order: Vec<usize> = (0..threads.len()).collect();
        order.sort_by_key(|thread| threads[*thread].start);
        // Ends are known only when all is known before them: twice is enough for threads that wait for
        // younger ones; a third round finds nothing new but in chains of such.
        for _ in 0..4 {
            for &thread in &order {
                let birth = born_of(threads, thread);
                let mut now = birth.map_or_else(HashMap::new, |(parent, segment)| {
                    let mut clock =
                        clocks[parent].get(segment as usize).cloned().unwrap_or_default();
                    raise(&mut clock, parent, segment + 1);
                    clock
                });
                let mut segments = vec![now.clone()];
                for event in &threads[thread].events {
                    if event.kind == Operation::Join as u32
                        && let Some(ended) = ended_before(threads, thread, event.object, event.time)
                    {
                        for (other, over) in clocks[ended].last().cloned().unwrap_or_default() {
                            raise(&mut now, other, over);
                        }
                        raise(&mut now, ended, u32::MAX);
                    }
                    segments.push(now.clone());
                }
                clocks[thread] = segments;
            }
        }
        Clocks { clocks }
    }

    /// Whether neither comes before the other for certain.
    fn parallel(&self, a: (usize, u32), b: (usize, u32)) -> bool {
        !self.is_over(a, b) && !self.is_over(b, a)
    }

    /// Whether segment `a` is over for certain when `b` begins.
    fn is_over(&self, (thread, segment): (usize, u32), b: (usize, u32)) -> bool {
        let of = &self.clocks[b.0];
        // Events for which there was no room: what is known is what was at the last of them.
        let clock = of.get(b.1 as usize).or(of.last());
        clock.and_then(|clock| clock.get(&thread)).is_some_and(|over| segment < *over)
    }
}

fn raise(clock: &mut HashMap<usize, u32>, thread: usize, over: u32) {
    let known = clock.entry(thread).or_default();
    *known = (*known).max(over);
}

/// Who made a thread, and in which segment.
fn born_of(threads: &[ThreadTable], thread: usize) -> Option<(usize, u32)> {
    let born = &threads[thread];
    let itself = born.head[HeadWord::Itself as usize];
    let makers = threads.iter().enumerate().filter(|(_, maker)| maker.pid == born.pid);
    let events = makers.flat_map(|(i, maker)| maker.events.iter().map(move |event| (i, event)));
    // A thread's memory is reused for later threads: the last creation before its start counts.
    events
        .filter(|(i, event)| {
            *i != thread
                && event.kind == Operation::Create as u32
                && event.object == itself
                && event.time <= born.start
        })
        .max_by_key(|(_, event)| event.time)
        .map(|(i, event)| (i, event.segment))
}

/// The thread whose end a thread waited for until `time`.
fn ended_before(threads: &[ThreadTable], waiter: usize, object: u64, time: u64) -> Option<usize> {
    let candidates = threads.iter().enumerate().filter(|(i, thread)| {
        *i != waiter
            && thread.pid == threads[waiter].pid
            && thread.head[HeadWord::Itself as usize] == object
            && thread.start <= time
    });
    candidates.max_by_key(|(_, thread)| thread.start).map(|(i, _)| i)
}

#[cfg(test)]
mod tests;
