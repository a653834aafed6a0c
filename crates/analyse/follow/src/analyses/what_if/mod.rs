//! What would be gained if a lock's sections were shorter, or fewer threads waited for it.
//!
//! The recording says what each thread did between its uses of locks, how long it ran and slept, and which
//! thread it waited for. From that, [`model`] makes the same run once more, with one lock changed at a time. Coz
//! (Curtsinger and Berger, SOSP 2015) asks the running program the same by slowing all else down.

mod model;

use std::cmp::Reverse;
use std::collections::HashMap;

use super::analysis::{Analysis, Wanted};
use super::found::{Cell, Findable, Found, Unit};
use crate::session::Context;
use model::{After, Change, LockIndex, Recorded, Step, ThreadIndex, simulate};

const EVENTS: [Wanted; 7] = [
    ("lock_wait", &["pid", "tid", "lock"]),
    ("lock_acquired", &["pid", "tid", "lock"]),
    ("lock_released", &["pid", "tid", "lock"]),
    ("lock_given_up", &["pid", "tid", "lock"]),
    ("switch_out", &["tid", "runnable"]),
    ("switch_in", &["tid"]),
    ("thread_exit", &["pid", "tid"]),
];

/// A sleeper was woken by another thread if that did something so short before, or within a tenth of the
/// time that it had slept: on a busy machine it waits for a processor, too.
const WOKEN_WITHIN_NS: u64 = 200_000;
/// Longer sleeps that nothing ended may have been waits for the end of another thread.
const MAY_JOIN_NS: u64 = 1_000_000;
/// From fewer wakes nothing is known of how long they take.
const WAKES_LEAST: usize = 32;
/// Steps that are kept at most: 24 bytes each.
const STEPS_MAX: usize = 40_000_000;
/// Locks that are changed, one after the other: those that were waited for longest.
const LOCKS_MAX: usize = 8;
/// From here on the model does not explain what was recorded.
const ROUGH: f64 = 0.1;

/// What a thread is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Running,
    Asleep,
    Waiting(LockIndex),
}

#[derive(Debug, Default)]
struct Thread {
    since_ns: u64,
    state: State,
    waking: Waking,
    /// Whether its last release has woken a thread.
    woke: bool,
}

/// How a thread that sleeps for a lock is woken. The first release after it has fallen asleep does that; later
/// ones are of threads that took the lock before it ran, and found no sleeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waking {
    #[default]
    NotAsleep,
    Asleep,
    /// Woken then.
    Since(u64),
    /// It ran again so long after.
    Took(u64),
}

/// A sleep that no other thread has ended, as far as is known.
#[derive(Clone, Copy, Debug)]
struct LongSleep {
    thread: ThreadIndex,
    /// The place among the thread's steps.
    place: usize,
    since_ns: u64,
    until_ns: u64,
}

/// What a thread ran just behind a release.
#[derive(Clone, Copy, Debug)]
struct Behind {
    thread: ThreadIndex,
    /// The place among the thread's steps.
    place: usize,
    ns: u64,
    /// Whether the release has woken a thread, which the time for that is a part of.
    woke: bool,
}

/// One lock.
#[derive(Debug, Default)]
struct Lock {
    pid: u64,
    address: u64,
    waits: u64,
    waited_ns: u64,
    /// Threads that wait for it, the longest first.
    waiting: Vec<ThreadIndex>,
    /// How many have it, less those that had it at the beginning.
    inside: i64,
    inside_max: i64,
    released_ns: u64,
}

/// The analysis.
#[derive(Debug, Default)]
pub(super) struct WhatIf {
    recorded: Recorded,
    threads: Vec<Thread>,
    by_tid: HashMap<u64, ThreadIndex>,
    locks: Vec<Lock>,
    by_address: HashMap<(u64, u64), LockIndex>,
    /// The last two threads that did something, and when: one of them is another thread.
    last: [Option<(ThreadIndex, u64)>; 2],
    long_sleeps: Vec<LongSleep>,
    behind: Vec<Behind>,
    steps: usize,
    began_ns: Option<u64>,
    ended_ns: u64,
    /// Events behind the last step that is kept.
    beyond: u64,
}

