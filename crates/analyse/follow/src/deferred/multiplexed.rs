//! Connections that carry many questions at once, whose messages are known one by one: each has an id that its answer
//! repeats, through whichever servers the two go (NATS's places for answers).
//!
//! A loop writes what many tasks have to ask, so the task that sends says nothing. But another loop reads the answers, and
//! they are given out in the order in which they were read: by the loop itself, or by a task that it wakes for that. Each
//! wakes one that has waited, whose question is known. So what is asked waits for its answer, and the answers of a *batch* for
//! as many wake-ups. A task that did not wait yet is not woken: then a batch has fewer wake-ups than answers when the next one
//! begins, and who they are for is a choice.
//!
//! The same of a program that answers: the task that the loop wakes takes its questions in their order. It is done with one
//! when it wakes the loop that writes, or when that is seen to write the answer. One that never does so may make a task for
//! each of them.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use fettle_requests::Certainty;

use super::asker::Asker;
use super::certain::handed;
use super::event_loops::{Decision, ExchangeId};
use super::opened::TaskId;

/// What tells these exchanges' names from others.
const MULTIPLEXED: ExchangeId = 1 << 62;

/// Questions of a connection that are remembered.
const QUESTIONS_MAX: usize = 1 << 14;
/// Connections, and tasks that have to do with them.
const KNOWN_MAX: usize = 1 << 14;

/// Whether an exchange is one of these.
pub(super) fn is_one(exchange: ExchangeId) -> bool {
    exchange & MULTIPLEXED != 0 && !super::opened::is_one(exchange)
}

/// A question that this process asks, until it is known for whom.
struct Waiting {
    /// What the task works for that has sent it, one of so many.
    sender: Option<Asker>,
    candidates: u32,
}

/// A question that was read.
struct Served {
    asker: Asker,
    /// A task was made for it.
    is_taken: bool,
    /// Nothing more is asked for it.
    is_done: bool,
}

/// A connection.
#[derive(Default)]
struct Connection {
    /// The task that has written there last.
    writer: Option<TaskId>,
    /// Questions that are not answered, in their order.
    served: VecDeque<Served>,
    /// Answers that were read and not given out, in their order, and how many of these were read before the last read.
    batch: Vec<ExchangeId>,
    before: usize,
    read_ns: u64,
    /// For whom those worked that were woken since the batch began.
    woken: Vec<Asker>,
}

/// Those of all processes with tasks.
#[derive(Default)]
pub(super) struct Multiplexed {
    connections: FxHashMap<u64, Connection>,
    /// Tasks that read there, and those that give out what was read.
    readers: FxHashMap<TaskId, u64>,
    givers: FxHashMap<TaskId, u64>,
    /// Those of them that were seen to answer by themselves.
    answer: FxHashSet<TaskId>,
    /// The names that questions have until they are answered, by their ids.
    asked: FxHashMap<u64, ExchangeId>,
    waiting: FxHashMap<ExchangeId, Waiting>,
    decisions: Vec<Decision>,
    numbers: u64,
}

impl Multiplexed {
    /// Whether messages of this connection are followed one by one.
    pub fn has(&self, socket: u64) -> bool {
        self.connections.contains_key(&socket)
    }

    fn connection(&mut self, socket: u64) -> &mut Connection {
        let known = [self.connections.len(), self.readers.len(), self.givers.len()];
        if !self.has(socket) && known.into_iter().any(|known| known > KNOWN_MAX) {
            self.forget();
        }
        self.connections.entry(socket).or_default()
    }

    /// A task writes a message there.
    pub fn writes(&mut self, socket: u64, task: Option<TaskId>) {
        self.connection(socket).writer = task;
    }

    /// A question with this id is sent, by a task that works for this, one of so many.
    pub fn asks(&mut self, id: u64, sender: Option<Asker>, candidates: u32) -> ExchangeId {
        if self.asked.len() >= QUESTIONS_MAX {
            self.forget();
        }
        self.numbers += 1;
        let exchange = MULTIPLEXED | self.numbers;
        self.waiting.insert(exchange, Waiting { sender, candidates });
        if let Some(before) = self.asked.insert(id, exchange) {
            self.give_up(before);
        }
        exchange
    }

    /// The answer to it was read; `false` if no such question was asked.
    pub fn answered(&mut self, socket: u64, id: u64, task: Option<TaskId>, ns: u64) -> bool {
        let Some(exchange) = self.asked.remove(&id) else { return false };
        if let Some(task) = task {
            self.readers.insert(task, socket);
        }
        let connection = self.connection(socket);
        if connection.read_ns != ns {
            (connection.read_ns, connection.before) = (ns, connection.batch.len());
        }
        connection.batch.push(exchange);
        true
    }

