//! A census of lock operations in source code: how many there are of which kind, in which functions, how deep
//! they nest, which functions take without letting go, and what only a multiprocessor's build has.
//!
//! [`file::census`] is pure: bytes in, counts out. [`source`] reads folders and Git revisions, [`tally`] adds up,
//! [`diff`] compares, [`chart`] draws.
#![forbid(unsafe_code)]

pub mod chart;
pub mod conditional;
pub mod diff;
mod error;
pub mod file;
mod held;
pub mod kinds;
pub mod lines;
pub mod names;
pub mod site;
pub mod source;
mod structure;
pub mod tally;
pub mod token;

pub use error::{Error, Result};
