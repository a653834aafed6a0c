//! Several profiles as one: of many short runs, of several loads, of the servers of a fleet.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::saved::{Saved, SavedFunction, SavedModule, SavedTarget, cut};

impl Saved {
    /// All counts of some profiles, each multiplied by its weight.
    ///
    /// Modules are the same if their build is, functions if their bytes are, too: of a function that
    /// differs although the build is the same, the first one's counts are taken. Gives how many were
    /// left out.
    pub fn merge(profiles: impl IntoIterator<Item = (Saved, f64)>) -> (Saved, usize) {
        let mut modules: BTreeMap<String, SavedModule> = BTreeMap::new();
        let mut left_out = 0;
        for (profile, weight) in profiles {
            for mut module in profile.modules {
                module.functions.iter_mut().for_each(|function| weigh(function, weight));
                match modules.entry(module.build.clone()) {
                    Entry::Vacant(entry) => drop(entry.insert(module)),
                    Entry::Occupied(entry) => left_out += add(entry.into_mut(), module),
                }
            }
        }
        let mut modules: Vec<SavedModule> = modules.into_values().collect();
        modules.sort_by(|a, b| a.path.cmp(&b.path));
        (Saved { version: 1, modules }, left_out)
    }
}

fn weigh(function: &mut SavedFunction, weight: f64) {
    let counts = function.blocks.iter_mut().map(|(_, count)| count);
    let counts = counts.chain(function.edges.iter_mut().map(|(.., count)| count));
    for count in counts.chain(function.targets.iter_mut().map(|target| &mut target.count)) {
        // What ran at all is not to look as if it had not.
        let least = u64::from(*count > 0);
        *count = cut(((cut(*count) as f64 * weight) as u64).max(least));
    }
}

/// Adds the counts of a module to those of the same build; returns how many functions differ.
fn add(into: &mut SavedModule, module: SavedModule) -> usize {
    let mut known: BTreeMap<u64, SavedFunction> =
        std::mem::take(&mut into.functions).into_iter().map(|f| (f.entry, f)).collect();
    let mut left_out = 0;
    for function in module.functions {
        match known.entry(function.entry) {
            Entry::Vacant(entry) => drop(entry.insert(function)),
            Entry::Occupied(entry) if entry.get().bytes == function.bytes => {
                add_counts(entry.into_mut(), function);
            }
            Entry::Occupied(_) => left_out += 1,
        }
    }
    into.functions = known.into_values().collect();
    left_out
}

fn add_counts(into: &mut SavedFunction, function: SavedFunction) {
    let mut blocks: BTreeMap<u64, u64> = into.blocks.drain(..).collect();
    for (at, count) in function.blocks {
        let sum = blocks.entry(at).or_default();
        *sum = cut(sum.saturating_add(count));
    }
    into.blocks = blocks.into_iter().collect();
    let mut edges: BTreeMap<(u64, u64), u64> =
        into.edges.drain(..).map(|(from, to, count)| ((from, to), count)).collect();
    for (from, to, count) in function.edges {
        let sum = edges.entry((from, to)).or_default();
        *sum = cut(sum.saturating_add(count));
    }
    into.edges = edges.into_iter().map(|((from, to), count)| (from, to, count)).collect();
    let mut targets: BTreeMap<SavedTarget, u64> = BTreeMap::new();
    for target in into.targets.drain(..).chain(function.targets) {
        let count = target.count;
        let sum = targets.entry(SavedTarget { count: 0, ..target }).or_default();
        *sum = cut(sum.saturating_add(count));
    }
    into.targets =
        targets.into_iter().map(|(target, count)| SavedTarget { count, ..target }).collect();
    // One estimate makes the sum one.
    into.estimated |= function.estimated;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(build: &str, functions: &[(u64, u64, u64)]) -> Saved {
        let function = |&(entry, bytes, count): &(u64, u64, u64)| SavedFunction {
            entry,
            name: None,
            bytes,
            shape: None,
            pieces: Vec::new(),
            blocks: vec![(entry, count)],
            edges: vec![(entry, entry + 4, count)],
            targets: vec![SavedTarget { call: entry + 2, build: None, to: Some(1), count }],
            estimated: false,
        };
        let functions = functions.iter().map(function).collect();
        let module = SavedModule { path: format!("/{build}"), build: build.to_owned(), functions };
        Saved { version: 1, modules: vec![module] }
    }

    #[test]
    fn counts_of_the_same_build_are_added_by_weight() {
        let (first, second) =
            (profile("a", &[(16, 7, 10), (32, 8, 1)]), profile("a", &[(16, 7, 3)]));
        let other = profile("b", &[(16, 9, 5)]);
        let (merged, left_out) = Saved::merge([(first, 1.0), (second, 2.0), (other, 0.1)]);
        assert_eq!((merged.modules.len(), left_out), (2, 0));
        let functions = &merged.modules[0].functions;
        assert_eq!(functions[0].blocks, [(16, 16)]);
        assert_eq!(functions[0].edges, [(16, 20, 16)]);
        assert_eq!(functions[0].targets[0].count, 16);
        assert_eq!(functions[1].blocks, [(32, 1)]);
        // It ran, if seldom.
        assert_eq!(merged.modules[1].functions[0].blocks, [(16, 1)]);
    }

    #[test]
    fn what_differs_is_left_out_and_counted() {
        let (merged, left_out) =
            Saved::merge([(profile("a", &[(16, 7, 10)]), 1.0), (profile("a", &[(16, 8, 3)]), 1.0)]);
        assert_eq!((merged.modules[0].functions[0].blocks[0].1, left_out), (10, 1));
    }
}
