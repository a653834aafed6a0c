//! Batches of rows, made as requests are completed.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int64Builder, StringDictionaryBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use fettle_follow::{Actor, Context};
use fettle_requests::{LinkKind, Peer, Request};
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::schema::{Kind, Table};

/// A value of a row.
enum Cell<'a> {
    Int(u64),
    Text(&'a str),
    Flag(bool),
    Nothing,
}

enum ColumnBuilder {
    Int(Int64Builder),
    Text(StringDictionaryBuilder<Int32Type>),
    Flag(BooleanBuilder),
}

impl ColumnBuilder {
    fn new(kind: Kind) -> ColumnBuilder {
        match kind {
            Kind::Int => ColumnBuilder::Int(Int64Builder::new()),
            Kind::Text => ColumnBuilder::Text(StringDictionaryBuilder::new()),
            Kind::Flag => ColumnBuilder::Flag(BooleanBuilder::new()),
        }
    }

    fn push(&mut self, cell: &Cell<'_>) {
        match (self, cell) {
            // Times and numbers beyond 2^63 are those of a broken trace; they stay the largest.
            (ColumnBuilder::Int(to), Cell::Int(n)) => {
                to.append_value(i64::try_from(*n).unwrap_or(i64::MAX));
            }
            (ColumnBuilder::Text(to), Cell::Text(text)) => to.append_value(text),
            (ColumnBuilder::Flag(to), Cell::Flag(flag)) => to.append_value(*flag),
            (ColumnBuilder::Int(to), _) => to.append_null(),
            (ColumnBuilder::Text(to), _) => to.append_null(),
            (ColumnBuilder::Flag(to), _) => to.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            ColumnBuilder::Int(from) => Arc::new(from.finish()),
            ColumnBuilder::Text(from) => Arc::new(from.finish()),
            ColumnBuilder::Flag(from) => Arc::new(from.finish()),
        }
    }
}

/// Rows of one table that are not a batch yet.
struct Builder {
    table: Table,
    columns: Vec<ColumnBuilder>,
    rows: usize,
}

impl Builder {
    fn new(table: Table) -> Builder {
        let columns = table.columns().iter().map(|c| ColumnBuilder::new(c.kind)).collect();
        Builder { table, columns, rows: 0 }
    }

    fn push<const N: usize>(&mut self, row: [Cell<'_>; N]) {
        debug_assert_eq!(self.columns.len(), N);
        self.columns.iter_mut().zip(&row).for_each(|(column, cell)| column.push(cell));
        self.rows += 1;
    }

    fn take(&mut self) -> Result<RecordBatch> {
        self.rows = 0;
        let columns = self.columns.iter_mut().map(ColumnBuilder::finish).collect();
        Ok(RecordBatch::try_new(self.table.schema(), columns)?)
    }
}

/// Makes batches of the tables that are wanted.
pub struct Builders {
    builders: Vec<Builder>,
}

impl Builders {
    /// Nothing of any of `tables` yet.
    pub fn new(tables: &[Table]) -> Builders {
        Builders { builders: tables.iter().map(|table| Builder::new(*table)).collect() }
    }

    /// Adds the rows of a request.
    pub fn push(&mut self, request: &Request, context: &Context<'_>) {
        let program = context.program();
        let schema = program.schemas().get(request.schema).map_or("", |schema| schema.name());
        let mut row = Rows { request, context, schema, actors: FxHashMap::default() };
        for builder in &mut self.builders {
            match builder.table {
                Table::Requests => row.request(builder),
                Table::Spans => row.spans(builder),
                Table::Sections => row.sections(builder),
                Table::Steps => row.steps(builder),
                Table::Links => row.links(builder),
                Table::RequestEvents => row.events(builder),
            }
        }
    }

    /// Takes out the tables that have at least so many rows; with 1, all that have any.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Arrow`] if a batch would have more texts than a dictionary can number.
    pub fn take(&mut self, rows: usize) -> Result<Vec<(Table, RecordBatch)>> {
        let full = self.builders.iter_mut().filter(|builder| builder.rows >= rows.max(1));
        full.map(|builder| Ok((builder.table, builder.take()?))).collect()
    }
}

/// A request, being written down.
struct Rows<'a> {
    request: &'a Request,
    context: &'a Context<'a>,
    schema: &'a str,
    /// Who the actors of its sections are, by place of the section.
    actors: FxHashMap<usize, Actor>,
}

