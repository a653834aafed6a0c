//! A table of a paper, with what is measured here beside it.

use std::fmt::Write as _;

/// A measured value, with its 95 % interval where there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// The value.
    pub value: f64,
    /// Its interval.
    pub interval: Option<(f64, f64)>,
}

impl Value {
    /// One without an interval.
    pub fn of(value: f64) -> Value {
        Value { value, interval: None }
    }

    /// Its text.
    pub fn text(self) -> String {
        let digits = |value: f64| match value.abs() {
            large if large >= 100.0 => format!("{value:.0}"),
            middle if middle >= 10.0 => format!("{value:.1}"),
            _ => format!("{value:.2}"),
        };
        match self.interval {
            Some((low, high)) => {
                format!("{} [{} to {}]", digits(self.value), digits(low), digits(high))
            }
            None => digits(self.value),
        }
    }
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// What is measured.
    pub what: String,
    /// What the paper has.
    pub paper: Option<f64>,
    /// What is measured here.
    pub ours: Option<Value>,
    /// The best peer at hand, and what it comes to.
    pub peer: Option<(String, Value)>,
}

impl Row {
    /// Whether less is better and ours is more than the paper's or the peer's.
    fn lost(&self) -> Option<&'static str> {
        let ours = self.ours?.value;
        let paper = self.paper.is_some_and(|paper| ours > paper);
        let peer = self.peer.as_ref().is_some_and(|(_, peer)| ours > peer.value);
        match (paper, peer) {
            (true, true) => Some("against the paper and the peer"),
            (true, false) => Some("against the paper"),
            (false, true) => Some("against the peer"),
            (false, false) => None,
        }
    }
}

/// A table or a figure.
#[derive(Clone, Debug)]
pub struct Table {
    /// Which of the paper's.
    pub name: &'static str,
    /// What it has, and in which unit.
    pub about: &'static str,
    /// What has changed since, in a sentence: other machines, other hosts.
    pub note: &'static str,
    /// Whether less is better, so that there is something to lose.
    pub less_is_better: bool,
    /// The command that measures it.
    pub command: String,
    /// Its rows.
    pub rows: Vec<Row>,
}

impl Table {
    /// For a terminal.
    pub fn as_text(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.about);
        for row in &self.rows {
            let paper = row.paper.map_or_else(|| "-".to_owned(), |v| Value::of(v).text());
            let ours = row.ours.map_or_else(|| "-".to_owned(), Value::text);
            let peer = row.peer.as_ref();
            let peer = peer.map_or_else(String::new, |(name, v)| format!("; {name} {}", v.text()));
            let _ = writeln!(text, "  {:28} paper {paper:>8}  here {ours}{peer}", row.what);
        }
        text
    }

    /// For a page.
    pub fn as_markdown(&self) -> String {
        let mut text = format!("## {}\n\n{}. {}\n\n", self.name, self.about, self.note);
        let _ = writeln!(text, "```text\n{}\n```\n", self.command);
        text.push_str("| | paper | here | peer | |\n|---|---|---|---|---|\n");
        for row in &self.rows {
            let paper = row.paper.map_or_else(String::new, |v| Value::of(v).text());
            let ours = row.ours.map_or_else(|| "not measured".to_owned(), Value::text);
            let peer = row.peer.as_ref();
            let peer = peer.map_or_else(String::new, |(name, v)| format!("{name}: {}", v.text()));
            let lost = row.lost().filter(|_| self.less_is_better);
            let lost = lost.map_or_else(String::new, |against| format!("lost {against}"));
            let _ = writeln!(text, "| {} | {paper} | {ours} | {peer} | {lost} |", row.what);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_lost_is_said() {
        let row = |paper, ours, peer| Row {
            what: "a".to_owned(),
            paper: Some(paper),
            ours: Some(Value { value: ours, interval: Some((ours - 0.01, ours + 0.01)) }),
            peer: Some(("p".to_owned(), Value::of(peer))),
        };
        let table = |less_is_better| Table {
            name: "Table 1",
            about: "a ratio",
            note: "",
            less_is_better,
            command: "x".to_owned(),
            rows: vec![row(1.0, 1.2, 1.3), row(2.0, 1.0, 3.0)],
        };
        let text = table(true).as_markdown();
        assert!(
            text.contains("| a | 1.00 | 1.20 [1.19 to 1.21] | p: 1.30 | lost against the paper |"),
            "{text}"
        );
        assert_eq!(text.matches("lost").count(), 1);
        assert_eq!(table(false).as_markdown().matches("lost").count(), 0);
        assert_eq!(Value::of(1234.5).text(), "1234");
    }
}
