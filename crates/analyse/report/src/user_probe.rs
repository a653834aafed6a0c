//! What a user probe counted.

use std::collections::BTreeMap;

use fettle_trace::{Merge, Trace};
use fettle_types::FunctionIndex;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::report::Analysis;

/// Values of all functions.
#[derive(Clone, Debug, Serialize)]
pub struct UserView {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// Names of the counters.
    pub fields: Vec<String>,
    /// Functions in all.
    pub functions: u64,
    /// Those with the greatest first values, largest first.
    pub rows: Vec<UserRow>,
}

/// Values of one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UserRow {
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
    pub fn user_probe(&self, trace: &Trace, limit: usize) -> Result<UserView> {
        let fields = &self.manifest.user_fields;
        if fields.is_empty() {
            return Err(Error::NoOwn { mode: self.manifest.probe_mode.name() });
        }
        let mut sums: BTreeMap<FunctionIndex, Vec<u64>> = BTreeMap::new();
        for value in trace.user_values()? {
            let at = value.field as usize;
            let Some(field) = fields.get(at) else { continue };
            let sum = &mut sums.entry(value.function).or_insert_with(|| vec![0; fields.len()])[at];
            *sum = match field.merge {
                Merge::Sum => sum.saturating_add(value.value),
                Merge::Max => value.value.max(*sum),
            };
        }
        let mut rows: Vec<UserRow> = sums
            .into_iter()
            .map(|(function, values)| UserRow {
                name: self.names.shown(function),
                module: self.names.get(function).map(|n| n.module.clone()).unwrap_or_default(),
                values,
            })
            .collect();
        rows.sort_by(|a, b| b.values.cmp(&a.values));
        let functions = rows.len() as u64;
        rows.truncate(limit);
        let fields = fields.iter().map(|f| f.name.clone()).collect();
        Ok(UserView { version: crate::JSON_VERSION, fields, functions, rows })
    }
}
