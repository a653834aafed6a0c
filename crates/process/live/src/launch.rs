//! Starts the program so that it is traced before its first instruction.
//!
//! A forked child waits on a pipe until we trace it, then executes the program as execvp would.
//! A second pipe, closed by a successful exec, carries the error of a failed one.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use fettle_types::Pid;
use libc::{c_int, c_uint};

use crate::error::LiveError;
use crate::signals::{self, HeldBack};

/// The program to run.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// Its path, or a name to be looked up in PATH.
    pub program: OsString,
    /// Its arguments, without its name.
    pub args: Vec<OsString>,
    /// Its whole environment; `None` for ours.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// The directory to start in; `None` for ours. A relative program path begins there.
    pub cwd: Option<PathBuf>,
    /// What it finds as its own name, if that is not `program`.
    pub name: Option<OsString>,
}

impl Launch {
    /// A program in our environment and directory.
    pub fn new(program: impl Into<OsString>, args: impl IntoIterator<Item = OsString>) -> Launch {
        Launch { program: program.into(), args: args.into_iter().collect(), ..Launch::default() }
    }

    /// The shell that runs a script without a `#!` line, as `execvp` and shells do it.
    pub(crate) fn through_shell(&self, script: &Path) -> Launch {
        let mut args = vec![script.as_os_str().to_owned()];
        args.extend(self.args.iter().cloned());
        Launch { program: "/bin/sh".into(), args, name: None, ..self.clone() }
    }

    /// The files that execvp would try, in order.
    fn candidates(&self) -> Vec<PathBuf> {
        let program = Path::new(&self.program);
        if self.program.as_bytes().contains(&b'/') || self.program.is_empty() {
            return vec![program.to_owned()];
        }
        let path = match &self.env {
            Some(env) => env.iter().find(|entry| entry.0 == "PATH").map(|entry| entry.1.clone()),
            None => std::env::var_os("PATH"),
        };
        let path = path.unwrap_or_else(|| "/bin:/usr/bin".into());
        let directories = path.as_bytes().split(|byte| *byte == b':');
        directories
            .map(|directory| match directory {
                b"" => Path::new(".").join(program),
                _ => Path::new(OsStr::from_bytes(directory)).join(program),
            })
            .collect()
    }

    /// A candidate as seen from our own directory.
    fn seen_from_here(&self, candidate: &Path) -> PathBuf {
        match &self.cwd {
            Some(directory) => directory.join(candidate),
            None => candidate.to_owned(),
        }
    }
}

/// Whether executing the file would give the user `uid` in the group `gid` other privileges. A
/// traced program does not get them, unless root traces it.
pub(crate) fn gains_privileges(file: &Path, uid: u32, gid: u32) -> bool {
    const GROUP_EXECUTE: u32 = 0o010;
    let Ok(metadata) = std::fs::metadata(file) else { return false };
    if !metadata.is_file() || on_nosuid(file) {
        return false;
    }
    let mode = metadata.mode();
    let set_user = mode & libc::S_ISUID != 0 && metadata.uid() != uid;
    // Without the group's execute bit, set-group-ID once meant mandatory locking.
    let set_group = mode & libc::S_ISGID != 0 && mode & GROUP_EXECUTE != 0 && metadata.gid() != gid;
    set_user || set_group || capabilities(file) != 0
}

pub(crate) fn on_nosuid(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    let mut result = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: a terminated string, and a structure of integers for the kernel to fill.
    unsafe {
        libc::statvfs(path.as_ptr(), result.as_mut_ptr()) == 0
            && result.assume_init().f_flag & libc::ST_NOSUID != 0
    }
}

/// The capabilities that a file permits, as `linux/capability.h` lays them out in its attribute.
pub(crate) fn capabilities(file: &Path) -> u64 {
    const PERMITTED: [usize; 2] = [4, 12];
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return 0 };
    let name = c"security.capability";
    let mut value = [0u8; 24];
    // SAFETY: terminated strings, and a buffer whose size is passed to the kernel.
    let len = unsafe {
        libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    let known = value.get(..usize::try_from(len).unwrap_or(0)).unwrap_or_default();
    let word = |at: usize| {
        let bytes = known.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u64::from(bytes.map_or(0, u32::from_le_bytes))
    };
    word(PERMITTED[0]) | word(PERMITTED[1]) << 32
}

