//! Source lines, read from DWARF only where asked for.

use std::fmt;

use gimli::{EndianSlice, LittleEndian};

use crate::LinkAddr;

/// A place in the source.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SourceLine {
    /// Path of the file as the compiler recorded it.
    pub file: String,
    /// Line, from one.
    pub line: u32,
    /// Column, from one, where recorded.
    pub column: Option<u32>,
}

/// Lookup from addresses to source lines. Units are read on first use and kept, so hold on to one
/// table for many lookups.
pub struct LineTable<'a> {
    context: Option<addr2line::Context<EndianSlice<'a, LittleEndian>>>,
}

impl<'a> LineTable<'a> {
    pub(crate) fn new(dwarf: gimli::Dwarf<EndianSlice<'a, LittleEndian>>) -> LineTable<'a> {
        LineTable { context: addr2line::Context::from_dwarf(dwarf).ok() }
    }

    /// Source line of the instruction at `addr`.
    pub fn line(&self, addr: LinkAddr) -> Option<SourceLine> {
        let location = self.context.as_ref()?.find_location(addr.0).ok()??;
        Some(SourceLine {
            file: location.file?.to_owned(),
            line: location.line?,
            column: location.column.filter(|&column| column > 0),
        })
    }
}

impl fmt::Debug for LineTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineTable").finish_non_exhaustive()
    }
}
