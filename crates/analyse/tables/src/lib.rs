//! Requests as tables: Arrow record batches, Parquet files, and a stream to Python.
//!
//! What the engine finds are trees: a request with its sections, what was done in each, and its
//! events. SQL, data frames and other people's programs want tables. [`Table`] says which there are
//! and what their columns are, `docs/user/tables.md` explains them, and [`Builders`] makes batches of them
//! as requests are completed, so that memory is that of a batch.
//!
//! - [`write_parquet`] writes them as files that DuckDB, Polars and Spark read.
//! - [`python`] streams them, and events, to a module of the user's.
//! - [`render`] shows any batches as text, JSON or CSV.
#![forbid(unsafe_code)]

mod build;
mod error;
mod events;
pub mod operator;
mod parquet;
pub mod python;
pub mod render;
mod schema;

pub use build::Builders;
pub use error::{Error, Result};
pub use events::EventTable;
pub use parquet::{Written, write_parquet};
pub use schema::{Column, Kind, Table};

/// Rows of a batch, about: enough that a batch costs little, and few enough that it is no memory.
pub const BATCH_ROWS: usize = 1 << 14;
