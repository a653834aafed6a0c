//! Sizes of messages: of each process, sent and received, and how sizes add up to all that was sent.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use fettle_stats::Distribution;

use super::analysis::{Analysis, Wanted};
use super::found::{Cell, Findable, Found, Unit, share};
use crate::session::Context;

const EVENTS: [Wanted; 4] = [
    ("sent", &["pid", "bytes"]),
    ("pipe_write", &["pid", "bytes"]),
    ("received", &["pid", "bytes"]),
    ("pipe_read", &["pid", "bytes"]),
];
const NAMES: [&str; 4] = ["sent", "written to pipes", "received", "read from pipes"];

/// The analysis.
#[derive(Default)]
pub(super) struct Messages {
    /// By process and event.
    sizes: HashMap<(u64, usize), Distribution>,
    /// Messages sent, by the power of two that their size does not exceed: how many, and bytes.
    sums: BTreeMap<u32, (u64, u64)>,
}

impl Analysis for Messages {
    fn events(&self) -> &'static [Wanted] {
        &EVENTS
    }

    fn event(&mut self, which: usize, _: u64, values: &[u64]) {
        let bytes = values[1];
        // Errors, and the end of a stream.
        if bytes as i64 <= 0 {
            return;
        }
        self.sizes.entry((values[0], which)).or_default().add(bytes, 1);
        if which < 2 {
            let sum = self.sums.entry(bytes.next_power_of_two().ilog2()).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(bytes));
        }
    }

    fn finish(self: Box<Self>, context: &Context<'_>) -> Found {
        let columns = [
            ("messages", Unit::Count),
            ("bytes", Unit::Bytes),
            ("mean", Unit::Bytes),
            ("p50", Unit::Bytes),
            ("p90", Unit::Bytes),
            ("p99", Unit::Bytes),
            ("max", Unit::Bytes),
            ("process", Unit::Text),
        ];
        let mut sizes = Findable::new("Sizes of messages", &columns);
        let mut all: Vec<_> = self.sizes.into_iter().collect();
        all.sort_by_key(|((pid, which), h)| (Reverse(h.sum()), *pid, *which));
        for ((pid, which), h) in all {
            sizes.rows.push(vec![
                Cell::Number(h.count()),
                Cell::Number(h.sum()),
                Cell::Number(h.mean()),
                Cell::Number(h.quantile(0.5)),
                Cell::Number(h.quantile(0.9)),
                Cell::Number(h.quantile(0.99)),
                Cell::Number(h.max()),
                Cell::Text(format!("{}  {}", context.process(pid), NAMES[which])),
            ]);
        }
        let columns = [
            ("messages", Unit::Count),
            ("so far", Unit::Share),
            ("bytes", Unit::Bytes),
            ("of all bytes so far", Unit::Share),
            ("size", Unit::Text),
        ];
        let mut sums = Findable::new("Messages sent, by size", &columns);
        let all = self.sums.values().fold((0, 0), |all, sum| (all.0 + sum.0, all.1 + sum.1));
        let mut so_far = (0, 0);
        for (power, (count, bytes)) in self.sums {
            so_far = (so_far.0 + count, so_far.1 + bytes);
            sums.rows.push(vec![
                Cell::Number(count),
                share(so_far.0, all.0),
                Cell::Number(bytes),
                share(so_far.1, all.1),
                Cell::Text(format!("up to {} bytes", 1u64 << power.min(63))),
            ]);
        }
        Found { tables: vec![sizes, sums], ..Found::default() }
    }
}
