//! Chores of the repository, behind `cargo xtask`.
//!
//! Everything that proves the tool from outside lives here: these modules know the `fettle`
//! command line and exit codes, and nothing of the crates behind it. A library so that the tests
//! in `tests` can call the same steps that `cargo xtask` runs.
#![forbid(unsafe_code)]

pub mod apt;
pub mod attach;
pub mod bench;
pub mod census;
pub mod ci;
pub mod corpus;
pub mod demo;
pub mod dist;
pub mod docs;
pub mod examples;
pub mod fettle;
pub mod fleet;
pub mod fuzz;
pub mod guest;
pub mod jar;
pub mod java;
pub mod kernel;
pub mod kernel_live;
pub mod lab;
pub mod page;
pub mod papers;
pub mod postgres;
pub mod proc;
pub mod repo;
pub mod requests;
pub mod rpc;
pub mod smp;
pub mod tidy;
pub mod torture;
