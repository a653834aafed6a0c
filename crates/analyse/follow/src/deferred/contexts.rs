//! Whose question a context works for, where the kernel's programs have read which context a thread of CPython's
//! runs, and reported which one makes another.
//!
//! A task of asyncio runs in a context of its own, a copy of the one in which it was made; so does what is put off
//! until later, or given to a thread. So a context works for the question for which the one has worked that has
//! made it. The first ones are made where a question was read, or where a connection was taken: those work for
//! whatever is asked on that connection.
//!
//! The event loop reads in contexts of its own. A transport of asyncio's does so in one that goes back to the task
//! that has opened the connection, which says nothing of the one that uses it now; the loop of uvloop reads and sends everything
//! in one context. So what has just been read decides what such a context makes, and uvloop's loop sends for the
//! context that has left the bytes to it.
//!
//! What is not seen is an item that a task takes from a queue of the program's own: a task that lives longer than
//! what it was made for works for no question that is known, and what it asks is a choice: queues are taken from in
//! order, so it is the oldest question for which nothing was asked yet. All others may lack it.

use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, VecDeque};

use fettle_requests::{CERTAIN, Certainty};

use super::asker::Asker;
use super::certain::{Doubt, How, Setting, certainty};

/// Names a context: its process, and its address there.
type ContextId = (u32, u64);

/// What a context works for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// This question, as long as no other is asked on its connection.
    For(Asker),
    /// Whatever is asked on this connection.
    Connection(u64),
}

/// What a thread has read or taken since it has polled.
#[derive(Clone, Copy, Debug)]
struct Last {
    work: Work,
    /// The context in which it did so.
    reader: u64,
}

/// A socket of a process with contexts.
#[derive(Clone, Copy, Debug)]
enum Socket {
    /// Others ask there: the number of the last question, whether it is not answered yet, whether it has an answer.
    Served { number: u64, is_open: bool, is_answered: bool },
    /// The process asks there, last for this question, and whether that was answered.
    Asked { asker: Option<Asker>, is_answered: bool, certainty: Certainty },
}

/// Contexts and sockets that are remembered; beyond, all is forgotten.
const KNOWN_MAX: usize = 1 << 18;

/// Stands for the sockets on which connections are taken.
const NO_SOCKET: u64 = u64::MAX;

/// Open questions of a process that are looked at for the one that is chosen.
const CANDIDATES_MAX: usize = 1 << 10;

/// Pieces that wait to be sent on a socket.
const QUEUED_MAX: usize = 64;

/// The question for which bytes are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// A question's answer begins, or what is seen of the thread decides, so certainly.
    AsSeen(Certainty),
    /// The answer on this socket goes on, or a question is asked for the one on that socket.
    For(u64, Certainty),
    /// For no question.
    Nobody,
}

/// A process with contexts.
#[derive(Default)]
struct Process {
    /// Its questions that are not answered yet, by number, which is their order.
    open: BTreeMap<u64, Question>,
    doubt: Doubt,
}

/// A question that is not answered yet.
struct Question {
    socket: u64,
    /// How often something was asked for it, and how much of that is not answered yet.
    asked: u32,
    under_way: u32,
    /// What there was of doubt when it was read.
    doubt_before: Doubt,
}

/// What is known of all processes with contexts.
#[derive(Default)]
pub(super) struct Contexts {
    /// The context that each thread runs.
    running: FxHashMap<u32, ContextId>,
    processes: FxHashMap<u32, Process>,
    /// For which question a context has asked last by choice.
    chosen: FxHashMap<ContextId, Asker>,
    work: FxHashMap<ContextId, Work>,
    /// Contexts that read from several connections: those of uvloop's loops.
    loops: FxHashSet<ContextId>,
    /// From which connection a context has read last.
    reads: FxHashMap<ContextId, u64>,
    sockets: FxHashMap<u64, Socket>,
    last: FxHashMap<u32, Last>,
    /// For whom a loop will send on a socket, in order.
    queued: FxHashMap<u64, VecDeque<Option<(Asker, Certainty)>>>,
    /// Sockets by which a process notifies itself.
    own: FxHashSet<u64>,
    numbers: u64,
}

impl Contexts {
    /// Whether a process is known to have contexts.
    pub fn has(&self, process: u32) -> bool {
        self.processes.contains_key(&process)
    }

