//! A process that runs already, and may be stopped to be changed.
//!
//! It is read through descriptors that belong to its address space: after an exec they read
//! nothing. Its number alone does not identify it, for numbers are reused; with its start time it
//! does.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fettle_types::{Pid, Tid};

use crate::claim;
use crate::error::LiveError;
use crate::follower::Follower;
use crate::maps::{self, Extent, Extents, FileId, LiveAddr, Mapping};
use crate::memory::Memory;

/// A process that may be attached to.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    start_time: u64,
    pub(crate) memory: Memory,
    extents: Extents,
    auxv: Vec<u8>,
    /// It has a filter of system calls, which must be suspended for ours.
    pub(crate) filtered: bool,
    /// The channel to the thread that traces it, while it is followed.
    follower: Mutex<Option<Follower>>,
}

impl Process {
    /// Looks at a process without changing it.
    ///
    /// # Errors
    ///
    /// When there is none, when we may not change it, and when it is of a kind that cannot be
    /// changed: a kernel thread, a zombie, a 32-bit program, one that is traced already, or one
    /// with a filter of system calls that we may not suspend.
    pub fn open(pid: Pid) -> Result<Process, LiveError> {
        let status = status_of(pid)?;
        if let Some(tracer) = tracer(&status) {
            return Err(claim::traced_already(pid, tracer));
        }
        Process::with_status(pid, &status)
    }

    /// As [`Process::open`], for one that we trace: to read its memory and its mappings.
    ///
    /// # Errors
    ///
    /// As those of [`Process::open`].
    pub fn open_followed(pid: Pid) -> Result<Process, LiveError> {
        Process::with_status(pid, &status_of(pid)?)
    }

    fn with_status(pid: Pid, status: &[u8]) -> Result<Process, LiveError> {
        let unattachable = |why: String| LiveError::Unattachable { pid, why };
        let field = |name| maps::status_field(status, name);
        if let Some(owner) = field("Tgid:").filter(|owner| *owner != u64::from(pid.unsigned())) {
            return Err(unattachable(format!("it is a thread of process {owner}: name that one")));
        }
        if pid == Pid::own() {
            return Err(unattachable("it is this very program".to_owned()));
        }
        if state(status).is_some_and(|state| matches!(state, b'Z' | b'X')) {
            return Err(unattachable("it has ended, or its first thread has".to_owned()));
        }
        if is_of_kernel(pid) {
            return Err(unattachable("it is a thread of the kernel".to_owned()));
        }
        if !has_memory(status) {
            return Err(LiveError::NoProcess { pid });
        }
        // It may end between any two reads.
        let not_permitted = |source: io::Error| match source.raw_os_error() {
            _ if is_end(&source) => LiveError::NoProcess { pid },
            Some(libc::EACCES | libc::EPERM) => not_permitted(pid, status, source),
            _ => LiveError::Os { action: "look at a process", source },
        };
        let auxv = auxv_of(pid).map_err(not_permitted)?;
        if auxv.is_empty() {
            return Err(LiveError::NoProcess { pid });
        }
        if auxv.iter().all(|byte| *byte == 0) {
            return Err(unattachable("the kernel is still loading its program".to_owned()));
        }
        let mut identification = [0; 5];
        File::open(format!("/proc/{pid}/exe"))
            .and_then(|mut file| file.read_exact(&mut identification))
            .map_err(not_permitted)?;
        if &identification != b"\x7fELF\x02" {
            return Err(unattachable("it is a 32-bit program".to_owned()));
        }
        let filtered = field("Seccomp:").is_some_and(|mode| mode != 0);
        if filtered && !is_root() {
            let why = "it has a filter of system calls (seccomp), which only root may suspend";
            return Err(unattachable(why.to_owned()));
        }
        let memory = Memory::open(pid).map_err(not_permitted)?;
        let start_time = start_time(pid).ok_or(LiveError::NoProcess { pid })?;
        let extents = Extents::open(pid).map_err(not_permitted)?;
        Ok(Process { pid, start_time, memory, extents, auxv, filtered, follower: Mutex::new(None) })
    }

    /// The channel to the thread that traces it, if the process is followed.
    pub(crate) fn follower(&self) -> Option<Follower> {
        self.lock_follower().clone()
    }