    /// A question was read there.
    pub fn serves(&mut self, socket: u64, asker: Asker, task: Option<TaskId>) {
        if let Some(task) = task {
            self.readers.insert(task, socket);
        }
        let served = &mut self.connection(socket).served;
        if served.len() >= QUESTIONS_MAX {
            served.pop_front();
        }
        served.push_back(Served { asker, is_taken: false, is_done: false });
    }

    /// It was answered.
    pub fn has_answered(&mut self, socket: u64, asker: Asker) {
        if let Some(connection) = self.connections.get_mut(&socket) {
            connection.served.retain(|served| served.asker != asker);
        }
    }

    /// The question that a task works for which takes them in their order, and among how many that is.
    pub fn works_for(&self, task: TaskId) -> Option<(Asker, usize)> {
        let served = &self.connections.get(self.givers.get(&task)?)?.served;
        let mut open = served.iter().filter(|served| !served.is_done);
        let first = open.next()?;
        Some((first.asker, 1 + open.count()))
    }

    /// The question that a task works for which it has made, and among how many that is.
    pub fn made_for(&mut self, task: TaskId) -> Option<(Asker, usize)> {
        if self.answer.contains(&task) {
            return self.works_for(task).map(|(asker, _)| (asker, 1));
        }
        let served = &mut self.connections.get_mut(self.givers.get(&task)?)?.served;
        let mut open = served.iter_mut().filter(|served| !served.is_taken && !served.is_done);
        let first = open.next()?;
        first.is_taken = true;
        Some((first.asker, 1 + open.count()))
    }

    /// The task has the answer written.
    fn is_done(&mut self, task: TaskId) {
        self.answer.insert(task);
        let connection = self.givers.get(&task).and_then(|at| self.connections.get_mut(at));
        let open = connection.and_then(|of| of.served.iter_mut().find(|served| !served.is_done));
        if let Some(served) = open {
            served.is_done = true;
        }
    }

    /// A task wakes another one, which works for this.
    pub fn woke(&mut self, task: TaskId, other: TaskId, other_works_for: Option<Asker>) {
        let reads = self.readers.get(&task).copied();
        let gives = self.givers.get(&task).copied();
        if let Some(socket) = reads
            && (other_works_for.is_none() || self.givers.contains_key(&other))
        {
            self.givers.insert(other, socket);
            self.next_batch(socket);
            return;
        }
        let Some(socket) = reads.or(gives) else { return };
        let Some(connection) = self.connections.get_mut(&socket) else { return };
        if gives.is_some() && connection.writer == Some(other) {
            self.is_done(task);
            return;
        }
        let Some(of) = other_works_for.filter(|_| !connection.batch.is_empty()) else { return };
        connection.woken.push(of);
        if connection.woken.len() == connection.batch.len() {
            connection.before = 0;
            let all = std::mem::take(&mut connection.batch).into_iter();
            for (exchange, of) in all.zip(std::mem::take(&mut connection.woken)) {
                if self.waiting.remove(&exchange).is_some() {
                    self.decisions.push((exchange, Some(of.socket), Certainty::Seen));
                }
            }
        }
    }

    /// The task that gives out answers had nothing to do: it has given out all that was read before.
    fn next_batch(&mut self, socket: u64) {
        let Some(connection) = self.connections.get_mut(&socket) else { return };
        if connection.before == 0 {
            return;
        }
        let old: Vec<_> = connection.batch.drain(..connection.before).collect();
        connection.before = 0;
        connection.woken.clear();
        old.into_iter().for_each(|exchange| self.give_up(exchange));
    }

    /// Nothing more is known: it was for what its sender worked for, or not.
    pub fn give_up(&mut self, exchange: ExchangeId) {
        let Some(Waiting { sender, candidates }) = self.waiting.remove(&exchange) else { return };
        self.decisions.push((exchange, sender.map(|of| of.socket), handed(candidates)));
    }

    /// A connection is gone.
    pub fn closed(&mut self, socket: u64) {
        if let Some(connection) = self.connections.remove(&socket) {
            connection.batch.into_iter().for_each(|exchange| self.give_up(exchange));
            self.readers.retain(|_, of| *of != socket);
            self.givers.retain(|_, of| *of != socket);
            self.answer.retain(|task| self.givers.contains_key(task));
        }
    }

