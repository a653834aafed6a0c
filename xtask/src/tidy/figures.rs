//! Tables of figures say by which command they were measured.

use std::sync::LazyLock;

use regex::Regex;

use super::source::{Problem, Source};

/// A number with a unit of time, of speed, or of comparison.
static FIGURE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(^|[^\w`.-])[-+]?\d[\d,.]* ?(x\b|s\b|ms\b|µs\b|ns\b|MB/s|GB/s|%)")
        .unwrap_or_else(|error| panic!("{error}"))
});
/// Code has numbers with units that are options.
static CODE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("`[^`]*`").unwrap_or_else(|error| panic!("{error}")));
/// What measures: benchmarks, papers, beds and tests.
const COMMANDS: [&str; 5] =
    ["cargo xtask", "fettle bench", "fettle compare", "cargo test", "make lab"];
/// A row with a figure may be a description; several are a measurement.
const MEASURED: usize = 2;
/// The records of decisions are dated and are not measured anew.
const DECISIONS: &str = "docs/adr/";

/// Checks all documents.
pub fn check(sources: &[Source], problems: &mut Vec<Problem>) {
    let pages =
        sources.iter().filter(|s| s.name.ends_with(".md") && !s.name.starts_with(DECISIONS));
    for page in pages.filter(|page| page.name == "README.md" || page.name.starts_with("docs/")) {
        for (line, section) in sections(&page.text) {
            let rows = section.lines().filter(|line| line.starts_with('|'));
            let measured = rows.filter(|row| FIGURE.is_match(&CODE.replace_all(row, ""))).count();
            if measured >= MEASURED && !COMMANDS.iter().any(|command| section.contains(command)) {
                problems.push(Problem::new(page, line, "this section's figures name no command"));
            }
        }
    }
}

/// The parts of a page between its headings of the first two levels, with the number of their first line.
fn sections(text: &str) -> Vec<(usize, &str)> {
    let mut starts = vec![(0, 0)];
    let (mut at, mut is_code) = (0, false);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        is_code ^= line.starts_with("```");
        if !is_code && (line.starts_with("# ") || line.starts_with("## ")) && at > 0 {
            starts.push((number, at));
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).map(|(_, at)| *at).chain([text.len()]);
    starts.iter().zip(ends).map(|((number, from), to)| (*number, &text[*from..to])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> usize {
        let page = Source { name: "docs/page.md".into(), text: text.into() };
        let mut problems = Vec::new();
        check(&[page], &mut problems);
        problems.len()
    }

    #[test]
    fn a_table_of_figures_names_its_command() {
        let table =
            "# Page\n\n## Cost\n\n| what | time |\n|---|---|\n| a | 3.4 ms |\n| b | 1.13x |\n";
        assert_eq!(problems(table), 1);
        assert_eq!(problems(&table.replace("Cost\n", "Cost\n\n`cargo xtask bench probe`\n")), 0);
        // In another section it does not count, and in code a heading is none.
        assert_eq!(problems(&format!("{table}\n## More\n\n`cargo xtask bench`\n")), 1);
        assert_eq!(problems(&format!("{table}\n```\n# x\n```\n`cargo xtask bench`\n")), 0);
    }

    #[test]
    fn a_table_of_words_needs_none() {
        assert_eq!(problems("# Page\n\n| a | `--duration 10s` |\n| b | 3 ms |\n| c | two |\n"), 0);
    }
}
