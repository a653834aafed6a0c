//! Numbers as people read them.

/// Nanoseconds with three significant digits and a unit: `812 ns`, `1.25 µs`, `13.5 ms`, `2.41 s`.
pub fn duration(ns: u64) -> String {
    if ns < 1000 {
        return format!("{ns} ns");
    }
    // A value that would round to 1000 belongs to the next unit.
    for (unit, size) in [("µs", 1e3), ("ms", 1e6)] {
        if (ns as f64) < size * 999.5 {
            return format!("{} {unit}", three_digits(ns as f64 / size));
        }
    }
    format!("{} s", three_digits(ns as f64 / 1e9))
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => count(v.round() as u64),
    }
}

/// A number with commas: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share, 0 to 1, as `12.3 %`.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return "-".to_owned();
    }
    format!("{:.1} %", share * 100.0)
}

/// `1 call`, `2 calls`.
pub fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1000, "1.00 µs"),
            (9_994, "9.99 µs"),
            (9_996, "10.0 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (13_500_000, "13.5 ms"),
            (2_412_000_000, "2.41 s"),
            (7_200_000_000_000, "7,200 s"),
            (u64::MAX, "18,446,744,074 s"),
        ];
        for (ns, text) in cases {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
    }
}
