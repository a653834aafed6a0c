//! The loop: waits for reports of traced threads, passes them to the session, and resumes the
//! threads.
//!
//! A new thread or process shows up twice, in either order: its parent stops with an event that
//! carries the new thread's number, and the new thread stops before its first instruction. The
//! session is called while the parent is stopped, so that it sees the parent as it was at the
//! clone; the new thread runs when both stops have been seen. Reports of a thread whose parent's
//! event is still to come are kept as *early*; new threads whose parent's event came first are
//! *expected*.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use fettle_types::{Pid, Tid};

use crate::dlopen_hook::{Asked, DlopenHook, HookStop, Request};
use crate::error::LiveError;
use crate::exit_status::ExitStatus;
use crate::follower::Ask;
use crate::inject::Injection;
use crate::launch::{self, Failure, Launch, Started};
use crate::maps::{self, LiveAddr};
use crate::memory::Memory;
use crate::priority::Boost;
use crate::privileges;
use crate::ptrace::{self, Report, What};
use crate::restart;
use crate::signals::{self, JobControl, Ticker};
use crate::stop::ExecStop;

/// How a thread was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Birth {
    /// Another thread of the same process.
    Thread,
    /// A process with a copy of its parent's memory.
    Fork,
    /// A process that shares its parent's memory until it execs or ends.
    Vfork,
}

