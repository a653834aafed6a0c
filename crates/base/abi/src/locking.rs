//! The tables of locks in threads' slots: the layout that `runtime/locks.h` has in C, and the
//! functions that are probed for it.
//!
//! A thread's table is in its slot, at [`crate::block::ThreadBlock::locks`]; what all threads share
//! is in front of the slots ([`HEAD_BYTES`]). Times are ticks of the time-stamp counter.

use core::mem::offset_of;

/// What a lock function does; its number is in the table of functions ([`HEAD_OPERATIONS`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Operation {
    MutexLock = 1,
    MutexTry,
    MutexTimed,
    MutexUnlock,
    ReadLock,
    ReadTry,
    ReadTimed,
    WriteLock,
    WriteTry,
    WriteTimed,
    RwUnlock,
    SpinLock,
    SpinTry,
    SpinUnlock,
    SemWait,
    SemTry,
    SemTimed,
    SemPost,
    CondWait,
    CondSignal,
    Barrier,
    Init,
    Destroy,
    Create,
    Join,
    Slow,
}

impl Operation {
    /// All of them, by their numbers from 1.
    pub const ALL: [Operation; 26] = [
        Operation::MutexLock,
        Operation::MutexTry,
        Operation::MutexTimed,
        Operation::MutexUnlock,
        Operation::ReadLock,
        Operation::ReadTry,
        Operation::ReadTimed,
        Operation::WriteLock,
        Operation::WriteTry,
        Operation::WriteTimed,
        Operation::RwUnlock,
        Operation::SpinLock,
        Operation::SpinTry,
        Operation::SpinUnlock,
        Operation::SemWait,
        Operation::SemTry,
        Operation::SemTimed,
        Operation::SemPost,
        Operation::CondWait,
        Operation::CondSignal,
        Operation::Barrier,
        Operation::Init,
        Operation::Destroy,
        Operation::Create,
        Operation::Join,
        Operation::Slow,
    ];

    /// The operation of this number.
    pub fn numbered(number: u32) -> Option<Operation> {
        Operation::ALL.get((number as usize).checked_sub(1)?).copied()
    }
}

/// Added to an operation's number where the function is musl's, whose locks have another layout.
pub const MUSL: u8 = 0x80;

