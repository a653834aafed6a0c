//! The scope of process numbers: one PID namespace, from one boot of the machine to the next.
//!
//! An undo log may be read elsewhere: in a container, or outside of it, on another machine that has
//! the same home folder, after the machine was started again. A Fettle that cannot see a process
//! must not take it for one that has ended.

use std::fmt;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use crate::error::LiveError;
use crate::process::check_proc;

/// A boot and a PID namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct World {
    /// The kernel's id of the boot, which is unique among machines.
    pub boot: String,
    /// The namespace's inode.
    pub pid_namespace: u64,
}

/// When the processes of a world live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// They may live, and can be seen.
    Present,
    /// None lives: the machine has been booted since.
    Past,
}

impl World {
    /// The one that this process is in.
    pub fn here() -> Result<World, LiveError> {
        check_proc()?;
        let failed =
            |source| LiveError::Os { action: "tell this PID namespace from others", source };
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(failed)?;
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_err(failed)?;
        Ok(World { boot: boot.trim().to_owned(), pid_namespace: namespace.ino() })
    }

    /// What [`World`]'s `Display` has written.
    pub fn parse(text: &str) -> Option<World> {
        let (boot, namespace) = text.split_once(' ')?;
        let is_name = !boot.is_empty() && !boot.contains(char::is_whitespace);
        Some(World { boot: boot.to_owned(), pid_namespace: namespace.parse().ok()? })
            .filter(|_| is_name)
    }

    /// When the processes of this world live, as `file` shows; else why that cannot be found out
    /// here.
    pub fn era(&self, here: &World, file: &File) -> Result<Era, String> {
        let by_hand = "; if that has ended, remove the log by hand";
        match (self.boot == here.boot, self.pid_namespace == here.pid_namespace) {
            (true, true) => Ok(Era::Present),
            (true, false) => Err(format!(
                "it is of a process in another PID namespace (a container, or outside of this one): \
                 run Fettle there{by_hand}"
            )),
            // A file on a local file system was written by this machine.
            (false, true) if is_local(file) => Ok(Era::Past),
            (false, _) => Err(format!(
                "it is of a process on another machine, or from before this one was started: run \
                 Fettle there{by_hand}"
            )),
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.boot, self.pid_namespace)
    }
}

/// Whether a file lies in a file system of this machine alone.
fn is_local(file: &File) -> bool {
    // overlay, and zfs and bcachefs, which the C library does not name.
    const OTHERS: [i64; 3] = [0x794c_7630, 0x2fc1_2fc1, 0xca45_1a4e];
    const KNOWN: [i64; 5] = [
        libc::EXT4_SUPER_MAGIC,
        libc::XFS_SUPER_MAGIC,
        libc::BTRFS_SUPER_MAGIC,
        libc::F2FS_SUPER_MAGIC,
        libc::TMPFS_MAGIC,
    ];
    let mut about = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the kernel fills a structure of ours, which is all integers.
    let kind = unsafe {
        match libc::fstatfs(file.as_raw_fd(), about.as_mut_ptr()) {
            0 => about.assume_init().f_type,
            _ => return false,
        }
    };
    KNOWN.contains(&kind) || OTHERS.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worlds_are_told_apart() {
        let here = World::here().unwrap();
        assert_eq!(World::parse(&here.to_string()), Some(here.clone()));
        assert!(World::parse("").is_none() && World::parse("boot").is_none());
        let file = tempfile::tempfile_in("/tmp").unwrap();
        let other = World { boot: "other".to_owned(), ..here.clone() };
        assert_eq!(here.era(&here, &file), Ok(Era::Present));
        if is_local(&file) {
            assert_eq!(other.era(&here, &file), Ok(Era::Past));
        }
        // The namespace of this one is not known.
        let proc = File::open("/proc/self/status").unwrap();
        assert!(other.era(&here, &proc).unwrap_err().contains("another machine"));
        let inside = World { pid_namespace: 1, ..here.clone() };
        assert!(inside.era(&here, &file).unwrap_err().contains("another PID namespace"));
        assert!(World { pid_namespace: 1, ..other }.era(&here, &file).is_err());
    }
}
