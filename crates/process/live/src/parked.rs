//! Threads that need not be stopped for a pause: they wait in system calls, and stop at the end of these.
//!
//! To stop a thread that sleeps it is woken, and needs a processor: a thousand take some tens of milliseconds, and the
//! first of them waits for the last. So where many sleep, each is *parked* before the pause begins, a few at a time, while
//! all others run: it is stopped and sent into its call again, at whose end the kernel stops it (`PTRACE_SYSCALL`).
//! Until then it runs no instruction of the program: what its registers and its stack hold stays, and is read ahead. One
//! that wakes before the pause begins goes on at once; one that wakes in the pause waits for its end like the others.
//!
//! When the tracer ends, however that happens, parked threads are untraced and wait on. None of them is woken for that.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use fettle_types::Tid;

use crate::births::sharing_child;
use crate::error::LiveError;
use crate::priority;
use crate::process::Process;
use crate::ptrace;
use crate::restart::{Stop, take_up_next};
use crate::stacks::Stacks;
use crate::thread::{Thread, USER_CS};

/// What is done to each thread while it is stopped to be parked, and all others run.
pub(crate) type Each<'e> = dyn FnMut(&Process, &mut Thread) -> Result<(), LiveError> + Send + 'e;

/// Nothing.
pub(crate) fn nothing(_: &Process, _: &mut Thread) -> Result<(), LiveError> {
    Ok(())
}

/// So many at most are between their stop and their call.
const AT_ONCE: usize = 8;
/// So long is waited for these, and those that have woken meanwhile wait as long.
const PATIENCE: Duration = Duration::from_millis(4);
/// A thread that is interrupted may make a few calls before it waits again.
const CALLS: u32 = 4;
/// So long is waited for a parked thread that has to stop after all.
const HALT: Duration = Duration::from_millis(200);

/// Parked threads of a process.
#[derive(Debug)]
pub(crate) struct Parking {
    /// Those that have not been seen to wake.
    threads: HashMap<Tid, Thread>,
    /// Those that are in a group stop (SIGSTOP), and stay so.
    stopped: Vec<Tid>,
    /// A child that shares the memory of a parked thread.
    sharing: Option<Tid>,
    /// The kernel does not say at which end of a call a thread is: none can be parked.
    in_vain: bool,
    /// When it was last looked which of them have woken.
    looked: Instant,
    /// The longest time that one was stopped to be parked, or before it went on when it had woken.
    held: Duration,
}

/// How far a thread is on its way to be parked.
enum Step {
    /// As before.
    Same,
    /// It goes on, in the so many-th call.
    On(u32),
    Parked(Box<Thread>),
    /// It runs, and is not to be parked.
    Left,
    /// It is in a group stop.
    Stopped,
    Ended,
}

impl Parking {
    /// None yet.
    pub(crate) fn new() -> Parking {
        let (threads, stopped, looked) = (HashMap::new(), Vec::new(), Instant::now());
        let (sharing, in_vain, held) = (None, false, Duration::ZERO);
        Parking { threads, stopped, sharing, in_vain, looked, held }
    }

    /// The longest time that a thread was stopped to be parked, or before it went on when it had woken.
    pub(crate) fn held(&self) -> Duration {
        self.held
    }

    /// Whether a thread is parked.
    pub(crate) fn has(&self, tid: Tid) -> bool {
        self.threads.contains_key(&tid)
    }

    /// Whether none is.
    pub(crate) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Takes a thread out that has stopped or ended.
    pub(crate) fn remove(&mut self, tid: Tid) {
        self.threads.remove(&tid);
    }

    /// All parked threads, none of which ran after `since`.
    pub(crate) fn into_threads(self, since: Instant) -> impl Iterator<Item = Thread> {
        self.threads.into_values().map(move |thread| Thread { since, ..thread })
    }

    /// A child that runs in the memory of a parked thread, and is not stopped with it.
    pub(crate) fn sharing_child(&self) -> Option<Tid> {
        self.sharing
    }

    /// Those found in a group stop, once.
    pub(crate) fn take_stopped(&mut self) -> Vec<Tid> {
        std::mem::take(&mut self.stopped)
    }

    /// Parks sleeping threads, which are traced; calls `each` for every one. Returns those that run.
    pub(crate) fn park(
        &mut self,
        process: &Process,
        sleeping: &[Tid],
        each: &mut Each<'_>,
        stacks: &mut Stacks<'_>,
    ) -> Result<Vec<Tid>, LiveError> {
        // The first one is stopped in any case: memory may have to be written through it.
        let may_wait = |tid: &Tid| !tid.is_first_of(process.pid());
        let mut left: Vec<Tid> = sleeping.iter().copied().filter(|tid| !may_wait(tid)).collect();
        self.looked = Instant::now();
        for some in sleeping.chunks(AT_ONCE) {
            let some = some.iter().copied().filter(may_wait);
            if self.in_vain {
                left.extend(some);
                continue;
            }
            let asked = some.filter(|tid| ptrace::interrupt(*tid).is_ok());
            let mut on_the_way: Vec<(Tid, u32)> = asked.map(|tid| (tid, 0)).collect();
            let (begun, mut rounds, mut parked) = (Instant::now(), 0, Vec::new());
            while !on_the_way.is_empty() && begun.elapsed() < PATIENCE {
                let mut any = false;
                for (tid, calls) in std::mem::take(&mut on_the_way) {
                    let step = self.step(process, (tid, calls), each, stacks)?;
                    any |= !matches!(step, Step::Same);
                    if matches!(step, Step::Parked(_) | Step::Left) {
                        self.held = self.held.max(begun.elapsed());
                    }
                    match step {
                        Step::Same => on_the_way.push((tid, calls)),
                        Step::On(calls) => on_the_way.push((tid, calls)),
                        Step::Parked(thread) => {
                            parked.push(tid);
                            self.threads.insert(tid, *thread);
                        }
                        Step::Left => left.push(tid),
                        Step::Stopped => self.stopped.push(tid),
                        Step::Ended => {}
                    }
                }
                if !any {
                    rounds += 1;
                    priority::pause(rounds);
                }
            }
            left.extend(on_the_way.into_iter().map(|(tid, _)| tid));
            // A parked thread makes no more.
            self.sharing = self.sharing.or_else(|| sharing_child(process.pid(), parked));
            left.extend(self.woken()?);
        }
        Ok(left)
    }

