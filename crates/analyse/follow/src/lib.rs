//! Requests in traces: a trace's events go to the engine of `fettle-requests`, and what it finds
//! comes out as plain data, for a terminal, a page, or another program.
//!
//! ```no_run
//! use std::path::Path;
//! use fettle_follow::{Session, choose};
//!
//! let trace = fettle_trace::Trace::open(Path::new("nginx.fettle"))?;
//! let schemas = choose(&trace)?;
//! let session = Session::open(&trace, &schemas.sources, &fettle_requests::shipped)?;
//! let summary = session.summary(10)?;
//! println!("{} requests", summary.schemas[0].requests);
//! let slowest = &summary.schemas[0].slowest[0].request;
//! let detail = session.request(0, slowest.id)?;
//! # Ok::<(), fettle_follow::Error>(())
//! ```
//!
//! The way through the crate: `choose` finds schemas that suit a trace, `feed` merges the trace's
//! events, calls and switches by time into batches, `deferred` (deferred attribution) holds them until
//! later ones have said what they mean for earlier ones, [`Session`] runs them through the engine,
//! `names` says which process a thread was of, and `view` has the types that come out. Memory is that of
//! open requests and of what is asked for; a trace is read once per question.
//!
//! The crate does no I/O but through `fettle-trace`.
#![forbid(unsafe_code)]

mod analyses;
mod call_spans;
mod calls;
mod choose;
mod deferred;
mod detail;
mod diff;
mod error;
mod export;
mod feed;
mod given;
mod live;
mod locate;
mod locking;
mod named;
mod names;
mod numbers;
mod parts;
mod perfetto;
mod place;
mod quantile;
mod session;
mod span;
mod summary;
mod sums;
mod threads;
mod unconnected;
mod undecoded;
mod view;

pub use analyses::contention::{Contention, contention, has_contention};
pub use analyses::found::{Cell, Findable, Found, FoundColumn, Unit};
pub use analyses::{Findings, analyses};
pub use call_spans::export_calls;
pub use choose::{Choice, choose, choose_by, derived_events};
pub use diff::{Diff, DiffGroup, DiffRow, DiffSide, diff};
pub use error::{Error, Result};
pub use export::SpanFormat;
pub use live::Live;
pub use locate::{Component, Fault, Limit, LocateOptions, Located, Odds, locate};
pub use parts::{Follower, LATE_NS, PartReader};
pub use place::{Part, Place};
pub use session::{Context, Observer, Session};
pub use threads::{
    SpanCodes, ThreadEvent, ThreadEvents, event_fields, for_each_thread_doing,
    for_each_thread_event,
};
pub use view::{
    Actor, ClassSummary, Count, CriticalStep, Detail, EventRow, LinkRow, NamedSpan, NamedStep,
    Quantiles, RequestRow, SchemaSummary, SectionRow, SlowRequest, SpanRow, Summary, TimesNs,
};

/// Version of the JSON that this crate's values become.
pub const JSON_VERSION: u32 = 1;
