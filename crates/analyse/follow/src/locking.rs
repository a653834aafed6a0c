//! What calls of the C library's functions of locks mean: which thread waits for a lock, gets it, lets it go.
//!
//! The library is asked for a lock whether it is free or not, and the call does not say whether it had
//! to wait. That follows from which thread holds it: the calls of all threads are seen, in order of
//! time. Of a semaphore whose beginning was not seen, the least value is assumed that explains what was.

use std::collections::{HashMap, HashSet, VecDeque};

use fettle_abi::locks::{Change, Function};

use crate::given::Given;

/// What becomes of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockEvent {
    /// A thread asks for it, and it is taken.
    Wait,
    /// The thread gave up waiting.
    GivenUp,
    /// The thread has it.
    Acquired,
    /// The thread lets it go.
    Released,
}

/// One lock.
#[derive(Clone, Debug, Default)]
struct Lock {
    /// The thread that has it alone, and how often it took it.
    alone: Option<(u64, u32)>,
    /// How many have it together.
    together: u32,
    /// What is left of a semaphore.
    left: u32,
    /// Threads of which nothing is seen while they wait, in the order in which they came.
    unseen: VecDeque<u64>,
}

/// A thread that asked for a lock and left the function by jumping into another one: so the library
/// goes where it has to wait. It has the lock at the latest when it does something else.
#[derive(Clone, Copy, Debug)]
struct Unseen {
    address: u64,
    of: &'static Function,
}

/// All locks of a trace.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// By process and address.
    locks: HashMap<(u64, u64), Lock>,
    /// Threads that were reported to wait, by process and thread.
    waiting: HashSet<(u64, u64)>,
    unseen: HashMap<(u64, u64), Unseen>,
}

/// What happened to a lock, by which thread, and which lock.
pub(crate) type Happened = (LockEvent, u64, u64);

impl Locks {
    /// A call begins; what that means is added to `out`.
    pub(crate) fn begin(
        &mut self,
        of: &'static Function,
        pid: u64,
        tid: u64,
        given: &Given,
        out: &mut Vec<Happened>,
    ) {
        if let Some(Unseen { address, of }) = self.unseen.remove(&(pid, tid)) {
            self.locks.entry((pid, address)).or_default().unseen.retain(|other| *other != tid);
            // No thread let it go for this thread, which may have waited only so long.
            match of.timed() {
                true => out.push((LockEvent::GivenUp, tid, address)),
                false => self.take(of.change, pid, tid, address, out),
            }
        }
        let address = given.arguments[of.lock];
        let lock = self.locks.entry((pid, address)).or_default();
        let others = lock.alone.is_some_and(|(owner, _)| owner != tid);
        let taken = match of.change {
            Change::Lock => others || lock.together > 0,
            Change::Read => others,
            Change::Down => lock.left == 0,
            Change::Unlock | Change::Condition => {
                if lock.let_go(tid) {
                    out.push((LockEvent::Released, tid, address));
                    self.pass_on(pid, address, out);
                }
                return;
            }
            Change::Up => {
                lock.left += 1;
                out.push((LockEvent::Released, tid, address));
                self.pass_on(pid, address, out);
                return;
            }
            Change::Make => {
                *lock = Lock { left: given.arguments[2] as u32, ..Lock::default() };
                return;
            }
        };
        if taken && of.waits {
            self.waiting.insert((pid, tid));
            out.push((LockEvent::Wait, tid, address));
        }
    }

    /// A call ends; what that means is added to `out`.
    pub(crate) fn end(
        &mut self,
        of: &'static Function,
        pid: u64,
        tid: u64,
        given: &Given,
        out: &mut Vec<Happened>,
    ) {
        /// The mutex is the caller's: its owner has died.
        const EOWNERDEAD: u32 = 130;
        let address = given.arguments[of.lock];
        match (of.change, given.result.map(|result| result as u32)) {
            (Change::Unlock | Change::Up | Change::Make, _) => {}
            (Change::Condition, _) | (_, Some(0 | EOWNERDEAD)) => {
                self.take(of.change, pid, tid, address, out);
            }
            (_, None) if of.waits => {
                if self.waiting.insert((pid, tid)) {
                    out.push((LockEvent::Wait, tid, address));
                }
                self.unseen.insert((pid, tid), Unseen { address, of });
                self.locks.entry((pid, address)).or_default().unseen.push_back(tid);
            }
            _ => {
                if self.waiting.remove(&(pid, tid)) {
                    out.push((LockEvent::GivenUp, tid, address));
                }
            }
        }
    }

    /// The thread has the lock.
    fn take(&mut self, change: Change, pid: u64, tid: u64, address: u64, out: &mut Vec<Happened>) {
        self.waiting.remove(&(pid, tid));
        let lock = self.locks.entry((pid, address)).or_default();
        let first = match change {
            Change::Read => {
                lock.together += 1;
                true
            }
            Change::Down => {
                lock.left = lock.left.saturating_sub(1);
                true
            }
            _ => lock.take(tid),
        };
        if first {
            out.push((LockEvent::Acquired, tid, address));
        }
    }

