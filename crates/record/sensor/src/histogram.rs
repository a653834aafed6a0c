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

    /// Sum of the values; `None` if they may add up to more than 64 bits hold, which the sum in the sensor is
    /// cut to.
    ///
    /// A value is counted before it is summed, in two steps: a reader in between, or a producer
    /// that was killed in between, leaves the sum one value short.
    pub fn sum(&self) -> Option<u64> {
        (self.sum_bounds().1 <= u128::from(u64::MAX)).then_some(self.sum)
    }

    /// Between which numbers the sum of the values is, by the buckets that they are in.
    pub fn sum_bounds(&self) -> (u128, u128) {
        let times = |value: u64, bucket: &Bucket| u128::from(value) * u128::from(bucket.count);
        self.buckets().fold((0u128, 0u128), |(low, high), bucket| {
            let (least, most) = (times(bucket.low, &bucket), times(bucket.high, &bucket));
            (low.saturating_add(least), high.saturating_add(most))
        })
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
    fn a_sum_that_may_be_cut_off_is_none() {
        let values = [5, 1 << 62];
        for (times, sum) in
            [(1, Some(5 + (1 << 62))), (3, Some(5 + (3 << 62))), (4, None), (900, None)]
        {
            let mut counts = vec![0; BUCKETS];
            counts[bucket(values[0])] = 1;
            counts[bucket(values[1])] = times;
            let real = 5 + (u128::from(times) << 62);
            let histogram = Histogram::new(real as u64, counts);
            assert_eq!(histogram.sum(), sum, "{times}");
            let (low, high) = histogram.sum_bounds();
            assert!(low <= real && real <= high, "{low} {real} {high}");
        }
    }

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
