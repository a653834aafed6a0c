//! System calls that a stopped process makes for us, many in one go.
//!
//! The process gets a table of calls (below its stack, in memory that no program relies on) and a
//! small piece of code that makes them one after another and then sends itself a signal which
//! programs ignore by default. We see that signal before it is delivered, suppress it, and restore
//! the registers. So any number of calls costs one stop.
//!
//! The code is written into the zero bytes that fill up the last page of some executable mapping,
//! so that nothing of the program is overwritten. It knows the program's first instruction: should
//! the tracer die in the middle, the kernel resumes the process, the signal has no effect, the code
//! clears the registers as they are at exec, and jumps to the program's begin.

use std::io;

use fettle_types::Pid;
use libc::c_long;

use crate::error::LiveError;
use crate::maps::{LiveAddr, Mapping};
use crate::memory::Memory;
use crate::ptrace::{self, Registers, What};

/// Stands for the descriptor that the last `open` of the same table returned.
pub(crate) const OPENED: u64 = u64::MAX;

/// Makes the call that `rbx` points at in the table, and goes on to the next; its result is in
/// `rax`, the descriptor opened last in `r12`.
macro_rules! table_call {
    () => {
        concat!(
            "    mov  rdi, [rbx + 8]\n",
            "    mov  rsi, [rbx + 16]\n",
            "    mov  rdx, [rbx + 24]\n",
            "    mov  r10, [rbx + 32]\n",
            "    mov  r8,  [rbx + 40]\n",
            "    mov  r9,  [rbx + 48]\n",
            // -1 as first or fifth argument: the descriptor opened last.
            "    cmp  rdi, -1\n",
            "    cmove rdi, r12\n",
            "    cmp  r8, -1\n",
            "    cmove r8, r12\n",
            "    syscall\n",
            "    mov  [rbx + 56], rax\n",
            "    cmp  qword ptr [rbx], 2\n", // open
            "    cmove r12, rax\n",
            "    add  rbx, 64\n",
        )
    };
}
pub(crate) use table_call;

// One call of the table takes 64 bytes: number, six arguments, result. A negative number ends it.
core::arch::global_asm!(
    ".pushsection .rodata.fettle_live_remote, \"a\", @progbits",
    ".globl fettle_live_remote_begin",
    ".hidden fettle_live_remote_begin",
    "fettle_live_remote_begin:",
    "2:  mov  rax, [rbx]",
    "    test rax, rax",
    "    js   3f",
    table_call!(),
    "    test rax, rax",
    "    jns  2b",
    // Done, or a call failed: tell the tracer by a signal to ourselves, the only thread.
    "3:  mov  eax, 39", // getpid
    "    syscall",
    "    mov  edi, eax",
    "    mov  esi, eax",
    "    mov  edx, r13d",
    "    mov  eax, 234", // tgkill
    "    syscall",
    ".globl fettle_live_remote_reported",
    ".hidden fettle_live_remote_reported",
    "fettle_live_remote_reported:",
    // Only reached when no tracer is left: start the program as if nothing had been done.
    "    xor  eax, eax",
    "    xor  ebx, ebx",
    "    xor  ecx, ecx",
    "    xor  edx, edx",
    "    xor  esi, esi",
    "    xor  edi, edi",
    "    xor  r8d, r8d",
    "    xor  r9d, r9d",
    "    xor  r10d, r10d",
    "    xor  r11d, r11d",
    "    xor  r12d, r12d",
    "    xor  r13d, r13d",
    "    jmp  qword ptr [rip]",
    ".globl fettle_live_remote_end",
    ".hidden fettle_live_remote_end",
    "fettle_live_remote_end:", // here the address to go on at is appended
    ".popsection",
);

unsafe extern "C" {
    static fettle_live_remote_begin: u8;
    static fettle_live_remote_reported: u8;
    static fettle_live_remote_end: u8;
}

/// The machine code, without the address behind it, and the offset of the place after the signal.
fn code() -> (&'static [u8], u64) {
    let (begin, reported, end) = (
        &raw const fettle_live_remote_begin,
        &raw const fettle_live_remote_reported,
        &raw const fettle_live_remote_end,
    );
    // SAFETY: the three symbols lie in this order in the one section above, which is constant and
    // lives as long as the program.
    unsafe {
        let len = end.offset_from_unsigned(begin);
        (std::slice::from_raw_parts(begin, len), reported.offset_from_unsigned(begin) as u64)
    }
}

/// One system call: its number, its arguments, and when it has been made its result.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub number: c_long,
    pub arguments: [u64; 6],
    /// What the call returned; `None` if it was not made, since one before it failed.
    pub result: Option<i64>,
    /// For messages: what the call is for.
    pub action: &'static str,
    /// For messages: the address that the call is about.
    pub about: u64,
}

