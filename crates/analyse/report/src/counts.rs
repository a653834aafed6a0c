//! How often blocks ran and edges were taken.

use std::collections::HashMap;

use fettle_trace::{Counter, CounterKind, Trace};
use fettle_types::FunctionIndex;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::report::Analysis;

/// Blocks of a program or of one function.
#[derive(Clone, Debug, Serialize)]
pub struct BlockView {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// Executions of all blocks.
    pub executions: u64,
    /// Blocks that ran.
    pub blocks: u64,
    /// Of the whole program: those that ran most often. Of one function: all that are known, in
    /// order of address.
    pub rows: Vec<BlockRow>,
}

/// One block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockRow {
    /// Its function.
    pub function: String,
    /// File name of the module.
    pub module: String,
    /// Link-time address.
    pub address: u64,
    /// Executions.
    pub count: u64,
    /// Where control went from it inside the function, and how often, if edges were counted.
    pub to: Vec<(u64, u64)>,
}

impl Analysis {
    /// Blocks of the function that `wanted` means, or the `limit` hottest of all.
    ///
    /// # Errors
    ///
    /// When there is no such function, or nothing was counted.
    pub fn blocks(&self, trace: &Trace, wanted: Option<&str>, limit: usize) -> Result<BlockView> {
        let counters = trace.counters()?;
        if counters.is_empty() {
            let mode = self.manifest.probe_mode.name();
            return Err(Error::NoCounts { mode });
        }
        let ids = wanted.map(|w| self.counted(w, &counters)).transpose()?;
        let wanted = |c: &&Counter| ids.as_ref().is_none_or(|ids| ids.contains(&c.function));
        let mut edges: HashMap<(FunctionIndex, u64), Vec<(u64, u64)>> = HashMap::new();
        for edge in counters.iter().filter(|c| c.kind == CounterKind::Edge).filter(wanted) {
            let to = (edge.to_address.unwrap_or(0), edge.count);
            edges.entry((edge.function, edge.from_address)).or_default().push(to);
        }
        let mut blocks: Vec<&Counter> =
            counters.iter().filter(|c| c.kind == CounterKind::Block).filter(wanted).collect();
        let executions = blocks.iter().fold(0u64, |sum, c| sum.saturating_add(c.count));
        let ran = blocks.iter().filter(|c| c.count > 0).count() as u64;
        match &ids {
            Some(_) => blocks.sort_by_key(|c| (c.function, c.from_address)),
            None => {
                blocks.sort_by(|a, b| {
                    let place = |c: &Counter| (c.function, c.from_address);
                    b.count.cmp(&a.count).then(place(a).cmp(&place(b)))
                });
                blocks.truncate(limit);
            }
        }
        let rows = blocks.into_iter().map(|c| {
            let mut to = edges.remove(&(c.function, c.from_address)).unwrap_or_default();
            to.sort_unstable();
            BlockRow {
                function: self.names.shown(c.function),
                module: self.names.get(c.function).map(|n| n.module.clone()).unwrap_or_default(),
                address: c.from_address,
                count: c.count,
                to,
            }
        });
        let rows = rows.collect();
        Ok(BlockView { version: crate::JSON_VERSION, executions, blocks: ran, rows })
    }

    /// The functions of one name that `wanted` means, among those that were counted.
    fn counted(&self, wanted: &str, counters: &[Counter]) -> Result<Vec<FunctionIndex>> {
        let mut ids = self.names.find(wanted);
        let ran = |id: &FunctionIndex| counters.iter().any(|c| c.function == *id);
        if ids.iter().any(ran) {
            ids.retain(ran);
        }
        self.one_name(wanted, ids)
    }
}
