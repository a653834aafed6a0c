//! Exchanges whose bytes say for which question they are.

use fettle_requests::{CERTAIN, Certainty};

use super::super::asker::Asker;
use super::super::certain::{How, Setting, certainty};
use super::{At, EventLoops, Exchange};

/// What bears on the certainty of what is seen: nothing.
const SEEN: Setting =
    Setting { candidates: 0, is_prompt: false, asks_once: false, is_shared: false, base: CERTAIN };

impl EventLoops {
    /// The exchange that has just begun on a connection is for the open question on another socket, as its bytes say.
    /// Returns the socket of the question that it was taken for, if that is open.
    pub fn named(&mut self, at: At, socket: u64, of: u64) -> Option<Option<u64>> {
        let question = self.questions.get(&of).filter(|question| question.is_open)?;
        let asker = Asker { socket: of, number: question.number };
        let id = *self.asked.get(&socket)?;
        let thread = self.threads.entry(at.thread).or_default();
        let last = thread.last.replace(asker);
        thread.fresh.retain(|fresh| *fresh != asker);
        let found = self.exchanges.entry(id).or_insert(Exchange {
            sent_ns: at.ns,
            for_whom: last,
            is_answered: false,
            round: 0,
            is_in_doubt: false,
            known: None,
            setting: SEEN,
        });
        let before = found.for_whom.replace(asker);
        let added = found.known.unwrap_or_else(|| certainty(How::Last, found.setting));
        if found.is_in_doubt && found.known.is_none() {
            self.decisions.push((id, Some(of), Certainty::Seen));
        }
        (found.known, found.setting, found.is_in_doubt) = (Some(Certainty::Seen), SEEN, false);
        if let Some(process) = self.processes.get_mut(&at.process) {
            process.doubt.take_back(added);
        }
        if before != Some(asker) {
            self.pools.moved(at.process, socket, asker.number);
            if let Some(question) = before.and_then(|before| self.open_question(before)) {
                question.exchanges.retain(|other| *other != id);
            }
            if let Some(question) = self.open_question(asker) {
                question.exchanges.push(id);
            }
        }
        Some(before.filter(|before| self.is_open(*before)).map(|before| before.socket))
    }
}
