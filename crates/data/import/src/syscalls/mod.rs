//! System calls of foreign traces as the catalogue's events.
//!
//! A tracer of system calls sees numbers where Fettle's own recording sees what they mean: whether
//! descriptor 5 is a file, a pipe or a connection. So descriptors are followed through the calls
//! that make them, and a call becomes the event that a recording would have had: reading is
//! `received` on a socket, `pipe_read` on a pipe, `read` otherwise. A call that the catalogue does
//! not know becomes a `syscall`, once, when it returns.

pub mod args;
mod descriptors;
mod names;

use std::collections::{HashMap, HashSet};

use fettle_abi::events::Event;

pub use names::name_of;

use args::{Args, Fd};
use descriptors::{Behind, Descriptors, Of, address, end, of_path};

use crate::error::Result;
use crate::sink::{At, Sink};
use crate::value::Value;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Reads from, or writes to, the descriptor at a place.
    Read,
    Write,
    /// From the second to the first; from the first to the third.
    SendFile,
    Splice,
    Sync,
    Poll,
    Futex,
    FutexWait,
    FutexWake,
    Sleep,
    Child,
    Accept,
    Connect,
    /// Opens the path at a place.
    Open(usize),
    Close,
    CloseRange,
    Pipe,
    SocketPair,
    Dup,
    Fcntl,
    Uring,
    /// Makes a descriptor, and is no event.
    Socket,
    Anonymous,
    /// Gives an address: of this end, of the other.
    Local,
    Remote,
    Fork,
    Exec,
    Exit,
    /// Nothing of the catalogue.
    Other,
}

fn class_of(name: &str) -> Class {
    use Class as C;
    match name {
        "read" | "pread64" | "readv" | "preadv" | "preadv2" | "recvfrom" | "recvmsg"
        | "recvmmsg" | "getdents" | "getdents64" => C::Read,
        "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "sendto" | "sendmsg"
        | "sendmmsg" | "vmsplice" => C::Write,
        "sendfile" | "sendfile64" => C::SendFile,
        "splice" | "copy_file_range" => C::Splice,
        "fsync" | "fdatasync" | "sync_file_range" | "syncfs" => C::Sync,
        "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait"
        | "epoll_pwait2" => C::Poll,
        "futex" => C::Futex,
        "futex_wait" | "futex_waitv" => C::FutexWait,
        "futex_wake" => C::FutexWake,
        "pause" | "nanosleep" | "clock_nanosleep" | "rt_sigtimedwait" | "rt_sigsuspend" => C::Sleep,
        "wait4" | "waitid" => C::Child,
        "accept" | "accept4" => C::Accept,
        "connect" => C::Connect,
        "open" | "creat" => C::Open(0),
        "openat" | "openat2" => C::Open(1),
        "close" => C::Close,
        "close_range" => C::CloseRange,
        "pipe" | "pipe2" => C::Pipe,
        "socketpair" => C::SocketPair,
        "dup" | "dup2" | "dup3" => C::Dup,
        "fcntl" => C::Fcntl,
        "io_uring_enter" => C::Uring,
        "socket" => C::Socket,
        "eventfd" | "eventfd2" | "epoll_create" | "epoll_create1" | "timerfd_create"
        | "signalfd" | "signalfd4" | "inotify_init" | "inotify_init1" | "perf_event_open"
        | "pidfd_open" | "io_uring_setup" | "userfaultfd" | "memfd_create" => C::Anonymous,
        "bind" | "getsockname" => C::Local,
        "getpeername" => C::Remote,
        "fork" | "vfork" | "clone" | "clone3" => C::Fork,
        "execve" | "execveat" => C::Exec,
        "exit" | "exit_group" => C::Exit,
        _ => C::Other,
    }
}

/// A call that has begun.
#[derive(Debug)]
struct Begun {
    name: String,
    class: Class,
    begin_ns: u64,
    /// Descriptors, -1 if there is none.
    fds: [i32; 2],
    /// Futex address, or another number.
    word: u64,
    /// A futex's operation, `fcntl`'s command, and so on.
    operation: u64,
    /// Path or arguments.
    text: String,
}

/// The error of a call that found nothing.
const EAGAIN: i64 = 11;
/// `CLONE_THREAD`.
const CLONE_THREAD: u64 = 0x1_0000;