    /// Sets the channel to the thread that traces it from now on.
    pub(crate) fn be_followed_by(&self, follower: Option<Follower>) {
        *self.lock_follower() = follower;
    }

    fn lock_follower(&self) -> MutexGuard<'_, Option<Follower>> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Its program and arguments; the program alone where its command line is empty.
    pub fn command(&self) -> String {
        command_of(self.pid)
    }

    /// The path that its program was executed by: relative perhaps.
    pub fn executed_as(&self) -> Option<PathBuf> {
        const AT_EXECFN: u64 = 31;
        let at = LiveAddr(self.auxv(AT_EXECFN)?);
        let bytes = self.read_some(at, libc::PATH_MAX as usize).ok()?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some(OsString::from_vec(bytes[..end].to_vec()).into())
    }

    /// When it began, in ticks since boot: with its number it is unique.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// The value of a type in its auxiliary vector.
    pub fn auxv(&self, kind: u64) -> Option<u64> {
        self.auxv.chunks_exact(16).find_map(|pair| {
            let word = |at: usize| u64::from_le_bytes(pair[at..at + 8].try_into().expect("eight"));
            (word(0) == kind).then(|| word(8))
        })
    }

    /// Identifies its address space among those before and after an exec.
    pub fn space(&self) -> u64 {
        hash(&self.auxv)
    }

    /// Number of its threads; 1 if it cannot be read.
    pub fn threads(&self) -> usize {
        tasks(self.pid).map_or(1, |tasks| tasks.len().max(1))
    }

    /// Its threads.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn threads_now(&self) -> Result<Vec<Tid>, LiveError> {
        tasks(self.pid)
    }

    /// Whether it still runs the program that it ran when this was made.
    pub fn is_same(&self) -> bool {
        start_time(self.pid) == Some(self.start_time)
            && maps::read_proc(&format!("/proc/{}/auxv", self.pid))
                .is_ok_and(|now| now == self.auxv)
    }

    /// Whether it has been stopped (SIGSTOP, or the terminal's) and not continued since.
    pub fn is_stopped(&self) -> bool {
        let status = maps::read_proc(&format!("/proc/{}/status", self.pid));
        status.is_ok_and(|status| state(&status) == Some(b'T'))
    }

    /// Whether it has the mounts that we have: a path leads both to the same file, unless its root
    /// directory is another.
    pub(crate) fn has_our_mounts(&self) -> bool {
        let mounts = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
        mounts("self").is_some_and(|ours| mounts(&self.pid.to_string()) == Some(ours))
    }

    /// Whether it lives, even if it runs another program.
    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.start_time) && !has_ended(self.pid)
    }

    /// What is mapped in it now.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn maps(&self) -> Result<Vec<Mapping>, LiveError> {
        let action = "read the mappings";
        maps::of_process(self.pid).map_err(|source| LiveError::Ptrace {
            action,
            pid: self.pid,
            source,
        })
    }

    /// The mapping that an address lies in.
    pub(crate) fn extent(&self, at: LiveAddr) -> Option<Extent> {
        self.extents.of(at)
    }

    /// The file that is mapped at an address, if one is.
    pub fn file_at(&self, at: LiveAddr) -> Option<FileId> {
        let extent = self.extent(at).filter(|extent| extent.inode != 0)?;
        Some((extent.device, extent.inode))
    }

    /// Reads memory, all of it.
    ///
    /// # Errors
    ///
    /// When not all of it is mapped.
    pub fn read(&self, at: LiveAddr, len: usize) -> Result<Vec<u8>, LiveError> {
        self.memory.read(at, len)
    }

    /// Reads as much as is mapped there, up to `len` bytes.
    pub fn read_some(&self, at: LiveAddr, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let count = self.memory.read_some(at, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Writes memory that nothing in the process uses yet, while it runs.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn fill(&self, at: LiveAddr, bytes: &[u8]) -> Result<(), LiveError> {
        self.memory.write(at, bytes)
    }

    /// The program's file, even if it was renamed or removed.
    pub fn executable(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/exe", self.pid))
    }

    /// [`mapped_file`] of one of its mappings.
    pub fn file_of(&self, mapping: &Mapping) -> Option<PathBuf> {
        mapped_file(self.pid, mapping)
    }

    /// How many calls it has made that read or write, as the kernel counts them.
    pub fn io_calls(&self) -> Option<u64> {
        let text = maps::read_proc(&format!("/proc/{}/io", self.pid)).ok()?;
        let field = |name| maps::status_field(&text, name);
        Some(field("syscr:")? + field("syscw:")?)
    }

    /// CPU time of all its threads, ended ones too, in nanoseconds.
    pub fn cpu_ns(&self) -> Option<u64> {
        crate::ptrace::process_time(self.pid).map(|time| time.as_nanos() as u64)
    }
}

/// A path by which the file of a process's mapping can be opened from here: the very file that is
/// mapped, even if it was removed or the process has another root directory. The kernel gives paths
/// as we would name them, if we can (a process that has changed its root), else as processes name
/// them that see them (other mounts).
pub fn mapped_file(pid: Pid, mapping: &Mapping) -> Option<PathBuf> {
    let path = mapping.path.as_deref()?;
    let same = |candidate: &Path| {
        std::fs::metadata(candidate).is_ok_and(|meta| meta.is_file() && meta.ino() == mapping.inode)
            && File::open(candidate).is_ok()
    };
    let (start, end) = (mapping.start.0, mapping.end.0);
    let mapped = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
    let mut inside = PathBuf::from(format!("/proc/{pid}/root"));
    inside.push(path.strip_prefix("/").unwrap_or(path));
    [mapped, inside, path.to_owned()].into_iter().find(|candidate| same(candidate))
}

/// Identifies a process's address space, if the process lives and may be inspected.
///
/// # Errors
///
/// When it cannot be read for another reason.
pub(crate) fn space_of(pid: Pid) -> Result<Option<u64>, LiveError> {
    let auxv = match maps::read_proc(&format!("/proc/{pid}/auxv")) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        read => if_there(read)?.unwrap_or_default(),
    };
    Ok((!auxv.is_empty()).then(|| space_of_auxv(&auxv)))
}