/// A child that waits for its tracer.
pub(crate) struct Spawned {
    pub pid: Pid,
    go: OwnedFd,
    failure: File,
    candidates: Vec<PathBuf>,
}

/// Stands for no descriptor of ours: what has the number is closed.
pub(crate) const CLOSED: c_int = -1;

/// What a child gets besides, to start as another process was started. It is no part of our session then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Likeness {
    /// Descriptors of ours, or [`CLOSED`], and the numbers that they have there.
    pub descriptors: Vec<(c_int, c_int)>,
    /// Its user, if that is another one.
    pub user: Option<User>,
    /// The rights that its files do not have.
    pub umask: libc::mode_t,
    /// The signals that it ignores: bit `n - 1` for signal `n`.
    pub ignored: u64,
}

/// Who a process belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its other groups.
    pub groups: Vec<u32>,
}

/// Forks the child.
pub(crate) fn spawn(launch: &Launch) -> Result<Spawned, LiveError> {
    let held_back = HeldBack::new();
    let spawned = spawn_as(launch, None, held_back.before())?;
    signals::child_is_there();
    Ok(spawned)
}

/// Forks a child that is like another process.
pub(crate) fn spawn_like(launch: &Launch, likeness: &Likeness) -> Result<Spawned, LiveError> {
    let held_back = HeldBack::new();
    spawn_as(launch, Some(likeness), held_back.before())
}

fn spawn_as(
    launch: &Launch,
    likeness: Option<&Likeness>,
    mask: libc::sigset_t,
) -> Result<Spawned, LiveError> {
    let candidates = launch.candidates();
    check_privileges(launch, &candidates)?;

    // Between fork and exec the child may call almost nothing, so all is prepared here.
    let paths = candidates
        .iter()
        .map(|path| terminated(path.as_os_str()))
        .collect::<Result<Vec<_>, _>>()?;
    let args = std::iter::once(launch.name.as_ref().unwrap_or(&launch.program))
        .chain(&launch.args)
        .map(|arg| terminated(arg))
        .collect::<Result<Vec<_>, _>>()?;
    let env = match &launch.env {
        Some(env) => env.clone(),
        None => std::env::vars_os().collect(),
    };
    let env = env
        .into_iter()
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            terminated(&name)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let cwd = launch.cwd.as_ref().map(|path| terminated(path.as_os_str())).transpose()?;
    let pointers = |strings: &[CString]| {
        let each = strings.iter().map(|string| string.as_ptr());
        each.chain([ptr::null()]).collect::<Vec<_>>()
    };
    let (args, env) = ((pointers(&args), args), (pointers(&env), env));

    let (go_read, go_write) = pipe()?;
    let (failure_read, failure_write) = pipe()?;
    let child = Child {
        go: go_read.as_raw_fd(),
        go_write: go_write.as_raw_fd(),
        failure: failure_write.as_raw_fd(),
        mask,
        likeness,
        cwd: cwd.as_ref().map_or(ptr::null(), |path| path.as_ptr()),
        paths: &paths,
        args: &args.0,
        env: &env.0,
    };
    // SAFETY: the child only makes the calls in `Child::run`, all of which may be made between
    // fork and exec in a process with several threads.
    match unsafe { libc::fork() } {
        -1 => Err(LiveError::os("start another process")),
        0 => child.run(),
        child => {
            let pid = Pid::try_from(child).expect("the kernel numbers processes from 1");
            Ok(Spawned { pid, go: go_write, failure: failure_read.into(), candidates })
        }
    }
}

impl Spawned {
    /// Lets the child execute the program.
    pub(crate) fn go(self) -> Result<Started, LiveError> {
        let byte = [1u8];
        // SAFETY: writes one byte of ours.
        let count = unsafe { libc::write(self.go.as_raw_fd(), byte.as_ptr().cast(), 1) };
        if count != 1 {
            return Err(LiveError::os("let the program start"));
        }
        Ok(Started { failure: self.failure, candidates: self.candidates })
    }
}

