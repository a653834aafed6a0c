//! System calls that a running process makes for us.
//!
//! One thread makes them, while the others go on. A few instructions are put where nothing is: among the zeros that fill
//! up the last page of executable code. The thread is led there with the call's number and
//! arguments in its registers, and stops when the call is done.
//!
//! Should Fettle be killed in the middle, the thread runs on from there: behind the call stand
//! instructions that give it back its signal mask, its registers and its flags, and take it to
//! where it was; a system call that it was in is made again. They need no memory of the thread's
//! own, so its stack may be as small as it likes. Signals are blocked meanwhile, and delivered
//! afterwards.

use std::io;
use std::time::Duration;

use libc::c_long;

use crate::error::LiveError;
use crate::halt::{Halted, Stint, Thread, Who};
use crate::journal::{Entry, Journal, Region};
use crate::maps::{LiveAddr, Mapping};
use crate::memory::Memory;
use crate::process::Process;
use crate::ptrace::{self, Registers, What};
use crate::remote::padding_at_end;

/// A system call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemCall {
    /// For messages.
    pub action: &'static str,
    pub number: c_long,
    pub arguments: [u64; 6],
}

/// What became of calls.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// What those returned that were made, in order.
    pub results: Vec<u64>,
    /// Why the next one failed.
    pub error: Option<LiveError>,
    /// How long a thread stood still, each time.
    pub stops: Vec<Duration>,
}

/// Room for [`code`].
const ROOM: usize = 240;
/// A thread may be where it cannot be used, for a moment.
const TRIES: usize = 50;

