//! Numbers that have types, so that none is taken for another.
//!
//! A process and a thread are one kind of number to the kernel, and the first thread of a process has the
//! process's. Where processes are stopped and changed, parameters and fields are `Pid` and `Tid`. What the loader adds
//! to link addresses is no address, and a `LoadBias` everywhere. Slots, modules and functions of a recording are all counted
//! from 0.

use std::sync::LazyLock;

use regex::Regex;

use super::source::{Problem, Source};

/// A kind of number.
struct Kind {
    /// What parameters and fields of it are called, after a prefix.
    names: &'static str,
    /// Bare types that one might give them.
    bare: &'static str,
    /// The type that they have.
    right: &'static str,
    /// Folders in which that is so.
    folders: &'static [&'static str],
}

/// Where numbers of processes and threads have types.
const CHANGED: &[&str] = &["crates/process/live/", "crates/record/record/", "crates/tune/"];

/// Where slots have numbers: elsewhere they are a sensor's, a JVM's, or of a list that no other sees.
const SLOTS: &[&str] = &["crates/record/record/"];

/// Where modules and functions are those of a recording; elsewhere they are of a plan, a file or a source's own list.
const RECORDED: &[&str] = &[
    "crates/analyse/",
    "crates/app/",
    "crates/data/",
    "crates/record/",
    "crates/tune/compare/",
    "crates/tune/tune/",
    "crates/tune/tuned/",
];

const KINDS: &[Kind] = &[
    Kind {
        names: "pids?",
        bare: "(?:libc::)?pid_t|[iu](?:32|64)",
        right: "fettle_types::Pid",
        folders: CHANGED,
    },
    Kind {
        names: "tids?",
        bare: "(?:libc::)?pid_t|[iu](?:32|64)",
        right: "fettle_types::Tid",
        folders: CHANGED,
    },
    Kind {
        names: "bias(?:es)?",
        bare: "[iu](?:64|size)",
        right: "fettle_types::LoadBias",
        folders: &["crates/", "fuzz/"],
    },
    Kind { names: "slot", bare: "(?:u32|usize)", right: "fettle_types::SlotIndex", folders: SLOTS },
    Kind {
        names: "module",
        bare: "(?:u32|usize)",
        right: "fettle_types::ModuleIndex",
        folders: RECORDED,
    },
    Kind {
        names: "function",
        bare: "(?:u32|usize)",
        right: "fettle_types::FunctionIndex",
        folders: RECORDED,
    },
];

/// Files that have bare numbers of some kinds, each with the reason.
const BARE: &[(&str, &[&str], &str)] = &[
    (
        "crates/record/record/src/process_table.rs",
        &["pids?", "tids?"],
        "tables by the numbers in the kernel's events, where idle threads have 0",
    ),
    (
        "crates/record/instrument/src/map.rs",
        &["function"],
        "the first of the numbers that an instrumented file's functions have in processes, and not in the trace",
    ),
    (
        "crates/record/instrument/src/object/carry.rs",
        &["function"],
        "a place among the functions of one object file",
    ),
    (
        "crates/tune/tune/src/samples.rs",
        &["function", "module"],
        "places in lists of one process group, which no other file sees",
    ),
];

/// For each kind: a comment or text; or a parameter or field that is named as such a number and has a bare type.
static BARE_NUMBERS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let text = r#"//[^\n]*|"(?:\\(?s:.)|[^"\\])*""#;
    let around =
        r"(?:[&<\[(]|mut\b|(?:Vec|VecDeque|Option|HashSet|BTreeSet|HashMap|BTreeMap)\b|\s)*";
    let of_kind = |Kind { names, bare, .. }: &Kind| {
        let name = format!(r"\b(?P<name>(?:\w*_)?(?:{names}))");
        // What follows a path's colons is a function or a constant, and no type.
        let bare = format!(r"(?:{bare})\b(?P<path>::)?");
        Regex::new(&format!("{text}|{name}\\s*:\\s*{around}{bare}"))
            .unwrap_or_else(|error| panic!("{error}"))
    };
    KINDS.iter().map(of_kind).collect()
});