/// A child on its way to the program.
pub(crate) struct Started {
    failure: File,
    candidates: Vec<PathBuf>,
}

/// Why there is no program.
pub(crate) enum Failure {
    Error(LiveError),
    /// A text file without `#!`.
    Script(PathBuf),
}

impl Failure {
    /// A script without an interpreter is reported as a file of an unknown format.
    pub(crate) fn into_error(self) -> LiveError {
        match self {
            Failure::Error(error) => error,
            Failure::Script(path) => LiveError::Format { path },
        }
    }
}

impl Started {
    /// Why the child ended without having executed the program; `None` if it does not say.
    pub(crate) fn failure(mut self, launch: &Launch) -> Option<Failure> {
        let mut words = [0; 12];
        self.failure.read_exact(&mut words).ok()?;
        let word =
            |at: usize| i32::from_le_bytes(words[at..at + 4].try_into().expect("four bytes"));
        let (step, source) = (word(0), io::Error::from_raw_os_error(word(4)));
        let path = self.candidates.get(word(8) as usize).cloned().unwrap_or_default();
        if step == STEP_CHDIR {
            let path = launch.cwd.clone().unwrap_or_default();
            return Some(Failure::Error(LiveError::WorkingDirectory { path, source }));
        }
        if step == STEP_LIKENESS {
            let action = "give a process the user and files of another one";
            return Some(Failure::Error(LiveError::Os { action, source }));
        }
        let found = launch.seen_from_here(&path);
        Some(Failure::Error(match source.raw_os_error() {
            Some(libc::ENOENT) if found.is_file() => LiveError::Interpreter { path },
            Some(libc::ENOENT | libc::ENOTDIR) => {
                LiveError::NotFound { program: launch.program.clone() }
            }
            Some(libc::EACCES | libc::EPERM) => LiveError::NotExecutable { path },
            Some(libc::ENOEXEC) if is_text(&found) => return Some(Failure::Script(path)),
            Some(libc::ENOEXEC) => LiveError::Format { path },
            _ => LiveError::Exec { path, source },
        }))
    }
}

/// Whether a file that is no program looks like a script: its first line has no zero byte.
fn is_text(file: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(128).read_to_end(&mut bytes));
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    read.is_ok() && !line.contains(&0)
}

fn check_privileges(launch: &Launch, candidates: &[PathBuf]) -> Result<(), LiveError> {
    // SAFETY: these two cannot fail and touch no memory.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    if uid == 0 {
        return Ok(());
    }
    let executable = |path: &PathBuf| {
        let metadata = std::fs::metadata(path);
        metadata.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    let file = candidates.iter().map(|path| launch.seen_from_here(path)).find(executable);
    match file {
        Some(path) if gains_privileges(&path, uid, gid) => Err(LiveError::Setuid { path }),
        _ => Ok(()),
    }
}

fn terminated(text: &OsStr) -> Result<CString, LiveError> {
    CString::new(text.to_owned().into_vec())
        .map_err(|error| LiveError::Os { action: "pass on a zero byte", source: error.into() })
}

fn pipe() -> Result<(OwnedFd, OwnedFd), LiveError> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors into our array.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == -1 {
        return Err(LiveError::os("make a pipe"));
    }
    // SAFETY: both descriptors are new and ours.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

const STEP_CHDIR: i32 = 1;
const STEP_EXEC: i32 = 2;
const STEP_LIKENESS: i32 = 3;

/// What the child needs; nothing in it is allocated after the fork.
struct Child<'a> {
    go: c_int,
    go_write: c_int,
    failure: c_int,
    mask: libc::sigset_t,
    likeness: Option<&'a Likeness>,
    cwd: *const libc::c_char,
    paths: &'a [CString],
    args: &'a [*const libc::c_char],
    env: &'a [*const libc::c_char],
}

