//! Rewritten text in a running kernel: by a module of our own making, and out again at any time.
//!
//! A [`Plan`](fettle_kernel_plan::Plan) becomes a file for the kernel's own module loader
//! ([`module`]), with a small core of C in it (`runtime/kmod`) that writes jumps and leads threads out.
//! [`Installed`] is the client of that core. The module is given to the kernel as bytes, so copies of its
//! text are in no file.
#![forbid(unsafe_code)]

pub mod check;
pub mod control;
mod core_object;
pub mod elf;
pub mod error;
pub mod journal;
pub mod kernel;
pub mod load;
pub mod module;
pub mod orc;
pub mod running;
pub mod tracer;

pub use control::{Installed, State, Status};
pub use core_object::Core;
pub use error::{Error, Result};
pub use journal::Journal;
pub use kernel::{Kernel, Source};
pub use load::{PATIENCE, install, remove};
pub use module::{Counter, Module, Placed};
pub use running::image;
