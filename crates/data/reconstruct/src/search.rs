//! The likeliest assignment of a window of calls, and how sure each choice is.

use crate::model::Model;
use crate::place::{Chosen, NONE, Place, ROUNDED_NS};
use crate::random::Random;
use crate::state::{Change, State};

/// Calls of a window at most. What is idle cuts windows before.
const WINDOW: usize = 512;
/// Of a window that nothing idle ends, so many calls are decided; the others are looked at again.
const DECIDED: usize = 384;
/// Candidates that are looked at for one call, the latest ones.
const CANDIDATES: usize = 192;
/// How far calls are that may be exchanged, in calls of their class.
const NEAR: usize = 6;
/// A change that is less likely by this is not tried again.
const HOPELESS: f32 = -14.0;
/// How much less a change's likelihood counts while it is counted what stays: delays of one moment have causes in
/// common, so a product over all of them says too much. Found by comparing what was said with what was right.
const HEAT: f32 = 3.0;

/// A range of calls that are assigned together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first call.
    pub from: usize,
    /// The one behind the last.
    pub to: usize,
    /// Calls before this one are decided by it.
    pub decided: usize,
}

/// Cuts a place's calls into windows: where no question is open, and where there are too many.
pub fn windows(place: &Place) -> Vec<Window> {
    let mut windows = Vec::new();
    let (mut from, mut open_until, mut next) = (0, i64::MIN, 0);
    let mut at = 0;
    while at < place.calls.len() {
        let begin = place.call(at as u32).begin;
        while let Some(question) =
            place.questions.get(next).filter(|q| q.begin <= begin + ROUNDED_NS)
        {
            // A question that comes behind all that were open begins nothing anew by itself.
            open_until = open_until.max(question.end);
            next += 1;
        }
        at += 1;
        let after = place.calls.get(at).map(|call| call.begin);
        // Questions between two calls change nothing: they are open after the gap, not over it.
        let idle = after.is_none_or(|after| after > open_until + 2 * ROUNDED_NS);
        if idle && (at - from >= WINDOW / 8 || at == place.calls.len()) {
            windows.push(Window { from, to: at, decided: at });
            from = at;
        } else if at - from >= WINDOW {
            windows.push(Window { from, to: at, decided: from + DECIDED });
            from += DECIDED;
        }
    }
    windows
}

/// How thoroughly a window is searched: times that each call is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Changes are made as likely as they are.
    pub warm: usize,
    /// Only what is likelier is changed.
    pub cold: usize,
    /// As the first, and it is counted what stays.
    pub counted: usize,
}

/// Which changes are made.
#[derive(Clone, Copy, Debug)]
enum Accept {
    /// As often as they are likely, with so much heat.
    As(f32),
    /// Those for the better.
    Better,
}

/// Searches windows one behind the other.
#[derive(Debug)]
pub struct Search<'a> {
    place: &'a Place,
    /// Questions that began, and may be open.
    open: Vec<u32>,
    next: usize,
    random: Random,
    /// Candidates of the window's calls, one behind the other, and where each call's begin.
    candidates: Vec<u32>,
    starts: Vec<usize>,
    /// The calls that have a choice; by class, in order; and the place of each in its class.
    choices: Vec<u32>,
    by_class: Vec<Vec<u32>>,
    ranks: Vec<usize>,
    /// The best change that was found for each call of the window in the last looks.
    best: Vec<f32>,
    change: Change,
}