impl WhatIf {
    /// The step of another thread that has woken this one, if one did something just now.
    fn woken_by(&self, thread: ThreadIndex, since_ns: u64, ns: u64) -> Option<(After, u64)> {
        let (other, at) = self.last.iter().flatten().find(|(other, _)| *other != thread)?;
        let within_ns = WOKEN_WITHIN_NS.max(ns.saturating_sub(since_ns.max(1)) / 10);
        let recent = *at >= since_ns && ns.saturating_sub(*at) <= within_ns;
        let steps = self.recorded.threads[*other as usize].len() as u32;
        (recent && steps > 0).then_some((After { thread: *other, steps }, ns - at))
    }

    fn thread(&mut self, tid: u64, ns: u64) -> ThreadIndex {
        if let Some(thread) = self.by_tid.get(&tid) {
            return *thread;
        }
        let thread = self.threads.len() as ThreadIndex;
        self.by_tid.insert(tid, thread);
        self.threads.push(Thread { since_ns: ns, ..Thread::default() });
        // It begins as long after what another thread did, or after the beginning.
        let began = *self.began_ns.get_or_insert(ns);
        let first = match self.woken_by(thread, ns.saturating_sub(WOKEN_WITHIN_NS), ns) {
            Some((after, ns)) => Step::Sleep(ns, Some(after)),
            None => Step::Sleep(ns - began, None),
        };
        self.recorded.threads.push(vec![first]);
        thread
    }

    fn lock(&mut self, pid: u64, address: u64) -> LockIndex {
        *self.by_address.entry((pid, address)).or_insert_with(|| {
            self.locks.push(Lock { pid, address, ..Lock::default() });
            (self.locks.len() - 1) as LockIndex
        })
    }

    fn push(&mut self, thread: ThreadIndex, step: Step) {
        let steps = &mut self.recorded.threads[thread as usize];
        match (steps.last_mut(), step) {
            (_, Step::Run(0)) => return,
            (Some(Step::Run(before)), Step::Run(ns)) => {
                *before += ns;
                return;
            }
            _ => steps.push(step),
        }
        self.steps += 1;
    }

    /// A thread has run until now, if it was running.
    fn ran(&mut self, thread: ThreadIndex, ns: u64) {
        let of = &mut self.threads[thread as usize];
        let passed = ns.saturating_sub(of.since_ns);
        of.since_ns = ns;
        if of.state == State::Running {
            let woke = of.woke;
            let steps = &self.recorded.threads[thread as usize];
            if passed > 0 && matches!(steps.last(), Some(Step::Release(_))) {
                self.behind.push(Behind { thread, place: steps.len(), ns: passed, woke });
            }
            self.push(thread, Step::Run(passed));
        }
    }

    fn state(&mut self, thread: ThreadIndex, ns: u64, state: State) {
        let of = &mut self.threads[thread as usize];
        (of.state, of.since_ns) = (state, ns);
    }

    /// Its sleep is over.
    fn slept(&mut self, thread: ThreadIndex, ns: u64) {
        let Thread { since_ns, state, .. } = self.threads[thread as usize];
        let step = match state {
            State::Asleep => match self.woken_by(thread, since_ns, ns) {
                Some((after, ns)) => Step::Sleep(ns, Some(after)),
                None => {
                    let place = self.recorded.threads[thread as usize].len();
                    if ns.saturating_sub(since_ns) > MAY_JOIN_NS {
                        self.long_sleeps.push(LongSleep { thread, place, since_ns, until_ns: ns });
                    }
                    Step::Sleep(ns.saturating_sub(since_ns), None)
                }
            },
            State::Running | State::Waiting(_) => return,
        };
        self.push(thread, step);
        self.state(thread, ns, State::Running);
    }

    fn acquired(&mut self, thread: ThreadIndex, lock: LockIndex, ns: u64) {
        let Thread { since_ns, state, waking, .. } = self.threads[thread as usize];
        let of = &mut self.locks[lock as usize];
        of.inside += 1;
        of.inside_max = of.inside_max.max(of.inside);
        let mut wake_ns = 0;
        if state == State::Waiting(lock) {
            of.waits += 1;
            of.waited_ns += ns.saturating_sub(since_ns);
            of.waiting.retain(|other| *other != thread);
            wake_ns = match waking {
                Waking::Took(wake_ns) => wake_ns,
                // When it slept is not known, or it did not.
                _ => ns.saturating_sub(of.released_ns.max(since_ns)),
            };
        }
        self.ran(thread, ns);
        self.push(thread, Step::Take(lock, wake_ns));
        self.state(thread, ns, State::Running);
    }