/// Follows system calls.
#[derive(Debug, Default)]
pub struct Calls {
    descriptors: Descriptors,
    begun: HashMap<u32, Begun>,
    /// The status with which a process said that it would end.
    ending: HashMap<u32, i32>,
    /// Threads that were begot: they return from a call that they did not begin.
    newborn: HashSet<u32>,
}

impl Calls {
    /// Whether a thread is in a system call that the trace has.
    pub fn is_in_call(&self, tid: u32) -> bool {
        self.begun.contains_key(&tid)
    }

    /// A thread begins a call.
    pub fn enter(&mut self, sink: &mut Sink, at: At, name: &str, args: Args<'_>) -> Result<()> {
        let class = class_of(name);
        let number = |place, names: &[&str]| args.number(place, names).unwrap_or(0);
        let fd_at = |place, names: &[&str]| args.fd(place, names);
        let mut begun = Begun {
            name: name.to_owned(),
            class,
            begin_ns: at.time_ns,
            fds: [-1; 2],
            word: 0,
            operation: 0,
            text: String::new(),
        };
        let task = [u64::from(at.pid), u64::from(at.tid)];
        let first = fd_at(0, &["fd", "fildes", "oldfd", "fd_in", "out_fd", "in_fd"]);
        match class {
            Class::Read => {
                begun.fds[0] = self.begins(sink, at, first, false)?;
                begun.operation = u64::from(args.peeks(name));
            }
            Class::Write => begun.fds[0] = self.begins(sink, at, first, true)?,
            Class::SendFile | Class::Splice => {
                let (from, to) = match class {
                    Class::SendFile => (fd_at(1, &["in_fd"]), fd_at(0, &["out_fd"])),
                    _ => (fd_at(0, &["fd_in"]), fd_at(2, &["fd_out"])),
                };
                begun.fds[0] = self.begins(sink, at, from, false)?;
                begun.fds[1] = self.begins(sink, at, to, true)?;
            }
            Class::Sync => {
                begun.fds[0] = number_of(first);
                sink.kernel(Event::SyncBegin, at, &[task[0], task[1], signed(begun.fds[0])])?;
            }
            Class::Poll => sink.kernel(Event::PollBegin, at, &task)?,
            Class::Sleep => sink.kernel(Event::SleepBegin, at, &task)?,
            Class::Child => sink.kernel(Event::ChildBegin, at, &task)?,
            Class::Futex | Class::FutexWait | Class::FutexWake => {
                begun.word = number(0, &["uaddr", "waiters"]);
                begun.operation = match class {
                    Class::Futex => futex_operation(args),
                    Class::FutexWait => 0,
                    _ => 1,
                };
                if FUTEX_WAITS.contains(&begun.operation) {
                    let values = [task[0], task[1], begun.word, begun.operation];
                    sink.kernel(Event::FutexWaitBegin, at, &values)?;
                }
            }
            Class::Accept => {
                begun.fds[0] = number_of(first);
                if !self.behind(at, first).nonblocking {
                    let values = [task[0], task[1], signed(begun.fds[0])];
                    sink.kernel(Event::AcceptBegin, at, &values)?;
                }
            }
            Class::Connect => {
                begun.fds[0] = number_of(first);
                let behind = self.behind(at, first);
                begun.text = args.text(1, &["uservaddr"]).and_then(address).unwrap_or_default();
                if !behind.nonblocking {
                    sink.kernel(Event::ConnectBegin, at, &[task[0], task[1], behind.id])?;
                }
            }
            Class::Open(place) => {
                begun.text = args.path(place, &["filename"]).unwrap_or_default();
                begun.operation = u64::from(is_directory(args));
            }
            Class::Close => self.closed(sink, at, number_of(first))?,
            Class::CloseRange => {
                let ends = [number(0, &["fd"]), number(1, &["max_fd"])];
                (begun.word, begun.operation) = (ends[0], ends[1]);
            }
            Class::Dup => begun.fds[0] = number_of(first),
            Class::Fcntl => {
                begun.fds[0] = number_of(first);
                begun.operation = fcntl_command(args.get(1, &["cmd"]));
                if begun.operation == SETFL && wants_nonblocking_flags(args) {
                    begun.operation = SETFL_NONBLOCKING;
                }
            }
            Class::Uring | Class::Local | Class::Remote => begun.fds[0] = number_of(first),
            Class::Fork => {
                let flags = args.get(0, &["clone_flags", "flags"]);
                begun.operation = u64::from(match flags {
                    Some(Value::Text(_)) => args.rendered().contains("CLONE_THREAD"),
                    Some(flags) => flags.bits().is_some_and(|bits| bits & CLONE_THREAD != 0),
                    None => false,
                });
            }
            Class::Exec => {
                let place = usize::from(name == "execveat");
                begun.text = args.path(place, &["filename"]).unwrap_or_default();
            }
            Class::Exit => {
                let status = number(0, &["error_code"]) as i32 & 0xff;
                self.ending.insert(at.pid, status);
            }
            Class::Socket => begun.operation = u64::from(wants_nonblocking(args, 1)),
            Class::Anonymous | Class::Pipe | Class::SocketPair => {}
            Class::Other => begun.text = args.rendered(),
        }
        self.begun.insert(at.tid, begun);
        Ok(())
    }

