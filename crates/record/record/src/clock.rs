//! The time-stamp counter and the clock it is measured against.

use fettle_trace::ClockPair;
use fettle_types::monotonic_ns;

/// Both clocks, read as close together as can be had.
pub fn now() -> ClockPair {
    let mut best: Option<(u64, ClockPair)> = None;
    for _ in 0..16 {
        let before = tsc();
        let monotonic_ns = monotonic_ns();
        let after = tsc();
        let pair = ClockPair { tsc: before + (after - before) / 2, monotonic_ns };
        if best.as_ref().is_none_or(|(width, _)| after - before < *width) {
            best = Some((after - before, pair));
        }
    }
    best.expect("at least one reading").1
}

/// The time-stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets user code execute it
    // unless a process forbids it to itself (prctl PR_SET_TSC), which this one does not.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Ticks per second between two readings.
pub fn hertz(begin: ClockPair, end: ClockPair) -> u64 {
    let ticks = end.tsc.saturating_sub(begin.tsc) as f64;
    let ns = end.monotonic_ns.saturating_sub(begin.monotonic_ns).max(1) as f64;
    (ticks / ns * 1e9) as u64
}