    /// The lock is let go. Returns whether that has woken a thread.
    fn released(&mut self, lock: LockIndex, ns: u64) -> bool {
        let of = &mut self.locks[lock as usize];
        of.inside -= 1;
        of.released_ns = ns;
        let asleep = |other: &&ThreadIndex| self.threads[**other as usize].waking == Waking::Asleep;
        let Some(woken) = of.waiting.iter().find(asleep).copied() else { return false };
        self.threads[woken as usize].waking = Waking::Since(ns);
        true
    }
}

impl Analysis for WhatIf {
    fn events(&self) -> &'static [Wanted] {
        &EVENTS
    }

    fn event(&mut self, which: usize, ns: u64, values: &[u64]) {
        if self.steps >= STEPS_MAX {
            self.beyond += 1;
            return;
        }
        let tid = if matches!(which, 4 | 5) { values[0] } else { values[1] };
        // Threads are of interest from their first lock on.
        if which >= 4 && !self.by_tid.contains_key(&tid) {
            return;
        }
        let thread = self.thread(tid, ns);
        let waits = matches!(self.threads[thread as usize].state, State::Waiting(_));
        if which < 4 {
            self.slept(thread, ns);
        }
        match which {
            0 => {
                let lock = self.lock(values[0], values[2]);
                self.ran(thread, ns);
                self.state(thread, ns, State::Waiting(lock));
                self.threads[thread as usize].waking = Waking::NotAsleep;
                self.locks[lock as usize].waiting.push(thread);
            }
            1 => {
                let lock = self.lock(values[0], values[2]);
                self.acquired(thread, lock, ns);
            }
            2 => {
                let lock = self.lock(values[0], values[2]);
                self.ran(thread, ns);
                self.threads[thread as usize].woke = self.released(lock, ns);
                self.push(thread, Step::Release(lock));
            }
            // A wait that ended by itself took as long as it did.
            3 => {
                let lock = self.lock(values[0], values[2]);
                self.locks[lock as usize].waiting.retain(|other| *other != thread);
                self.state_to_sleep(thread);
                self.slept(thread, ns);
            }
            // Sleeping is a part of the wait for a lock. Time without a processor is a part of running: it grows
            // with what there is to run.
            4 if !waits && values[1] == 0 => {
                self.ran(thread, ns);
                self.state(thread, ns, State::Asleep);
                return;
            }
            4 if waits && values[1] == 0 => {
                self.threads[thread as usize].waking = Waking::Asleep;
                return;
            }
            5 => {
                let of = &mut self.threads[thread as usize];
                if let Waking::Since(since_ns) = of.waking {
                    of.waking = Waking::Took(ns.saturating_sub(since_ns));
                }
                self.slept(thread, ns);
                return;
            }
            6 => self.ran(thread, ns),
            _ => return,
        }
        self.ended_ns = self.ended_ns.max(ns);
        if self.last[0].is_some_and(|(other, _)| other != thread) {
            self.last[1] = self.last[0];
        }
        self.last[0] = Some((thread, ns));
    }

    fn finish(mut self: Box<Self>, context: &Context<'_>) -> Found {
        // As many are let in as the recording needs: one for a mutex, the first value of a semaphore.
        self.recorded.room = self
            .locks
            .iter()
            .map(|lock| u32::try_from(lock.inside_max.max(0)).unwrap_or(u32::MAX))
            .collect();
        self.find_joins();
        self.take_out_waking();
        self.found(context)
    }
}

impl WhatIf {
    /// A thread that slept until after the end of another one has waited for that (`pthread_join`).
    fn find_joins(&mut self) {
        for sleep in &self.long_sleeps {
            let ended = self.threads.iter().enumerate().filter(|(other, thread)| {
                let within = sleep.since_ns < thread.since_ns && thread.since_ns <= sleep.until_ns;
                *other != sleep.thread as usize && within
            });
            let Some((other, thread)) = ended.max_by_key(|(_, thread)| thread.since_ns) else {
                continue;
            };
            let steps = self.recorded.threads[other].len() as u32;
            let after = After { thread: other as ThreadIndex, steps };
            let step = Step::Sleep(sleep.until_ns - thread.since_ns, Some(after));
            self.recorded.threads[sleep.thread as usize][sleep.place] = step;
        }
    }

