//! Runtimes whose threads work for many tasks: which ones are known, and where in their memory the current
//! task of a thread stands.
//!
//! A thread of a Go program runs one goroutine after the other, one of CPython's asyncio one task, and a carrier
//! of the JVM's one virtual thread, one of Ruby's one fiber, so what a thread did last does not say what it does now. The kernel's programs
//! read the number of the goroutine or virtual thread, or the address of the task's context or of the fiber, from the thread's
//! memory, by offsets that depend on the version.
//! [`Runtimes`] finds these from the program's files.
//!
//! What a file says is a claim: the worst that wrong offsets do is that what is read is 0, or means nothing.

mod go;
mod java;
mod layout;
mod memory;
mod modules;
mod pthread;
mod python;
mod ruby;
mod tls;
pub(crate) mod watch;

use std::fs;
use std::path::Path;

use fettle_image::Image;
use fettle_types::Pid;

pub use layout::{At, BYTES, CONTEXTS, FIBERS, Found, Runtime};

use layout::FILE_MAX;

/// Finds out which runtimes processes have.
#[derive(Debug, Default)]
pub struct Runtimes {
    java: java::Java,
    python: python::Python,
    ruby: ruby::Ruby,
}

impl Runtimes {
    /// The runtime of a running process.
    pub fn identify(&mut self, pid: Pid) -> Found {
        if let Some(runtime) = go(pid) {
            return Found::Known { runtime, is_whole: true };
        }
        let Runtimes { java, python, ruby } = self;
        let modules = modules::modules(pid);
        let mut found = java.identify(pid, &modules);
        if found == Found::Nothing {
            found = python.identify(pid, &modules);
        }
        if found == Found::Nothing {
            found = ruby.identify(pid, &modules);
        }
        found
    }
}

fn go(pid: Pid) -> Option<Runtime> {
    let path = format!("/proc/{pid}/exe");
    let file = fs::File::open(&path).ok()?;
    if file.metadata().ok()?.len() > FILE_MAX || !go::is_likely(&file) {
        return None;
    }
    let bytes = fs::read(&path).ok()?;
    go::identify(&Image::parse(bytes).ok()?, Path::new(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_no_tasks() {
        let mut runtimes = Runtimes::default();
        assert_eq!(runtimes.identify(Pid::own()), Found::Nothing);
        assert_eq!(runtimes.identify(Pid::try_from(i32::MAX).unwrap()), Found::Nothing);
    }
}
