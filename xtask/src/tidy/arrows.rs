//! Crates know only what lies below them: groups of crates are layers, and some layers are split into
//! neighbours that do not know each other.

use std::collections::BTreeMap;

use regex::Regex;

use super::source::{Problem, Source};

/// Layers from the bottom up. Groups of one layer are neighbours.
const LAYERS: [&[&str]; 5] = [
    &["base"],
    &["data", "binary", "process", "source"],
    &["record", "analyse", "kernel"],
    &["tune", "port"],
    &["app"],
];

/// Checks the dependencies of every crate in a group.
pub fn check(sources: &[Source], problems: &mut Vec<Problem>) {
    let groups = groups_of(sources);
    for source in sources {
        let Some(group) = group_of(&source.name) else { continue };
        let Some(from) = layer_of(group) else {
            problems.push(Problem::new(source, 0, format!("{group} is no group of crates")));
            continue;
        };
        for (line, dependency) in dependencies(&source.text) {
            let Some(target) = groups.get(dependency.as_str()) else { continue };
            let is_below = layer_of(target).is_some_and(|layer| layer < from);
            if group != *target && !is_below {
                let what = format!("{group} may not know {target} ({dependency})");
                problems.push(Problem::new(source, line, what));
            }
        }
    }
}

/// The group of each crate, by the crate's name.
fn groups_of(sources: &[Source]) -> BTreeMap<String, &str> {
    let named = |source: &'_ Source| package_name(&source.text);
    sources.iter().filter_map(|source| Some((named(source)?, group_of(&source.name)?))).collect()
}

/// The folder between `crates` and the folder of a crate, for the manifest of one.
fn group_of(file: &str) -> Option<&str> {
    let folder = file.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    folder.split_once('/').map(|(group, _)| group)
}

fn layer_of(group: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&group))
}

fn package_name(manifest: &str) -> Option<String> {
    let manifest: toml::Table = manifest.parse().ok()?;
    Some(manifest.get("package")?.get("name")?.as_str()?.to_string())
}

/// The project's own crates that a manifest needs outside of its tests.
fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let Ok(pattern) = Regex::new(r"^(fettle-[a-z-]+)\b") else { return Vec::new() };
    let mut section = "";
    let mut found = Vec::new();
    for (number, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            section = line;
        } else if section == "[dependencies]"
            && let Some(name) = pattern.captures(line)
        {
            found.push((number, name[1].to_string()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(group: &str, needs: &str) -> usize {
        let manifest = |name: &str, rest: &str| format!("[package]\nname = \"{name}\"\n{rest}");
        let source = |name: &str, text: String| Source { name: name.into(), text };
        let sources = [
            source(&format!("crates/{group}/a/Cargo.toml"), manifest("fettle-a", needs)),
            source("crates/binary/b/Cargo.toml", manifest("fettle-b", "")),
        ];
        let mut problems = Vec::new();
        check(&sources, &mut problems);
        problems.len()
    }

    #[test]
    fn arrows_point_downward() {
        let needs = "[dependencies]\nfettle-b.workspace = true\n";
        assert_eq!(problems_of("tune", needs), 0);
        assert_eq!(problems_of("binary", needs), 0);
        assert_eq!(problems_of("data", needs), 1);
        assert_eq!(problems_of("base", needs), 1);
        assert_eq!(problems_of("elsewhere", needs), 1);
        assert_eq!(problems_of("base", "[dev-dependencies]\nfettle-b.workspace = true\n"), 0);
    }
}
