//! Events of the kernel, recorded by small programs in it.
//!
//! Fettle writes the programs itself when a recording begins ([`asm`]), for the kernel that runs: the
//! kernel says where the fields of its structures lie ([`fettle_btf`]). No compiler, no files, no
//! module, nothing built for a kernel. The kernel proves that each program is safe before it takes it;
//! it detaches all of them when this process ends, however it ends.
//!
//! ```text
//! programs ── write ──> one ring for each processor ── drain ──> spool ── decode ──> events
//!    │ ask                                                              in order of time
//! observed processes <── fork, exec, end of processes
//! ```
//!
//! Where the first bytes of messages are recorded, decoding finds out what they say
//! (`fettle_protocols`), and the bytes themselves go no further.
//!
//! [`Capture`] is the recording; [`raw`] says what records look like. [`Tally`] and [`Hits`] only count.

pub mod asm;
mod capture;
mod code;
pub mod decode;
mod error;
mod fields;
mod programs;
pub mod raw;
pub mod ring;
mod runtimes;
pub mod spool;
mod sys;
mod tally;

use fettle_abi::events;

pub use capture::{Capture, Children, Losses, Options, Processes};
pub use error::KernelError;
pub use fettle_abi::events::Event;
pub use programs::{CALLS, PAYLOAD_MOST};
pub use tally::{Hits, Tally};
