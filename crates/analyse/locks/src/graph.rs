//! The report as drawings for other programs: the order of locks for Graphviz, waits as folded stacks
//! for flame graphs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::classes::Report;

/// The order graph in Graphviz's language: an arrow leads from a lock to one that was asked for while it was
/// held. Arrows of possible deadlocks are red.
pub fn dot(report: &Report) -> String {
    let mut out =
        String::from("digraph locks {\n  rankdir=LR;\n  node [shape=box, fontname=monospace];\n");
    let dangerous: BTreeSet<(&str, &str)> = report
        .deadlocks
        .iter()
        .flat_map(|deadlock| &deadlock.steps)
        .map(|step| (step.holds.as_str(), step.wants.as_str()))
        .collect();
    for order in &report.orders {
        let red = dangerous.contains(&(order.outer.as_str(), order.inner.as_str()));
        let _ = writeln!(
            out,
            "  {} -> {} [label=\"{}\"{}];",
            quoted(&order.outer),
            quoted(&order.inner),
            order.count,
            if red { ", color=red, penwidth=2" } else { "" },
        );
    }
    out.push_str("}\n");
    out
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Which end of a wait is at the root of its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charged {
    /// The place that held the lock: what to make shorter.
    Holder,
    /// The place that waited: what is held up.
    Waiter,
}

/// Waits as folded stacks, one a line, with nanoseconds: what `flamegraph.pl`, inferno and speedscope
/// read.
pub fn folded(report: &Report, charged: Charged) -> String {
    let mut out = String::new();
    let frame = |text: String| text.replace(';', ",").replace('\n', " ");
    for class in report.classes.iter().filter(|class| class.kind.is_lock()) {
        for pair in class.blocking.iter().filter(|pair| pair.waited_ns > 0) {
            let holder = pair.holder_text(class.kind);
            let (holder, waiter) = (frame(holder), frame(pair.waiter.text()));
            let lock = frame(format!("{} ({})", class.name, class.kind.name()));
            let (first, last) = match charged {
                Charged::Holder => (format!("held in {holder}"), format!("waited in {waiter}")),
                Charged::Waiter => (format!("waited in {waiter}"), format!("held in {holder}")),
            };
            let _ = writeln!(out, "{first};{lock};{last} {}", pair.waited_ns);
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Place;
    use crate::classes::{Blocking, Class, Kind, Losses, Sums};
    use crate::order::{Deadlock, Order, Step};

    /// Two locks in both orders, and a wait for the first.
    pub(crate) fn report() -> Report {
        let place = |name: &str| Place { function: name.to_owned(), ..Place::default() };
        let step = |holds: &str, wants: &str| Step {
            tid: 1,
            thread: String::new(),
            holds: holds.to_owned(),
            taken: place("f"),
            wants: wants.to_owned(),
            asked: place("f"),
        };
        let order = |outer: &str, inner: &str| Order {
            outer: outer.to_owned(),
            inner: inner.to_owned(),
            count: 3,
        };
        Report {
            duration_ns: 1,
            threads: 1,
            processes: 1,
            classes: vec![Class {
                name: "a".to_owned(),
                kind: Kind::Mutex,
                locks: 1,
                addresses: vec![64],
                sums: Sums::default(),
                sites: vec![],
                blocking: vec![Blocking {
                    waiter: place("short;er"),
                    holder: Some(place("longer")),
                    waited_ns: 70,
                    waits: 1,
                }],
                held_over: vec![],
                convoy: None,
            }],
            orders: vec![order("a", "b"), order("b", "a"), order("b", "\"c\"")],
            deadlocks: vec![Deadlock { steps: vec![step("a", "b"), step("b", "a")] }],
            shared_lines: vec![],
            losses: Losses::default(),
            rate: 1.0,
        }
    }

    #[test]
    fn arrows_of_deadlocks_are_red_and_names_are_quoted() {
        let dot = dot(&report());
        assert!(dot.contains("\"a\" -> \"b\" [label=\"3\", color=red"), "{dot}");
        assert!(dot.contains("\"b\" -> \"\\\"c\\\"\" [label=\"3\"];"), "{dot}");
    }

    #[test]
    fn waits_are_charged_to_either_end() {
        let text = folded(&report(), Charged::Holder);
        assert_eq!(text, "held in longer;a (mutex);waited in short,er 70\n");
        let text = folded(&report(), Charged::Waiter);
        assert_eq!(text, "waited in short,er;a (mutex);held in longer 70\n");
    }
}
