//! A model of threads that share locks: what each did, in steps, and how long all of it takes if a lock's
//! sections were other than they were.
//!
//! It is a discrete-event simulation. Locks are as glibc has them: a thread that lets a lock go wakes one that
//! waits, which tries again when it has woken up; meanwhile a thread that runs may take the lock (*barging*). The time
//! to wake up is the one recorded. A first-in, first-out queue would make convoys that real programs do not have.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The place of a thread among those of a [`Recorded`].
pub(super) type ThreadIndex = u32;
/// The place of a lock among those of a [`Recorded`].
pub(super) type LockIndex = u32;

/// A thread's step that another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct After {
    /// The thread that made the step.
    pub thread: ThreadIndex,
    /// How many steps it had made then.
    pub steps: u32,
}

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It ran so many nanoseconds.
    Run(u64),
    /// It slept so many nanoseconds, which end as long after a step of another thread, if that is what woke
    /// it; otherwise by themselves.
    Sleep(u64, Option<After>),
    /// It took a lock. Where it had to wait for it, waking up took so many nanoseconds.
    Take(LockIndex, u64),
    /// It let a lock go.
    Release(LockIndex),
}

/// What all threads did.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    /// Steps of each thread.
    pub threads: Vec<Vec<Step>>,
    /// How many threads may have each lock at first.
    pub room: Vec<u32>,
    /// How long a thread that lets a lock go takes to wake one that waits; it is in no step.
    pub waking_ns: u64,
}

/// What would be other than it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// Nothing.
    Nothing,
    /// What a thread runs while it has this lock takes a part of the time.
    Shorter(LockIndex, f64),
    /// The lock lets so many threads in where it let one in.
    Wider(LockIndex, u32),
    /// No thread waits for the lock.
    Free(LockIndex),
}

/// A thread in the simulation.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// The next step.
    next: usize,
    /// How often it has taken the lock that is changed.
    inside: u32,
}

/// Simulates the threads. Returns nanoseconds from the beginning to the last thread's end; nothing if
/// threads wait for each other and none goes on, which the model then cannot explain.
pub(super) fn simulate(recorded: &Recorded, change: Change) -> Option<u64> {
    Simulation::new(recorded, change).run()
}

struct Simulation<'a> {
    recorded: &'a Recorded,
    change: Change,
    threads: Vec<Thread>,
    /// When each thread made its steps, as far as others wait for them.
    made: Vec<Vec<(u32, u64)>>,
    /// Threads that go on, with the time.
    ready: BinaryHeap<Reverse<(u64, ThreadIndex)>>,
    /// How many more threads each lock lets in.
    room: Vec<u32>,
    /// Threads that wait for each lock, with their times to wake up.
    waiting: Vec<VecDeque<(ThreadIndex, u64)>>,
    /// Threads that wait for a step of each thread: how many steps, and how long after.
    expecting: Vec<Vec<(u32, ThreadIndex, u64)>>,
    end: u64,
}

