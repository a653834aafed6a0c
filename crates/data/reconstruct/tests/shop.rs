//! Traces of a simulated shop, whose spans' parents are known; and spans that make no sense.

mod simulated;

use fettle_reconstruct::{How, Link, Side, Span, reconstruct, reconstruct_by};

/// The share of links that are right, of spans that have a parent.
fn right(made: &simulated::Made, links: &[Link]) -> f64 {
    let known = || links.iter().zip(&made.parents).filter(|(_, parent)| parent.is_some());
    known().filter(|(link, parent)| link.parent == **parent).count() as f64 / known().count() as f64
}

#[test]
fn requests_one_behind_the_other_are_found_whole() {
    let made = simulated::shop(7, 200, 200e6);
    let found = reconstruct(&made.spans);
    assert!(right(&made, &found.links) > 0.995, "{}", right(&made, &found.links));
    let only = found.links.iter().filter(|link| link.candidates == 1);
    assert!(only.clone().count() > 2000 && only.into_iter().all(|link| link.likely == 1.0));
}

#[test]
fn requests_at_once_are_found_better_than_by_order_or_nearness() {
    let made = simulated::shop(3, 1500, 5e6);
    let likeliest = right(&made, &reconstruct(&made.spans).links);
    let others = [How::FirstCome, How::Nearest]
        .map(|how| right(&made, &reconstruct_by(&made.spans, how).links));
    assert!(likeliest > 0.97, "{likeliest}");
    // At least four of five links that these get wrong are right.
    for other in others {
        assert!(1.0 - likeliest < (1.0 - other) / 4.0, "{likeliest} {others:?}");
    }
}

#[test]
fn the_same_spans_give_the_same_traces() {
    let made = simulated::shop(5, 300, 3e6);
    assert_eq!(reconstruct(&made.spans), reconstruct(&made.spans));
}

#[test]
fn what_is_said_to_be_likely_is_right() {
    let made = simulated::shop(11, 3000, 2e6);
    let found = reconstruct(&made.spans);
    let mut bands = [(0_u32, 0.0_f64, 0_u32); 4];
    for (link, parent) in
        found.links.iter().zip(&made.parents).filter(|(link, _)| link.candidates > 1)
    {
        let band = &mut bands[((link.likely * 4.0) as usize).min(3)];
        *band = (
            band.0 + 1,
            band.1 + f64::from(link.likely),
            band.2 + u32::from(link.parent == *parent),
        );
    }
    for (count, likely, right) in bands.into_iter().filter(|(count, ..)| *count > 200) {
        let (said, is) = (likely / f64::from(count), f64::from(right) / f64::from(count));
        assert!((said - is).abs() < 0.15, "{count} links said {said:.2}, right {is:.2}");
    }
}

#[test]
fn threads_say_whose_calls_are() {
    // Each question has a thread of its own, and its call comes at any moment.
    let mut random = simulated::Random::new(1);
    let mut spans = Vec::new();
    for number in 0..400_u64 {
        let begin_ns = 1_000_000 * number;
        let about = Span { thread: Some(number % 32 + 1), ..Span::default() };
        spans.push(Span { begin_ns, end_ns: begin_ns + 20_000_000, ..about });
        let from = begin_ns + 1_000 + random.next() % 18_000_000;
        let end_ns = from + 1_000_000;
        spans.push(Span { begin_ns: from, end_ns, side: Side::Caller, name: 1, ..about });
    }
    let found = reconstruct(&spans);
    for (number, link) in found.links.iter().enumerate().filter(|(number, _)| number % 2 == 1) {
        assert_eq!((link.parent, link.candidates), (Some(number as u32 - 1), 1));
    }
}

#[test]
fn connections_say_which_sides_are_of_one_call() {
    let span = |connection, side, begin_ns, end_ns| Span {
        begin_ns,
        end_ns,
        side,
        process: u32::from(side == Side::Callee),
        service: u32::from(side == Side::Callee),
        peer: (side == Side::Caller).then_some(1),
        connection: Some(connection),
        ..Span::default()
    };
    let mut spans = Vec::new();
    for connection in 1..=40 {
        spans.push(span(connection, Side::Caller, 1_000 * connection, 10_000_000));
        spans.push(span(connection, Side::Callee, 5_000_000 - 1_000 * connection, 6_000_000));
    }
    let found = reconstruct(&spans);
    for number in (1..spans.len()).step_by(2) {
        assert_eq!(
            (found.links[number].parent, found.links[number].candidates),
            (Some(number as u32 - 1), 1)
        );
    }
}

#[test]
fn what_makes_no_sense_is_no_reason_to_panic() {
    assert_eq!(reconstruct(&[]).links, []);
    let mut random = simulated::Random::new(9);
    for round in 0..40 {
        let range = [3, 1_000, 1_000_000_000, u64::MAX][round % 4];
        let spans: Vec<Span> = (0..300)
            .map(|_| {
                let mut below = |end: u64| (random.next() % end) as u32;
                let side = [Side::Callee, Side::Caller, Side::Inside][below(3) as usize];
                let (process, service, peer, name) = (below(4), below(4), below(9), below(5));
                let thread = Some(u64::from(below(3)));
                let connection = Some(u64::from(below(3))).filter(|one| *one > 0);
                let peer = Some(peer).filter(|peer| *peer < 8);
                let [begin_ns, end_ns] = [random.next() % range, random.next() % range];
                Span { begin_ns, end_ns, side, process, service, peer, name, thread, connection }
            })
            .collect();
        let found = reconstruct(&spans);
        assert_eq!(found.links.len(), spans.len());
        for mut at in 0..spans.len() {
            // Each way ends: there are no circles.
            let mut steps = 0;
            while let Some(parent) = found.links[at].parent {
                at = parent as usize;
                steps += 1;
                assert!(steps <= spans.len());
            }
        }
    }
}
