//! What is known of threads, processes and injections on their way.

use std::collections::HashMap;

use fettle_types::{FunctionIndex, LoadBias, ModuleIndex, Pid, SlotIndex};

use crate::libraries::Space;
use crate::task;

/// What is known of a process.
pub(super) struct ProcessState {
    pub(super) parent: Option<Pid>,
    pub(super) command: String,
    pub(super) start_tsc: u64,
    /// Where the slots are mapped, if its code was rewritten.
    pub(super) slots_at: Option<u64>,
    /// What is there for its libraries.
    pub(super) space: Option<Space>,
}

/// An injection on its way.
pub(super) struct Pending {
    pub(super) space: Option<Space>,
    /// The main program has rewritten text.
    pub(super) probed: bool,
    pub(super) slot: SlotIndex,
    pub(super) slots_at: u64,
    pub(super) module: ModuleIndex,
    pub(super) bias: LoadBias,
}

/// What is known of a thread with a slot.
pub(super) struct ThreadState {
    pub(super) index: u32,
    pub(super) slot: SlotIndex,
    pub(super) pid: Pid,
    pub(super) start_tsc: u64,
    /// CPU time that it had used before.
    pub(super) start_cpu_ns: Option<u64>,
    /// What it was at its end, once that has come.
    pub(super) end: Option<task::Account>,
    /// Calls that it was forked in the middle of.
    pub(super) copied: Vec<(FunctionIndex, u64)>,
    /// Looks that found it in a system call with a lock in hand, and the ticks that they stand for: by the
    /// number of the lock's row and the call.
    pub(super) held_over: HashMap<(u32, u32), (u64, u64)>,
}