impl Rows<'_> {
    fn actor(&mut self, section: usize) -> &Actor {
        let Rows { request, context, actors, .. } = self;
        actors.entry(section).or_insert_with(|| {
            let section = &request.sections[section];
            context.actor(request, section.timeline, section.key, section.joined_ns)
        })
    }

    fn request(&mut self, to: &mut Builder) {
        let row = self.context.row(self.request);
        let times = &row.times_ns;
        to.push([
            Cell::Text(self.schema),
            Cell::Int(row.id),
            Cell::Text(&row.class),
            Cell::Text(&row.path.join(" > ")),
            Cell::Int(row.begin_ns),
            Cell::Int(row.end_ns),
            Cell::Int(row.wall_ns),
            row.answered_ns.map_or(Cell::Nothing, Cell::Int),
            Cell::Int(row.response_ns),
            Cell::Int(times.running),
            Cell::Int(times.runnable),
            Cell::Int(times.queued),
            Cell::Int(times.lock),
            Cell::Int(times.disk),
            Cell::Int(times.network),
            Cell::Int(times.sleeping),
            Cell::Int(row.shared_ns),
            Cell::Int(row.events),
            Cell::Int(row.actors),
            Cell::Int(row.shared_with),
            Cell::Text(row.outcome),
            Cell::Text(row.certainty),
            Cell::Int(row.likely.into()),
            Cell::Int(row.candidates.into()),
        ]);
    }

    fn spans(&mut self, to: &mut Builder) {
        let (schema, id) = (self.schema, self.request.id);
        for span in &self.request.spans {
            let actor = self.actor(span.section as usize);
            to.push([
                Cell::Text(schema),
                Cell::Int(id),
                Cell::Text(&actor.name),
                actor.process.as_deref().map_or(Cell::Nothing, Cell::Text),
                actor.pid.map_or(Cell::Nothing, |pid| Cell::Int(pid.into())),
                actor.tid.map_or(Cell::Nothing, |tid| Cell::Int(tid.into())),
                Cell::Text(span.state.name()),
                Cell::Int(span.from_ns),
                Cell::Int(span.to_ns),
                Cell::Flag(span.shared),
            ]);
        }
    }

    fn sections(&mut self, to: &mut Builder) {
        let schemas = self.context.program().schemas();
        for section in &self.request.sections {
            let lanes = schemas.get(self.request.schema).map_or(&[][..], |s| s.timelines());
            let timeline = lanes.get(section.timeline).map_or("", |lane| lane.name.as_str());
            let name = self.context.describe(self.request, section.timeline, section.key);
            to.push([
                Cell::Text(self.schema),
                Cell::Int(self.request.id),
                Cell::Text(timeline),
                Cell::Text(&name),
                Cell::Flag(section.actor),
                Cell::Int(section.joined_ns),
                Cell::Int(section.left_ns),
            ]);
        }
    }

    fn steps(&mut self, to: &mut Builder) {
        for (step, n) in self.context.critical(self.request).iter().zip(0..) {
            to.push([
                Cell::Text(self.schema),
                Cell::Int(self.request.id),
                Cell::Int(n),
                Cell::Text(&step.actor),
                Cell::Text(step.state),
                Cell::Int(step.from_ns),
                Cell::Int(step.to_ns),
                step.waited_for.as_deref().map_or(Cell::Nothing, Cell::Text),
            ]);
        }
    }

    fn links(&mut self, to: &mut Builder) {
        let (schema, request) = (self.schema, self.request);
        for link in &request.links {
            let (from, of) = match link.from {
                Peer::Section(place) => (self.actor(place as usize).name.clone(), None),
                Peer::Outsider { timeline, key, request: other } => {
                    let actor = self.context.actor(request, timeline, key, link.from_ns);
                    (actor.name, Some(other))
                }
            };
            let of = of.map_or(Some(request.id), |other| other);
            to.push([
                Cell::Text(schema),
                Cell::Int(request.id),
                Cell::Text(match link.kind {
                    LinkKind::Handoff => "hand-off",
                    LinkKind::Timeline => "timeline",
                    LinkKind::Bytes => "bytes",
                }),
                Cell::Text(&from),
                of.map_or(Cell::Nothing, Cell::Int),
                Cell::Int(link.from_ns),
                Cell::Text(&self.actor(link.to as usize).name),
                Cell::Int(link.to_ns),
            ]);
        }
    }

    fn events(&mut self, to: &mut Builder) {
        let (schema, request) = (self.schema, self.request);
        let catalog = self.context.program().catalog();
        for event in &request.events {
            let kind = catalog.get(event.kind).map_or("", |kind| kind.name.as_str());
            let actor = event.actor().map(|place| self.actor(place as usize).name.as_str());
            to.push([
                Cell::Text(schema),
                Cell::Int(request.id),
                Cell::Int(event.ordinal),
                Cell::Int(event.time_ns),
                Cell::Text(kind),
                actor.map_or(Cell::Nothing, Cell::Text),
                Cell::Flag(event.shared),
            ]);
        }
    }
}
