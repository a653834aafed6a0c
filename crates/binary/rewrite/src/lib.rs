//! Rewriting functions: probes and re-emission, as plans.
//!
//! [`plan()`] turns the lifted functions of an image into rewritten text that has no address yet;
//! [`fettle_check`] re-derives that it does what the original did; [`link()`] gives it an address. None
//! of them touches a process or a file: applying a plan is the work of other crates.
#![forbid(unsafe_code)]

pub mod agent;
mod assembly;
mod calls;
mod copies;
mod debug_frame;
pub mod emit;
mod filler;
pub mod find_object;
pub mod link;
pub mod osr_map;
pub mod plan;
mod planning;
pub mod pointer;
pub mod probe;
mod snippets;
pub mod unwind;
pub mod user_probe;
pub mod valid;

pub use calls::calls_to_new;
pub use debug_frame::debug_frame;
pub use link::{LinkParameters, Linked, link};
pub use plan::{Plan, PlanOptions, PlannedFunction};
pub use planning::{plan, plan_checked_by};