impl Call {
    pub(crate) fn new(action: &'static str, number: c_long, arguments: &[u64]) -> Call {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Call { number, arguments: all, result: None, action, about: 0 }
    }

    pub(crate) fn about(mut self, address: u64) -> Call {
        self.about = address;
        self
    }
}

const CALL_LEN: usize = 64;
/// Not a real result: calls that were not made keep it.
const NOT_MADE: i64 = i64::MIN;
/// Signals that a program ignores unless it says otherwise, and after exec it has not yet.
const IGNORED: [i32; 3] = [libc::SIGURG, libc::SIGWINCH, libc::SIGCONT];

/// A process at its exec stop, made to run system calls.
pub(crate) struct Remote<'a> {
    pid: Pid,
    memory: &'a Memory,
    /// The program's own registers; `orig_rax` says that there is no system call to restart.
    registers: Registers,
    code_at: LiveAddr,
    code_before: Vec<u8>,
    table_at: LiveAddr,
    table_before: Vec<u8>,
    scratch_at: LiveAddr,
    /// The signal that the process sends itself.
    signal: i32,
    /// Other signals that arrived meanwhile. They are sent again at the end; no handler can exist
    /// yet, so their origin cannot be seen.
    held: Vec<i32>,
}

impl<'a> Remote<'a> {
    /// Prepares a process for tables of up to `calls` calls, whose arguments may point at up to
    /// `scratch` bytes.
    pub(crate) fn enter(
        pid: Pid,
        registers: Registers,
        memory: &'a Memory,
        maps: &[Mapping],
        calls: usize,
        scratch: usize,
    ) -> Result<Remote<'a>, LiveError> {
        // What execve is about to return.
        let registers = Registers { rax: 0, orig_rax: u64::MAX, ..registers };
        let blocked = ptrace::blocked_signals(pid.first_thread())
            .map_err(|source| LiveError::Ptrace { action: "read the signal mask", pid, source })?;
        let signal = IGNORED
            .into_iter()
            .find(|signal| blocked & (1 << (signal - 1)) == 0)
            .ok_or(LiveError::Injection { pid, what: "it blocks all signals" })?;

        let (code, _) = code();
        let code_len = code.len() + 8;
        let instruction = LiveAddr(registers.rip);
        let code_at = find_padding(memory, maps, instruction, code_len).unwrap_or(instruction);
        let code_before = memory.read(code_at, code_len)?;

        let scratch_at = LiveAddr((registers.rsp - 256 - scratch as u64) & !63);
        let table_len = (calls + 1) * CALL_LEN;
        let table_at = LiveAddr(scratch_at.0 - table_len as u64);
        let table_before = memory.read(table_at, table_len + scratch)?;

