//! Modules of a crate form no circles: a reader of one reads what it depends on, and never comes
//! back to where reading began.
//!
//! A module knows another when it imports from it or names a path into it. Names that a module only
//! passes on (`pub use`) lead to where they are defined, so a crate's root may show everything to
//! the outside without knowing anything. Tests may know what they like.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use syn::visit::{self, Visit};

use super::source::{Problem, Source};

/// A path inside a crate: `["stop", "wait"]` is `crate::stop::wait`.
type Path = Vec<String>;

/// The kernel of the lab: threads have memory, memory has locks, locks spin on CPUs, and CPUs run threads.
const KERNEL: &str = "lab";

/// Adds a problem for each circle of modules.
pub fn check(sources: &[Source], problems: &mut Vec<Problem>) -> Result<()> {
    for (root, files) in crates_of(sources) {
        let circles = circles(&files)?;
        if root == KERNEL {
            continue;
        }
        for circle in circles {
            let what = format!("modules in a circle:\n    {}", circle.join("\n    "));
            problems.push(Problem { place: format!("{root}/src"), what });
        }
    }
    Ok(())
}

/// Source files of each crate, by the crate's folder.
fn crates_of(sources: &[Source]) -> BTreeMap<String, Vec<&Source>> {
    let mut crates: BTreeMap<String, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        if let Some((root, file)) = source.name.split_once("/src/")
            && file.ends_with(".rs")
            && !file.starts_with("bin/")
        {
            crates.entry(root.to_string()).or_default().push(source);
        }
    }
    crates
}

/// Sets of modules that know each other, directly or through others: a line for each module, with
/// what it takes from which of the others.
fn circles(files: &[&Source]) -> Result<Vec<Vec<String>>> {
    let mut modules = BTreeMap::new();
    for file in files {
        let parsed = syn::parse_file(&file.text).with_context(|| file.name.clone())?;
        let path = module_path(&file.name);
        if !is_test(&path) {
            modules.insert(path, Module::read(&parsed));
        }
    }
    let paths: Vec<&Path> = modules.keys().collect();
    let number: BTreeMap<&Path, usize> = paths.iter().enumerate().map(|(n, p)| (*p, n)).collect();
    let mut graph: DiGraphMap<usize, ()> = DiGraphMap::new();
    let mut names: BTreeMap<(usize, usize), BTreeSet<&str>> = BTreeMap::new();
    for (path, module) in &modules {
        for used in &module.uses {
            let Some(target) = resolve(&modules, path, used, 0) else { continue };
            if target != *path {
                let edge = (number[path], number[&target]);
                graph.add_edge(edge.0, edge.1, ());
                names.entry(edge).or_default().extend(used.last().map(String::as_str));
            }
        }
    }
    let mut found: Vec<Vec<String>> = tarjan_scc(&graph)
        .into_iter()
        .filter(|set| set.len() > 1)
        .map(|set| {
            let mut lines: Vec<String> =
                set.iter().map(|n| line(*n, &set, &names, &|n| display(paths[n]))).collect();
            lines.sort();
            lines
        })
        .collect();
    found.sort();
    Ok(found)
}

/// `a -> b (f, g), c (h)`: what a module of a circle takes from the others.
fn line(
    module: usize,
    circle: &[usize],
    names: &BTreeMap<(usize, usize), BTreeSet<&str>>,
    show: &dyn Fn(usize) -> String,
) -> String {
    let taken: Vec<String> = names
        .range((module, 0)..(module + 1, 0))
        .filter(|((_, target), _)| circle.contains(target))
        .map(|((_, target), names)| {
            let names: Vec<&str> = names.iter().copied().collect();
            format!("{} ({})", show(*target), names.join(", "))
        })
        .collect();
    format!("{} -> {}", show(module), taken.join("; "))
}

fn display(path: &Path) -> String {
    if path.is_empty() { "the root".to_string() } else { path.join("::") }
}

/// `…/src/stop/wait.rs` is `["stop", "wait"]`, and `…/src/stop/mod.rs` is `["stop"]`.
fn module_path(name: &str) -> Path {
    let file = name.rsplit_once("/src/").map_or(name, |(_, file)| file);
    let mut path: Path = file.trim_end_matches(".rs").split('/').map(String::from).collect();
    if path.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

fn is_test(path: &Path) -> bool {
    path.iter().any(|part| part == "tests" || part == "test")
}

/// What one file says of others.
#[derive(Default)]
struct Module {
    /// Paths into the crate that the module names, as they are written.
    uses: BTreeSet<Path>,
    /// What `use` makes of a name, here and for others.
    imports: BTreeMap<String, Path>,
    /// Names of `pub use PATH::*`.
    globs: Vec<Path>,
    /// Names that the module defines itself.
    defined: BTreeSet<String>,
}

impl Module {
    fn read(file: &syn::File) -> Module {
        let mut module = Module::default();
        for item in &file.items {
            module.define(item);
        }
        let mut reader = Reader { module: &mut module };
        reader.visit_file(file);
        // Paths that begin with an imported name are the import's business.
        let imported: BTreeSet<String> = module.imports.keys().cloned().collect();
        module.uses.retain(|path| {
            path.first()
                .is_some_and(|first| first == "crate" || first == "self" || first == "super")
                || path.first().is_some_and(|first| !imported.contains(first))
        });
        module
    }

    fn define(&mut self, item: &syn::Item) {
        let name = match item {
            syn::Item::Fn(item) => &item.sig.ident,
            syn::Item::Struct(item) => &item.ident,
            syn::Item::Enum(item) => &item.ident,
            syn::Item::Trait(item) => &item.ident,
            syn::Item::Type(item) => &item.ident,
            syn::Item::Const(item) => &item.ident,
            syn::Item::Static(item) => &item.ident,
            syn::Item::Union(item) => &item.ident,
            _ => return,
        };
        self.defined.insert(name.to_string());
    }

    fn import(&mut self, tree: &syn::UseTree, prefix: &Path, is_public: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                let mut longer = prefix.clone();
                longer.push(path.ident.to_string());
                self.import(&path.tree, &longer, is_public);
            }
            syn::UseTree::Name(name) => self.bind(&name.ident, &name.ident, prefix, is_public),
            syn::UseTree::Rename(name) => self.bind(&name.ident, &name.rename, prefix, is_public),
            syn::UseTree::Glob(_) if is_public => self.globs.push(prefix.clone()),
            syn::UseTree::Glob(_) => drop(self.uses.insert(prefix.clone())),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, prefix, is_public));
            }
        }
    }

    /// `use PREFIX::NAME as SHOWN`.
    fn bind(&mut self, name: &syn::Ident, shown: &syn::Ident, prefix: &Path, is_public: bool) {
        let mut path = prefix.clone();
        if name != "self" {
            path.push(name.to_string());
        }
        let shown = if name == "self" { path.last().cloned() } else { Some(shown.to_string()) };
        if !is_public {
            self.uses.insert(path.clone());
        }
        self.imports.extend(shown.map(|shown| (shown, path)));
    }
}

