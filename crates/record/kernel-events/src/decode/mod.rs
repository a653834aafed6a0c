//! From records to events.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fettle_protocols::{Connections, Counts, Message, NO_REPLY, Side, UNSEEN, What};

use crate::events::Event;
use crate::raw::{self, Kind, Record, SWITCH_IN_CALL, io, socket, wait};
use crate::runtimes::{CONTEXTS, FIBERS};

/// What happens to a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named as the fields of the events are.
pub enum Life<'a> {
    /// It does something.
    Seen { pid: u32, tid: u32 },
    /// It starts a thread, or forks a process.
    Fork { pid: u32, tid: u32, child_pid: u32, child_tid: u32 },
    /// It runs another program.
    Exec { pid: u32, tid: u32, path: &'a str },
    /// A thread ends.
    ThreadExit { tid: u32, name: &'a str },
    /// A process ends, with a status, or a signal below zero.
    ProcessExit { pid: u32, status: i32 },
}

/// Takes events.
pub trait Sink {
    /// Why it cannot.
    type Error;

    /// The code of a text, for values.
    fn text(&mut self, text: &str) -> u32;

    /// Notified of starts and ends of processes and threads, just before the event that reports it.
    fn life(&mut self, _life: Life<'_>) {}

    /// Takes an event: `CLOCK_MONOTONIC` in nanoseconds, the processor, and the values of its
    /// fields in their order. Signed values are extended to 64 bits, texts are codes.
    ///
    /// # Errors
    ///
    /// Its own.
    fn event(
        &mut self,
        event: Event,
        time_ns: u64,
        cpu: u32,
        values: &[u64],
    ) -> Result<(), Self::Error>;
}

/// An end of a connection, as records have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    /// Address and port.
    Ip(IpAddr, u16),
    /// The kernel's number of a local socket.
    Local(u64),
    /// A socket without address, by inode.
    Inode(u64),
    /// No peer.
    None,
}

/// Names that are remembered; there may be many in a long recording.
const NAMES: usize = 1 << 16;

/// Turns records into events, in order of time.
#[derive(Debug)]
pub struct Decoder {
    /// Codes of ends' names.
    ends: HashMap<End, u32>,
    /// Codes of what descriptors are.
    kinds: HashMap<&'static str, u32>,
    /// Where threads have faulted, with their process, until it is known that they went on.
    faults: HashMap<u32, (u32, u64)>,
    /// Hides the kernel's addresses: they name local sockets in the trace.
    hide: RandomState,
    /// The calls in which threads wait, which were reported.
    waiting: HashMap<u32, u64>,
    /// Whether the call that has returned last was one of these.
    has_waited: bool,
    /// What messages say, once there are bytes of any.
    messages: Option<Connections>,
    /// The bytes that a thread's next record of a socket is about: its inode, result, flags.
    payloads: HashMap<u32, (u64, u64, u16, Vec<u8>)>,
    /// Answers to questions that get none, by the thread that read them: they are reported when it goes
    /// on to something else.
    silent: HashMap<u32, Vec<Silent>>,
    /// The tasks that threads run, with those that made them.
    tasks: HashMap<u32, (u64, u64)>,
    /// Processes that make contexts.
    have_contexts: HashSet<u32>,
    /// Records that were none.
    pub unreadable: u64,
    /// Calls of `io_uring_enter`: what they read and write is not seen.
    pub urings: u64,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

/// A question that gets no answer, and is not over yet.
#[derive(Debug)]
struct Silent {
    inode: u64,
    /// The fields of its answer.
    values: Vec<u64>,
}

/// Such questions of a thread at once; more are over when they are read.
const SILENT: usize = 1 << 14;

/// The number of a task that made another, or has resumed it, where that is not known.
const NOT_KNOWN: u64 = u64::MAX;

/// An event being reported.
struct Reporter<'a, S: Sink> {
    sink: &'a mut S,
    time_ns: u64,
    cpu: u32,
}

impl<S: Sink> Reporter<'_, S> {
    fn notify(&mut self, event: Event, values: &[u64]) -> Result<(), S::Error> {
        self.sink.event(event, self.time_ns, self.cpu, values)
    }
}

