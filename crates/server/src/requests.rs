//! Requests: the list of them, one of them whole, and who communicates with whom.
//!
//! The questions are `fettle-follow`'s, and so are the answers; here they are read once, kept, and
//! cut to what a page can show.

use fettle_follow::{Choice, Detail, Findings, RequestRow, Session, choose};
use fettle_requests::shipped;
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

/// A session that is asked one question.
fn session(trace: &Trace) -> fettle_follow::Result<(Session<'_>, Choice)> {
    let choice = choose(trace)?;
    Ok((Session::open(trace, &choice.sources, &shipped)?, choice))
}

/// Whether a trace has events to follow requests through. Calls by themselves are no requests: the
/// timelines show those.
pub(crate) fn has_events(trace: &Trace) -> bool {
    trace.manifest().events.rows() > 0
}

impl Requests {
    /// Follows all requests of a trace.
    pub(crate) fn read(trace: &Trace) -> fettle_follow::Result<Requests> {
        let (session, choice) = session(trace)?;
        let mut rows = session.list()?;
        let left_out = rows.len().saturating_sub(ROWS_MAX);
        if left_out > 0 {
            rows.sort_by_key(|row| std::cmp::Reverse(row.wall_ns));
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
    schema: usize,
    id: u64,
) -> fettle_follow::Result<Option<Detail>> {
    let (session, _) = session(trace)?;
    if schema >= session.program().schemas().len() {
        return Ok(None);
    }
    session.request(schema, id)
}

/// Who communicates with whom.
pub(crate) fn communication(trace: &Trace) -> fettle_follow::Result<Option<Findings>> {
    Session::open(trace, &[], &shipped)?.analyse("communication")
}