/// Identifies the address space that has this auxiliary vector.
pub fn space_of_auxv(auxv: &[u8]) -> u64 {
    hash(auxv)
}

/// A hash (FNV-1a).
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// When a process began, in ticks since boot.
pub fn start_time(pid: Pid) -> Option<u64> {
    stat_field(pid, 22)
}

/// Whether a process is gone that had this number and start time; what cannot be seen is not.
///
/// # Errors
///
/// When that cannot be found out.
pub(crate) fn is_gone(pid: Pid, began: u64) -> Result<bool, LiveError> {
    check_proc()?;
    let stat = if_there(maps::read_proc(&format!("/proc/{pid}/stat")))?;
    match stat.as_deref().and_then(|stat| field_of(stat, 22)) {
        Some(start) => Ok(start != began || has_ended(pid)),
        // `/proc` may hide it (`hidepid`).
        None if is_signalled(pid) => {
            let source = io::Error::from_raw_os_error(libc::EACCES);
            Err(LiveError::Ptrace { action: "see the start time", pid, source })
        }
        None => Ok(true),
    }
}

/// Whether a process exists with this number.
fn is_signalled(pid: Pid) -> bool {
    // SAFETY: takes numbers only, and sends nothing.
    let sent = unsafe { libc::kill(pid.get(), 0) };
    sent == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// What was read of a process, or `None` if it has ended.
///
/// # Errors
///
/// When it could not be read for another reason: too many files are open, for example.
pub(crate) fn if_there<T>(read: io::Result<T>) -> Result<Option<T>, LiveError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_end(&error) => Ok(None),
        Err(source) => Err(LiveError::Os { action: "look at a process", source }),
    }
}