        let mut bytes = code.to_vec();
        bytes.extend(instruction.0.to_le_bytes());
        memory.write(code_at, &bytes)?;
        Ok(Remote {
            pid,
            memory,
            registers,
            code_at,
            code_before,
            table_at,
            table_before,
            scratch_at,
            signal,
            held: Vec::new(),
        })
    }

    /// Where [`Remote::run`] puts the scratch bytes.
    pub(crate) fn scratch(&self) -> LiveAddr {
        self.scratch_at
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// What calls have written to the scratch bytes.
    pub(crate) fn read_scratch(&self, len: usize) -> Result<Vec<u8>, LiveError> {
        self.memory.read(self.scratch_at, len)
    }

    /// Has the process make calls until one fails.
    pub(crate) fn run(&mut self, calls: &mut [Call], scratch: &[u8]) -> Result<(), LiveError> {
        let table_len = (self.scratch_at.0 - self.table_at.0) as usize;
        assert!((calls.len() + 1) * CALL_LEN <= table_len, "enter was told of fewer calls");
        assert!(table_len + scratch.len() <= self.table_before.len(), "or of less scratch");
        let mut table = Vec::with_capacity(self.table_before.len());
        for call in calls.iter() {
            table.extend(call.number.to_le_bytes());
            call.arguments.iter().for_each(|argument| table.extend(argument.to_le_bytes()));
            table.extend(NOT_MADE.to_le_bytes());
        }
        table.extend((-1i64).to_le_bytes());
        table.resize(table_len, 0);
        table.extend(scratch);
        self.memory.write(self.table_at, &table)?;

        let (pid, tid) = (self.pid, self.pid.first_thread());
        let failed = |action| move |source| LiveError::Ptrace { action, pid, source };
        let mut registers = self.registers;
        registers.rip = self.code_at.0;
        registers.rbx = self.table_at.0;
        registers.r13 = self.signal as u64;
        ptrace::set_registers(tid, &registers).map_err(failed("set the registers"))?;
        let outcome = self.await_signal();
        if !matches!(outcome, Err(LiveError::Gone { .. })) {
            ptrace::set_registers(tid, &self.registers).map_err(failed("restore the registers"))?;
        }
        outcome?;

        let results = self.memory.read(self.table_at, calls.len() * CALL_LEN)?;
        for (call, entry) in calls.iter_mut().zip(results.chunks_exact(CALL_LEN)) {
            let result = i64::from_le_bytes(entry[56..].try_into().expect("eight bytes"));
            call.result = (result != NOT_MADE).then_some(result);
        }
        match calls.iter().find(|call| call.result.is_none_or(|result| result < 0)) {
            None => Ok(()),
            Some(call) => Err(LiveError::Remote {
                action: call.action,
                pid: self.pid,
                address: call.about,
                source: io::Error::from_raw_os_error(-call.result.unwrap_or(0) as i32),
            }),
        }
    }

    /// Resumes the process until it has made the calls of its table. An end is left for the main
    /// loop.
    fn await_signal(&mut self) -> Result<(), LiveError> {
        let (pid, tid) = (self.pid, self.pid.first_thread());
        let reported = self.code_at.offset(code().1);
        let mut group_stops = 0;
        loop {
            // ESRCH: killed since; the wait reports it.
            let _ = ptrace::cont(tid, 0);
            let report = loop {
                match ptrace::peek(Some(tid), true) {
                    Ok(report) => break report,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(source) => {
                        return Err(LiveError::Os { action: "wait for a process", source });
                    }
                }
            };
            let Some(What::Stopped { signal, event }) = report.map(|report| report.what) else {
                return Err(LiveError::Gone { pid });
            };
            if !ptrace::take_stop(tid) {
                return Err(LiveError::Gone { pid });
            }
            match event {
                0 => {
                    let here = ptrace::registers(tid).is_ok_and(|now| now.rip == reported.0);
                    if signal == self.signal && here {
                        return Ok(());
                    }
                    // Our code never faults; but if it does (say, no stack), do not loop.
                    if matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL) {
                        return Err(LiveError::Injection { pid, what: "its memory has no room" });
                    }
                    self.held.push(signal);
                }
                ptrace::EVENT_STOP if signal != libc::SIGTRAP && group_stops < 8 => {
                    // It was about to be stopped as a whole: it will be, once it is resumed as
                    // itself.
                    group_stops += 1;
                    self.held.push(signal);
                }
                _ => {}
            }
        }
    }

    /// Leaves the process as it was. The caller lets it run.
    pub(crate) fn leave(self) -> Result<(), LiveError> {
        self.memory.write(self.code_at, &self.code_before)?;
        self.memory.write(self.table_at, &self.table_before)?;
        for signal in self.held {
            let _ = ptrace::tgkill(self.pid, self.pid.first_thread(), signal);
        }
        Ok(())
    }
}

/// Finds room for `len` bytes of code: zeros at the end of an executable mapping. The mapping of
/// the first instruction is looked at first: the process will touch it anyway.
fn find_padding(
    memory: &Memory,
    maps: &[Mapping],
    instruction: LiveAddr,
    len: usize,
) -> Option<LiveAddr> {
    // The vsyscall page lies beyond what a process can own.
    let usable = |mapping: &&Mapping| mapping.executable && mapping.end.0 < 1 << 47;
    let mut candidates: Vec<&Mapping> = maps.iter().filter(usable).collect();
    candidates.sort_by_key(|mapping| !mapping.contains(instruction));
    candidates.into_iter().find_map(|mapping| padding_at_end(memory, mapping, len))
}

/// Room for `len` bytes among the zeros at the end of a mapping.
pub(crate) fn padding_at_end(memory: &Memory, mapping: &Mapping, len: usize) -> Option<LiveAddr> {
    let at = LiveAddr((mapping.end.0 - len as u64) & !15);
    // 16 zeros more, so that the last function's end is not taken for padding.
    let from = LiveAddr(at.0 - 16);
    let bytes = memory.read(from, (mapping.end.0 - from.0) as usize).ok()?;
    bytes.iter().all(|byte| *byte == 0).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_ends_in_an_indirect_jump() {
        let (code, reported) = code();
        assert_eq!(&code[code.len() - 6..], &[0xff, 0x25, 0, 0, 0, 0], "jmp [rip]");
        assert_eq!(&code[reported as usize - 2..reported as usize], &[0x0f, 0x05], "syscall");
        assert!(code.len() < 200);
    }
}