impl Process {
    /// Has the process make system calls, one after another, until one fails. One thread makes
    /// them while the others go on, in as many short moments as it takes. The instructions do not
    /// lie in `avoided` memory.
    ///
    /// # Errors
    ///
    /// When it cannot make them; not if one fails.
    pub(crate) fn make_calls(
        &self,
        journal: &mut Journal,
        avoided: &[Region],
        calls: &[SystemCall],
    ) -> Result<Made, LiveError> {
        let mut made = Made::default();
        if calls.is_empty() {
            return Ok(made);
        }
        let pid = self.pid();
        let maps = self.maps()?;
        let outside = |m: &Mapping| !avoided.iter().any(|r| m.contains(r.at));
        let maps: Vec<Mapping> = maps.into_iter().filter(outside).collect();
        let at = find_padding(&self.memory, &maps, ROOM).ok_or_else(|| {
            let why = "it has no room for a few instructions of ours".to_owned();
            LiveError::Unattachable { pid, why }
        })?;
        journal.add([Entry::Code(at, ROOM)])?;
        let mut tries = 0;
        while made.results.len() < calls.len() && made.error.is_none() {
            let left = &calls[made.results.len()..];
            match self.moment(Who::One, |halted| halted.make_calls(at, left)) {
                Ok(((results, error), stop)) => {
                    made.results.extend(results);
                    made.error = error;
                    made.stops.push(stop);
                }
                Err(LiveError::Busy { .. }) if tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
        journal.add([Entry::Cleared(at)])?;
        Ok(made)
    }
}

impl Halted<'_> {
    /// Has a thread make calls by instructions at `at`, until one fails or it has stood still for
    /// long. Gives what those returned that it made.
    fn make_calls(
        &mut self,
        at: LiveAddr,
        calls: &[SystemCall],
    ) -> Result<(Vec<u64>, Option<LiveError>), LiveError> {
        let process = self.process;
        let pid = process.pid();
        let memory = &process.memory;
        let busy = |why: &str| LiveError::Busy { pid, why: why.to_owned() };
        // In a system call there is no restartable sequence, and little else to think about.
        let usable = |t: &&Thread| t.system_call().is_some() || !is_in_sequence(memory, t);
        let thread =
            self.threads.iter().find(usable).ok_or_else(|| busy("its threads are busy"))?;
        let failed = |action| move |source| LiveError::Ptrace { action, pid, source };
        let tid = thread.tid;
        let mask = ptrace::blocked_signals(tid).map_err(failed("read the signal mask"))?;
        let code = code(&thread.registers, mask);
        assert!(code.len() <= ROOM, "code of a known size");
        if memory.read(at, ROOM)?.iter().any(|byte| *byte != 0) {
            return Err(busy("somebody else writes to its code"));
        }
        if process.filtered {
            let options = ptrace::O_SYSGOOD | ptrace::O_SUSPEND_SECCOMP;
            ptrace::set_options(tid, options)
                .map_err(|_| LiveError::Seccomp { pid, filters: 1 })?;
        }
        memory.write(at, &code)?;
        let mut results = Vec::new();
        let stint = Stint::begin();
        let result = (|| {
            ptrace::set_blocked_signals(tid, !0).map_err(failed("set the signal mask"))?;
            for call in calls {
                let result = make(thread, at, call, pid)?;
                if result < 0 {
                    let source = io::Error::from_raw_os_error(-result as i32);
                    let (action, address) = (call.action, call.arguments[0]);
                    return Ok(Some(LiveError::Remote { action, pid, address, source }));
                }
                results.push(result as u64);
                if stint.is_over() {
                    break;
                }
            }
            Ok(None)
        })();
        // In this order: the thread must not be without what stands in for us while it is away.
        let back = (|| {
            ptrace::set_registers(tid, &thread.registers)
                .map_err(failed("restore the registers"))?;
            ptrace::set_blocked_signals(tid, mask).map_err(failed("restore the signal mask"))?;
            memory.write(at, &[0; ROOM])
        })();
        if process.filtered {
            let _ = ptrace::set_options(tid, ptrace::O_SYSGOOD);
        }
        let error = result?;
        back.map(|()| (results, error))
    }
}

/// Has a thread make one call; answers what it returned.
fn make(thread: &Thread, at: LiveAddr, call: &SystemCall, pid: i32) -> Result<i64, LiveError> {
    let tid = thread.tid;
    let [rdi, rsi, rdx, r10, r8, r9] = call.arguments;
    let registers = Registers {
        rip: at.0,
        rax: call.number as u64,
        // The kernel is to take up no call.
        orig_rax: u64::MAX,
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        ..thread.registers
    };
    let failed = |action| move |source| LiveError::Ptrace { action, pid, source };
    ptrace::set_registers(tid, &registers).map_err(failed("set the registers"))?;
    // Once at its beginning, once at its end.
    let mut stops = 0;
    while stops < 2 {
        ptrace::cont_to_system_call(tid).map_err(failed("go on with a thread"))?;
        let report = loop {
            match ptrace::peek(tid, true) {
                Ok(report) => break report,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(LiveError::Os { action: "wait for a thread", source }),
            }
        };
        let Some(What::Stopped { signal, event }) = report.map(|report| report.what) else {
            return Err(LiveError::Gone { pid });
        };
        if !ptrace::take_stop(tid) {
            return Err(LiveError::Gone { pid });
        }
        match (signal, event) {
            (signal, 0) if signal == libc::SIGTRAP | 0x80 => stops += 1,
            // SIGSTOP, which cannot be blocked; the kernel remembers it.
            (_, ptrace::EVENT_STOP) => {}
            (signal, _) => {
                let why = format!("signal {signal} came from code of ours");
                return Err(LiveError::Unattachable { pid, why });
            }
        }
    }
    Ok(ptrace::registers(tid).map_err(failed("read the registers"))?.rax as i64)
}

/// Whether a thread stands in a restartable sequence (rseq), which the kernel would abort at the
/// next chance: it must find it there.
fn is_in_sequence(memory: &Memory, thread: &Thread) -> bool {
    let Some(area) = ptrace::rseq_area(thread.tid) else { return false };
    let word = |at: u64| -> Option<u64> {
        let mut bytes = [0; 8];
        memory.read_exact(LiveAddr(at), &mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    // struct rseq: cpu_id_start, cpu_id, rseq_cs. struct rseq_cs: version, flags, start_ip,
    // post_commit_offset, abort_ip.
    let Some(sequence) = word(area + 8).filter(|at| *at != 0) else { return false };
    match (word(sequence + 8), word(sequence + 16)) {
        (Some(start), Some(len)) => thread.registers.rip.wrapping_sub(start) < len,
        _ => true,
    }
}

const RESTART_SYSCALL: u64 = 219;

/// A system call, and behind it what gives a thread everything back that it had.
fn code(registers: &Registers, mask: u64) -> Vec<u8> {
    let in_call = (registers.orig_rax as i64) >= 0;
    let (rip, rax) = match registers.rax as i64 {
        // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND
        -514..=-512 if in_call => (registers.rip - 2, registers.orig_rax),
        // ERESTART_RESTARTBLOCK
        -516 if in_call => (registers.rip - 2, RESTART_SYSCALL),
        _ => (registers.rip, registers.rax),
    };
    let mut code = vec![
        0x0f, 0x05, //                               syscall
        0xb8, 14, 0, 0, 0, //                        mov eax, 14      rt_sigprocmask
        0xbf, 2, 0, 0, 0, //                         mov edi, 2       SIG_SETMASK
        0x48, 0x8d, 0x35, 0, 0, 0, 0, //             lea rsi, [mask]
        0x31, 0xd2, //                               xor edx, edx
        0x41, 0xba, 8, 0, 0, 0, //                   mov r10d, 8
        0x0f, 0x05, //                               syscall
    ];
    const MASK_FIELD: usize = 15;
    // Flags: `add` makes the overflow flag what it was, `sahf` the others.
    let overflow = registers.eflags & 0x800 != 0;
    code.extend_from_slice(&[
        0xb0,
        if overflow { 0x7f } else { 0 }, //    mov al, 0x7f or 0
        0x04,
        1, //                                  add al, 1
        0xb4,
        registers.eflags as u8, //             mov ah, flags
        0x9e,                   //                                     sahf
    ]);
    let values = [
        (3, registers.rbx),
        (1, registers.rcx),
        (2, registers.rdx),
        (6, registers.rsi),
        (7, registers.rdi),
        (5, registers.rbp),
        (8, registers.r8),
        (9, registers.r9),
        (10, registers.r10),
        (11, registers.r11),
        (12, registers.r12),
        (13, registers.r13),
        (14, registers.r14),
        (15, registers.r15),
        (0, rax),
    ];
    for (number, value) in values {
        // mov register, value
        code.extend_from_slice(&[0x48 | number >> 3, 0xb8 | number & 7]);
        code.extend_from_slice(&value.to_le_bytes());
    }
    code.extend_from_slice(&[0xff, 0x25, 0, 0, 0, 0]); // jmp [rip]
    code.extend_from_slice(&rip.to_le_bytes());
    let to_mask = (code.len() - (MASK_FIELD + 4)) as u32;
    code[MASK_FIELD..MASK_FIELD + 4].copy_from_slice(&to_mask.to_le_bytes());
    code.extend_from_slice(&mask.to_le_bytes());
    code
}

/// Room for `len` bytes of code: zeros at the end of a file's executable mapping.
fn find_padding(memory: &Memory, maps: &[Mapping], len: usize) -> Option<LiveAddr> {
    let is_code = |m: &&Mapping| m.executable && !m.writable && !m.shared && m.path.is_some();
    maps.iter().filter(is_code).find_map(|mapping| padding_at_end(memory, mapping, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the code in this very process, by calling it: it leads back to behind the call.
    #[test]
    fn a_thread_is_given_everything_back() {
        // SAFETY: integers, for which zero is a value.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        registers.orig_rax = u64::MAX;
        registers.rax = 0x1111;
        registers.rbx = 0x2222;
        registers.r15 = 0x3333_4444_5555_6666;
        registers.eflags = 0x246 | 0x800 | 1;
        let mask = 0x0123;
        let code = code(&registers, mask);
        let decoder = code.windows(2).filter(|pair| *pair == [0x0f, 0x05]).count();
        assert_eq!(decoder, 2, "two system calls");
        let field = u32::from_le_bytes(code[15..19].try_into().unwrap()) as usize;
        assert_eq!(code[19 + field..], 0x0123u64.to_le_bytes(), "the mask is where it is read");
        assert_eq!(field + 19 + 8, code.len());
        assert!(code.len() <= ROOM, "{}", code.len());
    }

    #[test]
    fn interrupted_calls_are_made_again() {
        // SAFETY: integers, for which zero is a value.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        registers.rip = 0x4000;
        let end = |registers: &Registers| {
            let code = code(registers, 0);
            let (at, rax) = (code.len() - 16, code.len() - 16 - 6 - 8);
            let word = |at: usize| u64::from_le_bytes(code[at..at + 8].try_into().unwrap());
            (word(at), word(rax))
        };
        (registers.orig_rax, registers.rax) = (7, -516i64 as u64);
        assert_eq!(end(&registers), (0x3ffe, 219));
        (registers.orig_rax, registers.rax) = (0, -512i64 as u64);
        assert_eq!(end(&registers), (0x3ffe, 0));
        (registers.orig_rax, registers.rax) = (u64::MAX, -512i64 as u64);
        assert_eq!(end(&registers), (0x4000, -512i64 as u64));
        (registers.orig_rax, registers.rax) = (7, 5);
        assert_eq!(end(&registers), (0x4000, 5));
    }
}
