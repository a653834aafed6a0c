//! Requests: the list of them, one of them whole, and who communicates with whom.
//!
//! The questions are `fettle-follow`'s, and so are the answers; here they are read once, kept, and
//! cut to what a page can show.

use fettle_follow::{Choice, Detail, Findings, RequestRow, Session, choose};
use fettle_requests::{SCHEMAS, Source, compile, shipped};
use fettle_trace::Trace;
use serde::Serialize;

/// Requests listed at most: the slowest.
const ROWS_MAX: usize = 100_000;

/// All requests of a trace in one line each.
#[derive(Debug, Serialize)]
pub(crate) struct Requests {
    version: u32,
    /// Names of the schemas, by place.
    schemas: Vec<String>,
    /// Why these, as the rest of a sentence.
    reason: String,
    /// In the order in which they began.
    rows: Vec<RequestRow>,
    /// Requests beyond those that are listed, all faster.
    left_out: usize,
    /// What could not be read, or not be used, one sentence each.
    problems: Vec<String>,
}

/// The schema that is shipped under a name.
pub(crate) fn schema(name: &str) -> Option<&'static str> {
    SCHEMAS.iter().map(|(known, _)| *known).find(|known| *known == name)
}

/// The schemas that may be chosen.
#[derive(Debug, Serialize)]
pub(crate) struct Schemas {
    version: u32,
    /// Those whose requests begin with events that the trace has.
    schemas: Vec<&'static str>,
}

impl Schemas {
    pub(crate) fn of(trace: &Trace) -> fettle_trace::Result<Schemas> {
        let (kinds, _) = trace.event_kinds()?;
        let calls = trace.manifest().totals.records > 0;
        let suits = |name: &str, text: &str| {
            let Ok(program) = compile(&[Source::new(name, text)], &shipped) else { return false };
            let seeds = |event: &str| {
                let id = program.catalog().find(event);
                id.is_some_and(|id| program.schemas().iter().any(|schema| schema.seeds(id)))
            };
            let recorded = kinds.iter().any(|kind| kind.rows > 0 && seeds(&kind.name));
            recorded || (calls && (seeds("call") || seeds("call_end")))
        };
        let schemas = SCHEMAS.iter().filter(|(name, text)| suits(name, text));
        let schemas = schemas.map(|(name, _)| *name).collect();
        Ok(Schemas { version: fettle_follow::JSON_VERSION, schemas })
    }
}

/// A session that is asked one question, by a shipped schema or by that which suits.
fn session<'a>(
    trace: &'a Trace,
    schema: Option<&str>,
) -> fettle_follow::Result<(Session<'a>, Choice)> {
    let choice = match schema {
        Some(name) => Choice {
            sources: vec![Source::new(name, shipped(name).unwrap_or_default())],
            reason: "it was chosen".to_owned(),
            weak: false,
        },
        None => choose(trace)?,
    };
    Ok((Session::open(trace, &choice.sources, &shipped)?, choice))
}

/// Whether a trace has events to follow requests through. Calls by themselves are no requests: the
/// timelines show those.
pub(crate) fn has_events(trace: &Trace) -> bool {
    trace.manifest().events.rows() > 0
}

impl Requests {
    /// Follows all requests of a trace.
    pub(crate) fn read(trace: &Trace, schema: Option<&str>) -> fettle_follow::Result<Requests> {
        let (session, choice) = session(trace, schema)?;
        let mut rows = session.list()?;
        let left_out = rows.len().saturating_sub(ROWS_MAX);
        if left_out > 0 {
            rows.sort_by_key(|row| std::cmp::Reverse(row.response_ns));
            rows.truncate(ROWS_MAX);
            rows.sort_by_key(|row| (row.begin_ns, row.schema, row.id));
        }
        let schemas = session.program().schemas().iter();
        Ok(Requests {
            version: fettle_follow::JSON_VERSION,
            schemas: schemas.map(|schema| schema.name().to_owned()).collect(),
            reason: choice.reason,
            rows,
            left_out,
            problems: trace.warnings().to_vec(),
        })
    }
}

/// One request whole; nothing if there is none of that number.
pub(crate) fn detail(
    trace: &Trace,
    by: Option<&str>,
    schema: usize,
    id: u64,
) -> fettle_follow::Result<Option<Detail>> {
    let (session, _) = session(trace, by)?;
    if schema >= session.program().schemas().len() {
        return Ok(None);
    }
    session.request(schema, id)
}

/// Who communicates with whom.
pub(crate) fn communication(trace: &Trace) -> fettle_follow::Result<Option<Findings>> {
    Session::open(trace, &[], &shipped)?.analyse("communication")
}
