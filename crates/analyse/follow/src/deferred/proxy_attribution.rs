//! The field `behalf` of what is sent: the socket of the question that a proxy sends it for, where that
//! is seen only by what it does later ([`super::event_loops`]). Until then events wait here.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;

use fettle_requests::{Batch, Certainty, EventId, Program};

use super::certain::How;
use super::contexts::{self, Contexts};
use super::event_loops::{At, EventLoops, ExchangeId, Sent};
use super::multiplexed;
use super::opened;
use super::tasks::{self, Tasks};
use super::trace_ids::TraceIds;

/// How long events wait for a decision at most. Both limits are of the trace's time, not of the
/// reader's, so that requests are the same while it is recorded and afterwards.
const WAIT_NS: u64 = 2_000_000_000;
/// Events that wait at most.
const HELD_MAX: usize = 1 << 19;
/// A socket that there is not: the proxy attribution of what is sent for no question.
const NOBODY: u64 = u64::MAX;
/// What a read returns that would have to wait: Linux' EAGAIN, negative.
const EAGAIN: i64 = -11;
/// The most pieces of an exchange into which its attribution is written.
const PIECES_MAX: usize = 64;

/// Events that wait for their proxy attribution: until it is known for which question things were sent.
pub(crate) struct ProxyAttribution {
    roles: Vec<Option<Role>>,
    /// Whether a schema asks for the field of what is sent.
    is_asked_for: bool,
    /// The places of the fields by kind of event.
    places: Vec<Places>,
    event_loops: EventLoops,
    tasks: Tasks,
    contexts: Contexts,
    trace_ids: TraceIds,
    by_trace_id: ByTraceId,
    /// The events that say what was asked and answered, where their fields are.
    messages: [Option<(EventId, Said)>; 2],
    unique: Option<u32>,
    /// What each thread has sent last: on which socket, and where that waits.
    last_sent: FxHashMap<u32, (u64, WaitingAt)>,
    /// The kinds of events that report tasks.
    of_tasks: [Option<EventId>; 5],
    chunks: VecDeque<Chunk>,
    /// The number of the first chunk among all that there were.
    first: u64,
    held: usize,
    /// Exchanges that are waited for, as they were sent.
    order: VecDeque<(u64, ExchangeId)>,
    undecided: FxHashMap<ExchangeId, Vec<WaitingAt>>,
}

/// Where an event has the fields that are written here.
#[derive(Clone, Copy, Default)]
struct Places {
    attribution: Option<usize>,
    /// How likely, and of how many.
    certain: Option<(usize, usize)>,
    /// An answer has come to those who have asked.
    home: Option<usize>,
}

/// Events as they came, and how many exchanges are to be decided first.
struct Chunk {
    events: Batch,
    undecided: usize,
}

/// Of how many questions their bytes said for which request they were asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByTraceId {
    pub all: u64,
    /// Those that the kernel's events alone give to another request.
    pub moved: u64,
}

/// Where the fields of a message are; what an answer does not have is not asked for.
#[derive(Clone, Copy)]
struct Said {
    pid: usize,
    tid: usize,
    socket: usize,
    sent: usize,
    exchange: usize,
    trace_id: usize,
    asks: bool,
    protocol: usize,
    correlation_id: usize,
}

/// The protocol whose ids of questions are unique, on whichever connection.
const UNIQUE: &str = "nats";

/// Threads whose last send is remembered; beyond, all are forgotten.
const THREADS_MAX: usize = 1 << 16;

/// Where an event waits.
#[derive(Clone, Copy)]
struct WaitingAt {
    chunk: u64,
    row: usize,
}

