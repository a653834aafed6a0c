//! Whose question a task works for, where the kernel's programs have read which task a thread runs.
//!
//! A goroutine works for the question that it has read itself, or that the one worked for which has made it:
//! as long as that is not answered, nothing else changes it. Others live longer than a request (the two
//! loops of a connection, workers of a pool). A task works for the task that has woken it last, by a channel or a
//! condition. So every question that a task asks is for one that is known, and nothing has to wait until later
//! events say so.
//!
//! What is not seen is an item that a task takes from a channel that was not empty. A task that has passed on
//! what it had been given, and asks again without having been given anything, is in doubt.
//!
//! A connection that was opened for a question may be given to another one before anything was asked there, and the
//! loop that writes works for its maker until it waits for the first time. So what such a loop asks first waits for its
//! answer: the task that reads that wakes the one that has asked ([`opened`](super::opened)).
//!
//! Of some runtimes it is not known who has made a task (the JVM's virtual threads, Go before 1.21). Then what a
//! task asks that has read no question is for one of those that are open: executors run what they are given in
//! order, so it is the oldest for which not as much was asked yet as for others ([`orphans`](super::orphans)).

use rustc_hash::FxHashMap;

use fettle_requests::Certainty;

use super::asker::Asker;
use super::certain::handed;
use super::event_loops::{Decision, ExchangeId};
use super::multiplexed::{self, Multiplexed};
use super::opened::{Opened, TaskId};
use super::orphans::Orphans;

/// The number of the task that has made another where a runtime does not say it.
const UNKNOWN: u64 = u64::MAX;

/// What a task has to do with questions.
#[derive(Clone, Copy, Debug, Default)]
struct Task {
    /// What it has read, or was made for.
    own: Option<Asker>,
    /// The task that has made it, while it is not known what that worked for.
    maker: Option<u64>,
    /// It has read that itself, and works for it until it reads another.
    is_reader: bool,
    /// What it was given last by another one.
    given: Option<Asker>,
    /// It has outlived what it was made for, and worked for something else.
    is_pooled: bool,
    /// What it has asked was answered to another task: one of two loops of a connection, which may be used for
    /// others before what it was made for is answered.
    is_writer: bool,
    /// It has passed on what it was given.
    is_spent: bool,
    /// Its runtime does not say who has made it.
    is_orphan: bool,
    /// What it works for was chosen, so certainly.
    chosen: Option<Certainty>,
}

/// A socket of a process with tasks.
#[derive(Clone, Copy, Debug)]
enum Socket {
    /// Others ask there: the number of the last question, whether it is not answered yet, and whether any was.
    Served { number: u64, is_open: bool, is_answered: bool },
    /// The process asks there, for this question, and whether that was answered.
    Asked { asker: Option<Asker>, by: Option<TaskId>, is_answered: bool, certainty: Certainty },
}

/// Tasks and sockets that are remembered; beyond, all is forgotten.
const KNOWN_MAX: usize = 1 << 18;

/// Makers of makers that are asked what they worked for.
const MAKERS_MAX: u32 = 8;

/// What is known of all processes with tasks.
#[derive(Default)]
pub(super) struct Tasks {
    /// The task that each thread runs.
    running: FxHashMap<u32, TaskId>,
    /// Processes that were seen to have tasks, and how many questions are open there.
    processes: FxHashMap<u32, u32>,
    /// Those of them whose runtime does not say who has made a task.
    orphans: FxHashMap<u32, Orphans>,
    tasks: FxHashMap<TaskId, Task>,
    sockets: FxHashMap<u64, Socket>,
    /// The first exchanges of connections.
    opened: Opened,
    /// Connections that carry many questions at once.
    multiplexed: Multiplexed,
    numbers: u64,
}

/// The question for which bytes are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// A question's answer begins, as any schema sees it. It may lack something that was chosen for others.
    Answer(Certainty),
    /// The answer on this socket goes on, or a question is asked for the one on that socket.
    For(u64, Certainty),
    /// They are of an exchange that waits for its decision.
    InDoubt(ExchangeId),
    /// For no question.
    Nobody,
}

