//! How certain it is for which question something is asked, by how that was found out.
//!
//! The figures are measured, not assumed: of links that the servers of the evaluation made, whose truth is
//! known, the share that was right (`docs/internals/evaluation.md`, "How certain").

use fettle_requests::{CERTAIN, Certainty};

/// How it was found out for which of several questions an exchange was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// By what the thread read last; and its answer came before that question's, or the order of answers says
    /// so.
    Confirmed,
    /// By what the thread has read last alone.
    Last,
    /// A thread that has read no question asks: another has handed it over.
    Handed,
    /// A task that takes its work from a queue asks, and queues are taken from in order.
    InOrder,
    /// It has waited longest for the connection that has just become free.
    Pooled,
}

/// What else bears on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// Questions that it may be for.
    pub candidates: u32,
    /// It was asked before the thread has polled again.
    pub is_prompt: bool,
    /// The process asks once for each question that it is asked, as proxies do: an answer that is passed
    /// on decides.
    pub asks_once: bool,
    /// Several threads of the process read several questions at once: tasks move between them.
    pub is_shared: bool,
    /// How likely it is, in thousandths, that what the thread has read last was for that question: an answer may
    /// have been to what was itself asked by choice.
    pub base: u16,
}

/// The certainty of what was found out so.
pub(super) fn certainty(how: How, setting: Setting) -> Certainty {
    match setting.candidates {
        0 => Certainty::Seen,
        1 => Certainty::OnlyCandidate,
        candidates => Certainty::Chosen { candidates, likely: likely(how, setting) },
    }
}

/// The certainty of what another has handed over to one that has read no question, of so many that it may be for:
/// what the asker has read itself says nothing then.
pub(super) fn handed(candidates: u32) -> Certainty {
    let (is_prompt, asks_once, is_shared, base) = (false, false, false, CERTAIN);
    certainty(How::Handed, Setting { candidates, is_prompt, asks_once, is_shared, base })
}

fn likely(how: How, setting: Setting) -> u16 {
    let Setting { candidates, is_prompt, asks_once, is_shared, base } = setting;
    // By chance, one in as many as there are is right.
    let all = u32::from(CERTAIN);
    let chance = all / candidates.max(1);
    let beyond = match how {
        How::Handed => 50,
        How::InOrder => 80,
        How::Pooled => 95,
        _ if is_shared => 65,
        How::Confirmed if asks_once || is_prompt => 97,
        How::Last if is_prompt => 97,
        How::Last if asks_once => 60,
        How::Confirmed | How::Last => 0,
    };
    let beyond = (all - chance) * beyond / 100 * u32::from(base.min(CERTAIN)) / all;
    u16::try_from(chance + beyond).unwrap_or(CERTAIN)
}

/// How much of what a process has asked may have been taken for another question's, since it began. A question that
/// is answered lacks nothing if none of the choices since it was read should have been for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Doubt {
    /// The negative logarithm of how likely none of them should have been.
    sum: f64,
}

/// What is more likely than this, in thousandths, is not called a choice.
const SURE: u16 = 990;

impl Doubt {
    /// One question of several was chosen: each of the others may have been meant, and all alike.
    pub fn add(&mut self, certainty: Certainty) {
        if let Certainty::Chosen { candidates, likely } = certainty {
            let others = f64::from(candidates.saturating_sub(1).max(1));
            let missed = f64::from(CERTAIN.saturating_sub(likely)) / f64::from(CERTAIN) / others;
            self.sum -= (-missed.min(0.999)).ln_1p();
        }
    }

    /// One of the choices was none: that it was right is seen.
    pub fn take_back(&mut self, certainty: Certainty) {
        let mut added = Doubt::default();
        added.add(certainty);
        self.sum -= added.sum;
    }

    /// How certain it is that a question lacks nothing that was read when the doubt was `before`, one of so many.
    pub fn since(self, before: Doubt, candidates: usize) -> Certainty {
        let likely = ((before.sum - self.sum).exp() * f64::from(CERTAIN)).round() as u16;
        let candidates = u32::try_from(candidates).unwrap_or(u32::MAX).max(2);
        match likely < SURE {
            true => Certainty::Chosen { candidates, likely },
            false => Certainty::Seen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_chosen_for_others_is_in_doubt() {
        let mut doubt = Doubt::default();
        let before = doubt;
        doubt.add(Certainty::Seen);
        doubt.add(Certainty::OnlyCandidate);
        assert_eq!(doubt.since(before, 5), Certainty::Seen);
        // One in two may have been of one of the two others.
        doubt.add(Certainty::Chosen { candidates: 3, likely: 500 });
        assert_eq!(doubt.since(before, 3), Certainty::Chosen { candidates: 3, likely: 750 });
        assert_eq!(doubt.since(doubt, 3), Certainty::Seen);
        doubt.take_back(Certainty::Chosen { candidates: 3, likely: 500 });
        assert_eq!(doubt.since(before, 3), Certainty::Seen);
        (0..10_000).for_each(|_| doubt.add(Certainty::Chosen { candidates: 2, likely: 0 }));
        assert_eq!(doubt.since(before, 3), Certainty::Chosen { candidates: 3, likely: 0 });
    }

    #[test]
    fn more_candidates_are_never_more_certain() {
        for how in [How::Confirmed, How::Last, How::Handed, How::InOrder, How::Pooled] {
            for bits in 0..8 {
                let of = |candidates| {
                    let [is_prompt, asks_once, is_shared] = [1, 2, 4].map(|bit| bits & bit != 0);
                    let base = CERTAIN;
                    certainty(how, Setting { candidates, is_prompt, asks_once, is_shared, base })
                };
                assert_eq!((of(0), of(1)), (Certainty::Seen, Certainty::OnlyCandidate));
                let all = (2..2000).map(|n| of(n).likely());
                assert!(all.clone().is_sorted_by(|a, b| a >= b));
                assert!(all.clone().all(|likely| likely < CERTAIN), "{how:?}");
            }
        }
    }
}