    /// The lock was let go: a thread that waits unseen has it from now on.
    fn pass_on(&mut self, pid: u64, address: u64, out: &mut Vec<Happened>) {
        let lock = self.locks.entry((pid, address)).or_default();
        let Some(tid) = lock.unseen.pop_front() else { return };
        if let Some(unseen) = self.unseen.remove(&(pid, tid)) {
            self.take(unseen.of.change, pid, tid, address, out);
        }
    }
}

impl Lock {
    /// Whether the thread did not have it before.
    fn take(&mut self, tid: u64) -> bool {
        let times = match self.alone {
            Some((owner, times)) if owner == tid => times + 1,
            _ => 1,
        };
        self.alone = Some((tid, times));
        times == 1
    }

    /// Whether the thread has it no longer.
    fn let_go(&mut self, tid: u64) -> bool {
        match self.alone {
            Some((owner, times)) if owner == tid && times > 1 => {
                self.alone = Some((owner, times - 1));
                false
            }
            Some(_) => {
                self.alone = None;
                true
            }
            None => {
                self.together = self.together.saturating_sub(1);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds calls: thread, whether it ends, function, result.
    fn events(calls: &[(u64, char, &str, u64)]) -> Vec<(u64, LockEvent)> {
        let (mut locks, mut found) = (Locks::default(), Vec::new());
        for (tid, edge, name, result) in calls {
            let of = fettle_abi::locks::named(name).unwrap();
            let mut given = Given::default();
            given.arguments[of.lock] = 0x40;
            // `]` leaves by a jump.
            given.result = (*edge == ')').then_some(*result);
            match edge {
                '(' => locks.begin(of, 7, *tid, &given, &mut found),
                _ => locks.end(of, 7, *tid, &given, &mut found),
            }
        }
        found.into_iter().map(|(event, tid, _)| (tid, event)).collect()
    }

    #[test]
    fn who_asks_for_a_taken_mutex_waits() {
        use LockEvent::*;
        let (lock, unlock) = ("__pthread_mutex_lock", "pthread_mutex_unlock@@GLIBC_2.2.5");
        let calls = [
            (1, '(', lock, 0),
            (1, ')', lock, 0),
            (2, '(', lock, 0),
            (1, '(', unlock, 0),
            (2, ')', lock, 0),
            (1, ')', unlock, 0),
            (2, '(', unlock, 0),
        ];
        let expected = [(1, Acquired), (2, Wait), (1, Released), (2, Acquired), (2, Released)];
        assert_eq!(events(&calls), expected);
    }

    #[test]
    fn a_mutex_may_be_taken_again_by_its_owner_and_in_vain_by_others() {
        use LockEvent::*;
        let calls = [
            (1, '(', "pthread_mutex_lock", 0),
            (1, ')', "pthread_mutex_lock", 0),
            (1, '(', "pthread_mutex_lock", 0),
            (1, ')', "pthread_mutex_lock", 0),
            (2, '(', "pthread_mutex_trylock", 0),
            (2, ')', "pthread_mutex_trylock", 16),
            (1, '(', "pthread_mutex_unlock", 0),
            (1, '(', "pthread_mutex_unlock", 0),
        ];
        assert_eq!(events(&calls), [(1, Acquired), (1, Released)]);
        let calls = [
            (1, '(', "pthread_mutex_lock", 0),
            (1, ')', "pthread_mutex_lock", 0),
            (2, '(', "pthread_mutex_timedlock", 0),
            (2, ')', "pthread_mutex_timedlock", 110),
        ];
        assert_eq!(events(&calls), [(1, Acquired), (2, Wait), (2, GivenUp)]);
    }

    #[test]
    fn a_condition_lets_the_mutex_go_and_semaphores_are_counted() {
        use LockEvent::*;
        let calls = [(1, '(', "pthread_cond_wait", 0), (1, ')', "pthread_cond_wait", 0)];
        assert_eq!(events(&calls), [(1, Released), (1, Acquired)]);
        let calls = [
            (1, '(', "sem_wait", 0),
            (2, '(', "sem_post", 0),
            (1, ')', "sem_wait", 0),
            (2, '(', "sem_post", 0),
            (1, '(', "sem_wait", 0),
            (1, ')', "sem_wait", 0),
        ];
        let expected = [(1, Wait), (2, Released), (1, Acquired), (2, Released), (1, Acquired)];
        assert_eq!(events(&calls), expected);
    }

    #[test]
    fn who_waits_where_nobody_sees_has_the_lock_when_it_is_let_go() {
        use LockEvent::*;
        let calls = [
            (1, '(', "sem_wait", 0),
            (1, ']', "sem_wait", 0),
            (3, '(', "sem_wait", 0),
            (3, ']', "sem_wait", 0),
            (2, '(', "sem_post", 0),
            (3, '(', "sem_post", 0),
        ];
        let expected =
            [(1, Wait), (3, Wait), (2, Released), (1, Acquired), (3, Acquired), (3, Released)];
        assert_eq!(events(&calls), expected);
        let calls =
            [(1, '(', "sem_timedwait", 0), (1, ']', "sem_timedwait", 0), (1, '(', "sem_post", 0)];
        assert_eq!(events(&calls), [(1, Wait), (1, GivenUp), (1, Released)]);
    }
}
