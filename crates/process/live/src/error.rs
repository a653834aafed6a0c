//! What can go wrong between us and a running process, and what to do about it.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use fettle_types::Pid;

use crate::LiveAddr;
use crate::exit_status::ExitStatus;

/// Why a program could not be launched, followed or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// No such program.
    #[error("{program:?} was not found: give its path, or put its directory into PATH")]
    NotFound {
        /// The program as it was asked for.
        program: OsString,
    },

    /// Processes cannot be inspected.
    #[error(
        "/proc is not mounted, or shows another PID namespace's processes: nothing can be seen of a \
         program without it (`mount -t proc proc /proc`, or `unshare --fork --pid --mount-proc`)"
    )]
    NoProc,

    /// The program's file may not be executed, or one of its directories may not be searched.
    #[error(
        "{path} may not be executed: only a regular file may be, if its permissions (chmod +x) and those \
         of its directories say so"
    )]
    NotExecutable {
        /// The file that was found.
        path: PathBuf,
    },

    /// The file is there, but not what it names as its interpreter.
    #[error(
        "{path} is there, but the interpreter that it names is not: \
         look at its #! line, or for a program at `readelf -p .interp`"
    )]
    Interpreter {
        /// The file that was found.
        path: PathBuf,
    },

    /// The kernel does not know the file's format.
    #[error(
        "{path} is neither a program for this machine nor a script: \
         if it is a script, start it with a #! line"
    )]
    Format {
        /// The file that was found.
        path: PathBuf,
    },

    /// Any other failure to start the program.
    #[error("could not start {path}: {source}")]
    Exec {
        /// The file that was found.
        path: PathBuf,
        /// What execve answered.
        source: io::Error,
    },

    /// The working directory that was asked for cannot be entered.
    #[error("could not enter the directory {path}: {source}")]
    WorkingDirectory {
        /// The directory.
        path: PathBuf,
        /// What chdir answered.
        source: io::Error,
    },

    /// The program gains privileges when it starts, which the kernel refuses to a traced program.
    #[error(
        "{path} is set-user-ID, set-group-ID or has file capabilities, and would silently lose \
         them when observed by an ordinary user: run Fettle as root"
    )]
    Setuid {
        /// The program's file.
        path: PathBuf,
    },

    /// The process is another user's.
    #[error(
        "not allowed to trace process {pid}: it belongs to user {owner}, and Fettle runs as user \
         {ours}: run it as that user, or as root"
    )]
    NotOurs {
        /// The process.
        pid: Pid,
        /// The number of the user that it belongs to.
        owner: u64,
        /// The number of the user that we are.
        ours: u64,
    },

    /// The kernel does not let us trace.
    #[error(
        "not allowed to trace process {pid} ({source}): in a container, allow ptrace \
         (--cap-add=SYS_PTRACE); on a host, look at /proc/sys/kernel/yama/ptrace_scope; \
         under another tracer or debugger, end that one first"
    )]
    NotPermitted {
        /// The process.
        pid: Pid,
        /// What ptrace answered.
        source: io::Error,
    },

    /// A system call of our own failed.
    #[error("could not {action}: {source}")]
    Os {
        /// What was tried.
        action: &'static str,
        /// What the system answered.
        source: io::Error,
    },

    /// A request about a stopped process failed.
    #[error("could not {action} of process {pid}: {source}")]
    Ptrace {
        /// What was tried.
        action: &'static str,
        /// The process or thread.
        pid: Pid,
        /// What ptrace answered.
        source: io::Error,
    },

    /// A system call that the process made for us failed.
    #[error("process {pid} could not {action} at {address:#x}: {source}")]
    Remote {
        /// What the call was for.
        action: &'static str,
        /// The process.
        pid: Pid,
        /// The address it was about, or 0.
        address: u64,
        /// What the call answered.
        source: io::Error,
    },

    /// The memory of a process could not be read or written.
    #[error("could not {action} {len} bytes at {address} of process {pid}: {source}")]
    Memory {
        /// "read" or "write".
        action: &'static str,
        /// The process.
        pid: Pid,
        /// Where.
        address: LiveAddr,
        /// How much.
        len: usize,
        /// What the system answered.
        source: io::Error,
    },

    /// The process is confined by a seccomp filter which might kill it for our system calls.
    #[error(
        "process {pid} has {filters} seccomp filter(s) of its own, which only root may suspend: \
         it runs without instrumentation"
    )]
    Seccomp {
        /// The process.
        pid: Pid,
        /// How many filters it has beyond ours.
        filters: u64,
    },

    /// A program of another architecture cannot run our code.
    #[error("process {pid} is a 32-bit program: it runs without instrumentation")]
    Compat {
        /// The process.
        pid: Pid,
    },

    /// The stack that the kernel left for the program does not have the expected form.
    #[error("the initial stack of process {pid} could not be understood: {what}")]
    Stack {
        /// The process.
        pid: Pid,
        /// What was not there.
        what: &'static str,
    },

    /// The injection asks for something impossible.
    #[error("cannot inject into process {pid}: {what}")]
    Injection {
        /// The process.
        pid: Pid,
        /// What is wrong with it.
        what: &'static str,
    },

    /// The process ended while we worked on it.
    #[error("process {pid} ended meanwhile, or runs another program")]
    Gone {
        /// The process.
        pid: Pid,
    },

    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// What was asked for.
        pid: Pid,
    },

    /// A process that runs, but of a kind that cannot be changed.
    #[error("process {pid} is left unmodified: {why}")]
    Unattachable {
        /// The process.
        pid: Pid,
        /// Why.
        why: String,
    },

    /// A process that cannot be changed now, but may be later.
    #[error("process {pid} cannot be changed now: {why}; try again")]
    Busy {
        /// The process.
        pid: Pid,
        /// Why.
        why: String,
    },

    /// The undo log of a process cannot be used.
    #[error("the undo log {path}: {what}")]
    Journal {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },

    /// The file that names rewritten text for perf could not be written.
    #[error(
        "{path} could not be written: {source}; if the program writes it itself, or another one \
         left it, perf does not know of rewritten text"
    )]
    PerfMap {
        /// The file, as the process sees it.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },

    /// The program ended before it ran: something killed it between fork and exec.
    #[error("the program ended before it started: {status}")]
    Stillborn {
        /// How it ended.
        status: ExitStatus,
    },
}

impl LiveError {
    /// Whether memory could not be mapped because the process has something there now.
    pub fn is_taken(&self) -> bool {
        let exists = |source: &io::Error| source.raw_os_error() == Some(libc::EEXIST);
        matches!(self, LiveError::Remote { source, .. } if exists(source))
    }

    /// Why a process is left unmodified, where the process is named already.
    pub fn reason(&self) -> String {
        match self {
            LiveError::Unattachable { why, .. } => why.clone(),
            _ => self.to_string(),
        }
    }

    pub(crate) fn os(action: &'static str) -> LiveError {
        LiveError::Os { action, source: io::Error::last_os_error() }
    }
}
