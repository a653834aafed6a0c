//! Files that are small enough to be read.
//!
//! A file has one idea and at most [`LIMIT`] lines. Those that are longer stand here with their reason, and
//! do not grow: each has most lines of its own.

use super::source::{Problem, Source};

/// Most lines of a file that is not in the list.
const LIMIT: usize = 800;

/// Files that may be longer, with their most lines and the reason.
const LONGER: &[(&str, usize, &str)] = &[
    ("crates/analyse/requests/src/check.rs", 880, "one pass over a schema, a method a construct"),
    ("crates/analyse/requests/tests/shipped.rs", 1180, "a test for each shipped schema"),
    ("crates/app/cli/tests/attach.rs", 1185, "tests that share servers which run"),
    ("crates/binary/check/src/unwind.rs", 820, "one machine of unwind rows"),
    ("crates/binary/lift/src/tables.rs", 910, "every shape of jump table, side by side"),
    (
        "crates/binary/rewrite/tests/check_rejects.rs",
        1305,
        "a table of damages with what finds each",
    ),
    ("crates/record/kernel-events/src/decode.rs", 930, "one match over all records of the kernel"),
    ("crates/record/record/src/libraries.rs", 1025, "what happens in a dlopen hook, in its order"),
    (
        "crates/record/record/src/session.rs",
        1195,
        "the recorder's answers to all events of a process",
    ),
    ("crates/source/census/src/structure.rs", 925, "one parser of C's and Rust's structure"),
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
