//! Stopped threads, with their registers.

use std::time::Instant;

use fettle_types::Tid;

use crate::ptrace::{self, Registers};

/// The code segment of 64-bit programs.
pub(crate) const USER_CS: u64 = 0x33;

/// A stopped thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tid: Tid,
    pub(crate) registers: Registers,
    /// It ran until then at least.
    pub(crate) since: Instant,
}

impl Thread {
    /// Whether it is in a system call, which is restarted or returns when the thread is resumed.
    pub(crate) fn is_in_call(&self) -> bool {
        self.registers.orig_rax as i64 >= 0
    }
}

impl Thread {
    /// A thread that is stopped, and ran until `since` at least; `None` if it was killed.
    pub(crate) fn look(tid: Tid, since: Instant) -> Option<Thread> {
        Some(Thread { tid, registers: ptrace::registers(tid).ok()?, since })
    }

    /// A thread with these registers that belongs to no process.
    #[cfg(test)]
    pub(crate) fn standing(tid: Tid, registers: Registers, since: Instant) -> Thread {
        Thread { tid, registers, since }
    }
}
