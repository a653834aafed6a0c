//! SQL over traces and their requests, and requests found by several machines.
//!
//! The engine is Apache DataFusion. It gets a trace's own Parquet files, and the tables of
//! `fettle-tables`, which are made while it reads them ([`Database`]). The same tables can be made by
//! a plan of three operators ([`plan`]), which DataFusion partitions and orders, and which Ballista
//! runs on a scheduler and executors (`cluster`).
#![forbid(unsafe_code)]

#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "cluster")]
mod codec;
mod database;
mod definition;
mod embedded;
mod error;
mod files;
pub mod plan;
mod problems;

pub use database::{Answer, Database};
pub use definition::Definition;
pub use error::{Error, Result};
