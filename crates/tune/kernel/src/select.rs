//! Which functions of the kernel are meant.

use fettle_isa::Flow;
use fettle_kernel_image::Image;
use fettle_kernel_lift::{KernelFunction, Lifter, Reason, Skipped};
use fettle_record::select::glob;
use rustc_hash::FxHashSet;

use crate::{Error, Result};

/// Functions that can be rewritten, and those that are left unmodified.
#[derive(Debug, Default)]
pub struct Selected {
    /// Lifted.
    pub functions: Vec<KernelFunction>,
    /// With reasons.
    pub skipped: Vec<Skipped>,
}

impl Selected {
    /// The functions whose names one of the patterns matches, with `*` and `?`. Of functions that share a
    /// name, all.
    ///
    /// # Errors
    ///
    /// When nothing matches, or nothing that does can be rewritten.
    pub fn by_names(lifter: &Lifter<'_>, patterns: &[String]) -> Result<Selected> {
        let mut entries = Vec::new();
        let mut skipped = Vec::new();
        for pattern in patterns {
            let all = lifter.image().functions.all().iter().filter(|f| !f.cold);
            let found: Vec<_> = all.filter(|f| glob(pattern, &f.name)).collect();
            if found.is_empty() && !pattern.contains(['*', '?']) {
                skipped.push(Skipped {
                    name: pattern.clone(),
                    entry: 0,
                    reason: Reason::NoFunction,
                    at: 0,
                });
            }
            entries.extend(found.iter().map(|f| f.range.start));
        }
        entries.sort_unstable();
        entries.dedup();
        if entries.is_empty() {
            return Err(Error::NoMatch(patterns.join(",")));
        }
        let (functions, more) = lifter.lift(&entries);
        skipped.extend(more);
        Selected { functions, skipped }.or_error()
    }

    /// A function and all that it leads to by calls that say where.
    ///
    /// # Errors
    ///
    /// As [`Selected::by_names`].
    pub fn by_root(lifter: &Lifter<'_>, root: &str) -> Result<Selected> {
        let mut selected = Selected::by_names(lifter, &[root.to_string()])?;
        let starts = selected.functions.iter().map(KernelFunction::entry);
        let mut seen: FxHashSet<u64> = starts.collect();
        let mut level: Vec<u64> = targets(lifter.image(), &selected.functions, &mut seen);
        while !level.is_empty() {
            let (functions, skipped) = lifter.lift(&level);
            level = targets(lifter.image(), &functions, &mut seen);
            selected.functions.extend(functions);
            selected.skipped.extend(skipped);
        }
        selected.or_error()
    }

    fn or_error(self) -> Result<Selected> {
        match self.skipped.first() {
            Some(first) if self.functions.is_empty() => Err(Error::AllSkipped {
                count: self.skipped.len(),
                name: first.name.clone(),
                reason: first.reason.describe(),
            }),
            _ => Ok(self),
        }
    }
}

/// Entries of functions that these call or jump to and that were not seen before.
fn targets(image: &Image, functions: &[KernelFunction], seen: &mut FxHashSet<u64>) -> Vec<u64> {
    let mut found = Vec::new();
    for function in functions {
        for index in 0..function.code.insns.len() {
            let (Flow::Call(to) | Flow::Jump(to) | Flow::Branch(to)) = function.code.flow(index)
            else {
                continue;
            };
            let is_entry = image.functions.starting(to).is_some_and(|f| !f.cold);
            if is_entry && seen.insert(to) {
                found.push(to);
            }
        }
    }
    found
}
