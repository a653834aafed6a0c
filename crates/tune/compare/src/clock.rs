//! The machine's time-stamp counter, which programs read in every system, on the kernel's clock.

use crate::agent::Stamp;

/// The time-stamp counter on the kernel's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    anchor: (f64, u64),
    now: (f64, u64),
}

impl Clock {
    /// By two moments on both: nanoseconds, and the counter.
    pub(crate) fn new(anchor: (f64, u64), now: (f64, u64)) -> Clock {
        Clock { anchor, now }
    }

    fn ns_per_tick(&self) -> f64 {
        (self.now.0 - self.anchor.0) / (self.now.1 - self.anchor.1) as f64
    }

    fn ns(&self, tsc: u64) -> f64 {
        self.now.0 + (tsc as i64).wrapping_sub(self.now.1 as i64) as f64 * self.ns_per_tick()
    }

    /// Nanoseconds from one moment to another.
    pub(crate) fn between(&self, [begin, end]: &[Stamp; 2]) -> f64 {
        end.tsc.saturating_sub(begin.tsc) as f64 * self.ns_per_tick()
    }

    /// Two moments in nanoseconds.
    pub(crate) fn interval(&self, [begin, end]: &[Stamp; 2]) -> [f64; 2] {
        [self.ns(begin.tsc), self.ns(end.tsc)]
    }
}
