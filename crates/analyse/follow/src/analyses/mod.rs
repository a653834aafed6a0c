//! Analyses: questions about events or requests that are answered by going over all of them once.
//!
//! An analysis is a module of three parts. It is made empty (init), is given each event of the kinds
//! that it wants, or each request (its handlers), and is used up by reporting what it found (dispose).
//! It never sees names of columns or codes of kinds: it lists events and fields by their names in
//! schemas, and gets the values in that order. What it found is tables of plain values, so that a
//! terminal, a page and JSON show the same.

mod analysis;
mod communication;
mod connections;
pub(crate) mod contention;
pub(crate) mod found;
mod locks;
mod messages;
mod outliers;
mod syscalls;
mod what_if;

use std::collections::BTreeMap;
use std::rc::Rc;

use fettle_requests::{Catalog, EventId, Source, shipped};
use fettle_trace::Trace;
use serde::Serialize;

use crate::JSON_VERSION;
use crate::error::Result;
use crate::session::{Context, Session};
use crate::sums::Sums;
use analysis::{Analysis, Wanted};
use found::Found;

/// An analysis that there is.
struct Known {
    name: &'static str,
    purpose: &'static str,
    make: fn() -> Box<dyn Analysis>,
}

const ALL: [Known; 6] = [
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
    Known {
        name: "what-if",
        purpose: "how much time shorter, divided or free sections of each lock would save",
        make: || Box::<what_if::WhatIf>::default(),
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
    let events = analysis.events();
    let take = |analysis: &mut Box<dyn Analysis>, which, ns, values: &[u64], _: &Context<'_>| {
        analysis.event(which, ns, values);
    };
    each_event(trace, events, analysis, &take, analysis::Analysis::finish)
}

/// Takes an event: which of those that are wanted, when, and the wanted fields' values.
type Take<'a, S> = &'a dyn Fn(&mut S, usize, u64, &[u64], &Context<'_>);

/// Goes over events by the shipped declarations, in order of time.
pub(crate) fn each_event<S, T>(
    trace: &Trace,
    events: &[Wanted],
    state: S,
    take: Take<'_, S>,
    finish: impl FnOnce(S, &Context<'_>) -> T,
) -> Result<(T, Vec<String>)> {
    let declarations = Source::new("analysis", "use kernel\nuse probes\n");
    let session = Session::open(trace, &[declarations], &shipped)?;
    let catalog = session.program.catalog();
    let mut handlers: Vec<Option<Handler>> = vec![None; catalog.events().len()];
    for (which, (event, fields)) in events.iter().enumerate() {
        let (id, places) = find(catalog, event, fields);
        handlers[id.index()] = Some((which, places));
    }
    let wanted = |event: EventId| handlers[event.index()].is_some();
    let mut values = Vec::new();
    session.events(
        &wanted,
        state,
        &mut |state, _, batch, context| {
            for row in 0..batch.len() {
                if let Some((which, places)) = &handlers[batch.kind(row).index()] {
                    values.clear();
                    values.extend(places.iter().map(|place| batch.value(row, *place)));
                    take(state, *which, batch.time_ns(row), &values, context);
                }
            }
            true
        },
        finish,
    )
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
