//! What a user probe counted.

use std::collections::BTreeMap;

use fettle_trace::{Merge, Trace};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::report::Analysis;

/// Values of all functions.
#[derive(Clone, Debug, Serialize)]
pub struct OwnView {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// Names of the counters.
    pub fields: Vec<String>,
    /// Functions in all.
    pub functions: u64,
    /// Those with the greatest first values, largest first.
    pub rows: Vec<OwnRow>,
}

/// Values of one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnRow {
    /// The function.
    pub name: String,
    /// File name of its module.
    pub module: String,
    /// Its values, in order of the fields.
    pub values: Vec<u64>,
}

impl Analysis {
    /// What a user probe counted, for `limit` functions.
    ///
    /// # Errors
    ///
    /// When the trace has none.
    pub fn own(&self, trace: &Trace, limit: usize) -> Result<OwnView> {
        let fields = &self.manifest.own_fields;
        if fields.is_empty() {
            return Err(Error::NoOwn { mode: self.manifest.probe_mode.name() });
        }
        let mut sums: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for value in trace.own()? {
            let at = value.field as usize;
            let Some(field) = fields.get(at) else { continue };
            let sum = &mut sums.entry(value.function).or_insert_with(|| vec![0; fields.len()])[at];
            *sum = match field.merge {
                Merge::Sum => sum.saturating_add(value.value),
                Merge::Max => value.value.max(*sum),
            };
        }
        let mut rows: Vec<OwnRow> = sums
            .into_iter()
            .map(|(function, values)| OwnRow {
                name: self.names.shown(function),
                module: self.names.get(function).map(|n| n.module.clone()).unwrap_or_default(),
                values,
            })
            .collect();
        rows.sort_by(|a, b| b.values.cmp(&a.values));
        let functions = rows.len() as u64;
        rows.truncate(limit);
        let fields = fields.iter().map(|f| f.name.clone()).collect();
        Ok(OwnView { version: crate::JSON_VERSION, fields, functions, rows })
    }
}