/// A number of 32 bits with a sign, as values are.
fn signed(number: u32) -> u64 {
    i64::from(number as i32) as u64
}

impl Decoder {
    /// One that has seen nothing.
    pub fn new() -> Decoder {
        Decoder {
            ends: HashMap::new(),
            kinds: HashMap::new(),
            faults: HashMap::new(),
            hide: RandomState::new(),
            waiting: HashMap::new(),
            has_waited: false,
            messages: None,
            payloads: HashMap::new(),
            silent: HashMap::new(),
            tasks: HashMap::new(),
            have_contexts: HashSet::new(),
            unreadable: 0,
            urings: 0,
        }
    }

    /// Reports what a record says. Records come in order of time.
    ///
    /// # Errors
    ///
    /// The sink's.
    pub fn record<S: Sink>(
        &mut self,
        cpu: u32,
        bytes: &[u8],
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let Some(r) = Record::read(bytes) else {
            self.unreadable += 1;
            return Ok(());
        };
        let mut t = Reporter { sink, time_ns: r.time_ns, cpu };
        if self.reported_before(&r) {
            return Ok(());
        }
        self.what_is_over(&r, &mut t)?;
        let (pid, tid) = (u64::from(r.pid), u64::from(r.tid));
        // The thread that runs in these is not the one that they are about.
        if !matches!(r.kind, Kind::Switch | Kind::Wake | Kind::Signal | Kind::BlockComplete) {
            t.sink.life(Life::Seen { pid: r.pid, tid: r.tid });
        }
        match r.kind {
            Kind::Switch => switch(&r, &mut t),
            Kind::Wake => {
                t.notify(Event::Wakeup, &[tid, u64::from(r.number), u64::from(r.flags & 1)])
            }
            Kind::Fork => {
                let [child_tid, child_pid] = [r.word(0) as u32, r.word(1) as u32];
                t.sink.life(Life::Fork { pid: r.pid, tid: r.tid, child_pid, child_tid });
                t.notify(Event::Fork, &[pid, tid, r.word(1), r.word(0)])
            }
            Kind::Exec => {
                let path = text(&r);
                t.sink.life(Life::Exec { pid: r.pid, tid: r.tid, path: &path });
                let path = u64::from(t.sink.text(&path));
                self.have_contexts.remove(&r.pid);
                t.notify(Event::Exec, &[pid, tid, path])
            }
            Kind::Exit => {
                self.tasks.remove(&r.tid);
                exit(&r, &mut t)
            }
            Kind::Signal => t.notify(Event::Signal, &[tid, r.word(0), u64::from(r.number)]),
            Kind::SignalDelivered => {
                t.notify(Event::SignalDelivered, &[pid, tid, u64::from(r.number)])
            }
            Kind::Fault if r.flags & 1 != 0 => {
                t.notify(Event::PageFaultDone, &[pid, tid, r.word(0)])
            }
            Kind::Fault => {
                self.faults.insert(r.tid, (r.pid, r.word(0)));
                t.notify(Event::PageFault, &[pid, tid, r.word(0)])
            }
            Kind::Io => self.io(&r, &mut t),
            Kind::SocketV4 | Kind::SocketV6 | Kind::SocketLocal | Kind::SocketOther => {
                self.socket(&r, &mut t)
            }
            Kind::SocketPair => self.socket_pair(&r, &mut t),
            Kind::Payload => {
                self.messages.get_or_insert_default();
                let bytes = r.payload().to_vec();
                self.payloads.insert(r.tid, (r.word(0), r.word(1), r.flags, bytes));
                Ok(())
            }
            Kind::Wait => wait(&r, self.has_waited, &mut t),
            Kind::Open | Kind::Close => self.opened(&r, &mut t),
            Kind::Pipe => {
                let [read, write] = halves(r.word(1));
                t.notify(Event::PipeMade, &[pid, tid, r.word(0), signed(read), signed(write)])
            }
            Kind::Dup => {
                t.notify(Event::Dup, &[pid, tid, signed(r.number), signed(r.word(0) as u32)])
            }
            Kind::CloseRange => {
                let ends = [r.word(0), r.word(1)].map(|end| u64::from(end as u32));
                t.notify(Event::CloseRange, &[pid, tid, ends[0], ends[1]])
            }
            Kind::Uring => {
                self.urings += 1;
                t.notify(Event::IoUring, &[pid, tid, signed(r.number), r.word(0)])
            }
            Kind::BlockIssue => {
                let writes = u64::from(r.flags & 1);
                t.notify(Event::BlockIssue, &[tid, r.word(0), r.word(1), r.word(2), writes])
            }
            Kind::BlockComplete => t.notify(Event::BlockComplete, &[r.word(0), r.word(1)]),
            Kind::Task => self.task(&r, &mut t),
            Kind::TaskWake => {
                let words = [0, 1, 2, 3, 4].map(|n| r.word(n));
                let [task, parent, target, target_parent, gives] = words;
                let fields = [pid, tid, task, parent, target, target_parent, u64::from(gives != 0)];
                t.notify(Event::TaskWake, &fields)
            }
            Kind::TaskMade => {
                self.have_contexts.insert(r.pid);
                t.notify(Event::TaskMade, &[pid, tid, r.word(0), r.word(1)])
            }
            // Only recorded without everything that would make an event of it.
            Kind::Call => Ok(()),
            Kind::TaskSend => t.notify(Event::TaskSend, &[pid, tid, r.word(0), r.word(1)]),
        }
    }

