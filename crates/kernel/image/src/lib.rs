//! The image of a running kernel: its text as it is now, its symbols, types and tables.
//!
//! A kernel's file is not what runs: alternatives, retpolines, static calls and static keys have
//! changed its text since. So everything comes from the kernel itself: memory by an ELF core file
//! (`/proc/kcore`, or a dump of it), addresses by `kallsyms`, structures by BTF. All of that is bytes
//! from outside: every reader is bounded, gives errors, and does not panic.
//!
//! [`Image::read`] puts it together; [`snapshot`] reads the same from files, and [`made`] makes small
//! kernels by hand, both for tests.
#![forbid(unsafe_code)]

mod blacklist;
mod bytes;
pub mod core;
pub mod error;
pub mod functions;
pub mod image;
pub mod made;
pub mod modules;
pub mod orc;
pub mod snapshot;
pub mod symbols;
pub mod tables;

pub use blacklist::Blacklist;
pub use error::Error;
pub use functions::{Entry, FunctionRange, Functions};
pub use image::{Image, Sources};
pub use modules::Module;
pub use orc::{Orc, Row};
pub use symbols::{Symbol, Symbols};
pub use tables::{Bug, Exception, JumpLabel, StaticCall, Tables};
