//! Translates MIPS and RISC-V programs to Java bytecode.
//!
//! The input is a static executable as the cross compiler makes it; the output is a jar that any
//! Java from 17 on runs, without native code. One function becomes one method, a register a local,
//! and the program's memory an array. In the order of the work:
//!
//! 1. `image` reads the file; `blocks`, with `constants` and what `mips` and `riscv` know of their
//!    machines, makes functions of its code;
//! 2. `flow` computes what each function takes and returns, `fold` makes their expressions larger;
//! 3. `emit` writes bytecode and `split` sees to it that no method is too large for HotSpot;
//! 4. `dispatch` adds what indirect calls need, and `jar` packs all of it with the runtime.

#![forbid(unsafe_code)]

mod blocks;
mod classfile;
mod constants;
mod convention;
mod coordinates;
mod debug;
mod dispatch;
mod emit;
mod entries;
mod error;
mod explain;
mod flow;
mod fold;
mod graph;
mod helpers;
mod image;
mod interface;
mod ir;
mod jar;
mod jumps;
mod landing;
mod mips;
mod module;
mod names;
mod op;
mod options;
mod program;
mod replaced;
mod riscv;
mod signature;
mod split;
mod target;
mod targets;
mod unwind;
mod vars;

pub use coordinates::Coordinates;
pub use error::Error;
pub use explain::explain;
pub use image::Image;
pub use jar::{has_runtime, write};
pub use options::{Capacity, Interface, Options, Output, is_qualified_name};
pub use program::{Problem, Report, Translated, translate};
pub use split::METHOD_MAX;
pub use target::Target;