    /// Which task a thread runs, if that is something new.
    fn task<S: Sink>(&mut self, r: &Record<'_>, t: &mut Reporter<'_, S>) -> Result<(), S::Error> {
        let (pid, tid) = (u64::from(r.pid), u64::from(r.tid));
        let (task, parent) = (r.word(0), r.word(1));
        // Only event loops make contexts; other threads may have one, and work as threads do.
        let identity = u64::from(r.number);
        if identity == CONTEXTS && !self.have_contexts.contains(&r.pid) {
            return Ok(());
        }
        if self.tasks.insert(r.tid, (task, parent)) == Some((task, parent)) {
            return Ok(());
        }
        if identity != FIBERS {
            return t.notify(Event::Task, &[pid, tid, task, parent]);
        }
        if parent != NOT_KNOWN {
            t.notify(Event::TaskResumed, &[pid, tid, task, parent])?;
        }
        t.notify(Event::Task, &[pid, tid, task, NOT_KNOWN])
    }

    /// Whether the record is the beginning of a call that was reported already: a thread may be switched
    /// out several times in one call.
    fn reported_before(&mut self, r: &Record<'_>) -> bool {
        let (begins, what) = match r.kind {
            Kind::Io => (r.flags & io::BEGIN != 0, u64::from(r.number) << 16),
            Kind::Wait => (r.flags & wait::BEGIN != 0, r.word(0) << 16),
            Kind::SocketV4 | Kind::SocketV6 | Kind::SocketLocal | Kind::SocketOther => (false, 0),
            Kind::Exit => (false, 0),
            _ => return false,
        };
        if !begins {
            self.has_waited = self.waiting.remove(&r.tid).is_some();
            return false;
        }
        let what = what | u64::from(r.flags & 0xfff);
        self.waiting.insert(r.tid, what) == Some(what)
    }

    /// Reports the ends of what the thread does no longer.
    fn what_is_over<S: Sink>(
        &mut self,
        r: &Record<'_>,
        t: &mut Reporter<'_, S>,
    ) -> Result<(), S::Error> {
        self.fault_is_over(r, t)?;
        self.silent_are_over(r, t)
    }