    /// A thread's call returns. `args` are those that are known by now only.
    pub fn exit(
        &mut self,
        sink: &mut Sink,
        at: At,
        result: i64,
        error: &str,
        args: Args<'_>,
    ) -> Result<()> {
        let Some(begun) = self.begun.remove(&at.tid) else {
            if self.newborn.remove(&at.tid) && result == 0 {
                return Ok(());
            }
            sink.lose("system calls that had begun before the trace did", 1);
            return Ok(());
        };
        let task = [u64::from(at.pid), u64::from(at.tid)];
        let three = |third: u64| [task[0], task[1], third];
        let bits = result as u64;
        match begun.class {
            Class::Read => {
                // What is only looked at stays where it is, as if the call had found nothing.
                let looks = begun.operation != 0 || args.peeks(&begun.name);
                let result = if looks && result > 0 { -EAGAIN } else { result };
                self.ends(sink, at, begun.fds[0], false, result)
            }
            Class::Write => self.ends(sink, at, begun.fds[0], true, result),
            Class::SendFile | Class::Splice => {
                self.ends(sink, at, begun.fds[0], false, result)?;
                self.ends(sink, at, begun.fds[1], true, result)
            }
            Class::Sync => sink.kernel(Event::Sync, at, &three(signed(begun.fds[0]))),
            Class::Poll => sink.kernel(Event::Poll, at, &three(bits)),
            Class::Sleep => sink.kernel(Event::Sleep, at, &task),
            Class::Child => sink.kernel(Event::Child, at, &three(bits)),
            Class::Futex | Class::FutexWait | Class::FutexWake => {
                let event = match FUTEX_WAITS.contains(&begun.operation) {
                    true => Event::FutexWait,
                    false => Event::FutexWake,
                };
                sink.kernel(event, at, &[task[0], task[1], begun.word, bits])
            }
            Class::Accept => self.accepted(sink, at, &begun, result, args),
            Class::Connect => self.connected(sink, at, &begun, result),
            Class::Open(_) => self.opened(sink, at, &begun, result),
            Class::CloseRange => self.closed_range(sink, at, &begun, result),
            Class::Pipe => self.pipe(sink, at, result, args),
            Class::SocketPair => self.socket_pair(sink, at, result, args),
            Class::Dup => self.duplicated(sink, at, begun.fds[0], result),
            Class::Fcntl if begun.operation == DUPFD => {
                self.duplicated(sink, at, begun.fds[0], result)
            }
            Class::Fcntl => {
                if begun.operation >= SETFL && result == 0 {
                    let fd = Fd { number: begun.fds[0], of: None };
                    let mut behind = self.descriptors.get(at.pid, fd);
                    behind.nonblocking = begun.operation == SETFL_NONBLOCKING;
                    self.descriptors.set(at.pid, begun.fds[0], behind);
                }
                Ok(())
            }
            Class::Uring => {
                let values = [task[0], task[1], signed(begun.fds[0]), bits];
                sink.kernel(Event::IoUring, at, &values)
            }
            Class::Socket | Class::Anonymous if result >= 0 => {
                let socket = begun.class == Class::Socket;
                let of = if socket { Of::Socket } else { Of::Anonymous };
                let mut behind = self.descriptors.made(of);
                behind.nonblocking = begun.operation != 0;
                self.descriptors.set(at.pid, result as i32, behind);
                Ok(())
            }
            Class::Local | Class::Remote if result == 0 => {
                if let Some(reported) = args.text(1, &["uaddr", "usockaddr"]).and_then(address) {
                    let fd = Fd { number: begun.fds[0], of: None };
                    let mut behind = self.descriptors.get(at.pid, fd);
                    match begun.class {
                        Class::Local => behind.local = reported.into(),
                        _ => behind.remote = reported.into(),
                    }
                    self.descriptors.set(at.pid, begun.fds[0], behind);
                }
                Ok(())
            }
            Class::Fork if result > 0 => {
                let child = result as u32;
                let child_pid = if begun.operation != 0 { at.pid } else { child };
                self.fork(sink, at, child_pid, child)
            }
            Class::Exec if result == 0 => self.exec(sink, at, &begun.text),
            Class::Other => other(sink, at, &begun, result, error),
            _ => Ok(()),
        }
    }

