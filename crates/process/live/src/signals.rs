//! Signals to this process itself, while a program runs under it.
//!
//! The program belongs to the same process group, so what the terminal sends (Ctrl-C, Ctrl-\,
//! Ctrl-Z, hang-up) reaches it without us, and must not be sent twice: an interactive program would
//! take a repeated interrupt for the user's impatience. Only before there is a program, while
//! Fettle looks for it, does such a signal reach Fettle alone: then it is kept for the program. A
//! signal that is sent to this process alone, by `kill`, is meant for the program, and is
//! forwarded. That goes for signals, too, that this process was started with ignored (`nohup`, or
//! `&` in a script): the program inherits that, but it may have a handler of its own by then.
//!
//! Ctrl-Z stops the program; when it has stopped, and only then, we stop too, so that the shell
//! sees its job stop and takes the terminal back. A program that catches the signal in order to
//! tidy the screen can do so, since we are still there to let it run.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use fettle_types::{Pid, Tid};
use libc::c_int;

/// A terminating signal has come.
static STOP: AtomicBool = AtomicBool::new(false);
/// Signals to be forwarded: bit `n` for signal `n`.
static FORWARD: AtomicU64 = AtomicU64::new(0);
/// Signals that this process was started with ignored, and has a handler for: bit `n` for signal `n`.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// The program's process is there: it gets what the terminal sends.
static IS_THERE: AtomicBool = AtomicBool::new(false);
/// The terminal asks its foreground job to stop.
static JOB_STOP: AtomicBool = AtomicBool::new(false);
/// [`catch_signals`] has been called.
static CAUGHT: AtomicBool = AtomicBool::new(false);

const ENDING: [c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
const STOPPING: [c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Makes Ctrl-C, SIGTERM and the like end the program, and not this process before it: call it
/// once before [`run`](crate::run), and give [`RunOptions`](crate::RunOptions) the flag that it
/// returns. The flag is set by the first such signal.
///
/// Signals that this process was started with ignored (`nohup`) end nothing: they are only forwarded.
pub fn catch_signals() -> io::Result<&'static AtomicBool> {
    for signal in ENDING {
        if is_ignored(signal)? {
            IGNORED.fetch_or(1 << signal, Ordering::Relaxed);
            set(signal, on_ignored)?;
        } else {
            set(signal, on_ending)?;
        }
    }
    // A limit on the size of files is an error of the writer, not our end. The program that we
    // start has the signal as it was: `exec` resets handlers.
    install(libc::SIGXFSZ, on_nothing)?;
    CAUGHT.store(true, Ordering::Relaxed);
    Ok(&STOP)
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);

extern "C" fn on_ending(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    STOP.store(true, Ordering::Relaxed);
    on_ignored(signal, info, context);
}

extern "C" fn on_ignored(signal: c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure to handlers installed with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    if code != libc::SI_KERNEL || !IS_THERE.load(Ordering::Relaxed) {
        FORWARD.fetch_or(1 << signal, Ordering::Relaxed);
    }
}

extern "C" fn on_stopping(_: c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    JOB_STOP.store(true, Ordering::Relaxed);
}

extern "C" fn on_nothing(_: c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

/// Whether a signal is ignored, here and now.
fn is_ignored(signal: c_int) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the old one into our value.
    match unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: it was filled in, and is all integers.
        _ => Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN),
    }
}

