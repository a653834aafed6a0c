//! The only crate that changes a running process.
//!
//! [`run`] launches a program under ptrace and follows all its descendants. Whenever one of them
//! executes a program, and before that program's first instruction, a [`Session`] may answer with
//! an [`Injection`]: files to map, bytes to write, other program headers to believe in. Threads
//! and processes that are born are reported before they run.
//!
//! The kernel stops a traced program for three things here: births, execs and signals. Signals
//! are passed on as they came. System calls do not stop. If this process dies, the kernel lets go
//! of the program, which runs on; injections are made so that this holds at any point of one.
//!
//! A [`Door`], if the session puts one there, lets a running program tell when its loader has
//! changed the list of libraries ([`Session::knocked`]).
//!
//! A process that runs already is opened as a [`Process`] and changed while it is [`Halted`], for
//! moments; it is not traced between them, unless [`attach`] follows it like a launched one. What is changed is told to a [`Journal`] first, from
//! which [`undo`] can put it back at any time, whatever has become of who wrote it.
//!
//! Three things tracing changes that nobody can hide from a program:
//!
//! - A signal that a program ignores (SIGCHLD mostly) wakes it for a moment. Most system calls
//!   then go on by themselves; a few, `epoll_wait` among them, return EINTR.
//! - `/proc/PID/status` names a tracer, and no second one is allowed (`strace`, a debugger).
//! - `getppid` of the program is this process.
//!
//! A descendant made with CLONE_UNTRACED is not seen.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("fettle-live knows Linux on x86-64 only");

mod attach;
mod auxv;
mod beside;
mod caller;
mod change;
mod claim;
mod deopt;
mod door;
mod entry;
mod error;
mod events;
mod exit_status;
mod follower;
mod give_file;
mod growth;
mod halt;
mod haste;
mod heirs;
mod inject;
mod journal;
mod launch;
mod leak_check;
mod maps;
mod memory;
mod names;
mod own_stack;
mod pagemap;
mod patching;
mod perf_map;
mod places;
mod privileges;
mod process;
mod ptrace;
mod references;
mod remote;
mod returns;
mod signals;
mod stop;
mod thread;
mod way_back;
mod world;

pub use attach::{Following, attach, is_followed};
pub use auxv::Auxv;
pub use beside::run_beside;
pub use change::{InMemory, Undoing, Undone, undo};
pub use claim::Claim;
pub use door::{AliveWord, Door, DoorStop, Request};
pub use entry::{Entry, Names, Patch, Place, Purpose, Record, Region};
pub use error::LiveError;
pub use events::{Birth, FaultStop, RunOptions, Session, WaitFor, run};
pub use exit_status::ExitStatus;
pub use growth::Growth;
pub use halt::Halted;
pub use haste::{give_way, open_many_files};
pub use heirs::{Relative, bequeath, by_birth, heirs, inherit, relatives};
pub use inject::{FileMap, Injection};
pub use journal::Journal;
pub use launch::Launch;
pub use maps::{FileId, LiveAddr, Mapping, Prot};
pub use own_stack::on_own_stack;
pub use patching::{Known, Left, Patched, Restored};
pub use perf_map::write_perf_map;
pub use places::Places;
pub use process::{
    Process, check_proc, command_line, command_of, has_ended, mapped_file, parent_of, start_time,
};
pub use references::Ranges;
pub use returns::Returns;
pub use signals::{catch_signals, stop_between_moments};
pub use stop::ExecStop;