/// What an event says, and where its fields are.
#[derive(Clone, Copy)]
struct Role {
    act: ThreadAct,
    pid: usize,
    tid: usize,
    socket: usize,
    remote: usize,
    peer: usize,
    bytes: usize,
    /// A field that has to be this text.
    of: Option<(usize, u32)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadAct {
    Accept,
    Connect,
    Read,
    Send,
    Close,
    Pair,
    Wait,
    Polled,
    Looked,
    KnownEvent,
}

const ACTS: [(&str, ThreadAct); 11] = [
    ("accept", ThreadAct::Accept),
    ("connect", ThreadAct::Connect),
    ("received", ThreadAct::Read),
    ("sent", ThreadAct::Send),
    ("socket_close", ThreadAct::Close),
    ("socketpair", ThreadAct::Pair),
    ("poll_begin", ThreadAct::Wait),
    ("poll", ThreadAct::Polled),
    ("poll_look", ThreadAct::Looked),
    ("pipe_read", ThreadAct::KnownEvent),
    // Of what is no file: event descriptors, timers.
    ("read", ThreadAct::KnownEvent),
];

impl ProxyAttribution {
    /// For the events of a program; none wait unless it has the field and what is sent is `wanted`.
    pub fn new(program: &Program, wanted: &dyn Fn(EventId) -> bool) -> ProxyAttribution {
        let catalog = program.catalog();
        let place = |event: EventId, name: &str| catalog.get(event)?.place(name);
        let sent = catalog.find("sent").filter(|event| wanted(*event));
        let is_asked_for = sent.and_then(|event| place(event, "behalf")).is_some();
        let mut places = vec![Places::default(); catalog.events().len()];
        for name in ["sent", "received", "ask", "answer"] {
            let Some(event) = catalog.find(name) else { continue };
            let certain = place(event, "likely").zip(place(event, "candidates"));
            let [attribution, home] = ["behalf", "home"].map(|name| place(event, name));
            places[event.index()] = Places { attribution, certain, home };
        }
        let mut roles = vec![None; catalog.events().len()];
        for (name, act) in ACTS.iter().filter(|_| is_asked_for) {
            let Some(event) = catalog.find(name) else { continue };
            // What an event does not have is not asked for.
            let or_first = |name| place(event, name).unwrap_or(0);
            roles[event.index()] = place(event, "tid").map(|tid| Role {
                act: *act,
                pid: or_first("pid"),
                tid,
                socket: or_first("socket"),
                remote: or_first("remote"),
                peer: or_first("peer"),
                bytes: or_first("bytes"),
                of: place(event, "of").zip(program.strings().find("anonymous")),
            });
        }
        let messages = ["ask", "answer"].map(|name| {
            let event = catalog.find(name).filter(|_| is_asked_for)?;
            let of = |name| place(event, name);
            let (pid, tid, socket) = (of("pid")?, of("tid")?, of("socket")?);
            let (sent, exchange) = (of("sent")?, of("exchange")?);
            let trace_id = if name == "ask" { of("trace_id")? } else { 0 };
            let (protocol, correlation_id) = (of("protocol")?, of("correlation_id")?);
            let asks = name == "ask";
            let said =
                Said { pid, tid, socket, sent, exchange, trace_id, asks, protocol, correlation_id };
            Some((event, said))
        });
        ProxyAttribution {
            roles,
            unique: program.strings().find(UNIQUE),
            messages,
            trace_ids: TraceIds::default(),
            by_trace_id: ByTraceId::default(),
            last_sent: FxHashMap::default(),
            is_asked_for,
            places,
            event_loops: EventLoops::default(),
            tasks: Tasks::default(),
            contexts: Contexts::default(),
            of_tasks: ["task", "task_wake", "task_resumed", "task_made", "task_send"]
                .map(|name| catalog.find(name).filter(|_| is_asked_for)),
            chunks: VecDeque::new(),
            first: 0,
            held: 0,
            order: VecDeque::new(),
            undecided: FxHashMap::default(),
        }
    }

    /// Whether it needs events of a kind, whatever the schemas do with them.
    pub fn needs(&self, event: EventId) -> bool {
        let role = self.roles.get(event.index()).copied().flatten();
        self.of_tasks.contains(&Some(event))
            || self.is_message(event)
            || role.is_some_and(|role| role.act == ThreadAct::Pair)
    }