    /// Takes the time for waking a thread out of what threads ran behind releases: by how much longer they ran there
    /// where they woke one, in the middle. Where that is not known, it stays.
    fn take_out_waking(&mut self) {
        let median = |woke: bool| {
            let mut of: Vec<u64> =
                self.behind.iter().filter(|b| b.woke == woke).map(|b| b.ns).collect();
            of.sort_unstable();
            (of.len() >= WAKES_LEAST).then(|| of[of.len() / 2])
        };
        let Some((with, without)) = median(true).zip(median(false)) else { return };
        let waking_ns = with.saturating_sub(without);
        for behind in self.behind.iter().filter(|behind| behind.woke) {
            let step = &mut self.recorded.threads[behind.thread as usize][behind.place];
            if let Step::Run(ns) = step {
                *ns = ns.saturating_sub(waking_ns);
            }
        }
        self.recorded.waking_ns = waking_ns;
    }

    fn state_to_sleep(&mut self, thread: ThreadIndex) {
        let of = &mut self.threads[thread as usize];
        if matches!(of.state, State::Waiting(_)) {
            of.state = State::Asleep;
        }
    }

    fn found(&self, context: &Context<'_>) -> Found {
        let columns = [
            ("waits", Unit::Count),
            ("waited", Unit::Ns),
            ("half as long", Unit::Share),
            ("no time", Unit::Share),
            ("divided in two", Unit::Share),
            ("no waits", Unit::Share),
            ("process and lock", Unit::Text),
        ];
        let mut table =
            Findable::new("Share of the run's time that would be saved, by lock", &columns);
        let mut notes = vec![
            "sections that take half as long, no time; a lock that is divided in two; one that nothing waits \
             for, as with readers only: predicted from this recording's interleaving, a lock at a time"
                .to_owned(),
        ];
        let recorded_ns = self.ended_ns.saturating_sub(self.began_ns.unwrap_or(0));
        let Some(now) = simulate(&self.recorded, Change::Nothing).filter(|now| *now > 0) else {
            if !self.locks.is_empty() {
                notes.push(
                    "the model cannot explain this recording: nothing is predicted".to_owned(),
                );
            }
            return Found { tables: vec![table], notes, dot: None };
        };
        let mut locks: Vec<usize> =
            (0..self.locks.len()).filter(|lock| self.locks[*lock].waits > 0).collect();
        locks.sort_by_key(|lock| Reverse((self.locks[*lock].waited_ns, self.locks[*lock].waits)));
        if locks.len() > LOCKS_MAX {
            notes.push(match locks.len() - LOCKS_MAX {
                1 => "one more lock was waited for less".to_owned(),
                more => format!("{more} more locks were waited for less"),
            });
            locks.truncate(LOCKS_MAX);
        }
        for place in locks {
            let (lock, of) = (place as LockIndex, &self.locks[place]);
            let saved = |change| match simulate(&self.recorded, change) {
                Some(then) => Cell::Share((1.0 - then as f64 / now as f64).max(0.0)),
                None => Cell::None,
            };
            table.rows.push(vec![
                Cell::Number(of.waits),
                Cell::Number(of.waited_ns),
                saved(Change::Shorter(lock, 0.5)),
                saved(Change::Shorter(lock, 0.0)),
                saved(Change::Wider(lock, 2)),
                saved(Change::Free(lock)),
                Cell::Text(format!("{} {:#x}", context.process(of.pid), of.address)),
            ]);
        }
        let off = now as f64 / recorded_ns.max(1) as f64 - 1.0;
        if off.abs() > ROUGH {
            notes.push(format!(
                "unchanged, the model takes {:+.0} % of the recorded time: its predictions are rough",
                100.0 * off
            ));
        }
        if self.beyond > 0 {
            notes.push(format!("{} later events are not looked at", self.beyond));
        }
        notes.push(
            "what a thread writes down at each use of a lock is part of its sections here, and not of the \
             program's"
                .to_owned(),
        );
        Found { tables: vec![table], notes, dot: None }
    }
}
