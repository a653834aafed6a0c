//! All calls of a place: learns how the place behaves from a part of them, then assigns all.

use crate::model::{Classes, Event, Learner, Model};
use crate::place::{Chosen, NONE, Place};
use crate::search::{Effort, Search, Window, windows};
use crate::state::State;

/// Calls from which a place is learned at most.
const LESSONS: usize = 16_000;
/// Rounds of assigning and learning.
const ROUNDS: usize = 6;
/// Rounds of learning delays since questions' begins, before anything is assigned.
const FIRST_ROUNDS: usize = 4;

/// How much likelier calls are in order, where they are: a logarithm.
const IN_ORDER: f32 = 3.0;

const LEARNING: Effort = Effort { warm: 5, cold: 1, counted: 0 };
const LEARNED: Effort = Effort { warm: 4, cold: 5, counted: 0 };
const DECIDING: Effort = Effort { warm: 4, cold: 6, counted: 10 };

/// Assigns all calls of a place.
pub fn solve(place: &Place) -> Vec<Chosen> {
    let mut chosen = vec![Chosen::default(); place.calls.len()];
    if place.calls.is_empty() || place.questions.is_empty() {
        return chosen;
    }
    let windows = windows(place);
    let lessons = lessons(&windows);
    let classes = Classes {
        questions: place.allowed.len() / place.call_classes().max(1),
        calls: place.call_classes(),
    };
    let span_ns = span_ns(place, lessons);
    let any = learned(place, classes, lessons, span_ns, 0.0, &mut chosen);
    let ordered = learned(place, classes, lessons, span_ns, IN_ORDER, &mut chosen);
    let model = if ordered.1 > any.1 { ordered.0 } else { any.0 };
    let mut state = State::new(place);
    run(place, &windows, &model, DECIDING, &mut state, &mut chosen);
    chosen
}

/// A model that was learned, with how likely it makes what it was learned from. `in_order`: how much
/// likelier calls are taken to come in the order of what they follow. What delays alone say is
/// wrong where many wait in a queue: one that is very short and one that is very long are then likelier
/// than two that are alike.
fn learned(
    place: &Place,
    classes: Classes,
    lessons: &[Window],
    span_ns: i64,
    in_order: f32,
    chosen: &mut [Chosen],
) -> (Model, f64) {
    let mut model = before(place, classes, lessons, span_ns);
    let mut likely = f64::MIN;
    for round in 1..=ROUNDS {
        let effort = if round < ROUNDS { LEARNING } else { LEARNED };
        model.in_order = in_order;
        let mut state = State::new(place);
        run(place, lessons, &model, effort, &mut state, chosen);
        let lesson = learn(&state, classes, lessons, span_ns);
        likely = state.likelihood(&lesson, 0..place.questions.len() as u32);
        model = lesson;
    }
    model.in_order = in_order;
    (model, likely)
}

/// The windows to learn from: those in the middle, where programs do not start or end.
fn lessons(windows: &[Window]) -> &[Window] {
    let calls = windows.last().map_or(0, |last| last.to);
    let from = calls.saturating_sub(LESSONS) / 2;
    let first = windows.partition_point(|window| window.from < from);
    let end = windows.partition_point(|window| window.to <= from + LESSONS);
    windows.get(first..end).filter(|some| !some.is_empty()).unwrap_or(windows)
}

/// The first call of windows, and the one behind the last.
fn bounds(windows: &[Window]) -> (usize, usize) {
    let first = windows.first().map_or(0, |window| window.from);
    (first, windows.last().map_or(0, |window| window.to))
}

fn span_ns(place: &Place, windows: &[Window]) -> i64 {
    let (from, to) = bounds(windows);
    place.call(to.saturating_sub(1) as u32).begin - place.call(from as u32).begin
}

/// What can be known before anything is assigned: delays since questions' begins, each candidate
/// counting for what it is likely. Calls with few candidates count for more.
fn before(place: &Place, classes: Classes, lessons: &[Window], span_ns: i64) -> Model {
    let mut model: Option<Model> = None;
    for _ in 0..FIRST_ROUNDS {
        let mut learner = Learner::new(classes, span_ns);
        let mut rates = vec![0.0_f32; classes.questions * classes.calls];
        let mut search = Search::new(place);
        for window in lessons {
            search.begin(*window);
            for number in window.from..window.decided {
                let candidates = search.candidates(*window, number);
                spread(place, number, candidates, model.as_ref(), &mut learner, &mut rates);
            }
        }
        let (from, to) = bounds(lessons);
        let begins = [from, to.saturating_sub(1)].map(|call| place.call(call as u32).begin);
        let mut asked = vec![0.0_f32; classes.questions];
        let within = place.questions.iter().filter(|q| (begins[0]..=begins[1]).contains(&q.begin));
        for question in within {
            if let Some(count) = asked.get_mut(usize::from(question.class)) {
                *count += 1.0;
            }
        }
        for (row, asked) in rates.chunks_mut(classes.calls.max(1)).zip(&asked) {
            row.iter_mut().for_each(|rate| *rate /= asked.max(1.0));
        }
        model = Some(Model::from_start(&learner, &rates, place.once));
    }
    model.unwrap_or_else(|| Learner::new(classes, span_ns).model(place.once))
}

fn spread(
    place: &Place,
    number: usize,
    candidates: &[u32],
    model: Option<&Model>,
    learner: &mut Learner,
    rates: &mut [f32],
) {
    let call = place.call(number as u32);
    let likely = |question: &u32| {
        let asked = place.question(*question);
        let delay = call.begin - asked.begin;
        let follows =
            |model: &Model| model.follows(asked.class, Some(call.class), Event::Start, delay);
        model.map_or(0.0, |model| follows(model) + model.count(asked.class, call.class, 1))
    };
    let logs: Vec<f32> = candidates.iter().map(likely).collect();
    let top = logs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let all: f32 = logs.iter().map(|log| (log - top).exp()).sum();
    let trust = 1.0 / candidates.len().max(1) as f32;
    for (question, log) in candidates.iter().zip(&logs) {
        let asked = place.question(*question);
        let share = (log - top).exp() / all;
        let delay = call.begin - asked.begin;
        learner.follows(asked.class, Some(call.class), Event::Start, delay, share * trust);
        let pair = usize::from(asked.class) * place.call_classes() + usize::from(call.class);
        if let Some(rate) = rates.get_mut(pair) {
            *rate += share;
        }
    }
}

fn run(
    place: &Place,
    windows: &[Window],
    model: &Model,
    effort: Effort,
    state: &mut State<'_>,
    chosen: &mut [Chosen],
) {
    let mut search = Search::new(place);
    for window in windows {
        search.begin(*window);
        search.first(*window, model, state);
        if model.is_from_start() {
            continue;
        }
        search.improve(*window, model, state, effort, chosen);
    }
}

/// The model that an assignment shows.
fn learn(state: &State<'_>, classes: Classes, lessons: &[Window], span_ns: i64) -> Model {
    let place = state.place;
    let (from, to) = bounds(lessons);
    let mut learner = Learner::new(classes, span_ns);
    let begins = [from, to.saturating_sub(1)].map(|call| place.call(call as u32).begin);
    for (number, question) in place.questions.iter().enumerate() {
        // Of those that were open at an edge, not all calls are known.
        let whole = from == 0 && to == place.calls.len();
        if whole || question.begin >= begins[0] && question.end <= begins[1] {
            state.teach(&mut learner, number as u32);
        }
    }
    for number in from..to {
        if state.owner(number as u32) == NONE {
            learner.lone(place.call(number as u32).class);
        }
    }
    learner.model(place.once)
}