    fn is_message(&self, event: EventId) -> bool {
        self.messages.iter().flatten().any(|(message, _)| *message == event)
    }

    /// Of how many questions their bytes said whose they are.
    pub fn by_trace_id(&self) -> ByTraceId {
        self.by_trace_id
    }

    /// Whether it has to see events of a kind.
    pub fn looks_at(&self, event: EventId) -> bool {
        self.needs(event) || self.roles.get(event.index()).is_some_and(Option::is_some)
    }

    /// Takes in the next events, in order of time, and leaves those in `events` that need not wait any
    /// longer: all, if no more will come. `nothing` is the code of the empty text.
    pub fn pass(&mut self, events: &mut Batch, nothing: Option<u32>, all: bool) {
        if !self.is_asked_for {
            return;
        }
        self.take(events, nothing);
        self.give_up(all);
        // What is ready goes on at once: in order, up to the first chunk that waits.
        while let Some(chunk) = self.chunks.pop_front_if(|chunk| chunk.undecided == 0) {
            self.first += 1;
            self.held -= chunk.events.len();
            match events.is_empty() {
                true => *events = chunk.events,
                false => events.append(&chunk.events),
            }
        }
    }

    fn take(&mut self, events: &mut Batch, nothing: Option<u32>) {
        if events.is_empty() {
            return;
        }
        let chunk = self.first + self.chunks.len() as u64;
        let rows = events.len();
        self.held += rows;
        self.chunks.push_back(Chunk { events: events.take(), undecided: 0 });
        for row in 0..rows {
            self.look(WaitingAt { chunk, row }, nothing);
        }
    }

    fn look(&mut self, waiting_at: WaitingAt, nothing: Option<u32>) {
        let Some(chunk) = self.chunks.back() else { return };
        let events = &chunk.events;
        let kind = events.kind(waiting_at.row);
        if let Some(place) = self.of_tasks.iter().position(|of| *of == Some(kind)) {
            // Each row is as wide as the widest event; what one does not have is 0.
            let words = [0, 1, 2, 3, 4, 5, 6].map(|field| events.value(waiting_at.row, field));
            self.look_at_task(place, words);
            return;
        }
        let message = self.messages.into_iter().flatten().find(|(event, _)| *event == kind);
        if let Some((_, fields)) = message {
            self.look_at_message(waiting_at, fields);
            return;
        }
        let Some(role) = self.roles.get(kind.index()).copied().flatten() else { return };
        let value = |field: usize| events.value(waiting_at.row, field);
        if role.of.is_some_and(|(field, text)| value(field) != u64::from(text)) {
            return;
        }
        let ns = events.time_ns(waiting_at.row);
        let at = At { process: value(role.pid) as u32, thread: value(role.tid) as u32, ns };
        let socket = value(role.socket);
        let is_connected = Some(value(role.remote)) != nothing.map(u64::from);
        let has_bytes = value(role.bytes) as i64 > 0 && is_connected;
        match role.act {
            ThreadAct::Pair => self.contexts.paired([socket, value(role.peer)]),
            ThreadAct::Close => {
                self.contexts.unpaired(socket);
                self.trace_ids.closed(socket);
            }
            ThreadAct::Send if has_bytes => {
                if self.last_sent.len() >= THREADS_MAX {
                    self.last_sent.clear();
                }
                self.last_sent.insert(at.thread, (socket, waiting_at));
            }
            _ => {}
        }
        let (remote, is_empty) = (value(role.remote), value(role.bytes) as i64 == EAGAIN);
        if self.contexts.has(at.process) {
            self.look_in_context(
                waiting_at,
                role.act,
                (at.process, at.thread),
                (socket, has_bytes),
            );
            return;
        }
        if self.tasks.has(at.process) {
            self.look_in_task(waiting_at, role.act, at, (socket, has_bytes));
            return;
        }
        match role.act {
            ThreadAct::Read if is_empty => self.event_loops.tests(at, socket),
            act => self.look_in_loop(waiting_at, act, at, (socket, remote, has_bytes)),
        }
        self.settle();
    }

