//! Time-stamp counter to nanoseconds.

use std::time::{Duration, Instant};

/// Turns time stamps of a sensor into `CLOCK_MONOTONIC` and `CLOCK_REALTIME`.
///
/// The rate comes from two readings of both clocks: when the sensor was made, and when this value
/// was. It is only as good as the time between them is long: a millisecond gives about 1 in 10^4.
///
/// How far `CLOCK_REALTIME` is ahead is read here and now, so that sensors of different processes agree: a producer
/// may have been interrupted between its two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    tsc: u64,
    monotonic_ns: u64,
    realtime_ns: u64,
    ns_per_tick: f64,
}

impl Clock {
    /// From the three clocks' values at one earlier instant.
    pub(crate) fn since(tsc: u64, monotonic_ns: u64, realtime_ns: u64) -> Clock {
        let (now, now_ns) = both();
        let (ticks, ns) = (now.wrapping_sub(tsc), now_ns.wrapping_sub(monotonic_ns));
        // What a hostile sensor says can be anything; then assume nothing but a plausible rate.
        let rate = ns as f64 / ticks as f64;
        let ns_per_tick =
            if ns > 1_000_000 && (0.01..10.0).contains(&rate) { rate } else { measured() };
        Clock { tsc, monotonic_ns, realtime_ns: agreed(monotonic_ns, realtime_ns), ns_per_tick }
    }

    /// Of a producer whose time stamps are `CLOCK_MONOTONIC` already.
    pub(crate) fn monotonic(monotonic_ns: u64, realtime_ns: u64) -> Clock {
        let realtime_ns = agreed(monotonic_ns, realtime_ns);
        Clock { tsc: monotonic_ns, monotonic_ns, realtime_ns, ns_per_tick: 1.0 }
    }

    /// Length of a tick.
    pub fn ns_per_tick(&self) -> f64 {
        self.ns_per_tick
    }

    /// `CLOCK_MONOTONIC` at a time stamp.
    pub fn monotonic_ns(&self, timestamp: u64) -> u64 {
        self.monotonic_ns.wrapping_add_signed(self.ns_since_open(timestamp))
    }

    /// `CLOCK_REALTIME` at a time stamp, if the clock was not set since.
    pub fn realtime_ns(&self, timestamp: u64) -> u64 {
        self.realtime_ns.wrapping_add_signed(self.ns_since_open(timestamp))
    }

    fn ns_since_open(&self, timestamp: u64) -> i64 {
        (timestamp.wrapping_sub(self.tsc) as i64 as f64 * self.ns_per_tick) as i64
    }
}

/// A reading is repeated so often, and the one that took least counts.
const READINGS: usize = 5;
/// The wall's clock was set if it is off by more than this.
const SET_NS: u64 = 100_000_000;

/// Time-stamp counter and `CLOCK_MONOTONIC` now.
fn both() -> (u64, u64) {
    let reading = || {
        let tsc = ticks();
        let ns = clock(libc::CLOCK_MONOTONIC);
        (ticks().wrapping_sub(tsc), (tsc, ns))
    };
    (0..READINGS).map(|_| reading()).min().map_or((0, 0), |(_, both)| both)
}

/// `CLOCK_REALTIME` when the monotonic clock was as a producer says, by what both say now; as the producer says if
/// the clock was set since.
fn agreed(monotonic_ns: u64, realtime_ns: u64) -> u64 {
    let reading = || {
        let before = clock(libc::CLOCK_MONOTONIC);
        let realtime = clock(libc::CLOCK_REALTIME);
        let took = clock(libc::CLOCK_MONOTONIC).wrapping_sub(before);
        (took, realtime.wrapping_sub(before.wrapping_add(took / 2)))
    };
    let ahead = (0..READINGS).map(|_| reading()).min().map_or(0, |(_, ahead)| ahead);
    let now = monotonic_ns.wrapping_add(ahead);
    if now.abs_diff(realtime_ns) < SET_NS { now } else { realtime_ns }
}

fn ticks() -> u64 {
    // SAFETY: rdtsc is an unprivileged instruction that touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to `now`, which lives.
    unsafe { libc::clock_gettime(which, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Length of a tick, measured over two milliseconds.
fn measured() -> f64 {
    let (start, began) = (both(), Instant::now());
    while began.elapsed() < Duration::from_millis(2) {
        std::hint::spin_loop();
    }
    let end = both();
    (end.1 - start.1) as f64 / (end.0 - start.0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_agree_though_they_read_their_clocks_slowly() {
        let (tsc, monotonic) = both();
        let said = clock(libc::CLOCK_REALTIME);
        let slow = Clock::monotonic(monotonic, said + 3_000_000);
        let quick = Clock::monotonic(monotonic, said);
        let apart = slow.realtime_ns(monotonic).abs_diff(quick.realtime_ns(monotonic));
        assert!(apart < 1_000_000, "{apart}");
        // A clock that was set since is not set back.
        let set = Clock::since(tsc, monotonic, 12_345);
        assert_eq!(set.realtime_ns(tsc), 12_345);
    }
}
