//! Files that are small enough to be read.
//!
//! A file has one idea and at most [`LIMIT`] lines. Those that are longer stand here with their reason, and
//! do not grow: each has most lines of its own.

use super::source::{Problem, Source};

/// Most lines of a file that is not in the list.
const LIMIT: usize = 800;

/// Files that may be longer, with their most lines and the reason.
const LONGER: &[(&str, usize, &str)] = &[
    ("crates/analyse/requests/tests/shipped.rs", 1240, "a test for each shipped schema"),
    ("crates/app/cli/tests/attach.rs", 1185, "tests that share servers which run"),
    (
        "crates/binary/rewrite/tests/check_rejects.rs",
        1305,
        "a table of damages with what finds each",
    ),
    ("runtime/file/file.c", 970, "one freestanding file that is put into other programs"),
];

/// Checks one file.
pub fn check(source: &Source, problems: &mut Vec<Problem>) {
    let is_code =
        matches!(source.name.rsplit('.').next(), Some("rs" | "c" | "h" | "js" | "java" | "py"));
    if !is_code || source.name.contains("/vendor/") {
        return;
    }
    let lines = source.text.lines().count();
    let listed = LONGER.iter().find(|(name, ..)| *name == source.name);
    let most = listed.map_or(LIMIT, |(_, most, _)| *most);
    if lines > most {
        let what = format!("{lines} lines, {most} are allowed: divide it along its ideas");
        problems.push(Problem::new(source, 0, what));
    }
    if listed.is_some() && lines <= LIMIT {
        problems.push(Problem::new(source, 0, "short enough now: take it off the list"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(name: &str, lines: usize) -> usize {
        let mut problems = Vec::new();
        check(&Source { name: name.into(), text: "\n".repeat(lines) }, &mut problems);
        problems.len()
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!((problems_of("a.rs", LIMIT), problems_of("a.rs", LIMIT + 1)), (0, 1));
        assert_eq!(problems_of("a.md", LIMIT + 1), 0);
        let (name, most, _) = LONGER[0];
        assert_eq!((problems_of(name, most), problems_of(name, most + 1)), (0, 1));
        assert_eq!(problems_of(name, LIMIT), 1);
    }
}
