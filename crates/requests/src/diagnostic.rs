//! Messages about schemas: each points at a place in a text that somebody wrote.

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
    /// Messages beyond this number help nobody.
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
        // What a terminal would not show as one column is shown as one blank.
        let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let marked = source.map_or("", |source| {
            source.text.get(diagnostic.span.start..diagnostic.span.end).unwrap_or("")
        });
        let width = marked.lines().next().unwrap_or("").chars().count().max(1);
        writeln!(f, "{number} | {shown}")?;
        writeln!(f, "{gutter} | {}{}", " ".repeat(column - 1), "^".repeat(width))?;
        match &diagnostic.help {
            Some(help) => writeln!(f, "{gutter} = {help}"),
            None => Ok(()),
        }
    }
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

    #[test]
    fn a_message_shows_line_and_column() {
        let report = Report {
            files: vec![Source::new("s", "äb\n\tcö dd\n")],
            diagnostics: vec![Diagnostic {
                severity: Severity::Error,
                file: 0,
                span: Span { start: 9, end: 11 },
                message: "no".into(),
                help: Some("yes".into()),
            }],
        };
        let text = "s:2:5: error: no\n2 |  cö dd\n  |     ^^\n  = yes\n";
        assert_eq!(report.to_string(), text);
    }
}
