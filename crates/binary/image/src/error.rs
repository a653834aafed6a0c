//! What can be wrong with a file, in one clear line each. Names that come from the file are
//! escaped, so that they cannot write anything else to a terminal.

use crate::LinkAddr;

/// Why a file cannot be used at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not start with the ELF magic.
    #[error("not an ELF file: {0}")]
    NotElf(String),
    /// A 32-bit file.
    #[error("32-bit ELF file ({machine}): only 64-bit x86-64 is supported")]
    Class32 {
        /// Name of the file's architecture.
        machine: String,
    },
    /// A big-endian file.
    #[error("big-endian ELF file ({machine}): only little-endian x86-64 is supported")]
    BigEndian {
        /// Name of the file's architecture.
        machine: String,
    },
    /// A file for another processor.
    #[error("built for {machine}: only x86-64 is supported")]
    Machine {
        /// Name of the file's architecture.
        machine: String,
    },
    /// Neither a program, a library nor an object file.
    #[error("not a program, library or object file: {0}")]
    FileType(String),
    /// The file ends before something that its headers promise.
    #[error("truncated: {what} needs bytes up to {end:#x}, but the file ends at {len:#x}")]
    Truncated {
        /// What is cut off.
        what: String,
        /// First offset past the missing part.
        end: u64,
        /// Length of the file.
        len: u64,
    },
    /// A header contradicts itself.
    #[error("malformed: {what} at file offset {offset:#x}")]
    Malformed {
        /// What is wrong.
        what: String,
        /// Where in the file.
        offset: u64,
    },
}

/// Something wrong with a file that leaves the rest of it usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// The section table cannot be read; the file is treated as if it had none.
    #[error("section headers ignored: {0}")]
    Sections(String),
    /// A section points outside of the file.
    #[error(
        "section {} ignored: its bytes {start:#x} to {end:#x} lie outside of the file",
        name.escape_debug()
    )]
    Section {
        /// Section name.
        name: String,
        /// File offset where the section should start.
        start: u64,
        /// File offset where it should end.
        end: u64,
    },
    /// A loadable segment starts inside another one.
    #[error("segments overlap at {0}")]
    SegmentsOverlap(LinkAddr),
    /// Symbols that could not be read.
    #[error("{count} symbols of {} ignored: {why}", table.escape_debug())]
    Symbols {
        /// Symbol table.
        table: String,
        /// How many entries.
        count: usize,
        /// Reason.
        why: String,
    },
    /// The dynamic section or something it points to is unusable.
    #[error("dynamic section: {0}")]
    Dynamic(String),
    /// An unwind entry that could not be read.
    #[error("unwind entry at .eh_frame+{offset:#x} ignored: {why}")]
    Unwind {
        /// Offset of the entry in `.eh_frame`.
        offset: usize,
        /// Reason.
        why: String,
    },
    /// Two unwind entries claim the same code.
    #[error("unwind entries overlap at {0}")]
    UnwindOverlap(LinkAddr),
    /// The embedded compressed symbols cannot be used.
    #[error("embedded symbols (.gnu_debugdata) ignored: {0}")]
    DebugData(String),
    /// A separate debug file cannot be used.
    #[error("debug file ignored: {0}")]
    DebugFile(String),
    /// DWARF data that cannot be used.
    #[error("debug information: {0}")]
    Dwarf(String),
    /// More warnings than are worth keeping.
    #[error("{0} further warnings not shown")]
    More(usize),
}

/// Collects warnings, keeping their number bounded however bad the file is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Vec<Warning>);

/// Warnings kept one by one; what follows is only counted.
const WARNINGS_MAX: usize = 100;

impl Warnings {
    pub(crate) fn push(&mut self, warning: Warning) {
        if let Some(Warning::More(count)) = self.0.last_mut() {
            *count += 1;
        } else if self.0.len() >= WARNINGS_MAX {
            self.0.push(Warning::More(1));
        } else {
            self.0.push(warning);
        }
    }

    pub(crate) fn as_slice(&self) -> &[Warning] {
        &self.0
    }
}
