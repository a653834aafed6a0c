//! The page's requests. Nothing that it sends names a file.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use fettle_report::{Analysis, Options};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::app::App;
use crate::calls::{CallId, Wanted};
use crate::range::{Range, RangeTree};
use crate::requests::{self, Requests};
use crate::timelines::{REPORTED, Timelines};
use crate::track::Viewport;
use crate::views::{
    CallsView, DetailView, DurationsView, LiveView, RangeView, ReportView, ReportedView, TraceView,
};
use crate::whole;
use crate::wire::{Answer, OFF_CPU};

/// Tracks of one viewport at most.
const TRACKS_MAX: usize = 1024;
/// Cells of one viewport at most: a wide screen, and as much again on both sides.
const CELLS_MAX: u64 = 1 << 16;
/// Calls listed at most.
const LISTED_MAX: usize = 500;

/// The routes below `/api/`.
pub(crate) fn routes() -> axum::Router<Arc<App>> {
    axum::Router::new()
        .route("/api/subject", get(async || json(&Subject::Trace)))
        .route("/api/trace", get(trace))
        .route("/api/live", get(live))
        .route("/api/viewport", get(viewport))
        .route("/api/report", get(report))
        .route("/api/range", get(range))
        .route("/api/call", get(call))
        .route("/api/calls", get(calls))
        .route("/api/durations", get(durations))
        .route("/api/next", get(next))
        .route("/api/schemas", get(schemas))
        .route("/api/requests", get(overview))
        .route("/api/requests/listed", get(listed))
        .route("/api/requests/figures", get(figures))
        .route("/api/requests/at", get(requests_at))
        .route("/api/request", get(request))
        .route("/api/communication", get(communication))
        .route("/api/locks", get(locks))
}

/// What the page is to show.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Subject {
    Trace,
    Layouts,
}

/// Why there is no answer: a status and a sentence.
pub(crate) struct Failure(StatusCode, String);

pub(crate) type Answered = std::result::Result<Response, Failure>;

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

fn bad(what: &str) -> Failure {
    Failure(StatusCode::BAD_REQUEST, what.to_owned())
}

fn broken(why: impl ToString) -> Failure {
    Failure(StatusCode::INTERNAL_SERVER_ERROR, why.to_string())
}

pub(crate) fn json(value: &impl Serialize) -> Answered {
    let text = serde_json::to_vec(value).map_err(broken)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// The timelines, when they have been read.
async fn timelines(app: &App) -> std::result::Result<Arc<Timelines>, Failure> {
    app.shown().timelines().await.map_err(broken)
}

/// Works on the timelines apart from the threads that answer.
async fn at_length<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&Timelines) -> T + Send + 'static,
) -> std::result::Result<T, Failure> {
    let timelines = timelines(app).await?;
    spawn_blocking(move || work(&timelines)).await.map_err(broken)
}

async fn trace(State(app): State<Arc<App>>) -> Answered {
    let shown = app.shown();
    let timelines = shown.timelines().await.map_err(broken)?;
    json(&TraceView::new(shown.trace(), &timelines, shown.generation, shown.live))
}

/// Whether the recording goes on, and which state of it is shown.
async fn live(State(app): State<Arc<App>>) -> Answered {
    let shown = app.shown();
    json(&LiveView::new(shown.generation, shown.live))
}

async fn report(State(app): State<Arc<App>>) -> Answered {
    let analysis: Arc<Analysis> = app.shown().analysis().await.map_err(broken)?;
    let all = Options { limit: usize::MAX, ..Options::default() };
    let report = spawn_blocking(move || analysis.report(&all)).await.map_err(broken)?;
    json(&ReportView::from(report))
}

#[derive(Deserialize)]
struct Window {
    /// Nanoseconds of trace time.
    from: u64,
    to: u64,
}

impl Window {
    fn checked(&self) -> std::result::Result<(u64, u64), Failure> {
        if self.from < self.to { Ok((self.from, self.to)) } else { Err(bad("an empty range")) }
    }
}

#[derive(Deserialize)]
struct ViewportQuery {
    from: u64,
    to: u64,
    /// A cell is two to the power of this many nanoseconds long.
    cell_bits: u32,
    /// `THREAD:FIRST-END`, separated by commas: the rows of a thread that are looked at.
    tracks: String,
}

