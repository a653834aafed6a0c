//! What the documents at the root must keep: every crate and runtime folder is described, the
//! glossary is sorted, and the README is read to its end.

use super::source::{Problem, Source};

/// Most lines of README.md.
const README_LINES: usize = 150;

/// Checks the documents at the root.
pub fn check(sources: &[Source], problems: &mut Vec<Problem>) {
    let find = |name: &str| sources.iter().find(|source| source.name == name);
    if let Some(architecture) = find("ARCHITECTURE.md") {
        for room in rooms(sources) {
            if !architecture.text.contains(&format!("`{room}`")) {
                problems.push(Problem::new(architecture, 0, format!("does not describe `{room}`")));
            }
        }
    }
    if let Some(readme) = find("README.md") {
        let lines = readme.text.lines().count();
        if lines > README_LINES {
            let what = format!("{lines} lines, {README_LINES} are allowed: move some to docs");
            problems.push(Problem::new(readme, lines - 1, what));
        }
    }
    if let Some(glossary) = find("GLOSSARY.md") {
        let terms = terms(&glossary.text);
        for pair in terms.windows(2) {
            if pair[0].1 >= pair[1].1 {
                let what = format!("{} does not stand behind {}", pair[1].1, pair[0].1);
                problems.push(Problem::new(glossary, pair[1].0, what));
            }
        }
    }
}

/// Crates and runtime folders: what has a `Cargo.toml` in `crates`, and all that lies in `runtime`.
fn rooms(sources: &[Source]) -> Vec<String> {
    let mut rooms: Vec<String> = Vec::new();
    for source in sources {
        let room = match source.name.split('/').collect::<Vec<_>>()[..] {
            ["crates", group, name, "Cargo.toml"] => format!("crates/{group}/{name}"),
            ["runtime", name, _, ..] => format!("runtime/{name}"),
            _ => continue,
        };
        if !rooms.contains(&room) {
            rooms.push(room);
        }
    }
    rooms
}

/// The terms of the glossary's rows, in lower case, with their lines.
fn terms(text: &str) -> Vec<(usize, String)> {
    let rows = text.lines().enumerate();
    rows.filter_map(|(number, line)| {
        let term = line.strip_prefix("| **")?.split("**").next()?;
        Some((number, term.to_lowercase()))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_found() {
        let source = |name: &str, text: &str| Source { name: name.into(), text: text.into() };
        let sources = [
            source("ARCHITECTURE.md", "| `crates/base/isa` |\n"),
            source("crates/base/isa/Cargo.toml", ""),
            source("crates/base/abi/Cargo.toml", ""),
            source("runtime/agent/agent.c", ""),
            source("GLOSSARY.md", "| **b** | x |\n| **a** | y |\n"),
            source("README.md", &"a\n".repeat(README_LINES + 1)),
        ];
        let mut problems = Vec::new();
        check(&sources, &mut problems);
        let what: Vec<&str> = problems.iter().map(|p| p.what.as_str()).collect();
        assert_eq!(what.len(), 4, "{what:?}");
        assert_eq!(what[0], "does not describe `crates/base/abi`");
    }
}
