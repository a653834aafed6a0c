//! Time that never goes back, whatever the events say.

use std::borrow::Cow;

/// The time of the last event, and how much clocks were set back.
#[derive(Default)]
pub(crate) struct Clock {
    last_ns: Option<u64>,
    ahead_ns: u64,
    pub out_of_order: u64,
    pub clock_jumps: u64,
    pub gaps: u64,
}

impl Clock {
    /// The times of a batch as the engine sees them. Those that are in order are not changed.
    pub fn straighten<'a>(&mut self, times: &'a [u64], jump_ns: u64) -> Cow<'a, [u64]> {
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return Cow::Borrowed(times);
        };
        let before = self.last_ns.unwrap_or(*first);
        let plain = self.ahead_ns == 0 && *first >= before && times.is_sorted();
        // Only a batch that spans more than a jump can contain one.
        if plain && last - before <= jump_ns {
            self.last_ns = Some(*last);
            return Cow::Borrowed(times);
        }
        times.iter().map(|time| self.next(*time, jump_ns)).collect()
    }

    fn next(&mut self, time_ns: u64, jump_ns: u64) -> u64 {
        let mut now = time_ns.saturating_add(self.ahead_ns);
        let last = self.last_ns.unwrap_or(now);
        if now < last {
            if last - now > jump_ns {
                self.clock_jumps += 1;
                self.ahead_ns = self.ahead_ns.saturating_add(last - now);
            } else {
                self.out_of_order += 1;
            }
            now = last;
        } else if now - last > jump_ns {
            self.gaps += 1;
        }
        self.last_ns = Some(now);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back() {
        let mut clock = Clock::default();
        let mut times = Vec::new();
        for batch in [&[100, 105, 103][..], &[106], &[20, 25], &[500]] {
            times.extend(clock.straighten(batch, 50).iter().copied());
        }
        // 103 is late; 20 is a clock set back by 86; 500 + 86 comes after a gap.
        assert_eq!(times, [100, 105, 105, 106, 106, 111, 586]);
        assert_eq!((clock.out_of_order, clock.clock_jumps, clock.gaps), (1, 1, 1));
    }

    #[test]
    fn batches_make_no_difference() {
        let times = [5u64, 9, 7, 200, 3, 4, 4, 2, 1000, 6];
        let mut one = Clock::default();
        let whole = one.straighten(&times, 50).into_owned();
        let mut other = Clock::default();
        let parts: Vec<u64> =
            times.chunks(3).flat_map(|part| other.straighten(part, 50).into_owned()).collect();
        assert_eq!(whole, parts);
        assert_eq!((one.gaps, one.out_of_order), (other.gaps, other.out_of_order));
    }
}
