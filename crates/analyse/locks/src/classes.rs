//! From threads' tables to lock classes.
//!
//! A lock class is one lock in the source: a variable, a member of a structure, or all locks that one place makes. Locks
//! that were not seen to be made are grouped by the place that takes them most often.

use std::collections::{BTreeMap, HashMap};

use fettle_abi::locking::{Convoy as Counted, HeadWord, NOBODY, OTHERS, Operation, Row};
use serde::Serialize;

use crate::convoys::{Convoy, Stretches};
pub use crate::kind::Kind;
use crate::lines::{self, SharedLine};
use crate::order::{self, Deadlock, Order};
use crate::time::Rate;
use crate::{Names, Place, ThreadTable};

/// Sums over some rows. Times are nanoseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sums {
    /// How often it was had.
    pub acquired: u64,
    /// How often it was taken when it was asked for.
    pub contended: u64,
    /// Tried in vain, or the time was over.
    pub failed: u64,
    /// Waited, all threads together.
    pub waited_ns: u64,
    /// Longest wait.
    pub waited_ns_max: u64,
    /// Held, estimated from the holds that were timed.
    pub held_ns: u64,
    /// Longest hold that was timed.
    pub held_ns_max: u64,
    /// Most that waited at once.
    pub queue_max: u32,
    /// Sum of those that waited, over all that were contended.
    #[serde(skip)]
    queue_sum: u64,
    #[serde(skip)]
    held_timed: u64,
    /// Waits by duration: each bucket ends at twice the ticks of the one before.
    #[serde(skip)]
    pub waits: Buckets,
    /// Holds, likewise.
    #[serde(skip)]
    pub holds: Buckets,
}

/// A histogram by powers of two.
#[derive(Clone, Debug, Default)]
pub struct Buckets(pub [u64; 32]);

impl Buckets {
    fn add(&mut self, other: &[u32; 32]) {
        self.0.iter_mut().zip(other).for_each(|(sum, n)| *sum += u64::from(*n));
    }

    /// Upper bound in ticks of the bucket with this share of all; `None` where there is nothing.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let all: u64 = self.0.iter().sum();
        let rank = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.0.iter().position(|n| {
            seen += n;
            seen >= rank
        });
        found.filter(|_| all > 0).map(|bucket| fettle_abi::locking::bucket_ticks(bucket as u32 + 1))
    }
}

impl Sums {
    fn add(&mut self, row: &Row, rate: Rate) {
        self.acquired += row.acquired;
        self.contended += row.contended;
        self.failed += row.failed;
        self.waited_ns += rate.ns(row.waited);
        self.waited_ns_max = self.waited_ns_max.max(rate.ns(row.waited_max));
        // Every hold counts, those that were not timed as the mean of those that were.
        self.held_ns += rate.ns(row.held);
        self.held_timed += row.held_timed;
        self.held_ns_max = self.held_ns_max.max(rate.ns(row.held_max));
        self.queue_max = self.queue_max.max(row.queue_max);
        self.queue_sum += row.queue_sum;
        self.waits.add(&row.waited_log2);
        self.holds.add(&row.held_log2);
    }

    /// Share of acquisitions that had to wait.
    pub fn contention(&self) -> f64 {
        let asked = self.acquired.max(self.contended);
        if asked == 0 { 0.0 } else { self.contended as f64 / asked as f64 }
    }
}

/// What one place did with the locks of a class.
#[derive(Clone, Debug, Serialize)]
pub struct Site {
    /// Where.
    pub place: Place,
    /// What it calls, such as `read` for a reader's lock.
    pub operation: &'static str,
    /// How much.
    #[serde(flatten)]
    pub sums: Sums,
}

/// A place that others waited for.
#[derive(Clone, Debug, Serialize)]
pub struct Blocking {
    /// Where threads waited.
    pub waiter: Place,
    /// Where the lock had been taken; `None` where it was on its way from one thread to another.
    pub holder: Option<Place>,
    /// How long, all threads together.
    pub waited_ns: u64,
    /// How many waits had a part of it.
    pub waits: u64,
}

impl Blocking {
    /// The holder, for people.
    pub fn holder_text(&self, kind: Kind) -> String {
        match &self.holder {
            Some(place) => place.text(),
            // Who takes such a lock without waiting is not seen.
            None if kind == Kind::SlowPath => "a holder that is not seen".to_owned(),
            None => "on its way to the next".to_owned(),
        }
    }
}

