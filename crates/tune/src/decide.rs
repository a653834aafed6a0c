//! Deciding where hot code is to lie, from what was counted.

use fettle_cfg::Function;
use fettle_layout::figures::{self, CacheMap, Row};
use fettle_layout::group::{self, Hot};
use fettle_layout::lifted::Exactness;
use fettle_layout::model::{Addresses, Geometry};
use fettle_layout::promote::{self, Promoted};
use fettle_layout::{Chosen, Code, Options, lay_out};

use crate::count::ByFunction;

/// What to lay out of what was counted.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Only this function and what it leads to, and hot is what runs in more than `share` of its
    /// calls; else everything that ran.
    pub root: Option<String>,
    /// The share of the root's calls.
    pub share: f64,
    /// Take the way that is so many places behind the one that the model likes best.
    pub rank: usize,
}

/// A layout for one module.
#[derive(Debug)]
pub struct Decided {
    /// The functions that are laid out.
    pub code: Code,
    /// The layout, and what it costs by the model.
    pub chosen: Chosen,
    /// How many edges have exact counts.
    pub exactness: Exactness,
    /// How hot code lies on the instruction cache, before and after.
    pub maps: (CacheMap, CacheMap),
    /// The functions with their hot and cold parts.
    pub rows: Vec<Row>,
    /// The calls through pointers that are to be compared with their most frequent target.
    pub promoted: Promoted,
}

/// Lays out what ran of a module's functions for a cache. `None` if nothing did.
///
/// # Errors
///
/// In words, if there is no such root.
pub fn decide(
    functions: &[Function],
    counts: &ByFunction,
    wanted: &Group,
    geometry: Geometry,
) -> Result<Option<Decided>, String> {
    let (mut code, exactness) = Code::of(functions, |entry| counts.get(&entry));
    let mut options = Options { geometry, rank: wanted.rank, ..Options::default() };
    if let Some(name) = &wanted.root {
        let is_meant = |p: &fettle_layout::Procedure| fettle_collect::select::glob(name, &p.name);
        let Some(root) = code.procedures.iter().position(is_meant) else {
            return Err(format!("no function {name} of it ran"));
        };
        options.hot = Hot::of_root(&code, root, wanted.share);
        let members: Vec<usize> = group::group(&code, root)
            .into_iter()
            .filter(|p| code.procedures[*p].blocks.iter().any(|b| options.hot.is(b.count)))
            .collect();
        code = group::only(&code, &members);
    }
    if code.procedures.is_empty() {
        return Ok(None);
    }
    let chosen = lay_out(&code, &options);
    let before = Addresses::original(&code);
    // New code begins at a page.
    let after = Addresses::of_layout(&code, &chosen.layout, 1 << 32);
    let map = |addresses| CacheMap::new(&code, options.hot, addresses, options.geometry);
    let maps = (map(&before), map(&after));
    let rows = figures::group_table(&code, &chosen.layout, &after);
    let promoted = promote::choose(&code, options.hot);
    Ok(Some(Decided { code, chosen, exactness, maps, rows, promoted }))
}