    /// A thread creates another, or forks a process, if no event said so yet.
    pub fn fork(&mut self, sink: &mut Sink, at: At, child_pid: u32, child_tid: u32) -> Result<()> {
        if !sink.tasks.begets(at.tid, child_tid) {
            return Ok(());
        }
        self.descriptors.fork(at.pid, child_pid);
        self.newborn.insert(child_tid);
        sink.tasks.fork(at.tid, child_pid, child_tid, at.time_ns);
        let child = [u64::from(child_pid), u64::from(child_tid)];
        let values = [u64::from(at.pid), u64::from(at.tid), child[0], child[1]];
        sink.kernel(Event::Fork, at, &values)
    }

    /// A thread is seen for the first time. If exactly one thread is in a call that creates one,
    /// that is its creator.
    pub fn newcomer(&mut self, sink: &mut Sink, tid: u32, time_ns: u64) -> Result<()> {
        let mut forks = self.begun.iter().filter(|(_, begun)| begun.class == Class::Fork);
        let (Some((parent, begun)), None) = (forks.next(), forks.next()) else { return Ok(()) };
        let (parent, thread) = (*parent, begun.operation != 0);
        let pid = sink.tasks.pid_of(parent);
        let at = At { time_ns, cpu: 0, pid, tid: parent };
        self.fork(sink, at, if thread { pid } else { tid }, tid)
    }

    /// A process runs another program.
    pub fn exec(&mut self, sink: &mut Sink, at: At, path: &str) -> Result<()> {
        sink.tasks.exec(at.pid, at.tid, path, at.time_ns);
        let path = sink.text(path);
        sink.kernel(Event::Exec, at, &[u64::from(at.pid), u64::from(at.tid), path])
    }

    /// A thread ends; with it its process if it is the last, as `last` says.
    pub fn thread_exit(
        &mut self,
        sink: &mut Sink,
        at: At,
        last: Option<Option<i32>>,
    ) -> Result<()> {
        let task = [u64::from(at.pid), u64::from(at.tid)];
        self.begun.remove(&at.tid);
        self.newborn.remove(&at.tid);
        let name = sink.tasks.name_of(at.tid).to_owned();
        sink.tasks.thread_exit(at.tid, at.time_ns);
        let name = sink.text(&name);
        sink.kernel(Event::ThreadExit, at, &[task[0], task[1], name])?;
        let Some(status) = last else { return Ok(()) };
        let said = self.ending.remove(&at.pid);
        if let Some(status) = status.or(said) {
            sink.tasks.process_exit(at.pid, status, at.time_ns);
            sink.kernel(Event::ProcessExit, at, &[task[0], task[1], signed(status)])?;
        }
        for socket in self.descriptors.exit(at.pid) {
            socket_closed(sink, at, &socket)?;
        }
        Ok(())
    }

    fn behind(&mut self, at: At, fd: Option<Fd<'_>>) -> Behind {
        match fd {
            Some(fd) => self.descriptors.get(at.pid, fd),
            None => self.descriptors.made(Of::Other),
        }
    }

