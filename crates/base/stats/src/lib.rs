//! What repeated measurements say: medians, means of ratios, and how certain they are.
//!
//! Ratios are taken round by round, of two runs close in time, so that a machine that gets slower
//! half-way does not show as a ratio.
#![forbid(unsafe_code)]

mod distribution;
pub mod odds;

pub use distribution::Distribution;
use serde::{Deserialize, Serialize};

/// Median of the values; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Quantile with interpolation between neighbours; NaN of no values.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let sorted = sorted(values);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (place - low as f64)
}

/// `a[n] / b[n]` of the rounds that both have.
pub fn ratios(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a / b).collect()
}

/// The median and both quartiles.
pub fn quartiles(values: &[f64]) -> [f64; 3] {
    [0.5, 0.25, 0.75].map(|q| quantile(values, q))
}

/// A value with the ends of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The value.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether another value lies outside.
    pub fn excludes(&self, value: f64) -> bool {
        value < self.low || value > self.high
    }
}

/// The median, with an interval that assumes nothing of how the values are distributed: two of the
/// values themselves, so many from either end that the median lies between them in 95 of 100 cases.
/// Fewer than six values have no such two; all of them then lie between the ends, which hold the
/// median less surely: in 50, 75, 87.5 and 93.75 of 100 cases for two to five. All are NaN without
/// values.
pub fn median_interval(values: &[f64]) -> Interval {
    let sorted = sorted(values);
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        return Interval { value: f64::NAN, low: f64::NAN, high: f64::NAN };
    };
    let value = median(values);
    match from_the_end(sorted.len()) {
        Some(at) => Interval { value, low: sorted[at], high: sorted[sorted.len() - 1 - at] },
        None => Interval { value, low: *first, high: *last },
    }
}

/// How many of so many values may be left out at either end. The number of values below the median is
/// binomial: what is left out at one end is at most 2.5 % of it.
fn from_the_end(count: usize) -> Option<usize> {
    let mut probability = 0.5f64.powi(i32::try_from(count).ok()?);
    let mut sum = 0.0;
    let mut left_out = None;
    for below in 0..count / 2 {
        sum += probability;
        if sum > 0.025 {
            break;
        }
        left_out = Some(below);
        probability *= (count - below) as f64 / (below + 1) as f64;
    }
    left_out
}

/// The geometric mean of ratios, two at least, with the interval of Student's distribution.
pub fn geometric_mean(ratios: &[f64]) -> Interval {
    let count = ratios.len() as f64;
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mean = logarithms.iter().sum::<f64>() / count;
    let squares: f64 = logarithms.iter().map(|l| (l - mean).powi(2)).sum();
    let half = students_t(count - 1.0) * (squares / (count - 1.0) / count).sqrt();
    Interval { value: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() }
}

/// The geometric mean of ratios, with a 95 % interval that holds whenever one stops: rounds may be taken
/// until it answers. Student's does not: who looks after each round and stops at the first difference
/// errs far more often than in 5 % of the cases. A single ratio says nothing.
///
/// It consists of the means that are not refuted by the Bayes factor of the t-test with the right Haar
/// prior for the variance and a normal prior for the effect size, which is a test martingale (Lai, "On
/// confidence sequences", Annals of Statistics 1976; Gönen et al., "The Bayesian two-sample t test", The
/// American Statistician 2005; Hendriksen, de Heide and Grünwald, "Optional stopping with Bayes factors",
/// Bayesian Analysis 2021).
pub fn anytime_mean(ratios: &[f64]) -> Interval {
    let count = ratios.len() as f64;
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mean = logarithms.iter().sum::<f64>() / count;
    let squares: f64 = logarithms.iter().map(|l| (l - mean).powi(2)).sum();
    let half = match ratios.len() {
        0 | 1 => f64::INFINITY,
        _ => anytime_t(count) * (squares / (count - 1.0) / count).sqrt(),
    };
    Interval { value: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() }
}

