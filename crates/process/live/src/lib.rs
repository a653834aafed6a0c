//! The only crate that changes a running process.
//!
//! [`run`] launches a program under ptrace and follows all its descendants. Whenever one of them
//! executes a program, and before that program's first instruction, a [`Session`] may answer with
//! an [`Injection`]: files to map, bytes to write, other program headers for the loader. New
//! threads and forked processes are reported before they run.
//!
//! The kernel stops a traced program for three things here: forks, execs and signals. Signals are
//! delivered as they came. System calls do not stop. If this process dies, the kernel detaches the
//! program, which runs on; injections are made so that this holds at any point of one.
//!
//! A [`DlopenHook`], if the session puts one there, lets a running program report that its loader
//! has changed the list of libraries ([`Session::library_event`]).
//!
//! A process that runs already is opened as a [`Process`] and changed in stop-the-world pauses,
//! each a [`Paused`]; between them it is not traced, unless [`attach`] follows it like a launched
//! one. Every change is written to a [`Journal`] first, from which [`undo`] can revert it at any
//! time, even if the Fettle that wrote it was killed.
//!
//! A program can see three things of being traced, which cannot be hidden from it:
//!
//! - A signal that a program ignores (SIGCHLD mostly) interrupts its wait. Most system calls are
//!   then restarted by the kernel; a few, `epoll_wait` among them, return EINTR.
//! - `/proc/PID/status` names a tracer, and no second one is allowed (`strace`, a debugger).
//! - `getppid` of the program is this process.
//!
//! A descendant made with CLONE_UNTRACED is not seen.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("fettle-live knows Linux on x86-64 only");

mod attach;
mod auxv;
mod births;
mod caller;
mod change;
mod claim;
mod deopt;
mod descriptor;
mod dlopen_hook;
mod entry;
mod error;
mod events;
mod exit_status;
mod follower;
mod forked;
mod give_file;
mod growth;
mod held;
mod inject;
mod journal;
mod launch;
mod leak_check;
mod mapped_files;
mod maps;
mod memory;
mod names;
mod own_stack;
mod pagemap;
mod parked;
mod patching;
mod patience;
mod pause;
mod perf_map;
mod priority;
mod privileges;
mod process;
mod ptrace;
mod ranges;
mod references;
mod remote;
mod restart;
mod restore_stub;
mod return_table;
mod signals;
mod spare;
mod stacks;
mod stop;
mod thread;
mod thread_counter;
mod thread_states;
mod tracefs;
mod untraced;
mod world;

pub use attach::{Following, attach, is_followed};
pub use auxv::Auxv;
pub use change::{InMemory, Undoing, Undone, undo};
pub use claim::Claim;
pub use dlopen_hook::{AliveWord, DlopenHook, HookStop, Request};
pub use entry::{Entry, Names, Patch, Place, Purpose, Record, Region};
pub use error::LiveError;
pub use events::{Birth, FaultStop, RunOptions, Session, WaitFor, run};
pub use exit_status::ExitStatus;
pub use forked::{
    GroupKey, Member, forked_children, group_key, inherit, inherited_from, members_of, pass_on,
};
pub use growth::Growth;
pub use inject::{FileMap, Injection};
pub use journal::Journal;
pub use launch::{Launch, User};
pub use mapped_files::MappedFiles;
pub use maps::{FileId, LiveAddr, Mapping, Prot, of_process as maps_of, parse as parse_maps};
pub use own_stack::on_own_stack;
pub use patching::{Known, Left, Patched, Restored};
pub use patience::limited_waits;
pub use pause::Paused;
pub use perf_map::write_perf_map;
pub use priority::{end_with_parent, lower_priority, open_many_files};
pub use process::{
    Process, check_proc, command_line, command_of, has_ended, mapped_file, parent_of,
    space_of_auxv, start_time, user,
};
pub use ranges::Ranges;
pub use return_table::ReturnTable;
pub use signals::{catch_signals, stop_between_pauses};
pub use spare::{Spare, SpareStart, SpareState};
pub use stop::ExecStop;
pub use thread_counter::ThreadCounter;
pub use thread_states::{StateLimits, ThreadState, ThreadStates};
pub use tracefs::{Tracefs, Tracepoint};
pub use untraced::run_untraced;
