//! Paths named in comments and documents must exist: a dead one misleads for years.

use std::path::Path;

use regex::Regex;

use super::source::{Problem, Source};
use crate::repo;

/// Checks one file.
pub fn check(source: &Source, problems: &mut Vec<Problem>) {
    let whole = source.name.ends_with(".md");
    let folders = "crates|xtask|tests|benches|docs|runtime|fuzz|papers|\\.ci";
    let Ok(pattern) = Regex::new(&format!(r"(?:^|[\s`(\[])((?:{folders})/[\w.*/-]+)")) else {
        return;
    };
    for (number, line) in source.text.lines().enumerate() {
        let Some(prose) = (if whole { Some(line) } else { comment(&source.name, line) }) else {
            continue;
        };
        for found in pattern.captures_iter(prose) {
            let path = found[1].split('*').next().unwrap_or_default().trim_end_matches(['.', '-']);
            if !exists(&source.name, path) {
                problems.push(Problem::new(source, number, format!("{path} does not exist")));
            }
        }
    }
}

/// The comment in a line of code, if it has one.
fn comment<'a>(name: &str, line: &'a str) -> Option<&'a str> {
    let sign = match name.rsplit('.').next() {
        Some("rs" | "c" | "h" | "cc" | "S" | "ts") => "//",
        Some("toml" | "sh" | "py" | "yml") => "# ",
        _ => return None,
    };
    line.find(sign).map(|at| &line[at..])
}

/// Whether a path is there, from the root or from a folder around the file that names it. One that
/// ends in a part of a name stands for all files that begin so.
fn exists(named_in: &str, path: &str) -> bool {
    let around = Path::new(named_in).ancestors().skip(1);
    around.map(|folder| repo::root().join(folder).join(path)).any(|full| {
        let (Some(folder), Some(name)) = (full.parent(), full.file_name()) else { return false };
        let name = name.to_string_lossy().into_owned();
        full.exists()
            || std::fs::read_dir(folder).is_ok_and(|items| {
                items.flatten().any(|item| item.file_name().to_string_lossy().starts_with(&name))
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(name: &str, text: &str) -> usize {
        let mut problems = Vec::new();
        check(&Source { name: name.into(), text: text.into() }, &mut problems);
        problems.len()
    }

    #[test]
    fn dead_paths_are_found() {
        assert_eq!(problems_of("a.md", "see `xtask/src/main.rs`.\n"), 0);
        assert_eq!(problems_of("a.md", &["see `xt", "ask/src/none.rs`.\n"].concat()), 1);
        assert_eq!(problems_of("a.rs", &["// tests", "/no/such, really\n"].concat()), 1);
        assert_eq!(problems_of("a.rs", "let path = \"tests/no/such\";\n"), 0);
        assert_eq!(problems_of("a.rs", "// `tests/corpus/*.toml`\n"), 0);
    }
}