    /// From here on a thread runs in a context; 0 is none.
    pub fn runs(&mut self, (process, thread): (u32, u32), context: u64) {
        match context {
            0 => self.running.remove(&thread),
            context => self.running.insert(thread, (process, context)),
        };
    }

    /// A context makes another one, at an address where there may have been one before.
    pub fn made(&mut self, (process, thread): (u32, u32), maker: u64, made: u64) {
        self.forget_if_too_much();
        self.processes.entry(process).or_default();
        let maker = (process, maker);
        let made = (process, made);
        self.loops.remove(&made);
        self.reads.remove(&made);
        self.chosen.remove(&made);
        let last = self.last.get(&thread).copied();
        let work = match last {
            Some(last) if last.reader == maker.1 => Some(last.work),
            last => {
                let own = self.asker_of(maker).map(Work::For);
                let own = own.or_else(|| self.work.get(&maker).copied().filter(is_connection));
                own.or_else(|| {
                    last.filter(|last| self.is_of_loop(process, *last)).map(|of| of.work)
                })
            }
        };
        match work {
            Some(work) => self.work.insert(made, work),
            None => self.work.remove(&made),
        };
    }

    /// Whether what was read last may be handed to another context than the one that has read it.
    fn is_of_loop(&self, process: u32, last: Last) -> bool {
        is_connection(&last.work) || self.loops.contains(&(process, last.reader))
    }

    /// The question that a context works for by what it was made for.
    fn asker_of(&self, id: ContextId) -> Option<Asker> {
        self.asker(*self.work.get(&id)?)
    }

    fn asker(&self, work: Work) -> Option<Asker> {
        let socket = match work {
            Work::For(asker) => asker.socket,
            Work::Connection(socket) => socket,
        };
        let Some(Socket::Served { number, .. }) = self.sockets.get(&socket) else { return None };
        match work {
            Work::For(asker) => Some(asker).filter(|asker| asker.number == *number),
            Work::Connection(_) => Some(Asker { socket, number: *number }).filter(|_| *number != 0),
        }
    }

    /// A thread has polled: what it reads from here on is other work.
    pub fn polled(&mut self, thread: u32) {
        self.last.remove(&thread);
    }

    /// A connection was taken: the peer that speaks there asks.
    pub fn accepted(&mut self, (process, thread): (u32, u32), socket: u64) {
        self.closed(process, socket);
        let served = Socket::Served { number: 0, is_open: false, is_answered: false };
        self.sockets.insert(socket, served);
        // Only loops that do all in one context read where they take connections.
        if let Some(id) = self.running.get(&thread) {
            self.reads.insert(*id, NO_SOCKET);
        }
        self.has_read((process, thread), Work::Connection(socket));
    }

    fn has_read(&mut self, (_, thread): (u32, u32), work: Work) {
        let reader = self.running.get(&thread).map_or(0, |id| id.1);
        self.last.insert(thread, Last { work, reader });
    }

    /// A process has made two sockets for itself: threads wake their event loop by them.
    pub fn paired(&mut self, sockets: [u64; 2]) {
        if self.own.len() < KNOWN_MAX {
            self.own.extend(sockets);
        }
    }

    /// Whether it has, known also of processes that are not known to have contexts.
    pub fn is_own(&self, socket: u64) -> bool {
        self.own.contains(&socket)
    }

    /// One of these is gone.
    pub fn unpaired(&mut self, socket: u64) {
        self.own.remove(&socket);
    }

    /// A socket is gone.
    pub fn closed(&mut self, process: u32, socket: u64) {
        match self.sockets.remove(&socket) {
            Some(Socket::Served { is_open: true, number, .. }) => {
                self.processes.entry(process).or_default().open.remove(&number);
            }
            Some(Socket::Asked { asker, is_answered: false, .. }) => self.is_over(process, asker),
            _ => {}
        }
        self.queued.remove(&socket);
    }

    fn question(&mut self, process: u32, asker: Option<Asker>) -> Option<&mut Question> {
        self.processes.get_mut(&process)?.open.get_mut(&asker?.number)
    }

    /// What was asked for a question is answered.
    fn is_over(&mut self, process: u32, asker: Option<Asker>) {
        if let Some(question) = self.question(process, asker) {
            question.under_way = question.under_way.saturating_sub(1);
        }
    }