    /// An event of a process of which no tasks are known.
    fn look_in_loop(
        &mut self,
        waiting_at: WaitingAt,
        act: ThreadAct,
        at: At,
        (socket, remote, has_bytes): (u64, u64, bool),
    ) {
        match act {
            ThreadAct::Accept => self.event_loops.accepted(at, socket),
            ThreadAct::Close => self.event_loops.closed(at.process, socket),
            ThreadAct::Connect => self.event_loops.opens(at, socket),
            ThreadAct::Wait => self.event_loops.waits(at),
            ThreadAct::Polled => self.event_loops.polled(at),
            ThreadAct::Looked => self.event_loops.looked(at),
            ThreadAct::KnownEvent => self.event_loops.reported(at.thread),
            ThreadAct::Read if has_bytes => self.event_loops.read(at, socket),
            ThreadAct::Send if has_bytes => match self.event_loops.sent(at, (socket, remote)) {
                Sent::AsSeen(certainty) => self.say(waiting_at, certainty),
                Sent::AnswerGoesOn => self.notify(waiting_at, socket),
                Sent::InDoubt(exchange) => self.wait(exchange, at.ns, waiting_at),
                Sent::For(of, certainty) => {
                    self.notify(waiting_at, of);
                    self.say(waiting_at, certainty);
                }
            },
            ThreadAct::Pair | ThreadAct::Read | ThreadAct::Send => {}
        }
    }

    /// A question or an answer whose bytes are known.
    fn look_at_message(&mut self, waiting_at: WaitingAt, fields: Said) {
        let Some(events) = self.chunks.back().map(|chunk| &chunk.events) else { return };
        let value = |field: usize| events.value(waiting_at.row, field);
        let is_unique = Some(value(fields.protocol)) == self.unique.map(u64::from);
        let (is_sent, question) =
            (value(fields.sent) != 0, (value(fields.socket), value(fields.exchange)));
        if is_unique {
            self.look_at_one_of_many(waiting_at, fields);
        }
        match fields.asks {
            true => self.look_at_ask(waiting_at, fields),
            false if is_sent => self.trace_ids.answered(question),
            false => {}
        }
    }

    /// Something is asked: by others, or by a process for one of those that it was asked itself.
    fn look_at_ask(&mut self, waiting_at: WaitingAt, fields: Said) {
        let Some(chunk) = self.chunks.back() else { return };
        let (events, row) = (&chunk.events, waiting_at.row);
        let value = |field: usize| events.value(row, field);
        let (socket, id) = (value(fields.socket), value(fields.trace_id));
        if id == 0 {
            return;
        }
        let (process, thread) = (value(fields.pid) as u32, value(fields.tid) as u32);
        let at = At { process, thread, ns: events.time_ns(row) };
        if value(fields.sent) == 0 {
            self.trace_ids.asked(process, (socket, value(fields.exchange)), id);
            return;
        }
        let Some(of) = self.trace_ids.asker(process, id) else { return };
        let before = match () {
            () if self.contexts.has(process) => self.contexts.named(process, socket, of),
            () if self.tasks.has(process) => self.tasks.named(socket, of),
            () => self.event_loops.named(at, socket, of),
        };
        let Some(before) = before else { return };
        self.settle();
        self.by_trace_id.all += 1;
        self.by_trace_id.moved += u64::from(before != Some(of));
        let sent = self.last_sent.get(&thread).filter(|(on, _)| *on == socket);
        let Some((_, sent)) = sent.filter(|(_, sent)| sent.chunk >= self.first).copied() else {
            return;
        };
        if before != Some(of) {
            self.notify(sent, of);
        }
        let chunk = &mut self.chunks[(sent.chunk - self.first) as usize];
        let place = self.places[chunk.events.kind(sent.row).index()].certain;
        if let Some((likely, candidates)) = place {
            chunk.events.set_value(sent.row, likely, 0);
            chunk.events.set_value(sent.row, candidates, 0);
        }
    }

