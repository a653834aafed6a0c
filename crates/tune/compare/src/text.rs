//! A comparison as text.

use std::fmt::Write;

use fettle_report::render::{Column, Table, Terminal, column, duration, may_go};
use fettle_stats::Interval;

use crate::result::{Comparison, Loaded, Row, RowKind, Skipped};

/// Most changes by load that are shown.
const CHANGES: usize = 8;

/// The whole comparison for people.
pub fn text(comparison: &Comparison, terminal: Terminal) -> String {
    let mut out = String::new();
    for system in comparison.systems.iter().filter(|system| !system.release.is_empty()) {
        let _ = writeln!(out, "{}: {}", system.name, system.release);
    }
    let _ = writeln!(out, "{}", how(comparison));
    for loaded in &comparison.loads {
        let _ = writeln!(out, "\n{}:", load_name(loaded.spinners));
        table(comparison, loaded, terminal, &mut out);
    }
    let changed = comparison.changed_by_load();
    if !changed.is_empty() {
        out.push_str("\nWhat other load changes most:\n");
    }
    for change in changed.iter().take(CHANGES) {
        let _ = writeln!(
            out,
            "  {} on {}: {} with {}, {} with {}",
            change.name,
            change.system,
            ratio(change.least.1.value),
            load_name(change.least.0),
            ratio(change.most.1.value),
            load_name(change.most.0),
        );
    }
    if changed.len() > CHANGES {
        let _ = writeln!(out, "  … and {} more", changed.len() - CHANGES);
    }
    skipped(&comparison.skipped, &mut out);
    out
}

/// The same with a line for each system, for few operations on many of them.
pub fn text_by_system(comparison: &Comparison, terminal: Terminal) -> String {
    let mut out = format!("{}\n", how(comparison));
    for loaded in &comparison.loads {
        out.push('\n');
        let mut columns: Vec<Column<'_>> = Vec::new();
        for row in &loaded.rows {
            columns.extend([column(&row.name), column("×"), may_go("95 %", 2).dim()]);
        }
        let mut table = Table::new(&columns, "");
        for (at, system) in comparison.systems.iter().enumerate() {
            let cells = loaded.rows.iter().flat_map(|row| {
                let cell = row.cells[at].as_ref();
                let found = cell.and_then(|cell| cell.ratio);
                [
                    cell.map_or("-".to_owned(), |cell| time(cell.ns)),
                    found.map_or(String::new(), |found| ratio(found.value)),
                    found.map_or(String::new(), interval),
                ]
            });
            table.row(cells.chain([system.name.clone()]));
        }
        // What could not be had at all is a row, too.
        for missing in comparison.skipped.iter().filter(|skipped| skipped.name.is_none()) {
            let cells = loaded.rows.iter().flat_map(|_| ["-", "", ""].map(str::to_owned));
            table.row(cells.chain([format!("{}: {}", missing.system, missing.why)]));
        }
        table.render(terminal, &mut out);
    }
    let others = comparison.skipped.iter().filter(|skipped| skipped.name.is_some());
    skipped(&others.cloned().collect::<Vec<_>>(), &mut out);
    out
}

/// How it was measured, in a line.
pub(crate) fn how(comparison: &Comparison) -> String {
    let first = comparison.systems.first().map_or("", |system| system.name.as_str());
    let turns = match comparison.turn_ns {
        0 => "runs".to_owned(),
        ns => format!("turns of {}", duration(ns)),
    };
    let rounds = match comparison.rounds {
        1 => "1 round".to_owned(),
        n => format!("{n} rounds"),
    };
    let mut text =
        format!("{}; {rounds}, each with two {turns} on every system", comparison.machine);
    if comparison.systems.len() > 1 {
        let _ = write!(text, "; × is to {first}, median and 95 % interval");
    }
    text
}

/// A load, in words.
pub(crate) fn load_name(spinners: u32) -> String {
    match spinners {
        0 => "no other load".to_owned(),
        1 => "1 computing thread for each processor".to_owned(),
        n => format!("{n} computing threads for each processor"),
    }
}

fn table(comparison: &Comparison, loaded: &Loaded, terminal: Terminal, out: &mut String) {
    let mut columns: Vec<Column<'_>> = Vec::new();
    for (at, system) in comparison.systems.iter().enumerate() {
        if at == 0 {
            columns.push(column(&system.name));
        } else {
            columns.push(may_go(&system.name, 1));
            columns.push(column("×"));
            columns.push(may_go("95 %", 2).dim());
        }
    }
    let mut table = Table::new(&columns, "");
    for row in &loaded.rows {
        let mut cells = Vec::new();
        for (at, cell) in row.cells.iter().enumerate() {
            cells.push(cell.as_ref().map_or("-".to_owned(), |cell| time(cell.ns)));
            if at > 0 {
                let found = cell.as_ref().and_then(|cell| cell.ratio);
                cells.push(found.map_or(String::new(), |found| ratio(found.value)));
                cells.push(found.map_or(String::new(), interval));
            }
        }
        cells.push(label(row));
        table.row(cells);
    }
    table.render(terminal, out);
}