    /// Bytes were read.
    pub fn read(&mut self, (process, thread): (u32, u32), socket: u64) {
        self.forget_if_too_much();
        if let Some(id) = self.running.get(&thread).copied()
            && self.reads.insert(id, socket).is_some_and(|before| before != socket)
        {
            self.loops.insert(id);
        }
        let work = match self.sockets.get_mut(&socket) {
            Some(Socket::Asked { asker, is_answered, .. }) => {
                let asker = *asker;
                if !std::mem::replace(is_answered, true) {
                    self.is_over(process, asker);
                }
                asker.map(Work::For)
            }
            Some(Socket::Served { is_open: true, number, .. }) => {
                Some(Work::For(Asker { socket, number: *number }))
            }
            _ => {
                self.numbers += 1;
                let number = self.numbers;
                let served = Socket::Served { number, is_open: true, is_answered: false };
                self.sockets.insert(socket, served);
                let process = self.processes.entry(process).or_default();
                let doubt_before = process.doubt;
                let question = Question { socket, asked: 0, under_way: 0, doubt_before };
                process.open.insert(number, question);
                Some(Work::For(Asker { socket, number }))
            }
        };
        match work {
            Some(work) => self.has_read((process, thread), work),
            None => drop(self.last.remove(&thread)),
        }
    }

    /// For whom a context sends as it is seen to.
    fn seen_for(&self, thread: u32, id: ContextId) -> Option<Asker> {
        let last = self.last.get(&thread).copied();
        let by_reader =
            last.filter(|last| last.reader == id.1).and_then(|last| self.asker(last.work));
        by_reader.or_else(|| self.asker_of(id))
    }

    /// For whom a context sends, and how certain that is; `None` if there is no question.
    fn works_for(&mut self, thread: u32, id: ContextId) -> Option<(Asker, Certainty)> {
        match self.seen_for(thread, id) {
            Some(asker) => Some((asker, Certainty::Seen)),
            None => {
                let last = self.last.get(&thread).copied();
                let last = last.and_then(|last| self.asker(last.work));
                let asker = self.choose(id, last)?;
                self.chosen.insert(id, asker);
                Some((asker, self.doubt(id.0)))
            }
        }
    }

    /// The question that a context works for that takes its work from where it is not seen.
    fn choose(&self, id: ContextId, last: Option<Asker>) -> Option<Asker> {
        let open = &self.processes.get(&id.0)?.open;
        let asker = |(number, of): (&u64, &Question)| Asker { socket: of.socket, number: *number };
        let mut all = open.iter().take(CANDIDATES_MAX);
        let unasked = all.find(|(_, of)| of.asked == 0).map(asker);
        let before = self.chosen.get(&id).copied().filter(|of| open.contains_key(&of.number));
        let idle = || open.iter().take(CANDIDATES_MAX).find(|(_, of)| of.under_way == 0).map(asker);
        let last = last.filter(|of| open.contains_key(&of.number));
        unasked.or(before).or(last).or_else(idle).or_else(|| open.iter().next().map(asker))
    }

    /// One of the open questions is chosen: how certain that is. The others may lack it.
    fn doubt(&mut self, process: u32) -> Certainty {
        let process = self.processes.entry(process).or_default();
        let candidates = u32::try_from(process.open.len()).unwrap_or(u32::MAX);
        let (is_prompt, asks_once, is_shared) = (false, false, false);
        let setting = Setting { candidates, is_prompt, asks_once, is_shared, base: CERTAIN };
        let certainty = certainty(How::InOrder, setting);
        process.doubt.add(certainty);
        certainty
    }

    /// A context leaves bytes for a socket to its loop.
    pub fn queues(&mut self, (process, thread): (u32, u32), socket: u64, context: u64) {
        if matches!(self.sockets.get(&socket), Some(Socket::Served { .. })) {
            return;
        }
        let what = self.works_for(thread, (process, context));
        let queued = self.queued.entry(socket).or_default();
        if queued.back() != Some(&what) && queued.len() < QUEUED_MAX {
            queued.push_back(what);
        }
    }