    /// What has become of one that is on its way.
    fn step(
        &mut self,
        process: &Process,
        (tid, calls): (Tid, u32),
        each: &mut Each<'_>,
        stacks: &mut Stacks<'_>,
    ) -> Result<Step, LiveError> {
        let Some((_, stop)) = take_up_next(Some(tid)).map_err(failed)? else {
            return Ok(Step::Same);
        };
        let signal = match stop {
            Stop::Ended => return Ok(Step::Ended),
            Stop::Group => return Ok(Step::Stopped),
            Stop::AtCall => return self.at_call(process, (tid, calls), each, stacks),
            Stop::Asked => 0,
            // It is delivered; the call that it interrupts ends or is restarted.
            Stop::Signal(signal) => signal,
        };
        let _ = ptrace::cont_to_system_call_with(tid, signal);
        Ok(Step::On(calls))
    }

    /// A thread is at the beginning or at the end of a call.
    fn at_call(
        &mut self,
        process: &Process,
        (tid, calls): (Tid, u32),
        each: &mut Each<'_>,
        stacks: &mut Stacks<'_>,
    ) -> Result<Step, LiveError> {
        let begins = ptrace::is_at_beginning(tid);
        self.in_vain |= begins.is_none();
        if begins != Some(true) {
            if begins.is_none() || calls >= CALLS {
                let _ = ptrace::cont(tid, 0);
                return Ok(Step::Left);
            }
            let _ = ptrace::cont_to_system_call(tid);
            return Ok(Step::On(calls + 1));
        }
        // One that was killed is reported as such.
        let Some(mut thread) = Thread::look(tid, Instant::now()) else {
            return Ok(Step::On(calls));
        };
        if !is_wait(thread.registers.orig_rax as i64) || thread.registers.cs != USER_CS {
            let _ = ptrace::cont_to_system_call(tid);
            return Ok(Step::On(calls));
        }
        each(process, &mut thread)?;
        if ptrace::cont_to_system_call(tid).is_err() {
            return Ok(Step::On(calls));
        }
        // From here on it is in the kernel.
        thread.is_parked = true;
        thread.words = stacks.addresses(thread.registers.rsp);
        Ok(Step::Parked(Box::new(thread)))
    }

    /// Lets parked threads that have woken go on, and returns them.
    pub(crate) fn woken(&mut self) -> Result<Vec<Tid>, LiveError> {
        let mut woken = Vec::new();
        while let Some((tid, stop)) = take_up_next(None).map_err(failed)? {
            let was_parked = self.threads.remove(&tid).is_some();
            let signal = match stop {
                Stop::Ended => continue,
                Stop::Group => {
                    self.stopped.push(tid);
                    continue;
                }
                Stop::Asked | Stop::AtCall => 0,
                Stop::Signal(signal) => signal,
            };
            let _ = ptrace::cont(tid, signal);
            if was_parked {
                self.held = self.held.max(self.looked.elapsed());
                woken.push(tid);
            }
        }
        self.looked = Instant::now();
        Ok(woken)
    }
}

fn failed(source: io::Error) -> LiveError {
    LiveError::Os { action: "wait for a thread", source }
}

/// Stops a parked thread, so that its registers can be written; one that is stopped stays so.
///
/// # Errors
///
/// When it was killed, or does not stop.
pub(crate) fn halt(thread: &mut Thread) -> io::Result<()> {
    if !thread.is_parked {
        return Ok(());
    }
    let tid = thread.tid;
    ptrace::interrupt(tid)?;
    let (begun, mut rounds) = (Instant::now(), 0);
    while begun.elapsed() < HALT {
        match take_up_next(Some(tid))?.map(|(_, stop)| stop) {
            None => {
                rounds += 1;
                priority::pause(rounds);
            }
            Some(Stop::Ended) => break,
            Some(Stop::Asked | Stop::Group | Stop::AtCall) => {
                thread.registers = ptrace::registers(tid)?;
                thread.is_parked = false;
                return Ok(());
            }
            // It comes before the end of the call is reported.
            Some(Stop::Signal(signal)) => ptrace::cont_to_system_call_with(tid, signal)?,
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Whether a system call with this number waits, as a rule, and makes no thread or process.
fn is_wait(number: i64) -> bool {
    /// The numbers of `futex_waitv`, `futex_wait` and `io_pgetevents`.
    const OTHERS: [i64; 3] = [449, 455, 333];
    const WAITS: [i64; 33] = [
        libc::SYS_futex,
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_select,
        libc::SYS_pselect6,
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_rt_sigsuspend,
        libc::SYS_pause,
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_msgrcv,
        libc::SYS_io_getevents,
        libc::SYS_io_uring_enter,
        libc::SYS_flock,
    ];
    WAITS.contains(&number) || OTHERS.contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_make_threads_or_programs_are_no_waits() {
        for number in [
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_fork,
            libc::SYS_vfork,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_exit,
            libc::SYS_rt_sigreturn,
        ] {
            assert!(!is_wait(number), "{number}");
        }
        assert!(is_wait(libc::SYS_futex) && is_wait(libc::SYS_restart_syscall));
    }
}
