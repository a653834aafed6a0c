//! Proxy attribution: whose question an event loop passes on.
//!
//! A proxy reads questions of many clients and asks others for them, often later: when a connection is
//! free, when a socket has room. Which question it asks for is not seen then. What it does with the
//! answer shows it: it reads that, and before it waits again sends it to the client whose question it
//! was. So an *exchange*, a request/response pair on a connection, is decided in that *turn*, an
//! event-loop iteration between two waits. Answers are passed on in the order in which they were read.
//!
//! Some loops send nothing until their next poll has reported that there is room for it. An iteration
//! has several *rounds* then, each from one poll to the next, and what is sent in a round was read in
//! the one before. Which loops do so is learned from the answers of which it is plain.
//!
//! That is asked only where a process works for several questions at once and a thread of its has read
//! several: others are known by what they have read last, as schemas suppose it for all. So it is of
//! most exchanges of event loops, which ask as soon as they have read; these yield only to what
//! contradicts them: that the question was answered before the exchange, or that an answer goes to a
//! client for which nothing was asked.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;

use fettle_requests::{CERTAIN, Certainty};

use super::asker::Asker;
use super::certain::{Doubt, How, Setting, certainty, handed};
use super::pools::AllPools;

/// Names an exchange.
pub(super) type ExchangeId = u64;

/// What was found out: for which question an exchange was, by its socket; `None` if what is seen of
/// the thread says it all, or nothing does. And how certain it is.
pub(super) type Decision = (ExchangeId, Option<u64>, Certainty);

/// What is known of bytes that were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// What has been seen of the thread decides, so certainly.
    AsSeen(Certainty),
    /// The answer on this socket goes on, whatever the thread has read since it began.
    AnswerGoesOn,
    /// They are of an exchange that waits for its decision.
    InDoubt(ExchangeId),
    /// They are for the question on this socket, so certainly.
    For(u64, Certainty),
}

/// Where an event happens.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub process: u32,
    pub thread: u32,
    pub ns: u64,
}

/// Sockets, processes and threads that are remembered; beyond, all is forgotten.
const KNOWN_MAX: usize = 1 << 18;
/// Answers of a turn, and questions, that are remembered.
const TURN_MAX: usize = 1 << 10;

/// Answered questions after which it is known whether a process asks once for each.
const PROXY_AFTER: u64 = 64;

/// What is known of all processes.
#[derive(Default)]
pub(super) struct EventLoops {
    /// Sockets on which others ask.
    questions: FxHashMap<u64, Question>,
    /// Sockets on which the process asks, and the last exchange there.
    asked: FxHashMap<u64, ExchangeId>,
    /// Of sockets on which it asks and that have been tested since: the question of the thread that did it last.
    tested: FxHashMap<u64, Asker>,
    /// Those that are not decided, or whose answer may still be passed on.
    exchanges: FxHashMap<ExchangeId, Exchange>,
    processes: FxHashMap<u32, Process>,
    threads: FxHashMap<u32, Thread>,
    pools: AllPools,
    /// Numbers given to questions and exchanges.
    numbers: u64,
    decisions: Vec<Decision>,
}

/// The last question on a socket.
struct Question {
    number: u64,
    at: At,
    is_open: bool,
    /// By which thread it was answered, and when.
    answered: Option<(u32, u64)>,
    /// Those that are for it as far as is known, and not decided.
    exchanges: Vec<ExchangeId>,
    /// There was one that has turned out to be.
    was_asked_for: bool,
    /// What there was of doubt in its process when it was read.
    doubt_before: Doubt,
}

impl Question {
    fn new(at: At, number: u64, is_open: bool) -> Question {
        let exchanges = Vec::new();
        let doubt_before = Doubt::default();
        Question {
            number,
            at,
            is_open,
            answered: None,
            exchanges,
            was_asked_for: false,
            doubt_before,
        }
    }

    /// Whether it is the one that is meant, and waits for its answer.
    fn is_open_as(&self, asker: Asker) -> bool {
        self.is_open && self.number == asker.number
    }
}

struct Exchange {
    sent_ns: u64,
    /// As far as is known.
    for_whom: Option<Asker>,
    is_answered: bool,
    /// In which of its reader's rounds.
    round: u64,
    /// There are others that it may be for.
    is_in_doubt: bool,
    /// How certain it is, if its question was known when it was asked: it has waited for a connection, or for a
    /// thread that takes work from others.
    known: Option<Certainty>,
    /// What bears on how certain it is.
    setting: Setting,
}

