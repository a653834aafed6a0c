//! Following processes that run already.
//!
//! One thread of ours traces them for as long as they are followed, so that their new threads and
//! forked children are seen; and only the tracer may stop a thread. So while a process is followed,
//! a thread that wants to pause it asks the tracer, and so does one that wants another process to
//! be followed.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fettle_types::{Pid, Tid};

use crate::births::sharing_child;
use crate::error::LiveError;
use crate::events::{Birth, Origin, RunOptions, Session, TRACE, Tracer};
use crate::exit_status::ExitStatus;
use crate::follower::{Ask, Follower, Stopped, Stuck, own_tid};
use crate::launch;
use crate::maps;
use crate::pause;
use crate::priority::{self, Boost};
use crate::process::{self, Process};
use crate::ptrace::{self, What};
use crate::thread::Thread;

/// Stops that were reported during a pause and are handled after it: thread, signal, event.
type Deferred = Vec<(Tid, i32, i32)>;

/// How long all threads may take to stop once, at first.
const ARRIVAL: Duration = Duration::from_secs(6);

/// Follows a process that runs, and its descendants, while `work` goes on in a thread of its own,
/// which may have others followed, too; then detaches them. Each process that is followed is
/// reported as one that [joined](Session::joined), each thread that is there as created by its
/// first one, and is paused meanwhile. [`Process::while_paused`] may be used by `work`, but not
/// what makes system calls in a process that is followed. Returns what `work` returned, and how the
/// process ended, if it did.
///
/// Signals that this process is sent are not forwarded.
///
/// # Errors
///
/// When it cannot be traced, or a thread of it does not stop; then nothing was done.
pub fn attach<T: Send>(
    process: &Process,
    session: &mut dyn Session,
    options: RunOptions<'_>,
    work: impl FnOnce(&Following) -> T + Send,
) -> Result<(T, Option<ExitStatus>), LiveError> {
    let mut tracer = Tracer::new(process.pid(), session, options)?;
    tracer.raise_priority = Some(Boost::begin());
    let (follower, wanted) = Follower::of_this_thread();
    if let Err(error) = tracer.join(process.pid()) {
        drop(follower);
        // It cannot be traced: the threads that were attached already are detached.
        tracer.follow_running(wanted)?;
        return Err(error);
    }
    tracer.raise_priority = None;
    let followed = Followed::begin(process, follower.clone());
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let end = EndAtLast(follower.clone());
            let done = work(&Following(follower));
            drop(end);
            done
        });
        let status = tracer.follow_running(wanted);
        drop(tracer);
        drop(followed);
        let done = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((done, status?))
    })
}

/// Processes are followed, and others can be.
#[derive(Debug)]
pub struct Following(Follower);

impl Following {
    /// Follows another process, and its descendants, until [`attach`] returns. After that `process`
    /// cannot be used any more: open it anew.
    ///
    /// # Errors
    ///
    /// When it cannot be traced, or a thread of it does not stop.
    pub fn join(&self, process: &Process) -> Result<(), LiveError> {
        let pid = process.pid();
        let (answer, answered) = mpsc::channel();
        let asked = self.0.ask(Ask::Join { pid, answer }).is_ok();
        process.be_followed_by(Some(self.0.clone()));
        // If there is no answer, all that was followed has ended.
        let answered = answered.recv().ok().filter(|_| asked);
        answered.unwrap_or(Err(LiveError::Gone { pid }))
    }
}

/// Marks a process as followed, as long as this exists.
struct Followed<'a>(&'a Process);

impl Followed<'_> {
    fn begin(process: &Process, follower: Follower) -> Followed<'_> {
        process.be_followed_by(Some(follower));
        Followed(process)
    }
}

impl Drop for Followed<'_> {
    fn drop(&mut self) {
        self.0.be_followed_by(None);
    }
}

/// Has the tracing thread end when the work is done, or has failed altogether.
struct EndAtLast(Follower);

impl Drop for EndAtLast {
    fn drop(&mut self) {
        // The tracer may have ended with the process.
        let _ = self.0.ask(Ask::End);
    }
}

