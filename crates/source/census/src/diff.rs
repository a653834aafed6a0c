//! What changed between two sources.

use std::collections::{BTreeMap, BTreeSet};

use crate::kinds::{Kind, Kinds, Operation};
use crate::site::{Candidate, FileCensus};
use crate::source::Tree;

/// Operations of a function that became more or fewer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// The file.
    pub path: String,
    /// The function or macro.
    pub function: String,
    /// The kind of lock.
    pub kind: Kind,
    /// The operation.
    pub operation: Operation,
    /// How many there were.
    pub before: u64,
    /// How many there are.
    pub after: u64,
}

/// A lock that a function may leave held, and did not before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCandidate {
    /// The file.
    pub path: String,
    /// The function.
    pub function: String,
    /// The rest.
    pub candidate: Candidate,
}

/// A function in which locks nest deeper than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deeper {
    /// The file.
    pub path: String,
    /// The function.
    pub function: String,
    /// How deep before.
    pub before: u8,
    /// How deep now.
    pub after: u8,
}

/// All that changed.
#[derive(Debug, Clone, Default)]
pub struct Diff {
    /// Operations.
    pub changes: Vec<Change>,
    /// Locks that may stay held now.
    pub candidates: Vec<NewCandidate>,
    /// Functions whose locks nest deeper: only those that took locks before.
    pub deeper: Vec<Deeper>,
}

/// Compares two sources. A file that has moved has its operations removed and added.
pub fn diff(before: &Tree, after: &Tree) -> Diff {
    let mut diff = Diff::default();
    let paths: BTreeSet<&String> = before.files.keys().chain(after.files.keys()).collect();
    let none = FileCensus::default();
    for path in paths {
        let of = |tree: &'_ Tree| tree.files.get(path).cloned();
        let (old, new) = (of(before), of(after));
        let same = |a, b| std::sync::Arc::ptr_eq(a, b);
        if let (Some(old), Some(new)) = (&old, &new)
            && (same(old, new) || old.census.sites == new.census.sites && old == new)
        {
            continue;
        }
        let old = old.as_ref().map_or(&none, |counted| &counted.census);
        let new = new.as_ref().map_or(&none, |counted| &counted.census);
        file(path, old, new, &mut diff);
    }
    diff
}

fn file(path: &str, old: &FileCensus, new: &FileCensus, diff: &mut Diff) {
    let mut counts: BTreeMap<(String, Kind, Operation), (u64, u64)> = BTreeMap::new();
    let mut depths: BTreeMap<String, (u8, u8)> = BTreeMap::new();
    for (census, is_new) in [(old, false), (new, true)] {
        for site in census.sites.iter().filter(|site| !site.implementation) {
            let function = name_of(census, site.function);
            let depth = depths.entry(function.clone()).or_default();
            let side = if is_new { &mut depth.1 } else { &mut depth.0 };
            *side = (*side).max(site.depth);
            let count = counts.entry((function, site.kind, site.operation)).or_default();
            *(if is_new { &mut count.1 } else { &mut count.0 }) += 1;
        }
    }
    for ((function, kind, operation), (before, after)) in counts {
        if before != after {
            let path = path.to_owned();
            diff.changes.push(Change { path, function, kind, operation, before, after });
        }
    }
    for (function, (before, after)) in depths {
        if before > 0 && after > before {
            diff.deeper.push(Deeper { path: path.to_owned(), function, before, after });
        }
    }
    // The same lock in the same function may stay held at more places than before.
    let mut known: BTreeMap<(String, Kind, &str), u64> = BTreeMap::new();
    for candidate in &old.candidates {
        let key = (name_of(old, candidate.function), candidate.kind, &*candidate.lock);
        *known.entry(key).or_default() += 1;
    }
    for candidate in &new.candidates {
        let function = name_of(new, candidate.function);
        match known.get_mut(&(function.clone(), candidate.kind, &*candidate.lock)) {
            Some(left) if *left > 0 => *left -= 1,
            _ => diff.candidates.push(NewCandidate {
                path: path.to_owned(),
                function,
                candidate: candidate.clone(),
            }),
        }
    }
}

fn name_of(census: &FileCensus, function: u32) -> String {
    census.functions.get(function as usize).map_or("?".into(), |function| function.name.to_string())
}

/// How many more or fewer operations there are, by kind.
pub fn by_kind(diff: &Diff, kinds: &Kinds) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for change in &diff.changes {
        let sum = sums.entry(kinds.name(change.kind).into()).or_default();
        sum.0 += change.after.saturating_sub(change.before);
        sum.1 += change.before.saturating_sub(change.after);
    }
    sums
}