#[derive(Default)]
struct Process {
    open_questions: usize,
    /// Questions that it was asked, and that it has asked.
    was_asked: u64,
    has_asked: u64,
    doubt: Doubt,
    /// Threads that had several questions at once.
    loops: u32,
    /// A thread of its had several questions at once.
    has_loop: bool,
    has_polled: bool,
}

impl Process {
    /// Whether it is known to ask once for each question.
    fn is_proxy(&self) -> bool {
        let open = self.open_questions as u64;
        let answered = self.was_asked.saturating_sub(open);
        answered >= PROXY_AFTER.max(4 * open) && self.has_asked <= answered + answered / 4 + open
    }
}

/// Answers that a thread has read, and the clients that it has answered then: what it reads next begins
/// another.
#[derive(Default)]
struct Stretch {
    ins: Vec<ExchangeId>,
    outs: Vec<Out>,
}

/// A client that was answered, and for which nothing is known to have been asked.
#[derive(Clone, Copy)]
struct Out {
    socket: u64,
    /// When the question was read.
    read_ns: u64,
    /// It has waited for more than an event-loop iteration, and nothing is known to have been asked for
    /// it at all.
    is_left_over: bool,
}

#[derive(Default)]
struct Thread {
    open_questions: usize,
    /// It had several at once.
    is_loop: bool,
    /// Polls that have returned, whether they could have waited or not; how many there were when it did
    /// that last, and how likely its attribution is.
    polls: u64,
    last_poll: u64,
    last_likely: u16,
    /// What it did last that says for which question it works.
    last: Option<Asker>,
    /// Questions that it has read in this turn, neither answered nor asked for.
    fresh: VecDeque<Asker>,
    /// What it has done last in this turn.
    stretch: Stretch,
    /// Polls that have returned.
    round: u64,
    /// Of loops that send in the next round: what they have read in the one before.
    before: Vec<ExchangeId>,
    /// How often answers went on in a later round than that in which they were read, rather than in the same.
    lateness: i8,
    /// Exchanges whose answers it has read before in this iteration, and that no client got.
    left: Vec<ExchangeId>,
    /// When the turn began, and whether the next one begins when it is woken.
    turn_ns: u64,
    waits: bool,
}

/// How often a loop has to send a round later, rather than at once, to be taken for one that does; and the
/// most that is counted either way.
const LATE: i8 = 4;
const LATENESS_MAX: i8 = 8;

impl Thread {
    fn is_late(&self) -> bool {
        self.lateness >= LATE
    }

    /// An answer went on that was read in this round; or surely in one before.
    fn learn(&mut self, is_late: bool) {
        let step = if is_late { 1 } else { -1 };
        self.lateness = (self.lateness + step).clamp(-LATENESS_MAX, LATENESS_MAX);
    }
}

