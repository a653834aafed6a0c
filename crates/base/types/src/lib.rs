//! Small types that several groups of crates share.
#![forbid(unsafe_code)]

mod addr;
mod ids;
mod indices;
mod locks;
mod strings;
mod time;

pub use addr::{LinkAddr, LiveAddr, LoadBias};
pub use ids::{IdError, Pid, Tid};
pub use indices::{FunctionIndex, ModuleIndex, SlotIndex};
pub use locks::{HeldOver, ThreadTable};
pub use strings::Strings;
pub use time::{TimeError, monotonic_ns, parse_time};

/// Bytes of a page of x86-64; huge pages are made of these.
pub const PAGE: u64 = 4096;
