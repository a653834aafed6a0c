//! Targets of indirect calls: the tables that copies with counters fill.
//!
//! A table has a target and a count in each bucket (`fettle_rewrite::pointer`). Words of several
//! processes cannot be added up like counters: each target is taken by itself, and then looked for
//! among the functions of the modules.

use std::collections::HashMap;
use std::sync::Arc;

use fettle_code::pointers::{BUCKETS, COUNTERS, WORDS};
use fettle_image::LinkAddr;
use fettle_live::LiveAddr;
use fettle_place::Target;

use crate::counters::Copies;
use crate::module::Module;
use crate::profile;
use crate::profile::ByFunction;

/// The table of one call.
struct Table {
    /// Its first word, among all counters.
    first: usize,
    /// Which of the copies it is of, and which of its functions.
    code: usize,
    function: LinkAddr,
    /// The call.
    at: LinkAddr,
}

/// What all tables hold.
pub(crate) struct Targets {
    tables: Vec<Table>,
    /// How often each address was called, by table.
    seen: HashMap<(usize, u64), u64>,
}

impl Targets {
    /// The tables of copies.
    pub(crate) fn new(copies: &Copies) -> Targets {
        let mut tables = Vec::new();
        for (code, (new, (_, first))) in copies.codes.iter().zip(&copies.places).enumerate() {
            for planned in &new.plan.functions {
                let behind = u64::from(planned.counters.0) + planned.counters.1.len() as u64;
                for (n, at) in planned.pointers.iter().enumerate() {
                    let first = (first + behind) as usize + n * COUNTERS as usize;
                    tables.push(Table { first, code, function: planned.entry, at: *at });
                }
            }
        }
        Targets { tables, seen: HashMap::new() }
    }

    /// Adds what a process has counted; these are all its counters.
    pub(crate) fn take(&mut self, counters: &[u8]) {
        let word = |n: usize| {
            let bytes = counters.get(n * 8..n * 8 + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        for (t, table) in self.tables.iter().enumerate() {
            for bucket in 0..BUCKETS as usize {
                let at = table.first + bucket * WORDS as usize;
                let (Some(target), Some(count)) = (word(at), word(at + 1)) else { continue };
                if target != 0 {
                    // The first call only stores the target.
                    *self.seen.entry((t, target)).or_default() += count.max(1);
                }
            }
        }
    }

    /// Adds all of it to the counts of the modules' functions.
    pub(crate) fn give(&self, copies: &Copies, modules: &[Module], into: &mut [ByFunction]) {
        let builds: Vec<Arc<str>> =
            modules.iter().map(|module| profile::build(&module.image).into()).collect();
        for ((t, address), count) in &self.seen {
            let table = &self.tables[*t];
            let (own, _) = copies.places[table.code];
            // Functions without counts have no entry.
            let Some(counts) = into[own].get_mut(&table.function) else { continue };
            let found = modules.iter().zip(&builds).enumerate().find_map(|(m, (module, build))| {
                let to = LiveAddr(*address) - module.loaded.bias;
                let functions = &module.lifted.functions;
                functions.binary_search_by_key(&to, |f| f.entry).ok()?;
                Some(if m == own { Target::Here(to) } else { Target::Module(build.clone(), to) })
            });
            let target = found.unwrap_or(Target::Unknown);
            *counts.targets.entry((table.at, target)).or_default() += count;
        }
    }
}
