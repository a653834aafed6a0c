//! What is known of a program with tasks, and as the kernel's programs read it.

use std::path::PathBuf;

/// Where the current task of a process's threads stands, as the kernel's programs read it: words of 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// From the thread's `fs` base to the pointer to what runs there.
    pub slot: i64,
    /// Offset of the task's number in that.
    pub number: u64,
    /// Offset of the number of the task that made it; 0 if there is none.
    pub parent: u64,
    /// Where a thread's structure points to the task that it runs, beneath the scheduler's own.
    pub running: u64,
    /// Where a task has what it waits for, a byte.
    pub reason: u64,
    /// Where it points to its thread's structure.
    pub thread: u64,
    /// Reasons of those that wait for something that is given to them, a bit each.
    pub takes: u64,
    /// Reasons of those that wait until what they have is taken from them.
    pub gives: u64,
    /// What a task's number is: 0, [`CONTEXTS`] or [`FIBERS`].
    pub identity: u64,
    /// Where a word is that is 0 as long as a thread runs no task, if there is one.
    pub mounted: u64,
    /// From the beginning of a fiber to what the slot leads to.
    pub part: u64,
}

/// Tasks are known by the address of their context, which may be another's later.
pub const CONTEXTS: u64 = 1;

/// Tasks are known by the address of their fiber as an object, which may be another's later; what makes one resumes it
/// first. The slot leads to a part of the fiber, and so does the parent's pointer to the whole of one.
pub const FIBERS: u64 = 2;

/// Bytes of a layout in the kernel's map.
pub const BYTES: u32 = 88;

impl Layout {
    /// As the kernel's programs read it.
    pub fn bytes(&self) -> [u8; BYTES as usize] {
        let Layout {
            slot,
            number,
            parent,
            running,
            reason,
            thread,
            takes,
            gives,
            identity,
            mounted,
            part,
        } = *self;
        let slot = slot.cast_unsigned();
        let words =
            [slot, number, parent, running, reason, thread, takes, gives, identity, mounted, part];
        let mut bytes = [0; BYTES as usize];
        for (at, word) in bytes.chunks_exact_mut(8).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// What one of the kernel's programs reports at a place in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// The beginning of a function that makes a task runnable which waits for another (Go).
    Ready,
    /// The end of a function that makes a context: what runs in it works for the one that has made it (CPython).
    Made,
    /// The beginning of a function by which a task leaves bytes to its event loop (uvloop).
    Queued,
}

/// A place in a file at which one of the kernel's programs is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What is reported there.
    pub at: At,
    /// The file, as a process sees it from outside.
    pub path: PathBuf,
    /// Where in it the function lies.
    pub offset: u64,
}

/// A program with tasks of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Where its threads' tasks are.
    pub layout: Layout,
    /// What else has to be seen.
    pub places: Vec<Place>,
}

/// Larger files are not looked at: of these, reading takes longer than it is worth.
pub(super) const FILE_MAX: u64 = 1 << 30;

/// What is known of a running process's runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is none that is known.
    Nothing,
    /// It is one that has not begun yet.
    NotYet,
    /// It is this one. More of it may be found later if `is_whole` is not set.
    Known {
        /// Where it has what.
        runtime: Runtime,
        /// There is no more to be found.
        is_whole: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_one_behind_the_other() {
        let layout = Layout { slot: -8, gives: 7, identity: CONTEXTS, ..Layout::default() };
        let bytes = layout.bytes();
        assert_eq!(bytes[..8], (-8_i64).to_le_bytes());
        assert_eq!(bytes[56..64], 7_u64.to_le_bytes());
        assert_eq!(bytes[64..72], CONTEXTS.to_le_bytes());
        assert_eq!(bytes[72..], [0; 16]);
    }
}
