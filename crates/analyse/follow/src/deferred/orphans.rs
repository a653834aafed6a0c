//! Whose question a task works for that has read none, in a process whose runtime does not say who has made it.
//!
//! An executor's threads have a queue each, run what is in it in order, and take from another's when theirs is
//! empty. So what such a task asks is for the oldest open question that was read by the same thread and for which less was
//! asked yet than is usual; otherwise the oldest that another thread has read. How much is usual, is learned from
//! the questions that were answered.

use std::collections::VecDeque;

use fettle_requests::Certainty;

use super::asker::Asker;
use super::certain::{Doubt, How, Setting, certainty};

/// A question that is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    asker: Asker,
    /// The thread that has read it.
    thread: u32,
    /// What was asked for it by choice.
    asked: u32,
    /// What there was of doubt when it was read.
    doubt: Doubt,
}

/// How likely it is, in thousandths, that such a task was begun in order: measured, with 8 and 32 clients.
const IN_ORDER: u16 = 800;

/// Questions that are remembered; older ones are not chosen any more.
const OPEN_MAX: usize = 4096;

/// The open questions of a process, and how much is usually asked for one.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// In the order in which they were read.
    open: VecDeque<Open>,
    /// Questions that were answered, and what was asked for them by choice.
    answered: u64,
    asked: u64,
    doubt: Doubt,
}

impl Orphans {
    /// A question was read by a thread.
    pub fn read(&mut self, asker: Asker, thread: u32) {
        if self.open.len() == OPEN_MAX {
            self.open.pop_front();
        }
        let doubt = self.doubt;
        self.open.push_back(Open { asker, thread, asked: 0, doubt });
    }

    /// A question's answer begins, while so many are open. How certain it is that it lacks nothing.
    pub fn answered(&mut self, asker: Asker, candidates: u32) -> Certainty {
        let Some(at) = self.open.iter().position(|open| open.asker == asker) else {
            return Certainty::Seen;
        };
        let Some(open) = self.open.remove(at) else { return Certainty::Seen };
        self.answered += 1;
        self.asked += u64::from(open.asked);
        self.doubt.since(open.doubt, candidates as usize)
    }

    /// A question will not be answered.
    pub fn gone(&mut self, asker: Asker) {
        self.open.retain(|open| open.asker != asker);
    }

    /// The question that a task asks for that a thread runs, of so many that are open.
    pub fn choose(&mut self, thread: u32, candidates: u32) -> Option<(Asker, Certainty)> {
        // Until a question was answered, nothing is usual.
        let usual = self.asked.checked_div(self.answered).unwrap_or(0).max(1);
        let usual = u32::try_from(usual).unwrap_or(u32::MAX);
        let lacks = |open: &Open| open.asked < usual;
        let own = self.open.iter().position(|open| lacks(open) && open.thread == thread);
        let any = || self.open.iter().position(lacks);
        let least = || (0..self.open.len()).min_by_key(|at| self.open[*at].asked);
        let at = own.or_else(any).or_else(least)?;
        let open = self.open.get_mut(at)?;
        open.asked += 1;
        let asker = open.asker;
        let (is_prompt, asks_once, is_shared, base) = (false, false, true, IN_ORDER);
        let candidates = candidates.max(1);
        let setting = Setting { candidates, is_prompt, asks_once, is_shared, base };
        let certainty = certainty(How::InOrder, setting);
        self.doubt.add(certainty);
        Some((asker, certainty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u32 = 1;
    const B: u32 = 2;

    fn asker(socket: u64) -> Asker {
        Asker { socket, number: socket }
    }

    #[test]
    fn the_oldest_that_lacks_something_is_chosen() {
        let mut orphans = Orphans::default();
        assert!(orphans.choose(A, 0).is_none());
        orphans.read(asker(1), A);
        assert_eq!(orphans.choose(A, 1), Some((asker(1), Certainty::OnlyCandidate)));
        assert_eq!(orphans.choose(A, 1), Some((asker(1), Certainty::OnlyCandidate)));
        assert_eq!(orphans.answered(asker(1), 1), Certainty::Seen);
        // Two are usual.
        orphans.read(asker(2), A);
        orphans.read(asker(3), A);
        let chosen: Vec<u64> =
            (0..5).map_while(|_| orphans.choose(A, 2)).map(|(asker, _)| asker.socket).collect();
        assert_eq!(chosen, [2, 2, 3, 3, 2]);
        let doubt = orphans.answered(asker(2), 2);
        assert!(matches!(doubt, Certainty::Chosen { candidates: 2, .. }), "{doubt:?}");
        assert_eq!(orphans.answered(asker(2), 2), Certainty::Seen, "it is not open");
        orphans.gone(asker(3));
        assert!(orphans.choose(A, 1).is_none());
    }

    #[test]
    fn what_the_same_thread_has_read_comes_first() {
        let mut orphans = Orphans::default();
        orphans.read(asker(1), A);
        orphans.read(asker(2), B);
        let mut chosen = |thread| orphans.choose(thread, 2).map(|(asker, _)| asker.socket);
        assert_eq!([chosen(B), chosen(B)], [Some(2), Some(1)]);
    }

    #[test]
    fn what_nobody_answers_is_forgotten() {
        let mut orphans = Orphans::default();
        (0..3 * OPEN_MAX as u64).for_each(|n| orphans.read(asker(n), A));
        assert_eq!(orphans.open.len(), OPEN_MAX);
    }
}
