//! Numbers of processes and threads that have types.
//!
//! Both are one kind of number to the kernel, and the first thread of a process has the process's. Where
//! processes are stopped and changed, parameters and fields are `Pid` and `Tid`.

use std::sync::LazyLock;

use regex::Regex;

use super::source::{Problem, Source};

/// Folders in which that is so.
const FOLDERS: [&str; 3] = ["crates/process/live/", "crates/record/record/", "crates/tune/"];

/// Files that have bare numbers, each with the reason.
const BARE: &[(&str, &str)] = &[(
    "crates/record/record/src/process_table.rs",
    "tables by the numbers in the kernel's events, where idle threads have 0",
)];

/// A comment or text; or a parameter or field that is named as such a number and has a bare type.
static BARE_NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    let text = r#"//[^\n]*|"(?:\\(?s:.)|[^"\\])*""#;
    let name = r"\b(?P<name>(?:\w*_)?(?P<kind>[pt])ids?)";
    let around =
        r"(?:[&<\[(]|mut\b|(?:Vec|VecDeque|Option|HashSet|BTreeSet|HashMap|BTreeMap)\b|\s)*";
    // What follows a path's colons is a function or a constant, and no type.
    let bare = r"(?:(?:libc::)?pid_t|[iu](?:32|64))\b(?P<path>::)?";
    Regex::new(&format!("{text}|{name}\\s*:\\s*{around}{bare}"))
        .unwrap_or_else(|error| panic!("{error}"))
});

/// Checks one file.
pub fn check(source: &Source, problems: &mut Vec<Problem>) {
    let is_meant = FOLDERS.iter().any(|folder| source.name.starts_with(folder));
    if !is_meant || !source.name.ends_with(".rs") {
        return;
    }
    let mut found = bare_numbers(&source.text);
    if BARE.iter().any(|(name, _)| *name == source.name) {
        if found.is_empty() {
            let what = "no bare number of a process or thread: take it off the list";
            problems.push(Problem::new(source, 0, what));
        }
        found.clear();
    }
    for (at, name, kind) in found {
        let line = source.text[..at].matches('\n').count();
        let what = format!("`{name}` is a bare number: its type is fettle_types::{kind}");
        problems.push(Problem::new(source, line, what));
    }
}

/// Where bare numbers are, what they are called, and the type that they should have.
fn bare_numbers(text: &str) -> Vec<(usize, &str, &'static str)> {
    let bare = BARE_NUMBER.captures_iter(text).filter(|found| found.name("path").is_none());
    bare.filter_map(|found| {
        let (name, kind) = (found.name("name")?, found.name("kind")?);
        let kind = if kind.as_str() == "p" { "Pid" } else { "Tid" };
        Some((name.start(), name.as_str(), kind))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(name: &str, text: &str) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        check(&Source { name: name.into(), text: text.into() }, &mut problems);
        problems.into_iter().map(|problem| (problem.place, problem.what)).collect()
    }

    #[test]
    fn bare_parameters_and_fields_are_found() {
        let name = "crates/tune/tune/src/a.rs";
        let found = problems_of(name, "struct A {\n    parent_tid: i32,\n}\nfn f(pid: u32) {}\n");
        let said = |kind| format!("is a bare number: its type is fettle_types::{kind}");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], (format!("{name}:2"), format!("`parent_tid` {}", said("Tid"))));
        assert_eq!(found[1], (format!("{name}:4"), format!("`pid` {}", said("Pid"))));
        for bare in ["pids: &[i32]", "tids: &mut Vec<u32>", "_pid: Option<i32>", "pid: libc::pid_t"]
        {
            assert_eq!(problems_of(name, &format!("fn f({bare}) {{}}")).len(), 1, "{bare}");
        }
    }

    #[test]
    fn types_values_and_texts_are_none() {
        let name = "crates/process/live/src/a.rs";
        let fine = "// pid: i32\nfn f(pid: Pid, rapid: u32, tids: HashMap<Tid, i32>) {}\n\
                    const A: Row = Row { pid: u32::MAX, tid: pid.unsigned() };\n\
                    const B: &str = \"{\\\"pid: u32\";\n";
        assert_eq!(problems_of(name, fine), []);
        assert_eq!(problems_of("crates/data/trace/src/a.rs", "fn f(pid: u32) {}"), []);
    }

    #[test]
    fn exceptions_are_used() {
        for (name, _) in BARE {
            assert_eq!(problems_of(name, "fn f(pid: u32) {}"), []);
            assert_eq!(problems_of(name, "fn f(pid: Pid) {}").len(), 1);
        }
    }
}
