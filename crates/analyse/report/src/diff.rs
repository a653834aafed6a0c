//! Two traces side by side, function by function.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::report::{Analysis, FunctionRow};

/// What changed from one trace to another.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// Wall-clock nanoseconds before and after.
    pub duration_ns: (u64, u64),
    /// Self nanoseconds of all functions before and after, without the probes' cost.
    pub self_corrected_ns: (u64, u64),
    /// Calls before and after.
    pub calls: (u64, u64),
    /// Functions, largest change of self time first.
    pub rows: Vec<DiffRow>,
    /// Functions in either trace, shown or not.
    pub functions: u64,
    /// What is missing or wrong with either trace.
    pub warnings: Vec<String>,
}

/// One function in both traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffRow {
    /// Name.
    pub name: String,
    /// File name of its module.
    pub module: String,
    /// Before; zeros if it was not called.
    pub before: Side,
    /// After; zeros if it was not called.
    pub after: Side,
    /// Self time after, divided by self time before; `None` if there was none before.
    pub self_ratio: Option<f64>,
}

/// A function's figures in one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Calls.
    pub calls: u64,
    /// Self nanoseconds without the probes' cost.
    pub self_corrected_ns: u64,
    /// Total nanoseconds without the probes' cost.
    pub total_corrected_ns: u64,
}

impl Side {
    fn add(&mut self, row: &FunctionRow) {
        self.calls = self.calls.saturating_add(row.calls);
        self.self_corrected_ns = self.self_corrected_ns.saturating_add(row.self_corrected_ns);
        self.total_corrected_ns = self.total_corrected_ns.saturating_add(row.total_corrected_ns);
    }
}

impl Diff {
    /// Compares two traces; functions are the same if their names and their modules' names are.
    pub fn new(before: &Analysis, after: &Analysis, limit: usize) -> Diff {
        let mut sides: BTreeMap<(String, String), (Side, Side)> = BTreeMap::new();
        let mut sums = (Side::default(), Side::default());
        for row in before.functions() {
            sums.0.add(&row);
            sides.entry((row.name.clone(), row.module.clone())).or_default().0.add(&row);
        }
        for row in after.functions() {
            sums.1.add(&row);
            sides.entry((row.name.clone(), row.module.clone())).or_default().1.add(&row);
        }
        let functions = sides.len() as u64;
        let rows = sides.into_iter().map(|((name, module), (before, after))| {
            let ratio = after.self_corrected_ns as f64 / before.self_corrected_ns as f64;
            let self_ratio = (before.self_corrected_ns > 0).then_some(ratio);
            DiffRow { name, module, before, after, self_ratio }
        });
        let mut rows: Vec<DiffRow> = rows.collect();
        rows.sort_by_key(|row| {
            let change = row.before.self_corrected_ns.abs_diff(row.after.self_corrected_ns);
            let calls = row.before.calls.abs_diff(row.after.calls);
            std::cmp::Reverse((change, calls))
        });
        rows.truncate(limit);
        let mut warnings = Vec::new();
        for (which, analysis) in [("before", before), ("after", after)] {
            warnings.extend(analysis.warnings.iter().map(|text| format!("{which}: {text}")));
            if analysis.manifest.probe_mode != before.manifest.probe_mode {
                warnings.push("the traces were recorded in different probe modes".to_owned());
            }
        }
        Diff {
            version: crate::JSON_VERSION,
            duration_ns: (before.manifest.duration_ns, after.manifest.duration_ns),
            self_corrected_ns: (sums.0.self_corrected_ns, sums.1.self_corrected_ns),
            calls: (sums.0.calls, sums.1.calls),
            rows,
            functions,
            warnings,
        }
    }
}
