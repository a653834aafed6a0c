//! Whose question is asked for, by the ids of traces in the bytes of both (`traceparent`, B3, `x-request-id`).
//!
//! A service that passes on the id of what it was asked says for which of its questions it asks, whatever its threads
//! have done in between. That is said by the event `ask`, which stands behind the `sent` that it is about. An id counts
//! where exactly one question with it is open in the process: several parts of one trace may be.

use rustc_hash::FxHashMap;

/// Names a question by its connection and its number there.
type Question = (u64, u64);

/// Questions that are remembered; beyond, all are forgotten.
const KNOWN_MAX: usize = 1 << 18;

/// Open questions with ids, of all processes.
#[derive(Default)]
pub(super) struct TraceIds {
    /// The sockets of those in a process with an id, each as often as there are questions.
    open: FxHashMap<(u32, u64), Vec<u64>>,
    /// The process and the id of each.
    questions: FxHashMap<Question, (u32, u64)>,
    /// Those of a socket.
    sockets: FxHashMap<u64, Vec<u64>>,
}

impl TraceIds {
    /// A process is asked something, as a part of a trace.
    pub fn asked(&mut self, process: u32, (socket, exchange): Question, id: u64) {
        if self.questions.len() >= KNOWN_MAX {
            *self = TraceIds::default();
        }
        self.answered((socket, exchange));
        self.questions.insert((socket, exchange), (process, id));
        self.open.entry((process, id)).or_default().push(socket);
        self.sockets.entry(socket).or_default().push(exchange);
    }

    /// It has answered.
    pub fn answered(&mut self, (socket, exchange): Question) {
        let Some(name) = self.questions.remove(&(socket, exchange)) else { return };
        take_one(&mut self.open, name, socket);
        take_one(&mut self.sockets, socket, exchange);
    }

    /// A connection is gone.
    pub fn closed(&mut self, socket: u64) {
        for exchange in self.sockets.remove(&socket).unwrap_or_default() {
            if let Some(name) = self.questions.remove(&(socket, exchange)) {
                take_one(&mut self.open, name, socket);
            }
        }
    }

    /// The socket of the question for which a process asks something with this id, if it is certain.
    pub fn asker(&self, process: u32, id: u64) -> Option<u64> {
        match self.open.get(&(process, id))?[..] {
            [socket] => Some(socket),
            _ => None,
        }
    }
}

/// Takes one value out of those under a name.
fn take_one<K: Eq + std::hash::Hash>(all: &mut FxHashMap<K, Vec<u64>>, name: K, value: u64) {
    let Some(of_name) = all.get_mut(&name) else { return };
    if let Some(place) = of_name.iter().position(|one| *one == value) {
        of_name.swap_remove(place);
    }
    if of_name.is_empty() {
        all.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_counts_while_one_question_has_it() {
        let mut ids = TraceIds::default();
        ids.asked(1, (10, 0), 77);
        ids.asked(1, (11, 0), 78);
        assert_eq!((ids.asker(1, 77), ids.asker(1, 78)), (Some(10), Some(11)));
        // Another process; an id that no one has.
        assert_eq!((ids.asker(2, 77), ids.asker(1, 79)), (None, None));
        // Two parts of one trace.
        ids.asked(1, (12, 3), 77);
        assert_eq!(ids.asker(1, 77), None);
        ids.answered((10, 0));
        assert_eq!(ids.asker(1, 77), Some(12));
        // The next question of a connection takes the place of one whose answer was not seen.
        ids.asked(1, (12, 3), 80);
        assert_eq!((ids.asker(1, 77), ids.asker(1, 80)), (None, Some(12)));
        ids.closed(12);
        ids.answered((11, 0));
        assert!(ids.open.is_empty() && ids.questions.is_empty() && ids.sockets.is_empty());
    }

    #[test]
    fn what_is_not_ended_is_forgotten() {
        let mut ids = TraceIds::default();
        (0..3 * KNOWN_MAX as u64).for_each(|n| ids.asked(1, (n, 0), n));
        assert!(ids.questions.len() <= KNOWN_MAX);
    }
}
