//! Programs that have more privileges than the user that starts them: set-user-ID, set-group-ID,
//! with file capabilities.
//!
//! The kernel grants these at exec, unless the program is traced by a process that has fewer: then
//! it runs without them, silently. Whether a file grants privileges is known for certain only once
//! it has been executed: a shell may execute one directly, and to stop every thread at every system
//! call would slow all programs. So such a program is detached after its exec, before its first
//! instruction, with one thing to do: to execute the same file once more, with the same arguments
//! and environment. That second exec is not traced, and the kernel alone decides what it grants, as
//! if it were the only one. If the file has another content by then, it is executed as it would
//! have been without a tracer.

use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use fettle_types::Pid;

use crate::error::LiveError;
use crate::launch;
use crate::maps;
use crate::ptrace;
use crate::stop::ExecStop;

/// Without the group's execute bit, set-group-ID once meant mandatory locking.
const GROUP_EXECUTE: u32 = 0o010;

/// The privileges of a process, from `/proc/PID/status`.
struct Given {
    user: u64,
    group: u64,
    permitted: u64,
    /// No file grants capabilities beyond these.
    bounding: u64,
    /// The process that asked for this gains nothing by files, traced or not.
    no_new_privileges: bool,
}

impl Given {
    fn of(pid: Pid) -> Option<Given> {
        let status = maps::read_proc(&format!("/proc/{pid}/status")).ok()?;
        // Real, effective, saved, of the file system.
        let effective = |name| maps::status_fields(&status, name).nth(1);
        Some(Given {
            user: effective("Uid:")?,
            group: effective("Gid:")?,
            permitted: maps::status_signals(&status, "CapPrm:")?,
            bounding: maps::status_signals(&status, "CapBnd:")?,
            no_new_privileges: maps::status_field(&status, "NoNewPrivs:") == Some(1),
        })
    }
}

/// Whether a process that has just executed its program lacks what the program's file grants.
pub(crate) fn are_missing(pid: Pid) -> bool {
    let file = PathBuf::from(format!("/proc/{pid}/exe"));
    let Ok(metadata) = fs::metadata(&file) else { return false };
    Given::of(pid).is_some_and(|given| lacks(&given, &file, &metadata))
}

fn lacks(given: &Given, file: &Path, metadata: &Metadata) -> bool {
    if given.no_new_privileges || launch::on_nosuid(file) {
        return false;
    }
    let mode = metadata.mode();
    let user = mode & libc::S_ISUID != 0 && u64::from(metadata.uid()) != given.user;
    let set_group = mode & libc::S_ISGID != 0 && mode & GROUP_EXECUTE != 0;
    let group = set_group && u64::from(metadata.gid()) != given.group;
    let capabilities = launch::capabilities(file) & given.bounding & !given.permitted;
    user || group || capabilities != 0
}

/// Has a program that is before its first instruction execute its file once more, as soon as it is
/// detached. Its memory cannot be used for anything else afterwards.
pub(crate) fn execute_anew(stop: &ExecStop<'_>) -> Result<(), LiveError> {
    let failed = |action| move |source| LiveError::Ptrace { action, pid: stop.pid, source };
    let path = path_again(stop);
    let word = if stop.compat { 4u64 } else { 8 };
    let mut count = [0; 8];
    let read = stop.memory.read(stop.stack, word as usize)?;
    count[..word as usize].copy_from_slice(&read);
    let arguments = stop.stack.0 + word;
    let environment = arguments + (u64::from_le_bytes(count) + 1) * word;
    let code = Code::of(stop.compat);
    let (begin, text) = (code.bytes, stop.instruction.offset(code.bytes.len() as u64));
    let mut bytes = begin.to_vec();
    bytes.extend_from_slice(path.as_os_str().as_bytes());
    bytes.push(0);
    stop.memory.write(stop.instruction, &bytes)?;
    let mut registers = stop.registers;
    let all = [text.0, arguments, environment];
    for (register, value) in (code.registers)(&mut registers).into_iter().zip(all) {
        *register = value;
    }
    ptrace::set_registers(stop.pid.first_thread(), &registers).map_err(failed("set the registers"))
}

/// Code that executes a program, and exits with the status that shells give for one that cannot be
/// executed if that fails.
struct Code {
    bytes: &'static [u8],
    /// The registers for path, arguments and environment.
    registers: fn(&mut ptrace::Registers) -> [&mut u64; 3],
}

impl Code {
    fn of(compat: bool) -> Code {
        match compat {
            false => Code {
                bytes: &[
                    0xb8, 59, 0, 0, 0, // mov eax, execve
                    0x0f, 0x05, // syscall
                    0xbf, 126, 0, 0, 0, // mov edi, 126
                    0xb8, 231, 0, 0, 0, // mov eax, exit_group
                    0x0f, 0x05, // syscall
                ],
                registers: |r| [&mut r.rdi, &mut r.rsi, &mut r.rdx],
            },
            true => Code {
                bytes: &[
                    0xb8, 11, 0, 0, 0, // mov eax, execve
                    0xcd, 0x80, // int 0x80
                    0xbb, 126, 0, 0, 0, // mov ebx, 126
                    0xb8, 252, 0, 0, 0, // mov eax, exit_group
                    0xcd, 0x80, // int 0x80
                ],
                registers: |r| [&mut r.rbx, &mut r.rcx, &mut r.rdx],
            },
        }
    }
}

/// The path by which a program can execute its own file: the one that it was executed by, for it
/// names the process, if that still is the file. An interpreter was executed by another file's
/// path.
fn path_again(stop: &ExecStop<'_>) -> PathBuf {
    let seen_by_it = |path: &Path| {
        let from = if path.is_absolute() { "root" } else { "cwd" };
        let inside = path.strip_prefix("/").unwrap_or(path);
        Path::new(&format!("/proc/{}/{from}", stop.pid)).join(inside)
    };
    let file = |path: &Path| -> io::Result<(u64, u64)> {
        fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
    };
    let own = file(Path::new(&format!("/proc/{}/exe", stop.pid))).ok();
    let is_own = |path: &PathBuf| own.is_some() && file(&seen_by_it(path)).ok() == own;
    let given = stop.execfn().ok().filter(is_own);
    let named = || Some(stop.executable.clone()).filter(is_own);
    given.or_else(named).unwrap_or_else(|| "/proc/self/exe".into())
}