/// A system call that threads were in while they had the lock.
#[derive(Clone, Debug, Serialize)]
pub struct HeldOver {
    /// Where the lock had been taken.
    pub place: Place,
    /// The system call.
    pub call: String,
    /// How often a thread was found waiting there.
    pub looks: u64,
    /// How long, estimated from those.
    pub held_ns: u64,
}

/// Locks that are one in the source.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    /// The variable, or where the locks are made or taken.
    pub name: String,
    /// Sort.
    pub kind: Kind,
    /// Locks in it, by address; 0 where some are not told apart.
    pub locks: u64,
    /// Their addresses, the first few.
    pub addresses: Vec<u64>,
    /// All places together.
    #[serde(flatten)]
    pub sums: Sums,
    /// By place, most waited first.
    pub sites: Vec<Site>,
    /// The places that it was waited for, most first.
    pub blocking: Vec<Blocking>,
    /// System calls that it was held over, longest first.
    pub held_over: Vec<HeldOver>,
    /// If threads queue for it all the time for short sections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub convoy: Option<Convoy>,
}

impl Class {
    /// The lock in a sentence: its own name, or what makes it out.
    pub fn sentence_name(&self) -> String {
        let by_place = ["made in ", "taken in "].iter().any(|how| self.name.starts_with(how));
        format!("{}{}", if by_place { "the lock " } else { "" }, self.name)
    }
}

/// What was not seen, and how often.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Losses {
    /// Calls in signal handlers that interrupted the counting.
    pub missed: u64,
    /// Calls at places that found no room in a thread's table.
    pub no_row: u64,
    /// Orders of locks that found none.
    pub no_edge: u64,
    /// Holds that found none.
    pub no_hold: u64,
    /// Waits whose holder found none.
    pub no_blame: u64,
    /// Locks released that were not seen to be taken.
    pub unmatched: u64,
    /// Calls whose end was not seen, which went on in another function.
    pub unseen: u64,
}

/// Everything about a recording's locks.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How long it was.
    pub duration_ns: u64,
    /// Threads that took locks.
    pub threads: u64,
    /// Processes of theirs.
    pub processes: u64,
    /// Most waited first.
    pub classes: Vec<Class>,
    /// Orders in which locks were taken, by class.
    pub orders: Vec<Order>,
    /// Possible deadlocks.
    pub deadlocks: Vec<Deadlock>,
    /// Cache lines with several locks that are taken often.
    pub shared_lines: Vec<SharedLine>,
    /// What was not seen.
    pub losses: Losses,
    /// Nanoseconds of a tick.
    #[serde(skip)]
    pub rate: f64,
}

/// Which class a lock belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Identity {
    name: String,
    kind: Kind,
}

/// Makes a report of what threads left, and of what was counted of locks that were passed on.
pub fn report(
    threads: &[ThreadTable],
    convoys: &[Counted],
    (ticks, duration_ns): (u64, u64),
    names: &dyn Names,
) -> Report {
    let rate = Rate(if ticks == 0 { 0.0 } else { duration_ns as f64 / ticks as f64 });
    let identities = identities(threads, names);
    let mut classes: BTreeMap<Identity, Building> = BTreeMap::new();
    for thread in threads {
        for (_, row) in &thread.rows {
            let Some((kind, operation)) = kind_of(row) else { continue };
            let key = identity(&identities, thread.pid, row, kind, names);
            let building = classes.entry(key).or_default();
            building.locks.insert((thread.pid, row.lock));
            let site = (thread.pid, row.site, operation_name(operation));
            building.sites.entry(site).or_default().add(row, rate);
            building.sums.add(row, rate);
        }
        let rows: HashMap<u32, &Row> = thread.rows.iter().map(|(n, row)| (*n, row)).collect();
        let of_row = |n: u32| {
            let row = *rows.get(&n)?;
            let (kind, _) = kind_of(row)?;
            Some((row, identity(&identities, thread.pid, row, kind, names)))
        };
        for blame in &thread.blames {
            let Some((row, key)) = of_row(blame.row) else { continue };
            let pair = (thread.pid, row.site, blame.holder);
            let sum = classes.entry(key).or_default().blocking.entry(pair).or_default();
            *sum = (sum.0 + rate.ns(blame.ticks), sum.1 + u64::from(blame.count));
        }
        for over in &thread.held_over {
            let Some((row, key)) = of_row(over.row) else { continue };
            let place = (thread.pid, row.site, over.call);
            let sum = classes.entry(key).or_default().held_over.entry(place).or_default();
            *sum = (sum.0 + over.looks, sum.1 + rate.ns(over.ticks));
        }
    }
    let stretches = Stretches::new(convoys);
    let class = |(identity, building): (Identity, Building)| {
        let section = building.sums.holds.quantile(0.5);
        let section_ns = section.map_or(0, |ticks| rate.ns(ticks).min(building.sums.held_ns_max));
        let kind = (identity.kind, section_ns);
        let convoy = stretches.of(kind, building.locks.iter(), (rate, duration_ns));
        Class { convoy, ..building.class(identity, names) }
    };
    let mut classes: Vec<Class> = classes.into_iter().map(class).collect();
    classes.retain(|class| class.sums.acquired + class.sums.contended + class.sums.failed > 0);
    classes
        .sort_by_key(|c| std::cmp::Reverse((c.kind.is_lock(), c.sums.waited_ns, c.sums.acquired)));
    let of = |pid: u32, address: u64| {
        let found = identities.get(&(pid, address)).cloned();
        found.unwrap_or_else(|| format!("{address:#x}"))
    };
    let processes: std::collections::HashSet<u32> = threads.iter().map(|t| t.pid).collect();
    Report {
        duration_ns,
        threads: threads.iter().filter(|t| !t.rows.is_empty()).count() as u64,
        processes: processes.len() as u64,
        classes,
        orders: order::orders(threads, &of),
        deadlocks: order::deadlocks(threads, names, &of),
        shared_lines: lines::shared(threads, &of, &|row| {
            kind_of(row).is_some_and(|(kind, _)| kind.is_lock())
        }),
        losses: losses(threads),
        rate: rate.0,
    }
}