/// Whether `/proc` says by this error that there is no such process any more.
fn is_end(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Whether `/proc` shows processes by the numbers that they have for this one: without that no
/// process can be found.
///
/// # Errors
///
/// When it is not mounted, or is another PID namespace's.
pub fn check_proc() -> Result<(), LiveError> {
    let own = std::fs::read_link("/proc/self").ok();
    let own = own.as_deref().and_then(Path::to_str);
    match own.and_then(|pid| pid.parse().ok()) == Some(std::process::id()) {
        true => Ok(()),
        false => Err(LiveError::NoProc),
    }
}

fn status_of(pid: Pid) -> Result<Vec<u8>, LiveError> {
    check_proc()?;
    if_there(maps::read_proc(&format!("/proc/{pid}/status")))?.ok_or(LiveError::NoProcess { pid })
}

/// Which process traces the thread that this is the `status` of. The kernel names the tracing
/// thread.
pub(crate) fn tracer(status: &[u8]) -> Option<Pid> {
    let thread = Tid::try_from(maps::status_field(status, "TracerPid:")?).ok()?;
    let its = maps::read_proc(&format!("/proc/{thread}/status")).unwrap_or_default();
    let process = maps::status_field(&its, "Tgid:").and_then(|pid| Pid::try_from(pid).ok());
    // One that has ended is called by the only number that is known.
    Some(process.unwrap_or(thread.as_process()))
}

/// Whether it is a thread of the kernel's own.
fn is_of_kernel(pid: Pid) -> bool {
    const PF_KTHREAD: u64 = 0x20_0000;
    stat_field(pid, 9).is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// A number from a process's `stat` by its place, from 4 on, as `proc(5)` counts.
fn stat_field(pid: Pid, place: usize) -> Option<u64> {
    field_of(&maps::read_proc(&format!("/proc/{pid}/stat")).ok()?, place)
}

/// The same of bytes that were read.
fn field_of(stat: &[u8], place: usize) -> Option<u64> {
    // The name in front may contain anything; what follows its last parenthesis is parsed.
    let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let text = std::str::from_utf8(&stat[behind..]).ok()?;
    text.split_ascii_whitespace().nth(place - 3)?.parse().ok()
}

/// Program and arguments of a process, separated by blanks; empty if it has none.
pub fn command_line(pid: Pid) -> String {
    let line = maps::read_proc(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    words.join(" ")
}

/// Program and arguments of a process; the program alone where its command line is empty.
pub fn command_of(pid: Pid) -> String {
    let line = command_line(pid);
    match line.is_empty() {
        false => line,
        true => {
            let program = std::fs::read_link(format!("/proc/{pid}/exe"));
            program.unwrap_or_default().display().to_string()
        }
    }
}

/// The threads of a process.
pub(crate) fn tasks(pid: Pid) -> Result<Vec<Tid>, LiveError> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/task"));
    let folder = if_there(folder)?.ok_or(LiveError::NoProcess { pid })?;
    Ok(folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Whether a process has this thread.
pub(crate) fn has_task(pid: Pid, tid: Tid) -> bool {
    std::fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(true)
}

/// Whether a process has ended, or is a zombie whose threads have all ended: others may live on
/// after the first. One that cannot be seen has not.
pub fn has_ended(pid: Pid) -> bool {
    let dead = |tid: &Tid| {
        let status = match if_there(maps::read_proc(&format!("/proc/{pid}/task/{tid}/status"))) {
            Ok(status) => status.unwrap_or_default(),
            Err(_) => return false,
        };
        let over = state(&status).is_none_or(|state| matches!(state, b'Z' | b'X'));
        over || !has_memory(&status) && !is_of_kernel(pid)
    };
    match tasks(pid) {
        Ok(threads) => threads.iter().all(dead),
        Err(error) => matches!(error, LiveError::NoProcess { .. }),
    }
}

/// An auxiliary vector. While a process is executing a program, the kernel has not written the new
/// one yet; it is waited for, and is zeros if that takes long.
fn auxv_of(pid: Pid) -> io::Result<Vec<u8>> {
    const LOOKS: usize = 1000;
    let path = format!("/proc/{pid}/auxv");
    let mut auxv = maps::read_proc(&path)?;
    for _ in 0..LOOKS {
        if auxv.is_empty() || auxv.iter().any(|byte| *byte != 0) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        auxv = maps::read_proc(&path)?;
    }
    Ok(auxv)
}

/// Whether a process or thread has memory, by its `status`: it is released well before a process
/// that ends is a zombie, and kernel threads have none.
fn has_memory(status: &[u8]) -> bool {
    status.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"VmSize:"))
}

/// The letter of a process's or thread's state.
pub(crate) fn state(status: &[u8]) -> Option<u8> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(b"State:"))?;
    value.iter().copied().find(|byte| !byte.is_ascii_whitespace())
}

