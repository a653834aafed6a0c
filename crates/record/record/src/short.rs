//! Records of calls that took less time than was asked for are left out, as uftrace's `-t` does.
//!
//! What such a call called took less time still, so what is kept is whole trees without their short
//! branches. Totals of functions, which probes add up by themselves, count all calls.

use std::borrow::Cow;
use std::time::Duration;

use fettle_abi::record::CallRecord;
use fettle_trace::ClockPair;

use crate::clock;

/// The shortest time of a call whose record is kept, and how many took less.
#[derive(Debug)]
pub struct MinDuration {
    least: Duration,
    begin: ClockPair,
    /// The same in ticks, and what time had passed when that was measured: the longer, the better.
    ticks: (u64, Duration),
    /// Records that were left out.
    pub left_out: u64,
}

/// After so much time the counter's rate is known to some millionths.
const KNOWN_WELL: Duration = Duration::from_secs(1);

impl MinDuration {
    /// For a recording that begins now.
    pub fn new(least: Duration) -> MinDuration {
        MinDuration { least, begin: clock::now(), ticks: (0, Duration::ZERO), left_out: 0 }
    }

    /// Those of a thread's records whose calls took long enough.
    pub fn keep<'r>(&mut self, records: &'r [u8]) -> Cow<'r, [u8]> {
        let ticks = self.ticks();
        let is_short = |record: &[u8]| {
            let last = u64::from_ne_bytes(record[8..].try_into().expect("eight bytes"));
            last >> fettle_abi::record::ID_HALF_BITS < ticks
        };
        let size = size_of::<CallRecord>();
        let short = records.chunks_exact(size).filter(|record| is_short(record)).count();
        if short == 0 {
            return Cow::Borrowed(records);
        }
        self.left_out += short as u64;
        let mut kept = Vec::with_capacity(records.len() - short * size);
        records
            .chunks_exact(size)
            .filter(|record| !is_short(record))
            .for_each(|record| kept.extend_from_slice(record));
        Cow::Owned(kept)
    }

    fn ticks(&mut self) -> u64 {
        if self.ticks.1 < KNOWN_WELL {
            // A millisecond is enough for one part in a thousand.
            let mut now = clock::now();
            while now.monotonic_ns < self.begin.monotonic_ns + 1_000_000 {
                now = clock::now();
            }
            let passed = Duration::from_nanos(now.monotonic_ns - self.begin.monotonic_ns);
            let ticks = clock::hertz(self.begin, now) as f64 * self.least.as_secs_f64();
            self.ticks = (ticks as u64, passed);
        }
        self.ticks.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ticks: u64) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&(ticks << fettle_abi::record::ID_HALF_BITS | 1).to_ne_bytes());
        bytes
    }

    #[test]
    fn short_calls_are_left_out_and_counted() {
        let mut least = MinDuration::new(Duration::from_millis(1));
        // No processor's counter makes less than a million ticks a second, or a hundred thousand million.
        let records = [record(10), record(1 << 40), record(0), record(1 << 30)].concat();
        let kept = least.keep(&records);
        assert_eq!(&*kept, [record(1 << 40), record(1 << 30)].concat());
        assert_eq!(least.left_out, 2);
        let none = [record(1 << 35)].concat();
        assert!(matches!(least.keep(&none), Cow::Borrowed(_)));
    }
}
