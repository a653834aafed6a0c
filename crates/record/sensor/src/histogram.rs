//! A histogram, read.

use fettle_abi::sensor::{BUCKETS, bucket_floor};

/// How often each magnitude was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    sum: u64,
    counts: Vec<u64>,
}

/// A bucket that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Least value that it counts.
    pub low: u64,
    /// Greatest value that it counts.
    pub high: u64,
    /// Values recorded.
    pub count: u64,
}

impl Histogram {
    pub(crate) fn new(sum: u64, counts: Vec<u64>) -> Histogram {
        Histogram { sum, counts }
    }

    /// Values recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |a, &b| a.wrapping_add(b))
    }

    /// Sum of the values, modulo 2^64.
    ///
    /// A value is counted before it is summed, in two steps: a reader in between, or a producer
    /// that was killed in between, leaves the sum one value short.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The buckets that are not empty, in order.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        let used = self.counts.iter().enumerate().filter(|(_, count)| **count != 0);
        used.map(|(i, &count)| Bucket {
            low: bucket_floor(i),
            high: if i + 1 < BUCKETS { bucket_floor(i + 1) - 1 } else { u64::MAX },
            count,
        })
    }

    /// The bucket that holds the value which this share (0 to 1) of all values does not exceed.
    pub fn quantile(&self, share: f64) -> Option<Bucket> {
        let rank = (share.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0);
        let mut below = 0.0;
        self.buckets().find(|bucket| {
            below += bucket.count as f64;
            below >= rank
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fettle_abi::sensor::bucket;

    #[test]
    fn quantiles_lie_in_their_buckets() {
        let mut counts = vec![0; BUCKETS];
        (1..=1000u64).for_each(|v| counts[bucket(v)] += 1);
        let histogram = Histogram::new(500_500, counts);
        assert_eq!(histogram.count(), 1000);
        for (share, value) in [(0.0, 1), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            let found = histogram.quantile(share).unwrap();
            assert!(found.low <= value && value <= found.high, "{share}: {found:?}");
        }
        assert_eq!(Histogram::new(0, vec![0; BUCKETS]).quantile(0.5), None);
    }
}