    /// A message of a process with tasks, if its question and answer have an id in common. What the task does that sends or
    /// reads it says little then: the events of the bytes themselves are for no question.
    fn look_at_one_of_many(&mut self, waiting_at: WaitingAt, fields: Said) {
        let Some(events) = self.chunks.back().map(|chunk| &chunk.events) else { return };
        let value = |field: usize| events.value(waiting_at.row, field);
        let correlation = value(fields.correlation_id);
        let thread = (value(fields.pid) as u32, value(fields.tid) as u32);
        if correlation == 0 || !self.tasks.has(thread.0) {
            return;
        }
        let message = tasks::Message {
            socket: value(fields.socket),
            id: correlation ^ u64::from(thread.0),
            asks: fields.asks,
            is_sent: value(fields.sent) != 0,
            ns: events.time_ns(waiting_at.row),
        };
        if !self.tasks.is_multiplexed(message.socket) {
            self.bytes_before(waiting_at, message);
        }
        self.notify(waiting_at, NOBODY);
        match self.tasks.message(thread, message) {
            tasks::Followed::Passing => {}
            tasks::Followed::InDoubt(exchange) => self.wait(exchange, message.ns, waiting_at),
            tasks::Followed::Home => {
                let chunk = (waiting_at.chunk - self.first) as usize;
                let events = &mut self.chunks[chunk].events;
                let place = self.places[events.kind(waiting_at.row).index()].home;
                place.into_iter().for_each(|home| events.set_value(waiting_at.row, home, 1));
            }
        }
        self.settle();
    }

    /// The first message of a connection comes behind the event of its bytes.
    fn bytes_before(&mut self, waiting_at: WaitingAt, message: tasks::Message) {
        let Some(row) = waiting_at.row.checked_sub(1) else { return };
        let before = WaitingAt { row, ..waiting_at };
        let events = &self.chunks[(before.chunk - self.first) as usize].events;
        let role = self.roles[events.kind(row).index()];
        if events.time_ns(row) == message.ns
            && let Some(Role { act: ThreadAct::Read | ThreadAct::Send, socket, .. }) = role
            && events.value(row, socket) == message.socket
        {
            self.notify(before, NOBODY);
        }
    }

    /// An event that says something of tasks, by its place in [`ProxyAttribution::of_tasks`].
    fn look_at_task(&mut self, place: usize, [pid, tid, a, b, c, d, e]: [u64; 7]) {
        let thread = (pid as u32, tid as u32);
        match place {
            0 if self.contexts.has(thread.0) => self.contexts.runs(thread, a),
            0 => self.tasks.runs(thread, a, b),
            1 => {
                self.tasks.wakes(thread.0, (a, b), (c, d), e != 0);
                self.settle();
            }
            2 => self.tasks.resumed(thread.0, a, b),
            3 => self.contexts.made(thread, a, b),
            _ => self.contexts.queues(thread, a, b),
        }
    }

    /// An event of a process whose contexts are known: nothing has to wait.
    fn look_in_context(
        &mut self,
        waiting_at: WaitingAt,
        act: ThreadAct,
        thread: (u32, u32),
        (socket, has_bytes): (u64, bool),
    ) {
        match act {
            ThreadAct::Accept => self.contexts.accepted(thread, socket),
            ThreadAct::Close => self.contexts.closed(thread.0, socket),
            ThreadAct::Wait | ThreadAct::Polled | ThreadAct::Looked => {
                self.contexts.polled(thread.1);
            }
            ThreadAct::KnownEvent | ThreadAct::Pair | ThreadAct::Connect => {}
            ThreadAct::Read | ThreadAct::Send if self.contexts.is_own(socket) => {}
            ThreadAct::Read if has_bytes => self.contexts.read(thread, socket),
            ThreadAct::Send if has_bytes => match self.contexts.sent(thread, socket) {
                contexts::Sent::AsSeen(certainty) => self.say(waiting_at, certainty),
                contexts::Sent::For(of, certainty) => {
                    self.notify(waiting_at, of);
                    self.say(waiting_at, certainty);
                }
                contexts::Sent::Nobody => self.notify(waiting_at, NOBODY),
            },
            ThreadAct::Read | ThreadAct::Send => {}
        }
    }