/// A message of a connection that carries many questions at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub socket: u64,
    /// What its question and its answer have in common, of this process.
    pub id: u64,
    /// It is a question.
    pub asks: bool,
    pub is_sent: bool,
    pub ns: u64,
}

/// What is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Followed {
    /// Its id says all: it has come from elsewhere, or goes on.
    Passing,
    /// A question that begins here; it waits for its answer.
    InDoubt(ExchangeId),
    /// An answer to one that began here.
    Home,
}

impl Tasks {
    /// Whether a process is known to have tasks.
    pub fn has(&self, process: u32) -> bool {
        self.processes.contains_key(&process)
    }

    /// From here on a thread runs a task, which was made by another.
    pub fn runs(&mut self, (process, thread): (u32, u32), task: u64, parent: u64) {
        self.forget_if_too_much();
        if task == 0 {
            self.running.remove(&thread);
            return;
        }
        self.processes.entry(process).or_default();
        self.running.insert(thread, (process, task));
        self.meet(process, task, parent);
    }

    /// A task that may be new: then it works for what the one worked for that has made it.
    fn meet(&mut self, process: u32, task: u64, parent: u64) {
        if self.tasks.contains_key(&(process, task)) {
            return;
        }
        let maker = Some(parent).filter(|parent| *parent != 0 && *parent != UNKNOWN);
        let is_orphan = parent == UNKNOWN;
        if is_orphan {
            self.orphans.entry(process).or_default();
        }
        // What takes questions from a queue, and makes a task for each, works for the next one then.
        let taken = maker.and_then(|maker| self.multiplexed.made_for((process, maker)));
        if let Some((asker, waiting)) = taken {
            let chosen = (waiting > 1).then(|| handed(waiting as u32));
            let made = Task { own: Some(asker), chosen, ..Task::default() };
            self.tasks.insert((process, task), made);
            return;
        }
        self.tasks.insert((process, task), Task { maker, is_orphan, ..Task::default() });
        self.resolve((process, task), MAKERS_MAX, true);
    }

    /// Finds out what a task was made for, once the one that has made it was seen: a goroutine that only makes
    /// another one may be seen for the first time after that.
    fn resolve(&mut self, id: TaskId, most: u32, is_new: bool) {
        let Some(maker) = self.tasks.get(&id).and_then(|task| task.maker) else { return };
        let maker = (id.0, maker);
        if most == 0 || !self.tasks.contains_key(&maker) {
            return;
        }
        self.resolve(maker, most - 1, false);
        let own = self.works_for(maker);
        let is_known = self.tasks.get(&maker).is_some_and(|maker| maker.maker.is_none());
        if let Some(task) = self.tasks.get_mut(&id).filter(|_| is_known) {
            task.maker = None;
            // What is found out later may be another one's by then: the loops of a connection that was opened
            // for this request and is used by the next.
            match is_new {
                true => task.own = own,
                false => task.given = task.given.or(own),
            }
        }
    }

    /// A task makes another one go on; `gives` says that the other one gets something by that.
    pub fn wakes(
        &mut self,
        process: u32,
        (task, parent): (u64, u64),
        (target, target_parent): (u64, u64),
        gives: bool,
    ) {
        self.processes.entry(process).or_default();
        self.forget_if_too_much();
        self.meet(process, task, parent);
        self.meet(process, target, target_parent);
        self.resolve((process, task), MAKERS_MAX, false);
        self.resolve((process, target), MAKERS_MAX, false);
        let (from, to) = if gives { (task, target) } else { (target, task) };
        let of_target = self.works_for((process, to));
        if gives {
            self.multiplexed.woke((process, from), (process, to), of_target);
        }
        if let Some((of, socket)) = self.opened.woke((process, from), of_target)
            && let Some(Socket::Asked { asker, .. }) = self.sockets.get_mut(&socket)
        {
            *asker = Some(of);
            if let Some(from) = self.tasks.get_mut(&(process, from)) {
                from.given = Some(of);
            }
        }
        let what = self.works_for((process, from));
        if let Some(from) = self.tasks.get_mut(&(process, from)) {
            // It has notified the task for which it works that all, or a part, of that is done.
            from.is_spent |= what.is_some() && what == of_target;
        }
        let open = self.open_own((process, to));
        let Some(to) = self.tasks.get_mut(&(process, to)) else { return };
        let is_for_another = to.is_writer && what.is_some();
        if open.is_some() && !to.is_pooled && !is_for_another {
            return;
        }
        to.is_pooled |= what.is_some();
        to.is_spent = false;
        to.given = what;
    }