/// Names of functions, which `*` may stand in for anything, and what they do. Names are without
/// leading underscores; those of C++ and Rust are demangled.
pub const PROBED: &[(&str, Operation)] = &[
    ("pthread_mutex_lock", Operation::MutexLock),
    ("pthread_mutex_trylock", Operation::MutexTry),
    ("pthread_mutex_timedlock", Operation::MutexTimed),
    ("pthread_mutex_clocklock", Operation::MutexTimed),
    ("pthread_mutex_unlock", Operation::MutexUnlock),
    ("pthread_mutex_init", Operation::Init),
    ("pthread_mutex_destroy", Operation::Destroy),
    ("pthread_rwlock_rdlock", Operation::ReadLock),
    ("pthread_rwlock_tryrdlock", Operation::ReadTry),
    ("pthread_rwlock_timedrdlock", Operation::ReadTimed),
    ("pthread_rwlock_clockrdlock", Operation::ReadTimed),
    ("pthread_rwlock_wrlock", Operation::WriteLock),
    ("pthread_rwlock_trywrlock", Operation::WriteTry),
    ("pthread_rwlock_timedwrlock", Operation::WriteTimed),
    ("pthread_rwlock_clockwrlock", Operation::WriteTimed),
    ("pthread_rwlock_unlock", Operation::RwUnlock),
    ("pthread_rwlock_init", Operation::Init),
    ("pthread_rwlock_destroy", Operation::Destroy),
    // glibc has `pthread_spin_init` at the address of `pthread_spin_unlock`; the first entry here
    // is used.
    ("pthread_spin_unlock", Operation::SpinUnlock),
    ("pthread_spin_lock", Operation::SpinLock),
    ("pthread_spin_trylock", Operation::SpinTry),
    ("pthread_spin_init", Operation::Init),
    ("sem_wait", Operation::SemWait),
    ("sem_trywait", Operation::SemTry),
    ("sem_timedwait", Operation::SemTimed),
    ("sem_clockwait", Operation::SemTimed),
    ("sem_post", Operation::SemPost),
    ("sem_init", Operation::Init),
    ("sem_destroy", Operation::Destroy),
    ("pthread_cond_wait", Operation::CondWait),
    ("pthread_cond_timedwait", Operation::CondWait),
    ("pthread_cond_clockwait", Operation::CondWait),
    ("pthread_cond_signal", Operation::CondSignal),
    ("pthread_cond_broadcast", Operation::CondSignal),
    ("pthread_barrier_wait", Operation::Barrier),
    ("pthread_create", Operation::Create),
    ("pthread_join", Operation::Join),
    ("std::sys::*mutex::futex::Mutex::lock_contended*", Operation::Slow),
    ("std::sys::*rwlock::futex::RwLock::read_contended*", Operation::Slow),
    ("std::sys::*rwlock::futex::RwLock::write_contended*", Operation::Slow),
    ("parking_lot::raw_mutex::RawMutex::lock_slow*", Operation::Slow),
    ("parking_lot::raw_rwlock::RawRwLock::lock_shared_slow*", Operation::Slow),
    ("parking_lot::raw_rwlock::RawRwLock::lock_exclusive_slow*", Operation::Slow),
    ("absl::*Mutex::LockSlow(*", Operation::Slow),
    // glibc's own locks: of the heap's arenas, of streams, of the list of threads' stacks.
    ("lll_lock_wait_private", Operation::Slow),
];

/// Bytes in front of the slots where locks are recorded.
pub const HEAD_BYTES: u64 = 8 << 20;
/// Where [`Info`] is in front of the slots.
pub const HEAD_INFO: u64 = 128;
/// Where, by function number, the operation of each probed function is: a byte each.
pub const HEAD_OPERATIONS: u64 = 1 << 20;
/// Functions that can have one.
pub const OPERATIONS: u32 = 1 << 20;

/// Where the [`Convoy`]s are in front of the slots, up to [`HEAD_BYTES`].
pub const HEAD_CONVOYS: u64 = 6 << 20;
/// Locks that can have one.
pub const CONVOYS: usize = 8192;
/// Numbers of waiting threads that count apart.
pub const QUEUES: usize = 16;

/// Stretches of a lock: at each release within one a thread waits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Releases.
    pub releases: u64,
    /// Threads that had waited and got the lock.
    pub handed: u64,
    /// Ticks.
    pub ticks: u64,
    /// Of those, while no thread held the lock.
    pub passing: u64,
    /// Releases by how many threads waited: one, two, and so on; the last for all that are more.
    pub queues: [u32; QUEUES],
}

/// The stretches of one lock.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Convoy {
    /// Address of the lock.
    pub lock: u64,
    /// The process.
    pub pid: u32,
    /// How many are in `all`.
    pub stretches: u32,
    /// When the present one began.
    pub since: u64,
    /// Ticks before it in which no thread held the lock that was waited for.
    pub passing_before: u64,
    /// The present one.
    pub now: Stretch,
    /// The sum of those before it in which the lock was passed on [`HANDED_LEAST`] times.
    pub all: Stretch,
    /// Not in use.
    pub pad: [u64; 4],
}

/// Stretches in which a lock was passed on less often to a thread that had waited do not count.
pub const HANDED_LEAST: u64 = 32;

impl Stretch {
    fn new(words: &[u64]) -> Stretch {
        let mut queues = [0; QUEUES];
        for (pair, word) in queues.chunks_exact_mut(2).zip(&words[4..]) {
            (pair[0], pair[1]) = (*word as u32, (*word >> 32) as u32);
        }
        let [releases, handed, ticks, passing] = [words[0], words[1], words[2], words[3]];
        Stretch { releases, handed, ticks, passing, queues }
    }