    /// An event of a process whose tasks are known: nothing has to wait but the first exchanges of connections.
    fn look_in_task(
        &mut self,
        waiting_at: WaitingAt,
        act: ThreadAct,
        At { process, thread, ns }: At,
        (socket, has_bytes): (u64, bool),
    ) {
        let thread = (process, thread);
        match act {
            ThreadAct::Read | ThreadAct::Send if self.tasks.is_multiplexed(socket) => {
                self.notify(waiting_at, NOBODY);
            }
            ThreadAct::Accept => self.tasks.accepted(thread.0, socket),
            ThreadAct::Close => self.tasks.closed(thread.0, socket),
            ThreadAct::Read if has_bytes => self.tasks.read(thread, socket),
            ThreadAct::Send if has_bytes => match self.tasks.sent(thread, socket) {
                tasks::Sent::Answer(certainty) => self.say(waiting_at, certainty),
                tasks::Sent::For(of, certainty) => {
                    self.notify(waiting_at, of);
                    self.say(waiting_at, certainty);
                }
                tasks::Sent::InDoubt(exchange) => self.wait(exchange, ns, waiting_at),
                tasks::Sent::Nobody => self.notify(waiting_at, NOBODY),
            },
            _ => {}
        }
        self.settle();
    }

    /// An event waits for a decision.
    fn wait(&mut self, exchange: ExchangeId, ns: u64, waiting_at: WaitingAt) {
        let spots = self.undecided.entry(exchange).or_insert_with(|| {
            self.order.push_back((ns, exchange));
            Vec::new()
        });
        if spots.len() == PIECES_MAX {
            return;
        }
        spots.push(waiting_at);
        self.chunks[(waiting_at.chunk - self.first) as usize].undecided += 1;
    }

    /// An event is attributed to a question on this socket.
    fn notify(&mut self, waiting_at: WaitingAt, socket: u64) {
        let events = &mut self.chunks[(waiting_at.chunk - self.first) as usize].events;
        let place = self.places[events.kind(waiting_at.row).index()].attribution;
        place.into_iter().for_each(|field| events.set_value(waiting_at.row, field, socket));
    }

    /// How certain an event's attribution is.
    fn say(&mut self, waiting_at: WaitingAt, certainty: Certainty) {
        let events = &mut self.chunks[(waiting_at.chunk - self.first) as usize].events;
        let place = self.places[events.kind(waiting_at.row).index()].certain;
        write(events, waiting_at.row, place, certainty);
    }

    fn settle(&mut self) {
        let ProxyAttribution { event_loops, tasks, undecided, chunks, first, places, .. } = self;
        for (exchange, for_whom, certainty) in event_loops.decisions().chain(tasks.decisions()) {
            for waiting_at in undecided.remove(&exchange).unwrap_or_default() {
                let chunk = &mut chunks[(waiting_at.chunk - *first) as usize];
                chunk.undecided -= 1;
                let place = places[chunk.events.kind(waiting_at.row).index()];
                write(&mut chunk.events, waiting_at.row, place.certain, certainty);
                if let Some((socket, field)) = for_whom.zip(place.attribution) {
                    chunk.events.set_value(waiting_at.row, field, socket);
                }
            }
        }
    }