fn losses(threads: &[ThreadTable]) -> Losses {
    let sum = |word: HeadWord| threads.iter().map(|thread| thread.head[word as usize]).sum();
    Losses {
        missed: sum(HeadWord::Missed),
        no_row: sum(HeadWord::RowsFull),
        no_edge: sum(HeadWord::EdgesFull),
        no_hold: sum(HeadWord::HeldFull),
        no_blame: sum(HeadWord::BlamesFull),
        unmatched: sum(HeadWord::Unmatched),
        unseen: sum(HeadWord::Unseen),
    }
}

/// The sort of lock that a row is of, and what was done; `None` for what is no acquisition.
fn kind_of(row: &Row) -> Option<(Kind, Operation)> {
    let operation = Operation::numbered(row.operation)?;
    if operation == Operation::CondSignal {
        return None;
    }
    Some((Kind::of(operation)?, operation))
}

/// What people call an operation beside the lock's sort.
fn operation_name(operation: Operation) -> &'static str {
    use Operation as O;
    match operation {
        O::MutexTry | O::SpinTry | O::SemTry => "try",
        O::ReadLock => "read",
        O::ReadTry => "try read",
        O::ReadTimed => "timed read",
        O::WriteLock => "write",
        O::WriteTry => "try write",
        O::WriteTimed => "timed write",
        O::MutexTimed | O::SemTimed => "timed",
        O::CondWait | O::Barrier | O::SemWait => "wait",
        O::Slow => "wait",
        _ => "lock",
    }
}

/// Names of locks: the variable, or the structure's member, or where they are made, or where they are taken most.
fn identities(threads: &[ThreadTable], names: &dyn Names) -> HashMap<(u32, u64), String> {
    let mut made: HashMap<(u32, u64), u64> = HashMap::new();
    let mut taken: HashMap<(u32, u64), HashMap<u64, u64>> = HashMap::new();
    for thread in threads {
        for (_, row) in thread.rows.iter().filter(|(_, row)| row.lock != 0) {
            let key = (thread.pid, row.lock);
            match Operation::numbered(row.operation) {
                Some(Operation::Init) => {
                    made.insert(key, row.site);
                }
                Some(Operation::Destroy | Operation::CondSignal) | None => {}
                Some(_) => {
                    let asked = row.acquired.max(row.contended) + row.failed;
                    *taken.entry(key).or_default().entry(row.site).or_default() += asked;
                }
            }
        }
    }
    let name = |((pid, lock), sites): ((u32, u64), HashMap<u64, u64>)| {
        let mut sites: Vec<(u64, u64)> = sites.into_iter().collect();
        sites.sort_by_key(|(site, n)| std::cmp::Reverse((*n, *site)));
        let made = made.get(&(pid, lock)).copied();
        let member = || {
            made.iter()
                .chain(sites.iter().map(|(site, _)| site))
                .find_map(|at| names.member(pid, *at))
        };
        let place = |how: &str, at: u64| format!("{how} in {}", names.place(pid, at).text());
        let name = names
            .variable(pid, lock)
            .or_else(member)
            .or_else(|| made.map(|at| place("made", at)))
            .or_else(|| sites.first().map(|(at, _)| place("taken", *at)));
        ((pid, lock), name.unwrap_or_else(|| format!("{lock:#x}")))
    };
    taken.into_iter().map(name).collect()
}