    /// Reading or writing begins; its descriptor.
    fn begins(&mut self, sink: &mut Sink, at: At, fd: Option<Fd<'_>>, writes: bool) -> Result<i32> {
        let Some(fd) = fd else { return Ok(-1) };
        let behind = self.descriptors.get(at.pid, fd);
        let task = [u64::from(at.pid), u64::from(at.tid)];
        let socket_or_pipe = match (behind.of, writes) {
            (Of::Pipe, false) => Some(Event::PipeReadBegin),
            (Of::Pipe, true) => Some(Event::PipeWriteBegin),
            (Of::Socket, false) => Some(Event::ReceiveBegin),
            (Of::Socket, true) => Some(Event::SendBegin),
            _ => None,
        };
        match socket_or_pipe {
            Some(_) if behind.nonblocking => {}
            Some(event) => sink.kernel(event, at, &[task[0], task[1], behind.id])?,
            None => {
                let of = sink.text(behind.of.name());
                let event = if writes { Event::WriteBegin } else { Event::ReadBegin };
                sink.kernel(event, at, &[task[0], task[1], signed(fd.number), behind.id, of])?;
            }
        }
        Ok(fd.number)
    }

    /// Reading or writing ends.
    fn ends(&mut self, sink: &mut Sink, at: At, fd: i32, writes: bool, bytes: i64) -> Result<()> {
        let behind = self.descriptors.get(at.pid, Fd { number: fd, of: None });
        let task = [u64::from(at.pid), u64::from(at.tid)];
        let bytes = bytes as u64;
        match behind.of {
            Of::Pipe => {
                let event = if writes { Event::PipeWrite } else { Event::PipeRead };
                sink.kernel(event, at, &[task[0], task[1], behind.id, bytes])
            }
            Of::Socket => {
                let (local, remote) = ends_of(sink, &behind);
                let of = [task[0], task[1], behind.id, local, remote, bytes];
                if writes {
                    return sink.kernel(Event::Sent, at, &of);
                }
                // How long they had been queued is not known.
                sink.kernel(Event::Received, at, &[&of[..], &[0]].concat())
            }
            of => {
                let of = sink.text(of.name());
                let event = if writes { Event::Write } else { Event::Read };
                let values = [task[0], task[1], signed(fd), bytes, behind.id, of];
                sink.kernel(event, at, &values)
            }
        }
    }

    fn accepted(
        &mut self,
        sink: &mut Sink,
        at: At,
        begun: &Begun,
        result: i64,
        args: Args<'_>,
    ) -> Result<()> {
        let task = [u64::from(at.pid), u64::from(at.tid)];
        if result < 0 {
            let values = [task[0], task[1], signed(begun.fds[0]), result as u64];
            return sink.kernel(Event::AcceptFailed, at, &values);
        }
        let listener = self.descriptors.get(at.pid, Fd { number: begun.fds[0], of: None });
        let mut made = self.descriptors.made(Of::Socket);
        made.nonblocking = wants_nonblocking(args, 3);
        if let Some(remote) = args.text(1, &["upeer_sockaddr"]).and_then(address) {
            made.remote = remote.into();
        }
        // An address that stands for all of a machine's is none of a connection's.
        if !listener.local.starts_with("0.0.0.0:") && !listener.local.starts_with("[::]:") {
            made.local = listener.local;
        }
        let number = result as i32;
        self.descriptors.set(at.pid, number, made);
        // With what it is said to be, if the trace has that: it is called `result` then.
        let reported = args.fd(usize::MAX, &["result"]).filter(|fd| fd.number == number);
        let made = self.descriptors.get(at.pid, reported.unwrap_or(Fd { number, of: None }));
        let (local, remote) = ends_of(sink, &made);
        let values = [task[0], task[1], made.id, local, remote, signed(number)];
        sink.kernel(Event::Accept, at, &values)
    }

    fn connected(&mut self, sink: &mut Sink, at: At, begun: &Begun, result: i64) -> Result<()> {
        let fd = begun.fds[0];
        let mut behind = self.descriptors.get(at.pid, Fd { number: fd, of: None });
        behind.of = Of::Socket;
        if !begun.text.is_empty() {
            behind.remote = begun.text.as_str().into();
        }
        self.descriptors.set(at.pid, fd, behind.clone());
        let (local, remote) = ends_of(sink, &behind);
        let task = [u64::from(at.pid), u64::from(at.tid)];
        let values = [task[0], task[1], behind.id, local, remote, signed(fd), result as u64];
        sink.kernel(Event::Connect, at, &values)
    }

