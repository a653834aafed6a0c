//! Recording: what happens between a program's start and a finished trace.
//!
//! [`session::Recorder`] follows the program's processes: it puts rewritten text into each at its
//! `exec`, gives every thread a slot of shared memory, and empties the slots' rings into the trace while
//! the program runs.

pub mod ahead;
pub mod arguments;
pub mod cache;
pub mod clock;
pub mod cost;
pub mod counts;
pub mod ending;
mod error;
mod estimate;
mod fit;
pub mod kernel;
mod leaks;
pub mod libraries;
pub mod locking;
pub mod machine;
pub mod modules;
mod naming;
pub mod perf;
mod places;
pub mod process_table;
pub mod prototype;
pub mod record;
pub mod relay;
pub mod rewritten;
pub mod room;
pub mod rows;
pub mod sampled;
mod segment_base;
pub mod select;
pub mod session;
mod short;
pub mod slots;
pub mod snapshot;
mod switches;
pub mod tail;
mod task;
pub mod unmatched;
pub mod untraced;
pub mod user_probe;

pub use arguments::ArgumentRequest;
pub use ending::Ending;
pub use error::RecordError;
pub use fettle_kernel_events::PAYLOAD_MOST;
pub use kernel::KernelOptions;
pub use record::{Options, Outcome, die_by, record};
pub use relay::{Finished, Remote, Traces, Undelivered};
pub use select::{Pattern, Selection};
pub use session::Outliving;
pub use snapshot::snapshot;
pub use untraced::{KernelOutcome, KernelRecording, Target, record_kernel};
pub use user_probe::CompiledProbe;
