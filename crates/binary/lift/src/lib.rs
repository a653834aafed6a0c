//! Functions lifted from machine code: blocks, edges, jump tables, liveness.
//!
//! Lifting goes in three steps. [`decode`] follows the code of one *range* (a function's body, or
//! the hot or cold part of one) from its known entries. [`module`] brings the ranges of one
//! function together and gives every function that could be lifted with certainty, and for every
//! other the reason why not. [`liveness`] and [`clobbers`] then say which registers a probe may
//! use where.
//!
//! What is not certain is not lifted. What lifting misses all the same (a jump that no analysis
//! here sees) runs the original code, which stays in place.
#![forbid(unsafe_code)]

pub mod clobbers;
pub mod conventions;
mod coverage;
pub mod decode;
pub mod edges;
pub mod function;
mod listed;
pub mod liveness;
pub mod lsda;
pub mod module;
pub mod placement;
pub mod pool;
mod range_code;
pub mod results;
mod rseq;
pub mod runtime;
pub mod summary;
pub mod tables;

pub use coverage::Coverage;
pub use function::{Block, BlockId, Exit, Function, JumpTable, SkipReason, Skipped, TableKind};
pub use module::{Lifted, lift};
pub use placement::{Chunk, Placement};
pub use pool::Pool;
