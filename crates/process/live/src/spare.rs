//! A process that stands ready to take the place of another one that listens.
//!
//! It is started as the other was, and does all that it does before it serves: it loads its code, reads its
//! configuration, connects to what it needs. Where it would bind its socket to an address that the other listens at, it
//! is held. When the other hangs, the call becomes one that gives it the other's own socket, and it goes on from there:
//! clients that were waiting to be accepted are. Its program notices nothing of that, and is not traced from then on.
//!
//! Until it serves, its system calls stop it (`ptrace`): it has no code of ours and no filter that would stay. The other's
//! sockets lie ready under high numbers, which the calls that close all descriptors do not reach; those that it has not
//! taken are closed at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_long;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fettle_types::{Pid, Tid};
use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::error::LiveError;
use crate::launch::{self, Launch, Likeness, User};
use crate::maps::{self, LiveAddr};
use crate::memory::Memory;
use crate::ptrace::{self, Registers, Report, What};

const TRACE: i32 = ptrace::O_SYSGOOD
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_EXITKILL;
/// What it may take to come to its socket.
const START: Duration = Duration::from_secs(60);
/// What it may take to serve, once it has been let go.
const SERVE: Duration = Duration::from_secs(2);
/// For its next call is waited so long at a time.
const LOOKED: Duration = Duration::from_millis(50);
/// While it is held, its other threads are looked after this often.
const TENDED: Duration = Duration::from_millis(5);
/// Of sockets that it has not taken so long after the last, it needs none.
const SETTLED: Duration = Duration::from_millis(100);
/// What it has started for a moment may take this long to end.
const HELPERS_END: Duration = Duration::from_millis(500);
/// Kinds of limits that Linux has.
const LIMITS: libc::__rlimit_resource_t = libc::RLIMIT_RTTIME + 1;
/// Sockets lie below this number, or below its limit of open files.
const NUMBERS_END: u64 = 4096;
/// Calls in which servers wait for work: by then they have the sockets that they need.
const WAITING: [c_long; 10] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_wait,
    libc::SYS_io_uring_enter,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_select,
];

/// How a spare is started.
#[derive(Debug)]
pub struct SpareStart {
    /// Its program.
    pub launch: Launch,
    /// Its standard input, output and error.
    pub standard: [Option<OwnedFd>; 3],
    /// The sockets that it is to have.
    pub listeners: Vec<TcpListener>,
    /// Its user, if that is another one.
    pub user: Option<User>,
    /// The rights that its files do not have.
    pub umask: u32,
    /// The signals that it ignores: bit `n - 1` for signal `n`.
    pub ignored: u64,
    /// It has the limits of this process, and runs on its processors.
    pub like: Pid,
}

/// How far a spare is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpareState {
    /// It is on its way to its socket.
    Starting,
    /// It is held there.
    Ready(Pid),
    /// There is none.
    Failed(String),
}

/// A process that stands ready. It is killed when this value goes without its having been let go.
#[derive(Debug)]
pub struct Spare {
    shared: Arc<Shared>,
    go: Sender<Sender<Result<Pid, String>>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<SpareState>,
    /// By which it can be killed while the thread that traces it waits.
    handle: Mutex<Option<OwnedFd>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn set(&self, state: SpareState) {
        *lock(&self.state) = state;
    }
}

impl Spare {
    /// Starts one. What comes of it is known later.
    ///
    /// # Errors
    ///
    /// When no thread can be had for it.
    pub fn start(start: SpareStart) -> io::Result<Spare> {
        let state = Mutex::new(SpareState::Starting);
        let shared = Arc::new(Shared { state, handle: Mutex::new(None) });
        let (go, waits) = mpsc::channel();
        let its = Arc::clone(&shared);
        // A process is traced by one thread, and is the child of the one that has started it.
        std::thread::Builder::new().name("spare".into()).spawn(move || {
            if let Err(why) = stand_by(&start, &its, &waits) {
                its.set(SpareState::Failed(why));
            }
        })?;
        Ok(Spare { shared, go })
    }

