//! A process that has just exec'ed and has not run an instruction of its new program.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use fettle_types::Pid;

use crate::auxv::{self, Auxv};
use crate::error::LiveError;
use crate::maps::{self, LiveAddr, Mapping};
use crate::memory::Memory;
use crate::ptrace::{self, Registers};

/// The code segment of 32-bit programs.
const USER32_CS: u64 = 0x23;

/// What is known of a process that has just exec'ed and has not run an instruction yet.
#[derive(Debug)]
pub struct ExecStop<'a> {
    /// The process. It has one thread, of the same number.
    pub pid: Pid,
    /// The program's file, as `/proc/PID/exe` names it; empty if that cannot be read.
    pub executable: PathBuf,
    /// Whether `/proc/PID/exe` can be opened. A program that may be executed but not read cannot.
    pub executable_readable: bool,
    /// The program uses 32-bit addresses (i386 or x32): nothing can be injected.
    pub compat: bool,
    /// The program gained privileges at exec.
    pub secure: bool,
    /// The auxiliary vector.
    pub auxv: Auxv,
    /// What is mapped: the program, its loader, the stack, the vdso.
    pub maps: Vec<Mapping>,
    /// The next instruction: the loader's first, or a static program's.
    pub instruction: LiveAddr,
    /// The initial stack pointer, at the argument count.
    pub stack: LiveAddr,
    pub(crate) registers: Registers,
    pub(crate) memory: Memory,
    borrow: PhantomData<&'a ()>,
}

impl ExecStop<'_> {
    pub(crate) fn look<'a>(pid: Pid) -> Result<ExecStop<'a>, LiveError> {
        let failed = |action| move |source| LiveError::Ptrace { action, pid, source };
        let registers =
            ptrace::registers(pid.first_thread()).map_err(failed("read the registers"))?;
        let memory = Memory::open(pid).map_err(failed("open the memory"))?;
        let maps = maps::of_process(pid).map_err(failed("read the mappings"))?;

        let link = format!("/proc/{pid}/exe");
        let executable = std::fs::read_link(&link).unwrap_or_default();
        let mut identification = [0; 5];
        let read = File::open(&link).and_then(|mut file| file.read_exact(&mut identification));
        let narrow = &identification == b"\x7fELF\x01";
        let compat = registers.cs == USER32_CS || narrow;

        let stack = LiveAddr(registers.rsp);
        let auxv = read_auxv(&memory, stack, if compat { 4 } else { 8 })
            .ok_or(LiveError::Stack { pid, what: "no auxiliary vector" })?;
        Ok(ExecStop {
            pid,
            executable,
            executable_readable: read.is_ok(),
            compat,
            secure: auxv.secure,
            auxv,
            maps,
            instruction: LiveAddr(registers.rip),
            stack,
            registers,
            memory,
            borrow: PhantomData,
        })
    }

    /// Reads memory of the process.
    pub fn read(&self, address: LiveAddr, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.memory.read_exact(address, &mut bytes)?;
        Ok(bytes)
    }

    /// The path that execve was given: relative perhaps, and of a script's interpreter the
    /// script's.
    pub fn execfn(&self) -> io::Result<PathBuf> {
        let mut bytes = vec![0; libc::PATH_MAX as usize];
        let len = self.memory.read_some(self.auxv.execfn, &mut bytes)?;
        bytes.truncate(len);
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.ok_or(io::ErrorKind::InvalidData)?);
        Ok(OsString::from_vec(bytes).into())
    }

    /// The program's arguments, the first one being its name.
    pub fn arguments(&self) -> io::Result<Vec<OsString>> {
        let bytes = std::fs::read(format!("/proc/{}/cmdline", self.pid))?;
        let Some(bytes) = bytes.strip_suffix(b"\0") else { return Ok(Vec::new()) };
        Ok(bytes.split(|byte| *byte == 0).map(|part| OsString::from_vec(part.to_vec())).collect())
    }
}

/// Reads as much of the stack as it takes: most environments fit into a page, few are megabytes.
fn read_auxv(memory: &Memory, stack: LiveAddr, word: usize) -> Option<Auxv> {
    let mut len = 4096;
    loop {
        let mut bytes = vec![0; len];
        let count = memory.read_some(stack, &mut bytes).ok()?;
        if let Some(auxv) = auxv::parse_stack(&bytes[..count], stack, word) {
            return Some(auxv);
        }
        if count < len || len > 64 << 20 {
            return None;
        }
        len *= 4;
    }
}
