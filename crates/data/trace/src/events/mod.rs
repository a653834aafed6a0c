//! Events: `events/NAME-NNNN.parquet`, one series of files per kind.
//!
//! A kind of event has a name and typed fields, which the recorder or importer declares at run
//! time. Every event also has a time and the number of a processor. In a file they are the columns
//! `time_ns`, `cpu`, and the declared fields: what a database reads as a table.
//!
//! **A file is a sorted run.** Rows come from rings of several processors, nearly in order. The
//! writer puts the rows of a kind in order when a file of them is full, and a row that comes later
//! still than that makes the times of two files overlap, no more. Readers merge runs, of one kind
//! as of several, so they need no other order than the one within each file; and a run is opened
//! when its first time is reached, so that what is in memory is a window of the runs that overlap.
//!
//! Texts are dictionary-encoded. A reader names them by codes of the caller's, looked up once per
//! entry of a dictionary and not once per row; [`Strings`] hands out such codes.

pub(crate) mod kind;
mod part;
mod read;
mod write;

pub use fettle_abi::FieldType;
pub use fettle_types::Strings;
pub(crate) use read::found;
pub use read::{EventRun, EventStream};
pub use write::{EventWriter, KindId, WrittenEvents};