fn identity(
    known: &HashMap<(u32, u64), String>,
    pid: u32,
    row: &Row,
    kind: Kind,
    names: &dyn Names,
) -> Identity {
    let name = known.get(&(pid, row.lock)).cloned();
    // Those without a row of their own go by the place.
    let name = name.unwrap_or_else(|| format!("taken in {}", names.place(pid, row.site).text()));
    Identity { name, kind }
}

#[derive(Default)]
struct Building {
    locks: std::collections::BTreeSet<(u32, u64)>,
    sums: Sums,
    sites: HashMap<(u32, u64, &'static str), Sums>,
    blocking: HashMap<(u32, u64, u64), (u64, u64)>,
    held_over: HashMap<(u32, u64, u32), (u64, u64)>,
}

impl Building {
    fn class(self, Identity { name, kind }: Identity, names: &dyn Names) -> Class {
        let mut by_place: BTreeMap<(Place, &'static str), Sums> = BTreeMap::new();
        for ((pid, site, operation), sums) in self.sites {
            let key = (names.place(pid, site), operation);
            by_place.entry(key).or_default().merge(&sums);
        }
        let site = |((place, operation), sums)| Site { place, operation, sums };
        let mut sites: Vec<Site> = by_place.into_iter().map(site).collect();
        sites.retain(|s| s.sums.acquired + s.sums.contended + s.sums.failed > 0);
        sites.sort_by_key(|s| std::cmp::Reverse((s.sums.waited_ns, s.sums.acquired)));
        let mut pairs: BTreeMap<(Place, Option<Place>), (u64, u64)> = BTreeMap::new();
        for ((pid, waiter, holder), (ns, waits)) in self.blocking {
            let holder = match holder {
                NOBODY => None,
                OTHERS => Some(Place { function: "other places".to_owned(), ..Place::default() }),
                at => Some(names.place(pid, at)),
            };
            let sum = pairs.entry((names.place(pid, waiter), holder)).or_default();
            *sum = (sum.0 + ns, sum.1 + waits);
        }
        let blocking =
            |((waiter, holder), (waited_ns, waits))| Blocking { waiter, holder, waited_ns, waits };
        let mut blocking: Vec<Blocking> = pairs.into_iter().map(blocking).collect();
        blocking.sort_by_key(|b| std::cmp::Reverse(b.waited_ns));
        let mut over: BTreeMap<(Place, u32), (u64, u64)> = BTreeMap::new();
        for ((pid, site, call), (looks, ns)) in self.held_over {
            let sum = over.entry((names.place(pid, site), call)).or_default();
            *sum = (sum.0 + looks, sum.1 + ns);
        }
        let held = |((place, call), (looks, held_ns))| HeldOver {
            place,
            call: names.system_call(call),
            looks,
            held_ns,
        };
        let mut held_over: Vec<HeldOver> = over.into_iter().map(held).collect();
        held_over.sort_by_key(|over| std::cmp::Reverse(over.held_ns));
        let whole = self.locks.iter().all(|(_, lock)| *lock != 0);
        Class {
            name,
            kind,
            locks: if whole { self.locks.len() as u64 } else { 0 },
            addresses: self.locks.iter().map(|(_, lock)| *lock).take(4).collect(),
            sums: self.sums,
            sites,
            blocking,
            held_over,
            convoy: None,
        }
    }
}

impl Sums {
    fn merge(&mut self, other: &Sums) {
        self.acquired += other.acquired;
        self.contended += other.contended;
        self.failed += other.failed;
        self.waited_ns += other.waited_ns;
        self.waited_ns_max = self.waited_ns_max.max(other.waited_ns_max);
        self.held_ns += other.held_ns;
        self.held_timed += other.held_timed;
        self.held_ns_max = self.held_ns_max.max(other.held_ns_max);
        self.queue_max = self.queue_max.max(other.queue_max);
        self.queue_sum += other.queue_sum;
        self.waits.0.iter_mut().zip(other.waits.0).for_each(|(sum, n)| *sum += n);
        self.holds.0.iter_mut().zip(other.holds.0).for_each(|(sum, n)| *sum += n);
    }
}