    /// What was found out since this was asked last.
    pub fn decisions(&mut self) -> std::vec::Drain<'_, Decision> {
        self.decisions.drain(..)
    }

    /// All that waits is given up, and all is forgotten.
    pub fn forget(&mut self) {
        let waiting: Vec<_> = self.waiting.keys().copied().collect();
        waiting.into_iter().for_each(|exchange| self.give_up(exchange));
        let Multiplexed { decisions, numbers, .. } = std::mem::take(self);
        (self.decisions, self.numbers) = (decisions, numbers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u32 = 1;
    const READER: TaskId = (P, 8);
    const GIVER: TaskId = (P, 9);
    const WRITER: TaskId = (P, 7);
    const SOCKET: u64 = 50;

    fn of(number: u64) -> Asker {
        Asker { socket: 100 + number, number }
    }

    /// Questions 1 to 3 are sent by a loop that works for the first.
    fn three_asked() -> (Multiplexed, [ExchangeId; 3]) {
        let mut all = Multiplexed::default();
        all.writes(SOCKET, Some(WRITER));
        let exchanges = [1, 2, 3].map(|id| all.asks(id, Some(of(1)), 3));
        (all, exchanges)
    }

    #[test]
    fn answers_are_for_whom_they_wake_in_their_order() {
        let (mut all, [one, two, three]) = three_asked();
        assert!(all.answered(SOCKET, 2, Some(READER), 10));
        assert!(all.answered(SOCKET, 1, Some(READER), 10));
        all.woke(READER, GIVER, None);
        all.woke(GIVER, (P, 2), Some(of(2)));
        assert_eq!(all.decisions().count(), 0, "one of two");
        all.woke(GIVER, (P, 1), Some(of(1)));
        let decided: Vec<_> = all.decisions().collect();
        let seen = |exchange, n| (exchange, Some(of(n).socket), Certainty::Seen);
        assert_eq!(decided, [seen(two, 2), seen(one, 1)]);
        // The loop may give them out itself.
        assert!(all.answered(SOCKET, 3, Some(READER), 20) && !all.answered(SOCKET, 3, None, 20));
        all.woke(READER, (P, 3), Some(of(3)));
        assert_eq!(all.decisions().collect::<Vec<_>>(), [seen(three, 3)]);
    }

    #[test]
    fn an_answer_that_wakes_none_leaves_its_batch_in_doubt() {
        let (mut all, [one, two, three]) = three_asked();
        all.answered(SOCKET, 1, Some(READER), 10);
        all.answered(SOCKET, 2, Some(READER), 10);
        all.woke(READER, GIVER, None);
        all.woke(GIVER, (P, 2), Some(of(2)));
        all.answered(SOCKET, 3, Some(READER), 20);
        all.woke(READER, GIVER, None);
        all.woke(GIVER, (P, 3), Some(of(3)));
        let mut decided: Vec<_> = all.decisions().collect();
        decided.sort_by_key(|decision| decision.0);
        let doubt = handed(3);
        let first = Some(of(1).socket);
        assert_eq!(decided[..2], [(one, first, doubt), (two, first, doubt)]);
        assert_eq!(decided[2], (three, Some(of(3).socket), Certainty::Seen));
    }

    #[test]
    fn questions_are_taken_in_their_order() {
        let mut all = Multiplexed::default();
        all.writes(SOCKET, Some(WRITER));
        all.serves(SOCKET, of(1), Some(READER));
        all.serves(SOCKET, of(2), Some(READER));
        assert_eq!(all.works_for(GIVER), None);
        all.woke(READER, GIVER, None);
        assert_eq!(all.works_for(GIVER), Some((of(1), 2)));
        // It has the first one's answer written.
        all.woke(GIVER, WRITER, None);
        assert_eq!(all.works_for(GIVER), Some((of(2), 1)));
        assert_eq!(all.made_for(GIVER), Some((of(2), 1)), "it opens a connection, say");
        assert_eq!(all.works_for(GIVER), Some((of(2), 1)));
        all.has_answered(SOCKET, of(1));
        all.has_answered(SOCKET, of(2));
        assert_eq!(all.works_for(GIVER), None);
    }

    #[test]
    fn a_task_may_be_made_for_each_question() {
        let mut all = Multiplexed::default();
        [1, 2].into_iter().for_each(|n| all.serves(SOCKET, of(n), Some(READER)));
        all.woke(READER, GIVER, None);
        assert_eq!(all.made_for(GIVER), Some((of(1), 2)));
        assert_eq!(all.made_for(GIVER), Some((of(2), 1)));
        assert_eq!(all.made_for(GIVER), None);
    }

    #[test]
    fn nothing_is_kept_for_ever() {
        let mut all = Multiplexed::default();
        for id in 0..2 * QUESTIONS_MAX as u64 {
            all.asks(id, None, 2);
            all.serves(SOCKET, of(id), Some(READER));
            all.serves(id, of(id), Some((P, id)));
            all.decisions().for_each(drop);
        }
        assert!(all.asked.len() <= QUESTIONS_MAX && all.waiting.len() <= QUESTIONS_MAX);
        assert!(all.connections.len() <= KNOWN_MAX + 2 && all.readers.len() <= KNOWN_MAX + 2);
    }
}
