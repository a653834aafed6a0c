//! Plans applied to files: programs and libraries that record themselves.
//!
//! [`instrument()`] gives a file whose original text is unmodified, with rewritten text behind it and
//! an agent (`runtime/file`) that runs first. Only if the environment has `FETTLE_RECORD=DIR` does
//! the agent patch the program's functions to run the rewritten text. Object files get rewritten
//! text and the agent as sections, for the linker to place. [`collect()`] makes a trace of what a
//! recording leaves in `DIR/slots`.
//!
//! [`lay_out`] gives a file without probes, whose hot code is in another order.
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
