//! How long the calls of one function took.

use fettle_stats::Distribution;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::report::{Analysis, Latency};

/// Bars in a histogram at most.
const BARS_MAX: usize = 40;

/// A function's call durations, as bars of equal width on a logarithmic scale.
#[derive(Clone, Debug, Serialize)]
pub struct Histogram {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// Function.
    pub name: String,
    /// Whether records are missing.
    pub partial: bool,
    /// Quantiles.
    pub latency: Latency,
    /// Bars, shortest durations first, empty ones included.
    pub bars: Vec<Bar>,
}

/// Calls whose durations lay in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// Shortest duration that belongs here, in nanoseconds.
    pub from_ns: u64,
    /// Shortest duration that no longer belongs here, in nanoseconds.
    pub to_ns: u64,
    /// Calls.
    pub calls: u64,
}

impl Analysis {
    /// The durations of the function called `wanted`.
    pub fn histogram(&self, wanted: &str) -> Result<Histogram> {
        self.need_records("a histogram")?;
        let ids = self.find(wanted)?;
        let busiest = ids
            .into_iter()
            .max_by_key(|&id| self.profile.durations_of(id).map_or(0, Distribution::count));
        let id = busiest.ok_or_else(|| Error::NoFunction(wanted.to_owned()))?;
        let (Some(durations), Some(latency)) = (self.profile.durations_of(id), self.latency(id))
        else {
            return Err(Error::NoFunction(wanted.to_owned()));
        };

        // Bars per doubling: as many as fit, from four down to one in several doublings.
        let (low, high) = (durations.min().max(1), durations.max().max(1));
        let doublings = (high.ilog2() - low.ilog2() + 1) as usize;
        let split = match BARS_MAX / doublings {
            0 | 1 => 1,
            2 | 3 => 2,
            _ => 4,
        };
        let edge = |bar: usize| -> u64 {
            let (doubling, within) = (bar / split, bar % split);
            let start = 1u64.checked_shl(low.ilog2() + doubling as u32).unwrap_or(u64::MAX);
            start.saturating_add(start / split as u64 * within as u64)
        };
        let mut bars: Vec<Bar> = Vec::new();
        for bar in 0..doublings * split {
            let (from_ns, to_ns) = (edge(bar), edge(bar + 1));
            // Below four nanoseconds a doubling has fewer whole nanoseconds than bars.
            if from_ns < to_ns {
                bars.push(Bar { from_ns, to_ns, calls: 0 });
            }
        }
        if let Some(first) = bars.first_mut().filter(|_| durations.min() == 0) {
            first.from_ns = 0;
        }
        for (from, to, calls) in durations.buckets() {
            let middle = (from + (to - from) / 2).clamp(durations.min(), durations.max());
            let at = bars.partition_point(|bar| bar.from_ns <= middle).saturating_sub(1);
            if let Some(bar) = bars.get_mut(at) {
                bar.calls = bar.calls.saturating_add(calls);
            }
        }
        let first = bars.iter().position(|bar| bar.calls > 0).unwrap_or(0);
        bars.drain(..first);
        let last = bars.iter().rposition(|bar| bar.calls > 0).map_or(0, |at| at + 1);
        bars.truncate(last);
        Ok(Histogram {
            version: crate::JSON_VERSION,
            name: self.names.shown(id),
            partial: self.partial(),
            latency,
            bars,
        })
    }
}
