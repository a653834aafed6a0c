//! Medians and spreads. Ratios are taken round by round, of two runs close in time, so that a
//! machine that gets slower half-way does not show as a ratio.

use serde::Serialize;

/// Median of the values; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Quantile with interpolation between neighbours.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = q * last as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (place - low as f64)
}

/// Median and quartiles of `a[n] / b[n]` over the rounds that both have.
pub fn ratios(a: &[f64], b: &[f64]) -> [f64; 3] {
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    [quantile(&ratios, 0.5), quantile(&ratios, 0.25), quantile(&ratios, 0.75)]
}

/// A geometric mean with its 95 % interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The geometric mean of ratios, with the interval of Student's distribution, as `fettle tune` tells
/// them.
pub fn geometric_mean(ratios: &[f64]) -> Mean {
    let count = ratios.len() as f64;
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mean = logarithms.iter().sum::<f64>() / count;
    let squares: f64 = logarithms.iter().map(|l| (l - mean).powi(2)).sum();
    let half = students_t(count - 1.0) * (squares / (count - 1.0) / count).sqrt();
    Mean { mean: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        assert_eq!(quantile(&[0.0, 10.0], 0.25), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_are_by_round() {
        assert_eq!(ratios(&[2.0, 20.0, 3.0], &[1.0, 10.0, 1.0])[0], 2.0);
    }

    #[test]
    fn intervals_are_those_of_tables() {
        // Of 1, 2, 3, 4, 5 the mean is 3, the deviation 1.5811, and Student's quantile 2.776.
        let ratios: Vec<f64> = (1..=5).map(|n| f64::from(n).exp()).collect();
        let Mean { mean, low, high } = geometric_mean(&ratios);
        let half = 2.776 * 1.5811 / 5f64.sqrt();
        for (found, expected) in [(mean, 3.0), (low, 3.0 - half), (high, 3.0 + half)] {
            assert!((found.ln() - expected).abs() < 0.01, "{found} {expected}");
        }
    }
}
