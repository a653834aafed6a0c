//! MIPS32 release 2 instructions: decoding, and their text.
//!
//! Every MIPS instruction is one 32-bit word; which one it is depends on fixed bits alone, so a
//! table of masks and values (`table`) is the whole decoder. Byte order is the image's concern:
//! this crate takes words, not bytes.

#![forbid(unsafe_code)]

mod insn;
mod names;
mod table;
mod text;

pub use insn::{Insn, Kind};
pub use names::{FpReg, Reg};
pub use table::Op;
