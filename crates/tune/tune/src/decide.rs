//! Deciding on a layout of hot code, from counts.

use fettle_image::{Image, LinkAddr};
use fettle_lift::Function;
use fettle_place::figures::{self, CacheMap, Row};
use fettle_place::group::{self, Hot};
use fettle_place::lifted::{Exactness, name_of};
use fettle_place::model::{Addresses, Geometry};
use fettle_place::promote::{self, Promoted};
use fettle_place::{Chosen, Code, Options, lay_out};

use crate::profile::ByFunction;

/// What to lay out of the code that was counted.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Only this function and what it calls, and hot is what runs in more than `share` of its
    /// calls; else everything that ran.
    pub root: Option<String>,
    /// The share of the root's calls.
    pub share: f64,
    /// Take the layout at this rank by the model's cost, 0 being the best.
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
    /// Occupation of the instruction cache by hot code, before and after.
    pub maps: (CacheMap, CacheMap),
    /// The functions with their hot and cold parts.
    pub rows: Vec<Row>,
    /// The indirect calls that are compared with their most frequent target.
    pub promoted: Promoted,
}

/// Lays out what ran of a module's functions for a cache. `None` if nothing did.
///
/// # Errors
///
/// As text, if there is no such root.
pub fn decide(
    (image, functions): (&Image, &[Function]),
    counts: &ByFunction,
    wanted: &Group,
    geometry: Geometry,
) -> Result<Option<Decided>, String> {
    let (mut code, exactness) = Code::of(image, functions, |entry| counts.get(&entry));
    let mut options = Options { geometry, rank: wanted.rank, ..Options::default() };
    if let Some(pattern) = &wanted.root {
        let roots = roots(pattern, functions, &code)?;
        options.hot = Hot::of_roots(&code, &roots, wanted.share);
        let members: Vec<usize> = group::group(&code, &roots)
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
    // Rewritten text begins at a page.
    let after = Addresses::of_pieces(&code, &chosen.layout.pieces, 1 << 32);
    let map = |addresses| CacheMap::new(&code, options.hot, addresses, options.geometry);
    let maps = (map(&before), map(&after));
    let rows = figures::group_table(&code, &chosen.layout, &after);
    let promoted = promote::choose(&code, options.hot);
    Ok(Some(Decided { code, chosen, exactness, maps, rows, promoted }))
}

/// The functions that ran whose name, or address, matches a pattern.
fn roots(pattern: &str, functions: &[Function], code: &Code) -> Result<Vec<usize>, String> {
    let means = |name: &str, entry: LinkAddr| {
        fettle_record::select::glob(pattern, name) || pattern == entry.to_string()
    };
    let procedures = code.procedures.iter().enumerate();
    let roots: Vec<usize> =
        procedures.filter(|(_, p)| means(&p.name, p.entry)).map(|(i, _)| i).collect();
    match roots.is_empty() {
        false => Ok(roots),
        true if functions.iter().any(|f| means(&name_of(f), f.entry)) => {
            Err(format!("its function {pattern} did not run"))
        }
        true => Err(format!(
            "it has no function {pattern} (one without a symbol is called sub_ and its address)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use fettle_place::Counts;

    use super::*;

    #[test]
    fn a_pattern_means_all_functions_of_that_name() {
        let procedure = |entry: u64, name: &str| fettle_place::Procedure {
            entry: LinkAddr(entry),
            name: name.to_owned(),
            ..Default::default()
        };
        let names = [(0x10, "lua_next"), (0x20, "main"), (0x30, "lua_call"), (0x40, "sub_40")];
        let code = Code { procedures: names.map(|(at, name)| procedure(at, name)).into() };
        let found = |pattern: &str| roots(pattern, &[], &code);
        assert_eq!(found("lua_*"), Ok(vec![0, 2]));
        assert_eq!((found("sub_40"), found("0x40")), (Ok(vec![3]), Ok(vec![3])));
        assert!(found("nosuch").unwrap_err().contains("has no function nosuch"));
    }

    /// By a PLT call, as a library calls functions that may be interposed.
    #[test]
    fn a_root_leads_to_functions_that_the_library_shows() {
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("a.c"), folder.path().join("a.so"));
        let text = "int outer(int a) { extern int inner(int); return inner(a) + 1; }
            __attribute__((noinline)) int inner(int a) { return a * 3; }";
        std::fs::write(&source, text).unwrap();
        let mut compile = std::process::Command::new("cc");
        let built =
            compile.args(["-O1", "-shared", "-fPIC", "-o"]).args([&library, &source]).status();
        assert!(built.unwrap().success());
        let image = fettle_record::modules::open_image(&library).unwrap();
        let functions = fettle_lift::lift(&image).functions;
        let ran = |f: &Function| Counts {
            blocks: f.blocks.iter().map(|block| (block.start, 9)).collect(),
            ..Counts::default()
        };
        let counts: ByFunction = functions.iter().map(|f| (f.entry, ran(f))).collect();
        let group = Group { root: Some("outer".to_owned()), share: 0.05, rank: 0 };
        let decided =
            decide((&image, &functions), &counts, &group, Geometry::L1I).unwrap().unwrap();
        let names: Vec<&str> = decided.code.procedures.iter().map(|p| &*p.name).collect();
        assert_eq!(names, ["outer", "inner"]);
    }
}
