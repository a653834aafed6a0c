//! How long calls take, each for itself: the request-tracking thesis' figure 5.8.

use fettle_report::render::{Table, Terminal, column};
use serde::Serialize;

use crate::text::time;

/// Calls that took about as long as each other: up to 1.41 times as long as the shortest of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// No call took less, in nanoseconds.
    pub from_ns: f64,
    /// How many there were.
    pub calls: u64,
}

/// Characters of the longest bar.
const WIDTH: f64 = 8.0;

/// Calls by their time in nanoseconds, in order; bins without calls are left out.
pub(super) fn distribution(times: &[f64]) -> Vec<Bin> {
    let mut numbers: Vec<i32> = times.iter().map(|ns| number(*ns)).collect();
    numbers.sort_unstable();
    let bin = |same: &[i32]| Bin { from_ns: start(same[0]), calls: same.len() as u64 };
    numbers.chunk_by(|a, b| a == b).map(bin).collect()
}

/// The bin of a time. There are two for each doubling; less than a nanosecond is in the first.
fn number(ns: f64) -> i32 {
    (2.0 * ns.max(1.0).log2()).floor() as i32
}

/// Where a bin begins.
fn start(number: i32) -> f64 {
    (f64::from(number) / 2.0).exp2()
}

/// The shares of an operation's calls by their time on each system, with bars.
pub(super) fn distribution_text(
    name: &str,
    systems: &[(&str, &[Bin])],
    terminal: Terminal,
    out: &mut String,
) {
    let columns: Vec<_> = systems.iter().map(|(system, _)| column(system)).collect();
    let what = format!("{name}: share of calls that take from");
    let mut table = Table::new(&columns, &what);
    let mut numbers: Vec<i32> =
        systems.iter().flat_map(|(_, bins)| bins.iter().map(number_of)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for number in numbers {
        let cells = systems.iter().map(|(_, bins)| cell(bins, number));
        let name = format!("{} to {}", time(start(number)), time(start(number + 1)));
        table.row(cells.chain([name]));
    }
    table.render(terminal, out);
    out.push('\n');
}

/// The bin's number, by what is in its middle: where it begins is rounded.
fn number_of(bin: &Bin) -> i32 {
    number(bin.from_ns * 1.1)
}

fn cell(bins: &[Bin], number: i32) -> String {
    let Some(bin) = bins.iter().find(|bin| number_of(bin) == number) else { return String::new() };
    let all: u64 = bins.iter().map(|bin| bin.calls).sum();
    let most = bins.iter().map(|bin| bin.calls).max().unwrap_or(1);
    let share = bin.calls as f64 / all as f64 * 100.0;
    let share = if share < 0.1 { "<0.1 %".to_owned() } else { format!("{share:.1} %") };
    // A bar that is not empty is seen.
    let length = (bin.calls as f64 / most as f64 * WIDTH).round().max(1.0) as usize;
    format!("{} {share:>6}", "█".repeat(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_their_time() {
        let times = [150.0, 0.2, 1e6, 160.0, 181.0, 129.0];
        let bins = distribution(&times);
        let counts: Vec<u64> = bins.iter().map(|bin| bin.calls).collect();
        // Up to 1 ns; from 128; from 181.02, of which 181 is just below; from 741,455.
        assert_eq!(counts, [1, 4, 1]);
        assert_eq!((bins[0].from_ns, bins[1].from_ns), (1.0, 128.0));
        assert!(bins[2].from_ns <= 1e6 && 1e6 < bins[2].from_ns * 1.42);
        assert!(bins.iter().all(|bin| start(number_of(bin)) == bin.from_ns));
        assert!(distribution(&[]).is_empty());
    }

    #[test]
    fn bars_are_of_the_most() {
        let bins = distribution(&[100.0, 100.0, 100.0, 5000.0]);
        assert_eq!(cell(&bins, number(100.0)), "████████ 75.0 %");
        assert_eq!(cell(&bins, number(5000.0)), "███ 25.0 %");
        assert_eq!(cell(&bins, number(700.0)), "");
    }
}
