//! Words that the field does not have, and what it says instead.
//!
//! A term that a search engine or a new colleague cannot find costs time at every bug. The list holds
//! in the documents, and in the comments of the folders that are clean already.

use std::sync::LazyLock;

use regex::Regex;

use super::source::{Problem, Source};

/// Files and folders in which the words must not come back. Of code, the comments are meant.
const CLEAN: &[&str] = &[
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benches/",
    "crates/",
    "docs/",
    "fuzz/",
    "lab/",
    "packaging/",
    "runtime/",
    "tests/",
    "ui/",
    "xtask/",
];

/// What must not be said, as a pattern, and what is said instead.
const WORDS: [(&str, &str); 24] = [
    (
        r"\bleads? (a thread|threads)? ?into the middle\b|\bmidway\b",
        "on-stack replacement, OSR entry",
    ),
    (r"\bled (back|out)\b(?! by)", "deoptimisation, return-address patching"),
    (
        r"\bstood still\b|\bstands? still\b|\bstint\b|\berrand\b",
        "stop-the-world pause, pause budget",
    ),
    (r"\bspringboards?\b", "entry patch"),
    (r"\bgates?\b", "deopt jump, entry guard"),
    (r"\bheirs?\b|\bby birth\b|\bbequeath", "forked child, patches inherited over fork"),
    (r"\bfamil(y|ies)\b", "process group"),
    (r"\bdoors?\b|\bknocks?\b", "dlopen hook, library event"),
    (r"\bhaste\b|\bhurr(y|ies)\b", "scheduling priority"),
    (r"\blinkage slots?\b|\bover the linkage table\b", "GOT/PLT slot, PLT call"),
    (r"\bcalls? through (a )?pointers?\b", "indirect call"),
    (r"\bturned round\b", "inverted branch"),
    (r"\bcirculation\b", "min-cost-flow profile inference"),
    (r"\borphan exits?\b|\bleft frames?\b", "unmatched exit, unwound frame"),
    (r"\bown probes?\b", "user probe"),
    (
        r"\bhindsight\b|\bon behalf of\b|\bon whose behalf\b",
        "deferred attribution, proxy attribution",
    ),
    (r"\bcollecting machines?\b", "aggregator"),
    (r"\bprocessor time\b|\boff the processor\b", "CPU time, off-CPU"),
    (r"\b(taken|takes?|took|taking) (it |them |all of it |everything )?back\b", "revert"),
    (r"\bstays? as (it is|they are)\b|\bleft alone\b", "left unmodified"),
    (r"\bnew code\b", "rewritten text"),
    (r"\bold code\b", "original text"),
    (r"\bwhoever\b|\bnobody\b|\bsomebody\b", "a thing is not a person: name it"),
    (r"\b(is|are|was|were) told\b|\btells? of\b", "report, say, notify"),
];

/// How many words of a term can stand in the line before its end.
const WORDS_BEFORE: usize = 3;

static PATTERNS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let compile = |(word, instead): &(&str, &'static str)| {
        // What is marked as code is the name of something.
        let pattern = word.replace("(?! by)", "");
        let regex = Regex::new(&format!("(?i){pattern}")).unwrap_or_else(|error| panic!("{error}"));
        (regex, *instead)
    };
    WORDS.iter().map(compile).collect()
});

/// Checks one file.
pub fn check(source: &Source, problems: &mut Vec<Problem>) {
    if !CLEAN.iter().any(|place| source.name.starts_with(place)) {
        return;
    }
    let mut code = false;
    let mut block = false;
    // What stood at the end of the line before: terms may be broken over two lines.
    let mut before = String::new();
    for (number, line) in source.text.lines().enumerate() {
        let Some(line) = prose_of(&source.name, line, &mut block) else {
            before.clear();
            continue;
        };
        let fence = line.trim_start_matches(['/', '!', ' ']).starts_with("```");
        code ^= fence;
        if code || fence {
            before.clear();
            continue;
        }
        let line = line.trim_start_matches(['/', '!', '*', '#', ' ']);
        if line.is_empty() || line.starts_with(['-', '|']) {
            before.clear();
        }
        let begin = before.len();
        let prose = before.clone() + &without_code(line);
        before = end_of(&prose);
        for (pattern, instead) in PATTERNS.iter() {
            // What ends in the line before has been found there.
            if let Some(found) = pattern.find_iter(&prose).find(|found| found.end() > begin) {
                let what = format!("{:?}: the field says {instead}", found.as_str());
                problems.push(Problem::new(source, number, what));
            }
        }
    }
}

