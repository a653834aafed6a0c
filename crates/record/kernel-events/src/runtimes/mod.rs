//! Runtimes whose threads work for many tasks: which ones are known, and where in their memory the current
//! task of a thread stands.
//!
//! A thread of a Go program runs one goroutine after the other, so what a thread did last does not say what
//! it does now. The kernel's programs read the number of the goroutine from the thread's memory, by offsets
//! that depend on the version. [`identify`] finds these from the program's file.
//!
//! What a file says is a claim: the worst that wrong offsets do is that what is read is 0, or means nothing.

mod go;
mod layout;
pub(crate) mod watch;

use std::fs;

use fettle_image::Image;

pub use layout::{BYTES, Runtime};

/// Larger files are not looked at: of these, reading takes longer than it is worth.
const FILE_MAX: u64 = 1 << 30;

/// The runtime of a running process, if it is one that is known.
pub fn identify(pid: u32) -> Option<Runtime> {
    let path = format!("/proc/{pid}/exe");
    let file = fs::File::open(&path).ok()?;
    if file.metadata().ok()?.len() > FILE_MAX || !go::is_likely(&file) {
        return None;
    }
    let bytes = fs::read(&path).ok()?;
    go::identify(&Image::parse(bytes).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_no_tasks() {
        assert_eq!(identify(std::process::id()), None);
        assert_eq!(identify(u32::MAX), None);
    }
}
