//! One function: who calls it and what it calls.

use std::collections::HashMap;

use serde::Serialize;

use fettle_types::FunctionIndex;

use crate::error::Result;
use crate::report::{Analysis, FunctionRow};
use crate::tree::{FOLDED, ROOT};

/// A function with its callers and callees.
#[derive(Clone, Debug, Serialize)]
pub struct Focus {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// The function; several rows if several have the same name.
    pub functions: Vec<FunctionRow>,
    /// Whether records are missing, so that callers and callees are of a part of the calls.
    pub partial: bool,
    /// Why callers and callees are not known, if the trace has none.
    pub unknown: Option<String>,
    /// Who called it, by time. A caller of `null` stands for calls from outside.
    pub callers: Vec<Neighbour>,
    /// What it called, by time.
    pub callees: Vec<Neighbour>,
    /// What is missing or wrong with the trace.
    pub warnings: Vec<String>,
}

/// A caller or callee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neighbour {
    /// Its name; `None` for code that was not probed, or for a caller outside the recording.
    pub name: Option<String>,
    /// Recorded calls between the two.
    pub calls: u64,
    /// Nanoseconds of those calls, with what they called, as measured.
    pub total_ns: u64,
}

impl Analysis {
    /// The function called `wanted`, with callers and callees.
    pub fn focus(&self, wanted: &str) -> Result<Focus> {
        let ids = self.find(wanted)?;
        let nodes = self.profile.tree.nodes();
        let mut callers: HashMap<Option<FunctionIndex>, (u64, u64)> = HashMap::new();
        let mut callees: HashMap<Option<FunctionIndex>, (u64, u64)> = HashMap::new();
        for node in nodes.iter().skip(2) {
            let caller = match node.parent {
                ROOT | FOLDED => None,
                parent => Some(nodes[parent as usize].function),
            };
            let add = |map: &mut HashMap<_, (u64, u64)>, key| {
                let sum = map.entry(key).or_default();
                sum.0 = sum.0.saturating_add(node.calls);
                sum.1 = sum.1.saturating_add(node.total_ns);
            };
            if ids.contains(&node.function) {
                add(&mut callers, caller);
            }
            if caller.is_some_and(|caller| ids.contains(&caller)) {
                add(&mut callees, Some(node.function));
            }
        }
        let rows = |map: HashMap<Option<FunctionIndex>, (u64, u64)>| {
            let rows = map.into_iter().map(|(function, (calls, total_ns))| Neighbour {
                name: function.map(|function| self.names.shown(function)),
                calls,
                total_ns,
            });
            let mut rows: Vec<Neighbour> = rows.collect();
            rows.sort_by(|a, b| {
                let order = b.total_ns.cmp(&a.total_ns).then(b.calls.cmp(&a.calls));
                order.then_with(|| a.name.cmp(&b.name))
            });
            rows
        };
        let mut functions = self.functions();
        functions.retain(|row| ids.contains(&row.id));
        functions.sort_by_key(|row| row.id);
        Ok(Focus {
            version: crate::JSON_VERSION,
            functions,
            partial: self.partial(),
            unknown: self.need_records("who calls whom").err().map(|error| error.to_string()),
            callers: rows(callers),
            callees: rows(callees),
            warnings: self.warnings.clone(),
        })
    }
}