struct Reader<'a> {
    module: &'a mut Module,
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Meta>().is_ok_and(|meta| meta.path().is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            let is_public = !matches!(item.vis, syn::Visibility::Inherited);
            self.module.import(&item.tree, &Vec::new(), is_public);
        }
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            self.module.uses.insert(path.segments.iter().map(|s| s.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    // Arguments of macros are tokens; most are expressions.
    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        let parser = syn::punctuated::Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        if let Ok(arguments) = item.parse_body_with(parser) {
            arguments.iter().for_each(|argument| self.visit_expr(argument));
        }
        visit::visit_macro(self, item);
    }
}

/// Re-exports of re-exports of re-exports end here.
const MOST_STEPS: usize = 16;

/// The module that a path written in `module` leads to, if that is one of this crate.
fn resolve(
    modules: &BTreeMap<Path, Module>,
    module: &Path,
    used: &[String],
    steps: usize,
) -> Option<Path> {
    if steps > MOST_STEPS {
        return None;
    }
    let mut at = module.clone();
    let mut rest = used;
    match rest.first()?.as_str() {
        "crate" => {
            at.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                at.pop();
                rest = &rest[1..];
            }
        }
        first => {
            // A module below, or what an import says; all else is another crate, or no module.
            let below: Path = module.iter().cloned().chain([first.to_string()]).collect();
            if !modules.contains_key(&below) {
                return None;
            }
        }
    }
    loop {
        let Some(name) = rest.first() else { return Some(at) };
        let below: Path = at.iter().cloned().chain([name.clone()]).collect();
        if modules.contains_key(&below) {
            at = below;
            rest = &rest[1..];
            continue;
        }
        let here = modules.get(&at)?;
        if here.defined.contains(name) {
            return Some(at);
        }
        if let Some(path) = here.imports.get(name) {
            return resolve(modules, &at, path, steps + 1);
        }
        let mut found = here.globs.iter().filter_map(|glob| {
            let target = resolve(modules, &at, glob, steps + 1)?;
            modules.get(&target)?.defined.contains(name).then_some(target)
        });
        return found.next().or(Some(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(name, text)| Source { name: format!("c/src/{name}"), text: (*text).into() })
            .collect();
        let all: Vec<&Source> = sources.iter().collect();
        circles(&all).unwrap().iter().map(|circle| circle.join(" ")).collect()
    }

    #[test]
    fn two_that_know_each_other() {
        let a = ("a.rs", "use crate::b::B; pub struct A;");
        let b = ("b.rs", "pub struct B; fn f() { crate::a::A; }");
        assert_eq!(circles_of(&[("lib.rs", "mod a; mod b;"), a, b]), ["a -> b (B) b -> a (A)"]);
        let b = ("b.rs", "pub struct B;");
        assert!(circles_of(&[("lib.rs", "mod a; mod b;"), a, b]).is_empty());
    }

    #[test]
    fn what_is_passed_on_leads_to_where_it_is_defined() {
        let root = ("lib.rs", "mod a; mod b; pub use a::A; pub use b::*;");
        let a = ("a.rs", "use crate::B; pub struct A;");
        assert!(circles_of(&[root, a, ("b.rs", "pub struct B;")]).is_empty());
        assert_eq!(
            circles_of(&[root, a, ("b.rs", "use crate::A; pub struct B;")]),
            ["a -> b (B) b -> a (A)"]
        );
    }

    #[test]
    fn a_folder_and_what_is_in_it() {
        let folder = ("a/mod.rs", "mod b; pub struct A; fn f() { b::g(); }");
        let inside = ("a/b.rs", "use super::A; pub fn g() {}");
        assert_eq!(
            circles_of(&[("lib.rs", "mod a;"), folder, inside]),
            ["a -> a::b (g) a::b -> a (A)"]
        );
    }

    #[test]
    fn tests_may_know_all() {
        let a = ("a.rs", "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }");
        let b = ("b.rs", "use crate::a::A; pub struct B;");
        assert!(circles_of(&[("lib.rs", "mod a; mod b;"), a, b]).is_empty());
    }

    #[test]
    fn macros_are_looked_into() {
        let a = ("a.rs", "pub struct A; fn f() { println!(\"{}\", crate::b::B); }");
        let b = ("b.rs", "use crate::a::A; pub struct B;");
        assert_eq!(circles_of(&[("lib.rs", "mod a; mod b;"), a, b]), ["a -> b (B) b -> a (A)"]);
    }
}
