//! Columns of numbers, aligned, with one flexible column of names at the end.

use super::{Terminal, one_line};

/// Fewest characters that the names keep before columns are left out.
const NAME_MIN: usize = 24;
/// Space between columns.
const GAP: usize = 2;

/// A table being built.
#[derive(Debug)]
pub struct Table<'a> {
    columns: Vec<Column<'a>>,
    rows: Vec<Vec<String>>,
}

/// A column of numbers.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// What stands above it.
    pub title: &'a str,
    /// On a narrow terminal, columns of the highest rank go first; rank 0 stays.
    pub rank: u8,
    /// Whether the figures are of second interest.
    pub dim: bool,
}

/// A column that stays.
pub const fn column(title: &str) -> Column<'_> {
    Column { title, rank: 0, dim: false }
}

/// A column that may go.
pub const fn may_go(title: &str, rank: u8) -> Column<'_> {
    Column { title, rank, dim: false }
}

impl<'a> Column<'a> {
    /// The same, dimmed.
    pub const fn dim(self) -> Column<'a> {
        Column { dim: true, ..self }
    }
}

impl<'a> Table<'a> {
    /// A table with these columns of numbers and a last one of names.
    pub fn new(columns: &[Column<'a>], names: &'a str) -> Table<'a> {
        let mut columns = columns.to_vec();
        columns.push(column(names));
        Table { columns, rows: Vec::new() }
    }

    /// Adds a row: one text per column, whatever is in it.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().map(one_line).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// Appends the table's lines.
    pub fn render(&self, terminal: Terminal, out: &mut String) {
        let last = self.columns.len() - 1;
        let widths: Vec<usize> = (0..=last)
            .map(|at| {
                let cells = self.rows.iter().map(|row| width_of(&row[at]));
                cells.chain([width_of(self.columns[at].title)]).max().unwrap_or(0)
            })
            .collect();
        let mut shown: Vec<usize> = (0..last).collect();
        if let Some(width) = terminal.width {
            let needed = widths[last].min(NAME_MIN);
            loop {
                let numbers: usize = shown.iter().map(|&at| widths[at] + GAP).sum();
                let worst = shown.iter().copied().max_by_key(|&at| (self.columns[at].rank, at));
                match worst {
                    Some(at) if numbers + needed > width && self.columns[at].rank > 0 => {
                        shown.retain(|&other| other != at);
                    }
                    _ => break,
                }
            }
        }
        let numbers: usize = shown.iter().map(|&at| widths[at] + GAP).sum();
        let room = terminal.width.map(|width| width.saturating_sub(numbers).max(NAME_MIN / 2));
        let titles: Vec<String> = self.columns.iter().map(|c| c.title.to_owned()).collect();
        for (index, row) in std::iter::once(&titles).chain(&self.rows).enumerate() {
            let heading = index == 0;
            let mut line = String::new();
            for &at in &shown {
                let pad = widths[at] - width_of(&row[at]);
                line.extend(std::iter::repeat_n(' ', pad));
                let dim = self.columns[at].dim && !heading;
                paint(&mut line, &row[at], if dim { DIM } else { "" }, terminal.colour);
                line.push_str("  ");
            }
            line.push_str(&shortened(&row[last], room));
            let line = line.trim_end();
            paint(out, line, if heading { BOLD } else { "" }, terminal.colour);
            out.push('\n');
        }
    }
}

/// Escape sequence for headings.
pub const BOLD: &str = "\x1b[1m";
/// Escape sequence for figures of second interest.
pub const DIM: &str = "\x1b[2m";
/// Escape sequence for what must not be overlooked.
pub const WARN: &str = "\x1b[1;33m";

/// Appends text in a style.
pub fn paint(out: &mut String, text: &str, style: &str, colour: bool) {
    if !colour || style.is_empty() || text.is_empty() {
        out.push_str(text);
        return;
    }
    out.push_str(style);
    out.push_str(text);
    out.push_str("\x1b[0m");
}

/// Characters of a text; good enough for names of functions.
fn width_of(text: &str) -> usize {
    text.chars().count()
}

/// A text of at most so many characters: the middle goes, because names differ at both ends.
pub fn shortened(text: &str, room: Option<usize>) -> String {
    let width = width_of(text);
    let Some(room) = room.filter(|&room| room < width) else { return text.to_owned() };
    let keep = room.saturating_sub(1);
    let (left, right) = (keep - keep / 2, keep / 2);
    let start: String = text.chars().take(left).collect();
    let end: String = text.chars().skip(width - right).collect();
    format!("{start}…{end}")
}
