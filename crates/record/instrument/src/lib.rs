//! Plans applied to files: programs and libraries that record themselves.
//!
//! [`instrument`] gives a file whose own code is as it was, with rewritten text behind it and an agent
//! (`runtime/file`) that runs first. Only if the environment says `FETTLE_RECORD=DIR` does the
//! agent lead the program's functions to the rewritten text; otherwise the program runs as before.
//! Object files get rewritten text and the agent as sections, for the linker to place.
//! What a recording leaves in `DIR/slots` becomes a trace by [`collect()`].
//!
//! [`lay_out`] gives a file without probes, whose hot code lies in another order.
#![forbid(unsafe_code)]

mod agent;
mod callers;
pub mod collect;
mod elf;
mod forks;
pub mod instrument;
pub mod laid_out;
pub mod map;
mod note;
mod numbers;
mod object;
mod options;
mod room;
mod segment;
mod symbols;

pub use collect::{CollectError, collect, is_uncollected};
pub use instrument::{InstrumentError, Instrumented, instrument};
pub use laid_out::{LaidOut, Order, lay_out};
pub use options::Options;
