//! Functions that do not grow.
//!
//! A new function has at most [`LIMIT`] lines. Longer ones stand in `xtask/long-functions.txt`
//! with the length they had; they may shrink and not grow. A list that a reviewer sees change is
//! better than a limit that makes people cut a good long function into bad short ones.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::source::{Problem, Source};
use crate::repo;

/// Most lines of a function that is not in the list.
const LIMIT: usize = 70;

fn list() -> PathBuf {
    repo::root().join("xtask/long-functions.txt")
}

/// Checks all files against the list.
pub fn check(sources: &[Source], problems: &mut Vec<Problem>) -> Result<()> {
    let text = std::fs::read_to_string(list()).unwrap_or_default();
    let allowed: BTreeMap<&str, usize> = text
        .lines()
        .filter_map(|l| l.rsplit_once(' '))
        .map(|(f, n)| (f, n.parse().unwrap_or(0)))
        .collect();
    for source in sources.iter().filter(|source| source.name.ends_with(".rs")) {
        for function in functions(&source.text) {
            let key = format!("{} {}", source.name, function.name);
            let most = allowed.get(key.as_str()).copied().unwrap_or(LIMIT);
            if function.lines > most {
                let what = format!(
                    "fn {} has {} lines, {most} are allowed (`cargo xtask tidy --bless` writes \
                     down that it is longer)",
                    function.name, function.lines
                );
                problems.push(Problem::new(source, function.first, what));
            }
        }
    }
    Ok(())
}

/// Writes the list anew.
pub fn bless(sources: &[Source]) -> Result<()> {
    let mut longest: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.name.ends_with(".rs")) {
        for function in functions(&source.text).filter(|f| f.lines > LIMIT) {
            let entry = longest.entry(format!("{} {}", source.name, function.name)).or_default();
            *entry = function.lines.max(*entry);
        }
    }
    let text: String = longest.iter().map(|(key, lines)| format!("{key} {lines}\n")).collect();
    std::fs::write(list(), text).with_context(|| list().display().to_string())
}

struct Function {
    name: String,
    first: usize,
    lines: usize,
}

/// The functions of a formatted file: each ends at the first line that has its indentation and
/// closes a brace.
fn functions(text: &str) -> impl Iterator<Item = Function> + '_ {
    let lines: Vec<&str> = text.lines().collect();
    (0..lines.len()).filter_map(move |first| {
        let line = lines[first];
        let code = line.trim_start();
        let name = name_of(code)?;
        let indentation = &line[..line.len() - code.len()];
        let end = format!("{indentation}}}");
        let last = (first..lines.len()).find(|n| lines[*n] == end)?;
        Some(Function { name, first, lines: last - first + 1 })
    })
}

/// The name that a line declares as a function with a body.
fn name_of(code: &str) -> Option<String> {
    let mut words = code.split_whitespace();
    let name = loop {
        match words.next()? {
            "fn" => break words.next()?,
            "const" | "async" | "unsafe" | "extern" | "\"C\"" => {}
            word if word.starts_with("pub") => {}
            _ => return None,
        }
    };
    if code.ends_with(';') || code.ends_with('}') {
        return None;
    }
    name.split(['(', '<']).next().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured() {
        let text = "impl A {\n    pub const fn b(\n        c: u8,\n    ) {\n        if c {\n        }\n    }\n}\nfn d() {}\n";
        let found: Vec<_> = functions(text).map(|f| (f.name, f.first, f.lines)).collect();
        assert_eq!(found, [("b".to_string(), 1, 6)]);
    }
}
