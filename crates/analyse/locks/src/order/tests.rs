use fettle_abi::locking::{Event, HEAD_WORDS};

use super::*;

/// Names places and locks by their addresses.
struct Plain;

impl Names for Plain {
    fn system_call(&self, number: u32) -> String {
        number.to_string()
    }

    fn place(&self, _: u32, address: u64) -> Place {
        Place { function: format!("{address:#x}"), ..Place::default() }
    }

    fn variable(&self, _: u32, _: u64) -> Option<String> {
        None
    }
}

const A: u64 = 0x1000;
const B: u64 = 0x2000;
const GATE: u64 = 0x3000;

/// A thread that lives from `start` on, whose own name is its number.
fn thread(tid: u32, start: u64, edges: Vec<Edge>) -> ThreadTable {
    let mut head = [0; HEAD_WORDS];
    head[HeadWord::Itself as usize] = u64::from(tid);
    ThreadTable { pid: 1, tid, start, end: start + 1000, head, edges, ..ThreadTable::default() }
}

/// An edge at places that its thread gives.
fn edge(outer: u64, inner: u64, flags: u32) -> Edge {
    Edge::new((outer, inner), (outer + 1, inner + 2), 0, flags)
}

fn event(kind: Operation, segment: u32, tid: u32, time: u64) -> Event {
    Event { kind: kind as u32, segment, object: tid.into(), time }
}

fn found(threads: &[ThreadTable]) -> usize {
    deadlocks(threads, &Plain, &|_, lock| format!("{lock:#x}")).len()
}

#[test]
fn two_orders_in_two_threads_are_a_deadlock() {
    let threads = [thread(1, 0, vec![edge(A, B, 0)]), thread(2, 0, vec![edge(B, A, 0)])];
    assert_eq!(found(&threads), 1);
    let all = deadlocks(&threads, &Plain, &|_, lock| format!("{lock:#x}"));
    assert_eq!(all[0].steps.iter().map(|s| s.tid).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(
        (all[0].steps[0].holds.as_str(), all[0].steps[0].wants.as_str()),
        ("0x1000", "0x2000")
    );
}

#[test]
fn three_in_a_circle_are_one() {
    let threads = [
        thread(1, 0, vec![edge(A, B, 0)]),
        thread(2, 0, vec![edge(B, GATE, 0)]),
        thread(3, 0, vec![edge(GATE, A, 0)]),
    ];
    assert_eq!(found(&threads), 1);
}

#[test]
fn one_thread_alone_cannot_block_itself() {
    assert_eq!(found(&[thread(1, 0, vec![edge(A, B, 0), edge(B, A, 0)])]), 0);
}

#[test]
fn a_common_gate_keeps_one_of_them_out_unless_both_read() {
    let with_gate =
        |outer, inner, gate| Edge { gates: [gate, 0, 0, 0, 0, 0], ..edge(outer, inner, 0) };
    let both = |first, second| {
        found(&[
            thread(1, 0, vec![with_gate(A, B, first)]),
            thread(2, 0, vec![with_gate(B, A, second)]),
        ])
    };
    assert_eq!(both(GATE, GATE), 0);
    assert_eq!(both(GATE | 1, GATE), 0);
    assert_eq!(both(GATE | 1, GATE | 1), 1);
    assert_eq!(both(GATE, GATE + 0x100), 1);
}

#[test]
fn readers_do_not_wait_for_readers() {
    let (outer, inner) = (Edge::OUTER_SHARED, Edge::INNER_SHARED);
    let both = |first, second| {
        found(&[thread(1, 0, vec![edge(A, B, first)]), thread(2, 0, vec![edge(B, A, second)])])
    };
    assert_eq!(both(outer | inner, outer | inner), 0);
    // A is written by both, B only ever read.
    assert_eq!(both(inner, outer), 0);
    // Each has one to read, and asks for the other to write.
    assert_eq!(both(outer, outer), 1);
}

#[test]
fn who_ended_before_another_began_cannot_meet_it() {
    let main = |joins| {
        let mut events = vec![event(Operation::Create, 0, 2, 10)];
        if joins {
            events.push(event(Operation::Join, 1, 2, 100));
        }
        events.push(event(Operation::Create, events.len() as u32, 3, 110));
        ThreadTable { events, ..thread(1, 0, vec![]) }
    };
    let others = [thread(2, 11, vec![edge(A, B, 0)]), thread(3, 111, vec![edge(B, A, 0)])];
    let [first, second] = others;
    assert_eq!(found(&[main(true), first.clone(), second.clone()]), 0);
    // It only so happened that the first had ended.
    assert_eq!(found(&[main(false), first, second]), 1);
}

#[test]
fn what_a_thread_did_before_it_made_another_comes_first() {
    let before = Edge { segment: 0, ..edge(A, B, 0) };
    let after = Edge { segment: 1, ..edge(A, B, 0) };
    let main = |edge| ThreadTable {
        events: vec![event(Operation::Create, 0, 2, 10)],
        ..thread(1, 0, vec![edge])
    };
    assert_eq!(found(&[main(before), thread(2, 11, vec![edge(B, A, 0)])]), 0);
    assert_eq!(found(&[main(after), thread(2, 11, vec![edge(B, A, 0)])]), 1);
}

#[test]
fn a_lock_made_anew_is_another_one() {
    let again = A | 1 << 48;
    let threads = [thread(1, 0, vec![edge(A, B, 0)]), thread(2, 0, vec![edge(B, again, 0)])];
    assert_eq!(found(&threads), 0);
}

#[test]
fn what_is_the_same_in_the_source_is_reported_once() {
    let shifted = |by: u64| {
        let mut edges = [edge(A, B, 0), edge(B, A, 0)];
        for edge in &mut edges {
            edge.outer += by;
            edge.inner += by;
        }
        edges
    };
    let (first, second) = (shifted(0), shifted(0x10));
    let threads =
        [thread(1, 0, vec![first[0], second[0]]), thread(2, 0, vec![first[1], second[1]])];
    assert_eq!(found(&threads), 1);
}