    /// Where no event reports that a fault is done: the thread does something else.
    fn fault_is_over<S: Sink>(
        &mut self,
        r: &Record<'_>,
        t: &mut Reporter<'_, S>,
    ) -> Result<(), S::Error> {
        let tid = match r.kind {
            // Interrupts wake, too; being switched out is part of a fault that waits.
            Kind::Wake | Kind::BlockComplete | Kind::BlockIssue => return Ok(()),
            Kind::Switch if r.flags & SWITCH_IN_CALL == 0 => return Ok(()),
            Kind::Switch => r.word(0) as u32,
            Kind::Fault if r.flags & 1 != 0 => {
                self.faults.remove(&r.tid);
                return Ok(());
            }
            _ => r.tid,
        };
        if self.faults.is_empty() {
            return Ok(());
        }
        match self.faults.remove(&tid) {
            Some((pid, address)) => {
                t.notify(Event::PageFaultDone, &[u64::from(pid), u64::from(tid), address])
            }
            None => Ok(()),
        }
    }

    /// A thread that read questions that get no answers waits for others, or has to do with their
    /// connection again: it is done with them.
    fn silent_are_over<S: Sink>(
        &mut self,
        r: &Record<'_>,
        t: &mut Reporter<'_, S>,
    ) -> Result<(), S::Error> {
        let inode = match r.kind {
            _ if self.silent.is_empty() => return Ok(()),
            Kind::Exit => None,
            Kind::Wait if r.flags & !wait::BEGIN == wait::POLL => None,
            Kind::Io if descriptor(r.flags) == "socket" => Some(r.word(0)),
            Kind::SocketV4 | Kind::SocketV6 | Kind::SocketLocal | Kind::SocketOther => {
                Some(r.word(0))
            }
            _ => return Ok(()),
        };
        let Some(silent) = self.silent.get_mut(&r.tid) else { return Ok(()) };
        for over in silent.extract_if(.., |one| inode.is_none_or(|inode| inode == one.inode)) {
            t.notify(Event::Answer, &over.values)?;
        }
        if silent.is_empty() {
            self.silent.remove(&r.tid);
        }
        Ok(())
    }

    fn io<S: Sink>(&mut self, r: &Record<'_>, t: &mut Reporter<'_, S>) -> Result<(), S::Error> {
        let (pid, tid) = (u64::from(r.pid), u64::from(r.tid));
        let (fd, inode, bytes) = (signed(r.number), r.word(0), r.word(1));
        let begins = r.flags & io::BEGIN != 0;
        if r.flags & io::SYNC != 0 {
            let event = if begins { Event::SyncBegin } else { Event::Sync };
            return t.notify(event, &[pid, tid, fd]);
        }
        let writes = r.flags & io::WRITE != 0;
        match (descriptor(r.flags), writes, begins) {
            ("pipe", false, true) => t.notify(Event::PipeReadBegin, &[pid, tid, inode]),
            ("pipe", false, false) => t.notify(Event::PipeRead, &[pid, tid, inode, bytes]),
            ("pipe", true, true) => t.notify(Event::PipeWriteBegin, &[pid, tid, inode]),
            ("pipe", true, false) => t.notify(Event::PipeWrite, &[pid, tid, inode, bytes]),
            ("socket", false, true) => t.notify(Event::ReceiveBegin, &[pid, tid, inode]),
            ("socket", true, true) => t.notify(Event::SendBegin, &[pid, tid, inode]),
            (of, writes, true) => {
                let of = self.kind(of, t.sink);
                let event = if writes { Event::WriteBegin } else { Event::ReadBegin };
                t.notify(event, &[pid, tid, fd, inode, of])
            }
            (of, writes, false) => {
                let of = self.kind(of, t.sink);
                let event = if writes { Event::Write } else { Event::Read };
                t.notify(event, &[pid, tid, fd, bytes, inode, of])
            }
        }
    }

    fn opened<S: Sink>(&mut self, r: &Record<'_>, t: &mut Reporter<'_, S>) -> Result<(), S::Error> {
        let (pid, tid) = (u64::from(r.pid), u64::from(r.tid));
        let mode = r.word(1) as u16 & 0xf000;
        let failed = r.kind == Kind::Open && (r.number as i32) < 0;
        let of = if failed { "" } else { descriptor(mode | r.flags) };
        let of = self.kind(of, t.sink);
        if r.kind == Kind::Open {
            let path = u64::from(t.sink.text(&text(r)));
            t.notify(Event::Open, &[pid, tid, signed(r.number), path, r.word(0), of])
        } else {
            t.notify(Event::Close, &[pid, tid, signed(r.number), r.word(0), of])
        }
    }

