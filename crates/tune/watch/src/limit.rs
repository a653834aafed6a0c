//! How long processes of a kind legitimately compute without a mark of progress.

use std::time::Duration;

use fettle_stats::Distribution;

use crate::look::LearnedLimit;

/// So many marks make a 99.9th percentile that means something.
const MARKS_MIN: u64 = 1000;
/// The limit is so many times that percentile.
const FACTOR: u64 = 3;
/// What was seen but rarely, as the collection of garbage, has to be passed so many times over: the longest computation to
/// come may be longer than any before it.
const MARGIN: u64 = 2;
/// Until enough was seen, the limit is so many times what the rule says.
const UNTAUGHT: u32 = 10;
/// The same of a process that has not come to its work yet: interpreters import for tens of milliseconds.
const STARTING: u32 = 20;

/// CPU time between two marks of progress, and the limit by it.
#[derive(Clone, Debug, Default)]
pub struct Limit {
    stretches: Distribution,
    marks: u64,
}

/// What was learned earlier counts as so many marks at most, so that what is seen now soon counts, too.
const KEPT_MAX: u64 = 100_000;

impl Limit {
    /// What an earlier watcher has learned.
    pub fn recalled(learned: &LearnedLimit) -> Limit {
        let mut stretches = Distribution::default();
        let all = learned.stretches.iter().map(|(_, count)| *count).fold(0, u64::saturating_add);
        for (ns, count) in &learned.stretches {
            // Rounded up: rare long ones are what counts.
            let scaled = match all <= KEPT_MAX {
                true => u128::from(*count),
                false => (u128::from(*count) * u128::from(KEPT_MAX)).div_ceil(u128::from(all)),
            };
            stretches.add(*ns, u64::try_from(scaled).unwrap_or(KEPT_MAX));
        }
        let marks = learned.marks.min(KEPT_MAX).min(stretches.count());
        Limit { stretches, marks }
    }

    /// What was learned, for later watchers.
    pub fn learned(&self, program: &str) -> LearnedLimit {
        let middle = |(low, high, count)| (low + (high - low) / 2, count);
        LearnedLimit {
            program: program.to_owned(),
            marks: self.marks,
            stretches: self.stretches.buckets().map(middle).collect(),
        }
    }

    /// A thread used `cpu_ns` and passed so many marks meanwhile. How long the longest stretch between two
    /// of them was is not known: it is taken to be all of it, or eight times the mean where there were
    /// more marks than that, as when a look comes late.
    pub fn passed(&mut self, cpu_ns: u64, marks: u64) {
        let Some(others) = marks.checked_sub(1) else { return };
        let longest = u128::from(cpu_ns) * 8 / u128::from(marks.max(8));
        self.stretches.add(u64::try_from(longest).unwrap_or(cpu_ns), 1);
        self.stretches.add(0, others);
        self.marks = self.marks.saturating_add(marks);
    }

    /// Marks that were seen.
    pub fn marks(&self) -> u64 {
        self.marks
    }

    /// Whether enough was seen to know what is usual.
    pub fn is_learned(&self) -> bool {
        self.marks >= MARKS_MIN
    }

    /// From which CPU time without a mark on a thread is stuck, where a rule says `least`.
    pub fn limit(&self, least: Duration) -> Duration {
        if !self.is_learned() {
            return least.saturating_mul(UNTAUGHT);
        }
        let usual = self.stretches.quantile(0.999).saturating_mul(FACTOR);
        let rare = self.stretches.max().saturating_mul(MARGIN);
        least.max(Duration::from_nanos(usual.max(rare)))
    }

    /// The same for a process that has not come to its work yet.
    pub fn limit_of_start(&self, least: Duration) -> Duration {
        self.limit(least).max(least.saturating_mul(STARTING))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_usual_raises_the_limit() {
        let least = Duration::from_millis(3);
        let mut limit = Limit::default();
        assert_eq!(limit.limit(least), Duration::from_millis(30));
        limit.passed(10_000, 10_000);
        assert!(limit.is_learned());
        assert_eq!(limit.limit(least), least);
        // One long computation among very many.
        let mut other = limit.clone();
        other.passed(20_000_000, 1);
        assert_eq!(other.limit(least), Duration::from_millis(40));
        // One in five hundred computes for 20 ms.
        for _ in 0..40 {
            limit.passed(20_000_000, 1);
        }
        let learned = limit.limit(least);
        assert!(learned >= Duration::from_millis(60) && learned <= Duration::from_millis(68));
        // A later watcher knows it, and what it sees itself counts soon.
        let mut later = Limit::recalled(&limit.learned("app"));
        assert!(later.is_learned() && later.limit(least).abs_diff(learned) < learned / 20);
        later.passed(1000, 100_000);
        assert!(later.limit(least) < learned);
        let huge = vec![(5, u64::MAX), (20_000_000, u64::MAX >> 8)];
        let huge = LearnedLimit { program: "app".into(), marks: u64::MAX, stretches: huge };
        let huge = Limit::recalled(&huge);
        assert!(huge.marks() == 100_000 && huge.limit(least) > Duration::from_millis(50));
        // What passes no mark teaches nothing.
        let before = limit.marks();
        limit.passed(1 << 40, 0);
        assert_eq!(limit.marks(), before);
    }
}
