//! How long processes of a kind legitimately compute without a mark of progress.

use std::time::Duration;

/// So many marks make a 99.9th percentile that means something.
const MARKS_MIN: u64 = 1000;
/// The limit is so many times that percentile.
const FACTOR: u64 = 3;
/// Until enough was seen, the limit is so many times what the rule says.
const UNTAUGHT: u32 = 10;

/// CPU time between two marks of progress, in powers of two of nanoseconds, and the limit by it.
#[derive(Clone, Debug)]
pub struct Limit {
    counts: [u64; 64],
    marks: u64,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { counts: [0; 64], marks: 0 }
    }
}

impl Limit {
    /// A thread used `cpu_ns` and passed so many marks meanwhile. How long the longest stretch between two
    /// of them was is not known: it is taken to be all of it, or eight times the mean where there were
    /// more marks than that, as when a look comes late.
    pub fn passed(&mut self, cpu_ns: u64, marks: u64) {
        let Some(others) = marks.checked_sub(1) else { return };
        let longest = u128::from(cpu_ns) * 8 / u128::from(marks.max(8));
        self.counts[bucket(u64::try_from(longest).unwrap_or(cpu_ns))] += 1;
        self.counts[0] += others;
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
            return least * UNTAUGHT;
        }
        least.max(Duration::from_nanos(self.quantile_999().saturating_mul(FACTOR)))
    }

    /// The 99.9th percentile, at most a factor of two too large.
    fn quantile_999(&self) -> u64 {
        let all: u64 = self.counts.iter().sum();
        let above = all / 1000;
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate().rev() {
            seen += count;
            if seen > above {
                return 1u64.checked_shl(at as u32 + 1).unwrap_or(u64::MAX);
            }
        }
        0
    }
}

fn bucket(ns: u64) -> usize {
    ns.checked_ilog2().unwrap_or(0) as usize
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
        // One in five hundred computes for 20 ms.
        for _ in 0..40 {
            limit.passed(20_000_000, 1);
        }
        let learned = limit.limit(least);
        assert!(learned >= Duration::from_millis(60) && learned <= Duration::from_millis(121));
        // What passes no mark teaches nothing.
        let before = limit.marks();
        limit.passed(1 << 40, 0);
        assert_eq!(limit.marks(), before);
    }
}
