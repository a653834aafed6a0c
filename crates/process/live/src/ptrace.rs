//! Thin safe wrappers of ptrace and of the few system calls around it.
//!
//! Every request here names another thread that this thread traces; the kernel checks that, and
//! fails with ESRCH when the tracee runs, has ended, or is not ours. Requests that make the kernel
//! write into our memory get memory that we own, so none of them can harm this process.

use std::io;
use std::mem::{self, MaybeUninit};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fettle_types::{Pid, Tid};
use libc::{c_int, c_long, c_uint};

use crate::exit_status::ExitStatus;

/// General registers of a stopped thread, `gs_base` and `fs_base` among them.
pub(crate) type Registers = libc::user_regs_struct;

/// Event of a stop that is not about a signal: PTRACE_INTERRUPT, a new tracee's first stop, a
/// group stop, or its end.
pub(crate) const EVENT_STOP: c_int = 128;
/// Marks stops at system calls by bit 7 of the signal.
pub(crate) const O_SYSGOOD: c_int = 1;
/// The signal of such a stop.
pub(crate) const SYSTEM_CALL: c_int = libc::SIGTRAP | 0x80;
pub(crate) const O_SUSPEND_SECCOMP: c_int = 1 << 21;
const PTRACE_SEIZE: c_uint = 0x4206;
const PTRACE_INTERRUPT: c_uint = 0x4207;
const PTRACE_LISTEN: c_uint = 0x4208;
const PTRACE_GETSIGMASK: c_uint = 0x420a;
const PTRACE_SETSIGMASK: c_uint = 0x420b;
const PTRACE_GET_SYSCALL_INFO: c_uint = 0x420e;
const PTRACE_GET_RSEQ_CONFIGURATION: c_uint = 0x420f;

fn request(request: c_uint, tid: Tid, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the callers pass as `data` a number, or the address of an own value of the size
    // that the request wants; the kernel checks everything else.
    let result = unsafe { libc::ptrace(request, tid.get(), address, data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Begins to trace without stopping the thread.
pub(crate) fn seize(tid: Tid, options: c_int) -> io::Result<()> {
    request(PTRACE_SEIZE, tid, 0, options as usize)
}

/// Changes the options that [`seize`] set.
pub(crate) fn set_options(tid: Tid, options: c_int) -> io::Result<()> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, options as usize)
}

/// Lets a stopped thread run, delivering `signal` unless it is 0.
pub(crate) fn cont(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize)
}

/// Lets a stopped thread run up to the beginning or end of a system call.
pub(crate) fn cont_to_system_call(tid: Tid) -> io::Result<()> {
    cont_to_system_call_with(tid, 0)
}

/// The same, delivering `signal` unless it is 0.
pub(crate) fn cont_to_system_call_with(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize)
}

/// Leaves a thread in its group stop until SIGCONT.
pub(crate) fn listen(tid: Tid) -> io::Result<()> {
    request(PTRACE_LISTEN, tid, 0, 0)
}

/// Asks a running thread to stop.
pub(crate) fn interrupt(tid: Tid) -> io::Result<()> {
    request(PTRACE_INTERRUPT, tid, 0, 0)
}

/// Detaches a stopped thread, delivering `signal` unless it is 0.
pub(crate) fn detach(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize)
}

/// The number that belongs to an event: the new thread's id, or the old id at exec.
pub(crate) fn event_message(tid: Tid) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message as usize)?;
    Ok(message)
}

/// Reads the general registers.
pub(crate) fn registers(tid: Tid) -> io::Result<Registers> {
    let mut registers = MaybeUninit::<Registers>::zeroed();
    request(libc::PTRACE_GETREGS, tid, 0, registers.as_mut_ptr() as usize)?;
    // SAFETY: the kernel has filled the structure, which is all integers.
    Ok(unsafe { registers.assume_init() })
}

/// Writes the general registers.
pub(crate) fn set_registers(tid: Tid, registers: &Registers) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, tid, 0, std::ptr::from_ref::<Registers>(registers) as usize)
}

/// Sets the base of the gs segment alone.
pub(crate) fn set_gs_base(tid: Tid, base: u64) -> io::Result<()> {
    let offset = mem::offset_of!(Registers, gs_base);
    request(libc::PTRACE_POKEUSER, tid, offset, base as usize)
}

