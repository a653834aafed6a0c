//! When to look whether a request is quiet.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::handles::RequestRef;
use crate::requests::Requests;

/// Alarms beyond those of open requests that are never too many.
const SPARE: usize = 1024;

/// When it is due, and of which request: two words, so that it is handed on in registers.
type Alarm = (u64, RequestRef);

/// Alarms of requests, by the time at which they are due.
pub(crate) struct Alarms {
    /// When the first is due.
    pub next_ns: u64,
    /// Those of requests that began: each is due later than the one before.
    first: VecDeque<Alarm>,
    /// Those of requests to which something had happened when they were due, and those that are due.
    again: BinaryHeap<Reverse<Alarm>>,
}

impl Default for Alarms {
    fn default() -> Alarms {
        Alarms { next_ns: u64::MAX, first: VecDeque::new(), again: BinaryHeap::new() }
    }
}

impl Alarms {
    /// Number of alarms.
    pub fn len(&self) -> usize {
        self.first.len() + self.again.len()
    }

    /// Sets the first alarm of a request.
    #[inline]
    pub fn set(&mut self, due_ns: u64, request: RequestRef, requests: &Requests) {
        // Most requests are complete long before they would be quiet: their alarms go when there are
        // more of these than of others, so memory stays that of open requests.
        if self.len() > 4 * requests.len() + SPARE {
            self.forget(requests);
        }
        self.next_ns = self.next_ns.min(due_ns);
        self.first.push_back((due_ns, request));
    }

    #[cold]
    fn forget(&mut self, requests: &Requests) {
        self.first.retain(|(_, request)| requests.is_open(*request));
        self.again.retain(|Reverse((_, request))| requests.is_open(*request));
    }

    /// Takes out the first that is due, by time and then by request.
    pub fn due(&mut self, now_ns: u64) -> Option<RequestRef> {
        while let Some(alarm) = self.first.pop_front_if(|(due_ns, _)| *due_ns <= now_ns) {
            self.again.push(Reverse(alarm));
        }
        let first = self.again.peek_mut().filter(|first| first.0.0 <= now_ns)?;
        Some(std::collections::binary_heap::PeekMut::pop(first).0.1)
    }

    /// Sets the alarm of a request once more.
    pub fn set_again(&mut self, due_ns: u64, request: RequestRef) {
        self.again.push(Reverse((due_ns, request)));
    }

    /// All that were due are taken out.
    pub fn settle(&mut self) {
        let first = self.first.front().map(|(due_ns, _)| *due_ns);
        let again = self.again.peek().map(|Reverse((due_ns, _))| *due_ns);
        self.next_ns = first.into_iter().chain(again).min().unwrap_or(u64::MAX);
    }
}
