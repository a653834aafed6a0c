//! The same program on several systems: what each of them makes of it, and when.
//!
//! A *system* is whatever offers Linux's calls to a program: this kernel ([`System::Native`]), a
//! User-Mode Linux, gVisor, or what a command starts. In each runs one static program of ours
//! (`runtime/bench`, through [`Agent`]) that measures operations, or starts the user's own program, when
//! it is asked to. So turns of different systems follow each other within milliseconds, in the order
//! ABBA, and what they cost is compared round by round ([`compare()`]), at several loads of the machine
//! ([`load`]): some systems pass work from thread to thread, and need processors for that.
#![forbid(unsafe_code)]

mod agent;
mod clock;
mod compare;
mod error;
mod folder;
pub mod load;
mod messages;
mod observe;
mod page;
mod processes;
mod result;
mod spent;
mod system;
mod text;
mod tracefs;
mod why;

pub use agent::{Agent, Benchmark, Ran, Stamp};
pub use compare::{Options, Progress, Subject, compare};
pub use error::CompareError;
pub use folder::Folder;
pub use messages::{
    MessageOptions, Messages, Placement, Series, SystemMessages, messages, messages_text,
};
pub use page::page;
pub use processes::adopt_orphans;
pub use result::{Cell, Comparison, Loaded, Row, RowKind, Skipped, SystemInfo};
pub use spent::{
    CallSpent, Doing, HostCalls, Spending, SpentOn, SpentOptions, Who, spent, spent_text,
};
pub use system::{Observer, System, Tools};
pub use text::{text, text_by_system};
pub use tracefs::Traced;
pub use why::{Bin, CallOn, Explained, HostCall, Step, StepTime, Why, WhyOptions, why, why_text};
