//! Stop-the-world pauses: all threads of a running process stopped at once, briefly.
//!
//! Each pause has a tracing thread of its own. If that thread fails, or Fettle is killed, the thread ends,
//! and the kernel resumes every thread of the process as if nothing had happened: a tracer that ends
//! releases all its tracees.
//!
//! A pause lasts as long as the slowest thread takes to stop, plus our own work. Therefore sleeping threads,
//! which lose nothing by it, are stopped first, and running threads last. If they do not stop soon, on a busy
//! machine, all are resumed and the pause is tried again in the other order: some attempt finds them where
//! they stop at once. Where it is allowed, we raise our own scheduling priority meanwhile.
//!
//! A thread in a system call leaves it to stop, and the kernel restarts the call with what is left of its
//! time-out. Only a few calls fail with EINTR instead; those of them that have no time-out are restarted
//! by us.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fettle_types::{Pid, Tid};

use crate::births::{Births, Born};
use crate::error::LiveError;
use crate::follower::{Ask, Follower};
use crate::maps::{self, LiveAddr};
use crate::patience::{Patience, patience_of};
use crate::priority;
use crate::process::{self, Process};
use crate::ptrace::{self, Registers, Report, What};
use crate::signals;
use crate::thread::{Thread, USER_CS};

/// A process in a stop-the-world pause: all its threads are stopped, or one of them for work that
/// needs only one.
#[derive(Debug)]
pub struct Paused<'a> {
    pub(crate) process: &'a Process,
    pub(crate) threads: Vec<Thread>,
}

/// The pause budget of work that can be done in parts: once it is spent, the rest waits for another
/// pause. The fixed cost of a pause does not count against it: with many threads nothing else would
/// be done.
pub(crate) struct PauseBudget(Instant);

impl PauseBudget {
    pub(crate) fn begin() -> PauseBudget {
        PauseBudget(Instant::now())
    }

    /// Whether the budget is spent.
    pub(crate) fn is_over(&self) -> bool {
        self.0.elapsed() > PAUSE_BUDGET
    }
}

/// Which threads are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    All,
    /// Any one of them, rather one that sleeps.
    One,
    /// Those that run, if any: to sample their program counters.
    Working,
}

/// Why a pause was not reached.
pub(crate) enum Failure {
    Error(LiveError),
    /// This thread does not stop; perhaps because it gets no processor.
    Stuck(Tid, bool),
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Failure {
        Failure::Error(error)
    }
}

/// How long threads may wait for the last one, at first, and as long as there is hope.
const PATIENCE: (Duration, Duration) = (Duration::from_micros(800), Duration::from_micros(3500));
/// As long again for each so many threads: they come one after the other.
const CROWD: usize = 40;
/// How long it is tried with only so much patience: on an overloaded machine, threads stop late.
const HOPED: Duration = Duration::from_secs(2);
const STARVED: Duration = Duration::from_millis(500);
/// How long it is tried at all. A thread that waits for its child to exec (vfork) cannot be
/// stopped.
const TRIED: Duration = Duration::from_secs(6);
/// Threads stop about in the order in which they are asked: when so many have not, no more are
/// checked one by one.
const MISSING: usize = 16;
/// Between tries, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// The pause budget: work that can be done in parts ends a pause after so long.
const PAUSE_BUDGET: Duration = Duration::from_micros(700);

impl Process {
    /// Stops all threads, does `work`, and resumes them. Also returns the longest time that a
    /// thread was stopped, vain tries included.
    ///
    /// # Errors
    ///
    /// When they cannot be stopped: the process has ended, runs another program, is not ours, or
    /// a thread waits for what cannot be interrupted. Else what `work` fails with.
    pub fn while_paused<T: Send>(
        &self,
        work: impl FnOnce(&mut Paused<'_>) -> Result<T, LiveError> + Send,
    ) -> Result<(T, Duration), LiveError> {
        self.pause_in_thread(Who::All, work)
    }

    /// The program counters of threads that are in no system call. The others run meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Process::while_paused`].
    pub fn at_work(&self) -> Result<Vec<LiveAddr>, LiveError> {
        let look = |paused: &mut Paused<'_>| {
            let at_work = paused.threads.iter().filter(|thread| !thread.is_in_call());
            Ok(at_work.map(|thread| LiveAddr(thread.registers.rip)).collect())
        };
        Ok(self.pause_in_thread(Who::Working, look)?.0)
    }

