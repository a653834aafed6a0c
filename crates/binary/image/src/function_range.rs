//! What is known of one function: where it is, and why we believe that.

use fettle_types::LinkAddr;

/// Why we believe that a function is there.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Evidence {
    /// A symbol starts here.
    pub symbol: bool,
    /// An unwind entry gives the bounds.
    pub unwind: bool,
    /// The program starts here.
    pub entry: bool,
    /// An initialiser or finaliser array points here.
    pub init_array: bool,
    /// A dynamic relocation puts this address into memory.
    pub reloc_target: bool,
    /// Code calls it. Never set by this crate, which does not read code.
    pub call_target: bool,
    /// The end is a guess: the next thing that is known to start.
    pub size_guessed: bool,
}

impl Evidence {
    pub(crate) fn merge(&mut self, other: Evidence) {
        self.symbol |= other.symbol;
        self.unwind |= other.unwind;
        self.entry |= other.entry;
        self.init_array |= other.init_array;
        self.reloc_target |= other.reloc_target;
        self.call_target |= other.call_target;
        self.size_guessed |= other.size_guessed;
    }
}

/// A contiguous piece of code that belongs to one function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionRange {
    /// First address.
    pub start: LinkAddr,
    /// First address past it.
    pub end: LinkAddr,
    /// Name of the symbol at its start, mangled.
    pub name: Option<String>,
    /// Why we believe it.
    pub evidence: Evidence,
    /// Symbols that start inside: further entry points, or labels.
    pub interior: Vec<LinkAddr>,
    /// Addresses inside that dynamic relocations put into memory: labels taken for computed
    /// jumps, or entry points without a symbol.
    pub address_taken: Vec<LinkAddr>,
}

impl FunctionRange {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }

    /// Whether `addr` lies inside.
    pub fn contains(&self, addr: LinkAddr) -> bool {
        addr >= self.start && addr < self.end
    }
}
