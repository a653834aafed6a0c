//! Programs that check for leaks at their end (LeakSanitizer, mostly as a part of
//! AddressSanitizer).
//!
//! When such a program ends, it creates a thread with `CLONE_UNTRACED`, so that no tracer sees it,
//! which traces all others in order to stop them while it searches their memory. It cannot where
//! they are traced already: then it ends the program at once, with another status, and what the
//! program has yet to print is lost. So the system calls of such a program are traced, and before
//! the one that creates that thread it is detached, thread by thread; the thread that is about to
//! make the call is the last.

use fettle_types::{Pid, Tid};

use crate::events::Tracer;
use crate::ptrace::{self, Registers};

/// Whether a system call creates the thread that checks for leaks: a task outside of the process's
/// thread group that shares its memory, and that the process's tracer does not get to trace.
fn makes_a_tracer(registers: &Registers) -> bool {
    const MUST: u64 = (libc::CLONE_VM | libc::CLONE_UNTRACED) as u64;
    const MUST_NOT: u64 = (libc::CLONE_THREAD | libc::CLONE_VFORK) as u64;
    // Before a system call the result is that there is none.
    let begins = registers.rax as i64 == -i64::from(libc::ENOSYS);
    let flags = registers.rdi;
    begins
        && registers.orig_rax == libc::SYS_clone as u64
        && flags & MUST == MUST
        && flags & MUST_NOT == 0
}

impl Tracer<'_> {
    /// From now on stops a process, which stands at its exec, at each of its system calls.
    pub(crate) fn watch_system_calls(&mut self, pid: Pid, trace: i32) {
        let Some(task) = self.tasks.get_mut(&pid.first_thread()) else { return };
        task.stops_at_calls =
            ptrace::set_options(pid.first_thread(), trace | ptrace::O_SYSGOOD).is_ok();
    }

    /// Whether a thread that has stopped at a system call is about to make the one that looks for leaks.
    pub(crate) fn begins_leak_check(&self, tid: Tid) -> bool {
        ptrace::registers(tid).is_ok_and(|registers| makes_a_tracer(&registers))
    }

    /// A thread has stopped at the beginning or end of a system call.
    pub(crate) fn at_system_call(&mut self, pid: Pid, tid: Tid) {
        if !self.begins_leak_check(tid) || self.leaving.contains_key(&pid) {
            return self.resume(tid, 0);
        }
        self.leaving.insert(pid, tid);
        for (other, _) in
            self.tasks.iter().filter(|(other, task)| task.pid == pid && **other != tid)
        {
            let _ = ptrace::interrupt(*other);
        }
        self.perhaps_left(pid);
    }

    /// Whether a thread that has stopped is to be detached now, since another of its process waits
    /// for that.
    pub(crate) fn is_leaving(&self, pid: Pid, tid: Tid) -> bool {
        self.leaving.get(&pid).is_some_and(|last| *last != tid)
    }

    /// Detaches a thread, delivering `signal`.
    pub(crate) fn leave(&mut self, pid: Pid, tid: Tid, signal: i32) {
        self.tasks.remove(&tid);
        if let Some(base) = self.session.leaving(pid, tid) {
            let _ = ptrace::set_gs_base(tid, base);
        }
        let _ = ptrace::detach(tid, signal);
        self.perhaps_left(pid);
    }

    /// Resumes the thread that waits for all others of its process to be detached, once they are.
    pub(crate) fn perhaps_left(&mut self, pid: Pid) {
        let Some(last) = self.leaving.get(&pid).copied() else { return };
        if self.tasks.iter().any(|(tid, task)| task.pid == pid && *tid != last) {
            return;
        }
        self.leaving.remove(&pid);
        if self.tasks.contains_key(&last) {
            self.leave(pid, last, 0);
            self.let_go_of(pid);
        }
    }
}
