//! Threads of a process in a pause, with their registers.

use std::time::Instant;

use fettle_types::{LiveAddr, Tid};

use crate::ptrace::{self, Registers};

/// The code segment of 64-bit programs.
pub(crate) const USER_CS: u64 = 0x33;

/// A thread that runs no instruction of the program.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tid: Tid,
    /// Those of the program. A parked thread's call may have a result by now that they lack.
    pub(crate) registers: Registers,
    /// It ran until then at least.
    pub(crate) since: Instant,
    /// It is not stopped, but in a system call at whose end it stops: its registers cannot be written.
    pub(crate) is_parked: bool,
    /// What its stack holds that may be addresses, and where, if that was read ahead.
    pub(crate) words: Option<Vec<(LiveAddr, u64)>>,
}

impl Thread {
    /// A stopped thread, which ran until `since` at least; `None` if it was killed.
    pub(crate) fn look(tid: Tid, since: Instant) -> Option<Thread> {
        let registers = ptrace::registers(tid).ok()?;
        Some(Thread { tid, registers, since, is_parked: false, words: None })
    }

    /// Whether it is in a system call, which is restarted or returns when the thread is resumed.
    pub(crate) fn is_in_call(&self) -> bool {
        self.registers.orig_rax as i64 >= 0
    }

    /// A thread with these registers that belongs to no process.
    #[cfg(test)]
    pub(crate) fn standing(tid: Tid, registers: Registers, since: Instant) -> Thread {
        Thread { tid, registers, since, is_parked: false, words: None }
    }
}
