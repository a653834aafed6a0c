//! The binding engine as operators over Arrow batches, for engines that run plans on many machines.
//!
//! Three steps, each of which takes batches and gives batches:
//!
//! 1. [`Binder`] reads a part of the events and finds the rule that takes each. It gives a row for
//!    each section that an event names, with a hash of the section's timeline and key.
//! 2. [`Sections`] gets all rows of some keys, in order of time, however many files they come from,
//!    and knows which of these sections can be open: it carries them over every cut between files. It
//!    gives the events that may matter.
//! 3. [`Flow`] gets these, of all keys, in order, and does the flood fill: it gives requests.
//!
//! Steps 1 and 2 run on as many machines as there are files and keys; their rows have to be
//! partitioned by [`KEY`] and put in order by [`ORDER`] in between. Step 3 is one pass, since work
//! may pass from any key to any other. The result is that of the embedded engine
//! (`fettle_requests::footprint` says why).

mod bind;
mod flow;
mod rows;
mod sections;

pub use bind::Binder;
pub use flow::Flow;
pub use rows::{KEY, Layout, ORDER};
pub use sections::Sections;