    fn opened(&mut self, sink: &mut Sink, at: At, begun: &Begun, result: i64) -> Result<()> {
        let mut of = "";
        if result >= 0 {
            let directory = begun.operation != 0;
            let behind = if directory { Of::Directory } else { of_path(&begun.text) };
            of = behind.name();
            let behind = self.descriptors.made(behind);
            self.descriptors.set(at.pid, result as i32, behind);
        }
        let (path, of) = (sink.text(&begun.text), sink.text(of));
        let task = [u64::from(at.pid), u64::from(at.tid)];
        sink.kernel(Event::Open, at, &[task[0], task[1], result as u64, path, 0, of])
    }

    /// A descriptor is closed; the event is made when the call begins.
    fn closed(&mut self, sink: &mut Sink, at: At, fd: i32) -> Result<()> {
        let (behind, last) = match self.descriptors.close(at.pid, fd) {
            Some(closed) => closed,
            None => (self.descriptors.made(Of::Other), false),
        };
        let of = sink.text(behind.of.name());
        let id = if behind.of == Of::Other { 0 } else { behind.id };
        let values = [u64::from(at.pid), u64::from(at.tid), signed(fd), id, of];
        sink.kernel(Event::Close, at, &values)?;
        if last && behind.of == Of::Socket {
            socket_closed(sink, at, &behind)?;
        }
        Ok(())
    }

    fn closed_range(&mut self, sink: &mut Sink, at: At, begun: &Begun, result: i64) -> Result<()> {
        if result != 0 {
            return Ok(());
        }
        let (first, last) = (begun.word, begun.operation.min(u64::from(u32::MAX)));
        let values = [u64::from(at.pid), u64::from(at.tid), first, last];
        sink.kernel(Event::CloseRange, at, &values)?;
        for fd in self.descriptors.within(at.pid, first, last) {
            if let Some((behind, true)) = self.descriptors.close(at.pid, fd)
                && behind.of == Of::Socket
            {
                socket_closed(sink, at, &behind)?;
            }
        }
        Ok(())
    }

    fn pipe(&mut self, sink: &mut Sink, at: At, result: i64, args: Args<'_>) -> Result<()> {
        let Some(pair) = args.pair(0).filter(|_| result == 0) else { return Ok(()) };
        let pipe = self.descriptors.made(Of::Pipe);
        for fd in pair {
            self.descriptors.set(at.pid, fd.number, pipe.clone());
        }
        let [read, _] = pair.map(|fd| self.descriptors.get(at.pid, fd));
        let numbers = pair.map(|fd| signed(fd.number));
        let values = [u64::from(at.pid), u64::from(at.tid), read.id, numbers[0], numbers[1]];
        sink.kernel(Event::PipeMade, at, &values)
    }

    fn socket_pair(&mut self, sink: &mut Sink, at: At, result: i64, args: Args<'_>) -> Result<()> {
        let Some(pair) = args.pair(3).filter(|_| result == 0) else { return Ok(()) };
        let mut sockets = [self.descriptors.made(Of::Socket), self.descriptors.made(Of::Socket)];
        let [one, other] = sockets.each_ref().map(|socket| format!("unix:{}", socket.id));
        for (socket, (local, remote)) in sockets.iter_mut().zip([(&one, &other), (&other, &one)]) {
            socket.local = local.as_str().into();
            socket.remote = remote.as_str().into();
        }
        for (fd, socket) in pair.iter().zip(&sockets) {
            self.descriptors.set(at.pid, fd.number, socket.clone());
        }
        let [first, second] = pair.map(|fd| self.descriptors.get(at.pid, fd));
        let (local, remote) = ends_of(sink, &first);
        let task = [u64::from(at.pid), u64::from(at.tid)];
        let values = [task[0], task[1], first.id, second.id, local, remote];
        sink.kernel(Event::SocketPair, at, &values)
    }

    fn duplicated(&mut self, sink: &mut Sink, at: At, fd: i32, result: i64) -> Result<()> {
        if result < 0 {
            return Ok(());
        }
        let new = result as i32;
        let behind = self.descriptors.get(at.pid, Fd { number: fd, of: None });
        if new != fd
            && let Some((gone, true)) = self.descriptors.close(at.pid, new)
            && gone.of == Of::Socket
        {
            socket_closed(sink, at, &gone)?;
        }
        self.descriptors.set(at.pid, new, behind);
        let task = [u64::from(at.pid), u64::from(at.tid)];
        sink.kernel(Event::Dup, at, &[task[0], task[1], signed(fd), signed(new)])
    }
}

