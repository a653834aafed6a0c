//! Counting functions of the kernel while it runs.

use fettle_image::LinkAddr;
use fettle_kernel_emit as emit;
use fettle_kernel_lift::{KernelFunction, Lifter, Skipped};
use fettle_kernel_live::journal::Purpose;
use fettle_kernel_live::{Installed, Status, install};
use fettle_lift::edges::Place;
use fettle_place::lifted::Counts;
use rustc_hash::FxHashMap;

use crate::emission::emit_checked;
use crate::select::Selected;
use crate::{Error, Result};

/// How often a function was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Its symbol.
    pub name: String,
    /// Where the original begins.
    pub entry: u64,
    /// Calls since counting began.
    pub calls: u64,
}

/// Counters in the kernel. They go away with this value, however it ends.
#[derive(Debug)]
pub struct Counting {
    installed: Installed,
    places: Vec<fettle_kernel_live::Counter>,
    meanings: Vec<emit::Counter>,
    names: FxHashMap<u64, String>,
    /// Functions that are left unmodified.
    pub skipped: Vec<Skipped>,
}

impl Counting {
    /// Installs copies of functions that count. With a `root` callers are led to that one alone, and the
    /// others count only where it leads to them.
    ///
    /// # Errors
    ///
    /// When none can be counted, or the kernel does not take them.
    pub fn start(
        lifter: &Lifter<'_>,
        selected: Selected,
        what: emit::Counting,
        root: Option<&str>,
    ) -> Result<Counting> {
        let Selected { functions, mut skipped } = selected;
        // Only calls within the group would lead to what has no room for a jump at its entry.
        let (functions, crowded): (Vec<KernelFunction>, Vec<_>) = functions
            .into_iter()
            .partition(|f| f.room.is_some() || root.is_some_and(|root| root != f.name));
        skipped.extend(crowded.into_iter().map(|function| Skipped {
            entry: function.entry(),
            at: function.behind_fentry(),
            name: function.name,
            reason: fettle_kernel_lift::Reason::CrowdedEntry,
        }));
        let mut made = emit_checked(lifter, &functions, &emit::Order::Identity, what);
        skipped.extend(made.skipped);
        if made.plan.functions.is_empty() {
            return Err(Error::AllSkipped {
                count: skipped.len(),
                name: skipped.first().map_or("?", |first| &first.name).to_string(),
                reason: skipped.first().map_or("?", |first| first.reason.describe()),
            });
        }
        if let Some(root) = root {
            made.plan.functions.iter_mut().filter(|f| f.name != root).for_each(|f| f.patch = None);
        }
        // What counts need not be fast, and hides nothing from a tracer that is attached to an original.
        made.plan.call_by_originals();
        let (installed, places) = install(&made.plan, lifter.image(), Purpose::Count)?;
        let names = made.plan.functions.iter().map(|f| (f.original, f.name.clone())).collect();
        Ok(Counting { installed, places, meanings: made.counters, names, skipped })
    }

    /// What the module in the kernel reports.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn status(&self) -> Result<Status> {
        Ok(self.installed.status()?)
    }

    /// Calls of all functions, the most first.
    ///
    /// # Errors
    ///
    /// When counters cannot be read.
    pub fn calls(&self) -> Result<Vec<Count>> {
        let values = self.installed.read_counters(&self.places)?;
        let mut counts: Vec<Count> = self
            .meanings
            .iter()
            .zip(values)
            .filter(|(counter, _)| counter.place == Place::Entry)
            .map(|(counter, calls)| Count {
                name: self.names.get(&counter.function).cloned().unwrap_or_default(),
                entry: counter.function,
                calls,
            })
            .collect();
        counts.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.name.cmp(&b.name)));
        Ok(counts)
    }

    /// Executions of all blocks, by function.
    ///
    /// # Errors
    ///
    /// When counters cannot be read.
    pub fn blocks(&self, functions: &[KernelFunction]) -> Result<FxHashMap<LinkAddr, Counts>> {
        let values = self.installed.read_counters(&self.places)?;
        let by_entry: FxHashMap<u64, &KernelFunction> =
            functions.iter().map(|function| (function.entry(), function)).collect();
        let mut counts: FxHashMap<LinkAddr, Counts> = FxHashMap::default();
        for (counter, value) in self.meanings.iter().zip(values) {
            if let (Place::Block(block), Some(function)) =
                (counter.place, by_entry.get(&counter.function))
            {
                let start = function.code.blocks[block.index()].start;
                let of = counts.entry(LinkAddr(counter.function)).or_default();
                of.blocks.insert(start, value);
            }
        }
        Ok(counts)
    }

    /// Takes the counters out and removes the module.
    ///
    /// # Errors
    ///
    /// When threads cannot leave counted functions now.
    pub fn finish(self) -> Result<()> {
        Ok(fettle_kernel_live::remove(self.installed)?)
    }
}
