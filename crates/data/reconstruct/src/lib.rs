//! Which call caused which, from spans that carry no ids: of each only when it began and ended, which
//! process reported it, what was called and, where it is known, the service on the other side.
//!
//! ```text
//! spans ── places ──> at each place: questions that came in, calls that went out
//!                       │ learn: how long after what which call follows, how many there are
//!                       │ assign: all calls of a window at once, so that all together are likeliest
//!                       v
//!                     a link for each span, with how likely it is right
//! ```
//!
//! Two kinds of places are one problem. In a process, each call that goes out is caused by one question
//! that came in. Between processes, what the one that asked reports and what the one that was asked
//! reports are two spans of one call. Places do not depend on one another.
//!
//! Nothing is read or written. Spans are claims: no order, length or number of them makes this panic.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod delay;
mod model;
mod pairs;
mod place;
mod plan;
mod random;
mod search;
mod simple;
mod solve;
mod span;
mod state;

pub use plan::{How, reconstruct, reconstruct_by, sides};
pub use span::{Link, Reconstruction, Side, Span};