/// Resets a child's signal actions before its exec to those that this process was started with:
/// ignored, or the default where this process has handlers. It only makes calls that are safe after
/// a fork.
pub(crate) fn as_at_start() {
    if !CAUGHT.load(Ordering::Relaxed) {
        return;
    }
    let ignored = IGNORED.load(Ordering::Relaxed);
    for signal in ENDING {
        let action = if ignored & (1 << signal) != 0 { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: takes numbers only.
        unsafe { libc::signal(signal, action) };
    }
}

/// The child is there, and gets what the terminal sends from now on.
pub(crate) fn child_is_there() {
    IS_THERE.store(true, Ordering::Relaxed);
}

/// While this exists, signals that end a program are blocked in this thread, and so in a child that
/// it forks, so that handlers of ours do not run there. Restores the mask when it is dropped.
pub(crate) struct HeldBack(libc::sigset_t);

impl HeldBack {
    pub(crate) fn new() -> HeldBack {
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both sets are ours; the old one is all integers, and is filled in.
        unsafe {
            let mut set = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
            libc::sigemptyset(&mut set);
            for signal in ENDING {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, before.as_mut_ptr());
            HeldBack(before.assume_init())
        }
    }

    /// The signals that this thread blocked before.
    pub(crate) fn before(&self) -> libc::sigset_t {
        self.0
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        // SAFETY: only reads our set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

/// Installs a handler, unless the signal is ignored.
fn install(signal: c_int, handler: Handler) -> io::Result<()> {
    if is_ignored(signal)? { Ok(()) } else { set(signal, handler) }
}

/// Installs a handler that interrupts system calls.
fn set(signal: c_int, handler: Handler) -> io::Result<()> {
    set_with(signal, handler, 0)
}

/// Installs a handler with these flags.
fn set_with(signal: c_int, handler: Handler, flags: c_int) -> io::Result<()> {
    // SAFETY: the action is all integers, and names a handler that only touches atomics and makes calls
    // that are safe at any point of the program.
    let result = unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(signal, &action, ptr::null_mut())
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set_default(signal: c_int) {
    // SAFETY: the default action runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Forwards to the program what was meant for it.
pub(crate) fn forward(pid: Pid) {
    if FORWARD.load(Ordering::Relaxed) == 0 {
        return;
    }
    let signals = FORWARD.swap(0, Ordering::Relaxed);
    for signal in ENDING.into_iter().filter(|signal| signals & (1 << signal) != 0) {
        // SAFETY: takes numbers only. The process is our child and not waited for yet.
        unsafe { libc::kill(pid.get(), signal) };
    }
}

/// How many pauses of processes are in progress, and, in the bits above, what the terminal wants.
static PAUSES: AtomicU32 = AtomicU32::new(0);
/// The terminal wants us to stop when no pause is in progress.
const STOP_WANTED: u32 = 1 << 30;
/// We are about to stop: no pause may begin.
const STOPPING_NOW: u32 = 1 << 31;
/// The signal that stops us.
static STOP_BY: AtomicI32 = AtomicI32::new(0);

/// Has Ctrl-Z, and the like, stop this process between pauses only: a process that is paused for us
/// would stay stopped until we are continued. Call it once where no program is run
/// ([`run`](crate::run)).
///
/// # Errors
///
/// When a handler cannot be installed.
pub fn stop_between_pauses() -> io::Result<()> {
    for signal in STOPPING {
        if !is_ignored(signal)? {
            set_with(signal, on_stop_wanted, libc::SA_RESTART | libc::SA_NODEFER)?;
        }
    }
    Ok(())
}

extern "C" fn on_stop_wanted(signal: c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    STOP_BY.store(signal, Ordering::Relaxed);
    PAUSES.fetch_or(STOP_WANTED, Ordering::SeqCst);
    stop_if_wanted();
}

/// Stops, if that is wanted and no pause is in progress. It only makes async-signal-safe calls.
fn stop_if_wanted() {
    let order = Ordering::SeqCst;
    if PAUSES.compare_exchange(STOP_WANTED, STOPPING_NOW, order, order).is_err() {
        return;
    }
    // The kernel does not stop an orphaned process group, which no shell would continue.
    let signal = STOP_BY.load(Ordering::Relaxed);
    set_default(signal);
    // SAFETY: takes a number only. Returns when this process has been continued.
    unsafe { libc::raise(signal) };
    let _ = set_with(signal, on_stop_wanted, libc::SA_RESTART | libc::SA_NODEFER);
    PAUSES.fetch_and(!(STOPPING_NOW | STOP_WANTED), order);
}

/// While this exists, a process may be paused for us.
pub(crate) struct NoStop(());

impl NoStop {
    pub(crate) fn begin() -> NoStop {
        let order = Ordering::SeqCst;
        let one_more = |all| (all & STOPPING_NOW == 0).then_some(all + 1);
        while PAUSES.fetch_update(order, order, one_more).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        NoStop(())
    }
}

impl Drop for NoStop {
    fn drop(&mut self) {
        PAUSES.fetch_sub(1, Ordering::SeqCst);
        stop_if_wanted();
    }
}

/// While this exists, Ctrl-Z waits for the program to stop first.
pub(crate) struct JobControl(bool);

impl JobControl {
    pub(crate) fn new() -> io::Result<JobControl> {
        let wanted = CAUGHT.load(Ordering::Relaxed);
        if wanted {
            for signal in STOPPING {
                install(signal, on_stopping)?;
            }
        }
        Ok(JobControl(wanted))
    }

    /// The program has stopped by `signal`: stop with it if the terminal wants that.
    pub(crate) fn program_stopped(&self, signal: i32) {
        if !self.0 || !STOPPING.contains(&signal) || !JOB_STOP.swap(false, Ordering::Relaxed) {
            return;
        }
        set_default(signal);
        // SAFETY: takes a number only. Returns when this process has been continued.
        unsafe { libc::raise(signal) };
        let _ = install(signal, on_stopping);
    }
}

impl Drop for JobControl {
    fn drop(&mut self) {
        for signal in STOPPING.into_iter().filter(|_| self.0) {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: only writes the present action into our value.
            let ours = unsafe {
                libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
                action.assume_init().sa_sigaction == on_stopping as Handler as usize
            };
            if ours {
                set_default(signal);
            }
        }
    }
}

/// The signal of [`Ticker`]. The highest are the least likely to be used by others.
fn tick() -> c_int {
    libc::SIGRTMAX() - 3
}

/// Interrupts the wait of a thread of ours that has a [`Ticker`]; a little later if it is only
/// about to wait.
pub(crate) fn wake(tid: Tid) {
    let _ = crate::ptrace::tgkill(Pid::own(), tid, tick());
}

/// A timer that interrupts this thread's wait again and again.
pub(crate) struct Ticker(libc::timer_t);

impl Ticker {
    pub(crate) fn new(period: std::time::Duration) -> io::Result<Ticker> {
        let signal = tick();
        install(signal, on_nothing)?;
        let time = libc::timespec {
            tv_sec: period.as_secs() as libc::time_t,
            tv_nsec: period.subsec_nanos().into(),
        };
        let times = libc::itimerspec { it_interval: time, it_value: time };
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: all pointers lead to values of ours; the event names this thread, which owns
        // the timer and deletes it.
        unsafe {
            let mut set = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
            libc::sigaddset(&mut set, signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            if libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) == -1
                || libc::timer_settime(timer, 0, &times, ptr::null_mut()) == -1
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Ticker(timer))
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // SAFETY: the timer is ours and deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}
