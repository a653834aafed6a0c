//! All threads of a running process stopped at once, for a moment.
//!
//! Each moment has a thread of ours to itself, which traces. If it cannot go through with it, or
//! Fettle is killed, that thread ends, and the kernel lets every thread of the process run on as
//! if nothing had been: a tracer that ends gives back all that it traced.
//!
//! Threads in a system call leave it to stop, and the kernel has them make it again when they go
//! on, with what is left of its time. Only a few calls give up with EINTR instead; those of them
//! that wait without an end are made to be taken up as well.

use std::io;
use std::time::{Duration, Instant};

use crate::error::LiveError;
use crate::maps;
use crate::process::{self, Process};
use crate::ptrace::{self, Registers, What};

/// A process whose threads all stand still.
#[derive(Debug)]
pub struct Halted<'a> {
    pub(crate) process: &'a Process,
    pub(crate) threads: Vec<Thread>,
}

/// A thread that stands still.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tid: i32,
    pub(crate) registers: Registers,
}

/// Why a moment did not come about.
enum Failure {
    Error(LiveError),
    /// This thread does not stop.
    Stuck(i32),
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Failure {
        Failure::Error(error)
    }
}

/// How long a thread may take to stop, at first and at most. Those that stand still meanwhile
/// wait with it, so it is tried again rather than waited for.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(20));
/// So much longer a thread may take that waits for a processor.
const STARVED: Duration = Duration::from_millis(500);
/// So long it is tried. A thread that waits for its child to exec (vfork) cannot be stopped.
const TRIED: Duration = Duration::from_secs(5);

/// The code segment of 64-bit programs.
const USER_CS: u64 = 0x33;