    /// A task goes on that another has resumed by itself, as coroutines do: it has made it just now, or lets go of a lock
    /// for which that has waited. What works for a question that it has read itself makes others for that. What others
    /// resume stays what it is; if it is new, it is not known what it was made for.
    pub fn resumed(&mut self, process: u32, task: u64, by: u64) {
        self.processes.entry(process).or_default();
        self.forget_if_too_much();
        self.meet(process, task, UNKNOWN);
        let (id, by) = ((process, task), (process, by));
        let made_for = self.open_own(by).filter(|own| self.works_for(by) == Some(*own));
        if made_for.is_none() || self.works_for(id).is_some() {
            return;
        }
        let Some(task) = self.tasks.get_mut(&id) else { return };
        (task.given, task.is_pooled, task.is_spent, task.chosen) = (made_for, true, false, None);
    }

    /// How many questions of a process are open.
    fn candidates(&self, process: u32) -> u32 {
        self.processes.get(&process).copied().unwrap_or_default()
    }

    /// What a task has read, or was made for and is not answered.
    fn open_own(&self, id: TaskId) -> Option<Asker> {
        let task = self.tasks.get(&id)?;
        task.own.filter(|asker| self.is_open(*asker) || task.is_reader && self.is_last(*asker))
    }

    /// Whether nothing was asked on that connection since.
    fn is_last(&self, asker: Asker) -> bool {
        let found = self.sockets.get(&asker.socket);
        matches!(found, Some(Socket::Served { number, .. }) if *number == asker.number)
    }

    /// The question that a task works for.
    fn works_for(&self, id: TaskId) -> Option<Asker> {
        let task = self.tasks.get(&id)?;
        if let Some((asker, _)) = self.multiplexed.works_for(id) {
            return Some(asker);
        }
        let own = self.open_own(id).filter(|_| !task.is_pooled);
        own.or(task.given.filter(|asker| self.is_open(*asker)))
    }

    fn is_open(&self, asker: Asker) -> bool {
        let found = self.sockets.get(&asker.socket);
        matches!(found, Some(Socket::Served { number, is_open: true, .. }) if *number == asker.number)
    }

    /// A connection was taken: the peer that speaks there asks.
    pub fn accepted(&mut self, process: u32, socket: u64) {
        self.closed(process, socket);
        self.sockets
            .insert(socket, Socket::Served { number: 0, is_open: false, is_answered: false });
    }

    /// A socket is gone.
    pub fn closed(&mut self, process: u32, socket: u64) {
        self.opened.closed(socket);
        self.multiplexed.closed(socket);
        if let Some(Socket::Served { is_open: true, number, .. }) = self.sockets.remove(&socket) {
            self.count(process, -1);
            if let Some(orphans) = self.orphans.get_mut(&process) {
                orphans.gone(Asker { socket, number });
            }
        }
    }

    fn count(&mut self, process: u32, by: i32) {
        let open = self.processes.entry(process).or_default();
        *open = open.saturating_add_signed(by);
    }

