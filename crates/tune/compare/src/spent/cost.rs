//! What observing takes: measured on each system in the same run, by operations of our program that are recorded
//! and not recorded in turn, and laid on the records of the user's program.
//!
//! Two kinds of records cost differently: those at system calls, where the kernel takes a longer way as soon as
//! anything looks at them, and all others. How many an operation leads to is counted; so what a record of either
//! kind takes is what explains best how much longer the operations were.

use crate::agent::Agent;
use crate::error::CompareError;
use crate::processes;
use crate::spent::record::Recorder;
use crate::spent::records::{Cost, Records};

/// Operations that have different shares of both kinds: a call, a read, two processes that wake each other.
const OPERATIONS: [&str; 3] = ["null", "read-4k", "switch"];
/// Time of a batch, and batches of a turn.
const BATCH: std::time::Duration = std::time::Duration::from_millis(1);
const BATCHES: u32 = 8;

/// What turns of the operations on a system have shown.
#[derive(Debug, Default)]
pub(super) struct Weighed {
    by_operation: [Turns; OPERATIONS.len()],
}

#[derive(Debug, Default)]
struct Turns {
    /// Operations of a batch, once that is known.
    count: Option<u64>,
    /// Nanoseconds of an operation, turn by turn.
    plain: Vec<f64>,
    observed: Vec<f64>,
    /// Records of an operation, turn by turn.
    of_calls: Vec<f64>,
    others: Vec<f64>,
}

impl Weighed {
    /// A turn of each operation, on one processor: on several, what a call takes where another process serves it
    /// changes by a factor from moment to moment. Afterwards the system has `processors`.
    pub(super) fn turn(
        &mut self,
        agent: &mut Agent<'_>,
        recorder: &mut Recorder,
        processors: &[u32],
    ) -> Result<(), CompareError> {
        processes::hold(agent.pid(), processors.last().map_or(&[], std::slice::from_ref));
        for (name, turns) in OPERATIONS.iter().zip(&mut self.by_operation) {
            let count = match turns.count {
                Some(count) => count,
                None => *turns.count.insert(agent.tune(name, BATCH)?.max(1)),
            };
            // There and back, so that a slow change of the machine affects both alike.
            let before = agent.time(name, count, BATCHES)?;
            let pid = agent.pid();
            let (observed, recorded) = recorder.during(pid, || {
                let observed = agent.time(name, count, BATCHES)?;
                Ok([observed, agent.time(name, count, BATCHES)?].concat())
            })?;
            let plain = [before, agent.time(name, count, BATCHES)?].concat();
            let Ok(entries) = recorded.entries else { continue };
            // An eighth of a batch and one more to warm up.
            let operations = (2 * (count * u64::from(BATCHES) + count / 8 + 1)) as f64;
            let [of_calls, others] = super::account::records(&entries);
            turns.plain.push(fettle_stats::median(&plain));
            turns.observed.push(fettle_stats::median(&observed));
            turns.of_calls.push(of_calls / operations);
            turns.others.push(others / operations);
        }
        processes::hold(agent.pid(), processors);
        Ok(())
    }

    /// What a record takes by that.
    pub(super) fn cost(&self) -> Cost {
        let median = |values: &[f64]| fettle_stats::median(values);
        let known = self.by_operation.iter().filter(|turns| !turns.plain.is_empty());
        let seen: Vec<(Records, f64)> = known
            .map(|turns| {
                let records = [median(&turns.of_calls), median(&turns.others)];
                let added: Vec<f64> =
                    turns.observed.iter().zip(&turns.plain).map(|(o, p)| o - p).collect();
                (records, median(&added))
            })
            .collect();
        explaining(&seen)
    }
}

/// The costs that explain best how much longer operations with so many records took: by least squares of the time
/// for a record, none below nothing.
fn explaining(seen: &[(Records, f64)]) -> Cost {
    let scaled: Vec<(Records, f64)> = seen
        .iter()
        .filter(|([of_calls, others], _)| of_calls + others > 0.0)
        .map(|([of_calls, others], ns)| {
            let all = of_calls + others;
            ([of_calls / all, others / all], ns / all)
        })
        .collect();
    let sum = |of: &dyn Fn(&(Records, f64)) -> f64| scaled.iter().map(of).sum::<f64>();
    let (aa, ab, bb) =
        (sum(&|(r, _)| r[0] * r[0]), sum(&|(r, _)| r[0] * r[1]), sum(&|(r, _)| r[1] * r[1]));
    let (an, bn) = (sum(&|(r, ns)| r[0] * ns), sum(&|(r, ns)| r[1] * ns));
    let determinant = aa * bb - ab * ab;
    let both = Cost {
        of_call_ns: (an * bb - bn * ab) / determinant,
        other_ns: (bn * aa - an * ab) / determinant,
    };
    if determinant > 1e-9 * aa * bb && both.of_call_ns >= 0.0 && both.other_ns >= 0.0 {
        return both;
    }
    // One for both kinds, which then is all that can be said.
    let all = if scaled.is_empty() { 0.0 } else { sum(&|(_, ns)| *ns) / scaled.len() as f64 };
    Cost { of_call_ns: all.max(0.0), other_ns: all.max(0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_found_that_explain_times() {
        let cost = Cost { of_call_ns: 150.0, other_ns: 400.0 };
        let seen = [[2.0, 0.0], [2.0, 0.1], [8.0, 4.0]].map(|records| (records, cost.of(records)));
        let found = explaining(&seen);
        assert!((found.of_call_ns - 150.0).abs() < 1e-6, "{found:?}");
        assert!((found.other_ns - 400.0).abs() < 1e-6, "{found:?}");
        // Where all have the same shares, only their sum is known.
        let found = explaining(&[([2.0, 2.0], 400.0), ([4.0, 4.0], 800.0)]);
        assert_eq!(found, Cost { of_call_ns: 100.0, other_ns: 100.0 });
        assert_eq!(explaining(&[]), Cost::default());
        assert_eq!(explaining(&[([1.0, 0.0], -5.0)]), Cost::default());
    }
}
