//! A process that hangs: which thread waits for which, and the circles among them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::Place;

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Awaited {
    /// A lock.
    Lock {
        /// Sort, as far as its memory shows it.
        kind: &'static str,
        /// Its address.
        address: u64,
        /// The variable, if it is one.
        name: Option<String>,
    },
    /// The end of a thread.
    End,
    /// Something in memory that does not name its holder: a condition variable, a semaphore, a
    /// barrier, a lock of a language's own.
    Unknown {
        /// What it is, by the C library's function that waits.
        #[serde(skip_serializing_if = "Option::is_none")]
        kind: Option<&'static str>,
        /// The address that the kernel was given.
        address: u64,
        /// The variable, if it is one.
        name: Option<String>,
    },
}

/// What the C library's functions wait for that no thread has.
const UNOWNED: [(&str, &str); 4] = [
    ("pthread_cond_", "a condition variable"),
    ("sem_", "a semaphore"),
    ("pthread_barrier_", "a barrier"),
    ("pthread_rwlock_", "a reader-writer lock that readers have"),
];

/// What a function of the C library waits for, if no thread has it.
pub fn unowned(function: &str) -> Option<&'static str> {
    let name = function.trim_start_matches('_').trim_start_matches("new_");
    let found = UNOWNED.iter().find(|(begin, _)| name.starts_with(begin));
    found.map(|(_, what)| *what)
}

/// A thread that the kernel has waiting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub thread: String,
    /// What it waits for.
    pub awaited: Awaited,
    /// Which thread has that, if it says so.
    pub holder: Option<u32>,
    /// Whom it was called by, innermost first, without the C library's functions.
    pub stack: Vec<Place>,
}

/// The circles in which threads wait for each other, each from its lowest thread on.
pub fn cycles(waiting: &[Waiting]) -> Vec<Vec<u32>> {
    let next: BTreeMap<u32, u32> =
        waiting.iter().filter_map(|thread| Some((thread.tid, thread.holder?))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for &start in next.keys() {
        let mut path = vec![start];
        while let Some(&holder) = path.last().and_then(|tid| next.get(tid)) {
            if let Some(from) = path.iter().position(|tid| *tid == holder) {
                let mut cycle = path.split_off(from);
                let lowest = (0..cycle.len()).min_by_key(|i| cycle[*i]).unwrap_or(0);
                cycle.rotate_left(lowest);
                if seen.insert(cycle.clone()) {
                    found.push(cycle);
                }
                break;
            }
            path.push(holder);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(tid: u32, holder: Option<u32>) -> Waiting {
        let awaited = Awaited::Lock { kind: "mutex", address: 0x1000, name: None };
        Waiting { tid, thread: String::new(), awaited, holder, stack: vec![] }
    }

    #[test]
    fn what_no_thread_has_is_known_by_the_function_that_waits() {
        assert_eq!(unowned("pthread_cond_wait"), Some("a condition variable"));
        assert_eq!(unowned("__new_sem_wait"), Some("a semaphore"));
        assert_eq!(unowned("__pthread_mutex_lock"), None);
    }

    #[test]
    fn circles_are_found_once_and_those_that_wait_for_them_are_not_in_them() {
        let all = [
            waiting(7, Some(5)),
            waiting(5, Some(6)),
            waiting(6, Some(5)),
            waiting(8, None),
            waiting(9, Some(8)),
        ];
        assert_eq!(cycles(&all), [vec![5, 6]]);
    }

    #[test]
    fn a_thread_may_wait_for_itself() {
        assert_eq!(cycles(&[waiting(3, Some(3))]), [vec![3]]);
    }
}
