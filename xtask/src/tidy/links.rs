//! Links between documents lead somewhere: to a file that is there, and to a heading that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use super::source::{Problem, Source};
use crate::repo;

static LINK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\]\(([^()\s]+)\)").unwrap_or_else(|error| panic!("{error}")));

/// The book's table of contents.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Checks all documents.
pub fn check(sources: &[Source], problems: &mut Vec<Problem>) {
    let pages: Vec<&Source> = sources.iter().filter(|s| s.name.ends_with(".md")).collect();
    let headings: BTreeMap<&str, BTreeSet<String>> =
        pages.iter().map(|page| (page.name.as_str(), anchors(&page.text))).collect();
    let mut listed = BTreeSet::new();
    for page in &pages {
        for (number, line) in prose(&page.text) {
            for found in LINK.captures_iter(line) {
                let target = &found[1];
                if target.contains("://") {
                    continue;
                }
                if let Err(what) = resolve(&page.name, target, &headings) {
                    problems.push(Problem::new(page, number, what));
                } else if page.name == CONTENTS {
                    listed.insert(normal(&page.name, target.split('#').next().unwrap_or_default()));
                }
            }
        }
    }
    // What mdBook's contents do not list, it does not build.
    for page in pages.iter().filter(|p| p.name.starts_with("docs/") && p.name != CONTENTS) {
        if !listed.contains(&page.name) {
            problems.push(Problem::new(page, 0, format!("{CONTENTS} does not list this page")));
        }
    }
}

fn resolve(
    page: &str,
    target: &str,
    headings: &BTreeMap<&str, BTreeSet<String>>,
) -> Result<(), String> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() { page.to_owned() } else { normal(page, file) };
    if !repo::root().join(&file).exists() {
        return Err(format!("the link to {target} leads nowhere"));
    }
    let there = headings.get(file.as_str());
    if !anchor.is_empty() && !there.is_some_and(|there| there.contains(anchor)) {
        return Err(format!("{file} has no heading #{anchor}"));
    }
    Ok(())
}

/// A path from the root for one that is relative to a page.
fn normal(page: &str, file: &str) -> String {
    let mut path = PathBuf::new();
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    for part in folder.join(file).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path.display().to_string()
}

/// Lines that are no code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// What headings are called in addresses, by GitHub and mdBook alike.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    let anchor = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        kept.collect()
    };
    headings.map(anchor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let page = |name: &str, text: &str| Source { name: name.into(), text: text.into() };
        let pages = [
            page(
                "README.md",
                "[a](GLOSSARY.md#glossary) [b](GLOSSARY.md#none) [c](none.md) `[d](e)`",
            ),
            page("GLOSSARY.md", "# Glossary\n```\n[x](y)\n```\n"),
        ];
        let mut problems = Vec::new();
        check(&pages, &mut problems);
        let what: Vec<&str> = problems.iter().map(|p| p.what.as_str()).collect();
        assert_eq!(what.len(), 3, "{what:?}");
        assert_eq!(what[0], "GLOSSARY.md has no heading #none");
    }

    #[test]
    fn headings_become_anchors() {
        let found = anchors("## The kernel's events\n# A `b`, c\n");
        assert!(found.contains("the-kernels-events") && found.contains("a-b-c"), "{found:?}");
    }

    #[test]
    fn paths_are_from_the_root() {
        assert_eq!(normal("docs/user/a.md", "../internals/b.md"), "docs/internals/b.md");
        assert_eq!(normal("README.md", "docs/limits.md"), "docs/limits.md");
    }
}
