//! What an analysis found: tables of plain values.

use serde::Serialize;

/// Tables, and a graph for those that have one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Found {
    /// The tables.
    pub tables: Vec<Findable>,
    /// What to know about them, one sentence each.
    pub notes: Vec<String>,
    /// A graph in GraphViz's language.
    pub dot: Option<String>,
}

/// A table. The last column is texts, which name the rows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Findable {
    /// What it shows.
    pub title: String,
    /// Its columns.
    pub columns: Vec<FoundColumn>,
    /// Its rows, a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column of a [`Findable`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundColumn {
    /// Its title.
    pub name: &'static str,
    /// What its numbers are.
    pub unit: Unit,
}

/// What numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A number of things.
    Count,
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// A part of 1.
    Share,
    /// A number of things on average.
    Mean,
    /// No number.
    Text,
}

/// A value of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number, of the column's unit.
    Number(u64),
    /// A part of 1, or a mean.
    Share(f64),
    /// A text.
    Text(String),
    /// Not known, or not applicable.
    None,
}

impl Findable {
    /// An empty table.
    pub(crate) fn new(title: impl Into<String>, columns: &[(&'static str, Unit)]) -> Findable {
        let columns = columns.iter().map(|&(name, unit)| FoundColumn { name, unit }).collect();
        Findable { title: title.into(), columns, rows: Vec::new() }
    }
}

/// A part of a whole.
pub(crate) fn share(part: u64, whole: u64) -> Cell {
    if whole == 0 { Cell::None } else { Cell::Share(part as f64 / whole as f64) }
}