    /// Bytes were sent.
    pub fn sent(&mut self, (process, thread): (u32, u32), socket: u64) -> Sent {
        self.forget_if_too_much();
        if let Some(Socket::Served { is_open, is_answered, number }) = self.sockets.get_mut(&socket)
        {
            let goes_on = std::mem::replace(is_answered, true) && !*is_open;
            *is_open = false;
            let number = *number;
            let process = self.processes.entry(process).or_default();
            let candidates = process.open.len();
            let question = process.open.remove(&number);
            return match question {
                // What was chosen for others may have been this one's.
                Some(question) => {
                    let certainty = process.doubt.since(question.doubt_before, candidates);
                    Sent::AsSeen(certainty)
                }
                None if goes_on => Sent::For(socket, Certainty::Seen),
                None => Sent::AsSeen(Certainty::Seen),
            };
        }
        let id = self.running.get(&thread).copied();
        let before = match self.sockets.get(&socket) {
            Some(Socket::Asked { asker, is_answered: false, certainty }) => {
                Some(asker.map(|asker| (asker, *certainty)))
            }
            _ => None,
        };
        // What a loop leaves over and sends later is of the same question.
        let is_loop = id.is_some_and(|id| self.loops.contains(&id));
        let found = match (self.queued.remove(&socket), before) {
            (Some(queued), _) => self.of_queued(process, &queued),
            (None, Some(before)) if is_loop => before,
            // What goes on is no choice once more.
            (None, Some(before)) => {
                let seen = id.and_then(|id| self.seen_for(thread, id));
                seen.map(|asker| (asker, Certainty::Seen)).or(before)
            }
            (None, None) => id.and_then(|id| self.works_for(thread, id)),
        };
        let (asker, certainty) = match found {
            Some((asker, certainty)) => (Some(asker), certainty),
            None => (None, Certainty::Seen),
        };
        if before.is_none_or(|before| before.map(|of| of.0) != asker)
            && let Some(question) = self.question(process, asker)
        {
            question.asked += 1;
            question.under_way += 1;
        }
        self.sockets.insert(socket, Socket::Asked { asker, is_answered: false, certainty });
        match asker {
            Some(asker) => Sent::For(asker.socket, certainty),
            None if id.is_none() => Sent::AsSeen(self.doubt(process)),
            None => Sent::Nobody,
        }
    }

    /// What has just been asked on a connection is for the open question on another socket, as its bytes say.
    /// Returns the socket of the question that it was taken for.
    pub fn named(&mut self, process: u32, socket: u64, of: u64) -> Option<Option<u64>> {
        let Some(Socket::Served { number, is_open: true, .. }) = self.sockets.get(&of) else {
            return None;
        };
        let named = Asker { socket: of, number: *number };
        let Some(Socket::Asked { asker, certainty, .. }) = self.sockets.get_mut(&socket) else {
            return None;
        };
        let before = asker.replace(named);
        let added = std::mem::replace(certainty, Certainty::Seen);
        self.processes.entry(process).or_default().doubt.take_back(added);
        if before != Some(named) {
            if let Some(question) = self.question(process, before) {
                question.asked = question.asked.saturating_sub(1);
                question.under_way = question.under_way.saturating_sub(1);
            }
            if let Some(question) = self.question(process, Some(named)) {
                question.asked += 1;
                question.under_way += 1;
            }
        }
        Some(before.map(|before| before.socket))
    }

    /// What several contexts have left is sent at once: it is taken for the first one's.
    fn of_queued(
        &mut self,
        process: u32,
        queued: &VecDeque<Option<(Asker, Certainty)>>,
    ) -> Option<(Asker, Certainty)> {
        let (asker, certainty) = queued.front().copied().flatten()?;
        Some((asker, if queued.len() == 1 { certainty } else { self.doubt(process) }))
    }

    /// No event says when a context is over.
    fn forget_if_too_much(&mut self) {
        let known = [
            self.work.len(),
            self.sockets.len(),
            self.running.len(),
            self.processes.len(),
            self.reads.len(),
            self.queued.len(),
            self.last.len(),
            self.chosen.len(),
        ];
        if known.into_iter().any(|known| known > KNOWN_MAX) {
            let processes = std::mem::take(&mut self.processes);
            *self = Contexts { numbers: self.numbers, ..Contexts::default() };
            if processes.len() <= KNOWN_MAX {
                let known = processes.into_keys().map(|process| (process, Process::default()));
                self.processes = known.collect();
            }
        }
    }
}

