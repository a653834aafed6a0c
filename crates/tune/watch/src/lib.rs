//! Rules over running processes: which of them make no progress, and what to do about it.
//!
//! [`parse`] reads rules. [`proc`] looks at processes from outside, through `/proc` and CPU clocks, a
//! thousand times a second; nothing is written to them and none is stopped. [`Judge`] decides from what
//! was seen, and from nothing else, so that the same looks lead to the same findings when they are read
//! from a file. [`act`] carries out what a rule asks for, within its budget, and [`Watcher`] is the loop
//! around all of them. [`webhook`] tells receivers, whatever these are like.
#![forbid(unsafe_code)]

pub mod act;
mod budget;
mod clocks;
pub mod evidence;
mod exchange;
mod finding;
mod jobs;
pub mod journal;
mod judge;
mod knobs;
pub mod last;
mod learned;
mod limit;
pub mod look;
mod original;
pub mod parse;
pub mod proc;
pub mod recording;
pub mod requests;
mod restart;
mod rule;
mod scene;
mod servers;
mod spares;
mod tally;
mod threads;
mod unread;
mod url;
mod waits;
mod watcher;
pub mod webhook;
mod window;

pub use budget::Budgets;
pub use fettle_metrics::LocalAddress;
pub use finding::{Finding, Why};
pub use judge::Judge;
pub use limit::Limit;
pub use rule::{Action, Budget, Condition, Measure, Rule, Target, Windows};
pub use tally::{ActionResult, Tally};
pub use url::{Url, UrlError};
pub use watcher::{Notice, WatchError, Watcher, WatcherOptions};