    /// Adds another one up.
    pub fn add(&mut self, other: &Stretch) {
        self.releases += other.releases;
        self.handed += other.handed;
        self.ticks += other.ticks;
        self.passing += other.passing;
        self.queues.iter_mut().zip(other.queues).for_each(|(sum, n)| *sum += n);
    }
}

impl Convoy {
    /// From its words, in their order.
    pub fn of_words(words: [u64; size_of::<Convoy>() / 8]) -> Convoy {
        let stretch = size_of::<Stretch>() / 8;
        Convoy {
            lock: words[0],
            pid: words[1] as u32,
            stretches: (words[1] >> 32) as u32,
            since: words[2],
            passing_before: words[3],
            now: Stretch::new(&words[4..4 + stretch]),
            all: Stretch::new(&words[4 + stretch..4 + 2 * stretch]),
            pad: [0; 4],
        }
    }

    /// All stretches that count, and how many they are; the present one ends here.
    pub fn ended(&self) -> (Stretch, u32) {
        let (mut all, mut stretches) = (self.all, self.stretches);
        if self.now.handed >= HANDED_LEAST {
            all.add(&self.now);
            stretches += 1;
        }
        (all, stretches)
    }
}

/// What a thread needs to find others' tables.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Info {
    /// Bytes from slot to slot.
    pub stride: u64,
    /// Offset of the first slot.
    pub slots_at: u64,
    /// Slots that were ever in use.
    pub slots_high: u64,
    /// Offset of the table in a slot.
    pub table_at: u64,
}

/// Words in front of the lists of a thread's table, with its state.
pub const HEAD_WORDS: usize = 16;
/// Locks that a thread can hold at once.
pub const HELD: usize = 64;
/// Recorded creations and joins of threads by one thread.
pub const EVENTS: usize = 1024;
/// Pairs of a waiter's row and a holder.
pub const BLAMES: usize = 2048;
/// Orders of two locks.
pub const EDGES: usize = 2048;
/// Locks and places.
pub const ROWS: usize = 4096;
/// Other locks that are recorded with an order.
pub const GATES: usize = 6;

/// Offset in the table of the locks that the thread holds.
pub const HELD_AT: usize = 512;
/// Offset of its events.
pub const EVENTS_AT: usize = 4096;
/// Offset of its blames.
pub const BLAMES_AT: usize = EVENTS_AT + EVENTS * size_of::<Event>();
/// Offset of its edges.
pub const EDGES_AT: usize = BLAMES_AT + BLAMES * size_of::<Blame>();
/// Offset of its rows.
pub const ROWS_AT: usize = EDGES_AT + EDGES * size_of::<Edge>();
/// Bytes of the whole table.
pub const TABLE_BYTES: usize = ROWS_AT + ROWS * size_of::<Row>();

/// The head of a table, by its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs)]
pub enum HeadWord {
    Busy,
    HeldCount,
    Segment,
    Itself,
    Missed,
    RowsFull,
    EdgesFull,
    HeldFull,
    Unmatched,
    BlamesFull,
    Countdown,
    EventCount,
    Unseen,
}

