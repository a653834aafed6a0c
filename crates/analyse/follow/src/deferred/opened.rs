//! The first exchange of a connection that was opened by one task and is written to by another.
//!
//! Go's HTTP client opens a connection for a request in a goroutine of its own, and gives it to the request that waits first.
//! The loop that writes there was not woken by any other yet, if what it is to write was in its channel before it first
//! waited. The loop that reads wakes the one that has asked once the answer is there, and that one's question is known.

use rustc_hash::FxHashMap;

use fettle_requests::Certainty;

use super::asker::Asker;
use super::certain::handed;
use super::event_loops::{Decision, ExchangeId};

/// Names a task: its process, and its number there.
pub(super) type TaskId = (u32, u64);

/// What tells these exchanges' names from event loops'.
const TASKS: ExchangeId = 1 << 63;

/// Readers that are remembered; beyond, all are forgotten.
const READERS_MAX: usize = 1 << 16;

/// Whether an exchange is one of these.
pub(super) fn is_one(exchange: ExchangeId) -> bool {
    exchange & TASKS != 0
}

/// One that waits.
struct First {
    socket: u64,
    /// For whom the connection was opened, one of so many.
    opener: Asker,
    candidates: u32,
}

/// Those that wait.
#[derive(Default)]
pub(super) struct Opened {
    waiting: FxHashMap<ExchangeId, First>,
    by_socket: FxHashMap<u64, ExchangeId>,
    /// Those whose answer was read, by the task that has read it.
    by_reader: FxHashMap<TaskId, ExchangeId>,
    decisions: Vec<Decision>,
    numbers: u64,
}

impl Opened {
    /// A task has asked first on a connection that was opened for a question, one of so many.
    pub fn asks(&mut self, socket: u64, opener: Asker, candidates: u32) -> ExchangeId {
        self.closed(socket);
        self.numbers += 1;
        let exchange = TASKS | self.numbers;
        self.waiting.insert(exchange, First { socket, opener, candidates });
        self.by_socket.insert(socket, exchange);
        exchange
    }

    /// The exchange that waits on a connection.
    pub fn exchange(&self, socket: u64) -> Option<ExchangeId> {
        self.by_socket.get(&socket).copied()
    }

    /// The answer was read, by another task than the one that has asked if it is known.
    pub fn read(&mut self, socket: u64, reader: Option<TaskId>) {
        let Some(exchange) = self.exchange(socket) else { return };
        match reader {
            Some(reader) => {
                if self.by_reader.len() > READERS_MAX {
                    self.by_reader.clear();
                }
                if let Some(before) = self.by_reader.insert(reader, exchange)
                    && before != exchange
                {
                    self.give_up(before);
                }
            }
            // A task that asks and reads by itself has opened the connection for itself.
            None => drop(self.decide(exchange, None)),
        }
    }

    /// A task wakes another one that works for this: returns for whom the exchange was whose answer it had read, and
    /// its connection.
    pub fn woke(&mut self, task: TaskId, works_for: Option<Asker>) -> Option<(Asker, u64)> {
        let of = works_for?;
        let exchange = self.by_reader.remove(&task)?;
        self.decide(exchange, Some(of)).map(|socket| (of, socket))
    }

    /// Nothing more is known: it was for whom the connection was opened, or not.
    pub fn give_up(&mut self, exchange: ExchangeId) {
        let Some(first) = self.take(exchange) else { return };
        self.decisions.push((exchange, Some(first.opener.socket), handed(first.candidates)));
    }

    /// The bytes of the exchange on a connection say for whom it is.
    pub fn named(&mut self, socket: u64, of: Asker) {
        if let Some(exchange) = self.exchange(socket) {
            self.decide(exchange, Some(of));
        }
    }

    /// A connection is gone.
    pub fn closed(&mut self, socket: u64) {
        if let Some(exchange) = self.exchange(socket) {
            self.give_up(exchange);
        }
    }

    /// What was found out since this was asked last.
    pub fn decisions(&mut self) -> std::vec::Drain<'_, Decision> {
        self.decisions.drain(..)
    }

    /// All that waits is given up.
    pub fn forgotten(mut self) -> Opened {
        let waiting: Vec<_> = self.waiting.keys().copied().collect();
        waiting.into_iter().for_each(|exchange| self.give_up(exchange));
        self.by_reader.clear();
        self
    }

    /// Returns the connection.
    fn decide(&mut self, exchange: ExchangeId, of: Option<Asker>) -> Option<u64> {
        let first = self.take(exchange)?;
        let of = of.unwrap_or(first.opener);
        self.decisions.push((exchange, Some(of.socket), Certainty::Seen));
        Some(first.socket)
    }

    fn take(&mut self, exchange: ExchangeId) -> Option<First> {
        let first = self.waiting.remove(&exchange)?;
        self.by_socket.remove(&first.socket);
        Some(first)
    }
}
