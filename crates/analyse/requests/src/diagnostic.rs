//! Messages about schemas: each points at a place in a text that a user wrote.

use std::fmt;

/// A range of bytes in a schema's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The schema cannot be used.
    Error,
    /// It can, but does perhaps not what its author meant.
    Warning,
}

/// A message about a place in a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Which of [`Report::files`].
    pub file: usize,
    /// Where in it.
    pub span: Span,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// A schema's text and the name people know it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name, which is also the name of the schema.
    pub name: String,
    /// All of it.
    pub text: String,
}

impl Source {
    /// A source from its parts.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source { name: name.into(), text: text.into() }
    }
}

/// Messages, with the texts they are about. `Display` shows lines and columns.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The texts.
    pub files: Vec<Source>,
    /// The messages, in the order they were found.
    pub diagnostics: Vec<Diagnostic>,
}

impl Report {
    /// More messages than these would not help.
    const MAX: usize = 20;

    /// Whether a message is an error.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }

    /// Whether there are as many messages as anybody reads.
    pub(crate) fn full(&self) -> bool {
        self.diagnostics.len() >= Report::MAX
    }

    /// Adds a message, unless it was said before or there are enough.
    pub(crate) fn add(&mut self, diagnostic: Diagnostic) {
        if !self.full() && !self.diagnostics.contains(&diagnostic) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Line and column of a byte, both from 1. Columns count characters.
    pub fn position(&self, file: usize, at: usize) -> (usize, usize) {
        let text = self.files.get(file).map_or("", |file| file.text.as_str());
        let before = &text.as_bytes()[..at.min(text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |n| n + 1);
        (line, 1 + characters(&before[start..]))
    }
}

fn characters(bytes: &[u8]) -> usize {
    // Bytes that continue a character look like 10xxxxxx.
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, diagnostic) in self.diagnostics.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            self.show(diagnostic, f)?;
        }
        Ok(())
    }
}

impl Report {
    fn show(&self, diagnostic: &Diagnostic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.position(diagnostic.file, diagnostic.span.start);
        let source = self.files.get(diagnostic.file);
        let name = source.map_or("", |source| source.name.as_str());
        let severity = match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(f, "{name}:{line}:{column}: {severity}: {}", diagnostic.message)?;
        let text = source.and_then(|source| source.text.lines().nth(line - 1)).unwrap_or("");
        let number = line.to_string();
        let gutter = " ".repeat(number.len());
        let (shown, before) = around(text, column - 1);
        let marked = source.map_or("", |source| {
            source.text.get(diagnostic.span.start..diagnostic.span.end).unwrap_or("")
        });
        let width = marked.lines().next().unwrap_or("").chars().count();
        let width = width.min(shown.chars().count().saturating_sub(before)).max(1);
        writeln!(f, "{number} | {shown}")?;
        writeln!(f, "{gutter} | {}{}", " ".repeat(before), "^".repeat(width))?;
        match &diagnostic.help {
            Some(help) => writeln!(f, "{gutter} = {help}"),
            None => Ok(()),
        }
    }
}

/// Most characters of a line that are shown.
const LINE: usize = 120;
/// Of a longer line, those before the place that is meant.
const BEFORE: usize = 50;

/// A line, or of a long one what is around a character, and how many characters stand before that.
fn around(line: &str, at: usize) -> (String, usize) {
    // What a terminal would not show as one column is shown as one blank.
    let shown = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    let length = line.chars().count();
    if length <= LINE {
        return (shown.collect(), at);
    }
    let begin = at.saturating_sub(BEFORE).min(length - LINE);
    let end = begin + LINE;
    let cut = |n: usize| (n == begin && begin > 0) || (n + 1 == end && end < length);
    let kept = shown.enumerate().skip(begin).take(LINE);
    (kept.map(|(n, c)| if cut(n) { '…' } else { c }).collect(), at - begin)
}

impl std::error::Error for Report {}

/// "did you mean …?" with the nearest of some names, if one is near enough.
pub(crate) fn suggest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let near = |name: &str| {
        let distance = strsim::damerau_levenshtein(wrong, name);
        // Half of a name wrong is another name; a name that begins alike was cut short.
        let begins = wrong.len() >= 3 && name.starts_with(wrong);
        (distance * 2 <= wrong.len().min(name.len()) || begins).then_some(distance)
    };
    let nearest = names.into_iter().filter_map(|name| Some((near(name)?, name))).min()?;
    Some(format!("did you mean `{}`?", nearest.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered() {
        let names = ["read", "write", "accept", "switch_out"];
        assert_eq!(suggest("raed", names).unwrap(), "did you mean `read`?");
        assert_eq!(suggest("switch", names).unwrap(), "did you mean `switch_out`?");
        assert_eq!(suggest("zzz", names), None);
    }

    fn report(text: &str, start: usize, end: usize) -> Report {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            file: 0,
            span: Span { start, end },
            message: "no".into(),
            help: Some("yes".into()),
        };
        Report { files: vec![Source::new("s", text)], diagnostics: vec![diagnostic] }
    }

    #[test]
    fn of_a_long_line_what_is_around_the_place_is_shown() {
        for (start, end, before) in
            [(0, 2, 0), (5000, 5003, 50), (9998, 10_000, 118), (7000, 9999, 50)]
        {
            let text = format!("{}{}", "x".repeat(start), "ö".repeat(10_000 - start));
            let shown = report(&text, start, end).to_string();
            let lines: Vec<&str> = shown.lines().collect();
            assert!(lines[0].starts_with(&format!("s:1:{}:", start + 1)), "{shown}");
            assert_eq!(lines[1].chars().count(), 4 + LINE, "{shown}");
            assert!(lines[2].chars().count() <= 4 + LINE, "{shown}");
            let mark = lines[2].find('^').unwrap();
            assert_eq!(mark, 4 + before, "{shown}");
            assert!(lines[1].contains('…'), "{shown}");
            assert_eq!(lines[1].chars().nth(mark), Some('ö'));
        }
    }

    #[test]
    fn a_message_shows_line_and_column() {
        let report = report("äb\n\tcö dd\n", 9, 11);
        let text = "s:2:5: error: no\n2 |  cö dd\n  |     ^^\n  = yes\n";
        assert_eq!(report.to_string(), text);
    }
}