/// Decides what is done with the processes that [`run`] follows, and gets their events.
///
/// All methods are called on the thread that called [`run`], while the thread concerned is stopped
/// or gone; others run meanwhile. The stopped thread waits as long as a method takes.
pub trait Session {
    /// A process has exec'ed. The returned injection is applied; `None` leaves it unmodified. Its
    /// other threads have ended, and its old memory is gone.
    fn exec(&mut self, stop: &ExecStop<'_>) -> Option<Injection>;

    /// Whether [`Session::exec`] can answer for this process at once. Called before that, and again
    /// at intervals while it cannot: the process stays stopped, all others run.
    fn is_prepared(&mut self, _stop: &ExecStop<'_>) -> bool {
        true
    }

    /// What became of an injection. On an error everything was reverted and the process runs
    /// uninstrumented. Called with an error, and without [`Session::exec`] before it, when the
    /// process cannot be looked at: its file may be executed but not read, say.
    fn injected(&mut self, pid: Pid, result: Result<(), LiveError>);

    /// A process that ran before is followed from now on, for [`attach`](crate::attach): these are
    /// its threads, which are reported next, each as created by the first one. The answer is
    /// whether it will run a leak check when it ends, as [`Session::looks_for_leaks`] has it.
    fn joined(&mut self, _pid: Pid, _parent: Option<Pid>, _threads: &[Tid]) -> bool {
        false
    }

    /// A thread or process was created and is before its first instruction, or will be; its parent
    /// is stopped in the event, if it still lives, and is `None` if it has died and none is left
    /// that we see. An answer is the new thread's gs base; otherwise it has its parent's. The
    /// launched process itself is not reported.
    fn born(&mut self, parent_tid: Option<Tid>, pid: Pid, tid: Tid, birth: Birth) -> Option<u64>;

    /// A thread is ending, perhaps a process's first thread; `/proc` still shows it, for the last
    /// time.
    fn thread_ending(&mut self, _pid: Pid, _tid: Tid) {}

    /// A thread has ended, or another thread's exec has ended it. A process's first thread ends
    /// with its process and is not reported here.
    fn thread_exit(&mut self, pid: Pid, tid: Tid);

    /// A process has ended, after all its threads. `cpu` is the CPU time, in user and kernel mode,
    /// of all threads that it ever had, without its children's.
    fn process_exit(&mut self, pid: Pid, status: ExitStatus, cpu: Duration);

    /// Called about every [`RunOptions::period`], and once at the end.
    fn tick(&mut self);

    /// A process has executed a file that would give it privileges, which the kernel has denied it
    /// because an ordinary user traces it. It is detached, and executes that file again, as if it
    /// had never been traced. Nothing more is reported of it, nor of what it starts; but how it
    /// ends is, if it is the launched process.
    fn setuid_exec(&mut self, _pid: Pid, _path: &Path) {}

    /// Whether a process that has just exec'ed will run a leak check when it ends, which it cannot
    /// while it is traced: it is detached then, thread by thread ([`Session::leaving`]), and is as
    /// one that was detached for its [privileges](Session::setuid_exec) from then on.
    fn looks_for_leaks(&mut self, _stop: &ExecStop<'_>) -> bool {
        false
    }

    /// A living thread is stopped, and is about to be detached for good, before its process runs
    /// its leak check. An answer is its gs base from now on.
    fn leaving(&mut self, _pid: Pid, _tid: Tid) -> Option<u64> {
        None
    }

    /// All threads of a process have been detached, before it runs its leak check.
    fn left(&mut self, _pid: Pid) {}

    /// The dlopen hook, if the process has one, whose reporting threads have their PC at `at`.
    fn dlopen_hook(&mut self, _pid: Pid, _at: LiveAddr) -> Option<DlopenHook> {
        None
    }

    /// Whether [`Session::library_event`] can answer this thread at once. Called before that, and again
    /// at intervals while it cannot: the thread stays stopped, all others run.
    fn can_answer(&mut self, _stop: &HookStop) -> bool {
        true
    }

    /// A thread has reported at its process's dlopen hook, or has done what it was asked to do there:
    /// then `done` says what became of each request. It goes on when there are no more requests.
    fn library_event(
        &mut self,
        _stop: &HookStop,
        _done: Option<Vec<Result<(), LiveError>>>,
    ) -> Vec<Request> {
        Vec::new()
    }

    /// A thread is stopped, and is about to be given a signal.
    fn signalled(&mut self, _tid: Tid) {}

    /// A thread has faulted: memory is not mapped, or not accessible to it. An answer is where it
    /// resumes instead, and its program does not notice; otherwise it gets its signal.
    fn fault(&mut self, _stop: &FaultStop) -> Option<LiveAddr> {
        None
    }

    /// The launched process has ended, and these descendants of it live on: they are followed to
    /// their ends ([`WaitFor::All`]), or detached.
    fn outlived(&mut self, _living: &[Pid]) {}

    /// From now on living threads are detached, one by one; dlopen hooks are not answered any more.
    fn detaching(&mut self) {}

    /// A living thread is stopped, and is about to be detached. Threads that it creates from then
    /// on have its gs base.
    fn letting_go(&mut self, _pid: Pid, _tid: Tid) {}

    /// A living process is no longer followed: the run ends before it. What was injected stays, and
    /// runs on; new threads of the process are not reported any more, and have their parents' gs
    /// base.
    fn detached(&mut self, _pid: Pid) {}
}

/// A thread that has faulted at an instruction.
#[derive(Clone, Copy, Debug)]
pub struct FaultStop {
    /// Its process.
    pub pid: Pid,
    /// The instruction.
    pub instruction: LiveAddr,
    /// The thread's gs base.
    pub gs_base: LiveAddr,
}

impl FaultStop {
    /// Memory of the process, if all of it is there.
    pub fn read(&self, at: LiveAddr, len: usize) -> Option<Vec<u8>> {
        Memory::open(self.pid).ok()?.read(at, len).ok()
    }
}

/// How long a run lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Until the launched process ends. Descendants that outlive it are detached.
    FirstProcess,
    /// Until all descendants have ended, daemons too.
    All,
}

/// Settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions<'a> {
    /// How often [`Session::tick`] is called.
    pub period: Duration,
    /// When set, the run ends with the launched process, whatever `wait_for` says. The flag that
    /// [`catch_signals`](crate::catch_signals) returns, say.
    pub stop: &'a AtomicBool,
    /// When the run ends.
    pub wait_for: WaitFor,
}

/// Runs a program and follows it and its descendants. Returns how the program itself ended.
///
/// The calling thread traces, so all children of this very thread are taken for the program's
/// processes: it must have no others. Children of other threads are ignored.
pub fn run(
    launch: &Launch,
    session: &mut dyn Session,
    options: RunOptions<'_>,
) -> Result<ExitStatus, LiveError> {
    match Tracer::start(launch, &mut *session, options)?.run() {
        Err(Failure::Script(path)) => {
            let shell = launch.through_shell(&path);
            Tracer::start(&shell, session, options)?.run().map_err(Failure::into_error)
        }
        Err(Failure::Error(error)) => Err(error),
        Ok(status) => Ok(status),
    }
}

