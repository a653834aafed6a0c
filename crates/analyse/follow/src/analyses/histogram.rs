//! A distribution in little memory: buckets that grow with what they hold.

/// Buckets for each power of two.
const PER_OCTAVE_BITS: u32 = 4;

/// Counts of values in buckets an eighth of an octave wide or narrower: quantiles are right to
/// within a sixteenth of their value.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    buckets: Vec<u64>,
    pub(super) count: u64,
    pub(super) sum: u64,
    pub(super) max: u64,
}

impl Histogram {
    pub(super) fn add(&mut self, value: u64) {
        let bucket = bucket_of(value);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    pub(super) fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// A value that about this share does not exceed.
    pub(super) fn quantile(&self, share: f64) -> u64 {
        let rank = ((share * self.count as f64).ceil() as u64).max(1);
        let mut below = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            below += count;
            if below >= rank {
                return last_of(bucket).min(self.max);
            }
        }
        self.max
    }
}

/// Small values have buckets of their own.
fn bucket_of(value: u64) -> usize {
    let small = 1 << PER_OCTAVE_BITS;
    if value < small {
        return value as usize;
    }
    let octave = value.ilog2() - PER_OCTAVE_BITS;
    let within = (value >> octave) - small;
    ((u64::from(octave) + 1) * small + within) as usize
}

/// The largest value of a bucket.
fn last_of(bucket: usize) -> u64 {
    let small = 1u64 << PER_OCTAVE_BITS;
    let (octave, within) = (bucket as u64 / small, bucket as u64 % small);
    match octave.checked_sub(1) {
        None => within,
        // The topmost bucket ends where 64 bits do.
        Some(octave) => {
            let end = u128::from(small + within + 1) << octave;
            u64::try_from(end - 1).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_lies_in_its_bucket() {
        for value in (0..2000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX - 1, u64::MAX]) {
            let bucket = bucket_of(value);
            assert!(value <= last_of(bucket), "{value}");
            assert!(bucket == 0 || value > last_of(bucket - 1), "{value}");
            assert!(last_of(bucket) as f64 <= value as f64 * 1.0626 + 1.0, "{value}");
        }
    }

    #[test]
    fn quantiles_are_near() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|value| histogram.add(value * 100));
        for share in [0.01, 0.5, 0.99, 1.0] {
            let (found, exact) = (histogram.quantile(share) as f64, share * 1e6);
            assert!(found >= exact && found <= exact * 1.07, "{share}: {found}");
        }
        assert_eq!((histogram.mean(), Histogram::default().quantile(0.5)), (500_050, 0));
    }
}
