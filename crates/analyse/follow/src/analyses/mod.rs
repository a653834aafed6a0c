//! Analyses: questions about events or requests that are answered by going over all of them once.
//!
//! An analysis is a module of three parts. It is made empty (init), is told each event of the kinds
//! that it wants, or each request (its handlers), and is used up by telling what it found (dispose).
//! It never sees names of columns or codes of kinds: it lists events and fields by their names in
//! schemas, and gets the values in that order. What it found is tables of plain values, so that a
//! terminal, a page and JSON show the same.

mod communication;
mod connections;
mod histogram;
mod locks;
mod messages;
mod outliers;
mod syscalls;

use std::collections::BTreeMap;
use std::rc::Rc;

use fettle_requests::{Catalog, EventId, Request, Source, shipped};
use fettle_trace::Trace;
use serde::Serialize;

use crate::JSON_VERSION;
use crate::diff::Sums;
use crate::error::Result;
use crate::session::{Context, Session};

/// A kind of event and the fields of it that an analysis wants, both by name.
pub(crate) type Wanted = (&'static str, &'static [&'static str]);

/// An analysis at work.
pub(crate) trait Analysis {
    /// The events whose handler it has; their places are the handlers' numbers.
    fn events(&self) -> &'static [Wanted] {
        &[]
    }

    /// An event: which of [`Analysis::events`], when, and the wanted fields' values.
    fn event(&mut self, which: usize, time_ns: u64, values: &[u64]) {
        let _ = (which, time_ns, values);
    }

    /// Whether it wants requests.
    fn wants_requests(&self) -> bool {
        false
    }

    /// A request.
    fn request(&mut self, request: &Request, context: &Context<'_>) {
        let _ = (request, context);
    }

    /// What was found.
    fn finish(self: Box<Self>, context: &Context<'_>) -> Found;
}

/// An analysis that there is.
struct Known {
    name: &'static str,
    purpose: &'static str,
    make: fn() -> Box<dyn Analysis>,
}

const ALL: [Known; 5] = [
    Known {
        name: "communication",
        purpose: "who sends how much to whom, over sockets and pipes, and who wakes whom",
        make: || Box::<communication::Communication>::default(),
    },
    Known {
        name: "locks",
        purpose: "waits for locks and queues, time in critical sections, and what each is used as",
        make: || Box::<locks::Locks>::default(),
    },
    Known {
        name: "messages",
        purpose: "sizes of messages",
        make: || Box::<messages::Messages>::default(),
    },
    Known {
        name: "outliers",
        purpose: "what is different about the slowest 1 % of each class of requests",
        make: || Box::<outliers::Outliers>::default(),
    },
    Known {
        name: "syscalls",
        purpose: "system calls and how long they took",
        make: || Box::<syscalls::SystemCalls>::default(),
    },
];

/// Names of all analyses, and what they are for.
pub fn analyses() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.iter().map(|known| (known.name, known.purpose))
}

/// What an analysis found.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// Its name.
    pub analysis: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// What it found.
    #[serde(flatten)]
    pub found: Found,
    /// What could not be read, or not be used, one sentence each.
    pub problems: Vec<String>,
}

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
    fn new(title: impl Into<String>, columns: &[(&'static str, Unit)]) -> Findable {
        let columns = columns.iter().map(|&(name, unit)| FoundColumn { name, unit }).collect();
        Findable { title: title.into(), columns, rows: Vec::new() }
    }
}

/// A part of a whole.
fn share(part: u64, whole: u64) -> Cell {
    if whole == 0 { Cell::None } else { Cell::Share(part as f64 / whole as f64) }
}

impl Session<'_> {
    /// Runs an analysis of [`analyses`]; nothing if none has that name.
    ///
    /// Analyses of events read them with the shipped declarations, whatever the session's schemas
    /// declare; those of requests are about the session's.
    pub fn analyse(&self, name: &str) -> Result<Option<Findings>> {
        let Some(known) = ALL.iter().find(|known| known.name == name) else { return Ok(None) };
        let analysis = (known.make)();
        let (mut found, problems) = if analysis.wants_requests() {
            of_requests(self, analysis)?
        } else {
            of_events(self.trace, analysis)?
        };
        let manifest = self.trace.manifest();
        let lost = manifest.events.lost() + manifest.totals.lost;
        if lost > 0 {
            found
                .notes
                .push(format!("{lost} records were lost while recording: all of this may be off"));
        }
        let (analysis, purpose) = (known.name, known.purpose);
        Ok(Some(Findings { version: JSON_VERSION, analysis, purpose, found, problems }))
    }
}

/// Times of system calls by process and call.
pub(crate) fn system_calls(trace: &Trace) -> Result<BTreeMap<String, Sums>> {
    let shared = syscalls::Shared::default();
    of_events(trace, Box::new(syscalls::SystemCalls::telling(Rc::clone(&shared))))?;
    Ok(shared.take())
}

fn of_requests(
    session: &Session<'_>,
    mut analysis: Box<dyn Analysis>,
) -> Result<(Found, Vec<String>)> {
    let ran = session.run(&mut |request, context| {
        analysis.request(request, context);
        true
    })?;
    let names = &session.names.borrow();
    let context = Context { program: &session.program, strings: &ran.strings, names };
    Ok((analysis.finish(&context), ran.problems))
}

/// An event that is wanted: its number for the handler, and where its fields are.
type Handler = (usize, Vec<usize>);

fn of_events(trace: &Trace, analysis: Box<dyn Analysis>) -> Result<(Found, Vec<String>)> {
    let declarations = Source::new("analysis", "use kernel\nuse probes\n");
    let session = Session::open(trace, &[declarations], &shipped)?;
    let catalog = session.program.catalog();
    let mut handlers: Vec<Option<Handler>> = vec![None; catalog.events().len()];
    for (which, (event, fields)) in analysis.events().iter().enumerate() {
        let (id, places) = find(catalog, event, fields);
        handlers[id.index()] = Some((which, places));
    }
    let wanted = |event: EventId| handlers[event.index()].is_some();
    let mut values = Vec::new();
    let (found, problems) = session.events(
        &wanted,
        analysis,
        &mut |analysis, _, batch, _| {
            for row in 0..batch.len() {
                if let Some((which, places)) = &handlers[batch.kind(row).index()] {
                    values.clear();
                    values.extend(places.iter().map(|place| batch.value(row, *place)));
                    analysis.event(*which, batch.time_ns(row), &values);
                }
            }
            true
        },
        |analysis, context| analysis.finish(context),
    )?;
    Ok((found, problems))
}

/// An event of the shipped declarations and the places of its fields.
fn find(catalog: &Catalog, event: &str, fields: &[&str]) -> (EventId, Vec<usize>) {
    let id = catalog.find(event).expect("analyses want declared events");
    let declared = catalog.get(id).map_or(&[][..], |kind| &kind.fields[..]);
    let place = |name: &&str| {
        let place = declared.iter().position(|field| field.name == **name);
        place.expect("analyses want declared fields")
    };
    (id, fields.iter().map(place).collect())
}
