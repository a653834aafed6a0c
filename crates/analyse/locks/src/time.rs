//! Times: ticks, nanoseconds, and what people read.

/// Ticks in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Rate(pub f64);

impl Rate {
    pub(crate) fn ns(self, ticks: u64) -> u64 {
        (ticks as f64 * self.0) as u64
    }
}

/// Nanoseconds for people, in three digits.
pub fn time(ns: u64) -> String {
    let value = ns as f64;
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (value / 1e3, "µs"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(time(0), "0 ns");
        assert_eq!(time(1_234), "1.23 µs");
        assert_eq!(time(12_345_678), "12.3 ms");
        assert_eq!(time(123_456_789_012), "123 s");
    }
}