impl<'a> Search<'a> {
    /// From the first window on.
    pub fn new(place: &'a Place) -> Search<'a> {
        Search {
            place,
            open: Vec::new(),
            next: 0,
            random: Random::new(1),
            candidates: Vec::new(),
            starts: Vec::new(),
            choices: Vec::new(),
            by_class: vec![Vec::new(); place.call_classes()],
            ranks: Vec::new(),
            best: Vec::new(),
            change: Change::default(),
        }
    }

    /// Finds out who the candidates of the window's calls are.
    pub fn begin(&mut self, window: Window) {
        let place = self.place;
        let first = place.call(window.from as u32).begin;
        self.open.retain(|question| place.question(*question).end + ROUNDED_NS >= first);
        let mut alive = self.open.clone();
        self.candidates.clear();
        self.starts.clear();
        self.choices.clear();
        self.by_class.iter_mut().for_each(Vec::clear);
        self.ranks.clear();
        let mut ahead = 0;
        for number in window.from..window.to {
            let call = place.call(number as u32);
            while let Some(question) = place.questions.get(self.next) {
                if question.begin > call.begin + ROUNDED_NS {
                    break;
                }
                if question.end + ROUNDED_NS >= call.begin {
                    self.open.push(self.next as u32);
                    alive.push(self.next as u32);
                }
                self.next += 1;
            }
            ahead += 1;
            if ahead % 8 == 0 {
                alive.retain(|question| place.question(*question).end + ROUNDED_NS >= call.begin);
            }
            let start = self.candidates.len();
            self.starts.push(start);
            let can = |question: &&u32| place.can(&place.question(**question), &call);
            self.candidates.extend(alive.iter().rev().filter(can).take(CANDIDATES));
            let class = self.by_class.get_mut(usize::from(call.class));
            let (Some(class), true) = (class, self.candidates.len() - start > 1) else {
                self.ranks.push(usize::MAX);
                continue;
            };
            self.ranks.push(class.len());
            class.push(number as u32);
            self.choices.push(number as u32);
        }
        self.starts.push(self.candidates.len());
        self.best.clear();
        self.best.resize(window.to - window.from, 0.0);
    }

    /// The candidates of a call of the window.
    pub fn candidates(&self, window: Window, call: usize) -> &[u32] {
        let at = call - window.from;
        let bounds = self.starts.get(at).zip(self.starts.get(at + 1));
        bounds.and_then(|(from, to)| self.candidates.get(*from..*to)).unwrap_or_default()
    }

    /// Gives each call of the window that is nothing's yet the question that it fits best.
    pub fn first(&mut self, window: Window, model: &Model, state: &mut State<'_>) {
        for call in window.from..window.to {
            if state.owner(call as u32) != NONE {
                continue;
            }
            let candidates = self.candidates(window, call);
            let mut best = (model.lone(self.place.call(call as u32).class), NONE);
            for question in candidates {
                let gain = state.gain(model, *question, call as u32);
                if gain > best.0 || candidates.len() == 1 {
                    best = (gain, *question);
                }
            }
            state.assign(call as u32, best.1);
        }
        self.score_again(window, model, state);
    }

    /// Computes the likelihood of all questions that may be changed.
    pub fn score_again(&self, window: Window, model: &Model, state: &mut State<'_>) {
        let mut questions = self.candidates.clone();
        questions.extend((window.from..window.to).map(|call| state.owner(call as u32)));
        questions.sort_unstable();
        questions.dedup();
        for question in questions.into_iter().filter(|question| *question != NONE) {
            state.score_again(model, question);
        }
    }

    /// Improves the window's assignment. What was chosen is in `into`, by call.
    pub fn improve(
        &mut self,
        window: Window,
        model: &Model,
        state: &mut State<'_>,
        effort: Effort,
        into: &mut [Chosen],
    ) {
        for _ in 0..effort.warm {
            self.sweep(window, model, state, Accept::As(1.0));
        }
        for _ in 0..effort.cold {
            if !self.sweep(window, model, state, Accept::Better) {
                break;
            }
        }
        for call in window.from..window.to {
            let candidates = self.candidates(window, call).len() as u32;
            if let Some(chosen) = into.get_mut(call) {
                *chosen = Chosen { question: state.owner(call as u32), candidates, likely: 1.0 };
            }
        }
        if effort.counted == 0 {
            return;
        }
        let mut stayed = vec![0_u32; self.choices.len()];
        for _ in 0..effort.counted {
            self.sweep(window, model, state, Accept::As(HEAT));
            for (count, call) in stayed.iter_mut().zip(&self.choices) {
                let chosen = into.get(*call as usize).map_or(NONE, |chosen| chosen.question);
                *count += u32::from(chosen == state.owner(*call));
            }
        }
        for (count, call) in stayed.iter().zip(&self.choices) {
            if let Some(chosen) = into.get_mut(*call as usize) {
                chosen.likely = likely(*count, effort.counted, chosen.candidates);
            }
        }
        // What follows goes on from the best that was found.
        for call in &self.choices {
            let chosen = into.get(*call as usize).map_or(NONE, |chosen| chosen.question);
            if chosen != state.owner(*call) {
                state.assign(*call, chosen);
            }
        }
        self.score_again(window, model, state);
    }

    /// Looks at each call that has a choice once; whether anything was changed.
    fn sweep(
        &mut self,
        window: Window,
        model: &Model,
        state: &mut State<'_>,
        which: Accept,
    ) -> bool {
        let mut changed = false;
        let hopeless = match which {
            Accept::As(heat) => HOPELESS * heat,
            Accept::Better => HOPELESS,
        };
        for at in 0..self.choices.len() {
            let Some(call) = self.choices.get(at).copied() else { break };
            let slot = call as usize - window.from;
            if self.best.get(slot).is_some_and(|best| *best < hopeless) && self.random.below(8) > 0
            {
                continue;
            }
            let mut best = f32::NEG_INFINITY;
            if let Some(other) = self.neighbour(window, call) {
                let questions = [state.owner(call), state.owner(other)];
                let pair = [call, other];
                let gain = state.swap(model, pair, &mut self.change);
                best = gain.unwrap_or(best);
                let made = gain.is_some_and(|gain| self.accept(gain, which));
                if made {
                    state.make(model, questions, &self.change);
                    changed = true;
                } else if let Some(gain) = state.cross(model, pair, &mut self.change) {
                    best = best.max(gain);
                    if self.accept(gain, which) {
                        state.make(model, questions, &self.change);
                        changed = true;
                    }
                }
            }
            let candidates = self.candidates(window, call as usize);
            // One more than there are: none.
            let chosen = self.random.clone().below(candidates.len() + 1);
            let to = candidates.get(chosen).copied().unwrap_or(NONE);
            self.random.next();
            let from = state.owner(call);
            if let Some(gain) = state.shift(model, call, to, &mut self.change) {
                best = best.max(gain);
                if self.accept(gain, which) {
                    state.make(model, [from, to], &self.change);
                    changed = true;
                }
            }
            if let Some(known) = self.best.get_mut(slot) {
                // It forgets: what is around a call changes.
                *known = best.max(*known - 4.0);
            }
        }
        changed
    }

    fn accept(&mut self, gain: f32, which: Accept) -> bool {
        match which {
            Accept::As(heat) => {
                let gain = gain / heat;
                gain >= 0.0 || (gain > -12.0 && self.random.share() < gain.exp())
            }
            Accept::Better => gain > 1e-3,
        }
    }

    /// A call of the same class that began about when this one did.
    fn neighbour(&mut self, window: Window, call: u32) -> Option<u32> {
        let rank = *self.ranks.get(call as usize - window.from)?;
        let step = 1 + self.random.below(NEAR).min(self.random.below(NEAR));
        let other = match self.random.below(2) {
            0 => rank.checked_sub(step)?,
            _ => rank + step,
        };
        let class = usize::from(self.place.call(call).class);
        self.by_class.get(class)?.get(other).copied()
    }
}

/// How likely a choice is right that stayed so many times of `all`, among so many candidates. What never
/// changed is not certain: models are learned, and delays of one moment are more alike than they say.
fn likely(stayed: u32, all: usize, candidates: u32) -> f32 {
    let share = stayed as f32 / all as f32;
    let most = 1.0 - 0.005 * candidates.min(40) as f32;
    (share * most).max(1.0 / candidates.max(1) as f32)
}
