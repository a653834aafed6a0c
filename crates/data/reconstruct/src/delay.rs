//! Distributions of delays, learned from samples: histograms over eighths of octaves.

/// Bins of a histogram: from 0 to some 1,000 seconds.
pub const BINS: usize = 240;
/// Delays shorter than this, in nanoseconds, are in bins of equal width.
const FIRST_NS: f32 = 1024.0;
/// Of the bits of a 32-bit float, those below are dropped: an exponent and three bits of the fraction stay.
const DROPPED: u32 = 20;

/// The bin that a delay is in. One that is below 0 counts as 0.
pub fn bin(delay_ns: i64) -> usize {
    let at = (delay_ns.max(0) as f32 + FIRST_NS).to_bits() >> DROPPED;
    ((at - (FIRST_NS.to_bits() >> DROPPED)) as usize).min(BINS - 1)
}

/// How many nanoseconds a bin is wide.
fn width_ns(bin: usize) -> f32 {
    let edge = |bin: u32| f32::from_bits(((FIRST_NS.to_bits() >> DROPPED) + bin) << DROPPED);
    edge(bin as u32 + 1) - edge(bin as u32)
}

/// Logarithms of bins' widths.
pub fn log_widths() -> [f32; BINS] {
    std::array::from_fn(|bin| width_ns(bin).ln())
}

/// Samples of a delay.
#[derive(Clone, Debug)]
pub struct Samples {
    weight: Box<[f32; BINS]>,
    total: f32,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples { weight: Box::new([0.0; BINS]), total: 0.0 }
    }
}

impl Samples {
    /// Adds a sample that counts for `weight`.
    pub fn add(&mut self, delay_ns: i64, weight: f32) {
        if let Some(sum) = self.weight.get_mut(bin(delay_ns)) {
            *sum += weight;
            self.total += weight;
        }
    }

    /// What all samples count for.
    pub fn total(&self) -> f32 {
        self.total
    }

    /// The logarithm of each bin's weight for a nanosecond, of `all` that it is a part of. Few samples
    /// are spread over more bins than many, and a `floor` of all is spread over all bins.
    pub fn density(&self, all: f32, floor: f32, log_widths: &[f32; BINS]) -> [f32; BINS] {
        let reach = (16.0 / (1.0 + self.total.sqrt() / 4.0)).round().max(1.0) as usize;
        let mut spread = [0.0_f32; BINS];
        let norm = (reach as f32 + 1.0) * (reach as f32 + 1.0);
        for (at, weight) in self.weight.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            for step in 0..=2 * reach {
                let share = (reach + 1 - reach.abs_diff(step)) as f32 / norm;
                // What would lie beyond an end is on it.
                let to = (at + step).saturating_sub(reach).min(BINS - 1);
                if let Some(sum) = spread.get_mut(to) {
                    *sum += weight * share;
                }
            }
        }
        let mut logs = [0.0; BINS];
        for ((log, sum), width) in logs.iter_mut().zip(spread).zip(log_widths) {
            *log = (sum / all + floor / BINS as f32).ln() - width;
        }
        logs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_in_order_and_cover_all_delays() {
        assert_eq!((bin(-5), bin(0), bin(127), bin(128)), (0, 0, 0, 1));
        assert_eq!(bin(i64::MAX), BINS - 1);
        let mut last = 0;
        for step in 0..400 {
            let now = bin((1.1_f64.powi(step) * 10.0) as i64);
            assert!(now >= last && now - last <= 2, "{step}");
            last = now;
        }
    }

    #[test]
    fn a_density_adds_up_to_its_share() {
        let mut samples = Samples::default();
        for ns in [100, 20_000, 20_500, 3_000_000] {
            samples.add(ns, 1.0);
        }
        let widths = log_widths();
        let density = samples.density(8.0, 0.01, &widths);
        let sum: f32 = density.iter().zip(&widths).map(|(log, width)| (log + width).exp()).sum();
        assert!((sum - 0.51).abs() < 1e-3, "{sum}");
        assert!(density[bin(20_200)] > density[bin(200_000)]);
    }
}