    /// Bytes were read.
    pub fn read(&mut self, (process, thread): (u32, u32), socket: u64) {
        let id = self.running.get(&thread).copied();
        match self.sockets.get_mut(&socket) {
            Some(Socket::Asked { asker, by, is_answered, .. }) => {
                *is_answered = true;
                let (asker, by) = (*asker, *by);
                if let Some(writer) = by.filter(|by| Some(*by) != id)
                    && let Some(writer) = self.tasks.get_mut(&writer)
                {
                    writer.is_writer |= !writer.is_reader;
                }
                self.opened.read(socket, id.filter(|id| Some(*id) != by));
                let Some(task) = id.and_then(|id| self.tasks.get_mut(&id)) else { return };
                (task.given, task.is_spent) = (asker, false);
                // A task that reads what it has asked for itself stays what it is.
                task.is_pooled |= asker.is_some() && task.own != asker;
            }
            Some(Socket::Served { is_open: true, number, .. }) => {
                let number = *number;
                self.own(id, Asker { socket, number });
            }
            _ => {
                self.forget_if_too_much();
                self.numbers += 1;
                let number = self.numbers;
                let served = Socket::Served { number, is_open: true, is_answered: false };
                self.sockets.insert(socket, served);
                self.count(process, 1);
                let asker = Asker { socket, number };
                if let Some(orphans) = self.orphans.get_mut(&process) {
                    orphans.read(asker, thread);
                }
                self.own(id, asker);
            }
        }
    }

    fn own(&mut self, id: Option<TaskId>, asker: Asker) {
        let Some(id) = id else { return };
        let task = self.tasks.entry(id).or_default();
        let is_orphan = task.is_orphan;
        *task = Task { own: Some(asker), is_reader: true, is_orphan, ..Task::default() };
    }

    /// Bytes were sent.
    pub fn sent(&mut self, (process, thread): (u32, u32), socket: u64) -> Sent {
        match self.sockets.get_mut(&socket) {
            Some(Socket::Served { number, is_open, is_answered }) => {
                let asker = Asker { socket, number: *number };
                let goes_on = std::mem::replace(is_answered, true) && !*is_open;
                let mut doubt = Certainty::Seen;
                if std::mem::take(is_open) {
                    let candidates = self.candidates(process);
                    if let Some(orphans) = self.orphans.get_mut(&process) {
                        doubt = orphans.answered(asker, candidates);
                    }
                    self.count(process, -1);
                }
                if goes_on { Sent::For(socket, Certainty::Seen) } else { Sent::Answer(doubt) }
            }
            Some(Socket::Asked { asker, is_answered: false, certainty, .. }) => match asker {
                Some(_) if let Some(exchange) = self.opened.exchange(socket) => {
                    Sent::InDoubt(exchange)
                }
                Some(asker) => Sent::For(asker.socket, *certainty),
                None => Sent::Nobody,
            },
            _ => self.ask(process, thread, socket),
        }
    }

    /// A new question of the process's.
    fn ask(&mut self, process: u32, thread: u32, socket: u64) -> Sent {
        self.forget_if_too_much();
        let id = self.running.get(&thread).copied();
        id.into_iter().for_each(|id| self.resolve(id, MAKERS_MAX, false));
        let asker = id.and_then(|id| self.works_for(id));
        let task = id.and_then(|id| self.tasks.get(&id)).copied().unwrap_or_default();
        let own = id.and_then(|id| self.open_own(id));
        // What runs no task is a thread of its own.
        let is_orphan = task.is_orphan || id.is_none();
        if let (None, true) = (asker, is_orphan) {
            return self.ask_for_some((process, thread), id, socket);
        }
        let candidates = self.candidates(process);
        let certainty = match asker {
            Some(asker) if task.is_spent && own != Some(asker) => handed(candidates),
            _ => task.chosen.unwrap_or(Certainty::Seen),
        };
        // A loop that was made with the connection, and has done nothing yet.
        let is_first =
            !self.sockets.contains_key(&socket) && !task.is_reader && task.given.is_none();
        match asker.filter(|_| is_first && certainty == Certainty::Seen && candidates > 1) {
            Some(asker) => {
                self.asked((socket, id), Some(asker), certainty);
                Sent::InDoubt(self.opened.asks(socket, asker, candidates))
            }
            None => self.asked((socket, id), asker, certainty),
        }
    }

