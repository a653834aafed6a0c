//! Convoys: threads queue for a lock all the time though its sections are short, because each hand-over to a thread
//! that sleeps takes longer than the section.

use std::collections::HashMap;

use fettle_abi::locking::{Convoy as Counted, QUEUES, Stretch};
use serde::Serialize;

use crate::kind::Kind;
use crate::time::{Rate, time};

/// Hand-overs to threads that had waited, at least: fewer are chance.
const HAND_OVERS: u64 = 100;
/// Sections that take longer are what threads wait for, not the hand-over.
const SECTION_NS: u64 = 100_000;

/// The convoys of a lock class: all stretches of time in which, at each release, a thread waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Convoy {
    /// Stretches.
    pub stretches: u64,
    /// Time of all of them together.
    pub lasted_ns: u64,
    /// How often the lock was let go of.
    pub releases: u64,
    /// How often a thread that had waited was the next to have it.
    pub hand_overs: u64,
    /// Waiting threads at a release; half of the releases had no more. The largest number stands for all above it.
    pub queue_median: u32,
    /// Half of the sections take no longer.
    pub section_ns: u64,
    /// How long no thread has the lock between a release and the next section, on average.
    pub passing_ns: u64,
}

impl Convoy {
    /// Share of the releases after which a thread went on that had waited.
    pub fn share(&self) -> f64 {
        self.hand_overs as f64 / self.releases.max(1) as f64
    }

    /// In words, with what to do.
    pub fn advice(&self, name: &str) -> String {
        format!(
            "{name}: a convoy: the way to the next thread takes {}, a section {}: take it less often, for more at once, \
             or by fewer threads; a mutex with PTHREAD_PRIO_INHERIT waits for that thread, glibc's plain one lets \
             another have it first",
            time(self.passing_ns),
            time(self.section_ns)
        )
    }
}

/// Stretches by process and lock.
pub(crate) struct Stretches(HashMap<(u32, u64), (Stretch, u32)>);

impl Stretches {
    pub(crate) fn new(counted: &[Counted]) -> Stretches {
        let stretch = |convoy: &Counted| ((convoy.pid, convoy.lock), convoy.ended());
        Stretches(counted.iter().map(stretch).collect())
    }

    /// The convoys of some locks of one kind whose sections take so long as a rule, of a recording of this duration.
    pub(crate) fn of<'a>(
        &self,
        (kind, section_ns): (Kind, u64),
        locks: impl Iterator<Item = &'a (u32, u64)>,
        (rate, duration_ns): (Rate, u64),
    ) -> Option<Convoy> {
        // Who waits for work waits at a semaphore, too.
        if !matches!(kind, Kind::Mutex | Kind::Rwlock | Kind::Spin) {
            return None;
        }
        let (mut sum, mut stretches) = (Stretch::default(), 0);
        for (stretch, n) in locks.filter_map(|lock| self.0.get(lock)) {
            sum.add(stretch);
            stretches += u64::from(*n);
        }
        let lasted_ns = rate.ns(sum.ticks);
        let passing_ns = rate.ns(sum.passing) / sum.releases.max(1);
        let is_convoy = sum.handed >= HAND_OVERS
            && sum.handed * 2 >= sum.releases
            && section_ns <= passing_ns.min(SECTION_NS)
            && lasted_ns * 100 >= duration_ns;
        is_convoy.then(|| Convoy {
            stretches,
            lasted_ns,
            releases: sum.releases,
            hand_overs: sum.handed,
            queue_median: median(&sum.queues),
            section_ns,
            passing_ns,
        })
    }
}

fn median(queues: &[u32; QUEUES]) -> u32 {
    let all: u64 = queues.iter().map(|n| u64::from(*n)).sum();
    let mut seen = 0;
    let half = queues.iter().position(|n| {
        seen += u64::from(*n);
        seen * 2 >= all
    });
    half.map_or(0, |at| at as u32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: Kind, section_ns: u64, stretch: Stretch) -> Option<Convoy> {
        let counted =
            Counted { lock: 64, pid: 1, stretches: 2, all: stretch, ..Counted::default() };
        let locks = [(1, 64), (1, 128)];
        Stretches::new(&[counted]).of((kind, section_ns), locks.iter(), (Rate(2.0), 10_000_000))
    }

    fn stretch() -> Stretch {
        let mut queues = [0; QUEUES];
        (queues[0], queues[2], queues[15]) = (40, 61, 99);
        Stretch { releases: 200, handed: 150, ticks: 4_000_000, passing: 3_000_000, queues }
    }

    #[test]
    fn a_lock_that_is_passed_on_all_the_time_for_short_sections_is_one() {
        let convoy = found(Kind::Mutex, 10_000, stretch()).unwrap();
        let wanted = Convoy {
            stretches: 2,
            lasted_ns: 8_000_000,
            releases: 200,
            hand_overs: 150,
            queue_median: 3,
            section_ns: 10_000,
            passing_ns: 30_000,
        };
        assert_eq!(convoy, wanted);
        assert_eq!(convoy.share(), 0.75);
        assert!(convoy.advice("a").starts_with("a: a convoy: the way to the next"), "{convoy:?}");
    }

    #[test]
    fn others_are_none() {
        let section = 10_000;
        assert_eq!(found(Kind::Semaphore, section, stretch()), None, "workers without work");
        assert_eq!(
            found(Kind::Mutex, 31_000, stretch()),
            None,
            "sections take longer than the way"
        );
        let busy = Stretch { passing: 30_000_000, ..stretch() };
        assert_eq!(found(Kind::Mutex, 110_000, busy), None, "sections are long");
        let barged = Stretch { handed: 99, ..stretch() };
        assert_eq!(found(Kind::Mutex, section, barged), None, "threads that run take it first");
        let short = Stretch { ticks: 40_000, ..stretch() };
        assert_eq!(found(Kind::Mutex, section, short), None, "it is soon over");
    }
}