/// A thread that runs, or is stopped for its program's own reasons.
pub(crate) struct Task {
    pub(crate) pid: Pid,
    /// A wait of it that was restarted after a signal.
    renewed: Option<restart::Renewed>,
    /// It stops at each system call.
    pub(crate) stops_at_calls: bool,
}

impl Task {
    fn of(pid: Pid) -> Task {
        Task { pid, renewed: None, stops_at_calls: false }
    }
}

/// Where a thread is held until the session can answer for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    /// Its process has executed a program, and has nothing injected yet.
    Exec,
    /// At the dlopen hook, about to be given this signal.
    Hook {
        /// The signal.
        signal: i32,
    },
}

/// Where a thread comes from that has yet to show up.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    /// The thread that created it; `None` if that has died, and `/proc` shows none in its place.
    pub(crate) parent: Option<Tid>,
    /// The process that it belongs to.
    pub(crate) pid: Pid,
    pub(crate) birth: Birth,
}

/// A report of a thread whose creation has not been reported.
struct Early {
    since: Instant,
    what: What,
    cpu: Duration,
}

pub(crate) struct Tracer<'a> {
    /// `None` if the first process ran already: it is not our child, so that it gets no signals
    /// from us, and runs on in the end.
    pub(crate) launch: Option<&'a Launch>,
    pub(crate) session: &'a mut dyn Session,
    options: RunOptions<'a>,
    /// When [`Session::tick`] is called next.
    next_tick: Instant,
    job_control: JobControl,
    _ticker: Ticker,
    pub(crate) tasks: HashMap<Tid, Task>,
    early: HashMap<Tid, Early>,
    /// New threads that were found without their parents' event, which may still come.
    adopted: HashSet<Tid>,
    /// The launched process was detached for good. It still is our child, whose end the kernel
    /// reports.
    first_untraced: bool,
    /// With the gs base that each is to have.
    pub(crate) expected: HashMap<Tid, Option<u64>>,
    /// Threads that stay stopped until the session can answer.
    pub(crate) held: HashMap<Tid, Held>,
    /// When the session is asked again.
    pub(crate) ask_again: Instant,
    /// Requests to threads at their process's dlopen hook.
    pub(crate) asked: HashMap<Tid, Asked>,
    /// Threads that are about to create the tracer of their process's leak check, by process. Each
    /// waits at that until all others have been detached.
    pub(crate) leaving: HashMap<Pid, Tid>,
    /// The launched process, or the one that ran already.
    first: Pid,
    /// Until the first exec: the pipe on which its failure would be reported.
    started: Option<Started>,
    status: Option<ExitStatus>,
    /// When the first process ended.
    ended_at: Option<Instant>,
    /// Whether the session knows which processes outlive the launched one.
    outlived: bool,
    /// When set, every thread that stops is detached. The time is when to give up waiting for them.
    pub(crate) detaching: Option<Instant>,
    /// Requests for the process that ran already; when the requesters are gone, all is detached.
    pub(crate) asks: Option<Receiver<Ask>>,
    /// A higher scheduling priority while threads of a running process are attached or detached, as
    /// they are stopped meanwhile.
    pub(crate) raise_priority: Option<Boost>,
}

pub(crate) const TRACE: i32 = libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE;

/// The event of a new thread's parent is lost if the parent is killed. After this time we look in
/// `/proc` where the thread came from.
const EARLY_PATIENCE: Duration = Duration::from_millis(50);
/// An ended thread has no entry there any more. A parent that gets no processor may report it late.
const LATE: Duration = Duration::from_secs(10);
/// What reads from the launched process, as `>(tee log)` in bash, ends right after it, although no
/// process waits for that: so long it is followed all the same.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Threads that sleep in the kernel and cannot be stopped are not waited for any longer. They are
/// detached when this thread or process ends.
const DETACH_PATIENCE: Duration = Duration::from_secs(2);
/// How often flags are checked, at least.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

