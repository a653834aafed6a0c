//! Why rewritten text does not come into the kernel.

use std::io;
use std::path::PathBuf;

/// Why something about the running kernel could not be done. The kernel is as it was, unless it says
/// otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not root.
    #[error("changing the kernel needs root; run fettle as root (sudo)")]
    NotRoot,
    /// A file of the kernel's is missing or unreadable.
    #[error("{what} cannot be read ({error}): {next}")]
    Unreadable {
        /// Which.
        what: PathBuf,
        /// The system's reason.
        error: io::Error,
        /// What to do about it.
        next: &'static str,
    },
    /// The kernel's image is not as known ones are.
    #[error("the running kernel: {0}")]
    Image(#[from] fettle_kernel_image::Error),
    /// The kernel's types are damaged, or lack a field.
    #[error("the kernel's types in /sys/kernel/btf/vmlinux: {0}; this kernel is not supported")]
    Types(#[from] fettle_btf::BtfError),
    /// A function or variable that the module needs.
    #[error("the kernel has no symbol {0}, which the module needs; this kernel is not supported")]
    NoSymbol(String),
    /// Something about this kernel rules rewritten text out.
    #[error("{0}")]
    Unfit(String),
    /// The plan contradicts itself, which is a mistake of what made it.
    #[error("the plan for {function} is not sound at {at:#x}: {what}")]
    Plan {
        /// The function, or a part's number.
        function: String,
        /// An offset in a part, or an address.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The kernel does not take the module.
    #[error("the kernel does not load the module: {0}")]
    Load(String),
    /// The module is not there.
    #[error("no module of fettle's is loaded: nothing is installed in the kernel")]
    NotLoaded,
    /// The module is there already.
    #[error(
        "fettle has rewritten text in the kernel already; `fettle undo --kernel` takes it out first"
    )]
    Loaded,
    /// An original is not as the plan has it.
    #[error(
        "{0} has a probe or a patch of another tool at its entry; left unmodified, nothing is installed"
    )]
    Taken(String),
    /// A livepatch has come since.
    #[error("a livepatch was loaded, which takes precedence; unload fettle's module to begin anew")]
    Barred,
    /// Deoptimisation failed: threads could not leave rewritten text.
    #[error(
        "threads are still in rewritten text ({hooked} by return hooks of tracers, {stuck} in frames that \
         cannot be walked, {foreign} entries with probes of others): stop those tracers and try again"
    )]
    Occupied {
        /// Return addresses that a tracer keeps.
        hooked: u64,
        /// Frames without an answer.
        stuck: u64,
        /// Entries that others wrote to.
        foreign: u64,
    },
    /// The control file.
    #[error("the module's control file: {0}")]
    Control(io::Error),
    /// The journal of what is installed.
    #[error("the record of what is installed, {what}: {error}")]
    Journal {
        /// The file.
        what: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
