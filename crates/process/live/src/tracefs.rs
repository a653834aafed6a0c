//! The kernel's file system of its own tracing, at no path.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// The root of the file system, mounted for this process alone: whether and where the machine has mounted it makes no
/// difference, and no other process sees it.
#[derive(Debug)]
pub struct Tracefs(OwnedFd);

impl Tracefs {
    /// Mounts it, until this value goes.
    ///
    /// # Errors
    ///
    /// When the user may not, or the kernel has none.
    pub fn mount() -> io::Result<Tracefs> {
        let system = rustix::mount::fsopen(c"tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&system)?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        Ok(Tracefs(rustix::mount::fsmount(&system, flags, MountAttrFlags::empty())?))
    }

    /// Where a file of it can be opened by this process.
    pub fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd())).join(name)
    }
}

/// A place in the kernel where events are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracepoint(u64);

impl Tracepoint {
    /// The tracepoint of that name in a subsystem, as `sock` and `sock_send_length`.
    ///
    /// # Errors
    ///
    /// When this kernel has none of that name, or the user may not see them.
    pub fn find(subsystem: &str, name: &str) -> io::Result<Tracepoint> {
        // It is there for as long as this holds it.
        let tracefs = Tracefs::mount()?;
        let number = fs::read_to_string(tracefs.path(&format!("events/{subsystem}/{name}/id")))?;
        number.trim().parse().map(Tracepoint).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{subsystem}/{name}: {error}"))
        })
    }

    /// Its number, which is this boot's.
    pub fn number(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracepoints_are_found_where_the_file_system_can_be_mounted() {
        match Tracefs::mount() {
            Err(error) => eprintln!("skipped 1 test: tracefs cannot be mounted here ({error})"),
            // Every kernel that traces at all has that one.
            Ok(_) => assert!(Tracepoint::find("sched", "sched_switch").unwrap().number() > 0),
        }
        let error = Tracepoint::find("sched", "sched_nothing").unwrap_err();
        assert!(error.raw_os_error().is_some(), "{error}");
    }
}