/// What a row is called.
pub(crate) fn label(row: &Row) -> String {
    match row.kind {
        RowKind::Operation => row.name.clone(),
        RowKind::Wall | RowKind::Cpu => row.what.clone(),
    }
}

/// A time with three digits.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 9.995 => format!("{ns:.2} ns"),
        ns if ns < 99.95 => format!("{ns:.1} ns"),
        ns => duration(ns.round() as u64),
    }
}

/// A ratio with three digits.
pub(crate) fn ratio(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("×{value:.2}"),
        value if value < 99.95 => format!("×{value:.1}"),
        value => format!("×{value:.0}"),
    }
}

/// The ends of an interval, with the digits that ratios have.
pub(crate) fn interval(interval: Interval) -> String {
    let bare = |value| ratio(value).trim_start_matches('×').to_owned();
    format!("[{}–{}]", bare(interval.low), bare(interval.high))
}

/// What could not be measured: operations that failed for the same reason in one line.
pub(crate) fn skipped(skipped: &[Skipped], out: &mut String) {
    let mut lines: Vec<(&Skipped, Vec<&str>)> = Vec::new();
    for skipped in skipped {
        let same = |(other, _): &&mut (&Skipped, Vec<&str>)| {
            other.system == skipped.system && other.why == skipped.why
        };
        let name = skipped.name.as_deref();
        match lines.iter_mut().find(same) {
            Some((_, names)) => names.extend(name),
            None => lines.push((skipped, name.into_iter().collect())),
        }
    }
    if !lines.is_empty() {
        out.push('\n');
    }
    for (skipped, mut names) in lines {
        names.dedup();
        let _ = match names[..] {
            [] => writeln!(out, "left out: {}", skipped.why),
            _ => writeln!(
                out,
                "not measured on {}: {}: {}",
                skipped.system,
                names.join(", "),
                skipped.why
            ),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::SystemInfo;

    #[test]
    fn times_and_ratios_have_three_digits() {
        assert_eq!(time(0.456), "0.46 ns");
        assert_eq!(time(21.04), "21.0 ns");
        assert_eq!(time(1234.0), "1.23 µs");
        assert_eq!(
            (ratio(0.994), ratio(12.34), ratio(213.4)),
            ("×0.99".into(), "×12.3".into(), "×213".into())
        );
        assert_eq!(interval(Interval { value: 2.0, low: 1.5, high: 20.0 }), "[1.50–20.0]");
    }

    #[test]
    fn a_comparison_is_shown_with_what_is_missing() {
        let rounds = |ns: f64| Some(vec![ns; 8]);
        let row = Row {
            kind: RowKind::Operation,
            name: "null".into(),
            group: "calls".into(),
            what: "getppid".into(),
            cells: Row::cells_of(&[rounds(100.0), rounds(1300.0), None]),
        };
        let info = |name: &str| SystemInfo { name: name.into(), release: "1".into() };
        let note = |name: Option<&str>| Skipped {
            system: "b".into(),
            name: name.map(str::to_owned),
            why: "no such call".into(),
        };
        let comparison = Comparison {
            version: 1,
            machine: "a machine".into(),
            systems: vec![info("native"), info("a"), info("b")],
            rounds: 8,
            turn_ns: 20_000_000,
            loads: vec![Loaded { spinners: 0, rows: vec![row] }],
            skipped: vec![note(Some("null")), note(Some("stat"))],
        };
        let shown = text(&comparison, Terminal::default());
        assert!(shown.contains(" ×13.0  [13.0–13.0]"), "{shown}");
        assert!(shown.contains("not measured on b: null, stat: no such call"), "{shown}");
        let mut comparison = comparison;
        comparison.skipped.push(Skipped {
            system: "kprobe".into(),
            name: None,
            why: "this kernel has none".into(),
        });
        let by_system = text_by_system(&comparison, Terminal::default());
        assert!(by_system.contains("1.30 µs  ×13.0"), "{by_system}");
        assert!(by_system.contains("kprobe: this kernel has none\n"), "{by_system}");
        assert!(shown.contains("8 rounds, each with two turns of 20.0 ms"), "{shown}");
    }
}