impl Tracer<'_> {
    /// Begins to trace a process that runs: all its threads. Each was paused once when this is
    /// done.
    fn join(&mut self, pid: Pid) -> Result<(), LiveError> {
        let threads = process::tasks(pid)?;
        let leak_check = self.session.joined(pid, process::parent_of(pid), &threads);
        let options = if leak_check { TRACE | ptrace::O_SYSGOOD } else { TRACE };
        let deadline = Instant::now() + ARRIVAL;
        loop {
            let threads = process::tasks(pid)?;
            let new: Vec<Tid> =
                threads.into_iter().filter(|tid| !self.tasks.contains_key(tid)).collect();
            let mut any = false;
            for tid in new {
                // Threads that were created since their parent is traced are traced already.
                if traced_by_us(pid, tid) {
                    continue;
                }
                if pause::seize(pid, tid, options)? {
                    any = true;
                    let parent = Some(pid.first_thread());
                    let origin = Origin { parent, pid, birth: Birth::Thread };
                    let base = self.announce(tid, origin);
                    if let Some(task) = self.tasks.get_mut(&tid) {
                        task.stops_at_calls = leak_check;
                    }
                    self.expected.insert(tid, base);
                    let _ = ptrace::interrupt(tid);
                }
            }
            while !self.expected.is_empty() {
                if !self.step().map_err(launch::Failure::into_error)? {
                    return Err(LiveError::Gone { pid });
                }
                if let Some(tid) = self.expected.keys().next().filter(|_| Instant::now() > deadline)
                {
                    let why = format!("its thread {tid} does not stop");
                    return Err(LiveError::Busy { pid, why });
                }
            }
            if !any {
                return Ok(());
            }
        }
    }

    /// Handles requests; false when there will be none any more.
    pub(crate) fn answer_asks(&mut self) -> Result<bool, launch::Failure> {
        loop {
            let Some(asks) = &self.asks else { return Ok(false) };
            match asks.try_recv() {
                Ok(Ask::Stop { pid, patience, answer, go_on }) => {
                    let raise_priority = Boost::begin();
                    let mut deferred = Deferred::new();
                    let stopped = self.stop(pid, patience, &mut deferred)?;
                    if answer.send(stopped).is_ok() {
                        // This is received when the other end is dropped.
                        let _ = go_on.recv();
                    }
                    for (tid, signal, event) in deferred {
                        self.stopped(tid, signal, event);
                    }
                    drop(raise_priority);
                }
                Ok(Ask::Join { pid, answer }) => {
                    let raise_priority = Boost::begin();
                    let joined = self.join(pid);
                    drop(raise_priority);
                    // The requester may have ended.
                    let _ = answer.send(joined);
                }
                Ok(Ask::End) | Err(mpsc::TryRecvError::Disconnected) => {
                    self.asks = None;
                    return Ok(false);
                }
                Err(mpsc::TryRecvError::Empty) => return Ok(true),
            }
        }
    }

    /// Pauses all threads of a process. Those that stopped for reasons of their own stay stopped
    /// until the pause is over, and so does a thread of another process that needs rewritten text,
    /// which takes long to make.
    fn stop(
        &mut self,
        pid: Pid,
        patience: Duration,
        deferred: &mut Deferred,
    ) -> Result<Result<Stopped, Stuck>, launch::Failure> {
        let of_process =
            |tracer: &Self, tid: Tid| tracer.tasks.get(&tid).is_some_and(|t| t.pid == pid);
        let mut missing: HashSet<Tid> =
            self.tasks.iter().filter(|(_, task)| task.pid == pid).map(|(tid, _)| *tid).collect();
        for tid in &missing {
            // The end of a thread is reported below.
            let _ = ptrace::interrupt(*tid);
        }
        let mut stopped: Vec<(Tid, Instant)> = Vec::new();
        let (begun, mut looked, mut rounds) = (Instant::now(), Instant::now(), 0u32);
        while !missing.is_empty() {
            let (now, mut any) = (Instant::now(), false);
            while let Some(report) = ptrace::peek(None, false).or_else(nothing_yet)? {
                any = true;
                let tid = report.tid;
                match report.what {
                    What::Stopped { signal: ptrace::SYSTEM_CALL, event: 0 }
                        if of_process(self, tid) =>
                    {
                        if !self.passes_system_call(report)? {
                            return Ok(Err(Stuck {
                                tid,
                                starved: false,
                                paused_for: begun.elapsed(),
                            }));
                        }
                    }
                    // The signal is delivered, and the thread stops before it acts on it.
                    What::Stopped { signal, event: 0 }
                        if of_process(self, tid) && self.is_of_program(pid, tid, signal) =>
                    {
                        let _ = ptrace::cont(tid, signal);
                    }
                    What::Stopped { signal, event }
                        if of_process(self, tid)
                            || self.wants_rewritten_text(tid, signal, event) =>
                    {
                        // If it was killed since, that comes next.
                        if ptrace::take_stop(tid) {
                            deferred.push((tid, signal, event));
                            if of_process(self, tid) {
                                missing.remove(&tid);
                                stopped.push((tid, looked));
                            }
                        }
                    }
                    What::Stopped { .. } => self.handle(report)?,
                    What::Exited { .. } | What::Killed { .. } => {
                        self.handle(report)?;
                        missing.remove(&tid);
                        stopped.retain(|(other, _)| *other != tid);
                        deferred.retain(|(other, ..)| *other != tid);
                    }
                }
            }
            looked = now;
            if any {
                continue;
            }
            let since = stopped.iter().map(|(_, since)| *since).min();
            // While no thread is stopped, waiting costs the program nothing, but may be in vain.
            let enough = if since.is_some() { patience } else { patience * 8 };
            let paused_for = since.map_or(Duration::ZERO, |since| since.elapsed());
            if since.unwrap_or(begun).elapsed() > enough {
                let tid = missing.into_iter().next().unwrap_or(pid.first_thread());
                let starved = priority::task_state(pid, tid) == Some(b'R');
                return Ok(Err(Stuck { tid, starved, paused_for }));
            }
            rounds += 1;
            priority::pause(rounds);
        }
        if let Some(tid) = sharing_child(pid, stopped.iter().map(|(tid, _)| *tid)) {
            return Ok(Err(Stuck { tid, starved: false, paused_for: begun.elapsed() }));
        }
        Ok(Ok(stopped.into_iter().filter_map(|(tid, since)| Thread::look(tid, since)).collect()))
    }
}

