//! Stop-the-world pauses: all threads of a running process stopped at once, briefly.
//!
//! Each pause has a tracing thread of its own. If that thread fails, or Fettle is killed, the thread ends,
//! and the kernel resumes every thread of the process as if nothing had happened: a tracer that ends
//! releases all its tracees.
//!
//! A pause lasts as long as the slowest thread takes to stop, plus our own work. Therefore sleeping threads,
//! which lose nothing by it, are stopped first, and running threads last; where there are many, sleeping ones are
//! [parked](crate::parked) instead. If they do not stop soon, on a busy
//! machine, all are resumed and the pause is tried again in the other order: some attempt finds them where
//! they stop at once. Where it is allowed, we raise our own scheduling priority meanwhile.
//!
//! A thread in a system call leaves it to stop, and the kernel restarts the call with what is left of its
//! time-out. Only a few calls fail with EINTR instead; those of them that have no time-out are restarted
//! by us.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fettle_types::{Pid, Tid};

use crate::births::{Births, Born, sharing_child};
use crate::error::LiveError;
use crate::follower::{Ask, Follower, own_tid};
use crate::maps::{self, LiveAddr};
use crate::parked::{Each, Parking, halt, nothing};
use crate::priority;
use crate::process::{self, Process};
use crate::ptrace;
use crate::restart::{Stop, take_up_next};
use crate::signals;
use crate::stacks::Stacks;
use crate::thread::{Thread, USER_CS};