    /// Exchanges that are open for too long, or keep too much, keep their attribution.
    fn give_up(&mut self, all: bool) {
        let last = self.chunks.back().map(|chunk| &chunk.events);
        let now_ns = last.map_or(0, |events| events.time_ns(events.len().saturating_sub(1)));
        let mut kept = self.held;
        let mut front = self.first;
        while let Some((sent_ns, exchange)) = self.order.front().copied() {
            if let Some(spots) = self.undecided.get(&exchange) {
                // Those before it need not wait for it.
                while spots.first().is_some_and(|waiting_at| front < waiting_at.chunk) {
                    kept -= self.chunks[(front - self.first) as usize].events.len();
                    front += 1;
                }
                if !all && kept <= HELD_MAX && sent_ns.saturating_add(WAIT_NS) >= now_ns {
                    return;
                }
                match opened::is_one(exchange) || multiplexed::is_one(exchange) {
                    true => self.tasks.give_up(exchange),
                    false => self.event_loops.decide(exchange, None, How::Last),
                }
                self.settle();
            }
            self.order.pop_front();
        }
    }
}

/// Writes into an event how certain its attribution is.
fn write(events: &mut Batch, row: usize, fields: Option<(usize, usize)>, certainty: Certainty) {
    let Some((likely, candidates)) = fields else { return };
    if certainty != Certainty::Seen {
        events.set_value(row, likely, certainty.likely().into());
        events.set_value(row, candidates, certainty.candidates().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fettle_requests::{Catalog, Source, compile, shipped};

    fn setting() -> (Catalog, ProxyAttribution) {
        let program = compile(&[Source::new("t", "use sockets")], &shipped).unwrap();
        let attribution = ProxyAttribution::new(&program, &|_| true);
        (program.catalog().clone(), attribution)
    }

    /// A proxy reads two questions, passes them on, and answers; each batch has one event.
    const STORY: [(&str, u64); 11] = [
        ("received", 10),
        ("received", 11),
        ("sent", 20),
        ("sent", 21),
        ("poll_begin", 0),
        ("poll", 0),
        ("received", 20),
        ("received", 21),
        ("sent", 10),
        ("sent", 11),
        ("poll_begin", 0),
    ];

    fn push(batch: &mut Batch, catalog: &Catalog, ns: u64, name: &str, socket: u64) {
        // pid, tid, socket, local, remote, bytes.
        let kind = catalog.find(name).unwrap();
        batch.push(ns, kind, &[1, 2, socket, 1, 2, if socket == 0 { 0 } else { 5 }]);
    }

    #[test]
    fn events_wait_until_it_is_known_and_keep_their_order() {
        let (catalog, mut attribution) = setting();
        let sent = catalog.find("sent").unwrap();
        let field = attribution.places[sent.index()].attribution.unwrap();
        let mut told = Vec::new();
        let mut batch = Batch::new(&catalog);
        for (ns, (name, socket)) in (0..).zip(STORY) {
            push(&mut batch, &catalog, ns, name, socket);
            attribution.pass(&mut batch, Some(0), false);
            told.extend((0..batch.len()).map(|row| (batch.time_ns(row), batch.value(row, field))));
            // The first two go on; then all wait for the end of the turn in which the answers go on.
            assert_eq!(told.len(), [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 11][ns as usize], "{name}");
            batch.clear();
        }
        let sent: Vec<_> = [2, 3].iter().map(|row| told[*row].1).collect();
        assert_eq!(sent, [10, 11]);
        assert!(told.iter().map(|(ns, _)| *ns).eq(0..11));
        assert_eq!(attribution.held, 0);
    }

    /// Two threads read questions, and a third one asks for both, in the other order: without ids it asks for the one
    /// that has waited longest.
    fn handed(ids: [u64; 2]) -> (Vec<[u64; 3]>, ByTraceId) {
        let (catalog, mut attribution) = setting();
        let places = attribution.places[catalog.find("sent").unwrap().index()];
        let (attributed, (likely, candidates)) =
            (places.attribution.unwrap(), places.certain.unwrap());
        let mut batch = Batch::new(&catalog);
        let mut ns = 0;
        let mut push = |name: &str, tid: u64, socket: u64, more: &[u64]| {
            ns += 1;
            let values = [&[1, tid, socket, 1, 2], more].concat();
            batch.push(ns, catalog.find(name).unwrap(), &values);
        };
        let said = |sent: u64, id: u64| [sent, 3, 0, 4, 5, 0, id];
        for (tid, socket, id) in [(10, 100, 71), (11, 101, 72)] {
            push("received", tid, socket, &[5]);
            push("ask", tid, socket, &said(0, id));
        }
        for (socket, id) in [(200, ids[0]), (201, ids[1])] {
            push("sent", 12, socket, &[5]);
            push("ask", 12, socket, &said(1, id));
        }
        for (tid, socket) in [(10, 100), (11, 101)] {
            push("sent", tid, socket, &[5]);
            push("answer", tid, socket, &[1, 3, 0, 1, 6, 0]);
        }
        attribution.pass(&mut batch, Some(0), true);
        let sent = catalog.find("sent").unwrap();
        let rows = (0..batch.len()).filter(|row| batch.kind(*row) == sent);
        let fields = [attributed, likely, candidates];
        let found = rows.map(|row| fields.map(|field| batch.value(row, field))).collect();
        (found, attribution.by_trace_id())
    }

    #[test]
    fn ids_in_the_bytes_say_whose_question_it_is() {
        let (found, counts) = handed([0, 0]);
        assert_eq!((found[0][0], found[1][0]), (100, 101));
        assert!(found[0][2] == 2 && found[2][2] > 1, "{found:?}");
        assert_eq!(counts, ByTraceId::default());
        // What the ids say is certain, and so is what is answered.
        let (found, counts) = handed([72, 71]);
        assert_eq!(found, [[101, 0, 0], [100, 0, 0], [0, 0, 0], [0, 0, 0]]);
        // The second one would have been for the question that is left.
        assert_eq!(counts, ByTraceId { all: 2, moved: 1 });
        let (found, counts) = handed([71, 72]);
        assert_eq!(found, [[100, 0, 0], [101, 0, 0], [0, 0, 0], [0, 0, 0]]);
        assert_eq!(counts, ByTraceId { all: 2, moved: 0 });
        // An id that no one has was asked with says nothing.
        assert_eq!(handed([5, 6]), handed([0, 0]));
    }

    #[test]
    fn nothing_waits_for_ever() {
        let (catalog, mut attribution) = setting();
        let mut batch = Batch::new(&catalog);
        for (ns, (name, socket)) in (0..).zip(STORY).take(6) {
            push(&mut batch, &catalog, ns, name, socket);
        }
        attribution.pass(&mut batch, Some(0), false);
        assert_eq!((batch.len(), attribution.held), (0, 6));
        push(&mut batch, &catalog, WAIT_NS + 10, "poll", 0);
        attribution.pass(&mut batch, Some(0), false);
        assert_eq!((batch.len(), attribution.held), (7, 0));
        // Nor beyond the end.
        batch.clear();
        for (ns, (name, socket)) in (WAIT_NS + 20..).zip(STORY).take(4) {
            push(&mut batch, &catalog, ns, name, socket);
        }
        attribution.pass(&mut batch, Some(0), true);
        assert_eq!((batch.len(), attribution.held), (4, 0));
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let (catalog, mut attribution) = setting();
        let mut batch = Batch::new(&catalog);
        for (ns, (name, socket)) in (0..).zip(STORY).take(4) {
            push(&mut batch, &catalog, ns, name, socket);
        }
        let mut most = 0;
        for _ in 0..100 {
            (0..HELD_MAX / 50).for_each(|_| push(&mut batch, &catalog, 100, "poll", 0));
            attribution.pass(&mut batch, Some(0), false);
            batch.clear();
            most = most.max(attribution.held);
        }
        assert!(most > HELD_MAX / 2 && most <= HELD_MAX, "{most}");
        assert_eq!(attribution.held, 0);
    }
}