impl Process {
    /// Stops all threads, does `work`, and lets them run on. Also gives how long they stood.
    ///
    /// # Errors
    ///
    /// When they cannot be stopped: the process has ended, runs another program, is not ours, or
    /// a thread waits for what cannot be interrupted. Else what `work` fails with.
    pub fn while_halted<T: Send>(
        &self,
        work: impl FnOnce(&mut Halted<'_>) -> Result<T, LiveError> + Send,
    ) -> Result<(T, Duration), LiveError> {
        let mut work = Some(work);
        let deadline = Instant::now() + TRIED;
        let mut patience = PATIENCE.0;
        let mut stuck = 0;
        while stuck == 0 || Instant::now() < deadline {
            let work = &mut work;
            // A thread of its own: when it ends, nothing stays stopped.
            let done = std::thread::scope(|scope| {
                let moment = scope.spawn(move || {
                    hurry();
                    let begun = Instant::now();
                    let mut halted = Halted::halt(self, patience)?;
                    let work = work.take().expect("done once");
                    let result = work(&mut halted);
                    halted.release();
                    Ok((result?, begun.elapsed()))
                });
                moment.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            match done {
                Ok(done) => return Ok(done),
                Err(Failure::Error(error)) => return Err(error),
                Err(Failure::Stuck(tid)) => stuck = tid,
            }
            std::thread::sleep(patience * 2);
            patience = (patience * 2).min(PATIENCE.1);
        }
        let why =
            format!("its thread {stuck} does not stop (it waits for a device, or for a child)");
        Err(LiveError::Busy { pid: self.pid(), why })
    }
}

impl<'a> Halted<'a> {
    fn halt(process: &'a Process, patience: Duration) -> Result<Halted<'a>, Failure> {
        let deadline = Instant::now() + patience;
        let mut known: Vec<i32> = Vec::new();
        let mut running: Vec<i32> = Vec::new();
        loop {
            let fresh: Vec<i32> =
                tasks(process.pid())?.into_iter().filter(|tid| !known.contains(tid)).collect();
            // Only threads that run make others.
            if fresh.is_empty() && running.is_empty() {
                break;
            }
            for tid in fresh {
                known.push(tid);
                if seize(process.pid(), tid)? {
                    running.push(tid);
                }
            }
            let stopped = await_stops(process.pid(), &mut running, &mut known, deadline);
            if let Err(Failure::Stuck(tid)) = stopped {
                let_go(process.pid(), &known, running);
                return Err(Failure::Stuck(tid));
            }
            stopped?;
        }
        let pid = process.pid();
        let mut threads = Vec::with_capacity(known.len());
        for tid in known {
            // A first thread that has ended stays listed, and was not seized.
            let Ok(registers) = ptrace::registers(tid) else { continue };
            threads.push(Thread { tid, registers });
        }
        if threads.is_empty() || !process.is_same() {
            return Err(LiveError::Gone { pid }.into());
        }
        if threads.iter().any(|thread| thread.registers.cs != USER_CS) {
            let why = "one of its threads runs 32-bit code".to_owned();
            return Err(LiveError::Unattachable { pid, why }.into());
        }
        if let Some(child) = sharing_child(&threads) {
            return Err(Failure::Stuck(child));
        }
        Ok(Halted { process, threads })
    }

    fn release(self) {
        for thread in &self.threads {
            // ESRCH: it was killed since.
            let _ = ptrace::detach(thread.tid, 0);
        }
    }

    /// The process.
    pub fn process(&self) -> &Process {
        self.process
    }

    /// How many threads stand still.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The gs bases of all threads.
    pub fn gs_bases(&self) -> impl Iterator<Item = u64> {
        self.threads.iter().map(|thread| thread.registers.gs_base)
    }

    /// Gives every thread whose gs base is `from` another one. Threads that they make have theirs.
    ///
    /// # Errors
    ///
    /// When a thread was killed meanwhile.
    pub fn set_gs_base(&mut self, from: u64, to: u64) -> Result<(), LiveError> {
        for thread in self.threads.iter_mut().filter(|t| t.registers.gs_base == from) {
            ptrace::set_gs_base(thread.tid, to).map_err(|source| LiveError::Ptrace {
                action: "set the gs base",
                pid: thread.tid,
                source,
            })?;
            thread.registers.gs_base = to;
        }
        Ok(())
    }
}

/// The threads of a process.
fn tasks(pid: i32) -> Result<Vec<i32>, LiveError> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/task"));
    let folder = folder.map_err(|_| LiveError::NoProcess { pid })?;
    Ok(folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Begins to trace a thread and asks it to stop; false if it has ended.
fn seize(pid: i32, tid: i32) -> Result<bool, LiveError> {
    let refused = match ptrace::seize(tid, ptrace::O_SYSGOOD) {
        // ESRCH: it has been killed since, which a wait will tell.
        Ok(()) => return Ok(ptrace::interrupt(tid).is_ok()),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
        Err(error) => error,
    };
    let status = maps::read_proc(&format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    if process::state(&status).is_none_or(|state| matches!(state, b'Z' | b'X')) {
        return Ok(false);
    }
    match maps::status_field(&status, "TracerPid:") {
        None | Some(0) => Err(LiveError::NotPermitted { pid, source: refused }),
        Some(tracer) => {
            let why = format!("process {tracer} traces it already");
            Err(LiveError::Unattachable { pid, why })
        }
    }
}

/// Waits until all of `running` stand still; those that end instead are taken off both lists.
fn await_stops(
    pid: i32,
    running: &mut Vec<i32>,
    known: &mut Vec<i32>,
    deadline: Instant,
) -> Result<(), Failure> {
    let mut rounds = 0u32;
    while !running.is_empty() {
        let before = running.len();
        let mut i = 0;
        while i < running.len() {
            match settle(running[i])? {
                Settled::Running => i += 1,
                Settled::Stopped => {
                    running.swap_remove(i);
                }
                Settled::Ended => {
                    let tid = running.swap_remove(i);
                    known.retain(|other| *other != tid);
                }
            }
        }
        if running.len() < before {
            continue;
        }
        let late = Instant::now().saturating_duration_since(deadline);
        if !late.is_zero() {
            // Those that only wait for a processor will have one.
            let stuck = |tid: &&i32| late > STARVED || state_of(pid, **tid) != Some(b'R');
            if let Some(tid) = running.iter().find(stuck) {
                return Err(Failure::Stuck(*tid));
            }
        }
        // They need the processor that we are on, perhaps.
        rounds += 1;
        match rounds {
            0..50 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
    Ok(())
}

/// Lets threads go that stand still, and waits for those that are about to: what they were at in
/// the kernel is to be taken up, too. Only threads that the kernel does not wake are left; the end
/// of this thread lets them go.
fn let_go(pid: i32, known: &[i32], mut running: Vec<i32>) {
    for tid in known.iter().filter(|tid| !running.contains(tid)) {
        let _ = ptrace::detach(*tid, 0);
    }
    let deadline = Instant::now() + TRIED;
    let sleeps_fast = |tid: &i32| state_of(pid, *tid) == Some(b'D');
    while !running.is_empty() && Instant::now() < deadline {
        running.retain(|tid| match settle(*tid) {
            Ok(Settled::Running) => true,
            Ok(Settled::Stopped) => {
                let _ = ptrace::detach(*tid, 0);
                false
            }
            Ok(Settled::Ended) | Err(_) => false,
        });
        if running.iter().all(sleeps_fast) {
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// The letter of a thread's state.
fn state_of(pid: i32, tid: i32) -> Option<u8> {
    process::state(&maps::read_proc(&format!("/proc/{pid}/task/{tid}/status")).ok()?)
}

enum Settled {
    Running,
    Stopped,
    Ended,
}

/// What has become of a thread that was asked to stop.
fn settle(tid: i32) -> Result<Settled, LiveError> {
    let report = match ptrace::peek(tid, false) {
        Ok(Some(report)) => report,
        Ok(None) => return Ok(Settled::Running),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Settled::Running),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(Settled::Ended),
        Err(source) => return Err(LiveError::Os { action: "wait for a thread", source }),
    };
    let _ = ptrace::take(tid);
    match report.what {
        What::Stopped { event: ptrace::EVENT_STOP, .. } => {
            take_up_call(tid);
            Ok(Settled::Stopped)
        }
        // A signal came first. The thread takes it, and stops before it does anything about it.
        What::Stopped { signal, .. } => {
            let _ = ptrace::cont(tid, signal);
            Ok(Settled::Running)
        }
        What::Exited { .. } | What::Killed { .. } => Ok(Settled::Ended),
    }
}

/// A child that runs in the memory of these threads, and is not stopped with them.
fn sharing_child(threads: &[Thread]) -> Option<i32> {
    let parent = threads.first()?.tid;
    threads.iter().find_map(|thread| {
        let list = format!("/proc/{0}/task/{0}/children", thread.tid);
        let list = maps::read_proc(&list).unwrap_or_default();
        let mut children = std::str::from_utf8(&list).unwrap_or("").split_ascii_whitespace();
        children.find_map(|child| {
            let child = child.parse().ok()?;
            (ptrace::same_memory(parent, child) == Some(true)).then_some(child)
        })
    })
}

/// What the kernel has a system call return that it will take up again, unless a signal's handler
/// runs first; then it is EINTR.
const ERESTARTNOHAND: i64 = -514;
const EINTR: i64 = -4;

impl Thread {
    /// The number of the system call that the thread was in, if it was.
    pub(crate) fn system_call(&self) -> Option<u64> {
        let number = self.registers.orig_rax;
        ((number as i64) >= 0).then_some(number)
    }
}

/// Calls that the kernel does not take up by itself, although they wait without an end and have
/// done nothing yet, are made such that it does. At once, whatever becomes of the others.
fn take_up_call(tid: i32) {
    // If it was killed meanwhile it needs nothing any more.
    let Ok(mut registers) = ptrace::registers(tid) else { return };
    let endless = match registers.orig_rax as i64 {
        // A timeout of -1, which is an int.
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => registers.r10 as i32 == -1,
        // No timeout.
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => registers.r10 == 0,
        libc::SYS_rt_sigtimedwait => registers.rdx == 0,
        libc::SYS_semop => true,
        _ => false,
    };
    if endless && registers.rax as i64 == EINTR {
        registers.rax = ERESTARTNOHAND as u64;
        let _ = ptrace::set_registers(tid, &registers);
    }
}

/// Lets the calling thread run before others, where that is allowed: a process waits for it.
fn hurry() {
    // SAFETY: takes numbers only; 0 is the calling thread.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}