/// Where the general registers are among [`Registers`], in the order of [`general`].
const GENERAL: [usize; 16] = [
    mem::offset_of!(Registers, rip),
    mem::offset_of!(Registers, rcx),
    mem::offset_of!(Registers, rax),
    mem::offset_of!(Registers, rbx),
    mem::offset_of!(Registers, rdx),
    mem::offset_of!(Registers, rsi),
    mem::offset_of!(Registers, rdi),
    mem::offset_of!(Registers, rbp),
    mem::offset_of!(Registers, r8),
    mem::offset_of!(Registers, r9),
    mem::offset_of!(Registers, r10),
    mem::offset_of!(Registers, r11),
    mem::offset_of!(Registers, r12),
    mem::offset_of!(Registers, r13),
    mem::offset_of!(Registers, r14),
    mem::offset_of!(Registers, r15),
];

/// The general registers: the program counter, `rcx`, the others; all but the stack pointer.
pub(crate) fn general(r: &Registers) -> [u64; 16] {
    [
        r.rip, r.rcx, r.rax, r.rbx, r.rdx, r.rsi, r.rdi, r.rbp, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ]
}

/// Sets one of the general registers, by its index among those of [`general`].
pub(crate) fn set_general(tid: Tid, index: usize, value: u64) -> io::Result<()> {
    request(libc::PTRACE_POKEUSER, tid, GENERAL[index], value as usize)
}

/// A thread's floating-point state.
pub(crate) struct FloatingPoint {
    /// Its legacy area (`fxsave`), with zeros in the part that is reserved for software.
    pub legacy: [u8; 512],
    /// Whether it has set rights for memory with protection keys.
    pub has_protection_keys: bool,
}

/// Reads the floating-point state.
pub(crate) fn floating_point(tid: Tid) -> io::Result<FloatingPoint> {
    const FOR_SOFTWARE: usize = 464;
    // Either grants all rights, or what the kernel grants by default: none for any key but the
    // first.
    const COMMON_RIGHTS: [u32; 2] = [0, 0x5555_5554];
    let mut legacy = [0; 512];
    request(libc::PTRACE_GETFPREGS, tid, 0, legacy.as_mut_ptr() as usize)?;
    legacy[FOR_SOFTWARE..].fill(0);
    let rights = protection_rights(tid)?;
    Ok(FloatingPoint { legacy, has_protection_keys: !COMMON_RIGHTS.contains(&rights) })
}

/// A thread's PKRU register; 0 where the processor has none.
fn protection_rights(tid: Tid) -> io::Result<u32> {
    const NT_X86_XSTATE: usize = 0x202;
    const PKRU: u32 = 9;
    // Intel SDM 1, 13.2: size and offset of a component of the state.
    let component = std::arch::x86_64::__cpuid_count(0xd, PKRU);
    if component.eax == 0 {
        return Ok(0);
    }
    let at = component.ebx as usize;
    let mut state = vec![0u8; at + 8];
    let mut piece = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
    request(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &raw mut piece as usize)?;
    Ok(u32::from_le_bytes(state[at..at + 4].try_into().expect("four bytes")))
}

/// The blocked signals: bit `n - 1` for signal `n`.
pub(crate) fn blocked_signals(tid: Tid) -> io::Result<u64> {
    let mut mask = 0u64;
    request(PTRACE_GETSIGMASK, tid, mem::size_of::<u64>(), &raw mut mask as usize)?;
    Ok(mask)
}

/// Sets the blocked signals.
pub(crate) fn set_blocked_signals(tid: Tid, mask: u64) -> io::Result<()> {
    request(PTRACE_SETSIGMASK, tid, mem::size_of::<u64>(), &raw const mask as usize)
}

/// The address of a thread's `struct rseq`, if it has registered one and the kernel says so.
pub(crate) fn rseq_area(tid: Tid) -> Option<u64> {
    // address, size, signature, flags, padding
    let mut configuration = [0u64; 3];
    let (size, to) = (mem::size_of_val(&configuration), configuration.as_mut_ptr());
    request(PTRACE_GET_RSEQ_CONFIGURATION, tid, size, to as usize).ok()?;
    Some(configuration[0]).filter(|address| *address != 0)
}