async fn viewport(State(app): State<Arc<App>>, Query(query): Query<ViewportQuery>) -> Answered {
    let (from_ns, to_ns) = Window { from: query.from, to: query.to }.checked()?;
    let cell_bits = query.cell_bits.min(62);
    if (to_ns - from_ns) >> cell_bits > CELLS_MAX {
        return Err(bad("too many cells"));
    }
    let rows = rows(&query.tracks).ok_or_else(|| bad("tracks are THREAD:FIRST-END, …"))?;
    let timelines = timelines(&app).await?;
    let viewport = Viewport { from_ns, to_ns, cell_bits };
    let mut answer = Answer::default();
    let mut pieces = Vec::new();
    let mut tracks = 0;
    for (thread, first, end) in rows {
        let Some(timeline) = timelines.thread(thread) else { continue };
        pieces.clear();
        timeline.off_cpu.pieces(viewport, &mut pieces);
        answer.track(thread, OFF_CPU, &pieces);
        for (row, track) in timeline.rows().filter(|(row, _)| (first..end).contains(row)) {
            tracks += 1;
            if tracks > TRACKS_MAX {
                return Err(bad("too many tracks"));
            }
            pieces.clear();
            track.pieces(viewport, &mut pieces);
            answer.track(thread, row, &pieces);
        }
    }
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, Body::from(answer.done())).into_response())
}

/// Parses `3:0-12,4:0-7`.
fn rows(text: &str) -> Option<Vec<(u32, u32, u32)>> {
    let row = |row: &str| {
        let (thread, depths) = row.split_once(':')?;
        let (first, end) = depths.split_once('-')?;
        Some((thread.parse().ok()?, first.parse().ok()?, end.parse().ok()?))
    };
    let rows = text.split(',').filter(|row| !row.is_empty()).take(TRACKS_MAX);
    rows.map(row).collect()
}

#[derive(Deserialize)]
struct RangeQuery {
    from: u64,
    to: u64,
    /// Index of the only thread that is meant.
    thread: Option<u32>,
    /// Whether only time on a processor counts.
    #[serde(default)]
    cpu: bool,
}

async fn range(State(app): State<Arc<App>>, Query(query): Query<RangeQuery>) -> Answered {
    let (from_ns, to_ns) = Window { from: query.from, to: query.to }.checked()?;
    if query.cpu && !app.shown().trace().manifest().switches {
        return Err(bad("this trace does not have when threads were off-CPU"));
    }
    let range = Range { from_ns, to_ns, thread: query.thread, cpu: query.cpu };
    let view = at_length(&app, move |timelines| RangeView::new(&RangeTree::new(timelines, range)));
    json(&view.await?)
}

#[derive(Deserialize)]
struct CallQuery {
    thread: u32,
    depth: u32,
    index: u32,
}

async fn call(State(app): State<Arc<App>>, Query(query): Query<CallQuery>) -> Answered {
    let CallQuery { thread, depth, index } = query;
    let id = CallId { thread, depth, index };
    let none = || Failure(StatusCode::NOT_FOUND, "there is no such call".to_owned());
    if depth < REPORTED {
        let view = at_length(&app, move |timelines| DetailView::new(timelines, id)).await?;
        return json(&view.ok_or_else(none)?);
    }
    let trace = app.shown().trace().clone();
    let view = at_length(&app, move |timelines| ReportedView::new(&trace, timelines, id)).await?;
    json(&view.map_err(broken)?.ok_or_else(none)?)
}

#[derive(Deserialize)]
struct CallsQuery {
    #[serde(rename = "function")]
    label: u32,
    from: Option<u64>,
    to: Option<u64>,
    /// Durations in nanoseconds, both included.
    shortest: Option<u64>,
    longest: Option<u64>,
    limit: Option<usize>,
}

impl CallsQuery {
    fn wanted(&self) -> Wanted {
        Wanted {
            label: self.label,
            time_ns: self.from.unwrap_or(0)..self.to.unwrap_or(u64::MAX),
            duration_ns: self.shortest.unwrap_or(0)..=self.longest.unwrap_or(u64::MAX),
        }
    }
}

async fn calls(State(app): State<Arc<App>>, Query(query): Query<CallsQuery>) -> Answered {
    let limit = query.limit.unwrap_or(100).min(LISTED_MAX);
    let wanted = query.wanted();
    let found = at_length(&app, move |timelines| timelines.longest(&wanted, limit));
    let (calls, count) = found.await?;
    json(&CallsView::new(calls, count))
}

async fn durations(State(app): State<Arc<App>>, Query(query): Query<CallsQuery>) -> Answered {
    let wanted = query.wanted();
    let durations = at_length(&app, move |timelines| timelines.durations(&wanted));
    json(&DurationsView::from(durations.await?))
}

#[derive(Deserialize)]
struct NextQuery {
    #[serde(rename = "function")]
    label: u32,
    /// Nanoseconds of trace time.
    from: u64,
    #[serde(default)]
    backwards: bool,
}