/// Checks one file.
pub fn check(source: &Source, problems: &mut Vec<Problem>) {
    if !source.name.ends_with(".rs") {
        return;
    }
    let listed: Vec<&str> = BARE
        .iter()
        .filter(|(name, ..)| *name == source.name)
        .flat_map(|(_, kinds, _)| kinds.iter().copied())
        .collect();
    for (kind, regex) in KINDS.iter().zip(&*BARE_NUMBERS) {
        if !kind.folders.iter().any(|folder| source.name.starts_with(folder)) {
            continue;
        }
        let mut bare = bare_numbers(regex, &source.text).peekable();
        if listed.contains(&kind.names) {
            if bare.peek().is_none() {
                let what = format!("no bare number called `{}`: take it off the list", kind.names);
                problems.push(Problem::new(source, 0, what));
            }
            continue;
        }
        for (at, name) in bare {
            let line = source.text[..at].matches('\n').count();
            let what = format!("`{name}` is a bare number: its type is {}", kind.right);
            problems.push(Problem::new(source, line, what));
        }
    }
}

/// Where bare numbers of a kind are, and what they are called.
fn bare_numbers<'a>(regex: &'a Regex, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let bare = regex.captures_iter(text).filter(|found| found.name("path").is_none());
    bare.filter_map(|found| found.name("name").map(|name| (name.start(), name.as_str())))
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
        assert_eq!(found[1], (format!("{name}:2"), format!("`parent_tid` {}", said("Tid"))));
        assert_eq!(found[0], (format!("{name}:4"), format!("`pid` {}", said("Pid"))));
        for bare in ["pids: &[i32]", "tids: &mut Vec<u32>", "_pid: Option<i32>", "pid: libc::pid_t"]
        {
            assert_eq!(problems_of(name, &format!("fn f({bare}) {{}}")).len(), 1, "{bare}");
        }
    }

    #[test]
    fn bare_slots_modules_and_functions_are_found_where_they_are_recorded() {
        let text = "struct A {\n    next_slot: u32,\n    module: usize,\n    slots: u32,\n    \
                    function: Option<u32>,\n    functions: u64,\n}\n";
        let lines_of = |name: &str| -> Vec<String> {
            problems_of(name, text).into_iter().map(|(at, _)| at).collect()
        };
        let name = "crates/record/record/src/a.rs";
        assert_eq!(lines_of(name), [2, 3, 5].map(|line| format!("{name}:{line}")));
        let name = "crates/data/trace/src/a.rs";
        assert_eq!(lines_of(name), [3, 5].map(|line| format!("{name}:{line}")));
        assert_eq!(problems_of("crates/binary/rewrite/src/a.rs", text), []);
    }

    #[test]
    fn a_bare_load_bias_is_found_everywhere() {
        let name = "crates/binary/image/src/a.rs";
        let found = problems_of(name, "struct A {\n    pub load_bias: u64,\n}\n");
        let what = "`load_bias` is a bare number: its type is fettle_types::LoadBias";
        assert_eq!(found, [(format!("{name}:2"), what.to_owned())]);
        let fine = "fn f(bias: LoadBias, unbiased: bool) -> A { A { bias: u64::MAX } }";
        assert_eq!(problems_of(name, fine), []);
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
        for (name, kinds, _) in BARE {
            let named = kinds.iter().map(|kind| format!("{}: u32", kind.trim_end_matches("s?")));
            let text = format!("fn f({}) {{}}", named.collect::<Vec<_>>().join(", "));
            assert_eq!(problems_of(name, &text), []);
            assert_eq!(problems_of(name, "fn f(pid: Pid) {}").len(), kinds.len());
        }
    }
}
