//! Processors lent to the application kernel (`runtime/appkernel`).
//!
//! The work is done by a Linux module. This crate has the module's source text and builds it
//! ([`source`]), talks to the device of a loaded one ([`device`]), and says what a machine lacks
//! ([`check`]).
#![forbid(unsafe_code)]

pub mod check;
pub mod device;
pub mod list;
pub mod source;

use std::path::PathBuf;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The module is not loaded, and there is none to load.
    #[error(
        "no module for this kernel at {}: `fettle smp module` builds it", .0.display()
    )]
    NoModule(PathBuf),
    /// The device cannot be opened.
    #[error("{}: {why} (the device belongs to root)", path.display())]
    Device {
        /// The device.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The module did not carry out a command.
    #[error("{0}")]
    Refused(String),
    /// The module's answer is not what this version of Fettle understands.
    #[error("the module answers in another way than this version of Fettle expects: {0}")]
    Answer(String),
    /// No list of processors.
    #[error("{0} is no list of processors, which is like 2,4-7")]
    List(String),
    /// A command of the system failed.
    #[error("{what}: {why}")]
    Command {
        /// What was done.
        what: String,
        /// What it said.
        why: String,
    },
    /// A file cannot be written or read.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
}

/// Release of the running kernel, as `uname -r` says.
pub fn kernel_release() -> Result<String, Error> {
    let path = PathBuf::from("/proc/sys/kernel/osrelease");
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().to_string()),
        Err(why) => Err(Error::File { path, why }),
    }
}
