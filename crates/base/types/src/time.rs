//! Times that people write, and the clock that nothing sets.

use std::fmt;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Why a text is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeError {
    /// It has no number, or one that is no number.
    Number,
    /// It has another unit.
    Unit,
    /// It is below zero, or too long.
    Range,
}

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeError::Number => "a number and a unit, as in 10s",
            TimeError::Unit => "units are us, ms, s, m, h and d",
            TimeError::Range => "a time above zero that a clock can hold",
        })
    }
}

impl std::error::Error for TimeError {}

/// A time such as `250ms`, `10s`, `5us`, `2m`, `1.5h` or `1d`; seconds where no unit is.
///
/// # Errors
///
/// When it is no number and unit.
pub fn parse_time(text: &str) -> Result<Duration, TimeError> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = match &text[digits.len()..] {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(TimeError::Unit),
    };
    let number: f64 = digits.parse().map_err(|_| TimeError::Number)?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| TimeError::Range)
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which goes on from the boot of the machine and is never set.
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let ms = |text| parse_time(text).map(|time| time.as_secs_f64() * 1e3);
        assert_eq!(ms("250ms"), Ok(250.0));
        assert_eq!(ms("1.5s"), Ok(1500.0));
        assert_eq!(ms("2"), Ok(2000.0));
        assert_eq!((ms("5us"), ms("5µs")), (Ok(0.005), Ok(0.005)));
        assert_eq!((ms("2m"), ms("1h"), ms("1d")), (Ok(12e4), Ok(36e5), Ok(864e5)));
        assert_eq!(ms("5 weeks"), Err(TimeError::Unit));
        assert_eq!((ms("s"), ms("")), (Err(TimeError::Number), Err(TimeError::Number)));
        assert_eq!((ms("-1s"), ms("1e300d")), (Err(TimeError::Range), Err(TimeError::Range)));
    }

    #[test]
    fn the_clock_goes_on() {
        let begin = monotonic_ns();
        assert!(begin > 0 && monotonic_ns() >= begin);
    }
}
