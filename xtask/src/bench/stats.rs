//! Medians and spreads. Ratios are taken round by round, of two runs close in time, so that a
//! machine that gets slower half-way does not show as a ratio.

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
}