/// The t statistic of `count` values (at least 2) that the Bayes factor refutes at 5 %, at any time.
///
/// With n values, ν = n - 1, and a prior for the effect size whose variance is g times that of the
/// values, the factor is (1 + n g)^(-1/2) [(1 + t²/ν) / (1 + t²/(ν (1 + n g)))]^(n/2). Here it is solved
/// for 1 / 0.05.
fn anytime_t(count: f64) -> f64 {
    const ERROR: f64 = 0.05;
    // Narrowest for some twenty rounds, and hardly wider for others.
    const G: f64 = 1.0;
    let spread = 1.0 + count * G;
    let factor = ERROR.powf(-2.0 / count) * spread.powf(1.0 / count);
    match 1.0 - factor / spread {
        // So few values refute nothing.
        rest if rest <= 0.0 => f64::INFINITY,
        rest => ((count - 1.0) * (factor - 1.0) / rest).sqrt(),
    }
}

/// The 97.5 % quantile of Student's distribution, by the expansion of Cornish and Fisher.
fn students_t(freedom: f64) -> f64 {
    let z = 1.959_964f64;
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    z + terms.iter().zip(1..).map(|(term, n)| term / freedom.powi(n)).sum::<f64>()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        assert_eq!(quantile(&[0.0, 10.0], 0.25), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(quartiles(&[1.0, 2.0, 3.0, 4.0, 5.0]), [3.0, 2.0, 4.0]);
    }

    #[test]
    fn ratios_are_by_round() {
        assert_eq!(median(&ratios(&[2.0, 20.0, 3.0], &[1.0, 10.0, 1.0])), 2.0);
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        for (freedom, expected) in [(4.0, 2.776), (9.0, 2.262), (19.0, 2.093), (39.0, 2.023)] {
            let quantile = students_t(freedom);
            assert!((quantile - expected).abs() < 0.01, "{freedom}: {quantile}");
        }
    }

    #[test]
    fn intervals_of_means_are_those_of_tables() {
        // Of 1, 2, 3, 4, 5 the mean is 3, the deviation 1.5811, and Student's quantile 2.776.
        let ratios: Vec<f64> = (1..=5).map(|n| f64::from(n).exp()).collect();
        let Interval { value, low, high } = geometric_mean(&ratios);
        let half = 2.776 * 1.5811 / 5f64.sqrt();
        for (found, expected) in [(value, 3.0), (low, 3.0 - half), (high, 3.0 + half)] {
            assert!((found.ln() - expected).abs() < 0.01, "{found} {expected}");
        }
    }

    #[test]
    fn intervals_of_medians_are_those_of_tables() {
        // Tables of the sign test: so many from either end, counted from 1.
        for (count, rank) in [(6, 1), (9, 2), (10, 2), (15, 4), (20, 6), (25, 8), (40, 14)] {
            assert_eq!(from_the_end(count), Some(rank - 1), "{count}");
        }
        assert_eq!(from_the_end(5), None);
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(median_interval(&values), Interval { value: 10.5, low: 6.0, high: 15.0 });
        let few = median_interval(&[2.0, 1.0, 3.0]);
        assert_eq!((few.low, few.value, few.high), (1.0, 2.0, 3.0));
        assert!(few.excludes(3.5) && !few.excludes(3.0));
        assert!(median_interval(&[]).value.is_nan());
    }

    #[test]
    fn who_may_stop_at_any_time_needs_a_wider_interval() {
        // Of 20 values: k = 400^(1/20) * 21^(1/20), and t² = 19 (k - 1) / (1 - k / 21).
        let t = anytime_t(20.0);
        assert!((t - 3.424).abs() < 0.005, "{t}");
        let ratios = [0.9, 0.92, 0.88, 0.91, 0.9, 0.89];
        let (fixed, anytime) = (geometric_mean(&ratios), anytime_mean(&ratios));
        assert_eq!(fixed.value, anytime.value);
        assert!(anytime.low < fixed.low && anytime.high > fixed.high);
        let one = anytime_mean(&[0.5]);
        assert_eq!((one.low, one.high), (0.0, f64::INFINITY));
    }
}