/// What of a line is prose: of code its comment, if it has one, and all of a line elsewhere. `block` is
/// whether a comment of several lines is open.
fn prose_of<'a>(name: &str, line: &'a str, block: &mut bool) -> Option<&'a str> {
    match name.rsplit('.').next() {
        Some("rs" | "c" | "cpp" | "h" | "S" | "ts" | "js" | "java" | "css") => {}
        Some("py" | "toml") => return line.find('#').map(|at| &line[at..]),
        Some("svg") => return None,
        _ => return Some(line),
    }
    let inside = *block;
    let opens = line.rfind("/*");
    if inside || opens.is_some_and(|at| line.find("//").is_none_or(|other| at < other)) {
        *block = line.rfind("*/").is_none_or(|end| opens.is_some_and(|at| end < at));
    }
    let begin = if inside { Some(0) } else { line.find("//").into_iter().chain(opens).min() };
    begin.map(|at| &line[at..])
}

/// The last words of a line and a space: what a term may begin with that ends in the next line.
fn end_of(prose: &str) -> String {
    let words: Vec<&str> = prose.split_whitespace().collect();
    let last = &words[words.len().saturating_sub(WORDS_BEFORE)..];
    if last.is_empty() { String::new() } else { last.join(" ") + " " }
}

/// A line without what stands between backticks or in a link's address, and without the name of a
/// property that JSDoc describes.
fn without_code(line: &str) -> String {
    static NAMES: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\]\([^)]*\)|@property \{[^}]*\} \S+").unwrap_or_else(|error| panic!("{error}"))
    });
    let outside: Vec<&str> = line.split('`').step_by(2).collect();
    NAMES.replace_all(&outside.join("`"), "]").into_owned()
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
    fn old_words_are_found_where_it_is_clean() {
        let old = ["the new ", "code is taken ", "back\n"].concat();
        assert_eq!(problems_of("docs/a.md", &old), 2);
        assert_eq!(problems_of("crates/a.rs", &old), 0);
        assert_eq!(problems_of("docs/a.md", "`installed` counts `midway`\n"), 0);
        assert_eq!(problems_of("docs/a.md", &format!("```\n{old}```\n")), 0);
    }

    #[test]
    fn terms_broken_over_two_lines_are_found() {
        let (first, second) = ("rewritten, then taken", "back in the end");
        let name = "crates/process/live/src/a.rs";
        assert_eq!(problems_of(name, &format!("/// It is {first}\n/// {second}\n")), 1);
        assert_eq!(
            problems_of(name, &format!("/// It is {first}\nfn a() {{}}\n/// {second}\n")),
            0
        );
        assert_eq!(problems_of("docs/a.md", &format!("- It is {first}\n- {second}\n")), 0);
        assert_eq!(problems_of("docs/a.md", &format!("It is {first}\n\n{second}\n")), 0);
    }

    #[test]
    fn comments_count_in_code() {
        let name = "crates/process/live/src/a.rs";
        let old = ["new ", "code"].concat();
        assert_eq!(problems_of(name, &format!("let new_code = {old:?};\n")), 0);
        assert_eq!(problems_of(name, &format!("let a = 1; // {old}\n/// `{old}`\n")), 1);
        assert_eq!(problems_of(name, &format!("/* A\n * {old} */ {old}\n{old}\n/* {old} */\n")), 2);
        assert_eq!(problems_of("ui/a.css", &format!("/* {old} */\na {{ b: \"{old}\" }}\n")), 1);
        assert_eq!(problems_of("tests/a.py", &format!("a = {old:?}\nb = 1  # {old}\n")), 1);
        let property = "@property {number} [midway]";
        let text = format!("/** {property} A.\n * {property} {old}\n */\n");
        assert_eq!(problems_of("ui/a.js", &text), 1);
    }
}