impl EventLoops {
    /// What was decided since this was asked last.
    pub fn decisions(&mut self) -> std::vec::Drain<'_, Decision> {
        self.decisions.drain(..)
    }

    /// A connection was taken: the peer that speaks there asks.
    pub fn accepted(&mut self, at: At, socket: u64) {
        self.closed(at.process, socket);
        self.forget_if_too_much();
        let number = self.number();
        let question = Question::new(at, number, false);
        self.questions.insert(socket, question);
    }

    /// A connection is being opened, for what the thread works for.
    pub fn opens(&mut self, at: At, socket: u64) {
        if self.polls(at.process) {
            let last = self.threads.get(&at.thread).and_then(|thread| thread.last);
            let opener = last.filter(|asker| self.is_open(*asker));
            self.pools.opens(at.process, socket, opener.map(|asker| asker.number));
            if let Some(thread) = self.threads.get_mut(&at.thread) {
                thread.fresh.retain(|fresh| Some(*fresh) != opener);
            }
        }
    }

    /// A socket is gone.
    pub fn closed(&mut self, process: u32, socket: u64) {
        if self.asked.contains_key(&socket) {
            self.pools.closed(process, socket);
        }
        self.tested.remove(&socket);
        self.close_question(socket);
        self.questions.remove(&socket);
        if let Some(id) = self.asked.remove(&socket)
            && self.exchanges.get(&id).is_some_and(|exchange| !exchange.is_answered)
        {
            self.decide(id, None, How::Last);
        }
    }

    /// A thread waits for what comes next: the turn is over.
    pub fn waits(&mut self, At { process, thread, .. }: At) {
        self.explain(thread);
        self.turn_of_pools(process);
        let Some(thread) = self.threads.get_mut(&thread) else { return };
        thread.last = None;
        thread.fresh.clear();
        thread.waits = true;
        let mut left = std::mem::take(&mut thread.left);
        left.append(&mut thread.stretch.ins);
        left.into_iter().for_each(|id| self.decide(id, None, How::Last));
    }

    fn turn_of_pools(&mut self, process: u32) {
        self.processes.entry(process).or_default().has_polled = true;
        self.pools.waits(process);
    }

    /// Whether it is an event loop, as far as is known.
    fn polls(&self, process: u32) -> bool {
        self.processes.get(&process).is_some_and(|process| process.has_polled)
    }

    /// Which client got which answer, when a stretch is over.
    fn explain(&mut self, number: u32) {
        let Some(thread) = self.threads.get_mut(&number) else { return };
        let mut ins = std::mem::take(&mut thread.before);
        let outs = std::mem::take(&mut thread.stretch.outs);
        if !thread.is_late() {
            ins.append(&mut thread.stretch.ins);
        }
        let mut left = std::mem::take(&mut thread.left);
        let may_be = |id: &ExchangeId| outs.iter().any(|out| self.may_be(*id, out));
        let candidates: Vec<_> = ins.iter().copied().filter(may_be).collect();
        let mut pairs = self.in_order(&candidates, &outs);
        for out in outs.iter().rev() {
            if pairs.iter().all(|(_, socket)| *socket != out.socket)
                && let Some(place) = left.iter().rposition(|id| self.may_be(*id, out))
            {
                pairs.push((left.remove(place), out.socket));
            }
        }
        for (id, socket) in pairs {
            self.decide(id, Some(socket), How::Confirmed);
        }
        left.extend(ins);
        left.retain(|id| self.exchanges.contains_key(id));
        let too_many = left.len().saturating_sub(TURN_MAX);
        left.drain(..too_many).for_each(|id| self.decide(id, None, How::Last));
        self.threads.entry(number).or_default().left = left;
    }

    /// Those that were answered with what was read, in the same order. If they are fewer, they got what
    /// was read last: what is not passed on is rather what is gathered.
    fn in_order(&self, ins: &[ExchangeId], outs: &[Out]) -> Vec<(ExchangeId, u64)> {
        let mut pairs = Vec::new();
        let (mut from, mut until) = (0, ins.len());
        if outs.len() > ins.len() {
            for out in outs {
                if let Some(place) = ins[from..].iter().position(|id| self.may_be(*id, out)) {
                    pairs.push((ins[from + place], out.socket));
                    from += place + 1;
                }
            }
        } else {
            for out in outs.iter().rev() {
                if let Some(place) = ins[..until].iter().rposition(|id| self.may_be(*id, out)) {
                    pairs.push((ins[place], out.socket));
                    until = place;
                }
            }
        }
        pairs
    }

    /// Whether a client may have been answered by an exchange: one that began after the question, and
    /// seems to be for none. One for another client that still waits may have been taken for that.
    fn may_be(&self, id: ExchangeId, out: &Out) -> bool {
        let Some(exchange) = self.exchanges.get(&id) else { return false };
        let is_free = match exchange.for_whom {
            None => true,
            Some(asker) => out.is_left_over && self.is_open(asker),
        };
        is_free && exchange.sent_ns > out.read_ns
    }

    /// It is notified, by another thread of its process or by a timer, that there is something else to
    /// be done.
    pub fn reported(&mut self, thread: u32) {
        if let Some(thread) = self.threads.get_mut(&thread) {
            thread.last = None;
        }
    }

    /// It has looked what there is, and would not have waited: a loop that has more to do.
    pub fn looked(&mut self, At { process, thread, .. }: At) {
        self.turn_of_pools(process);
        if let Some(thread) = self.threads.get_mut(&thread) {
            thread.polls += 1;
        }
    }

    /// It has waited, or looked.
    pub fn polled(&mut self, at: At) {
        self.turn_of_pools(at.process);
        let Some(thread) = self.threads.get_mut(&at.thread) else { return };
        thread.round += 1;
        thread.polls += 1;
        if std::mem::take(&mut thread.waits) {
            thread.turn_ns = at.ns;
        }
        if thread.is_late() {
            self.explain(at.thread);
            let thread = self.threads.entry(at.thread).or_default();
            thread.before = std::mem::take(&mut thread.stretch.ins);
        }
    }

    /// Bytes were read.
    pub fn read(&mut self, at: At, socket: u64) {
        match self.asked.get(&socket) {
            Some(id) => self.read_answer(at, socket, *id),
            None => self.read_question(at, socket),
        }
    }

    /// A thread has tried to read where there was nothing: client libraries test that way whether a connection is still
    /// there before they use it again, in the thread that wants to ask.
    pub fn tests(&mut self, at: At, socket: u64) {
        let Some(thread) = self.threads.get(&at.thread).filter(|of| of.open_questions == 1) else {
            return;
        };
        if let Some(asker) = thread.last.filter(|asker| self.is_open(*asker))
            && self.is_idle(socket)
        {
            self.tested.insert(socket, asker);
        }
    }

    /// Whether it is a connection on which the process has asked, and everything is answered.
    fn is_idle(&self, socket: u64) -> bool {
        let id = self.asked.get(&socket);
        id.is_some_and(|id| self.exchanges.get(id).is_none_or(|exchange| exchange.is_answered))
    }

    fn read_answer(&mut self, at: At, socket: u64, id: ExchangeId) {
        let thread = self.threads.entry(at.thread).or_default();
        let Some(exchange) = self.exchanges.get_mut(&id) else {
            thread.last = None;
            return;
        };
        if !std::mem::replace(&mut exchange.is_answered, true) {
            let asker = exchange.for_whom.map(|asker| asker.number);
            self.pools.answered(at.process, socket, asker);
        }
        thread.last = exchange.for_whom;
        thread.last_poll = thread.polls;
        thread.last_likely = certainty(How::Last, exchange.setting).likely();
        let known = [&thread.left, &thread.before, &thread.stretch.ins];
        if known.iter().any(|ids| ids.contains(&id)) {
            return;
        }
        exchange.round = thread.round;
        if thread.is_late() {
            if thread.stretch.ins.len() == TURN_MAX {
                self.decide(id, None, How::Last);
                return;
            }
        } else if !thread.stretch.outs.is_empty() || thread.stretch.ins.len() == TURN_MAX {
            self.explain(at.thread);
        }
        self.threads.entry(at.thread).or_default().stretch.ins.push(id);
    }

    fn read_question(&mut self, at: At, socket: u64) {
        if self.questions.get(&socket).is_none_or(|question| !question.is_open) {
            self.forget_if_too_much();
            let number = self.number();
            let mut question = Question::new(at, number, true);
            let process = self.processes.entry(at.process).or_default();
            question.doubt_before = process.doubt;
            self.questions.insert(socket, question);
            let thread = self.threads.entry(at.thread).or_default();
            process.open_questions += 1;
            thread.open_questions += 1;
            process.was_asked += 1;
            process.has_loop |= thread.open_questions > 1;
            if thread.open_questions > 1 && !std::mem::replace(&mut thread.is_loop, true) {
                process.loops += 1;
            }
            self.pools.question(at.process, number, socket);
            thread.fresh.push_back(Asker { socket, number });
            if thread.fresh.len() > TURN_MAX {
                thread.fresh.pop_front();
            }
        }
        let number = self.questions[&socket].number;
        let thread = self.threads.entry(at.thread).or_default();
        thread.last = Some(Asker { socket, number });
        thread.last_poll = thread.polls;
        thread.last_likely = CERTAIN;
    }

    /// Bytes were sent.
    pub fn sent(&mut self, at: At, (socket, remote): (u64, u64)) -> Sent {
        if let Some(question) = self.questions.get(&socket) {
            let thread = self.threads.entry(at.thread).or_default();
            thread.last = None;
            let goes_on = |(by, ns)| by == at.thread && ns >= thread.turn_ns;
            if question.answered.is_some_and(goes_on) {
                return Sent::AnswerGoesOn;
            }
            return Sent::AsSeen(self.answer(at, socket));
        }
        match self.asked.get(&socket).and_then(|id| Some((*id, self.exchanges.get(id)?))) {
            Some((id, exchange)) if !exchange.is_answered => match exchange.for_whom {
                Some(asker) if let Some(certainty) = exchange.known => {
                    Sent::For(asker.socket, certainty)
                }
                _ if exchange.is_in_doubt => Sent::InDoubt(id),
                _ => Sent::AsSeen(certainty(How::Last, exchange.setting)),
            },
            _ => self.ask(at, (socket, remote)),
        }
    }

    /// A new exchange: its attribution is in doubt if there are several questions that it may be for.
    fn ask(&mut self, at: At, (socket, remote): (u64, u64)) -> Sent {
        self.forget_if_too_much();
        let id = self.number();
        self.asked.insert(socket, id);
        let thread = self.threads.entry(at.thread).or_default();
        let Some(process) = self.processes.get_mut(&at.process) else {
            return Sent::AsSeen(Certainty::Seen);
        };
        process.has_asked += 1;
        let setting = Setting {
            candidates: u32::try_from(process.open_questions).unwrap_or(u32::MAX),
            is_prompt: thread.last.is_some() && thread.last_poll == thread.polls,
            asks_once: process.has_asked <= process.was_asked + process.was_asked / 4,
            is_shared: process.loops > 1,
            base: thread.last_likely,
        };
        if !process.has_loop {
            let is_handed = thread.open_questions == 0;
            let last = thread.last.map(|asker| asker.number).filter(|_| !is_handed);
            return match is_handed {
                true => self.ask_handed(id, at, (socket, remote), setting),
                // A thread that works for one question at a time.
                false => {
                    self.pools.asks(at.process, (socket, remote), last);
                    Sent::AsSeen(Certainty::Seen)
                }
            };
        }
        let is_in_doubt = setting.candidates > 1;
        let pooled = self.pools.asker(at.process, socket);
        // Of proxies, the way of the answer says more.
        let pooled = pooled.filter(|_| is_in_doubt && !process.is_proxy());
        let is_pooled = pooled.is_some();
        match pooled {
            Some((number, socket)) => {
                let asker = Asker { socket, number };
                thread.fresh.retain(|fresh| *fresh != asker);
                thread.last = Some(asker);
            }
            None => {
                // Of several questions that it has read, the last one need not be the one.
                thread.last = thread.last.filter(|_| thread.fresh.len() < 2);
                thread.fresh.pop_front();
            }
        }
        let last = thread.last;
        let question = last.and_then(|asker| self.open_question(asker));
        let for_whom = last.filter(|_| question.is_some());
        if let Some(question) = question {
            question.exchanges.push(id);
        }
        let (sent_ns, is_answered, round) = (at.ns, false, 0);
        let likely = certainty(if is_pooled { How::Pooled } else { How::Last }, setting);
        let known = Some(likely).filter(|_| is_pooled);
        let exchange =
            Exchange { sent_ns, for_whom, is_answered, round, is_in_doubt, known, setting };
        self.exchanges.insert(id, exchange);
        self.pools.asks(at.process, (socket, remote), for_whom.map(|asker| asker.number));
        if let Some(process) = self.processes.get_mut(&at.process) {
            process.doubt.add(likely);
        }
        match for_whom {
            Some(asker) if is_pooled => Sent::For(asker.socket, likely),
            _ if is_in_doubt => Sent::InDoubt(id),
            _ => Sent::AsSeen(likely),
        }
    }

    /// A thread that has read no question asks for another one that has: for that of the thread that has tested the
    /// connection, or for the question that has waited longest.
    fn ask_handed(
        &mut self,
        id: ExchangeId,
        at: At,
        (socket, remote): (u64, u64),
        setting: Setting,
    ) -> Sent {
        let tester = self.tested.remove(&socket).filter(|asker| self.is_open(*asker));
        let likely = match tester {
            Some(_) => Certainty::Seen,
            None => handed(setting.candidates),
        };
        if let Some(process) = self.processes.get_mut(&at.process) {
            process.doubt.add(likely);
        }
        let for_whom = self.pools.handed(at.process, socket, tester);
        self.pools.asks(at.process, (socket, remote), for_whom.map(|(number, _)| number));
        let Some((number, for_socket)) = for_whom else { return Sent::AsSeen(likely) };
        let asker = Asker { socket: for_socket, number };
        let exchange = Exchange {
            sent_ns: at.ns,
            for_whom: Some(asker),
            is_answered: false,
            round: 0,
            is_in_doubt: false,
            known: Some(likely),
            setting,
        };
        self.exchanges.insert(id, exchange);
        Sent::For(for_socket, likely)
    }

    /// A client is answered. How certain it is that nothing for its question was taken for another's.
    fn answer(&mut self, at: At, socket: u64) -> Certainty {
        let thread = self.threads.entry(at.thread).or_default();
        let Some(question) = self.questions.get(&socket).filter(|question| question.is_open) else {
            return Certainty::Seen;
        };
        let doubt = self.processes.get(&at.process).map_or(Certainty::Seen, |process| {
            process.doubt.since(question.doubt_before, process.open_questions)
        });
        let asker = Asker { socket, number: question.number };
        thread.fresh.retain(|fresh| *fresh != asker);
        let exchanges = &self.exchanges;
        let is_for_it = |id: &mut ExchangeId| {
            exchanges.get(id).is_some_and(|found| found.for_whom == Some(asker))
        };
        let mut confirmed: Vec<_> = thread.stretch.ins.extract_if(.., is_for_it).collect();
        confirmed.extend(thread.before.extract_if(.., is_for_it));
        confirmed.extend(thread.left.extract_if(.., is_for_it));
        let read = match confirmed.is_empty() {
            true => [&thread.before[..], &thread.stretch.ins].concat(),
            false => confirmed.clone(),
        };
        let mut rounds = read.iter().filter_map(|id| Some(exchanges.get(id)?.round));
        if let Some(first) = rounds.next() {
            let is_late = first < thread.round;
            // Otherwise it is not seen which of the two it was.
            if rounds.all(|round| (round < thread.round) == is_late) {
                thread.learn(is_late);
            }
        }
        if confirmed.is_empty() && thread.stretch.outs.len() < TURN_MAX {
            let is_left_over = question.at.ns < thread.turn_ns
                && question.exchanges.is_empty()
                && !question.was_asked_for;
            thread.stretch.outs.push(Out { socket, read_ns: question.at.ns, is_left_over });
        }
        confirmed.into_iter().for_each(|id| self.decide(id, None, How::Confirmed));
        if let Some(question) = self.questions.get_mut(&socket) {
            question.answered = Some((at.thread, at.ns));
        }
        // What is not answered yet cannot have been for it.
        for id in self.close_question(socket) {
            if let Some(exchange) = self.exchanges.get_mut(&id)
                && !exchange.is_answered
            {
                exchange.for_whom = None;
            }
        }
        doubt
    }

    fn is_open(&self, asker: Asker) -> bool {
        self.questions.get(&asker.socket).is_some_and(|question| question.is_open_as(asker))
    }

    fn open_question(&mut self, asker: Asker) -> Option<&mut Question> {
        self.questions.get_mut(&asker.socket).filter(|question| question.is_open_as(asker))
    }

    /// It is answered, or its client waits no longer. Returns the exchanges for it.
    fn close_question(&mut self, socket: u64) -> Vec<ExchangeId> {
        let Some(question) = self.questions.get_mut(&socket) else { return Vec::new() };
        if std::mem::take(&mut question.is_open) {
            if let Some(process) = self.processes.get_mut(&question.at.process) {
                process.open_questions = process.open_questions.saturating_sub(1);
            }
            let (process, number) = (question.at.process, question.number);
            if let Some((connection, number, socket)) = self.pools.over(process, number) {
                let exchange = self.asked.get(&connection);
                if let Some(exchange) = exchange.and_then(|id| self.exchanges.get_mut(id)) {
                    exchange.for_whom = Some(Asker { socket, number });
                }
            }
            if let Some(thread) = self.threads.get_mut(&question.at.thread) {
                thread.open_questions = thread.open_questions.saturating_sub(1);
            }
        }
        std::mem::take(&mut question.exchanges)
    }

    /// Events that wait for a decision need not any longer.
    pub fn decide(&mut self, id: ExchangeId, for_whom: Option<u64>, how: How) {
        let Some(exchange) = self.exchanges.remove(&id) else { return };
        if let Some(question) = exchange.for_whom.and_then(|asker| self.open_question(asker)) {
            question.exchanges.retain(|other| *other != id);
            question.was_asked_for |= for_whom.is_none();
        }
        // Nothing waits for what is known already.
        if exchange.known.is_none() {
            self.decisions.push((id, for_whom, certainty(how, exchange.setting)));
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A hostile trace may open what it never closes.
    fn forget_if_too_much(&mut self) {
        let known = [
            self.questions.len(),
            self.asked.len(),
            self.tested.len(),
            self.exchanges.len(),
            self.processes.len(),
            self.threads.len(),
        ];
        if known.into_iter().any(|known| known > KNOWN_MAX) {
            let numbers = self.numbers;
            let mut decisions = std::mem::take(&mut self.decisions);
            let undecided = self.exchanges.iter();
            decisions
                .extend(undecided.map(|(id, of)| (*id, None, certainty(How::Last, of.setting))));
            *self = EventLoops { numbers, decisions, ..EventLoops::default() };
        }
    }
}

mod named;

#[cfg(test)]
mod tests;