impl Child<'_> {
    fn run(&self) -> ! {
        // SAFETY: only calls that are safe between fork and exec, with pointers to values that
        // were made before the fork and of which the child has its own copy.
        unsafe {
            libc::close(self.go_write);
            let mut byte = 0u8;
            while libc::read(self.go, (&raw mut byte).cast(), 1) != 1 {
                if *libc::__errno_location() != libc::EINTR {
                    // The tracer gave up: the pipe is closed.
                    libc::_exit(127);
                }
            }
            if byte == 0 {
                libc::_exit(127);
            }
            // The Rust runtime ignores SIGPIPE in this process, and opens standard descriptors that
            // it finds closed; the program gets them as we got them.
            if !SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed) {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            }
            for (fd, was_closed) in (0..).zip(&WERE_CLOSED) {
                if was_closed.load(Ordering::Relaxed) {
                    libc::close(fd);
                }
            }
            signals::as_at_start();
            if let Some(likeness) = self.likeness {
                self.be_like(likeness);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, ptr::null_mut());
            if !self.cwd.is_null() && libc::chdir(self.cwd) == -1 {
                self.fail(STEP_CHDIR, *libc::__errno_location(), 0);
            }
            let mut worst = (libc::ENOENT, 0);
            for (index, path) in self.paths.iter().enumerate() {
                libc::execve(path.as_ptr(), self.args.as_ptr(), self.env.as_ptr());
                match *libc::__errno_location() {
                    // A file that may not be executed does not hide one that may be; but if there
                    // is no other, it is the reason.
                    libc::EACCES => worst = (libc::EACCES, index),
                    // A file with a missing interpreter is found and not executable either.
                    libc::ENOENT if worst.0 == libc::ENOENT => {
                        if libc::access(path.as_ptr(), libc::F_OK) == 0 {
                            worst = (libc::ENOENT, index);
                        }
                    }
                    libc::ENOENT
                    | libc::ENOTDIR
                    | libc::ESTALE
                    | libc::ENODEV
                    | libc::ETIMEDOUT => {}
                    other => self.fail(STEP_EXEC, other, index),
                }
            }
            self.fail(STEP_EXEC, worst.0, worst.1)
        }
    }

    /// Becomes like another process.
    fn be_like(&self, likeness: &Likeness) {
        // SAFETY: as in `run`. The list of groups was made before the fork.
        unsafe {
            libc::setsid();
            libc::umask(likeness.umask);
            // What this process was given beside its standard descriptors is none of the other's. (Linux 5.11; before
            // that it has them, too.)
            libc::syscall(libc::SYS_close_range, 3, c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            for (ours, number) in &likeness.descriptors {
                if *ours == CLOSED {
                    libc::close(*number);
                } else if libc::dup2(*ours, *number) == -1 {
                    self.fail(STEP_LIKENESS, *libc::__errno_location(), 0);
                }
            }
            for signal in (1..=64).filter(|signal| likeness.ignored >> (signal - 1) & 1 == 1) {
                libc::signal(signal, libc::SIG_IGN);
            }
            let Some(User { uid, gid, groups }) = &likeness.user else { return };
            let is_done = libc::setgroups(groups.len(), groups.as_ptr()) == 0
                && libc::setresgid(*gid, *gid, *gid) == 0
                && libc::setresuid(*uid, *uid, *uid) == 0;
            if !is_done {
                self.fail(STEP_LIKENESS, *libc::__errno_location(), 0);
            }
        }
    }

    fn fail(&self, step: i32, error: i32, index: usize) -> ! {
        let words = [step, error, index as i32];
        // SAFETY: writes an array of ours, and ends without running anything of the parent's.
        unsafe {
            libc::write(self.failure, words.as_ptr().cast(), size_of_val(&words));
            libc::_exit(127)
        }
    }
}

/// Whether SIGPIPE was ignored when this process started.
static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Which of the standard descriptors were closed when this process started.
static WERE_CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Runs before the Rust runtime changes the inherited state, and saves it.
extern "C" fn remember_start() {
    for (fd, was_closed) in (0..).zip(&WERE_CLOSED) {
        // SAFETY: asks for a number's flags.
        was_closed.store(unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1, Ordering::Relaxed);
    }
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the old one into our value.
    let ignored = unsafe {
        libc::sigaction(libc::SIGPIPE, ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    };
    SIGPIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER_START: extern "C" fn() = remember_start;