/// A process in a stop-the-world pause: none of its threads runs an instruction of the program, or one of them
/// does not for work that needs only one.
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
/// Where more threads sleep they are parked.
const FEW: usize = 40;
/// Where processors are busy it takes more than one try to park nearly all.
const PARKING_TRIES: usize = 6;
/// So long is waited for the end of the thread that has traced parked threads.
const TRACER_ENDS: Duration = Duration::from_secs(1);
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
        self.pause_in_thread(Who::All, &mut nothing, work)
    }

    /// The same; if threads are parked, `each` is done to every one of them before, while it is stopped and the others
    /// run.
    pub(crate) fn while_paused_after<T: Send>(
        &self,
        each: &mut Each<'_>,
        work: impl FnOnce(&mut Paused<'_>) -> Result<T, LiveError> + Send,
    ) -> Result<(T, Duration), LiveError> {
        self.pause_in_thread(Who::All, each, work)
    }

    /// Gives each thread one of these gs bases, in turns. Returns how many threads there are, and how long they were
    /// paused.
    ///
    /// # Errors
    ///
    /// As [`Process::while_paused`], and when the process uses the gs segment itself.
    pub fn give_gs_bases(&self, bases: &[u64]) -> Result<(usize, Duration), LiveError> {
        let pid = self.pid();
        let given = AtomicUsize::new(0);
        let give = |thread: &mut Thread| {
            let number = given.fetch_add(1, Ordering::Relaxed);
            match bases.get(number % bases.len().max(1)) {
                Some(base) if thread.registers.gs_base == 0 => set_gs_base(pid, thread, *base),
                _ => Ok(()),
            }
        };
        let mut each = |_: &Process, thread: &mut Thread| give(thread);
        self.while_paused_after(&mut each, |paused| {
            // Threads that were parked have one of ours, and what they have made since.
            let foreign = |base: u64| base != 0 && !bases.contains(&base);
            if paused.gs_bases().any(foreign) {
                return Err(paused.uses_gs());
            }
            paused.threads.iter_mut().try_for_each(give)?;
            Ok(paused.threads.len())
        })
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
        Ok(self.pause_in_thread(Who::Working, &mut nothing, look)?.0)
    }

    pub(crate) fn pause_in_thread<T: Send>(
        &self,
        who: Who,
        each: &mut Each<'_>,
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
                None => self.pause_here((who, attempt), each, patience, paused_for, |paused| {
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
        each: &mut Each<'_>,
        patience: Duration,
        longest: &mut Duration,
        work: impl FnOnce(&mut Paused<'_>) -> Result<T, LiveError> + Send,
    ) -> Result<T, Failure> {
        let _no_stop = signals::NoStop::begin();
        let mut has_parked = None;
        let tracer = &mut has_parked;
        // A thread of its own: when it ends, nothing stays stopped.
        let done = std::thread::scope(|scope| {
            let pause_in_thread = scope.spawn(move || {
                priority::raise_priority();
                let _small = priority::SmallPages::begin();
                let mut gathering = Gathering::new(self, patience);
                let gathered = gathering.gather(who, attempt, each);
                *tracer = gathering.has_parked().then(own_tid);
                *longest = (*longest).max(gathering.parking.held());
                let mut paused = Paused::stop_threads(gathering, gathered, who, longest)?;
                let result = work(&mut paused);
                *longest = (*longest).max(paused.release());
                Ok(result?)
            });
            pause_in_thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        if let Some(tracer) = has_parked {
            wait_for_end(tracer);
        }
        done
    }
}

/// Waits until a thread of ours that is about to end has done so: only then the threads that it has parked are untraced.
fn wait_for_end(tracer: Tid) {
    let (task, begun) = (format!("/proc/self/task/{tracer}"), Instant::now());
    while std::fs::exists(&task).unwrap_or(false) && begun.elapsed() < TRACER_ENDS {
        std::thread::sleep(Duration::from_micros(20));
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
    parking: Parking,
    /// Since when parked threads that wake have stayed where they are.
    begun: Instant,
    patience: Duration,
}

impl<'a> Gathering<'a> {
    /// None yet; those that stop wait so long for others.
    pub(crate) fn new(process: &'a Process, patience: Duration) -> Gathering<'a> {
        let (known, asked, stopped) = (HashSet::new(), Vec::new(), Vec::new());
        let (parking, begun) = (Parking::new(), Instant::now());
        Gathering { process, known, asked, stopped, parking, begun, patience }
    }

    fn gather(&mut self, who: Who, attempt: u32, each: &mut Each<'_>) -> Result<(), Failure> {
        match who {
            Who::All => gather_all(self, attempt, Some(each)),
            Who::One => gather_one(self),
            Who::Working => gather_working(self),
        }
    }

    /// Whether threads are parked.
    fn has_parked(&self) -> bool {
        !self.parking.is_empty()
    }

    /// Parks sleeping threads; returns those that run.
    fn park(&mut self, sleeping: Vec<Tid>, each: &mut Each<'_>) -> Result<Vec<Tid>, Failure> {
        let mut stacks = Stacks::new(self.process);
        let mut left = sleeping;
        for _ in 0..PARKING_TRIES {
            let before = left.len();
            left = self.parking.park(self.process, &left, each, &mut stacks)?;
            if left.len() <= FEW || left.len() >= before {
                break;
            }
        }
        self.take_stopped();
        match self.parking.sharing_child() {
            Some(tid) => Err(Failure::Stuck(tid, false)),
            None => Ok(left),
        }
    }

    /// Lets parked threads that have woken go on, for the last time; returns them.
    fn woken(&mut self) -> Result<Vec<Tid>, LiveError> {
        let woken = self.parking.woken();
        self.take_stopped();
        self.begun = Instant::now();
        woken
    }

    fn take_stopped(&mut self) {
        let now = Instant::now();
        self.stopped.extend(self.parking.take_stopped().into_iter().map(|tid| (tid, now)));
    }

    /// Fails if a thread that may make children has one that shares its memory.
    fn no_sharing_child(&self) -> Result<(), Failure> {
        let known = self.known.iter().copied().filter(|tid| !self.parking.has(*tid));
        match sharing_child(self.process.pid(), known) {
            Some(tid) => Err(Failure::Stuck(tid, false)),
            None => Ok(()),
        }
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
        self.parking.remove(tid);
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
        while self.has_parked()
            && let Ok(Some((tid, settled))) = next_stop(None)
        {
            if matches!(settled, Settled::Stopped) {
                let _ = ptrace::detach(tid, 0);
                longest = longest.max(self.begun.elapsed());
                self.asked.retain(|(other, _)| *other != tid);
            }
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
        gathering: Gathering<'a>,
        gathered: Result<(), Failure>,
        who: Who,
        longest: &mut Duration,
    ) -> Result<Paused<'a>, Failure> {
        let process = gathering.process;
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
        let stopped = stopped.filter_map(|(tid, since)| Thread::look(tid, since));
        let parked = gathering.parking.into_threads(gathering.begun);
        let threads: Vec<Thread> = stopped.chain(parked).collect();
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

    /// Detaches all threads, running ones first; returns the longest time that one was stopped. Parked ones that wait
    /// on are untraced when this thread ends.
    fn release(self) -> Duration {
        let (parked, stopped): (Vec<_>, Vec<_>) =
            self.threads.iter().partition(|thread| thread.is_parked);
        let (in_call, at_work): (Vec<_>, Vec<_>) =
            stopped.into_iter().partition(|thread| thread.is_in_call());
        let mut longest = Duration::ZERO;
        for thread in at_work.into_iter().chain(in_call) {
            // ESRCH: it was killed since.
            let _ = ptrace::detach(thread.tid, 0);
            longest = longest.max(thread.since.elapsed());
        }
        while !parked.is_empty()
            && let Ok(Some((tid, settled))) = next_stop(None)
        {
            if matches!(settled, Settled::Stopped) {
                let _ = ptrace::detach(tid, 0);
            }
        }
        parked.iter().map(|thread| thread.since.elapsed()).fold(longest, Duration::max)
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

    /// That the process uses the gs segment itself.
    fn uses_gs(&self) -> LiveError {
        let why = "it uses the gs segment itself".to_owned();
        LiveError::Unattachable { pid: self.process.pid(), why }
    }

    /// Fails if a thread has a gs base: probes reach their memory through it.
    ///
    /// # Errors
    ///
    /// When the process uses the gs segment itself.
    pub fn without_gs(&self) -> Result<(), LiveError> {
        if self.gs_bases().all(|base| base == 0) { Ok(()) } else { Err(self.uses_gs()) }
    }

    /// Resets the gs base of every stopped thread that has one in this range. Returns whether a parked one has.
    ///
    /// # Errors
    ///
    /// When a thread was killed meanwhile.
    pub(crate) fn clear_gs_bases(
        &mut self,
        start: LiveAddr,
        end: LiveAddr,
    ) -> Result<bool, LiveError> {
        let (pid, mut parked) = (self.process.pid(), false);
        for thread in &mut self.threads {
            match thread.is_parked {
                true => parked |= has_gs_base(thread, (start, end)),
                false => clear_gs_base(pid, thread, (start, end))?,
            }
        }
        Ok(parked)
    }
}

fn has_gs_base(thread: &Thread, (start, end): (LiveAddr, LiveAddr)) -> bool {
    (start.0..end.0).contains(&thread.registers.gs_base)
}

/// Resets the gs base of a stopped thread if it is in this range.
///
/// # Errors
///
/// When the thread was killed meanwhile.
pub(crate) fn clear_gs_base(
    pid: Pid,
    thread: &mut Thread,
    range: (LiveAddr, LiveAddr),
) -> Result<(), LiveError> {
    if has_gs_base(thread, range) { set_gs_base(pid, thread, 0) } else { Ok(()) }
}

fn set_gs_base(pid: Pid, thread: &mut Thread, base: u64) -> Result<(), LiveError> {
    halt(thread)
        .and_then(|()| ptrace::set_gs_base(thread.tid, base))
        .map_err(|source| LiveError::Ptrace { action: "set the gs base", pid, source })?;
    thread.registers.gs_base = base;
    Ok(())
}

/// Stops every thread of a process. What is read of each is read before the first one stops. Where many sleep, and
/// there is something to do for `each`, these are parked.
pub(crate) fn gather_all(
    gathering: &mut Gathering<'_>,
    attempt: u32,
    each: Option<&mut Each<'_>>,
) -> Result<(), Failure> {
    let pid = gathering.process.pid();
    let mut before = Births::now();
    let (mut sleeping, mut running) = gathering.seize_new()?;
    if let Some(each) = each.filter(|_| sleeping.len() > FEW) {
        sleeping = gathering.park(sleeping, each)?;
        before = Births::now();
        let (more, others) = gathering.seize_new()?;
        sleeping.extend(more);
        running.extend(others);
    }
    gathering.no_sharing_child()?;
    running.extend(gathering.woken()?);
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
        gathering.no_sharing_child()?;
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
    let failed = |source| LiveError::Os { action: "wait for a thread", source };
    let Some((tid, stop)) = take_up_next(tid).map_err(failed)? else { return Ok(None) };
    let settled = match stop {
        // At a call, only those that were parked, or were to be.
        Stop::Asked | Stop::Group | Stop::AtCall => Settled::Stopped,
        // A signal came first. It is delivered, and the thread stops before it acts on it.
        Stop::Signal(signal) => {
            let _ = ptrace::cont(tid, signal);
            Settled::Running
        }
        Stop::Ended => Settled::Ended,
    };
    Ok(Some((tid, settled)))
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