    /// What has just been asked on a connection is for the open question on another socket, as its bytes say.
    /// Returns the socket of the question that it was taken for.
    pub fn named(&mut self, socket: u64, of: u64) -> Option<Option<u64>> {
        let Some(Socket::Served { number, is_open: true, .. }) = self.sockets.get(&of) else {
            return None;
        };
        let named = Asker { socket: of, number: *number };
        let Some(Socket::Asked { asker, certainty, .. }) = self.sockets.get_mut(&socket) else {
            return None;
        };
        let before = asker.replace(named);
        *certainty = Certainty::Seen;
        self.opened.named(socket, named);
        Some(before.map(|before| before.socket))
    }

    /// What was found out of first exchanges since this was asked last.
    pub fn decisions(&mut self) -> impl Iterator<Item = Decision> {
        self.opened.decisions().chain(self.multiplexed.decisions())
    }

    /// Events that wait for a decision need not any longer.
    pub fn give_up(&mut self, exchange: ExchangeId) {
        match multiplexed::is_one(exchange) {
            true => self.multiplexed.give_up(exchange),
            false => self.opened.give_up(exchange),
        }
    }

    /// Whether messages of this connection are followed one by one.
    pub fn is_multiplexed(&self, socket: u64) -> bool {
        self.multiplexed.has(socket)
    }

    /// A message was sent or received on a connection that carries many questions at once. Its id is the process's
    /// own: each process that a question goes through has another one for it. So a question is as one on a socket of that number.
    pub fn message(
        &mut self,
        (process, thread): (u32, u32),
        Message { socket, id, asks, is_sent, ns }: Message,
    ) -> Followed {
        let task = self.running.get(&thread).copied();
        if is_sent {
            self.multiplexed.writes(socket, task);
        }
        let served = match self.sockets.get(&id) {
            Some(Socket::Served { number, .. }) => Some(Asker { socket: id, number: *number }),
            _ => None,
        };
        match (asks, is_sent) {
            (true, false) => {
                self.forget_if_too_much();
                self.numbers += 1;
                let asker = Asker { socket: id, number: self.numbers };
                let open =
                    Socket::Served { number: asker.number, is_open: true, is_answered: false };
                if self.sockets.insert(id, open).is_none() {
                    self.count(process, 1);
                }
                self.multiplexed.serves(socket, asker, task);
                Followed::Passing
            }
            // It goes on to those who answer it.
            (true, true) if served.is_some() => Followed::Passing,
            (true, true) => {
                task.into_iter().for_each(|task| self.resolve(task, MAKERS_MAX, false));
                let sender = task.and_then(|task| self.works_for(task));
                let candidates = self.candidates(process);
                Followed::InDoubt(self.multiplexed.asks(id, sender, candidates))
            }
            (false, true) => {
                if let Some(asker) = served {
                    self.multiplexed.has_answered(socket, asker);
                    self.closed(process, id);
                }
                Followed::Passing
            }
            (false, false) => match self.multiplexed.answered(socket, id, task, ns) {
                true => Followed::Home,
                false => Followed::Passing,
            },
        }
    }

    fn asked(
        &mut self,
        (socket, by): (u64, Option<TaskId>),
        asker: Option<Asker>,
        certainty: Certainty,
    ) -> Sent {
        self.sockets.insert(socket, Socket::Asked { asker, by, is_answered: false, certainty });
        asker.map_or(Sent::Nobody, |asker| Sent::For(asker.socket, certainty))
    }

    /// A question of a task of which it is not known who has made it, for one of those that are open.
    fn ask_for_some(
        &mut self,
        (process, thread): (u32, u32),
        id: Option<TaskId>,
        socket: u64,
    ) -> Sent {
        let candidates = self.candidates(process);
        let chosen =
            self.orphans.get_mut(&process).and_then(|known| known.choose(thread, candidates));
        let Some((asker, certainty)) = chosen else {
            return self.asked((socket, id), None, Certainty::Seen);
        };
        if let Some(task) = id.and_then(|id| self.tasks.get_mut(&id)) {
            (task.own, task.chosen) = (Some(asker), Some(certainty));
        }
        self.asked((socket, id), Some(asker), certainty)
    }

