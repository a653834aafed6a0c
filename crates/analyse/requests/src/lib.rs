//! Requests: which events belong together, found from the events alone.
//!
//! ```
//! use fettle_requests::{Batch, Engine, Options, Source, compile, shipped};
//!
//! let schema = "event open(tid: u32, fd: i32) event close(tid: u32, fd: i32)
//!               timeline file(fd: i32)
//!               on open { start file(fd) seed }  on close { stop file(fd) }";
//! let program = compile(&[Source::new("files", schema)], &shipped)?;
//! let (open, close) = (program.catalog().find("open"), program.catalog().find("close"));
//! let mut batch = Batch::new(program.catalog());
//! batch.push(100, open.unwrap(), &[1, 3]);
//! batch.push(250, close.unwrap(), &[1, 3]);
//! let mut walls = Vec::new();
//! let mut engine = Engine::new(program, Options::default());
//! engine.feed(&batch, &mut |request| walls.push(request.read().wall_ns()));
//! assert_eq!(walls, [150]);
//! # Ok::<(), fettle_requests::Report>(())
//! ```
//!
//! `docs/user/schemas.md` has the language and its meaning. The way through the crate:
//!
//! 1. A text becomes tokens (`lexer`), a tree in which every name knows its place (`parser`,
//!    `syntax`), and, checked, a [`Program`] (`check`, `program`) in which every name is a number and
//!    every key knows its columns. Only [`compile`] makes programs, so the engine never meets a name
//!    that does not exist. What is wrong is a [`Report`] that points at lines and columns.
//! 2. Events lie in a [`Batch`], a structure of arrays. Texts are codes.
//! 3. The [`Engine`] takes batches in pieces (`feed`). Which rule of a schema takes each event of a
//!    piece, and which *places* its packed keys are (`keys`, `table`), is found column by column
//!    (`steps`, `places`): that depends on nothing that is open, so it is done in loops that have no
//!    branch to foresee. Then events are taken in order of time (`run`), the short way where little
//!    happens (`plain`, `simple`), or the general one (`apply`), to what is open at their places:
//!    sections (`sections`), ranges of bytes (`streams`), and through them requests (`requests`). An
//!    open request is a log of small entries (`log`), from which follows what its actors did
//!    (`transitions`). When it is complete it goes out as a [`Complete`], which makes a [`Request`] of the
//!    log if it is asked to, in memory that the next one uses again.
//!
//! **Flood fill without looking back.** Requests spread forward, at the time of the event that
//! connects two sections. So a section holds which requests it is in, and no events; an event of no
//! request is forgotten at once; and memory is that of open sections, open requests and bytes in
//! flight. A section, or a range of bytes, has one request or none nearly always, which takes no
//! memory of its own.
//!
//! **Sharing is a set.** When sections of two requests meet in an event, it is not decided which of them
//! it belongs to: both have it from then on, and say so.
//!
//! **Time is the events'.** Nothing depends on how fast or in which portions events are fed, so a
//! trace that is read later gives what was found while it grew.
//!
//! The crate does no I/O.
#![forbid(unsafe_code)]

mod activities;
mod alarms;
mod apply;
mod certainty;
mod check;
mod clock;
mod counts;
mod critical;
mod diagnostic;
mod engine;
#[cfg(test)]
mod equivalence;
mod event;
mod feed;
mod footprint;
mod gaps;
mod handles;
mod keys;
mod lexer;
mod log;
mod options;
mod parser;
mod piece;
mod places;
mod plain;
mod program;
mod request;
mod requests;
mod run;
mod sections;
mod setting;
mod shipped;
mod simple;
mod small_set;
mod state;
mod steps;
mod streams;
mod syntax;
mod table;
mod transitions;

pub use activities::{Activities, Activity};
pub use certainty::{CERTAIN, Certainty, Choice};
pub use check::compile;
pub use counts::{Counts, SchemaCounts};
pub use critical::Step;
pub use diagnostic::{Diagnostic, Report, Severity, Source, Span as TextSpan};
pub use engine::Engine;
pub use event::{Batch, Catalog, EventId, EventType, Field, FieldType, Strings};
pub use footprint::{Effect, Footprint, MayBeOpen, Reference};
pub use options::Options;
pub use program::{Lane, Program, Schema};
pub use request::{
    Link, LinkKind, Outcome, Peer, Request, RequestEvent, RequestSection, Span, Visit,
};
pub use requests::Complete;
pub use shipped::{SCHEMAS, shipped};
pub use state::{State, Times, Wait};
