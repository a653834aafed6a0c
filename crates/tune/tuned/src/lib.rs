//! The daemon that tunes the servers of a machine by rules.
//!
//! [`rules`] reads the file that says which processes are meant and what tuning may cost. [`find`] looks
//! for them. [`Fleet`] decides what is to be done next from what it is shown, and does nothing itself, so
//! that it can be tried with any course of events. [`jobs`] runs `fettle tune`, `fettle undo` and the
//! checks as processes of their own: whatever becomes of this one, they revert what they have begun.
//! [`Daemon`] is the loop around all of them; [`metrics`] shows Prometheus how it stands.
#![forbid(unsafe_code)]

mod daemon;
pub mod find;
mod fleet;
pub mod jobs;
pub mod metrics;
pub mod rules;
mod saved;

pub use daemon::{Daemon, DaemonError, DaemonOptions, Notice, default_folder};
pub use fleet::{Act, Budget, Fleet, Gain, GroupKey, Outcome, State, Tracked, Tuned};