impl<'a> Tracer<'a> {
    fn start(
        launch: &'a Launch,
        session: &'a mut dyn Session,
        options: RunOptions<'a>,
    ) -> Result<Tracer<'a>, LiveError> {
        let spawned = launch::spawn(launch)?;
        let pid = spawned.pid;
        let tid = pid.first_thread();
        if let Err(source) = ptrace::seize(tid, TRACE) {
            // Its pipe is closed without a message, and it ends.
            drop(spawned);
            let _ = ptrace::peek(Some(tid), true).and_then(|_| ptrace::take_end(tid));
            return Err(LiveError::NotPermitted { pid, source });
        }
        let mut tracer = Tracer::new(pid, session, options)?;
        tracer.tasks.insert(tid, Task::of(pid));
        (tracer.launch, tracer.started) = (Some(launch), Some(spawned.go()?));
        Ok(tracer)
    }

    /// One that traces nothing yet.
    pub(crate) fn new(
        first: Pid,
        session: &'a mut dyn Session,
        options: RunOptions<'a>,
    ) -> Result<Tracer<'a>, LiveError> {
        let failed = |action| move |source| LiveError::Os { action, source };
        let period = options.period.clamp(Duration::from_millis(1), LONGEST_WAIT);
        Ok(Tracer {
            launch: None,
            session,
            options,
            next_tick: Instant::now() + options.period,
            job_control: JobControl::new().map_err(failed("handle the terminal's signals"))?,
            _ticker: Ticker::new(period).map_err(failed("set a timer"))?,
            tasks: HashMap::new(),
            early: HashMap::new(),
            adopted: HashSet::new(),
            first_untraced: false,
            expected: HashMap::new(),
            held: HashMap::new(),
            ask_again: Instant::now(),
            asked: HashMap::new(),
            leaving: HashMap::new(),
            first,
            started: None,
            status: None,
            ended_at: None,
            outlived: false,
            detaching: None,
            asks: None,
            raise_priority: None,
        })
    }

    fn run(mut self) -> Result<ExitStatus, Failure> {
        self.follow()?;
        self.status.ok_or(Failure::Error(LiveError::Gone { pid: self.first }))
    }

    /// Follows until all is over. Returns how the first process ended, if it did.
    pub(crate) fn follow_running(
        &mut self,
        asks: Receiver<Ask>,
    ) -> Result<Option<ExitStatus>, LiveError> {
        self.asks = Some(asks);
        let followed = self.follow();
        self.asks = None;
        followed.map_err(Failure::into_error)?;
        Ok(self.status)
    }

    /// Handles one report, or waits for one; false when no thread is left that could report.
    pub(crate) fn step(&mut self) -> Result<bool, Failure> {
        match ptrace::peek(None, true) {
            Ok(Some(report)) => self.handle(report)?,
            Ok(None) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(false),
            Err(source) => {
                let action = "wait for the program";
                return Err(Failure::Error(LiveError::Os { action, source }));
            }
        }
        let now = Instant::now();
        if now >= self.next_tick {
            self.next_tick = now + self.options.period;
            self.session.tick();
        }
        self.go_on_with_held(now);
        Ok(true)
    }

    fn follow(&mut self) -> Result<(), Failure> {
        loop {
            if !self.step()? {
                break;
            }
            let now = Instant::now();
            if !self.early.is_empty() {
                self.adopt_early(now);
            }
            let wanted = self.answer_asks()?;
            if self.launch.is_some() && self.status.is_none() {
                signals::forward(self.first);
            } else if !wanted && self.is_over(now) {
                break;
            }
        }
        // Threads that could not be stopped in time.
        let sleeping: Vec<Pid> = self.processes().collect();
        for pid in sleeping {
            self.session.detached(pid);
        }
        self.session.tick();
        Ok(())
    }

    /// Whether nothing is left to do: the launched process has ended, or there is no work any more
    /// for the one that ran already.
    fn is_over(&mut self, now: Instant) -> bool {
        let stop = self.options.stop.load(Ordering::Relaxed);
        let ended = self.ended_at.filter(|_| self.launch.is_some());
        let ends_soon = ended.is_some_and(|ended| now.duration_since(ended) < LAST_WORDS);
        if ended.is_some() && !ends_soon && !self.outlived {
            self.outlived = true;
            self.report_outlived();
        }
        let first_only = self.options.wait_for == WaitFor::FirstProcess && !ends_soon;
        if first_only || self.launch.is_none() || stop {
            match self.detaching {
                None => self.begin_to_detach(now),
                Some(deadline) if now > deadline => return true,
                Some(_) => {}
            }
        }
        self.tasks.is_empty() && !self.early_living()
    }

    /// The processes whose first threads are traced.
    fn processes(&self) -> impl Iterator<Item = Pid> {
        self.tasks.iter().filter(|(tid, task)| tid.is_first_of(task.pid)).map(|(_, task)| task.pid)
    }

    fn early_living(&self) -> bool {
        self.early.values().any(|early| !early.what.is_end())
    }

    pub(crate) fn handle(&mut self, report: Report) -> Result<(), Failure> {
        let Report { tid, what } = report;
        match what {
            What::Exited { code } => self.ended(tid, what, ExitStatus::Code(code)),
            What::Killed { signal, core } => {
                self.ended(tid, what, ExitStatus::Signal { signal, core })
            }
            What::Stopped { signal, event } => {
                // It goes on at once with a signal of its own. If it was killed since, that will be
                // reported.
                let goes_on = what.signal().is_some() && self.tasks.contains_key(&tid);
                if goes_on || ptrace::take_stop(tid) {
                    self.stopped(tid, signal, event);
                }
                Ok(())
            }
        }
    }

    pub(crate) fn stopped(&mut self, tid: Tid, signal: i32, event: i32) {
        if let Some(base) = self.expected.remove(&tid) {
            return self.first_stop(tid, base, (signal, event));
        }
        if self.first_untraced && tid.is_first_of(self.first) {
            return self.job_control.program_stopped(signal);
        }
        let Some(task) = self.tasks.get_mut(&tid) else {
            let what = What::Stopped { signal, event };
            let (since, cpu) = (Instant::now(), Duration::ZERO);
            self.early.insert(tid, Early { since, what, cpu });
            return;
        };
        let pid = task.pid;
        if event == 0 && signal == ptrace::SYSTEM_CALL {
            return self.at_system_call(pid, tid);
        }
        if event == 0 {
            restart::take_up_call_at_signal(tid, signal, &mut task.renewed);
            self.session.signalled(tid);
        }
        match event {
            0 if matches!(signal, libc::SIGURG | libc::SIGWINCH) => {
                self.perhaps_library_event(pid, tid, signal);
            }
            0 if matches!(signal, libc::SIGSEGV | libc::SIGBUS) => self.fault(pid, tid, signal),
            0 => self.resume(tid, signal),
            libc::PTRACE_EVENT_EXEC => self.exec(pid),
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                self.birth(tid, pid, event);
            }
            ptrace::EVENT_STOP => {
                // We may have asked for it.
                restart::take_up_call(tid);
                self.resume_or_listen(tid, signal);
                if self.launch.is_some() && tid.is_first_of(self.first) && signal != libc::SIGTRAP {
                    self.job_control.program_stopped(signal);
                }
            }
            _ => self.resume(tid, 0),
        }
    }

    /// Resumes a stopped thread, or detaches it. Errors mean that it was killed, which the next
    /// wait reports.
    pub(crate) fn resume(&mut self, tid: Tid, signal: i32) {
        if self.detaching.is_some() {
            let task = self.tasks.remove(&tid);
            if let Some(task) = &task {
                self.session.letting_go(task.pid, tid);
            }
            let _ = ptrace::detach(tid, signal);
            if let Some(task) = task.filter(|task| tid.is_first_of(task.pid)) {
                self.session.detached(task.pid);
            }
            return;
        }
        let _ = match self.tasks.get(&tid) {
            Some(task) if self.is_leaving(task.pid, tid) => {
                let pid = task.pid;
                return self.leave(pid, tid, signal);
            }
            Some(task) if task.stops_at_calls => ptrace::cont_to_system_call_with(tid, signal),
            _ => ptrace::cont(tid, signal),
        };
    }

    /// After a stop that is not about one signal: the whole process may be stopped, and then stays
    /// so until SIGCONT.
    fn resume_or_listen(&mut self, tid: Tid, signal: i32) {
        let leaves = |pid| self.is_leaving(pid, tid);
        let leaves = self.tasks.get(&tid).is_some_and(|task| leaves(task.pid));
        if signal == libc::SIGTRAP || self.detaching.is_some() || leaves {
            self.resume(tid, 0);
        } else {
            let _ = ptrace::listen(tid);
        }
    }

    fn birth(&mut self, tid: Tid, pid: Pid, event: i32) {
        let child = ptrace::event_message(tid).ok().and_then(|child| Tid::try_from(child).ok());
        let Some(child) = child else { return self.resume(tid, 0) };
        if self.adopted.remove(&child) || self.tasks.contains_key(&child) {
            self.resume(tid, 0);
            return;
        }
        // The event does not say: clone makes threads, and processes of all kinds.
        let birth = if ptrace::tgkill(pid, child, 0).is_ok() {
            Birth::Thread
        } else if ptrace::same_memory(tid, child).unwrap_or(event == libc::PTRACE_EVENT_VFORK) {
            Birth::Vfork
        } else {
            Birth::Fork
        };
        let pid = match birth {
            Birth::Thread => pid,
            Birth::Fork | Birth::Vfork => child.as_process(),
        };
        let base = self.announce(child, Origin { parent: Some(tid), pid, birth });
        self.resume(tid, 0);
        match self.early.remove(&child) {
            None => {
                self.expected.insert(child, base);
            }
            Some(Early { what: What::Stopped { signal, event }, .. }) => {
                self.first_stop(child, base, (signal, event));
            }
            Some(Early { what, cpu, .. }) => self.bury(child, what, cpu),
        }
    }

    /// Reports a new thread to the session.
    pub(crate) fn announce(&mut self, tid: Tid, origin: Origin) -> Option<u64> {
        let Origin { parent, pid, birth } = origin;
        let creator = parent.and_then(|parent| self.tasks.get(&parent));
        let stops_at_calls = creator.is_some_and(|task| task.stops_at_calls);
        self.tasks.insert(tid, Task { stops_at_calls, ..Task::of(pid) });
        self.session.born(parent, pid, tid, birth)
    }

    /// A thread's first stop. A new thread has one of its own; one that ran before may stop for any
    /// reason.
    fn first_stop(&mut self, tid: Tid, base: Option<u64>, (signal, event): (i32, i32)) {
        if let Some(base) = base {
            let _ = ptrace::set_gs_base(tid, base);
        }
        self.stopped(tid, signal, event);
    }

    /// Takes in new threads whose parents died before they reported them.
    fn adopt_early(&mut self, now: Instant) {
        let waited = |early: &Early| now.duration_since(early.since);
        self.early.retain(|_, early| !early.what.is_end() || waited(early) < LATE);
        let old = |early: &Early| !early.what.is_end() && waited(early) > EARLY_PATIENCE;
        let tids: Vec<Tid> =
            self.early.iter().filter(|entry| old(entry.1)).map(|entry| *entry.0).collect();
        for tid in tids {
            let Some(origin) = find_origin(tid) else { continue };
            let early = self.early.remove(&tid);
            if let Some(Early { what: What::Stopped { signal, event }, .. }) = early {
                self.adopted.insert(tid);
                let base = self.announce(tid, origin);
                self.first_stop(tid, base, (signal, event));
            }
        }
    }

    fn exec(&mut self, pid: Pid) {
        self.started = None;
        self.asked.remove(&pid.first_thread());
        // The thread that called execve has taken the first thread's number, and is alone.
        let swallowed: Vec<Tid> = self
            .tasks
            .iter()
            .filter(|(tid, task)| task.pid == pid && !tid.is_first_of(pid))
            .map(|(tid, _)| *tid)
            .collect();
        for tid in swallowed {
            self.tasks.remove(&tid);
            self.held.remove(&tid);
            self.session.thread_exit(pid, tid);
        }
        if privileges::are_missing(pid) && self.let_go_privileged(pid) {
            return;
        }
        self.at_exec(pid);
    }

    /// Detaches a process that should have gained privileges by its exec; false if that fails.
    fn let_go_privileged(&mut self, pid: Pid) -> bool {
        let Ok(stop) = ExecStop::look(pid) else { return false };
        if privileges::execute_anew(&stop).is_err() {
            return false;
        }
        self.tasks.remove(&pid.first_thread());
        self.first_untraced |= self.launch.is_some() && pid == self.first;
        self.session.setuid_exec(pid, &stop.executable);
        let _ = ptrace::detach(pid.first_thread(), 0);
        true
    }

    /// A process of which no thread is traced any more lives on.
    pub(crate) fn let_go_of(&mut self, pid: Pid) {
        self.first_untraced |= self.launch.is_some() && pid == self.first;
        self.session.left(pid);
    }

    /// Whether a signal that a thread is about to be given is only the program's, and not one that
    /// Fettle uses.
    pub(crate) fn is_of_program(&mut self, pid: Pid, tid: Tid, signal: i32) -> bool {
        match signal {
            libc::SIGURG | libc::SIGWINCH => {
                let at = ptrace::registers(tid).map(|registers| LiveAddr(registers.rip));
                !at.is_ok_and(|at| self.session.dlopen_hook(pid, at).is_some())
            }
            _ => !matches!(signal, libc::SIGSEGV | libc::SIGBUS),
        }
    }

    /// A fault, or a signal that another process sent.
    fn fault(&mut self, pid: Pid, tid: Tid, signal: i32) {
        let Ok(mut registers) = ptrace::registers(tid) else { return self.resume(tid, signal) };
        let (instruction, gs_base) = (LiveAddr(registers.rip), LiveAddr(registers.gs_base));
        let stop = FaultStop { pid, instruction, gs_base };
        let Some(to) = self.session.fault(&stop) else { return self.resume(tid, signal) };
        registers.rip = to.0;
        match ptrace::set_registers(tid, &registers) {
            Ok(()) => self.resume(tid, 0),
            Err(_) => self.resume(tid, signal),
        }
    }

    fn ended(&mut self, tid: Tid, what: What, status: ExitStatus) -> Result<(), Failure> {
        if let Some(task) = self.tasks.get(&tid) {
            self.session.thread_ending(task.pid, tid);
        }
        // The clock can be read as long as the process has not been waited for, and only by the
        // number of a first thread.
        let clock = ptrace::process_time(tid.as_process());
        let usage = ptrace::take_end(tid).unwrap_or_default();
        let cpu = clock.unwrap_or(usage);

        if tid.is_first_of(self.first) && self.status.is_none() {
            if let Some(started) = self.started.take() {
                let stillborn = LiveError::Stillborn { status };
                let failure = self.launch.and_then(|launch| started.failure(launch));
                return Err(failure.unwrap_or(Failure::Error(stillborn)));
            }
            self.status = Some(status);
            self.ended_at = Some(Instant::now());
        }
        self.expected.remove(&tid);
        if self.tasks.contains_key(&tid) {
            self.bury(tid, what, cpu);
        } else {
            self.early.insert(tid, Early { since: Instant::now(), what, cpu });
        }
        Ok(())
    }

    /// Reports to the session which processes outlive the launched one, if there are any.
    fn report_outlived(&mut self) {
        let mut living: Vec<Pid> = self.processes().filter(|pid| *pid != self.first).collect();
        living.sort_unstable();
        if !living.is_empty() {
            self.session.outlived(&living);
        }
    }

    /// Reports an end to the session.
    fn bury(&mut self, tid: Tid, what: What, cpu: Duration) {
        self.asked.remove(&tid);
        self.held.remove(&tid);
        let Some(Task { pid, .. }) = self.tasks.remove(&tid) else { return };
        self.perhaps_left(pid);
        if !tid.is_first_of(pid) {
            return self.session.thread_exit(pid, tid);
        }
        let status = match what {
            What::Exited { code } => ExitStatus::Code(code),
            What::Killed { signal, core } => ExitStatus::Signal { signal, core },
            What::Stopped { .. } => unreachable!("only ends are buried"),
        };
        self.session.process_exit(pid, status, cpu);
    }

    fn begin_to_detach(&mut self, now: Instant) {
        self.session.detaching();
        self.detaching = Some(now + DETACH_PATIENCE);
        self.raise_priority = self.launch.is_none().then(Boost::begin);
        for tid in self.tasks.keys() {
            let _ = ptrace::interrupt(*tid);
        }
    }
}

/// Where a thread came from, as far as the kernel still knows.
fn find_origin(tid: Tid) -> Option<Origin> {
    let status = maps::read_proc(&format!("/proc/{tid}/status")).ok()?;
    let field = |name| Pid::try_from(maps::status_field(&status, name)?).ok();
    let pid = field("Tgid:")?;
    if !tid.is_first_of(pid) {
        let parent = Some(pid.first_thread());
        return Some(Origin { parent, pid, birth: Birth::Thread });
    }
    // It is 0 if the parent is outside of the PID namespaces that we see.
    let parent = field("PPid:").map(Pid::first_thread);
    let shared = parent.and_then(|parent| ptrace::same_memory(parent, tid)).unwrap_or(false);
    let birth = if shared { Birth::Vfork } else { Birth::Fork };
    Some(Origin { parent, pid, birth })
}