/// The figures of one lock at one call site in one thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// Address of the lock; 0 for all without a row of their own.
    pub lock: u64,
    /// The call site: the function's return address.
    pub site: u64,
    /// An [`Operation`]; 0 if the row is empty.
    pub operation: u32,
    /// Most waiters at once, this one included.
    pub queue_max: u32,
    /// How often it was acquired.
    pub acquired: u64,
    /// How often it was held by another when it was asked for.
    pub contended: u64,
    /// How often it was not acquired: `try` failed, or the timeout expired.
    pub failed: u64,
    /// Ticks of waiting.
    pub waited: u64,
    /// The longest wait.
    pub waited_max: u64,
    /// Ticks that it was held, as far as holds were timed, each with its weight.
    pub held: u64,
    /// The number of holds that those stand for.
    pub held_timed: u64,
    /// Longest hold that was timed.
    pub held_max: u64,
    /// Sum of waiters, over all that were contended.
    pub queue_sum: u64,
    /// Waits by [bucket](bucket_ticks).
    pub waited_log2: [u32; 32],
    /// Holds by bucket, each with its weight.
    pub held_log2: [u32; 32],
    /// Not in use.
    pub pad: [u64; 4],
}

impl Row {
    /// From its words, in their order.
    pub fn new(words: [u64; size_of::<Row>() / 8]) -> Row {
        let mut row = Row {
            lock: words[0],
            site: words[1],
            operation: words[2] as u32,
            queue_max: (words[2] >> 32) as u32,
            acquired: words[3],
            contended: words[4],
            failed: words[5],
            waited: words[6],
            waited_max: words[7],
            held: words[8],
            held_timed: words[9],
            held_max: words[10],
            queue_sum: words[11],
            ..Row::default()
        };
        for (i, pair) in words[12..28].iter().enumerate() {
            row.waited_log2[2 * i] = *pair as u32;
            row.waited_log2[2 * i + 1] = (*pair >> 32) as u32;
        }
        for (i, pair) in words[28..44].iter().enumerate() {
            row.held_log2[2 * i] = *pair as u32;
            row.held_log2[2 * i + 1] = (*pair >> 32) as u32;
        }
        row
    }
}

/// A lock was asked for while another was held.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// The lock that was held: its address, and in the upper 16 bits its generation.
    pub outer: u64,
    /// The one that was asked for.
    pub inner: u64,
    /// Where the outer one was taken.
    pub outer_site: u64,
    /// Where the inner one was taken.
    pub inner_site: u64,
    /// Of the thread's segments, which end where it creates a thread or joins one.
    pub segment: u32,
    /// [`Edge::OUTER_SHARED`] and so on.
    pub flags: u32,
    /// How often.
    pub count: u64,
    /// Other locks that were held; the lowest bit says that one was shared. 0 for none.
    pub gates: [u64; GATES],
    /// Not in use.
    pub pad: [u64; 4],
}

impl Edge {
    /// The outer lock was held shared.
    pub const OUTER_SHARED: u32 = 1;
    /// The inner one was asked for shared.
    pub const INNER_SHARED: u32 = 2;
    /// More locks were held than there is room for.
    pub const MORE_GATES: u32 = 4;

    /// From its words, in their order.
    pub fn of_words(words: [u64; size_of::<Edge>() / 8]) -> Edge {
        let mut gates = [0; GATES];
        gates.copy_from_slice(&words[6..6 + GATES]);
        let (segment, flags) = (words[4] as u32, (words[4] >> 32) as u32);
        let edge = Edge::new((words[0], words[1]), (words[2], words[3]), segment, flags);
        Edge { count: words[5], gates, ..edge }
    }

    /// An edge that occurred once.
    pub fn new(locks: (u64, u64), sites: (u64, u64), segment: u32, flags: u32) -> Edge {
        let ((outer, inner), (outer_site, inner_site)) = (locks, sites);
        Edge { outer, inner, outer_site, inner_site, segment, flags, count: 1, ..Edge::default() }
    }
}

/// The waits of one row for one holder.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Blame {
    /// Number of the waiter's row.
    pub row: u32,
    /// Waits.
    pub count: u32,
    /// Where the holder took the lock: [`NOBODY`], [`OTHERS`] or an address.
    pub holder: u64,
    /// Ticks.
    pub ticks: u64,
    /// Not in use.
    pub pad: u64,
}