    fn socket<S: Sink>(&mut self, r: &Record<'_>, t: &mut Reporter<'_, S>) -> Result<(), S::Error> {
        let (pid, tid) = (u64::from(r.pid), u64::from(r.tid));
        let (inode, result) = (r.word(0), r.word(1));
        let (local, remote) = ends(r);
        let (local, remote) = (self.end(local, t.sink), self.end(remote, t.sink));
        let of = [pid, tid, inode, local, remote];
        let fd = signed(r.number);
        let and = |more: &[u64]| [&of[..], more].concat();
        match r.flags {
            socket::RECEIVED => {
                t.notify(Event::Received, &and(&[result, lay_ns(r)]))?;
                self.say(r, &of, t)
            }
            socket::SENT => {
                t.notify(Event::Sent, &and(&[result]))?;
                self.say(r, &of, t)
            }
            socket::ACCEPT => t.notify(Event::Accept, &and(&[fd])),
            socket::CONNECT => t.notify(Event::Connect, &and(&[fd, signed(result as u32)])),
            _ => {
                if let Some(messages) = &mut self.messages {
                    messages.close(inode);
                }
                t.notify(Event::SocketClose, &of)
            }
        }
    }

    /// Reports the messages in what went over a socket.
    fn say<S: Sink>(
        &mut self,
        r: &Record<'_>,
        of: &[u64; 5],
        t: &mut Reporter<'_, S>,
    ) -> Result<(), S::Error> {
        /// `SOCK_STREAM`, where the socket's type stands.
        const STREAM: u64 = 1;
        let Some(messages) = &mut self.messages else { return Ok(()) };
        let (inode, result) = (r.word(0), r.word(1));
        if result as i64 <= 0 || r.word(2) >> 16 & 0xffff != STREAM {
            return Ok(());
        }
        // Of another call than this one's are bytes whose own record found no room.
        let known = self.payloads.remove(&r.tid);
        let known = known.filter(|(i, n, flags, _)| (*i, *n, *flags) == (inode, result, r.flags));
        let known = known.map(|(_, _, _, bytes)| bytes).unwrap_or_default();
        let sent = r.flags == socket::SENT;
        let side = if sent { Side::Sent } else { Side::Received };
        let mut reported = Ok(());
        let silent = &mut self.silent;
        let given_up = messages.transfer(inode, side, &known, result, &mut |message| {
            if reported.is_err() {
                return;
            }
            let values = message_values(message, r, of, t.sink);
            reported = match message.what {
                What::Ask { .. } => t.notify(Event::Ask, &values),
                What::Unanswered if !sent => hush(silent, r, Silent { inode, values }, t),
                What::Unanswered | What::Unseen { .. } | What::Answer { .. } => {
                    t.notify(Event::Answer, &values)
                }
            };
        });
        reported?;
        if let Some(reason) = given_up {
            let reason = u64::from(t.sink.text(reason.text()));
            return t.notify(Event::Undecoded, &[&of[..], &[reason]].concat());
        }
        Ok(())
    }

    /// What was found in the bytes of messages, if there were any.
    pub fn messages(&self) -> Option<&Counts> {
        self.messages.as_ref().map(Connections::counts)
    }

    fn socket_pair<S: Sink>(
        &mut self,
        r: &Record<'_>,
        t: &mut Reporter<'_, S>,
    ) -> Result<(), S::Error> {
        let (pid, tid) = (u64::from(r.pid), u64::from(r.tid));
        let local = self.end(End::Local(r.word(3)), t.sink);
        let remote = self.end(End::Local(r.word(4)), t.sink);
        t.notify(Event::SocketPair, &[pid, tid, r.word(0), r.word(1), local, remote])
    }

    fn kind<S: Sink>(&mut self, text: &'static str, sink: &mut S) -> u64 {
        u64::from(*self.kinds.entry(text).or_insert_with(|| sink.text(text)))
    }

