//! What the session answers to a process that has executed a program and to threads at dlopen
//! hooks, and the threads that stay stopped until it can answer.
//!
//! What a session injects may take seconds to make. The process, or the thread that reports at its
//! dlopen hook, has to wait for that, and no other: the tracer keeps that thread stopped, and
//! serves the rest.

use std::time::{Duration, Instant};

use fettle_types::{Pid, Tid};

use crate::dlopen_hook::{Asked, DlopenHook, HookStop};
use crate::error::LiveError;
use crate::events::{Held, TRACE, Tracer};
use crate::inject;
use crate::maps::LiveAddr;
use crate::memory::Memory;
use crate::ptrace;
use crate::stop::ExecStop;

/// How often the session is asked again.
const PERIOD: Duration = Duration::from_millis(10);

impl Tracer<'_> {
    /// A process has executed a program: it gets the session's injection, and runs; or it is held
    /// until the session has that.
    pub(crate) fn at_exec(&mut self, pid: Pid) {
        let tid = pid.first_thread();
        if self.detaching.is_none() {
            if self.is_held(tid, Held::Exec) {
                return;
            }
            self.inject(pid);
        }
        self.resume(tid, 0);
    }

    /// Whether a stopped thread has to wait, for then it is held.
    pub(crate) fn is_held(&mut self, tid: Tid, how: Held) -> bool {
        // A pause of an attached process needs each of its threads to stop at once.
        if self.detaching.is_some() || self.launch.is_none() {
            return false;
        }
        let Some(pid) = self.tasks.get(&tid).map(|task| task.pid) else { return false };
        let waits = match how {
            Held::Exec => ExecStop::look(pid).is_ok_and(|stop| !self.session.is_prepared(&stop)),
            Held::Hook { .. } => {
                HookStop::look(pid, tid).is_ok_and(|stop| !self.session.can_answer(&stop))
            }
        };
        if waits {
            self.held.insert(tid, how);
        }
        waits
    }

    /// Resumes the held threads if the session can answer now, or detaches all of them.
    pub(crate) fn go_on_with_held(&mut self, now: Instant) {
        if self.held.is_empty() || (now < self.ask_again && self.detaching.is_none()) {
            return;
        }
        for (tid, how) in std::mem::take(&mut self.held) {
            let Some(pid) = self.tasks.get(&tid).map(|task| task.pid) else { continue };
            match how {
                Held::Exec => self.at_exec(pid),
                Held::Hook { signal } => self.perhaps_library_event(pid, tid, signal),
            }
        }
        self.ask_again = Instant::now() + PERIOD;
    }

    /// A thread is about to be given a signal of dlopen hooks: another process sent it, or the
    /// thread itself at a hook.
    pub(crate) fn perhaps_library_event(&mut self, pid: Pid, tid: Tid, signal: i32) {
        let at = ptrace::registers(tid).map(|registers| LiveAddr(registers.rip));
        let dlopen_hook = at.ok().and_then(|at| self.session.dlopen_hook(pid, at));
        let Some(dlopen_hook) = dlopen_hook else { return self.resume(tid, signal) };
        if self.is_held(tid, Held::Hook { signal }) {
            return;
        }
        let asked = self.asked.remove(&tid);
        if self.detaching.is_none()
            && let Err(error) = self.answer(pid, tid, &dlopen_hook, asked)
        {
            // Most likely it has ended; if not, it finds an empty table and returns to the loader.
            let _ =
                Memory::open(pid).map(|m| m.write(dlopen_hook.table, &DlopenHook::empty_table()));
            self.session.injected(pid, Err(error));
        }
        self.resume(tid, 0);
    }

    fn answer(
        &mut self,
        pid: Pid,
        tid: Tid,
        dlopen_hook: &DlopenHook,
        asked: Option<Asked>,
    ) -> Result<(), LiveError> {
        let stop = HookStop::look(pid, tid)?;
        let mut done = asked.map(|asked| stop.answers(dlopen_hook, &asked)).transpose()?;
        loop {
            let requests = self.session.library_event(&stop, done);
            if requests.is_empty() {
                return Ok(());
            }
            let asked = stop.ask(dlopen_hook, &requests)?;
            if asked.has_calls() {
                self.asked.insert(tid, asked);
                return Ok(());
            }
            // Nothing can be done for it there, and a thread that has nothing to do does not report
            // again. In a process with another root directory, that is so for our files.
            done = Some(stop.answers(dlopen_hook, &asked)?);
        }
    }

    fn inject(&mut self, pid: Pid) {
        let stop = match ExecStop::look(pid) {
            Ok(stop) => stop,
            Err(error) => return self.session.injected(pid, Err(error)),
        };
        if let Some(injection) = self.session.exec(&stop) {
            let result = inject::apply(&stop, &injection, TRACE);
            self.session.injected(pid, result);
        }
        if let Some(task) = self.tasks.get_mut(&pid.first_thread()) {
            task.stops_at_calls = false;
        }
        if self.launch.is_some() && self.session.looks_for_leaks(&stop) {
            self.watch_system_calls(pid, TRACE);
        }
    }
}
