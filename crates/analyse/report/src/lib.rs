//! What a trace says.
//!
//! A trace goes in, plain values come out; renderings turn values into text, JSON, SVG or HTML;
//! exports write the files of other viewers. Nothing here prints or opens a file but the trace.
//!
//! Everything about single calls comes from one pass over the calls, last to first ([`Profile`]),
//! or, for exports, from one pass in time order ([`timeline`]). Numbers of calls and times per
//! function come from the exact totals, which also count calls whose records were lost.
#![forbid(unsafe_code)]

mod arguments;
mod check;
mod correct;
mod counts;
mod diff;
mod error;
pub mod export;
mod focus;
mod hash;
mod histogram;
mod names;
mod profile;
pub mod render;
mod replay;
mod report;
pub mod timeline;
mod tree;
mod tree_view;
mod user_probe;

pub use arguments::{ArgumentView, CallView, ParameterView, ValueView};
pub use check::{Check, Problem, check};
pub use counts::{BlockRow, BlockView};
pub use diff::{Diff, DiffRow, Side};
pub use error::{Error, Result};
pub use focus::{Focus, Neighbour};
pub use histogram::{Bar, Histogram};
pub use names::{Name, Names};
pub use profile::Profile;
pub use replay::{ReplayOptions, replay};
pub use report::{
    Analysis, EventRow, FunctionRow, Latency, LossRow, OffCpu, Options, Report, Run, SkippedRow,
    SortBy, ThreadRow,
};
pub use tree::{CallTree, FOLDED, NO_FUNCTION, Node, NodeId, ROOT, Weight};
pub use tree_view::{TreeRow, TreeView};
pub use user_probe::{UserRow, UserView};

/// Version of every JSON value that this crate makes.
pub const JSON_VERSION: u32 = 1;