    fn end<S: Sink>(&mut self, end: End, sink: &mut S) -> u64 {
        if let Some(code) = self.ends.get(&end) {
            return u64::from(*code);
        }
        let text = match end {
            End::Ip(address, port) => SocketAddr::new(address, port).to_string(),
            // Enough digits to distinguish those that exist at once.
            End::Local(socket) => format!("unix:{:012x}", self.hide.hash_one(socket) >> 16),
            End::Inode(inode) => format!("socket:{inode}"),
            End::None => String::new(),
        };
        let code = sink.text(&text);
        if self.ends.len() >= NAMES {
            self.ends.clear();
        }
        self.ends.insert(end, code);
        u64::from(code)
    }
}

/// The fields of a message's event. What gets no answer is answered by the other end.
fn message_values<S: Sink>(
    message: Message<'_>,
    r: &Record<'_>,
    of: &[u64; 5],
    sink: &mut S,
) -> Vec<u64> {
    let protocol = u64::from(sink.text(message.protocol));
    let sent = r.flags == socket::SENT;
    let (sent, rest) = match message.what {
        What::Ask { command, text } => {
            let [command, text] = [command, text].map(|text| u64::from(sink.text(text)));
            let values = [u64::from(sent), protocol, message.exchange, command, text, lay_ns(r)];
            return [&of[..], &values, &[message.ids.trace, message.ids.correlation]].concat();
        }
        What::Answer { ok, status } => (sent, [u64::from(ok), u64::from(sink.text(status))]),
        What::Unanswered => (!sent, [1, u64::from(sink.text(NO_REPLY))]),
        What::Unseen { asked } => (asked != Side::Sent, [0, u64::from(sink.text(UNSEEN))]),
    };
    let values = [u64::from(sent), protocol, message.exchange];
    [&of[..], &values, &rest, &[message.ids.correlation]].concat()
}

/// For how long bytes that were received had lain in their socket; 0 if that is not known.
fn lay_ns(r: &Record<'_>) -> u64 {
    let received = r.flags == socket::RECEIVED && r.word(1) as i64 > 0;
    if received { u64::from(r.number) * 1000 } else { 0 }
}

/// Keeps the answer to a question that gets none, until its thread goes on.
fn hush<S: Sink>(
    silent: &mut HashMap<u32, Vec<Silent>>,
    r: &Record<'_>,
    one: Silent,
    t: &mut Reporter<'_, S>,
) -> Result<(), S::Error> {
    let of_thread = silent.entry(r.tid).or_default();
    if of_thread.len() >= SILENT {
        return t.notify(Event::Answer, &one.values);
    }
    of_thread.push(one);
    Ok(())
}

/// A record's text; one that was cut ends with `…`.
fn text(r: &Record<'_>) -> String {
    let bytes = r.text();
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    if bytes.len() + 1 >= raw::TEXT as usize {
        text.push('…');
    }
    text
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// What a descriptor is, by the mode of its inode and what else was found.
fn descriptor(flags: u16) -> &'static str {
    if flags & io::ANONYMOUS != 0 {
        return "anonymous";
    }
    match flags >> io::MODE_SHIFT {
        0x1 => "pipe",
        0x2 | 0x6 => "device",
        0x4 => "directory",
        0x8 => "file",
        0xc => "socket",
        _ => "other",
    }
}

fn switch<S: Sink>(r: &Record<'_>, t: &mut Reporter<'_, S>) -> Result<(), S::Error> {
    if r.flags & 2 != 0 {
        t.notify(Event::SwitchOut, &[r.word(0), u64::from(r.flags & 1)])?;
    }
    if r.flags & 4 != 0 {
        t.notify(Event::SwitchIn, &[r.word(1)])?;
    }
    Ok(())
}

