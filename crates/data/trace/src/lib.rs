//! The trace folder: what a recording leaves on disk.
//!
//! ```text
//! NAME.fettle/
//!   manifest.json        what was recorded, on which machine, by which clock; what was lost
//!   modules.parquet      executables and libraries          mappings.parquet  where they lay
//!   functions.parquet    names and addresses                skipped.parquet   what was left unmodified
//!   parameters.parquet   what is recorded of arguments      arguments.parquet their values
//!   processes.parquet    threads.parquet
//!   totals.parquet       calls and time per thread and function, exact
//!   counters.parquet     block and edge counts
//!  own.parquet          what the user probe counted
//!   switches.parquet     when threads were switched out, if the kernel said
//!   calls/NNNNN.parquet  one row per call, in order of its end, thread after thread
//!   events/NAME-NNNN.parquet  events of the kernel and of imports, a table per kind
//!   spool/N.calls        only while recording: raw records of thread N; N.values its arguments,
//!                        N.switches when it was switched out
//! ```
//!
//! Two ideas carry the crate. While the program runs nothing is encoded: sixteen-byte records are
//! appended to one spool file per thread, at the speed of a memory copy, and become columns only
//! when the program has ended. And a call is stored when it *ends*, so callees stand before their
//! callers: walking a thread's calls backwards meets every caller before its callees, which is
//! how depths are found here and call trees in `fettle-report`, with one small stack.
//!
//! The crate does the file work of this folder and no other I/O. Nothing a file contains makes it
//! panic: files are claims, checked as they are read.
#![forbid(unsafe_code)]

mod arguments;
mod call_writer;
mod calls;
mod column;
mod convert;
mod deferred;
mod error;
mod events;
mod finish;
pub mod locks;
mod manifest;
mod moments;
pub mod perfetto;
pub mod proto;
mod read;
mod recover;
mod spool;
mod switched_out;
mod switches;
mod tables;
mod values;
mod write;

pub use call_writer::{CallWriter, WrittenCalls};
pub use calls::{Call, ROWS_PER_FILE};
pub use error::{Error, Result};
pub use events::kind::{CpuLoss, EventField, EventKind, Events};
pub use events::{EventRun, EventStream, EventWriter, FieldType, KindId, Strings, WrittenEvents};
pub use finish::{Finish, OpenCall};
pub use manifest::{
    Clock, ClockPair, Exit, Field, FileEntry, Loss, MIN_READER_VERSION, Machine, Manifest, Merge,
    MergedMachine, MergedTrace, ProbeCost, ProbeMode, Recovery, RunTotals, TASKS_OF_A_MACHINE,
    TickConverter, VERSION, rfc3339,
};
pub use moments::{Moment, Moments, What};
pub use read::{Part, Trace};
pub use recover::{
    RecoverOther, Recovered, open_or_recover, open_or_recover_with, recover, recover_with,
};
pub use spool::{Content, Outlet, spool_file};
pub use tables::{
    Argument, Counter, CounterKind, Function, Mapping, Module, Parameter, ParameterType, Process,
    Skipped, Switch, Thread, Total, UserValue,
};
pub use write::{TraceWriter, check_free};
