//! ELF images: bytes in, values out.
//!
//! An [`Image`] is one program, library or object file for x86-64, with everything that later
//! passes ask about it: where its bytes are by address, what is code, which functions there are
//! and how they unwind, which places in memory hold addresses, what things are called. Nothing
//! here does I/O, and nothing here trusts the file: any sequence of bytes gives an image, an
//! error, or an image with warnings.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod bytes;
mod debug;
mod dwarf;
mod dynamic;
mod elf;
mod error;
mod function_range;
mod functions;
mod image;
mod lang;
mod lines;
mod locate;
mod members;
mod plt;
mod raw;
mod signature;
mod symbols;
mod units;
mod unwind;
mod xz;

pub use bytes::Bytes;
pub use dynamic::{Reloc, RelocKind};
pub use elf::{Kind, Section, SectionKind, Segment};
pub use error::{Error, Warning};
pub use fettle_types::LinkAddr;
pub use function_range::{Evidence, FunctionRange};
pub use image::Image;
pub use lang::Language;
pub use lines::{LineTable, SourceLine};
pub use locate::{crc32, debug_file_candidates};
pub use members::Holder;
pub use plt::{IFUNC_TARGET, PltEntry};
pub use signature::{ArgType, Param, Signature};
pub use symbols::{Symbol, SymbolKind, SymbolSource, unversioned};
pub use unwind::{Fde, Pointer};
