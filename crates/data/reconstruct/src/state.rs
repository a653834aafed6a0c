//! Which call is which question's, for now, and how likely that is.

use crate::model::{Event, Learner, Model};
use crate::place::{Item, NONE, Place};

/// So many earlier calls of a question are looked at for the latest event.
const LOOK: usize = 16;

/// An assignment.
#[derive(Debug)]
pub struct State<'a> {
    /// What is assigned.
    pub place: &'a Place,
    owners: Vec<u32>,
    /// The calls of each question, in order.
    calls: Vec<Vec<u32>>,
    /// The logarithm of each question's likelihood, by the model of now.
    scores: Vec<f32>,
}

/// A change: two questions with the calls that they would have.
#[derive(Debug, Default)]
pub struct Change {
    first: Vec<u32>,
    second: Vec<u32>,
}

impl<'a> State<'a> {
    /// Nothing is assigned.
    pub fn new(place: &'a Place) -> State<'a> {
        State {
            place,
            owners: vec![NONE; place.calls.len()],
            calls: vec![Vec::new(); place.questions.len()],
            scores: vec![0.0; place.questions.len()],
        }
    }

    /// The question that a call is of, or [`NONE`].
    pub fn owner(&self, call: u32) -> u32 {
        self.owners.get(call as usize).copied().unwrap_or(NONE)
    }

    /// The calls of a question, in order.
    pub fn calls(&self, question: u32) -> &[u32] {
        self.calls.get(question as usize).map_or(&[], Vec::as_slice)
    }

    /// Assigns a call, or takes it from its question.
    pub fn assign(&mut self, call: u32, question: u32) {
        let before = self.owner(call);
        if let Some(calls) = self.calls.get_mut(before as usize) {
            calls.retain(|one| *one != call);
        }
        if let Some(owner) = self.owners.get_mut(call as usize) {
            *owner = question;
        }
        if let Some(calls) = self.calls.get_mut(question as usize) {
            let at = calls.partition_point(|one| *one < call);
            calls.insert(at, call);
        }
    }

    /// Computes a question's likelihood again.
    pub fn score_again(&mut self, model: &Model, question: u32) {
        let score = score(self.place, model, question, self.calls(question));
        if let Some(known) = self.scores.get_mut(question as usize) {
            *known = score;
        }
    }

    fn score(&self, question: u32) -> f32 {
        self.scores.get(question as usize).copied().unwrap_or(0.0)
    }

    /// How much likelier a call is if a question has caused it: what comes later is not considered.
    pub fn gain(&self, model: &Model, question: u32, call: u32) -> f32 {
        let (asked, made) = (self.place.question(question), self.place.call(call));
        let earlier = self.calls(question);
        let same = |one: &&u32| self.place.call(**one).class == made.class;
        let nth = earlier.iter().filter(same).count() + 1;
        let (event, at) = match model.is_from_start() {
            true => (Event::Start, asked.begin),
            false => latest(self.place, &asked, earlier, made.begin),
        };
        model.count(asked.class, made.class, nth)
            + model.follows(asked.class, Some(made.class), event, made.begin - at)
    }

    /// How much likelier all is if two calls' questions were exchanged; `None` if that cannot be.
    pub fn swap(&self, model: &Model, [one, other]: [u32; 2], change: &mut Change) -> Option<f32> {
        let [first, second] = [self.owner(one), self.owner(other)];
        let can = |question: u32, call: u32| {
            question == NONE
                || self.place.can(&self.place.question(question), &self.place.call(call))
        };
        if first == second || !can(first, other) || !can(second, one) {
            return None;
        }
        replace(self.calls(first), one, other, &mut change.first);
        replace(self.calls(second), other, one, &mut change.second);
        let lone = self.lone(model, second, [other, one]) + self.lone(model, first, [one, other]);
        let order = self.order(model, [one, other]);
        Some(self.difference(model, [first, second], change) + lone + order)
    }

    /// What changes where a call that was nothing's takes another's place there.
    fn lone(&self, model: &Model, question: u32, [was, becomes]: [u32; 2]) -> f32 {
        let lone = |call| model.lone(self.place.call(call).class);
        if question == NONE { lone(becomes) - lone(was) } else { 0.0 }
    }

    /// As [`State::swap`], with all calls of both questions from these two on.
    pub fn cross(&self, model: &Model, [one, other]: [u32; 2], change: &mut Change) -> Option<f32> {
        let [first, second] = [self.owner(one), self.owner(other)];
        if first == NONE || second == NONE || first == second {
            return None;
        }
        let (of_first, of_second) = (self.calls(first), self.calls(second));
        let (head, tail) = of_first.split_at(of_first.partition_point(|call| *call < one));
        let (other_head, other_tail) =
            of_second.split_at(of_second.partition_point(|call| *call < other));
        if tail.len() == 1 && other_tail.len() == 1 {
            // That is a swap.
            return None;
        }
        let can = |question: u32, calls: &[u32]| {
            let question = self.place.question(question);
            calls.iter().all(|call| self.place.can(&question, &self.place.call(*call)))
        };
        if !can(first, other_tail) || !can(second, tail) {
            return None;
        }
        join(head, other_tail, &mut change.first);
        join(other_head, tail, &mut change.second);
        let order = self.order(model, [one, other]);
        Some(self.difference(model, [first, second], change) + order)
    }

    /// How much likelier the order of two calls is if what they follow were exchanged.
    fn order(&self, model: &Model, calls: [u32; 2]) -> f32 {
        if model.in_order == 0.0 {
            return 0.0;
        }
        let follows = calls.map(|call| {
            let owner = self.owner(call);
            let own = self.calls(owner);
            let earlier = own.get(..own.partition_point(|one| *one < call)).unwrap_or_default();
            let begin = self.place.call(call).begin;
            (owner != NONE).then(|| latest(self.place, &self.place.question(owner), earlier, begin))
        });
        let [Some((event, at)), Some((other_event, other_at))] = follows else { return 0.0 };
        let first = calls.map(|call| self.place.call(call).begin).into_iter().min().unwrap_or(0);
        if event != other_event || at.max(other_at) > first || at == other_at {
            return 0.0;
        }
        if (at < other_at) == (calls[0] < calls[1]) { -model.in_order } else { model.in_order }
    }

    /// The logarithm of how likely the calls of some questions are, by the model.
    pub fn likelihood(&self, model: &Model, questions: impl Iterator<Item = u32>) -> f64 {
        questions.map(|one| f64::from(score(self.place, model, one, self.calls(one)))).sum()
    }

    /// As [`State::swap`], with one call that goes to another question, or to none.
    pub fn shift(&self, model: &Model, call: u32, to: u32, change: &mut Change) -> Option<f32> {
        let from = self.owner(call);
        if from == to {
            return None;
        }
        change.first.clear();
        change.first.extend(self.calls(from).iter().filter(|one| **one != call));
        change.second.clear();
        if to != NONE {
            join(self.calls(to), &[call], &mut change.second);
        }
        let lone = model.lone(self.place.call(call).class);
        let lone = if to == NONE { lone } else { 0.0 } - if from == NONE { lone } else { 0.0 };
        Some(self.difference(model, [from, to], change) + lone)
    }

    fn difference(&self, model: &Model, [first, second]: [u32; 2], change: &Change) -> f32 {
        let of = |question: u32, calls: &[u32]| match question {
            NONE => 0.0,
            _ => score(self.place, model, question, calls) - self.score(question),
        };
        of(first, &change.first) + of(second, &change.second)
    }

    /// Makes a change of two questions.
    pub fn make(&mut self, model: &Model, [first, second]: [u32; 2], change: &Change) {
        for (question, calls) in [(first, &change.first), (second, &change.second)] {
            if question == NONE {
                continue;
            }
            // What neither of the two has any more is nothing's.
            for call in self.calls.get(question as usize).into_iter().flatten() {
                if let Some(owner) = self.owners.get_mut(*call as usize) {
                    *owner = NONE;
                }
            }
            if let Some(known) = self.calls.get_mut(question as usize) {
                known.clear();
                known.extend_from_slice(calls);
            }
        }
        for (question, calls) in [(first, &change.first), (second, &change.second)] {
            if question == NONE {
                continue;
            }
            for call in calls {
                if let Some(owner) = self.owners.get_mut(*call as usize) {
                    *owner = question;
                }
            }
            self.score_again(model, question);
        }
    }

    /// Teaches what a question and its calls show.
    pub fn teach(&self, learner: &mut Learner, question: u32) {
        let asked = self.place.question(question);
        let calls = self.calls(question);
        walk(self.place, &asked, calls, &mut |call, event, delay, _| {
            learner.follows(asked.class, call, event, delay, 1.0);
        });
        for class in 0..self.place.call_classes() as u16 {
            let allowed = usize::from(asked.class) * self.place.call_classes() + usize::from(class);
            if self.place.allowed.get(allowed) == Some(&true) {
                let count = calls.iter().filter(|call| self.place.call(**call).class == class);
                learner.made(asked.class, class, count.count());
            }
        }
    }
}

/// Calls with one of them replaced.
fn replace(calls: &[u32], old: u32, new: u32, into: &mut Vec<u32>) {
    into.clear();
    into.extend(calls.iter().filter(|call| **call != old));
    let at = into.partition_point(|call| *call < new);
    into.insert(at, new);
}

/// Two lists of calls as one, in order.
fn join(some: &[u32], others: &[u32], into: &mut Vec<u32>) {
    into.clear();
    into.extend_from_slice(some);
    into.extend_from_slice(others);
    into.sort_unstable();
}

/// The latest event of a question before a time, of its begin and its calls' begins and ends.
fn latest(place: &Place, question: &Item, calls: &[u32], before: i64) -> (Event, i64) {
    let mut found = (Event::Start, question.begin);
    for call in calls.iter().rev().take(LOOK) {
        let call = place.call(*call);
        if call.end <= before + place.late_ns && call.end >= found.1 {
            found = (Event::End(call.class), call.end);
        } else if call.begin <= before && call.begin > found.1 {
            found = (Event::Begin(call.class), call.begin);
        }
    }
    found
}

/// Goes through what a question does: each call, or its end at last, with the event that it follows,
/// the delay since, and the how many-th call of its class it is.
fn walk(
    place: &Place,
    question: &Item,
    calls: &[u32],
    visit: &mut impl FnMut(Option<u16>, Event, i64, usize),
) {
    for (at, call) in calls.iter().enumerate() {
        let call = place.call(*call);
        let earlier = calls.get(..at).unwrap_or_default();
        let nth = earlier.iter().filter(|one| place.call(**one).class == call.class).count() + 1;
        let (event, time) = latest(place, question, earlier, call.begin);
        visit(Some(call.class), event, call.begin - time, nth);
    }
    let (event, time) = latest(place, question, calls, question.end);
    match event {
        // Both sides of one call: which one notes its end first is a matter of chance.
        Event::End(class) if time > question.end => {
            visit(None, Event::Begin(class), time - question.end, 0);
        }
        _ => visit(None, event, question.end - time, 0),
    }
}

/// How likely it is that a question has caused these calls: a logarithm.
fn score(place: &Place, model: &Model, question: u32, calls: &[u32]) -> f32 {
    let asked = place.question(question);
    let mut sum = 0.0;
    walk(place, &asked, calls, &mut |call, event, delay, nth| {
        sum += model.follows(asked.class, call, event, delay);
        if let Some(call) = call {
            sum += model.count(asked.class, call, nth);
        }
    });
    sum
}
