//! How values are distributed (durations, sizes, lengths of queues), in little memory.
//!
//! A value goes into one of 1,920 buckets: exact below 64, and 32 to each doubling above, so that a
//! bucket is at most 3.2 % wide and a quantile read from its middle is off by at most 1.6 %. Only
//! the buckets between the smallest and the largest value are kept.

/// Doublings are divided into two to the power of this.
const SPLIT_BITS: u32 = 5;
/// Below this, every value has its own bucket.
const EXACT: u64 = 2 << SPLIT_BITS;

/// Many values.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// Bucket number of `counts[0]`.
    first: usize,
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

fn bucket_of(ns: u64) -> usize {
    if ns < EXACT {
        return ns as usize;
    }
    let doubling = ns.ilog2() - SPLIT_BITS - 1;
    let within = (ns >> (doubling + 1)) as usize & ((1 << SPLIT_BITS) - 1);
    EXACT as usize + ((doubling as usize) << SPLIT_BITS) + within
}

/// First and last value of a bucket.
fn bounds_of(bucket: usize) -> (u64, u64) {
    if bucket < EXACT as usize {
        return (bucket as u64, bucket as u64);
    }
    let past = bucket - EXACT as usize;
    let (doubling, within) = (past >> SPLIT_BITS, past & ((1 << SPLIT_BITS) - 1));
    let low = ((1 << SPLIT_BITS) + within as u64) << (doubling + 1);
    (low, low + ((1 << (doubling + 1)) - 1))
}

impl Distribution {
    /// Adds a value, `weight` times.
    #[inline]
    pub fn add(&mut self, ns: u64, weight: u64) {
        if weight == 0 {
            return;
        }
        if self.count == 0 {
            (self.min, self.max) = (ns, ns);
        } else {
            self.min = self.min.min(ns);
            self.max = self.max.max(ns);
        }
        self.count = self.count.saturating_add(weight);
        self.sum = self.sum.saturating_add(ns.saturating_mul(weight));
        let bucket = bucket_of(ns);
        let slot = bucket.wrapping_sub(self.first);
        match self.counts.get_mut(slot) {
            Some(count) => *count = count.saturating_add(weight),
            None => self.widen(bucket, weight),
        }
    }

    #[cold]
    fn widen(&mut self, bucket: usize, weight: u64) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let missing = self.first - bucket;
            self.counts.splice(0..0, std::iter::repeat_n(0, missing));
            self.first = bucket;
        }
        let slot = bucket - self.first;
        if slot >= self.counts.len() {
            self.counts.resize(slot + 1, 0);
        }
        self.counts[slot] = self.counts[slot].saturating_add(weight);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Mean of all values; 0 if there is none.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// Smallest value; 0 if there is none.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// Largest value; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value that a share `q` of all, 0 to 1, does not exceed.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        if rank >= self.count {
            return self.max;
        }
        let mut seen = 0u64;
        for (low, high, count) in self.buckets() {
            seen = seen.saturating_add(count);
            if seen >= rank {
                return (low + (high - low) / 2).clamp(self.min, self.max);
            }
        }
        self.max
    }

    /// First value, last value and number of values of each bucket in use, in order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let used = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(slot, count)| {
            let (low, high) = bounds_of(self.first + slot);
            (low, high, *count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let mut next = 0;
        for bucket in 0..1920 {
            let (low, high) = bounds_of(bucket);
            assert_eq!(low, next);
            assert_eq!((bucket_of(low), bucket_of(high)), (bucket, bucket));
            assert!((high - low) as f64 <= low as f64 / 32.0);
            next = high.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket ends with the last number");
    }

    #[test]
    fn quantiles_of_a_ramp() {
        let mut ramp = Distribution::default();
        // Downwards, so that the buckets grow to the left.
        (1..=10_000).rev().for_each(|ns| ramp.add(ns, 1));
        for (q, wanted) in [(0.5, 5000.0), (0.9, 9000.0), (0.99, 9900.0), (0.001, 10.0)] {
            let found = ramp.quantile(q) as f64;
            assert!((found / wanted - 1.0).abs() < 0.017, "{q}: {found} instead of {wanted}");
        }
        assert_eq!((ramp.quantile(1.0), ramp.min(), ramp.max()), (10_000, 1, 10_000));
        assert_eq!(Distribution::default().quantile(0.5), 0);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut distribution = Distribution::default();
        distribution.add(u64::MAX, u64::MAX);
        distribution.add(0, u64::MAX);
        assert_eq!(distribution.sum(), u64::MAX);
        assert_eq!((distribution.quantile(0.5), distribution.quantile(1.0)), (0, u64::MAX));
    }
}
