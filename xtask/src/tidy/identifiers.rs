//! Names in code that the field does not have.
//!
//! A mechanism must be recognised by the name of its type or function, too. Names of four parts at most
//! count: longer ones are sentences, which tests have.

use std::sync::LazyLock;

use regex::Regex;

use super::source::{Problem, Source};

/// Parts that names must not have, and what the field says.
const PARTS: [(&str, &str); 15] = [
    ("behalf", "proxy attribution"),
    ("bequeath", "patches inherited over fork"),
    ("circulation", "min-cost-flow profile inference"),
    ("crossings", "OSR map"),
    ("deeds", "transitions"),
    ("doings", "activities"),
    ("haste", "scheduling priority"),
    ("heir", "forked child"),
    ("heirs", "forked children"),
    ("hindsight", "deferred attribution"),
    ("knocked", "library event"),
    ("midway", "on-stack replacement, OSR entry"),
    ("springboard", "entry patch"),
    ("springboards", "entry patches"),
    ("unmet", "unmatched patterns"),
];

/// Parts that a name may have before it is a sentence.
const PARTS_MAX: usize = 4;

/// Comments, texts and characters, which are not names; or a name.
static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    let text =
        r##"//[^\n]*|(?s:/\*.*?\*/)|r#"(?s:.*?)"#|"(?:\\(?s:.)|[^"\\])*"|'(?:\\[^']+|[^'\\])'"##;
    let name = "(?P<name>[A-Za-z_][A-Za-z0-9_]*)";
    Regex::new(&format!("{text}|{name}")).unwrap_or_else(|error| panic!("{error}"))
});

/// Checks one file.
pub fn check(source: &Source, problems: &mut Vec<Problem>) {
    if !matches!(source.name.rsplit('.').next(), Some("rs" | "c" | "h" | "S")) {
        return;
    }
    for found in TOKENS.captures_iter(&source.text).filter_map(|token| token.name("name")) {
        let parts = parts_of(found.as_str());
        if parts.len() > PARTS_MAX {
            continue;
        }
        for (part, instead) in PARTS.iter().filter(|(part, _)| parts.iter().any(|p| p == part)) {
            let line = source.text[..found.start()].matches('\n').count();
            let what = format!("`{}`: {part:?}: the field says {instead}", found.as_str());
            problems.push(Problem::new(source, line, what));
        }
    }
}

/// The words of a name in any of the usual spellings, in lower case.
fn parts_of(name: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut before = '_';
    for c in name.chars() {
        if c != '_' {
            let begins = before == '_' || (c.is_ascii_uppercase() && !before.is_ascii_uppercase());
            match parts.last_mut().filter(|_| !begins) {
                Some(part) => part.push(c.to_ascii_lowercase()),
                None => parts.push(c.to_ascii_lowercase().to_string()),
            }
        }
        before = c;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        check(&Source { name: "crates/a.rs".into(), text: text.into() }, &mut problems);
        problems.into_iter().map(|problem| problem.place).collect()
    }

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(parts_of("SHADOW_Used"), ["shadow", "used"]);
        assert_eq!(parts_of("ForkedChild"), ["forked", "child"]);
        assert_eq!(parts_of("_x2"), ["x2"]);
    }

    #[test]
    fn old_words_are_found_in_names_only() {
        let old = ["hei", "rs"].concat();
        assert_eq!(problems_of(&format!("fn a() {{\n    let {old} = 1;\n}}\n")), ["crates/a.rs:2"]);
        assert_eq!(
            problems_of(&format!(
                "struct All{};\nconst {};\n",
                ["Hei", "rs"].concat(),
                old.to_uppercase()
            ))
            .len(),
            2
        );
        assert!(
            problems_of(&format!("// {old}\nlet a = \"{old}\"; /* {old} */ let b = ';';\n"))
                .is_empty()
        );
        assert!(problems_of(&format!("fn what_{old}_do_is_undone_again() {{}}\n")).is_empty());
    }
}