    /// No event says when a task is over.
    fn forget_if_too_much(&mut self) {
        if self.tasks.len() > KNOWN_MAX {
            let running: std::collections::HashSet<TaskId> =
                self.running.values().copied().collect();
            let Tasks { tasks, sockets, .. } = self;
            let open = |asker: Option<Asker>| {
                asker.is_some_and(|asker| {
                    let found = sockets.get(&asker.socket);
                    matches!(found, Some(Socket::Served { number, is_open: true, .. })
                        if *number == asker.number)
                })
            };
            tasks.retain(|id, task| {
                task.is_pooled || running.contains(id) || open(task.own) || open(task.given)
            });
        }
        let known =
            [self.tasks.len(), self.sockets.len(), self.running.len(), self.processes.len()];
        if known.into_iter().any(|known| known > KNOWN_MAX) {
            let opened = std::mem::take(&mut self.opened).forgotten();
            let mut multiplexed = std::mem::take(&mut self.multiplexed);
            multiplexed.forget();
            *self = Tasks { numbers: self.numbers, opened, multiplexed, ..Tasks::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u32 = 1;
    /// Two threads that run tasks in turns.
    const A: (u32, u32) = (P, 10);
    const B: (u32, u32) = (P, 11);
    /// Sockets of clients, and of servers that are asked.
    const FIRST: u64 = 100;
    const SECOND: u64 = 101;
    const ASKED: u64 = 200;
    const ASKED_TOO: u64 = 201;

    fn is_for(socket: u64) -> Sent {
        Sent::For(socket, Certainty::Seen)
    }

    /// For whom something is that waits, if nothing more is found out.
    fn at_last(tasks: &mut Tasks, sent: Sent) -> Option<u64> {
        let Sent::InDoubt(exchange) = sent else { panic!("{sent:?}") };
        tasks.give_up(exchange);
        let decision = tasks.decisions().next()?;
        assert_eq!(decision.0, exchange);
        decision.1
    }

    /// Tasks 1 and 2 have read a question each.
    fn two_questions() -> Tasks {
        let mut tasks = Tasks::default();
        for (task, socket) in [(1, FIRST), (2, SECOND)] {
            tasks.accepted(P, socket);
            tasks.runs(A, task, 0);
            tasks.read(A, socket);
        }
        tasks
    }

    #[test]
    fn what_a_task_has_made_works_for_its_question() {
        let mut tasks = two_questions();
        // The thread has run the second one last, and the child of the first one asks.
        tasks.runs(A, 3, 1);
        let sent = tasks.sent(A, ASKED);
        assert_eq!(at_last(&mut tasks, sent), Some(FIRST));
        tasks.runs(B, 4, 2);
        let sent = tasks.sent(B, ASKED_TOO);
        assert_eq!(at_last(&mut tasks, sent), Some(SECOND));
        tasks.runs(B, 1, 0);
        assert_eq!(tasks.sent(B, FIRST), Sent::Answer(Certainty::Seen));
        assert_eq!(tasks.sent(B, FIRST), is_for(FIRST), "the answer goes on");
        // What outlives its question works for none.
        tasks.read(A, ASKED);
        tasks.runs(A, 3, 1);
        assert_eq!(tasks.sent(A, ASKED), Sent::Nobody);
    }

    #[test]
    fn the_loops_of_a_connection_work_for_whoever_wakes_them() {
        let mut tasks = two_questions();
        // Loops 8 (reads) and 9 (writes), whose makers are not known.
        tasks.wakes(P, (1, 0), (9, 7), true);
        tasks.runs(B, 9, 7);
        assert_eq!(tasks.sent(B, ASKED), is_for(FIRST));
        assert_eq!(tasks.sent(B, ASKED), is_for(FIRST), "it goes on");
        tasks.runs(B, 8, 7);
        tasks.read(B, ASKED);
        // The answer wakes the task that has asked; it gives the connection to another, which changes
        // nothing for that.
        tasks.wakes(P, (8, 7), (1, 0), true);
        tasks.wakes(P, (8, 7), (2, 0), true);
        tasks.wakes(P, (2, 0), (9, 7), true);
        tasks.runs(B, 9, 7);
        assert_eq!(tasks.sent(B, ASKED), is_for(SECOND));
    }

    #[test]
    fn a_loop_that_writes_works_for_others_before_its_makers_question_is_answered() {
        let mut tasks = two_questions();
        // Tasks 8 (reads) and 9 (writes) were made for the first question, and are used for it once.
        tasks.runs(B, 8, 1);
        tasks.runs(B, 9, 1);
        let sent = tasks.sent(B, ASKED);
        assert_eq!(at_last(&mut tasks, sent), Some(FIRST));
        tasks.wakes(P, (2, 0), (9, 1), true);
        assert_eq!(tasks.sent(B, ASKED), is_for(FIRST), "what it works for goes on");
        tasks.runs(B, 8, 1);
        tasks.read(B, ASKED);
        tasks.wakes(P, (2, 0), (9, 1), true);
        tasks.runs(B, 9, 1);
        assert_eq!(tasks.sent(B, ASKED), is_for(SECOND));
        // One that reads itself what it has asked for is not given another question by what wakes it.
        tasks.runs(A, 5, 1);
        tasks.sent(A, ASKED_TOO);
        tasks.read(A, ASKED_TOO);
        tasks.wakes(P, (2, 0), (5, 1), true);
        assert_eq!(tasks.sent(A, ASKED_TOO), is_for(FIRST));
    }

    #[test]
    fn what_is_asked_first_on_a_connection_is_for_whom_the_answer_wakes() {
        let mut tasks = two_questions();
        // The connection with the loops 8 (reads) and 9 (writes) was opened for the first question.
        tasks.runs(B, 8, 1);
        tasks.runs(B, 9, 1);
        let Sent::InDoubt(exchange) = tasks.sent(B, ASKED) else { panic!() };
        assert_eq!(tasks.sent(B, ASKED), Sent::InDoubt(exchange), "it goes on");
        tasks.runs(B, 8, 1);
        tasks.read(B, ASKED);
        assert_eq!(tasks.decisions().count(), 0);
        tasks.wakes(P, (8, 1), (2, 0), true);
        let decisions: Vec<_> = tasks.decisions().collect();
        assert_eq!(decisions, [(exchange, Some(SECOND), Certainty::Seen)]);
        // What is never answered is for whom the connection was opened, which is a choice.
        tasks.runs(B, 9, 1);
        tasks.runs(A, 5, 1);
        let Sent::InDoubt(exchange) = tasks.sent(A, ASKED_TOO) else { panic!() };
        tasks.closed(P, ASKED_TOO);
        let (_, of, certainty) = tasks.decisions().find(|found| found.0 == exchange).unwrap();
        assert_eq!((of, certainty.candidates()), (Some(FIRST), 2));
    }

    #[test]
    fn what_the_bytes_say_decides() {
        let mut tasks = two_questions();
        tasks.runs(B, 8, 1);
        tasks.runs(B, 9, 1);
        let Sent::InDoubt(exchange) = tasks.sent(B, ASKED) else { panic!() };
        assert_eq!(tasks.named(ASKED, SECOND), Some(Some(FIRST)));
        let decisions: Vec<_> = tasks.decisions().collect();
        assert_eq!(decisions, [(exchange, Some(SECOND), Certainty::Seen)]);
        assert_eq!(tasks.sent(B, ASKED), is_for(SECOND));
        // It is no question, it is answered, or nothing was asked there.
        assert_eq!(tasks.named(ASKED, ASKED_TOO), None);
        assert_eq!(tasks.named(ASKED_TOO, SECOND), None);
        tasks.sent(A, SECOND);
        assert_eq!(tasks.named(ASKED, SECOND), None);
    }

    #[test]
    fn who_takes_from_a_full_channel_works_for_who_has_waited() {
        let mut tasks = two_questions();
        // Task 5 is a worker: it lets task 2 go on by taking what that had to give.
        tasks.wakes(P, (5, 0), (2, 0), false);
        tasks.runs(B, 5, 0);
        assert_eq!(tasks.sent(B, ASKED), is_for(SECOND));
        // It has passed it on, and takes something else from a channel that was not empty.
        tasks.wakes(P, (5, 0), (2, 0), true);
        let doubt = Certainty::Chosen { candidates: 2, likely: 0 };
        let Sent::For(SECOND, certainty) = tasks.sent(B, ASKED_TOO) else { panic!() };
        assert_eq!((certainty.name(), certainty.candidates()), (doubt.name(), 2));
        // With a single question there is no choice.
        tasks.runs(A, 1, 0);
        tasks.sent(A, FIRST);
        let Sent::For(SECOND, certainty) = tasks.sent(B, ASKED_TOO + 1) else { panic!() };
        assert_eq!(certainty, Certainty::OnlyCandidate);
    }

    #[test]
    fn what_has_read_a_question_makes_tasks_for_it_and_others_leave_a_doubt() {
        let mut tasks = Tasks::default();
        for (task, socket) in [(1, FIRST), (2, SECOND)] {
            tasks.accepted(P, socket);
            tasks.runs(A, task, UNKNOWN);
            tasks.read(A, socket);
        }
        for (task, by, of, asked) in [(3, 1, FIRST, ASKED), (4, 2, SECOND, ASKED_TOO)] {
            tasks.resumed(P, task, by);
            tasks.runs(A, task, UNKNOWN);
            assert_eq!(tasks.sent(A, asked), is_for(of));
        }
        // It is resumed again, which changes nothing.
        tasks.resumed(P, 3, 2);
        tasks.runs(A, 3, UNKNOWN);
        tasks.read(A, ASKED);
        assert_eq!(tasks.sent(A, ASKED), is_for(FIRST));
        // One that has waited for a lock, say, of which the third lets go.
        tasks.resumed(P, 5, 3);
        tasks.runs(A, 5, UNKNOWN);
        let Sent::For(_, certainty) = tasks.sent(A, ASKED + 5) else { panic!() };
        assert!(certainty.is_choice() && certainty.candidates() == 2, "{certainty:?}");
        // What is in doubt may be what the other one lacks.
        tasks.runs(A, 2, UNKNOWN);
        let Sent::Answer(doubt) = tasks.sent(A, SECOND) else { panic!() };
        assert!(doubt.is_choice(), "{doubt:?}");
        // The scheduler's fiber has no work to give.
        tasks.resumed(P, 6, 7);
        tasks.runs(A, 6, UNKNOWN);
        assert_eq!(tasks.works_for((P, 6)), None);
    }

    #[test]
    fn makers_may_be_seen_after_what_they_have_made() {
        let mut tasks = two_questions();
        // Task 5 opens a connection for task 4, which task 2 has made and which was not seen yet; task 6 writes.
        tasks.runs(B, 5, 4);
        tasks.runs(B, 6, 5);
        tasks.wakes(P, (5, 4), (4, 2), true);
        assert_eq!(tasks.sent(B, ASKED), is_for(SECOND));
    }

    #[test]
    fn what_nobody_ends_is_forgotten() {
        let mut tasks = two_questions();
        for n in 10..3 * KNOWN_MAX as u64 {
            tasks.runs(B, n, 1);
            tasks.sent(B, 1000 + n);
        }
        assert!(tasks.tasks.len() <= KNOWN_MAX + 2 && tasks.sockets.len() <= KNOWN_MAX + 2);
    }
}
