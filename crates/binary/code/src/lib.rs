//! Rewritten text as data: what the emitter makes and the checker reads.
//!
//! `fettle-rewrite` makes values of these types; `fettle-check` proves them, and cannot depend on
//! how they were made: neither crate is a dependency of this one, nor the emitter one of the
//! checker.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod emitted;
pub mod fixup;
pub mod pointers;
pub mod probing;
pub mod tables;
pub mod unwind;
pub mod user_probe;

pub use arguments::Arguments;
pub use emitted::{Context, Emitted, Inserted, Part, UnwindPoint};
pub use fixup::{AgentEntry, Fixup, ProbeFixup};
pub use pointers::Pointers;
pub use probing::{Depth, Mode, Probes, Probing};
pub use tables::{ENTRY_PATCH_SIZE, PlannedEntry, PlannedTable};
pub use unwind::{LandingBase, NewLsda, PartUnwind};
pub use user_probe::{Inline, Moment, UserFunction, UserProbe, user_call};
