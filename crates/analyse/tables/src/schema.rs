//! Which tables there are, and their columns.
//!
//! Times are signed, though none is negative: who subtracts two of them in SQL wants no surprise.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number, 64 bits with a sign.
    Int,
    /// A text; a dictionary has each once.
    Text,
    /// Yes or no.
    Flag,
}

impl Kind {
    /// As Arrow has it.
    pub fn data_type(self) -> DataType {
        match self {
            Kind::Int => DataType::Int64,
            Kind::Text => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            Kind::Flag => DataType::Boolean,
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name; units stand at the end.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether a row may have nothing there.
    pub nullable: bool,
}

/// A table about requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// One row for each request.
    Requests,
    /// What its actors did, and when: they ran, could have run, or waited.
    Spans,
    /// Its stays in sections of timelines: its way.
    Sections,
    /// Its critical path: what it waited for, and on whom.
    Steps,
    /// Where work, or permission to go on, came from.
    Links,
    /// Its events.
    RequestEvents,
}

const fn int(name: &'static str) -> Column {
    Column { name, kind: Kind::Int, nullable: false }
}

const fn text(name: &'static str) -> Column {
    Column { name, kind: Kind::Text, nullable: false }
}

const fn flag(name: &'static str) -> Column {
    Column { name, kind: Kind::Flag, nullable: false }
}

const fn maybe(column: Column) -> Column {
    Column { nullable: true, ..column }
}

const REQUESTS: &[Column] = &[
    text("schema"),
    int("id"),
    text("class"),
    text("path"),
    int("begin_ns"),
    int("end_ns"),
    int("wall_ns"),
    maybe(int("answered_ns")),
    int("response_ns"),
    int("running_ns"),
    int("runnable_ns"),
    int("queued_ns"),
    int("lock_ns"),
    int("disk_ns"),
    int("network_ns"),
    int("sleeping_ns"),
    int("shared_ns"),
    int("events"),
    int("actors"),
    int("shared_with"),
    text("outcome"),
    text("certainty"),
    int("likely"),
    int("candidates"),
];

const SPANS: &[Column] = &[
    text("schema"),
    int("request"),
    text("actor"),
    maybe(text("process")),
    maybe(int("pid")),
    maybe(int("tid")),
    text("state"),
    int("from_ns"),
    int("to_ns"),
    flag("shared"),
];

const SECTIONS: &[Column] = &[
    text("schema"),
    int("request"),
    text("timeline"),
    text("name"),
    flag("actor"),
    int("from_ns"),
    int("to_ns"),
];

const STEPS: &[Column] = &[
    text("schema"),
    int("request"),
    int("step"),
    text("actor"),
    text("state"),
    int("from_ns"),
    int("to_ns"),
    maybe(text("waited_for")),
];

const LINKS: &[Column] = &[
    text("schema"),
    int("request"),
    text("kind"),
    text("from_actor"),
    maybe(int("from_request")),
    int("from_ns"),
    text("to_actor"),
    int("to_ns"),
];

const REQUEST_EVENTS: &[Column] = &[
    text("schema"),
    int("request"),
    int("event"),
    int("time_ns"),
    text("kind"),
    maybe(text("actor")),
    flag("shared"),
];

impl Table {
    /// All tables.
    pub const ALL: [Table; 6] = [
        Table::Requests,
        Table::Spans,
        Table::Sections,
        Table::Steps,
        Table::Links,
        Table::RequestEvents,
    ];

    /// Its name in SQL, of its file, and of its handler in Python.
    pub fn name(self) -> &'static str {
        match self {
            Table::Requests => "requests",
            Table::Spans => "spans",
            Table::Sections => "sections",
            Table::Steps => "steps",
            Table::Links => "links",
            Table::RequestEvents => "request_events",
        }
    }

    /// The table of that name.
    pub fn from_name(name: &str) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Its columns, in order.
    pub fn columns(self) -> &'static [Column] {
        match self {
            Table::Requests => REQUESTS,
            Table::Spans => SPANS,
            Table::Sections => SECTIONS,
            Table::Steps => STEPS,
            Table::Links => LINKS,
            Table::RequestEvents => REQUEST_EVENTS,
        }
    }

    /// Its columns as Arrow has them.
    pub fn schema(self) -> SchemaRef {
        let field = |c: &Column| Field::new(c.name, c.kind.data_type(), c.nullable);
        Arc::new(Schema::new(self.columns().iter().map(field).collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_and_column_is_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/user/tables.md");
        let docs = std::fs::read_to_string(path).expect("docs/user/tables.md");
        for table in Table::ALL {
            let heading = format!("### `{}`", table.name());
            let (_, about) = docs.split_once(&heading).expect(&heading);
            let about = about.split("\n### ").next().unwrap_or_default();
            for column in table.columns() {
                let name = format!("`{}`", column.name);
                assert!(about.contains(&name), "{heading} does not explain {name}");
            }
            assert_eq!(Table::from_name(table.name()), Some(table));
        }
    }
}
