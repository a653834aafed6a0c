//! Why a kernel's image cannot be used, in one line each.

/// What is wrong with what the kernel says of itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the kernel could not be read.
    #[error("{what} cannot be read: {why}")]
    Unreadable {
        /// Which.
        what: String,
        /// What the system says.
        why: String,
    },
    /// The core file is none.
    #[error("the kernel's memory is not a 64-bit x86-64 ELF core file: {0}")]
    NotCore(&'static str),
    /// The core file lacks memory.
    #[error("the kernel's memory from {start:#x} to {end:#x} is not in the core file")]
    NoMemory {
        /// The first address.
        start: u64,
        /// Behind the last.
        end: u64,
    },
    /// Symbols without addresses, as they are shown to users other than root.
    #[error("kallsyms shows no addresses: run as root, with kernel.kptr_restrict below 2")]
    NoAddresses,
    /// A symbol that nothing works without.
    #[error("this kernel has no symbol {0}: its version or configuration is not known")]
    NoSymbol(&'static str),
    /// Types that are damaged, or lack one.
    #[error("the kernel's types (BTF): {0}")]
    Types(#[from] fettle_btf::BtfError),
    /// A table whose entries have another size than is known.
    #[error("{structure} has {found} bytes in this kernel, and {known} are known")]
    Layout {
        /// The entry's structure.
        structure: &'static str,
        /// What the kernel says.
        found: u32,
        /// What this reader can read.
        known: u32,
    },
    /// A table whose bounds make no sense.
    #[error("the kernel's table of {0} is damaged: its bounds are not those of a table")]
    Table(&'static str),
}
