//! Whether a command printed what a page says, but for what differs from run to run.
//!
//! Figures differ, with their units, and so does which functions a table names. So lines are
//! compared with every figure as `#`, and rows of figures by how many they have. Each line of the
//! page must be there, in that order; what is printed in between a page may leave out, but says so
//! by `...`, which is what readers expect.

use std::sync::LazyLock;

use regex::Regex;

/// Figures, with a unit if they have one. Addresses and hashes count too.
static FIGURE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?x) \b0x[0-9a-f]+ | sub_[0-9a-f]+ | \b[0-9a-f]{12,}\b
          | [-+±]?\d[\d.,:TZ]* (?: \x20? (?: ns|µs|us|ms|s|kB|MB|GB|%|×) (?: \b|$) )? ",
    )
    .unwrap_or_else(|error| panic!("{error}"))
});

/// Lines about losses and what is special of a run: whether they are there depends on the machine.
fn may_be_missing(line: &str) -> bool {
    line.starts_with("! ") || line.starts_with("note: ") || line.contains(" lost")
}

fn mask(line: &str) -> String {
    let masked = FIGURE.replace_all(line, "#");
    let mut words: Vec<&str> = masked.split_whitespace().collect();
    // `38.9 %` and `#` that stand apart are one figure each; dashes stand for figures, too.
    for word in &mut words {
        if matches!(*word, "-" | "%") {
            *word = "#";
        }
    }
    words.join(" ")
}

/// Number of figures in a row of a table.
fn row(masked: &str) -> Option<usize> {
    let figures = masked.matches('#').count();
    (masked.starts_with('#') || figures >= 4).then_some(figures)
}

fn alike(expected: &str, actual: &str) -> bool {
    let (expected, actual) = (mask(expected), mask(actual));
    expected == actual
        || matches!((row(&expected), row(&actual)), (Some(a), Some(b)) if a.abs_diff(b) <= 2)
}

/// The first line of a page that was not printed.
pub fn missing<'a>(expected: &'a [String], actual: &[String]) -> Option<&'a str> {
    let mut from = 0;
    for line in expected.iter().filter(|line| line.trim() != "..." && !line.trim().is_empty()) {
        match actual[from..].iter().position(|printed| alike(line, printed)) {
            Some(at) => from += at + 1,
            None if may_be_missing(line) => {}
            None => return Some(line),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(String::from).collect()
    }

    #[test]
    fn figures_may_differ_and_words_may_not() {
        let actual = lines("6.7 s wall, 4.27 s CPU\n2.27 s 41.9 % 3 4 main\nfunctions  reason\n");
        assert_eq!(missing(&lines("7.83 s wall, 962 ms CPU"), &actual), None);
        assert_eq!(
            missing(&lines("310 ms  21.8 %  5  6  sub_2cad0\n...\nfunctions  reason"), &actual),
            None
        );
        assert_eq!(missing(&lines("functions  cause"), &actual), Some("functions  cause"));
        assert_eq!(
            missing(&lines("functions  reason\n6 s wall, 4 s CPU"), &actual),
            Some("6 s wall, 4 s CPU")
        );
        assert_eq!(missing(&lines("note: 3 calls were open"), &actual), None);
    }
}