/// Whether a thread that has stopped at a system call is at its beginning, not at its end; `None` if the
/// kernel does not say.
pub(crate) fn is_at_beginning(tid: Tid) -> Option<bool> {
    // struct ptrace_syscall_info, whose first byte says which.
    let mut about = [0u64; 11];
    let (size, to) = (mem::size_of_val(&about), about.as_mut_ptr());
    request(PTRACE_GET_SYSCALL_INFO, tid, size, to as usize).ok()?;
    match about[0] as u8 {
        1 => Some(true),
        2 => Some(false),
        _ => None,
    }
}

/// Writes one word even where the process itself may not.
pub(crate) fn poke(tid: Tid, address: u64, word: u64) -> io::Result<()> {
    request(libc::PTRACE_POKEDATA, tid, address as usize, word as usize)
}

/// Sends a signal to one thread.
pub(crate) fn tgkill(pid: Pid, tid: Tid, signal: i32) -> io::Result<()> {
    // SAFETY: takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, pid.get(), tid.get(), signal) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether two threads share their address space; `None` if the kernel cannot say.
pub(crate) fn same_memory(one: Tid, other: Tid) -> Option<bool> {
    const KCMP_VM: c_long = 1;
    // SAFETY: takes numbers only.
    match unsafe { libc::syscall(libc::SYS_kcmp, one.get(), other.get(), KCMP_VM, 0, 0) } {
        0 => Some(true),
        -1 => None,
        _ => Some(false),
    }
}

/// What a wait reported of a thread that is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub tid: Tid,
    pub what: What,
}

/// How a thread ended or why it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Exited { code: i32 },
    Killed { signal: i32, core: bool },
    Stopped { signal: i32, event: i32 },
}

impl What {
    pub(crate) fn is_end(self) -> bool {
        !matches!(self, What::Stopped { .. })
    }

    /// The signal that a thread is about to be given, if it stopped for that.
    ///
    /// Such a stop is not [taken](take_stop) but ended by [`cont`] or [`detach`]: the kernel
    /// forgets the signal of a stop that has been taken when the tracer dies before it resumes the
    /// thread.
    pub(crate) fn signal(self) -> Option<i32> {
        match self {
            What::Stopped { signal, event: 0 } if signal != SYSTEM_CALL => Some(signal),
            _ => None,
        }
    }
}