fn other(sink: &mut Sink, at: At, begun: &Begun, result: i64, error: &str) -> Result<()> {
    let fields = [
        ("name", Value::Text(&begun.name)),
        ("arguments", Value::Text(&begun.text)),
        ("result", Value::Signed(result)),
        ("error", Value::Text(error)),
        ("duration_ns", Value::Unsigned(at.time_ns.saturating_sub(begun.begin_ns))),
    ];
    sink.foreign("syscall", at, &fields)
}

fn socket_closed(sink: &mut Sink, at: At, socket: &Behind) -> Result<()> {
    let (local, remote) = ends_of(sink, socket);
    let values = [u64::from(at.pid), u64::from(at.tid), socket.id, local, remote];
    sink.kernel(Event::SocketClose, at, &values)
}

/// The codes of a connection's ends; an end that the trace does not have gets a name of its own.
fn ends_of(sink: &mut Sink, behind: &Behind) -> (u64, u64) {
    let local = match behind.local.is_empty() {
        true => sink.text(&format!("socket:{}", behind.id)),
        false => sink.text(&end(&behind.local)),
    };
    (local, sink.text(&behind.remote))
}

fn number_of(fd: Option<Fd<'_>>) -> i32 {
    fd.map_or(-1, |fd| fd.number)
}

/// A number of 32 bits with a sign, as values are.
fn signed(number: i32) -> u64 {
    i64::from(number) as u64
}

/// `WAIT`, `LOCK_PI`, `WAIT_BITSET`, `WAIT_REQUEUE_PI`, `LOCK_PI2`.
const FUTEX_WAITS: [u64; 5] = [0, 6, 9, 11, 13];

/// A futex's operation without its flags; what strace calls it, or its number.
fn futex_operation(args: Args<'_>) -> u64 {
    const WAKE: u64 = 1;
    match args.get(1, &["op"]) {
        Some(Value::Text(text)) if !text.starts_with("0x") => {
            let waits = text.starts_with("FUTEX_WAIT") || text.starts_with("FUTEX_LOCK");
            if waits { 0 } else { WAKE }
        }
        _ => args.number(1, &["op"]).map_or(WAKE, |operation| operation & 0x7f),
    }
}

/// Commands of `fcntl` that matter: copies, setting flags, and the flag for non-blocking.
const DUPFD: u64 = 1;
const SETFL: u64 = 2;
const SETFL_NONBLOCKING: u64 = 3;

fn fcntl_command(command: Option<Value<'_>>) -> u64 {
    match command {
        Some(Value::Text(text)) if text.starts_with("F_DUPFD") => DUPFD,
        Some(Value::Text("F_SETFL")) => SETFL,
        Some(Value::Unsigned(0 | 1030)) => DUPFD,
        Some(Value::Unsigned(4)) => SETFL,
        _ => 0,
    }
}

/// Whether `fcntl`'s third argument says not to wait.
fn wants_nonblocking_flags(args: Args<'_>) -> bool {
    match args.get(2, &["arg"]) {
        Some(Value::Text(text)) => text.contains("O_NONBLOCK"),
        Some(flags) => flags.bits().is_some_and(|bits| bits & 0o4000 != 0),
        None => false,
    }
}

fn wants_nonblocking(args: Args<'_>, place: usize) -> bool {
    /// `SOCK_NONBLOCK`.
    const NONBLOCK: u64 = 0o4000;
    match args.get(place, &["type", "flags"]) {
        Some(Value::Text(text)) => text.contains("NONBLOCK"),
        Some(flags) => flags.bits().is_some_and(|bits| bits & NONBLOCK != 0),
        None => false,
    }
}

fn is_directory(args: Args<'_>) -> bool {
    /// `O_DIRECTORY`.
    const DIRECTORY: u64 = 0o200_000;
    match open_flags(args) {
        Some(Value::Text(text)) => text.contains("O_DIRECTORY"),
        Some(flags) => flags.bits().is_some_and(|bits| bits & DIRECTORY != 0),
        None => false,
    }
}

/// The flags of an opening call: behind the path.
fn open_flags(args: Args<'_>) -> Option<Value<'_>> {
    let named = args.get(usize::MAX, &["flags"]);
    named.or_else(|| {
        let at = args
            .0
            .iter()
            .position(|(_, value)| matches!(value, Value::Text(text) if text.starts_with('"')))?;
        args.0.get(at + 1).map(|(_, value)| *value)
    })
}