impl Tracer<'_> {
    /// A thread that is about to be paused is on its way into a system call or out of one: it goes on, and
    /// stops before it waits for anything. False if it begins its process's leak check, which nothing may
    /// delay.
    fn passes_system_call(&mut self, report: ptrace::Report) -> Result<bool, launch::Failure> {
        let tid = report.tid;
        if self.begins_leak_check(tid) {
            self.handle(report)?;
            return Ok(false);
        }
        let _ = ptrace::cont(tid, 0);
        Ok(true)
    }

    /// Whether a thread has stopped because it executes a program, or reports at a dlopen hook.
    fn wants_rewritten_text(&mut self, tid: Tid, signal: i32, event: i32) -> bool {
        let Some(pid) = self.tasks.get(&tid).map(|task| task.pid) else { return false };
        match event {
            libc::PTRACE_EVENT_EXEC => true,
            0 => {
                matches!(signal, libc::SIGURG | libc::SIGWINCH)
                    && !self.is_of_program(pid, tid, signal)
            }
            _ => false,
        }
    }
}

/// Whether this very thread traces a thread.
fn traced_by_us(pid: Pid, tid: Tid) -> bool {
    tracer_of(pid, tid) == Some(own_tid())
}

/// Whether a process is followed by a thread of ours.
pub fn is_followed(pid: Pid) -> bool {
    let ours = |tid: Tid| Path::new(&format!("/proc/self/task/{tid}")).exists();
    tracer_of(pid, pid.first_thread()).is_some_and(ours)
}

/// The thread that traces a thread.
fn tracer_of(pid: Pid, tid: Tid) -> Option<Tid> {
    let status = maps::read_proc(&format!("/proc/{pid}/task/{tid}/status")).ok()?;
    Tid::try_from(maps::status_field(&status, "TracerPid:")?).ok()
}

/// A wait that was interrupted, or has no thread left to wait for, reports nothing.
fn nothing_yet(error: io::Error) -> Result<Option<ptrace::Report>, launch::Failure> {
    match error.raw_os_error() {
        Some(libc::EINTR | libc::ECHILD) => Ok(None),
        _ => {
            let action = "wait for a thread";
            Err(launch::Failure::Error(LiveError::Os { action, source: error }))
        }
    }
}