/// Waits until the kernel reports something of a thread that this very thread traces or started,
/// and leaves the report pending, so that an ended process can still be looked at. `None` means
/// any.
///
/// Threads of this process other than the caller keep their children to themselves (`__WNOTHREAD`).
pub(crate) fn peek(tid: Option<Tid>, block: bool) -> io::Result<Option<Report>> {
    let (kind, id) = tid.map_or((libc::P_ALL, 0), |tid| (libc::P_PID, tid.unsigned()));
    let mut options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
    options |= libc::__WNOTHREAD;
    if !block {
        options |= libc::WNOHANG;
    }
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel fills the structure that we own.
    if unsafe { libc::waitid(kind, id, info.as_mut_ptr(), options) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed at first, then filled by the kernel; all integers. The accessors read the
    // fields that belong to what waitid reports.
    let (code, number, status) = unsafe {
        let info = info.assume_init();
        (info.si_code, info.si_pid(), info.si_status())
    };
    // Nothing was reported if the structure is still zeros.
    let Ok(tid) = Tid::try_from(number) else { return Ok(None) };
    let what = match code {
        // gVisor reports a stop as a death by the signal 127, and not which stop it is.
        libc::CLD_KILLED if status == NO_SIGNAL => stop_of(tid),
        libc::CLD_EXITED => What::Exited { code: status },
        libc::CLD_KILLED => What::Killed { signal: status, core: false },
        libc::CLD_DUMPED => What::Killed { signal: status, core: true },
        _ => What::Stopped { signal: status & 0xff, event: status >> 8 },
    };
    Ok(Some(Report { tid, what }))
}

/// What the kernel reports of a thread, or of any, without waiting for it. Stops are taken, but for those for a
/// signal; ends are not.
pub(crate) fn report(tid: Option<Tid>) -> io::Result<Option<Report>> {
    loop {
        let report = match peek(tid, false) {
            Ok(Some(report)) => report,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Killed between the two: its end is reported next.
        if report.what.is_end() || report.what.signal().is_some() || take_stop(report.tid) {
            return Ok(Some(report));
        }
    }
}

/// The low bits of a stopped thread's status, which are no signal's number.
const NO_SIGNAL: i32 = 0x7f;

/// Which stop a thread is in, as its tracer can ask. What has no signal is a group stop.
fn stop_of(tid: Tid) -> What {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    if request(libc::PTRACE_GETSIGINFO, tid, 0, info.as_mut_ptr() as usize).is_err() {
        return What::Stopped { signal: libc::SIGSTOP, event: EVENT_STOP };
    }
    // SAFETY: zeroed at first, then filled by the kernel; all integers.
    let info = unsafe { info.assume_init() };
    let is_event = info.si_signo == libc::SIGTRAP && info.si_code & 0xff == libc::SIGTRAP;
    match is_event {
        true => What::Stopped { signal: libc::SIGTRAP, event: info.si_code >> 8 },
        false => What::Stopped { signal: info.si_signo, event: 0 },
    }
}

/// The program that [`crate::run_untraced`] waits for, and how it has ended if the kernel reported
/// that to [`take_end`]: it reports an end to one thread, once.
static AWAITED: Mutex<Option<(Pid, Option<ExitStatus>)>> = Mutex::new(None);

/// From now on [`take_end`] keeps how this process ends.
pub(crate) fn await_end(pid: Pid) {
    *AWAITED.lock().unwrap_or_else(PoisonError::into_inner) = Some((pid, None));
}

/// How the awaited process has ended, as [`take_end`] learned it.
pub(crate) fn awaited_end(pid: Pid) -> Option<ExitStatus> {
    let awaited = AWAITED.lock().unwrap_or_else(PoisonError::into_inner);
    awaited.filter(|(other, _)| *other == pid)?.1
}

/// How a process has ended, from a status as `wait` gives it; `None` if it has not.
pub(crate) fn end_of(status: c_int) -> Option<ExitStatus> {
    if libc::WIFEXITED(status) {
        return Some(ExitStatus::Code(libc::WEXITSTATUS(status)));
    }
    let (signal, core) = (libc::WTERMSIG(status), libc::WCOREDUMP(status));
    libc::WIFSIGNALED(status).then_some(ExitStatus::Signal { signal, core })
}

/// Takes the stop that [`peek`] showed. Returns whether it is still there: a thread killed since is
/// not stopped any more, and its end, which the next [`peek`] shows, is not taken in its place.
pub(crate) fn take_stop(tid: Tid) -> bool {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WSTOPPED | libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: the kernel fills the structure that we own, which is zeroed at first.
    unsafe {
        libc::waitid(libc::P_PID, tid.unsigned(), info.as_mut_ptr(), options) == 0
            && info.assume_init().si_pid() == tid.get()
    }
}

/// Takes the end that [`peek`] showed, and the thread with it. Returns the CPU time as the kernel
/// accounts it to a waiting parent, waited-for children included.
pub(crate) fn take_end(tid: Tid) -> io::Result<Duration> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let mut status: c_int = 0;
    let options = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    // SAFETY: the kernel fills two values that we own.
    let result = unsafe { libc::wait4(tid.get(), &mut status, options, usage.as_mut_ptr()) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    if let Some(end) = end_of(status).filter(|_| result == tid.get()) {
        let mut awaited = AWAITED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, reported)) = awaited.as_mut().filter(|(pid, _)| tid.is_first_of(*pid)) {
            *reported = Some(end);
        }
    }
    // SAFETY: zeroed at first, then filled by the kernel; all integers.
    let usage = unsafe { usage.assume_init() };
    Ok(duration(usage.ru_utime) + duration(usage.ru_stime))
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

/// The CPU time of a process and of all threads it ever had, but not of its children. Works as long
/// as the process has not been waited for.
pub(crate) fn process_time(pid: Pid) -> Option<Duration> {
    // The kernel's encoding of another process's clock: the complement of its id, and 2 for
    // precise time (CPUCLOCK_SCHED).
    let clock = (!pid.get() << 3) | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills a value that we own.
    if unsafe { libc::clock_gettime(clock, &mut time) } == -1 {
        return None;
    }
    Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}
