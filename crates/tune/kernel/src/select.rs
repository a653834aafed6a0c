//! Which functions of the kernel are meant.

use fettle_isa::Flow;
use fettle_kernel_image::{Entry, Image};
use fettle_kernel_lift::{KernelFunction, Lifter, Reason, Skipped};
use fettle_kernel_live::tracer::Seen;
use fettle_record::select::glob;
use rustc_hash::{FxHashMap, FxHashSet};

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
        Selected::reached(lifter, root, &|_| true, &|_| Vec::new())
    }

    /// A function, and of all that it leads to what was seen to run: calls by function pointers are among
    /// that, and functions that no tracer sees.
    ///
    /// # Errors
    ///
    /// As [`Selected::by_names`].
    pub fn by_root_seen(lifter: &Lifter<'_>, root: &str, seen: &Seen) -> Result<Selected> {
        let ran = Ran::new(lifter.image(), seen);
        Selected::reached(lifter, root, &|entry| ran.may_run(entry), &|function| {
            ran.callees.get(&function).cloned().unwrap_or_default()
        })
    }

    fn reached(
        lifter: &Lifter<'_>,
        root: &str,
        runs: &dyn Fn(u64) -> bool,
        more: &dyn Fn(u64) -> Vec<u64>,
    ) -> Result<Selected> {
        let mut selected = Selected::by_names(lifter, &[root.to_string()])?;
        let starts = selected.functions.iter().map(KernelFunction::entry);
        let mut seen: FxHashSet<u64> = starts.collect();
        let mut next = |functions: &[KernelFunction]| -> Vec<u64> {
            let pointers = functions.iter().flat_map(|function| more(function.entry()));
            let found = targets(lifter.image(), functions).into_iter().chain(pointers);
            found.filter(|to| runs(*to) && seen.insert(*to)).collect()
        };
        let mut level = next(&selected.functions);
        while !level.is_empty() {
            let (functions, skipped) = lifter.lift(&level);
            level = next(&functions);
            selected.functions.extend(functions);
            selected.skipped.extend(skipped);
        }
        selected.or_error()
    }

    /// All functions that were seen to run, and those that no tracer sees and that are called by them.
    ///
    /// # Errors
    ///
    /// When none of them can be rewritten.
    pub fn by_seen(lifter: &Lifter<'_>, seen: &Seen) -> Result<Selected> {
        let ran = Ran::new(lifter.image(), seen);
        if ran.entries.is_empty() {
            return Err(Error::Idle(0));
        }
        let mut known = ran.entries.clone();
        let mut level: Vec<u64> = known.iter().copied().collect();
        level.sort_unstable();
        let mut selected = Selected::default();
        while !level.is_empty() {
            let (functions, skipped) = lifter.lift(&level);
            let found = targets(lifter.image(), &functions).into_iter();
            level = found.filter(|to| ran.may_run(*to) && known.insert(*to)).collect();
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

/// What the kernel's tracer saw, by functions.
struct Ran<'a> {
    image: &'a Image,
    /// Functions that were called.
    entries: FxHashSet<u64>,
    /// By function: which ones it called.
    callees: FxHashMap<u64, Vec<u64>>,
}

impl<'a> Ran<'a> {
    fn new(image: &'a Image, seen: &Seen) -> Ran<'a> {
        let start = |at: u64| image.functions.containing(at).map(|f| f.range.start);
        let mut ran = Ran { image, entries: FxHashSet::default(), callees: FxHashMap::default() };
        for (back, function) in seen.0.keys() {
            let Some(function) = start(*function) else { continue };
            ran.entries.insert(function);
            if let Some(caller) = start(back.wrapping_sub(1)) {
                ran.callees.entry(caller).or_default().push(function);
            }
        }
        ran
    }

    /// Whether the function at `entry` was seen, or could not be.
    fn may_run(&self, entry: u64) -> bool {
        let known = self.image.functions.starting(entry);
        self.entries.contains(&entry) || known.is_some_and(|f| f.entry == Entry::Plain)
    }
}

/// Entries of functions that these call or jump to.
fn targets(image: &Image, functions: &[KernelFunction]) -> Vec<u64> {
    let mut found = Vec::new();
    for function in functions {
        for index in 0..function.code.insns.len() {
            let (Flow::Call(to) | Flow::Jump(to) | Flow::Branch(to)) = function.code.flow(index)
            else {
                continue;
            };
            if image.functions.starting(to).is_some_and(|f| !f.cold) {
                found.push(to);
            }
        }
    }
    found
}
