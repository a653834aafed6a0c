//! Quantiles of what was seen whole: no sketch, for requests are few compared with their events.

use crate::view::Quantiles;

/// Quantiles of some lengths, which are put in order.
pub(crate) fn quantiles(values: &mut [u64]) -> Quantiles {
    values.sort_unstable();
    // The smallest value that at least this share does not exceed.
    let at = |share: f64| {
        let rank = (share * values.len() as f64).ceil() as usize;
        values.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    };
    let sum = values.iter().fold(0u128, |sum, value| sum + u128::from(*value));
    Quantiles {
        count: values.len() as u64,
        mean: (sum / values.len().max(1) as u128) as u64,
        min: values.first().copied().unwrap_or(0),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: values.last().copied().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_smallest_value_that_its_share_does_not_exceed() {
        let mut values: Vec<u64> = (1..=1000).rev().collect();
        let q = quantiles(&mut values);
        assert_eq!((q.min, q.p50, q.p90, q.p99, q.p999, q.max), (1, 500, 900, 990, 999, 1000));
        assert_eq!((q.count, q.mean), (1000, 500));
        assert_eq!(quantiles(&mut [7]).p50, 7);
        assert_eq!(quantiles(&mut []), Quantiles::default());
    }
}
