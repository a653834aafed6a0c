//! Locks in one cache line: a thread that takes one takes the line from threads that take the others, though none
//! waits for any.

use std::collections::{BTreeMap, BTreeSet};

use fettle_abi::locking::Row;
use serde::Serialize;

use crate::ThreadTable;

/// Bytes of a cache line.
pub const LINE: u64 = 64;
/// A lock that is taken less often does not matter.
const OFTEN: u64 = 10_000;

/// A cache line with several locks that are taken often, by more than one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedLine {
    /// Where it begins.
    pub address: u64,
    /// Its locks, in order.
    pub locks: Vec<LockInLine>,
    /// Threads that take any of them.
    pub threads: u64,
}

/// A lock in such a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockInLine {
    /// Its class.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// How often it was had.
    pub acquired: u64,
}

impl SharedLine {
    /// In words, with what to do.
    pub fn advice(&self) -> String {
        let mut names: Vec<&str> = self.locks.iter().map(|lock| lock.name.as_str()).collect();
        names.dedup();
        let which = match names.as_slice() {
            [one] => format!("{} locks of {one}", self.locks.len()),
            several => several.join(" and "),
        };
        format!(
            "{which} are in one cache line ({:#x}) that {} threads take: who takes one takes it from the others; \
             {LINE} bytes apart they do not",
            self.address, self.threads
        )
    }
}

/// How often a lock was had, and by which threads.
#[derive(Default)]
struct Taken {
    acquired: u64,
    threads: BTreeSet<u32>,
}

/// Such lines, those that are taken most often first; `of` gives a lock's class, and `counts` says which rows
/// are of locks.
pub fn shared(
    threads: &[ThreadTable],
    of: &dyn Fn(u32, u64) -> String,
    counts: &dyn Fn(&Row) -> bool,
) -> Vec<SharedLine> {
    let mut locks: BTreeMap<(u32, u64), Taken> = BTreeMap::new();
    for thread in threads {
        for (_, row) in thread.rows.iter().filter(|(_, row)| row.lock != 0) {
            if counts(row) && row.acquired > 0 {
                let taken = locks.entry((thread.pid, row.lock)).or_default();
                taken.acquired += row.acquired;
                taken.threads.insert(thread.tid);
            }
        }
    }
    let mut lines: BTreeMap<(u32, u64), Vec<(u64, &Taken)>> = BTreeMap::new();
    for ((pid, lock), taken) in locks.iter().filter(|(_, taken)| taken.acquired >= OFTEN) {
        lines.entry((*pid, lock / LINE)).or_default().push((*lock, taken));
    }
    let line = |((pid, line), locks): ((u32, u64), Vec<(u64, &Taken)>)| {
        let takers: BTreeSet<u32> =
            locks.iter().flat_map(|(_, taken)| &taken.threads).copied().collect();
        let lock = |(address, taken): &(u64, &Taken)| LockInLine {
            name: of(pid, *address),
            address: *address,
            acquired: taken.acquired,
        };
        (locks.len() > 1 && takers.len() > 1).then(|| SharedLine {
            address: line * LINE,
            locks: locks.iter().map(lock).collect(),
            threads: takers.len() as u64,
        })
    };
    let mut found: Vec<SharedLine> = lines.into_iter().filter_map(line).collect();
    let acquired = |line: &SharedLine| line.locks.iter().map(|lock| lock.acquired).sum::<u64>();
    found.sort_by_key(|line| std::cmp::Reverse(acquired(line)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use fettle_abi::locking::Operation;

    fn thread(tid: u32, locks: &[(u64, u64)]) -> ThreadTable {
        let row = |&(lock, acquired): &(u64, u64)| {
            let operation = Operation::MutexLock as u32;
            (0, Row { lock, acquired, operation, ..Row::default() })
        };
        ThreadTable { pid: 1, tid, rows: locks.iter().map(row).collect(), ..ThreadTable::default() }
    }

    fn found(threads: &[ThreadTable]) -> Vec<SharedLine> {
        shared(
            threads,
            &|_, address| {
                if address < 0x2000 { "table".into() } else { format!("{address:#x}") }
            },
            &|_| true,
        )
    }

    #[test]
    fn two_hot_locks_of_two_threads_share_a_line() {
        let lines = found(&[thread(1, &[(0x1000, 20_000)]), thread(2, &[(0x1028, 10_000)])]);
        assert_eq!(lines.len(), 1);
        assert_eq!((lines[0].address, lines[0].threads, lines[0].locks.len()), (0x1000, 2, 2));
        assert!(lines[0].advice().starts_with("2 locks of table are in one cache line (0x1000)"));
    }

    #[test]
    fn others_do_not() {
        // In two lines; by one thread alone; rarely.
        assert_eq!(found(&[thread(1, &[(0x1000, 20_000)]), thread(2, &[(0x1040, 20_000)])]), []);
        assert_eq!(found(&[thread(1, &[(0x1000, 20_000), (0x1028, 20_000)])]), []);
        assert_eq!(found(&[thread(1, &[(0x1000, 20_000)]), thread(2, &[(0x1028, 9_999)])]), []);
    }
}