fn is_connection(work: &Work) -> bool {
    matches!(work, Work::Connection(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u32 = 1;
    /// The loop's thread, and one that works for it.
    const LOOP: (u32, u32) = (P, 10);
    const WORKER: (u32, u32) = (P, 11);
    /// Sockets of clients, and of servers that are asked.
    const FIRST: u64 = 100;
    const SECOND: u64 = 101;
    const ASKED: u64 = 200;
    const ASKED_TOO: u64 = 201;
    /// The context of a listening socket, or of all that a loop reads.
    const BASE: u64 = 1;

    fn is_for(socket: u64) -> Sent {
        Sent::For(socket, Certainty::Seen)
    }

    /// Each connection is taken in one context and read in another, as asyncio does: 10 and 11.
    fn asyncio() -> Contexts {
        let mut contexts = Contexts::default();
        for (socket, transport) in [(FIRST, 10), (SECOND, 11)] {
            contexts.runs(LOOP, BASE);
            contexts.accepted(LOOP, socket);
            contexts.made(LOOP, BASE, transport);
            contexts.polled(LOOP.1);
        }
        contexts
    }

    /// A question is read in a transport's context, which makes a task for it.
    fn asked(contexts: &mut Contexts, socket: u64, transport: u64, task: u64) {
        contexts.runs(LOOP, transport);
        contexts.read(LOOP, socket);
        contexts.made(LOOP, transport, task);
    }

    fn sends(contexts: &mut Contexts, thread: (u32, u32), context: u64, socket: u64) -> Sent {
        contexts.runs(thread, context);
        contexts.sent(thread, socket)
    }

    #[test]
    fn what_a_task_has_made_works_for_its_question() {
        let mut contexts = asyncio();
        asked(&mut contexts, FIRST, 10, 20);
        asked(&mut contexts, SECOND, 11, 21);
        contexts.polled(LOOP.1);
        // Two that are gathered, and a thread that is given a function.
        contexts.made(LOOP, 20, 30);
        contexts.made(LOOP, 21, 31);
        assert_eq!(sends(&mut contexts, LOOP, 31, ASKED_TOO), is_for(SECOND));
        assert_eq!(sends(&mut contexts, WORKER, 30, ASKED), is_for(FIRST));
        // The address of a context is another's later.
        contexts.made(LOOP, 21, 30);
        assert_eq!(sends(&mut contexts, LOOP, 30, ASKED + 5), is_for(SECOND));
        assert_eq!(sends(&mut contexts, LOOP, 21, SECOND), Sent::AsSeen(Certainty::Seen));
        assert_eq!(sends(&mut contexts, LOOP, 21, SECOND), is_for(SECOND), "the answer goes on");
    }

    #[test]
    fn what_the_bytes_say_decides() {
        let mut contexts = asyncio();
        asked(&mut contexts, FIRST, 10, 20);
        asked(&mut contexts, SECOND, 11, 21);
        contexts.polled(LOOP.1);
        // A task that takes its work from a queue.
        let Sent::For(FIRST, certainty) = sends(&mut contexts, WORKER, 50, ASKED) else { panic!() };
        assert!(certainty.is_choice());
        assert_eq!(contexts.named(LOOP.0, ASKED, SECOND), Some(Some(FIRST)));
        assert_eq!(sends(&mut contexts, WORKER, 50, ASKED), is_for(SECOND));
        assert_eq!(contexts.named(LOOP.0, ASKED, ASKED_TOO), None);
        // Nothing is in doubt any more.
        assert_eq!(sends(&mut contexts, LOOP, 20, FIRST), Sent::AsSeen(Certainty::Seen));
        assert_eq!(contexts.named(LOOP.0, ASKED, FIRST), None);
    }

    #[test]
    fn a_pooled_connection_is_its_users_and_not_its_makers() {
        let mut contexts = asyncio();
        asked(&mut contexts, FIRST, 10, 20);
        // It opens a connection, whose transport has a context of its own.
        contexts.made(LOOP, 20, 40);
        asked(&mut contexts, SECOND, 11, 21);
        contexts.polled(LOOP.1);
        assert_eq!(sends(&mut contexts, LOOP, 21, ASKED), is_for(SECOND));
        contexts.runs(LOOP, 40);
        contexts.read(LOOP, ASKED);
        // What is made of an answer is for those that have asked.
        contexts.made(LOOP, 40, 41);
        assert_eq!(sends(&mut contexts, LOOP, 41, ASKED_TOO), is_for(SECOND));
    }

    #[test]
    fn the_task_of_a_connection_works_for_what_is_asked_there() {
        let mut contexts = asyncio();
        contexts.made(LOOP, 10, 20);
        for _ in 0..2 {
            contexts.runs(LOOP, 10);
            contexts.read(LOOP, FIRST);
            contexts.polled(LOOP.1);
            assert_eq!(sends(&mut contexts, LOOP, 20, ASKED), is_for(FIRST));
            contexts.read(LOOP, ASKED);
            assert_eq!(sends(&mut contexts, LOOP, 20, FIRST), Sent::AsSeen(Certainty::Seen));
        }
    }

    #[test]
    fn a_loop_reads_for_all_and_sends_for_those_that_left_it_bytes() {
        /// In which all protocols are called.
        const SERVER: u64 = 2;
        let mut contexts = Contexts::default();
        contexts.made(LOOP, BASE, SERVER);
        contexts.runs(LOOP, BASE);
        for socket in [FIRST, SECOND] {
            contexts.accepted(LOOP, socket);
        }
        contexts.polled(LOOP.1);
        for (socket, task) in [(FIRST, 20), (SECOND, 21), (FIRST, 22)] {
            contexts.read(LOOP, socket);
            contexts.made(LOOP, SERVER, task);
        }
        contexts.queues(LOOP, ASKED_TOO, 21);
        contexts.queues(LOOP, ASKED, 22);
        assert_eq!(contexts.sent(LOOP, ASKED), is_for(FIRST));
        assert_eq!(contexts.sent(LOOP, ASKED_TOO), is_for(SECOND));
        assert_eq!(contexts.sent(LOOP, ASKED_TOO), is_for(SECOND), "what did not fit goes on");
        // Two tasks' at once are a choice.
        contexts.read(LOOP, ASKED);
        contexts.queues(LOOP, ASKED, 22);
        contexts.queues(LOOP, ASKED, 21);
        let Sent::For(FIRST, certainty) = contexts.sent(LOOP, ASKED) else { panic!() };
        assert!(certainty.is_choice());
    }

    #[test]
    fn what_takes_from_a_queue_is_in_doubt() {
        let mut contexts = asyncio();
        contexts.made(LOOP, BASE, 50);
        asked(&mut contexts, FIRST, 10, 20);
        asked(&mut contexts, SECOND, 11, 21);
        contexts.polled(LOOP.1);
        // Queues are taken from in order.
        for (asked, expected) in [(ASKED, FIRST), (ASKED_TOO, SECOND)] {
            let Sent::For(socket, certainty) = sends(&mut contexts, LOOP, 50, asked) else {
                panic!()
            };
            assert_eq!(
                (socket, certainty.is_choice(), certainty.candidates()),
                (expected, true, 2)
            );
            contexts.read(LOOP, asked);
            contexts.polled(LOOP.1);
        }
        // Either may have been the other's.
        let Sent::AsSeen(certainty) = sends(&mut contexts, LOOP, 20, FIRST) else { panic!() };
        assert!(certainty.is_choice() && certainty.likely() < 900, "{certainty:?}");
        // With none that waits, it works for none.
        sends(&mut contexts, LOOP, 21, SECOND);
        assert_eq!(sends(&mut contexts, LOOP, 50, ASKED_TOO), Sent::Nobody);
    }

    #[test]
    fn what_nobody_ends_is_forgotten() {
        let mut contexts = asyncio();
        for n in 10..3 * KNOWN_MAX as u64 {
            contexts.runs(LOOP, n);
            contexts.read(LOOP, 1000 + n);
            contexts.made(LOOP, n, n + 1);
            contexts.queues(LOOP, n << 32, n);
        }
        let known = [contexts.work.len(), contexts.sockets.len(), contexts.queued.len()];
        assert!(known.into_iter().all(|known| known <= KNOWN_MAX + 2), "{known:?}");
        assert!(contexts.has(P));
    }
}