fn is_root() -> bool {
    user() == 0
}

/// The user that we run as: the effective one.
pub fn user() -> u32 {
    // SAFETY: no argument, no memory, and it cannot fail.
    unsafe { libc::geteuid() }
}

/// Why the kernel does not let us trace a process, by its `/proc/PID/status`.
pub(crate) fn not_permitted(pid: Pid, status: &[u8], source: io::Error) -> LiveError {
    refused_to(user().into(), pid, status, source)
}

fn refused_to(ours: u64, pid: Pid, status: &[u8], source: io::Error) -> LiveError {
    match maps::status_field(status, "Uid:").filter(|owner| ours != 0 && *owner != ours) {
        Some(owner) => LiveError::NotOurs { pid, owner, ours },
        None => LiveError::NotPermitted { pid, source },
    }
}

/// The parent of a process; `None` if it is in no namespace that we see.
pub fn parent_of(pid: Pid) -> Option<Pid> {
    let status = maps::read_proc(&format!("/proc/{pid}/status")).ok()?;
    Pid::try_from(maps::status_field(&status, "PPid:")?).ok()
}

/// Whether some thread has a shadow stack (CET), which would not agree with changed return
/// addresses.
pub(crate) fn has_shadow_stacks(pid: Pid) -> bool {
    let status = maps::read_proc(&format!("/proc/{pid}/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let features = status.lines().find_map(|line| line.strip_prefix("x86_Thread_features:"));
    features.is_some_and(|features| features.contains("shstk"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(number: i32) -> Pid {
        number.try_into().unwrap()
    }

    #[test]
    fn who_may_not_trace_is_reported_whose_process_it_is() {
        let status = b"Name:\tcat\nUid:\t1000\t1000\t1000\t1000\n";
        let said = |ours| {
            let source = io::Error::from_raw_os_error(libc::EPERM);
            refused_to(ours, numbered(12), status, source).to_string()
        };
        assert!(said(65534).contains("it belongs to user 1000, and Fettle runs as user 65534"));
        assert!(said(1000).contains("yama") && said(0).contains("yama"));
    }

    #[test]
    fn what_cannot_be_changed() {
        let own = Pid::own();
        let why = |pid| Process::open(pid).unwrap_err().to_string();
        assert!(why(own).contains("this very program"));
        assert!(why(numbered(i32::MAX)).contains("no process"));
        // PID 2 is the kernel's, unless we are in a namespace of our own.
        if std::fs::read("/proc/2/cmdline").is_ok_and(|line| line.is_empty()) && is_root() {
            let said = why(numbered(2));
            assert!(said.contains("thread of the kernel") || said.contains("ended"), "{said}");
        }
    }

    #[test]
    fn start_times() {
        assert!(start_time(Pid::own()).is_some_and(|time| time > 0));
        let (own, nobody) = (Pid::own(), numbered(i32::MAX));
        assert_eq!(start_time(nobody), None);
        let start = start_time(own).unwrap();
        assert!(!is_gone(own, start).unwrap() && is_gone(own, start + 1).unwrap());
        assert!(is_gone(nobody, start).unwrap() && has_ended(nobody));
        let full = io::Error::from_raw_os_error(libc::EMFILE);
        assert!(if_there::<()>(Err(full)).is_err());
        assert_eq!(state(b"Name:\tx\nState:\tS (sleeping)\n"), Some(b'S'));
    }

    #[test]
    fn a_process_that_was_stopped_is() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::open(Pid::of_child(&child)).unwrap();
        let settles = |stopped: bool| {
            let mut looks = (0..1000).map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(5));
                process.is_stopped()
            });
            looks.any(|is_stopped| is_stopped == stopped)
        };
        for (signal, stopped) in [(libc::SIGSTOP, true), (libc::SIGCONT, false)] {
            // SAFETY: a signal to a child that is waited for below.
            unsafe { libc::kill(child.id().cast_signed(), signal) };
            assert!(settles(stopped));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