    /// How far it is.
    pub fn state(&self) -> SpareState {
        lock(&self.shared.state).clone()
    }

    /// Lets it serve. Says its number once it waits for work, or has its sockets at least.
    ///
    /// # Errors
    ///
    /// Why it does not. Then it has ended, or is going to.
    pub fn let_go(self) -> Result<Pid, String> {
        let (reply, replies) = mpsc::channel();
        self.go.send(reply).map_err(|_| match self.state() {
            SpareState::Failed(why) => why,
            _ => "it has ended".to_owned(),
        })?;
        let served = replies.recv_timeout(2 * SERVE);
        let pid = served.map_err(|_| format!("it does not serve after {SERVE:?}"))??;
        // It is no spare any more.
        *lock(&self.shared.handle) = None;
        Ok(pid)
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some(handle) = &*lock(&self.shared.handle) {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
}

/// The life of a spare, in its thread.
fn stand_by(
    start: &SpareStart,
    shared: &Shared,
    waits: &Receiver<Sender<Result<Pid, String>>>,
) -> Result<(), String> {
    let mut traced = Traced::start(start, shared).map_err(|error| error.to_string())?;
    let held = traced.come_to_socket()?;
    let pid = traced.alone()?;
    shared.set(SpareState::Ready(pid));
    let reply = loop {
        match waits.recv_timeout(TENDED) {
            Ok(reply) => break reply,
            Err(RecvTimeoutError::Timeout) => traced.tend()?,
            // It goes with its tracer.
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    };
    let served = traced.serve(held).map(|()| pid);
    let is_served = served.is_ok();
    let _ = reply.send(served);
    if !is_served {
        return Ok(());
    }
    traced.detach_others();
    if let Some(first) = rustix::process::Pid::from_raw(traced.first.get()) {
        // A process is waited for by the one that has started it: until then its number is not free.
        let _ = waitid(WaitId::Pid(first), WaitIdOptions::EXITED);
    }
    Ok(())
}

/// A socket for it.
#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    /// Its number there.
    number: RawFd,
}

/// What happens at the end of a call.
#[derive(Clone, Copy, Debug)]
enum AtEnd {
    /// It goes on with this result, and with the registers that it had.
    Answer(i64, Registers),
    /// It has the socket, if the call returned that number.
    Bound(u64, Registers),
    /// It goes on with the result of the call and the registers that it had.
    Put(Registers),
}

/// A thread that is held where it would bind a socket.
#[derive(Clone, Copy, Debug)]
struct Held {
    tid: Tid,
    registers: Registers,
    /// Which of the listeners has that address.
    listener: usize,
}

/// What a thread does at a stop.
enum Step {
    GoesOn,
    Binds(Held),
    Waits(Registers),
}

/// A spare and its threads, as long as it is traced.
struct Traced {
    first: Pid,
    threads: BTreeMap<Tid, Option<AtEnd>>,
    listeners: Vec<Listener>,
    /// Numbers of all that were given to it.
    numbers: std::ops::Range<u64>,
    /// Those that it has taken.
    taken: usize,
    until: Instant,
    is_served: bool,
}

impl Traced {
    fn start(start: &SpareStart, shared: &Shared) -> Result<Traced, LiveError> {
        let failed = |action| move |source| LiveError::Os { action, source };
        let count = start.listeners.len() as u64;
        let end = open_files_limit(start.like).min(NUMBERS_END);
        let numbers = end.saturating_sub(count)..end;
        let number = |at: usize| (numbers.start + at as u64) as RawFd;
        let standard = start.standard.iter().zip(0..);
        let standard = standard
            .map(|(ours, at)| (ours.as_ref().map_or(launch::CLOSED, AsRawFd::as_raw_fd), at));
        let given = start.listeners.iter().enumerate();
        let given = given.map(|(at, listener)| (listener.as_raw_fd(), number(at)));
        let descriptors: Vec<(RawFd, RawFd)> = standard.chain(given).collect();
        if descriptors.iter().any(|(ours, _)| i64::from(*ours) >= numbers.start as i64) {
            let source = io::ErrorKind::QuotaExceeded.into();
            return Err(failed("find room among its open files")(source));
        }
        let likeness = Likeness {
            descriptors,
            user: start.user.clone(),
            umask: start.umask as libc::mode_t,
            ignored: start.ignored,
        };
        let spawned = launch::spawn_like(&start.launch, &likeness)?;
        let (first, tid) = (spawned.pid, spawned.pid.first_thread());
        let begun = || -> Result<(), LiveError> {
            let raw = rustix::process::Pid::from_raw(first.get());
            let handle = raw.map(|pid| pidfd_open(pid, PidfdFlags::empty())).transpose();
            *lock(&shared.handle) =
                handle.map_err(|error| failed("have a handle of it")(error.into()))?;
            be_placed_like(first, start.like).map_err(failed("place it beside the other"))?;
            ptrace::seize(tid, TRACE)
                .map_err(|source| LiveError::NotPermitted { pid: first, source })
        };
        if let Err(error) = begun() {
            // Its pipe is closed without a message, and it ends.
            drop(spawned);
            let _ = ptrace::peek(Some(tid), true).and_then(|_| ptrace::take_end(tid));
            return Err(error);
        }
        let started = spawned.go()?;
        let mut listeners = Vec::new();
        for (at, listener) in start.listeners.iter().enumerate() {
            let address = listener.local_addr().map_err(failed("ask for a socket's address"))?;
            listeners.push(Listener { address, number: number(at) });
        }
        let threads = BTreeMap::from([(tid, None)]);
        let until = Instant::now() + START;
        let (taken, is_served) = (0, false);
        let mut traced = Traced { first, threads, listeners, numbers, taken, until, is_served };
        // It stops when it has executed its program, and has said why if it has not.
        if !traced.executes() {
            let failure = started.failure(&start.launch).map(launch::Failure::into_error);
            return Err(failure.unwrap_or(LiveError::Gone { pid: first }));
        }
        Ok(traced)
    }

    /// Waits until it has executed its program.
    fn executes(&mut self) -> bool {
        while Instant::now() < self.until {
            let report = next_within(LOOKED);
            let Ok(report) = report else { return false };
            let Some(Report { tid, what }) = report else { continue };
            match what {
                What::Stopped { event: libc::PTRACE_EVENT_EXEC, .. } => {
                    return ptrace::cont_to_system_call(tid).is_ok();
                }
                What::Stopped { signal, event } => {
                    let signal = if event == 0 { signal } else { 0 };
                    let _ = ptrace::cont(tid, signal);
                }
                What::Exited { .. } | What::Killed { .. } => {
                    let _ = ptrace::take_end(tid);
                    return false;
                }
            }
        }
        false
    }

    /// Lets it run until a thread would bind a socket to an address of those that it is to have.
    fn come_to_socket(&mut self) -> Result<Held, String> {
        loop {
            if Instant::now() >= self.until {
                return Err(format!(
                    "it has not come to bind {} within {START:?}",
                    self.addresses()
                ));
            }
            let Some(Report { tid, what }) = next_within(LOOKED).map_err(lost)? else { continue };
            match self.step(tid, what, true)? {
                Step::Binds(held) => return Ok(held),
                Step::Waits(_) => drop(ptrace::cont_to_system_call(tid)),
                Step::GoesOn => {}
            }
        }
    }

    fn addresses(&self) -> String {
        let all: Vec<String> = self.listeners.iter().map(|one| one.address.to_string()).collect();
        all.join(", ")
    }

    /// Its process, once what it has started beside has ended.
    fn alone(&mut self) -> Result<Pid, String> {
        let until = Instant::now() + HELPERS_END;
        loop {
            let processes = self.processes();
            if let (Some(one), 1) = (processes.first(), processes.len()) {
                return Ok(*one);
            }
            if Instant::now() >= until {
                let others = processes.len().saturating_sub(1);
                return Err(format!("it has {others} other processes before it listens"));
            }
            self.tend()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn processes(&self) -> BTreeSet<Pid> {
        self.threads.keys().filter_map(|tid| process_of(*tid)).collect()
    }

    /// Lets those of its threads that have stopped go on. The one that is held does not.
    fn tend(&mut self) -> Result<(), String> {
        while let Some(Report { tid, what }) = ptrace::report(None).map_err(lost)? {
            self.step(tid, what, false)?;
        }
        Ok(())
    }

    /// What a thread has stopped for, or ended by. It goes on, up to its next call if `calls`.
    fn step(&mut self, tid: Tid, what: What, calls: bool) -> Result<Step, String> {
        let (signal, event) = match what {
            What::Stopped { signal, event } => (signal, event),
            What::Exited { .. } | What::Killed { .. } => {
                let _ = ptrace::take_end(tid);
                self.threads.remove(&tid);
                return match self.threads.is_empty() {
                    true => Err(format!("it has ended before it listened: {}", end(what))),
                    false => Ok(Step::GoesOn),
                };
            }
        };
        let at_end = self.threads.entry(tid).or_default();
        let go_on = |signal| match calls {
            true => ptrace::cont_to_system_call_with(tid, signal),
            false => ptrace::cont(tid, signal),
        };
        match (signal, event) {
            (ptrace::SYSTEM_CALL, 0) => {
                let at_beginning = ptrace::is_at_beginning(tid);
                let Ok(registers) = ptrace::registers(tid) else { return Ok(Step::GoesOn) };
                if at_beginning == Some(false) {
                    if let Some(at_end) = at_end.take() {
                        ended_call(tid, at_end, registers)?;
                    }
                } else if calls {
                    if at_beginning.is_none() {
                        return Err("Linux says which stop it is at since 5.3".into());
                    }
                    if let Some(step) = self.begins_call(tid, registers) {
                        return Ok(step);
                    }
                }
                let _ = go_on(0);
            }
            (signal, 0) => drop(go_on(signal)),
            (signal, ptrace::EVENT_STOP) if signal != libc::SIGTRAP => drop(ptrace::listen(tid)),
            _ => drop(go_on(0)),
        }
        Ok(Step::GoesOn)
    }

    /// A call that a thread is about to make; none if it is of no interest.
    fn begins_call(&mut self, tid: Tid, registers: Registers) -> Option<Step> {
        let changed = |answer: Option<i64>, changed: Registers| {
            let at_end = match answer {
                Some(answer) => AtEnd::Answer(answer, registers),
                None => AtEnd::Put(registers),
            };
            ptrace::set_registers(tid, &changed).ok().map(|()| at_end)
        };
        let skipped = Registers { orig_rax: u64::MAX, ..registers };
        let at_end = match registers.orig_rax as c_long {
            libc::SYS_bind => {
                let address = self.address(tid, registers.rsi, registers.rdx)?;
                let listener = self.listeners.iter().position(|one| one.address == address)?;
                return Some(Step::Binds(Held { tid, registers, listener }));
            }
            // What is not its own it has not opened.
            libc::SYS_close if self.numbers.contains(&registers.rdi) => {
                changed(Some(-i64::from(libc::EBADF)), skipped)
            }
            libc::SYS_close_range => {
                let (from, to) = (registers.rdi, registers.rsi & u64::from(u32::MAX));
                let (first, last) = (self.numbers.start, self.numbers.end - 1);
                match () {
                    () if to < first || from > last => return None,
                    () if from < first => changed(None, Registers { rsi: first - 1, ..registers }),
                    () if to > last => changed(None, Registers { rdi: last + 1, ..registers }),
                    () => changed(Some(0), skipped),
                }
            }
            call if self.has_all() || WAITING.contains(&call) => {
                return Some(Step::Waits(registers));
            }
            _ => None,
        };
        if let (Some(at_end), Some(thread)) = (at_end, self.threads.get_mut(&tid)) {
            *thread = Some(at_end);
        }
        None
    }

    /// The address that a call names.
    fn address(&self, tid: Tid, at: u64, len: u64) -> Option<SocketAddr> {
        let mut bytes = vec![0; usize::try_from(len).ok()?.min(128)];
        Memory::open(process_of(tid)?).ok()?.read_exact(LiveAddr(at), &mut bytes).ok()?;
        address_of(&bytes)
    }

    /// Whether there is no other socket that it may take.
    fn has_all(&self) -> bool {
        self.taken >= self.listeners.len()
    }

    /// Gives it its sockets, and lets it go.
    fn serve(&mut self, held: Held) -> Result<(), String> {
        self.until = Instant::now() + SERVE;
        self.bind(held)?;
        // Its other threads may bind the others.
        let all = !self.has_all();
        if all {
            self.interrupt(|tid| tid != held.tid);
        }
        let mut settled = Instant::now() + SETTLED;
        let registers = loop {
            let Some(Report { tid, what }) = next_within(LOOKED).map_err(lost)? else {
                if Instant::now() >= settled {
                    // It stops at the beginning of its call once more.
                    self.taken = self.listeners.len();
                    self.interrupt(|tid| tid == held.tid);
                }
                self.in_time()?;
                continue;
            };
            match self.step(tid, what, all || tid == held.tid)? {
                Step::Binds(held) => {
                    self.bind(held)?;
                    settled = Instant::now() + SETTLED;
                }
                Step::Waits(registers) if tid == held.tid => break registers,
                Step::Waits(_) => drop(ptrace::cont_to_system_call(tid)),
                Step::GoesOn => {}
            }
        };
        self.close_rest(held.tid, registers)?;
        ptrace::detach(held.tid, 0).map_err(lost)?;
        self.threads.remove(&held.tid);
        self.is_served = true;
        Ok(())
    }

    fn in_time(&self) -> Result<(), String> {
        match Instant::now() < self.until {
            true => Ok(()),
            false => Err(format!("it does not serve after {SERVE:?}")),
        }
    }

    /// Asks threads to stop.
    fn interrupt(&self, which: impl Fn(Tid) -> bool) {
        for tid in self.threads.keys().filter(|tid| which(**tid)) {
            let _ = ptrace::interrupt(*tid);
        }
    }

    /// Makes the call by which it would bind its socket one that puts the other process's in its place.
    fn bind(&mut self, held: Held) -> Result<(), String> {
        let Held { tid, registers, listener } = held;
        let listener = self.listeners.get(listener).ok_or("it has no such socket")?;
        let number = listener.number as u64;
        let close_on_exec = closes_on_exec(tid, registers.rdi);
        let flags = if close_on_exec { libc::O_CLOEXEC as u64 } else { 0 };
        let orig_rax = libc::SYS_dup3 as u64;
        let (rdi, rsi, rdx) = (number, registers.rdi, flags);
        let call = Registers { orig_rax, rdi, rsi, rdx, ..registers };
        ptrace::set_registers(tid, &call).map_err(lost)?;
        self.threads.insert(tid, Some(AtEnd::Bound(registers.rdi, registers)));
        self.taken += 1;
        ptrace::cont_to_system_call(tid).map_err(lost)
    }

    /// Closes what it was given besides, by a thread that is about to make a call, and is again when this returns.
    fn close_rest(&mut self, tid: Tid, registers: Registers) -> Result<(), String> {
        let orig_rax = libc::SYS_close_range as u64;
        let (rdi, rsi, rdx) = (self.numbers.start, self.numbers.end - 1, 0);
        let call = Registers { orig_rax, rdi, rsi, rdx, ..registers };
        ptrace::set_registers(tid, &call).map_err(lost)?;
        ptrace::cont_to_system_call(tid).map_err(lost)?;
        self.stopped_at_call(tid)?;
        // The call that it was about to make, once more: `syscall` takes two bytes.
        let again = Registers { rip: registers.rip - 2, rax: registers.orig_rax, ..registers };
        ptrace::set_registers(tid, &again).map_err(lost)?;
        ptrace::cont_to_system_call(tid).map_err(lost)?;
        self.stopped_at_call(tid)
    }

    /// Waits until a thread stops at the beginning or the end of a call.
    fn stopped_at_call(&mut self, tid: Tid) -> Result<(), String> {
        loop {
            self.in_time()?;
            let Some(report) = next_within(LOOKED).map_err(lost)? else { continue };
            match report.what {
                What::Stopped { signal: ptrace::SYSTEM_CALL, event: 0 } if report.tid == tid => {
                    return Ok(());
                }
                what => {
                    self.step(report.tid, what, report.tid == tid)?;
                }
            }
        }
    }

    /// Lets all other threads go, once they stop for that: who waits for a device does when it has what it waited for.
    fn detach_others(&mut self) {
        self.interrupt(|_| true);
        while !self.threads.is_empty() {
            let Ok(Some(Report { tid, what })) = next_within(LOOKED) else {
                self.threads.retain(|tid, _| process_of(*tid).is_some());
                continue;
            };
            match what {
                What::Stopped {
                    event:
                        libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK,
                    ..
                } => {
                    let child = ptrace::event_message(tid).ok();
                    let child = child.and_then(|child| Tid::try_from(child).ok());
                    self.threads.extend(child.map(|child| (child, None)));
                    let _ = ptrace::detach(tid, 0);
                }
                What::Stopped { signal, event } => {
                    let is_signal = event == 0 && signal != ptrace::SYSTEM_CALL;
                    let _ = ptrace::detach(tid, if is_signal { signal } else { 0 });
                }
                What::Exited { .. } | What::Killed { .. } => {
                    let _ = ptrace::take_end(tid);
                }
            }
            self.threads.remove(&tid);
        }
    }
}

impl Drop for Traced {
    /// What does not serve ends.
    fn drop(&mut self) {
        if self.is_served {
            return;
        }
        for pid in self.processes() {
            // None of them has been waited for, so that no other process has its number.
            let pid = rustix::process::Pid::from_raw(pid.get());
            let _ = pid.map(|pid| rustix::process::kill_process(pid, Signal::KILL));
        }
        let until = Instant::now() + SERVE;
        while !self.threads.is_empty() && Instant::now() < until {
            match next_within(LOOKED) {
                Ok(Some(Report { tid, what })) if what.is_end() => {
                    let _ = ptrace::take_end(tid);
                    self.threads.remove(&tid);
                }
                Ok(Some(Report { tid, .. })) => drop(ptrace::cont(tid, 0)),
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }
}

/// The end of a call of ours.
fn ended_call(tid: Tid, at_end: AtEnd, now: Registers) -> Result<(), String> {
    let (rax, before) = match at_end {
        AtEnd::Answer(answer, before) => (answer as u64, before),
        AtEnd::Put(before) => (now.rax, before),
        AtEnd::Bound(number, before) if now.rax == number => (0, before),
        AtEnd::Bound(..) => {
            let error = io::Error::from_raw_os_error((now.rax as i64).wrapping_neg() as i32);
            return Err(format!("it cannot be given its socket: {error}"));
        }
    };
    let Registers { rdi, rsi, rdx, .. } = before;
    ptrace::set_registers(tid, &Registers { rax, rdi, rsi, rdx, ..now }).map_err(lost)
}

fn lost(error: io::Error) -> String {
    format!("it cannot be followed: {error}")
}

fn end(what: What) -> String {
    match what {
        What::Killed { signal, .. } => format!("signal {signal}"),
        What::Exited { code } => format!("exit status {code}"),
        What::Stopped { .. } => "stopped".into(),
    }
}

/// The next report of any thread of ours, which is then ours to answer, if there is one within that time.
fn next_within(time: Duration) -> io::Result<Option<Report>> {
    let until = Instant::now() + time;
    let mut looks = 0u32;
    loop {
        if let Some(report) = ptrace::report(None)? {
            return Ok(Some(report));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        looks += 1;
        match looks {
            0..200 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}

/// The process that a thread belongs to.
fn process_of(tid: Tid) -> Option<Pid> {
    let status = maps::read_proc(&format!("/proc/{tid}/status")).ok()?;
    Pid::try_from(u32::try_from(maps::status_field(&status, "Tgid:")?).ok()?).ok()
}

/// Whether a descriptor of a process is closed when it executes another program.
fn closes_on_exec(tid: Tid, number: u64) -> bool {
    let text = fs::read_to_string(format!("/proc/{tid}/fdinfo/{number}")).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_CLOEXEC != 0)
}

/// A socket's address as `bind(2)` takes it: of the internet's two kinds alone.
fn address_of(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match family {
        libc::AF_INET => {
            let address: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some((IpAddr::from(Ipv4Addr::from(address)), port).into())
        }
        libc::AF_INET6 => {
            let address: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some((IpAddr::from(Ipv6Addr::from(address)), port).into())
        }
        _ => None,
    }
}

/// How many files a process may have open.
fn open_files_limit(pid: Pid) -> u64 {
    limit(pid, libc::RLIMIT_NOFILE, None).map_or(1024, |limit| limit.rlim_cur)
}

/// A process's limit, and a new one.
fn limit(
    pid: Pid,
    of: libc::__rlimit_resource_t,
    new: Option<&libc::rlimit>,
) -> Option<libc::rlimit> {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel reads one value of ours, if there is one, and writes another.
    let done = unsafe { libc::prlimit(pid.get(), of, new, &mut old) };
    (done == 0).then_some(old)
}

/// Gives a process the limits, the processors and the priority of another one as far as we may, and its control group.
fn be_placed_like(pid: Pid, like: Pid) -> io::Result<()> {
    for of in 0..LIMITS {
        if let Some(its) = limit(like, of, None) {
            limit(pid, of, Some(&its));
        }
    }
    let [own, its] = [pid, like].map(|pid| rustix::process::Pid::from_raw(pid.get()));
    if let Ok(processors) = rustix::thread::sched_getaffinity(its) {
        let _ = rustix::thread::sched_setaffinity(own, &processors);
    }
    if let Ok(priority) = rustix::process::getpriority_process(its) {
        let _ = rustix::process::setpriority_process(own, priority);
    }
    let group = |pid: Pid| fs::read_to_string(format!("/proc/{pid}/cgroup"));
    let its = group(like)?;
    if group(pid)? == its {
        return Ok(());
    }
    // In our own group it would end with us, where we are a service.
    if let Some(path) = its.lines().find_map(|line| line.strip_prefix("0::/")) {
        let file = format!("/sys/fs/cgroup/{path}/cgroup.procs");
        fs::write(file, pid.to_string())?;
    }
    match group(pid)? == its {
        true => Ok(()),
        false => Err(io::Error::other("it is in another control group")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them() {
        let one = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(address_of(&one), "127.0.0.1:8080".parse().ok());
        let mut six = [0u8; 28];
        six[..4].copy_from_slice(&[10, 0, 0, 80]);
        assert_eq!(address_of(&six), "[::]:80".parse().ok());
        for len in 0..8 {
            assert_eq!(address_of(&one[..len]), None);
        }
        assert_eq!(address_of(&[1, 0, b'/', b'x', 0, 0, 0, 0]), None, "a UNIX socket");
    }
}