    pub(crate) fn pause_in_thread<T: Send>(
        &self,
        who: Who,
        work: impl FnOnce(&mut Paused<'_>) -> Result<T, LiveError> + Send,
    ) -> Result<(T, Duration), LiveError> {
        let mut work = Some(work);
        let begun = Instant::now();
        let (mut patience, mut pause) = (PATIENCE.0, PAUSES.0);
        let mut longest = Duration::ZERO;
        for attempt in 0.. {
            let (work, paused_for) = (&mut work, &mut longest);
            let done = match self.follower() {
                Some(follower) => self.pause_followed(&follower, patience, paused_for, |paused| {
                    work.take().expect("done once")(paused)
                }),
                None => self.pause_here((who, attempt), patience, paused_for, |paused| {
                    work.take().expect("done once")(paused)
                }),
            };
            let (stuck, starved) = match done {
                Ok(done) => return Ok((done, longest)),
                Err(Failure::Error(error)) => return Err(error),
                Err(Failure::Stuck(tid, starved)) => (tid, starved),
            };
            if begun.elapsed() > TRIED && (!starved || patience > STARVED) {
                let why = match starved {
                    true => format!("its thread {stuck} gets no processor, and does not stop"),
                    false => format!(
                        "its thread {stuck} does not stop (it waits for a device, or for a child)"
                    ),
                };
                return Err(LiveError::Busy { pid: self.pid(), why });
            }
            std::thread::sleep(pause);
            pause = (pause * 3 / 2).min(PAUSES.1);
            patience = match starved && begun.elapsed() > HOPED {
                true => patience * 3 / 2,
                false => (patience * 5 / 4).min(PATIENCE.1.max(patience)),
            };
        }
        unreachable!("tries end by time")
    }

    /// A pause of a process that is followed: the thread that traces it makes the pause.
    pub(crate) fn pause_followed<T>(
        &self,
        follower: &Follower,
        patience: Duration,
        longest: &mut Duration,
        work: impl FnOnce(&mut Paused<'_>) -> Result<T, LiveError>,
    ) -> Result<T, Failure> {
        let pid = self.pid();
        let gone = |()| Failure::Error(LiveError::Gone { pid });
        let ((answer, answered), (keep, go_on)) = (mpsc::channel(), mpsc::channel());
        follower.ask(Ask::Stop { pid, patience, answer, go_on }).map_err(|_| gone(()))?;
        let threads = answered.recv().map_err(|_| gone(()))?.map_err(|stuck| {
            *longest = (*longest).max(stuck.paused_for);
            Failure::Stuck(stuck.tid, stuck.starved)
        })?;
        let mut paused = Paused::of(self, threads)?;
        let result = work(&mut paused);
        *longest = (*longest).max(paused.paused_for());
        drop(keep);
        Ok(result?)
    }

    /// A pause of a process that is not traced.
    fn pause_here<T: Send>(
        &self,
        (who, attempt): (Who, u32),
        patience: Duration,
        longest: &mut Duration,
        work: impl FnOnce(&mut Paused<'_>) -> Result<T, LiveError> + Send,
    ) -> Result<T, Failure> {
        let _no_stop = signals::NoStop::begin();
        // A thread of its own: when it ends, nothing stays stopped.
        std::thread::scope(|scope| {
            let pause_in_thread = scope.spawn(move || {
                priority::raise_priority();
                let _small = priority::SmallPages::begin();
                let mut paused = Paused::stop_threads(self, (who, attempt), patience, longest)?;
                let result = work(&mut paused);
                *longest = (*longest).max(paused.release());
                Ok(result?)
            });
            pause_in_thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// How long so many threads may wait for the last one, if few may as long as `patience`.
fn with_crowd(patience: Duration, threads: usize) -> Duration {
    patience * (1 + threads / CROWD) as u32
}

/// Threads that are being stopped.
pub(crate) struct Gathering<'a> {
    process: &'a Process,
    /// Those that are traced, or that have ended: each is seized once.
    known: HashSet<Tid>,
    /// Those that were asked to stop, in that order, and when they were last seen not to have.
    asked: Vec<(Tid, Instant)>,
    /// Those that are stopped, and since when at most.
    pub(crate) stopped: Vec<(Tid, Instant)>,
    patience: Duration,
}

impl<'a> Gathering<'a> {
    /// None yet; those that stop wait so long for others.
    pub(crate) fn new(process: &'a Process, patience: Duration) -> Gathering<'a> {
        let (known, asked, stopped) = (HashSet::new(), Vec::new(), Vec::new());
        Gathering { process, known, asked, stopped, patience }
    }
}

impl Gathering<'_> {
    /// Begins to trace threads that are not traced yet, without stopping them. Returns them,
    /// sleeping ones and running ones apart.
    fn seize_new(&mut self) -> Result<(Vec<Tid>, Vec<Tid>), LiveError> {
        let pid = self.process.pid();
        let (mut sleeping, mut running) = (Vec::new(), Vec::new());
        for tid in process::tasks(pid)? {
            if self.known.insert(tid) && seize(pid, tid, ptrace::O_SYSGOOD)? {
                let sleeps = priority::task_state(pid, tid) == Some(b'S');
                if sleeps { sleeping.push(tid) } else { running.push(tid) }
            }
        }
        Ok((sleeping, running))
    }

    /// Asks threads to stop, and waits until all that were asked have.
    fn stop(&mut self, threads: &[Tid]) -> Result<(), Failure> {
        for tid in threads {
            let is_stopped = self.stopped.iter().any(|(other, _)| other == tid);
            // A thread that has ended, which may have been reported already, cannot be asked.
            if !is_stopped && ptrace::interrupt(*tid).is_ok() {
                self.asked.push((*tid, Instant::now()));
            }
        }
        let mut rounds = 0u32;
        let asked_last = Instant::now();
        while !self.asked.is_empty() {
            let looked = Instant::now();
            let mut any = self.look_for_asked(looked)?;
            // Threads that were not asked may stop, too. The kernel searches all threads for that.
            let now = rounds.is_multiple_of(1 + (self.asked.len() / CROWD) as u32);
            if !any
                && now
                && let Some((tid, settled)) = next_stop(None)?
            {
                any = true;
                self.take_in(tid, settled, looked);
            }
            self.asked.iter_mut().for_each(|(_, seen)| *seen = looked);
            if any {
                continue;
            }
            let since = self.stopped.iter().map(|(_, since)| *since).min();
            let waited = since.unwrap_or(asked_last).elapsed();
            // While no thread is stopped, waiting costs the program nothing, but may be in vain.
            let patience = with_crowd(self.patience, self.asked.len() + self.stopped.len());
            let enough = if since.is_some() { patience } else { patience * 8 };
            if waited > enough {
                let tid = self.asked[0].0;
                let starved = priority::task_state(self.process.pid(), tid) == Some(b'R');
                return Err(Failure::Stuck(tid, starved));
            }
            rounds += 1;
            priority::pause(rounds);
        }
        Ok(())
    }

    /// Handles what was reported of threads that were asked to stop, if anything. The kernel finds
    /// each by its number.
    fn look_for_asked(&mut self, looked: Instant) -> Result<bool, LiveError> {
        let asked: Vec<Tid> = self.asked.iter().map(|(tid, _)| *tid).collect();
        let (mut any, mut missing) = (false, 0);
        for tid in asked {
            match next_stop(Some(tid))? {
                Some((tid, settled)) => {
                    any = true;
                    self.take_in(tid, settled, looked);
                }
                None => missing += 1,
            }
            if missing > MISSING {
                break;
            }
        }
        Ok(any)
    }

    /// Handles what was reported of a thread, which ran when it was last `looked` at.
    fn take_in(&mut self, tid: Tid, settled: Settled, looked: Instant) {
        match settled {
            Settled::Running => {}
            Settled::Ended => {
                self.asked.retain(|(other, _)| *other != tid);
                self.stopped.retain(|(other, _)| *other != tid);
            }
            Settled::Stopped => match self.asked.iter().position(|(other, _)| *other == tid) {
                Some(i) => self.stopped.push(self.asked.remove(i)),
                // It was not asked yet: the process as a whole is being stopped.
                None => self.stopped.push((tid, looked)),
            },
        }
    }

    /// Detaches all threads, and returns the longest time that one of them was stopped. Threads
    /// that are about to stop are waited for, since a system call that they were in has to be
    /// restarted, too. Only threads that the kernel does not wake, or that do not stop `within` this time,
    /// are left; they are detached when this thread ends.
    pub(crate) fn let_go(mut self, within: Duration) -> Duration {
        let mut longest = Duration::ZERO;
        for (tid, since) in &self.stopped {
            let _ = ptrace::detach(*tid, 0);
            longest = longest.max(since.elapsed());
        }
        let deadline = Instant::now() + within;
        let pid = self.process.pid();
        while !self.asked.is_empty() && Instant::now() < deadline {
            let looked = Instant::now();
            while let Ok(Some((tid, settled))) = next_stop(None) {
                match settled {
                    Settled::Running => continue,
                    Settled::Stopped => drop(ptrace::detach(tid, 0)),
                    Settled::Ended => {}
                }
                longest = longest.max(looked.elapsed());
                self.asked.retain(|(other, _)| *other != tid);
            }
            if self.asked.iter().all(|(tid, _)| priority::task_state(pid, *tid) == Some(b'D')) {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        longest
    }
}

impl<'a> Paused<'a> {
    /// If the pause is not reached, `longest` gets how long threads were stopped for it.
    fn stop_threads(
        process: &'a Process,
        (who, attempt): (Who, u32),
        patience: Duration,
        longest: &mut Duration,
    ) -> Result<Paused<'a>, Failure> {
        let mut gathering = Gathering::new(process, patience);
        let gathered = match who {
            Who::All => gather_all(&mut gathering, attempt),
            Who::One => gather_one(&mut gathering),
            Who::Working => gather_working(&mut gathering),
        };
        let stuck = match gathered {
            Ok(()) => None,
            Err(Failure::Stuck(tid, starved)) => Some((tid, starved)),
            Err(error) => return Err(error),
        };
        if let Some((tid, starved)) = stuck {
            *longest = (*longest).max(gathering.let_go(TRIED));
            return Err(Failure::Stuck(tid, starved));
        }
        let stopped = gathering.stopped.into_iter();
        let threads: Vec<Thread> =
            stopped.filter_map(|(tid, since)| Thread::look(tid, since)).collect();
        if who == Who::Working && threads.is_empty() && process.is_same() {
            return Ok(Paused { process, threads });
        }
        Paused::of(process, threads)
    }

    /// All threads of a process, which are paused.
    pub(crate) fn of(process: &'a Process, threads: Vec<Thread>) -> Result<Paused<'a>, Failure> {
        let pid = process.pid();
        if threads.is_empty() || !process.is_same() {
            return Err(LiveError::Gone { pid }.into());
        }
        if threads.iter().any(|thread| thread.registers.cs != USER_CS) {
            let why = "one of its threads runs 32-bit code".to_owned();
            return Err(LiveError::Unattachable { pid, why }.into());
        }
        Ok(Paused { process, threads })
    }

    /// Detaches all threads, running ones first; returns the longest time that one was stopped.
    fn release(self) -> Duration {
        let (in_call, at_work): (Vec<_>, Vec<_>) =
            self.threads.iter().partition(|thread| thread.is_in_call());
        let mut longest = Duration::ZERO;
        for thread in at_work.into_iter().chain(in_call) {
            // ESRCH: it was killed since.
            let _ = ptrace::detach(thread.tid, 0);
            longest = longest.max(thread.since.elapsed());
        }
        longest
    }

    /// The longest time that a thread has been stopped.
    pub(crate) fn paused_for(&self) -> Duration {
        let since = self.threads.iter().map(|thread| thread.since).min();
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The process.
    pub fn process(&self) -> &Process {
        self.process
    }

    /// How many threads are paused.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The gs bases of all threads.
    pub fn gs_bases(&self) -> impl Iterator<Item = u64> {
        self.threads.iter().map(|thread| thread.registers.gs_base)
    }

    /// Resets the gs base of every thread that has one in this range.
    ///
    /// # Errors
    ///
    /// When a thread was killed meanwhile.
    pub(crate) fn clear_gs_bases(
        &mut self,
        start: LiveAddr,
        end: LiveAddr,
    ) -> Result<(), LiveError> {
        let (pid, bases) = (self.process.pid(), start.0..end.0);
        let mut threads = self.threads.iter_mut().filter(|t| bases.contains(&t.registers.gs_base));
        threads.try_for_each(|thread| set_gs_base(pid, thread, 0))
    }

    /// Gives each thread one of these gs bases, in turns.
    ///
    /// # Errors
    ///
    /// When a thread was killed meanwhile.
    pub fn spread_gs_bases(&mut self, bases: &[u64]) -> Result<(), LiveError> {
        let pid = self.process.pid();
        let mut threads = self.threads.iter_mut().zip(bases.iter().cycle());
        threads.try_for_each(|(thread, base)| set_gs_base(pid, thread, *base))
    }
}

fn set_gs_base(pid: Pid, thread: &mut Thread, base: u64) -> Result<(), LiveError> {
    ptrace::set_gs_base(thread.tid, base).map_err(|source| LiveError::Ptrace {
        action: "set the gs base",
        pid,
        source,
    })?;
    thread.registers.gs_base = base;
    Ok(())
}

/// Stops every thread of a process. What is read of each is read before the first one stops.
pub(crate) fn gather_all(gathering: &mut Gathering<'_>, attempt: u32) -> Result<(), Failure> {
    let pid = gathering.process.pid();
    let sharing = |threads: &HashSet<Tid>| match sharing_child(pid, threads.iter().copied()) {
        Some(tid) => Err(Failure::Stuck(tid, false)),
        None => Ok(()),
    };
    let mut before = Births::now();
    let (mut sleeping, mut running) = gathering.seize_new()?;
    sharing(&gathering.known)?;
    loop {
        // Threads that sleep lose nothing by waiting for others. But one that runs may be waiting
        // for a processor itself, and while only that one is asked no stopped thread waits for it.
        // So the order alternates.
        let order = [&sleeping, &running];
        for threads in if attempt.is_multiple_of(2) { order } else { [order[1], order[0]] } {
            gathering.stop(threads)?;
        }
        // Only running threads create others.
        match before.of(pid) {
            Born::Nothing => return Ok(()),
            Born::Sharing(tid) => return Err(Failure::Stuck(tid, false)),
            Born::Perhaps => {}
        }
        before = Births::now();
        (sleeping, running) = gathering.seize_new()?;
        sharing(&gathering.known)?;
        if sleeping.is_empty() && running.is_empty() {
            return Ok(());
        }
    }
}

/// Stops one thread of a process.
fn gather_one(gathering: &mut Gathering<'_>) -> Result<(), Failure> {
    let pid = gathering.process.pid();
    let mut threads: VecDeque<(Tid, bool)> =
        process::tasks(pid)?.into_iter().map(|tid| (tid, false)).collect();
    let (mut stuck, mut living) = ((pid.first_thread(), false), false);
    while let Some((tid, looked_at)) = threads.pop_front() {
        // Sleeping threads stop at once, and lose nothing. Each is checked once: they do not keep
        // sleeping.
        if !looked_at && priority::task_state(pid, tid) != Some(b'S') {
            threads.push_back((tid, true));
            continue;
        }
        gathering.known.insert(tid);
        if !seize(pid, tid, ptrace::O_SYSGOOD)? {
            continue;
        }
        living = true;
        match gathering.stop(&[tid]) {
            Err(Failure::Stuck(tid, starved)) => stuck = (tid, starved),
            other => return other,
        }
    }
    // One that has ended is listed until its parent asks how.
    if !living && process::has_ended(pid) {
        return Err(Failure::Error(LiveError::Gone { pid }));
    }
    Err(Failure::Stuck(stuck.0, stuck.1))
}

/// Stops those threads of a process that run.
fn gather_working(gathering: &mut Gathering<'_>) -> Result<(), Failure> {
    let pid = gathering.process.pid();
    let mut running = process::tasks(pid)?;
    running.retain(|tid| priority::task_state(pid, *tid) == Some(b'R'));
    for tid in &running {
        gathering.known.insert(*tid);
        seize(pid, *tid, ptrace::O_SYSGOOD)?;
    }
    gathering.stop(&running)
}

/// Begins to trace a thread, which runs on; false if it has ended.
pub(crate) fn seize(pid: Pid, tid: Tid, options: i32) -> Result<bool, LiveError> {
    let refused = match ptrace::seize(tid, options) {
        Ok(()) => return Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
        Err(error) => error,
    };
    let status = maps::read_proc(&format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    if process::state(&status).is_none_or(|state| matches!(state, b'Z' | b'X')) {
        return Ok(false);
    }
    match process::tracer(&status) {
        None => Err(process::not_permitted(pid, &status, refused)),
        Some(tracer) => {
            let why = format!("process {tracer} traces it already");
            Err(LiveError::Unattachable { pid, why })
        }
    }
}

enum Settled {
    Running,
    Stopped,
    Ended,
}

/// What has happened to a thread that is traced, or to any, if there is a report.
fn next_stop(tid: Option<Tid>) -> Result<Option<(Tid, Settled)>, LiveError> {
    let Report { tid, what } = loop {
        let report = match ptrace::peek(tid, false) {
            Ok(Some(report)) => report,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            Err(source) => return Err(LiveError::Os { action: "wait for a thread", source }),
        };
        // Killed between the two: its end is reported next.
        if report.what.is_end() || report.what.signal().is_some() || ptrace::take_stop(report.tid) {
            break report;
        }
    };
    let settled = match what {
        What::Stopped { event: ptrace::EVENT_STOP, .. } => {
            take_up_call(tid);
            Settled::Stopped
        }
        // A signal came first. It is delivered, and the thread stops before it acts on it.
        What::Stopped { signal, .. } => {
            take_up_call_at_signal(tid, signal, &mut None);
            let _ = ptrace::cont(tid, signal);
            Settled::Running
        }
        What::Exited { .. } | What::Killed { .. } => {
            let _ = ptrace::take_end(tid);
            Settled::Ended
        }
    };
    Ok(Some((tid, settled)))
}

/// A child that runs in the memory of these threads, and is not stopped with them.
pub(crate) fn sharing_child(pid: Pid, threads: impl IntoIterator<Item = Tid>) -> Option<Tid> {
    threads.into_iter().find_map(|tid| {
        let list = format!("/proc/{pid}/task/{tid}/children");
        let list = maps::read_proc(&list).unwrap_or_default();
        let mut children = std::str::from_utf8(&list).unwrap_or("").split_ascii_whitespace();
        children.find_map(|child| {
            let child = child.parse::<Pid>().ok()?.first_thread();
            (ptrace::same_memory(tid, child) == Some(true)).then_some(child)
        })
    })
}

/// What the kernel has a system call return that it will restart, unless a signal handler runs
/// first; then it is EINTR.
const ERESTARTNOHAND: i64 = -514;
const EINTR: i64 = -4;

/// The timeout of a thread's system call, if that has done nothing yet and can be restarted.
fn patience(registers: &Registers) -> Option<Patience> {
    let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = *registers;
    patience_of(registers.orig_rax as i64, [rdi, rsi, rdx, r10, r8, r9])
}

/// Calls that the kernel does not restart by itself, although they wait without a timeout, or until
/// a socket has been silent for long, and have done nothing yet, are set up so that it does. This
/// is done at once, whatever happens to the other threads.
pub(crate) fn take_up_call(tid: Tid) {
    // If it was killed meanwhile it needs nothing any more.
    let Ok(mut registers) = ptrace::registers(tid) else { return };
    if patience(&registers) == Some(Patience::Endless) && registers.rax as i64 == EINTR {
        registers.rax = ERESTARTNOHAND as u64;
        let _ = ptrace::set_registers(tid, &registers);
    }
}

/// A wait with a timeout that was restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewed {
    /// Its PC, and its stack pointer.
    call: (u64, u64),
    /// When that was first done.
    first: Instant,
    /// How many voluntary switches the thread had then, its stop included.
    waits: u64,
}

/// The same before a thread is given a signal, which ends its wait only if it has a handler. The
/// kernel drops ignored signals, SIGCHLD among them, before they interrupt a thread, but not if the
/// thread is traced. A wait with a timeout is restarted, and returns its timeout when its whole
/// time is over: where such signals are frequent it would never end.
pub(crate) fn take_up_call_at_signal(tid: Tid, signal: i32, renewed: &mut Option<Renewed>) {
    // These stop the thread, which ends waits without Fettle, too.
    if matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) {
        return;
    }
    let Ok(mut registers) = ptrace::registers(tid) else { return };
    if registers.rax as i64 != EINTR {
        return;
    }
    let before = renewed.take();
    registers.rax = ERESTARTNOHAND as u64;
    match patience(&registers) {
        None => return,
        Some(Patience::Endless) => {}
        Some(Patience::Limited(limit)) => {
            let status = maps::read_proc(&format!("/proc/{tid}/status")).unwrap_or_default();
            let Some(now) = Renewed::now(&status, &registers) else { return };
            // The same call has waited, and the thread has stopped, once each since.
            let same = |before: &Renewed| before.call == now.call && before.waits + 2 == now.waits;
            let first = before.filter(same).map_or(now.first, |before| before.first);
            if now.first.duration_since(first) < limit {
                *renewed = Some(Renewed { first, ..now });
            } else if is_ignored(&status, signal) {
                registers.rax = 0;
            } else {
                return;
            }
        }
    }
    let _ = ptrace::set_registers(tid, &registers);
}

impl Renewed {
    /// A wait that is restarted now, by the thread's `/proc/TID/status`.
    fn now(status: &[u8], registers: &Registers) -> Option<Renewed> {
        let waits = maps::status_field(status, "voluntary_ctxt_switches:")?;
        Some(Renewed { call: (registers.rip, registers.rsp), first: Instant::now(), waits })
    }
}

/// Whether a thread ignores a signal, by its `/proc/TID/status`.
fn is_ignored(status: &[u8], signal: i32) -> bool {
    let has = |name: &str| {
        maps::status_signals(status, name).is_some_and(|set| set >> (signal - 1) & 1 != 0)
    };
    let by_default =
        matches!(signal, libc::SIGCHLD | libc::SIGCONT | libc::SIGURG | libc::SIGWINCH);
    has("SigIgn:") || (by_default && !has("SigCgt:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_waited_for_longer() {
        let patience = Duration::from_millis(1);
        assert_eq!(with_crowd(patience, 8), patience);
        // Each takes some microseconds to stop.
        assert!(with_crowd(patience, 1000) >= 1000 * Duration::from_micros(20));
    }
}