fn exit<S: Sink>(r: &Record<'_>, t: &mut Reporter<'_, S>) -> Result<(), S::Error> {
    let (pid, tid) = (u64::from(r.pid), u64::from(r.tid));
    let name = raw::name([r.word(1), r.word(2)]);
    t.sink.life(Life::ThreadExit { tid: r.tid, name: &name });
    let name = u64::from(t.sink.text(&name));
    t.notify(Event::ThreadExit, &[pid, tid, name])?;
    if r.flags & 1 == 0 {
        return Ok(());
    }
    // As `wait` gives it: a status, or the signal in the lowest seven bits.
    let status = r.word(0) as i64;
    let status = if status & 0x7f == 0 { status >> 8 & 0xff } else { -(status & 0x7f) };
    t.sink.life(Life::ProcessExit { pid: r.pid, status: status as i32 });
    t.notify(Event::ProcessExit, &[pid, tid, status as u64])
}

fn wait<S: Sink>(
    r: &Record<'_>,
    has_waited: bool,
    t: &mut Reporter<'_, S>,
) -> Result<(), S::Error> {
    let (pid, tid) = (u64::from(r.pid), u64::from(r.tid));
    let (argument, result) = (r.word(0), signed(r.word(1) as u32));
    let begins = r.flags & wait::BEGIN != 0;
    match (r.flags & !wait::BEGIN, begins) {
        (wait::POLL, true) => t.notify(Event::PollBegin, &[pid, tid]),
        (wait::POLL, false) => {
            // Some calls have their time-out in memory. A call that finds nothing and has not waited had
            // none.
            let looks = argument == 0 || (r.word(1) as u32 == 0 && !has_waited);
            let event = if looks { Event::PollLook } else { Event::Poll };
            t.notify(event, &[pid, tid, result])
        }
        (wait::FUTEX, true) => {
            t.notify(Event::FutexWaitBegin, &[pid, tid, argument, u64::from(r.number)])
        }
        (wait::FUTEX, false) => t.notify(Event::FutexWait, &[pid, tid, argument, result]),
        (wait::FUTEX_WAKE, _) => t.notify(Event::FutexWake, &[pid, tid, argument, result]),
        (wait::SLEEP, true) => t.notify(Event::SleepBegin, &[pid, tid]),
        (wait::SLEEP, false) => t.notify(Event::Sleep, &[pid, tid]),
        (wait::CHILD, true) => t.notify(Event::ChildBegin, &[pid, tid]),
        (wait::CHILD, false) => t.notify(Event::Child, &[pid, tid, result]),
        (wait::ACCEPT, true) => t.notify(Event::AcceptBegin, &[pid, tid, signed(r.number)]),
        (wait::ACCEPT, false) => {
            t.notify(Event::AcceptFailed, &[pid, tid, signed(r.number), result])
        }
        (wait::CONNECT, true) => t.notify(Event::ConnectBegin, &[pid, tid, argument]),
        _ => Ok(()),
    }
}

/// The two ends of a socket's connection: its own, and the other.
fn ends(r: &Record<'_>) -> (End, End) {
    let ports = r.word(2);
    let (local, remote) = ((ports >> 32) as u16, ((ports >> 48) as u16).swap_bytes());
    match r.kind {
        Kind::SocketV4 => {
            let [own, other] = halves(r.word(3)).map(|a| IpAddr::from(Ipv4Addr::from(a.to_be())));
            (ip(own, local), ip(other, remote))
        }
        Kind::SocketV6 => {
            let address = |n: usize| {
                let words = [r.word(n), r.word(n + 1)].map(u64::to_le_bytes);
                let bytes: [u8; 16] = std::array::from_fn(|i| words[i / 8][i % 8]);
                // A connection of IP version 4 has one name, from whichever side it is seen.
                Ipv6Addr::from(bytes).to_canonical()
            };
            (ip(address(3), local), ip(address(5), remote))
        }
        Kind::SocketLocal => {
            let peer = r.word(4);
            (End::Local(r.word(3)), if peer == 0 { End::None } else { End::Local(peer) })
        }
        _ => (End::Inode(r.word(0)), End::None),
    }
}

/// An end by address; one that is not connected has none.
fn ip(address: IpAddr, port: u16) -> End {
    if port == 0 && address.is_unspecified() { End::None } else { End::Ip(address, port) }
}

#[cfg(test)]
mod tests;
