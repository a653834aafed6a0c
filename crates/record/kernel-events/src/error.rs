//! Why kernel events cannot be had.

use std::io;

use fettle_btf::BtfError;

/// Why kernel events cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The user may not.
    #[error(
        "kernel events need root, or the capabilities CAP_BPF, CAP_PERFMON and \
         CAP_DAC_READ_SEARCH: run it with sudo, or record with probes alone: leave --kernel out, or give --pid a --mode"
    )]
    NotPermitted,
    /// The kernel has no type information (BTF).
    #[error(
        "kernel events need the kernel's types in /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF), \
         and they cannot be read: {0}"
    )]
    NoTypes(io::Error),
    /// The kernel has no eBPF, or none that is new enough.
    #[error(
        "kernel events need eBPF of Linux 5.11 or newer, and this kernel has no {what}: {error}"
    )]
    NoBpf {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// Process numbers would not be those that the programs see.
    #[error(
        "kernel events cannot be recorded from within a container that numbers processes by \
         itself: run fettle on the host, or in a container with the host's processes (--pid=host)"
    )]
    PidNamespace,
    /// The kernel's types are damaged, or have not got what is needed.
    #[error("the kernel's types in /sys/kernel/btf/vmlinux: {0}")]
    Types(#[from] BtfError),
    /// The kernel refused a program.
    #[error("this kernel does not accept the program for {program}: {error}\n{log}")]
    Rejected {
        /// The tracepoint it is for.
        program: &'static str,
        /// What the kernel said.
        error: io::Error,
        /// The end of what its verifier said.
        log: String,
    },
    /// A system call failed.
    #[error("cannot {what}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
}

impl KernelError {
    pub(crate) fn io(what: &'static str) -> impl Fn(io::Error) -> KernelError {
        move |error| KernelError::Io { what, error }
    }
}
