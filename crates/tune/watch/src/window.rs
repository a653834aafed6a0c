//! Conditions over windows of time: what a histogram or two counters have gained between two looks.

use std::time::Duration;

use crate::finding::Why;
use crate::look::ProcessLook;
use crate::rule::{Measure, Windows};

/// A percentile or a share of fewer values says nothing.
const VALUES_MIN: u64 = 10;

/// One rule's windows over one process.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Where the window that is open begins, and what had been counted then.
    begin: Option<(u64, Totals)>,
    /// Windows in a row above the limit, and where the first one began.
    above: u32,
    since_ns: u64,
    /// The rule holds, until a window is not above what it is to fall to.
    holds: bool,
}

/// All that has been counted so far.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Totals {
    /// How often each magnitude has occurred, by least values.
    Histogram(Vec<(u64, u64)>),
    /// Of how many how many.
    Counters { part: i64, whole: i64 },
}

impl Watching {
    /// What a look shows. `None` where no window has ended with it; else whether the rule holds.
    pub(crate) fn see(
        &mut self,
        rule: &Windows,
        now: u64,
        look: &ProcessLook,
    ) -> Option<Option<(u64, Why)>> {
        let totals = totals(&rule.measure, look)?;
        let Some((begin_ns, before)) = &self.begin else {
            self.begin = Some((now, totals));
            return None;
        };
        if now.saturating_sub(*begin_ns) < nanos(rule.over) {
            return None;
        }
        let begin_ns = *begin_ns;
        let found = measured(&rule.measure, before, &totals);
        self.begin = Some((now, totals));
        // A window without work is neither: what holds goes on to hold.
        let (value, values) = found.filter(|(_, values)| *values >= VALUES_MIN)?;
        if value >= rule.limit {
            self.since_ns = if self.above == 0 { begin_ns } else { self.since_ns };
            self.above = self.above.saturating_add(1);
            self.holds |= self.above >= rule.windows;
        } else {
            self.above = 0;
            self.holds &= value >= rule.until;
        }
        let why = Why::Above { measure: rule.measure.clone(), value, limit: rule.limit, values };
        Some(self.holds.then_some((self.since_ns, why)))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn totals(measure: &Measure, look: &ProcessLook) -> Option<Totals> {
    match measure {
        Measure::Quantile { histogram, .. } => {
            let found = look.histograms.iter().find(|one| one.name == *histogram)?;
            Some(Totals::Histogram(found.counts.clone()))
        }
        Measure::Requests { pattern, .. } => {
            let found = look.requests.iter().find(|one| one.pattern == *pattern)?;
            Some(Totals::Histogram(found.counts.clone()))
        }
        Measure::Failures { pattern } => {
            let found = look.requests.iter().find(|one| one.pattern == *pattern)?;
            let all = found.counts.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
            let [part, whole] = [found.failed, all].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
            Some(Totals::Counters { part, whole })
        }
        Measure::Share { part, whole } => {
            let scalar = |name: &str| look.scalars.iter().find(|(other, _)| other == name);
            let (part, whole) = (scalar(part)?.1, scalar(whole)?.1);
            Some(Totals::Counters { part, whole })
        }
    }
}

/// What a measure is of what was counted in between, and of how many values.
fn measured(measure: &Measure, before: &Totals, after: &Totals) -> Option<(u64, u64)> {
    match (measure, before, after) {
        (
            Measure::Quantile { share, .. } | Measure::Requests { share, .. },
            Totals::Histogram(before),
            Totals::Histogram(after),
        ) => {
            let earlier = |low: u64| {
                let at = before.binary_search_by_key(&low, |(low, _)| *low).ok();
                at.map_or(0, |at| before[at].1)
            };
            let gained: Vec<(u64, u64)> = after
                .iter()
                .map(|(low, count)| (*low, count.saturating_sub(earlier(*low))))
                .collect();
            let values: u64 = gained.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count));
            // The value that so many of a million do not exceed.
            let rank = (u128::from(values) * u128::from(*share)).div_ceil(1_000_000).max(1);
            let mut below = 0u128;
            let found = gained.iter().find(|(_, count)| {
                below += u128::from(*count);
                below >= rank
            });
            found.map(|(low, _)| (*low, values))
        }
        (
            Measure::Share { .. } | Measure::Failures { .. },
            Totals::Counters { part: part_before, whole: whole_before },
            Totals::Counters { part, whole },
        ) => {
            let gained = |now: &i64, then: &i64| u64::try_from(now.checked_sub(*then)?).ok();
            let values = gained(whole, whole_before).filter(|values| *values > 0)?;
            let share = u128::from(gained(part, part_before)?) * 1_000_000 / u128::from(values);
            Some((u64::try_from(share).unwrap_or(u64::MAX), values))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_came_in_between() {
        let measure = Measure::Quantile { histogram: "h".into(), share: 990_000 };
        let of = |counts: &[(u64, u64)]| Totals::Histogram(counts.to_vec());
        let before = of(&[(1, 500), (64, 7)]);
        assert_eq!(measured(&measure, &before, &before), None);
        let after = of(&[(1, 599), (64, 7), (128, 1)]);
        assert_eq!(measured(&measure, &before, &after), Some((1, 100)));
        let after = of(&[(1, 598), (64, 7), (128, 2)]);
        assert_eq!(measured(&measure, &before, &after), Some((128, 100)));
        // What was counted twice, as by a process that was executed anew, does no harm.
        assert_eq!(measured(&measure, &after, &before), None);
    }

    #[test]
    fn shares_are_of_what_came_in_between() {
        let measure = Measure::Share { part: "bad".into(), whole: "all".into() };
        let of = |part, whole| Totals::Counters { part, whole };
        assert_eq!(measured(&measure, &of(5, 100), &of(7, 200)), Some((20_000, 100)));
        assert_eq!(measured(&measure, &of(5, 100), &of(5, 100)), None);
        assert_eq!(measured(&measure, &of(5, 100), &of(4, 200)), None);
        assert_eq!(measured(&measure, &of(i64::MIN, 0), &of(i64::MAX, 1)), None);
    }
}
