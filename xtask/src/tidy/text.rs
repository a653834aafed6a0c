//! Line by line: white space, words that must not stand here, `unsafe` where it may not be.

use super::source::{Problem, Source};

/// Folders whose code touches shared memory, another process or the bare machine.
const MAY_BE_UNSAFE: [&str; 6] = [
    "crates/process/live/",
    "crates/record/sensor/",
    "crates/record/record/",
    "crates/record/kernel-events/",
    "runtime/",
    // A kernel.
    "lab/",
];

/// Files that others write, or that are about other people's words.
fn is_foreign(name: &str) -> bool {
    name.ends_with("Cargo.lock")
        || name.contains("LICENSE")
        || name.contains("/golden/")
        || name.contains("/vendor/")
}

/// Words that must not stand in the repository, with the reason. Put together here so that this
/// file does not contain them.
fn forbidden() -> Vec<(String, &'static str)> {
    let unfinished = "finish it, or leave it out";
    let registry = "name no registry's host: clients know where to look";
    let machine = "a path of somebody's machine";
    [
        (["TO", "DO"], unfinished),
        (["FIX", "ME"], unfinished),
        (["XX", "X:"], unfinished),
        (["deb.deb", "ian.org"], registry),
        (["crates", ".io"], registry),
        (["py", "pi.org"], registry),
        (["registry.npm", "js"], registry),
        (["proxy.go", "lang.org"], registry),
        (["/wo", "rk/"], machine),
        (["/ro", "ot/"], machine),
    ]
    .map(|(halves, why)| (halves.concat(), why))
    .to_vec()
}

/// Checks one file.
pub fn check(source: &Source, problems: &mut Vec<Problem>) {
    if is_foreign(&source.name) {
        return;
    }
    let lines = source.text.lines().count();
    if !source.text.is_empty() && !source.text.ends_with('\n') {
        problems.push(Problem::new(source, lines - 1, "no newline at the end"));
    }
    if source.text.ends_with("\n\n") {
        problems.push(Problem::new(source, lines - 1, "empty lines at the end"));
    }
    let forbidden = forbidden();
    for (number, line) in source.text.lines().enumerate() {
        if line.ends_with([' ', '\t']) {
            problems.push(Problem::new(source, number, "white space at the end of the line"));
        }
        for (word, why) in &forbidden {
            if line.contains(word.as_str()) {
                problems.push(Problem::new(source, number, format!("{word}: {why}")));
            }
        }
        if source.name.ends_with(".rs") && uses_unsafe(line) && !may_be_unsafe(&source.name) {
            let what = format!("unsafe outside {}", MAY_BE_UNSAFE.join(", "));
            problems.push(Problem::new(source, number, what));
        }
    }
}

fn may_be_unsafe(name: &str) -> bool {
    MAY_BE_UNSAFE.iter().any(|folder| name.starts_with(folder))
}

/// Whether a line of Rust has the keyword, outside comments and (roughly) strings.
fn uses_unsafe(line: &str) -> bool {
    // What an attribute promises of a name is no code.
    let line = line.replace("#[unsafe(", "#[(");
    let code = line.split("//").next().unwrap_or_default();
    let without_escapes = code.replace("\\\"", "'");
    let outside_strings: String = without_escapes.split('"').step_by(2).collect();
    outside_strings.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
}

/// Every crate but those few says so itself.
pub fn check_unsafe_is_forbidden(sources: &[Source], problems: &mut Vec<Problem>) {
    for source in sources {
        let is_root = ["/src/lib.rs", "/src/main.rs"].iter().any(|end| source.name.ends_with(end));
        if is_root
            && !may_be_unsafe(&source.name)
            && !source.text.contains("#![forbid(unsafe_code)]")
        {
            problems.push(Problem::new(source, 0, "no #![forbid(unsafe_code)]"));
        }
    }
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
    fn white_space_and_words() {
        assert_eq!(problems_of("a.rs", "fn a() {}\n"), 0);
        assert_eq!(problems_of("a.rs", "fn a() {}"), 1);
        assert_eq!(problems_of("a.rs", "fn a() {} \n\n"), 2);
        assert_eq!(problems_of("a.md", &["TO", "DO\n"].concat()), 1);
    }

    #[test]
    fn unsafe_has_its_places() {
        assert_eq!(problems_of("crates/binary/lift/src/a.rs", "unsafe fn a() {}\n"), 1);
        assert_eq!(problems_of("crates/process/live/src/a.rs", "unsafe fn a() {}\n"), 0);
        assert_eq!(
            problems_of("crates/binary/lift/src/a.rs", "#![forbid(unsafe_code)] // unsafe\n"),
            0
        );
        let quoted = "let a = \"unsafe\";\n";
        assert_eq!(problems_of("crates/binary/lift/src/a.rs", quoted), 0);
    }
}
