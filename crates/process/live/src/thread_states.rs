//! What threads of a running process have in their registers and on their stacks, by one brief pause.
//!
//! Unlike a change, a look need not be whole: what does not stop in time is left out, and said. Nothing is
//! written to the process.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use fettle_types::{LiveAddr, Tid};

use crate::error::LiveError;
use crate::pause::{Failure, Gathering, gather_all};
use crate::process::Process;
use crate::ptrace::Registers;
use crate::thread::Thread;
use crate::{priority, signals};

/// What is taken at most.
#[derive(Clone, Copy, Debug)]
pub struct StateLimits {
    /// Threads wait so long for others to stop.
    pub within: Duration,
    /// Of each stack, from the stack pointer on.
    pub stack_bytes: usize,
    /// Of all stacks together.
    pub total_bytes: usize,
}

/// A thread as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Which one.
    pub tid: Tid,
    /// Its registers, by name.
    pub registers: Vec<(&'static str, u64)>,
    /// What lies on its stack, from the stack pointer on.
    pub stack: Vec<u8>,
}

/// Threads of a process as they were found at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadStates {
    /// Those that stopped.
    pub threads: Vec<ThreadState>,
    /// Those that did not stop in time.
    pub missed: Vec<Tid>,
    /// How long one of them was stopped at most.
    pub paused_for: Duration,
}

/// So long is waited for threads that were asked to stop and did not.
const LET_GO: Duration = Duration::from_millis(50);

impl Process {
    /// Stops all threads, takes their registers and stacks, and resumes them. What was stopped (SIGSTOP) stays so.
    ///
    /// # Errors
    ///
    /// When the process has ended, runs another program, or may not be traced.
    pub fn thread_states(&self, limits: &StateLimits) -> Result<ThreadStates, LiveError> {
        if self.follower().is_some() {
            let why = "it is followed already".to_owned();
            return Err(LiveError::Unattachable { pid: self.pid(), why });
        }
        let _no_stop = signals::NoStop::begin();
        // A thread of its own: when it ends, nothing stays stopped.
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                priority::raise_priority();
                let _small = priority::SmallPages::begin();
                self.look_at_threads(limits)
            });
            looking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn look_at_threads(&self, limits: &StateLimits) -> Result<ThreadStates, LiveError> {
        let mut gathering = Gathering::new(self, limits.within);
        match gather_all(&mut gathering, 0, None) {
            // Some did not stop: the others have.
            Ok(()) | Err(Failure::Stuck(..)) => {}
            Err(Failure::Error(error)) => return Err(error),
        }
        if !self.is_same() {
            return Err(LiveError::Gone { pid: self.pid() });
        }
        let each = limits.total_bytes / gathering.stopped.len().max(1);
        let bytes = limits.stack_bytes.min(each);
        let state = |thread: Thread| ThreadState {
            tid: thread.tid,
            registers: named(&thread.registers),
            stack: self.stack(thread.registers.rsp, bytes).unwrap_or_default(),
        };
        let stopped = gathering.stopped.iter();
        let threads = stopped.filter_map(|(tid, since)| Thread::look(*tid, *since)).map(state);
        let threads: Vec<ThreadState> = threads.collect();
        let seen: HashSet<Tid> = threads.iter().map(|thread| thread.tid).collect();
        let paused_for = gathering.let_go(LET_GO);
        let living = self.threads_now().unwrap_or_default();
        let missed = living.into_iter().filter(|tid| !seen.contains(tid)).collect();
        Ok(ThreadStates { threads, missed, paused_for })
    }

    fn stack(&self, from: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut stack = vec![0; bytes];
        let length = self.memory.read_some(LiveAddr(from), &mut stack)?;
        stack.truncate(length);
        Ok(stack)
    }
}

/// Registers in the order in which a person looks at them.
fn named(registers: &Registers) -> Vec<(&'static str, u64)> {
    let r = registers;
    vec![
        ("rip", r.rip),
        ("rsp", r.rsp),
        ("rbp", r.rbp),
        ("rax", r.rax),
        ("rbx", r.rbx),
        ("rcx", r.rcx),
        ("rdx", r.rdx),
        ("rsi", r.rsi),
        ("rdi", r.rdi),
        ("r8", r.r8),
        ("r9", r.r9),
        ("r10", r.r10),
        ("r11", r.r11),
        ("r12", r.r12),
        ("r13", r.r13),
        ("r14", r.r14),
        ("r15", r.r15),
        ("eflags", r.eflags),
        ("orig_rax", r.orig_rax),
        ("fs_base", r.fs_base),
        ("gs_base", r.gs_base),
        ("cs", r.cs),
    ]
}
