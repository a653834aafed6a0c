//! How many system calls processes make, and how often they execute an instruction of a file, counted in
//! the kernel: a program that is asked for each call whose it is, and one that counts whatever comes by.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fettle_types::Pid;

use crate::asm::{Alu, Asm, FP, Helper, If, Insn, R0, R1, R2, Size};
use crate::capture;
use crate::error::KernelError;
use crate::programs::Spec;
use crate::sys::{Map, MapKind, Program, key_of};

/// Processes that can be counted for.
const PROCESSES: u32 = 1 << 14;

/// Counts system calls until it is dropped.
#[derive(Debug)]
pub struct Tally {
    calls: Map,
    _program: Program,
    _link: OwnedFd,
}

impl Tally {
    /// Begins, for no process yet.
    ///
    /// # Errors
    ///
    /// When the user may not or the kernel cannot.
    pub fn new() -> Result<Tally, KernelError> {
        let btf = capture::types()?;
        let calls = Map::new(MapKind::Hash, 4, 8, PROCESSES);
        let calls = calls.map_err(|error| capture::refused("map", error))?;
        let spec = Spec::tracepoint("sys_enter", program(calls.fd()));
        let program = capture::load(&spec, &btf)?.expect("it is not optional");
        let link = program.attach().map_err(KernelError::io("attach to the kernel"))?;
        Ok(Tally { calls, _program: program, _link: link })
    }

    /// Counts the calls of a process from now on, if they are not counted yet.
    ///
    /// # Errors
    ///
    /// When too many are counted for.
    pub fn watch(&self, pid: Pid) -> Result<(), KernelError> {
        let (key, failed) = (key_of(pid), KernelError::io("count a process's system calls"));
        if self.calls.get(&key).map_err(&failed)?.is_none() {
            self.calls.set(&key, &[0; 8]).map_err(failed)?;
        }
        Ok(())
    }

    /// The calls of all that were watched at some time, those that have ended included.
    ///
    /// # Errors
    ///
    /// When the kernel does not say.
    pub fn total(&self) -> Result<u64, KernelError> {
        let failed = KernelError::io("read how many system calls were made");
        let (mut sum, mut key) = (0u64, None);
        while let Some(next) = self.calls.next_key(key.as_deref()).map_err(&failed)? {
            let value = self.calls.get(&next).map_err(&failed)?.unwrap_or_default();
            sum += value.try_into().map_or(0, u64::from_le_bytes);
            key = Some(next);
        }
        Ok(sum)
    }
}

/// Counts how often an instruction of a file is executed, in whichever process, until it is dropped: a uprobe
/// with a program in the kernel.
#[derive(Debug)]
pub struct Hits {
    count: Map,
    _program: Program,
    _link: OwnedFd,
}

impl Hits {
    /// Begins to count at that offset of a file.
    ///
    /// # Errors
    ///
    /// When the user may not, when the kernel is older than Linux 6.6, or when there is no instruction.
    pub fn at(file: &Path, offset: u64) -> Result<Hits, KernelError> {
        let count = Map::new(MapKind::Array, 4, 8, 1);
        let count = count.map_err(|error| capture::refused("map", error))?;
        let program = Program::load_for_programs("hits", &count_all(count.fd()));
        let program = program.map_err(|refused| match refused.error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) if refused.log.is_empty() => KernelError::NotPermitted,
            _ => {
                let (error, log) = (refused.error, refused.log);
                KernelError::Rejected { program: "places in programs", error, log }
            }
        })?;
        let failed = KernelError::io("probe a place in a program (which needs Linux 6.6 or newer)");
        let path = CString::new(file.as_os_str().as_bytes())
            .map_err(|_| failed(io::ErrorKind::InvalidFilename.into()))?;
        let link = program.attach_in(&path, offset, false).map_err(failed)?;
        Ok(Hits { count, _program: program, _link: link })
    }

    /// How often that was, until now.
    ///
    /// # Errors
    ///
    /// When the kernel does not say.
    pub fn total(&self) -> Result<u64, KernelError> {
        let failed = KernelError::io("read how often a place was executed");
        let value = self.count.get(&[0; 4]).map_err(failed)?.unwrap_or_default();
        Ok(value.try_into().map_or(0, u64::from_le_bytes))
    }
}

/// Adds one to the only value of the map `count`.
fn count_all(count: i32) -> Vec<Insn> {
    let mut a = Asm::new();
    a.imm(R0, 0);
    add_one(a, count)
}

/// Adds one to what the map `calls` has for the process that makes a call, if it has something.
fn program(calls: i32) -> Vec<Insn> {
    let mut a = Asm::new();
    a.call(Helper::CurrentPidTgid);
    a.alu_imm(Alu::Shr, R0, 32);
    add_one(a, calls)
}

/// Adds one to what a map has for the key in R0, if it has something.
fn add_one(mut a: Asm, map: i32) -> Vec<Insn> {
    const KEY: i16 = -8;
    let out = a.label();
    a.store(Size::B4, FP, KEY, R0);
    a.map(R1, map);
    a.mov(R2, FP);
    a.alu_imm(Alu::Add, R2, KEY.into());
    a.call(Helper::MapLookup);
    a.jump_if(If::Eq, R0, 0, out);
    a.imm(R1, 1);
    a.atomic_add(R0, 0, R1);
    a.place(out);
    a.imm(R0, 0);
    a.exit();
    a.finish()
}