impl Blame {
    /// From its words, in their order.
    pub fn of_words(words: [u64; size_of::<Blame>() / 8]) -> Blame {
        let (row, count) = (words[0] as u32, (words[0] >> 32) as u32);
        Blame { row, count, holder: words[1], ticks: words[2], pad: 0 }
    }
}

/// No thread is known to have held the lock: it was being passed from one thread to another.
pub const NOBODY: u64 = 0;
/// More places than can be counted each.
pub const OTHERS: u64 = 1;

/// A thread created a thread, or joined one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    /// [`Operation::Create`] or [`Operation::Join`].
    pub kind: u32,
    /// The segment that ended with it.
    pub segment: u32,
    /// Which thread: [`HeadWord::Itself`] of its own table.
    pub object: u64,
    /// When it was created, or had been joined.
    pub time: u64,
}

impl Event {
    /// From its words, in their order.
    pub fn of_words(words: [u64; size_of::<Event>() / 8]) -> Event {
        let (kind, segment) = (words[0] as u32, (words[0] >> 32) as u32);
        Event { kind, segment, object: words[1], time: words[2] }
    }
}

/// A lock that a thread holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// Its address.
    pub lock: u64,
    /// When it was acquired, if that was timed.
    pub start: u64,
    /// Not in use.
    pub pad: u64,
    /// Number of the row.
    pub row: u32,
    /// The weight of a timed hold.
    pub weight: u16,
    /// 1 if it is shared, 2 for a semaphore.
    pub mode: u16,
}

/// The least number of ticks in a bucket of a row.
pub const fn bucket_ticks(bucket: u32) -> u64 {
    if bucket == 0 { 0 } else { 1 << (bucket + 4) }
}

const _: () = {
    assert!(size_of::<Row>() == 384);
    assert!(offset_of!(Row, waited_log2) == 96);
    assert!(size_of::<Convoy>() == 256 && size_of::<Stretch>() == 96);
    assert!(HEAD_CONVOYS + (CONVOYS * size_of::<Convoy>()) as u64 == HEAD_BYTES);
    assert!(size_of::<Edge>() == 128);
    assert!(offset_of!(Edge, gates) == 48);
    assert!(size_of::<Blame>() == 32);
    assert!(size_of::<Event>() == 24);
    assert!(size_of::<Held>() == 32);
    assert!(HELD_AT + HELD * size_of::<Held>() <= EVENTS_AT);
    assert!(TABLE_BYTES == 1_929_216);
    assert!(HeadWord::Unseen as usize == 12 && HEAD_WORDS == 16);
    assert!(Operation::Slow as usize == Operation::ALL.len());
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_their_operations() {
        for operation in Operation::ALL {
            assert_eq!(Operation::numbered(operation as u32), Some(operation));
        }
        assert_eq!(Operation::numbered(0), None);
        assert_eq!(Operation::numbered(27), None);
    }

    #[test]
    fn the_present_stretch_counts_if_it_is_long() {
        let mut words = [0; size_of::<Convoy>() / 8];
        (words[0], words[1]) = (64, 7 | 2 << 32);
        // The present one: passed on 40 times, with one waiting; all before: 100 times.
        (words[4], words[5], words[8]) = (41, 40, 41);
        (words[16], words[17], words[20]) = (102, 100, 100 | 2 << 32);
        let convoy = Convoy::of_words(words);
        assert_eq!((convoy.lock, convoy.pid, convoy.stretches), (64, 7, 2));
        let (all, stretches) = convoy.ended();
        assert_eq!((all.releases, all.handed, stretches), (143, 140, 3));
        assert_eq!(all.queues[..3], [141, 2, 0]);
        words[5] = HANDED_LEAST - 1;
        assert_eq!(Convoy::of_words(words).ended().1, 2);
    }

    #[test]
    fn buckets_double() {
        assert_eq!(bucket_ticks(0), 0);
        assert_eq!(bucket_ticks(1), 32);
        assert_eq!(bucket_ticks(2), 64);
    }
}
