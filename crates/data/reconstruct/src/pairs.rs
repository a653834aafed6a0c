//! Which processes ask which: as few pairs as explain all calls.

use std::collections::{BTreeMap, BTreeSet};

use crate::place::{Item, Place, ROUNDED_NS};

/// Questions around one call that are looked at.
const LOOK_AT: usize = 256;
/// Pairs beside each call's first that are tried one by one.
const TRIED: usize = 64;
/// Of the calls that all pairs together explain, the pairs that are taken explain so many of a thousand.
const EXPLAINED: usize = 995;

/// Rules out pairs of classes of questions and calls that are not needed. Each call votes for the class of the question
/// that is tightest around it; pairs are taken in the order of votes, until nearly all calls can have a question of
/// their own.
pub fn rule_out(place: &mut Place) {
    let votes = votes(place);
    let asking: BTreeSet<u16> = place.questions.iter().map(|question| question.class).collect();
    let asked: BTreeSet<u16> = place.calls.iter().map(|call| call.class).collect();
    let all = asking.iter().flat_map(|one| asked.iter().map(|other| (*one, *other)));
    let mut order: Vec<(u16, u16)> = all.collect();
    order.sort_by_key(|pair| std::cmp::Reverse(votes.get(pair).copied().unwrap_or(0)));
    let most = explained(place, &order);
    // The first of each class of calls; then the others.
    let mut seen = BTreeSet::new();
    let (mut taken, others): (Vec<_>, Vec<_>) =
        order.into_iter().partition(|(_, call)| seen.insert(*call));
    for (tried, pair) in others.into_iter().enumerate() {
        if tried < TRIED && explained(place, &taken) * 1000 >= most * EXPLAINED {
            break;
        }
        taken.push(pair);
    }
    place.allowed.fill(false);
    for (question, call) in taken {
        let at = usize::from(question) * place.call_classes() + usize::from(call);
        if let Some(allowed) = place.allowed.get_mut(at) {
            *allowed = true;
        }
    }
}

/// For each pair of classes, how many calls have the tightest question around them in it.
fn votes(place: &Place) -> BTreeMap<(u16, u16), usize> {
    let mut votes = BTreeMap::new();
    sweep(place, |open, call| {
        if let Some(question) = tightest(open, call) {
            *votes.entry((question.class, call.class)).or_default() += 1;
        }
    });
    votes
}

/// How many calls can have a question of their own in these pairs.
fn explained(place: &Place, pairs: &[(u16, u16)]) -> usize {
    // Ends of questions that no call has yet, by class.
    let mut free: BTreeMap<u16, BTreeSet<(i64, usize)>> = BTreeMap::new();
    let (mut next, mut count) = (0, 0);
    for call in &place.calls {
        while let Some(question) = place.questions.get(next) {
            if question.begin > call.begin + ROUNDED_NS {
                break;
            }
            free.entry(question.class).or_default().insert((question.end, next));
            next += 1;
        }
        // The one that is over soonest: later calls can have the others.
        let least = (call.end - place.late_ns.max(ROUNDED_NS), 0);
        let of = pairs.iter().filter(|(_, class)| *class == call.class);
        let first = of.filter_map(|(class, _)| {
            let end = free.get(class)?.range(least..).next()?;
            Some((*end, *class))
        });
        if let Some((end, class)) = first.min() {
            count += usize::from(free.get_mut(&class).is_some_and(|ends| ends.remove(&end)));
        }
    }
    count
}

/// The question around a call, or nearly so, that is no longer than it has to be.
pub fn tightest<'a>(open: &'a [Item], call: &Item) -> Option<&'a Item> {
    let around = |question: &&Item| {
        (call.begin - question.begin).saturating_add((question.end - call.end).abs())
    };
    open.iter().rev().take(LOOK_AT).min_by_key(around)
}

/// Visits each call with the questions that are open when it begins.
pub fn sweep(place: &Place, mut visit: impl FnMut(&[Item], &Item)) {
    let (mut open, mut next): (Vec<Item>, usize) = (Vec::new(), 0);
    for call in &place.calls {
        while let Some(question) =
            place.questions.get(next).filter(|q| q.begin <= call.begin + ROUNDED_NS)
        {
            open.push(*question);
            next += 1;
        }
        open.retain(|question| question.end >= call.begin);
        visit(&open, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(begin: i64, end: i64, class: u16) -> Item {
        Item { begin, end, class, ..Item::default() }
    }

    fn place(questions: Vec<Item>, calls: Vec<Item>, classes: usize) -> Place {
        let mut place = Place {
            questions,
            calls,
            allowed: vec![true; classes * classes],
            once: true,
            outlives: vec![false; classes],
            ..Place::default()
        };
        place.questions.sort_by_key(|item| item.begin);
        place.calls.sort_by_key(|item| item.begin);
        place
    }

    #[test]
    fn those_further_up_are_ruled_out() {
        // 0 asks 0 asks 1 asks 1: the questions of class 0 are around all of it.
        let (mut questions, mut calls) = (Vec::new(), Vec::new());
        for number in 0..50 {
            let at = number * 1_000_000;
            questions.push(item(at, at + 900_000, 0));
            calls.push(item(at + 100_000, at + 800_000, 0));
            questions.push(item(at + 200_000, at + 700_000, 1));
            calls.push(item(at + 300_000, at + 600_000, 1));
        }
        let mut place = place(questions, calls, 2);
        rule_out(&mut place);
        assert_eq!(place.allowed, [true, false, false, true]);
    }

    #[test]
    fn who_asks_seldom_is_not_ruled_out() {
        // Class 1 asks one time in twenty, and class 0 is always there, too.
        let (mut questions, mut calls) = (Vec::new(), Vec::new());
        for number in 0..200 {
            let at = number * 1_000_000;
            let seldom = number % 20 == 0;
            questions.push(item(at + 1_000, at + 990_000, u16::from(seldom)));
            calls.push(item(at + 100_000, at + 800_000, 0));
            if seldom {
                questions.push(item(at, at + 900_000, 0));
                calls.push(item(at + 50_000, at + 850_000, 0));
            }
        }
        let mut place = place(questions, calls, 2);
        rule_out(&mut place);
        assert!(place.allowed[0] && place.allowed[2], "{:?}", place.allowed);
    }
}
