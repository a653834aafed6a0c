//! Instructions of RV32GC: integers, products, atomics, floating point, and their short forms.
//!
//! A short form is decoded to the instruction that it stands for. Nothing here knows programs.

#![forbid(unsafe_code)]

mod compressed;
mod decode;
mod insn;
mod text;

pub use insn::{Insn, Kind, Op, Reg};