impl<'a> Simulation<'a> {
    fn new(recorded: &'a Recorded, change: Change) -> Simulation<'a> {
        let threads = recorded.threads.len();
        let mut room = recorded.room.clone();
        if let Change::Wider(lock, factor) = change
            && let Some(room) = room.get_mut(lock as usize)
        {
            *room = room.saturating_mul(factor);
        }
        // Only steps that something waits for are kept.
        let mut made = vec![Vec::new(); threads];
        for step in recorded.threads.iter().flatten() {
            if let Step::Sleep(_, Some(after)) = step
                && let Some(of) = made.get_mut(after.thread as usize)
            {
                of.push((after.steps, u64::MAX));
            }
        }
        for of in &mut made {
            of.sort_unstable();
            of.dedup();
        }
        Simulation {
            recorded,
            change,
            threads: vec![Thread::default(); threads],
            made,
            ready: (0..threads as u32).map(|thread| Reverse((0, thread))).collect(),
            waiting: vec![VecDeque::new(); room.len()],
            room,
            expecting: vec![Vec::new(); threads],
            end: 0,
        }
    }

    fn run(mut self) -> Option<u64> {
        while let Some(Reverse((now, thread))) = self.ready.pop() {
            self.end = self.end.max(now);
            self.step(thread, now);
        }
        let all = self.threads.iter().zip(&self.recorded.threads);
        all.into_iter().all(|(thread, steps)| thread.next == steps.len()).then_some(self.end)
    }

    /// Makes a thread's next step.
    fn step(&mut self, thread: ThreadIndex, now: u64) {
        let index = thread as usize;
        let Some(&step) = self.recorded.threads[index].get(self.threads[index].next) else {
            return;
        };
        match step {
            Step::Run(ns) => {
                let factor = match self.change {
                    Change::Shorter(_, factor) if self.threads[index].inside > 0 => factor,
                    _ => 1.0,
                };
                self.done(thread, now + (ns as f64 * factor) as u64);
            }
            Step::Sleep(ns, None) => self.done(thread, now + ns),
            Step::Sleep(ns, Some(after)) => {
                let made = &self.made[after.thread as usize];
                let place = made.partition_point(|(steps, _)| *steps < after.steps);
                match made.get(place) {
                    Some((_, at)) if *at != u64::MAX => self.done(thread, now.max(at + ns)),
                    _ => self.expecting[after.thread as usize].push((after.steps, thread, ns)),
                }
            }
            Step::Take(lock, wake_ns) => self.take(thread, lock, wake_ns, now),
            Step::Release(lock) => {
                if self.is_changed(lock) {
                    let inside = &mut self.threads[index].inside;
                    *inside = inside.saturating_sub(1);
                }
                self.room[lock as usize] = self.room[lock as usize].saturating_add(1);
                let mut then = now;
                if let Some((woken, wake_ns)) = self.waiting[lock as usize].pop_front() {
                    self.ready.push(Reverse((now + wake_ns, woken)));
                    then += self.recorded.waking_ns;
                }
                self.done(thread, then);
            }
        }
    }

    fn take(&mut self, thread: ThreadIndex, lock: LockIndex, wake_ns: u64, now: u64) {
        let room = &mut self.room[lock as usize];
        let free = matches!(self.change, Change::Free(changed) if changed == lock);
        if *room == 0 && !free {
            // One that was woken in vain has waited longest.
            self.waiting[lock as usize].push_back((thread, wake_ns));
            return;
        }
        *room = room.saturating_sub(1);
        if self.is_changed(lock) {
            self.threads[thread as usize].inside += 1;
        }
        self.done(thread, now);
    }

    fn is_changed(&self, lock: LockIndex) -> bool {
        matches!(self.change, Change::Shorter(changed, _) if changed == lock)
    }

    /// The thread's step is made: it goes on, and so does what has waited for the step.
    fn done(&mut self, thread: ThreadIndex, at: u64) {
        let index = thread as usize;
        self.threads[index].next += 1;
        let steps = self.threads[index].next as u32;
        if let Ok(place) = self.made[index].binary_search_by_key(&steps, |(steps, _)| *steps) {
            self.made[index][place].1 = at;
            self.expecting[index].retain(|&(wanted, other, ns)| {
                if wanted == steps {
                    self.ready.push(Reverse((at + ns, other)));
                    self.threads[other as usize].next += 1;
                }
                wanted != steps
            });
        }
        self.ready.push(Reverse((at, thread)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads that each take one lock `n` times, for `inside` of every `inside + outside` nanoseconds.
    fn two(n: usize, inside: u64, outside: u64) -> Recorded {
        let round = [Step::Take(0, 0), Step::Run(inside), Step::Release(0), Step::Run(outside)];
        let steps: Vec<Step> = round.iter().copied().cycle().take(4 * n).collect();
        Recorded { threads: vec![steps.clone(), steps], room: vec![1], waking_ns: 0 }
    }

    #[test]
    fn what_is_never_contended_takes_as_long_as_its_longest_thread() {
        let recorded = Recorded {
            threads: vec![
                vec![Step::Run(10), Step::Take(0, 0), Step::Release(0)],
                vec![Step::Run(70)],
            ],
            room: vec![1],
            waking_ns: 0,
        };
        assert_eq!(simulate(&recorded, Change::Nothing), Some(70));
    }

    #[test]
    fn a_lock_that_is_always_taken_bounds_the_time() {
        // All of it is inside: one thread after the other.
        let recorded = two(100, 10, 0);
        assert_eq!(simulate(&recorded, Change::Nothing), Some(2000));
        assert_eq!(simulate(&recorded, Change::Shorter(0, 0.5)), Some(1000));
        assert_eq!(simulate(&recorded, Change::Wider(0, 2)), Some(1000));
        assert_eq!(simulate(&recorded, Change::Free(0)), Some(1000));
        // Half of it is: the threads alternate, and neither waits for long.
        let now = simulate(&two(100, 10, 10), Change::Nothing).unwrap();
        assert!((2000..2100).contains(&now), "{now}");
        // Shorter sections shorten what each thread does, too.
        assert_eq!(simulate(&two(100, 10, 10), Change::Shorter(0, 0.0)), Some(1000));
    }

    #[test]
    fn waking_up_takes_time_while_others_barge_in() {
        let mut recorded = two(100, 10, 1);
        for step in recorded.threads.iter_mut().flatten() {
            if let Step::Take(_, wake_ns) = step {
                *wake_ns = 1000;
            }
        }
        // One thread does all of its work while the other one wakes up again and again; a queue would
        // take 200 times a microsecond.
        let now = simulate(&recorded, Change::Nothing).unwrap();
        assert!((2000..6000).contains(&now), "{now}");
    }

    #[test]
    fn a_release_that_wakes_no_thread_saves_the_time_for_it() {
        let (take, release) = (Step::Take(0, 0), Step::Release(0));
        let threads = vec![
            vec![take, Step::Run(10), release, Step::Run(10)],
            vec![Step::Run(1), take, release],
        ];
        let recorded = Recorded { threads, room: vec![1], waking_ns: 5 };
        assert_eq!(simulate(&recorded, Change::Nothing), Some(25));
        assert_eq!(simulate(&recorded, Change::Free(0)), Some(20));
    }

    #[test]
    fn sleepers_go_on_after_what_woke_them() {
        let after = After { thread: 0, steps: 1 };
        let threads = vec![
            vec![Step::Run(100), Step::Run(5)],
            vec![Step::Sleep(3, Some(after)), Step::Run(7)],
        ];
        let recorded = Recorded { threads, room: vec![], waking_ns: 0 };
        assert_eq!(simulate(&recorded, Change::Nothing), Some(110));
    }

    #[test]
    fn threads_that_wait_for_each_other_have_no_end() {
        let threads = vec![vec![Step::Take(0, 0), Step::Take(0, 0)]];
        assert_eq!(
            simulate(&Recorded { threads, room: vec![1], waking_ns: 0 }, Change::Nothing),
            None
        );
    }
}