async fn next(State(app): State<Arc<App>>, Query(query): Query<NextQuery>) -> Answered {
    let NextQuery { label, from, backwards } = query;
    let found = at_length(&app, move |timelines| timelines.next(label, from, backwards)).await?;
    let count = u64::from(found.is_some());
    json(&CallsView::new(found.into_iter().collect(), count))
}

#[derive(Deserialize)]
struct ListQuery {
    /// Name of a shipped schema; without one, that which suits the trace.
    schema: Option<String>,
}

/// A shipped schema by the name that a page gives: one of a list, never a file.
fn schema(name: Option<&str>) -> std::result::Result<Option<&'static str>, Failure> {
    let Some(name) = name else { return Ok(None) };
    requests::schema(name).map(Some).ok_or_else(|| bad("there is no such schema"))
}

async fn schemas(State(app): State<Arc<App>>) -> Answered {
    json(&requests::Schemas::of(app.shown().trace()).map_err(broken)?)
}

async fn overview(State(app): State<Arc<App>>, Query(query): Query<ListQuery>) -> Answered {
    of_requests(&app, &query, |requests| json(&requests.overview())).await
}

/// What is to be seen of the requests that a schema finds.
async fn of_requests(
    app: &App,
    query: &ListQuery,
    view: impl FnOnce(&Requests) -> Answered + Send + 'static,
) -> Answered {
    let schema = schema(query.schema.as_deref())?;
    let requests = app.shown().requests(schema).await.map_err(broken)?;
    spawn_blocking(move || view(&requests)).await.map_err(broken)?
}

/// Some of the requests, of all that there are.
async fn listed(
    State(app): State<Arc<App>>,
    Query(query): Query<ListQuery>,
    Query(wanted): Query<requests::Wanted>,
) -> Answered {
    of_requests(&app, &query, move |requests| json(&requests.page(&wanted))).await
}

/// What they took, by class and over time.
async fn figures(
    State(app): State<Arc<App>>,
    Query(query): Query<ListQuery>,
    Query(wanted): Query<requests::Wanted>,
) -> Answered {
    of_requests(&app, &query, move |requests| json(&requests.figures(&wanted))).await
}

#[derive(Deserialize)]
struct AtQuery {
    /// Number of a thread.
    tid: u32,
    /// Nanoseconds of trace time.
    at: u64,
    /// Name of a shipped schema; without one, that which suits the trace.
    schema: Option<String>,
}

/// The requests that an event of a thread belongs to.
async fn requests_at(State(app): State<Arc<App>>, Query(query): Query<AtQuery>) -> Answered {
    let schema = schema(query.schema.as_deref())?;
    let requests = app.shown().requests(schema).await.map_err(broken)?;
    json(&requests.at(query.tid, query.at))
}

#[derive(Deserialize)]
struct RequestQuery {
    /// Place of its schema.
    schema: usize,
    /// Its number in that.
    id: u64,
    /// Name of the shipped schema by which it was found.
    by: Option<String>,
    /// The part that is wanted, in nanoseconds of trace time; without one, all of it.
    from: Option<u64>,
    to: Option<u64>,
}

async fn request(State(app): State<Arc<App>>, Query(query): Query<RequestQuery>) -> Answered {
    let by = schema(query.by.as_deref())?;
    let detail = app.shown().request(by, query.schema, query.id).await.map_err(broken)?;
    let none = || Failure(StatusCode::NOT_FOUND, "there is no such request".to_owned());
    let detail = detail.ok_or_else(none)?;
    let part = query.from.zip(query.to).filter(|(from, to)| from < to);
    spawn_blocking(move || json(&whole::whole(&detail, part))).await.map_err(broken)?
}

async fn communication(State(app): State<Arc<App>>) -> Answered {
    json(&*app.shown().communication().await.map_err(broken)?)
}

async fn locks(State(app): State<Arc<App>>) -> Answered {
    json(&*app.shown().locks(app.variables).await.map_err(broken)?)
}

#[cfg(test)]
mod tests {
    use super::rows;

    #[test]
    fn rows_are_parsed_or_refused() {
        assert_eq!(rows("3:0-12,4:2-7"), Some(vec![(3, 0, 12), (4, 2, 7)]));
        assert_eq!(rows(""), Some(vec![]));
        for wrong in ["3", "3:1", "a:0-1", "3:0-1;4:0-1", "3:-1-2", "99999999999:0-1"] {
            assert_eq!(rows(wrong), None, "{wrong}");
        }
    }
}
