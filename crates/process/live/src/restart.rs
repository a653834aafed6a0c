//! System calls that a stop would end, and that are restarted.

use std::io;
use std::time::Instant;

use fettle_types::Tid;

use crate::maps;
use crate::patience::{Patience, patience_of};
use crate::ptrace::{self, Registers, Report, SYSTEM_CALL, What};

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

/// The same of a thread that has stopped at the end of such a call, before the kernel looks for signals. It looks only if
/// there may be one, so that it is asked to.
fn take_up_call_at_end(tid: Tid) {
    let Ok(mut registers) = ptrace::registers(tid) else { return };
    let ended = patience(&registers) == Some(Patience::Endless) && registers.rax as i64 == EINTR;
    if ended && ptrace::interrupt(tid).is_ok() {
        registers.rax = ERESTARTNOHAND as u64;
        let _ = ptrace::set_registers(tid, &registers);
    }
}

/// Why a thread does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It was asked to stop.
    Asked,
    /// Its process is stopped, as by SIGSTOP.
    Group,
    /// It is at the beginning or at the end of a system call.
    AtCall,
    /// It is about to be given this signal.
    Signal(i32),
    /// It has ended, and is gone.
    Ended,
}

/// What the kernel reports of a thread, or of any, without waiting for it. If it is a stop that would end a system call,
/// the call is set up so that it goes on: how the thread does is the caller's choice.
pub(crate) fn take_up_next(tid: Option<Tid>) -> io::Result<Option<(Tid, Stop)>> {
    let Some(Report { tid, what }) = ptrace::report(tid)? else { return Ok(None) };
    let stop = match what {
        What::Exited { .. } | What::Killed { .. } => {
            let _ = ptrace::take_end(tid);
            Stop::Ended
        }
        What::Stopped { signal, event: ptrace::EVENT_STOP } => {
            take_up_call(tid);
            if signal == libc::SIGTRAP { Stop::Asked } else { Stop::Group }
        }
        What::Stopped { signal: SYSTEM_CALL, event: 0 } => {
            take_up_call_at_end(tid);
            Stop::AtCall
        }
        What::Stopped { signal, .. } => {
            take_up_call_at_signal(tid, signal, &mut None);
            Stop::Signal(signal)
        }
    };
    Ok(Some((tid, stop)))
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
