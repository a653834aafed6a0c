//! What is simpler than the likeliest assignment, to compare with: no model, one call after the other.

use crate::place::{Chosen, NONE, Place};

/// Each call is the question's that came first, of those that have none of its class.
pub fn first_come(place: &Place) -> Vec<Chosen> {
    choose(place, |open, has| {
        let free = open.iter().copied().find(|question| !has(*question));
        free.or_else(|| open.first().copied())
    })
}

/// Each call is the question's that came last.
pub fn nearest(place: &Place) -> Vec<Chosen> {
    choose(place, |open, has| {
        let last = |any: bool| open.iter().rev().copied().find(|question| any || !has(*question));
        if place.once { last(false) } else { last(true) }
    })
}

/// Goes through the calls; `pick` gets the questions that can have caused one, in order, and whether one
/// of them has caused a call of that class before.
fn choose(
    place: &Place,
    pick: impl Fn(&[u32], &dyn Fn(u32) -> bool) -> Option<u32>,
) -> Vec<Chosen> {
    let mut taken = vec![false; place.questions.len() * place.call_classes()];
    let (mut open, mut next): (Vec<u32>, u32) = (Vec::new(), 0);
    let mut chosen = Vec::with_capacity(place.calls.len());
    for call in &place.calls {
        while place.questions.get(next as usize).is_some_and(|q| q.begin <= call.begin) {
            open.push(next);
            next += 1;
        }
        open.retain(|question| place.question(*question).end >= call.begin);
        let can: Vec<u32> =
            open.iter().copied().filter(|q| place.can(&place.question(*q), call)).collect();
        let at = |question: u32| question as usize * place.call_classes() + usize::from(call.class);
        let has = |question: u32| taken.get(at(question)).copied().unwrap_or(false);
        let question = pick(&can, &has).unwrap_or(NONE);
        if let Some(has) = taken.get_mut(at(question)).filter(|_| question != NONE) {
            *has = true;
        }
        chosen.push(Chosen { question, candidates: can.len() as u32, likely: 1.0 });
    }
    chosen
}
