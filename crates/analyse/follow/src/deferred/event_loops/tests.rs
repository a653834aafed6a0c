//! Small stories of event loops.

use super::*;

/// Clients' connections, and those to servers.
const CLIENTS: [u64; 3] = [10, 11, 12];
const ASKED: [u64; 2] = [20, 21];

/// What a thread does, one after the other.
#[derive(Clone, Copy)]
enum ThreadAct {
    Read(u64),
    Send(u64),
    Wait,
    KnownEvent,
    /// A poll that has not waited.
    Poll,
}
use ThreadAct::{KnownEvent, Poll, Read, Send, Wait};

/// The questions that exchanges turn out to be for, in the order of their decisions, by the place of
/// the action that began each. There are three clients; the process works for several at once from
/// the start.
fn decided(acts: &[ThreadAct]) -> Vec<(usize, Option<u64>)> {
    let mut event_loops = EventLoops::default();
    let mut began = FxHashMap::default();
    let mut decisions = Vec::new();
    let at = |ns| At { process: 1, thread: 2, ns };
    CLIENTS.iter().for_each(|socket| event_loops.accepted(at(0), *socket));
    event_loops.polled(at(0));
    for (place, act) in acts.iter().enumerate() {
        let at = at(1 + place as u64);
        match *act {
            Read(socket) => event_loops.read(at, socket),
            Send(socket) => match event_loops.sent(at, (socket, 1)) {
                Sent::InDoubt(exchange) => drop(began.entry(exchange).or_insert(place)),
                Sent::For(socket, _) => decisions.push((place, Some(socket))),
                _ => {}
            },
            KnownEvent => event_loops.reported(2),
            Poll => event_loops.polled(at),
            Wait => {
                event_loops.waits(at);
                event_loops.polled(at);
            }
        }
        decisions.extend(event_loops.decisions().map(|(id, for_whom, _)| (began[&id], for_whom)));
    }
    decisions
}

#[test]
fn what_was_held_back_is_for_who_gets_the_answer() {
    // 10's goes on after 12's answer, when a connection is free; 11's, read later, after that.
    let [a, b, c] = CLIENTS;
    let [x, y] = ASKED;
    let held = [
        Read(c),
        Read(a),
        Send(x),
        Wait,
        Read(b),
        Wait,
        Read(x),
        Send(c),
        Send(x),
        Send(y),
        Wait,
        Read(y),
        Send(b),
        Wait,
        Read(x),
        Send(a),
        Wait,
    ];
    // What waits longest is known as soon as a connection is free.
    assert_eq!(decided(&held), [(8, Some(a)), (2, Some(c)), (9, Some(b))]);
    // Answers that are for something else are read in between.
    let among =
        [Read(a), Read(b), Read(c), Send(x), Wait, Send(y), Wait, Read(y), Read(x), Send(a), Wait];
    assert_eq!(decided(&among), [(3, Some(a)), (5, None)]);
}

#[test]
fn answers_go_on_in_the_order_in_which_they_came() {
    let [a, b, _] = CLIENTS;
    let [x, y] = ASKED;
    let batch =
        [Read(a), Read(b), Send(x), Send(y), Wait, Read(x), Read(y), Send(a), Send(b), Wait];
    assert_eq!(decided(&batch), [(3, Some(b)), (2, Some(a))]);
}

#[test]
fn who_asks_as_soon_as_it_has_read_needs_no_hindsight() {
    let [a, b, _] = CLIENTS;
    let [x, y] = ASKED;
    let at_once =
        [Read(a), Send(x), Read(b), Send(y), Wait, Read(y), Wait, Read(x), Send(a), Send(b), Wait];
    // The first exchange has no other question that it could be for.
    assert_eq!(decided(&at_once), [(3, None)]);
}

#[test]
fn a_question_that_is_answered_before_is_not_what_is_asked_for() {
    // Between 10's answer and its way to 10, 12's goes on.
    let [a, b, c] = CLIENTS;
    let [x, y] = ASKED;
    let mixed = [
        Read(b),
        Read(c),
        Wait,
        Read(a),
        Send(x),
        Wait,
        Read(x),
        Send(y),
        Send(a),
        Wait,
        Read(y),
        Send(c),
        Wait,
    ];
    assert_eq!(decided(&mixed), [(4, None), (7, Some(c))]);
}

#[test]
fn who_was_reported_something_else_asks_for_that() {
    // 11's file is there while 10's question has just been asked.
    let [a, b, _] = CLIENTS;
    let [x, y] = ASKED;
    let told = [
        Read(b),
        Wait,
        Read(a),
        Send(x),
        KnownEvent,
        Send(y),
        Wait,
        Read(y),
        Send(b),
        Read(x),
        Send(a),
        Wait,
    ];
    assert_eq!(decided(&told), [(5, Some(b)), (3, None)]);
}

#[test]
fn what_a_loop_sends_a_round_later_was_read_in_the_round_before() {
    let [a, b, c] = CLIENTS;
    let [x, y] = ASKED;
    // Four times it is plain that it does so.
    let plain =
        [Read(a), Read(b), Poll, Send(x), Wait, Read(x), Poll, Send(a), Poll, Send(b), Wait];
    let mut acts = plain.repeat(4);
    let before = acts.len();
    // 11's answer is read before 10's has gone on, and goes on after that.
    acts.extend([Read(a), Read(b), Read(c), Poll, Send(x), Send(y), Wait]);
    acts.extend([Read(x), Poll, Read(y), Send(a), Poll, Send(b), Wait]);
    let (x_asks, y_asks) = (before + 4, before + 5);
    let told = decided(&acts);
    assert!(told.ends_with(&[(x_asks, Some(a)), (y_asks, Some(b))]), "{told:?}");
}

#[test]
fn an_answer_goes_on_in_the_same_turn() {
    let mut event_loops = EventLoops::default();
    let at = |ns| At { process: 1, thread: 2, ns };
    event_loops.accepted(at(0), 10);
    event_loops.read(at(1), 10);
    assert_eq!(event_loops.sent(at(2), (10, 1)), Sent::AsSeen(Certainty::Seen));
    assert_eq!(event_loops.sent(at(3), (10, 1)), Sent::AnswerGoesOn);
    event_loops.waits(at(4));
    event_loops.polled(at(4));
    assert_eq!(event_loops.sent(at(5), (10, 1)), Sent::AsSeen(Certainty::Seen));
}

#[test]
fn a_thread_that_is_handed_a_question_asks_on_the_connection_that_was_tested_for_it() {
    let mut event_loops = EventLoops::default();
    // Threads 2 and 3 have read a question each, in this order; 4 asks for both, the last one first.
    let (first, last, helper) = (2, 3, 4);
    let by = |thread, ns| At { process: 1, thread, ns };
    let [x, y] = ASKED;
    // Only a connection on which something was asked can be idle.
    event_loops.read(by(first, 0), CLIENTS[0]);
    event_loops.tests(by(first, 1), y);
    for connection in ASKED {
        event_loops.sent(by(helper, 2), (connection, 1));
        event_loops.tests(by(first, 3), connection);
        event_loops.read(by(helper, 4), connection);
    }
    event_loops.read(by(last, 5), CLIENTS[1]);
    event_loops.tests(by(first, 6), y);
    event_loops.tests(by(last, 7), x);
    assert_eq!(
        event_loops.sent(by(helper, 8), (x, 1)),
        Sent::For(CLIENTS[1], Certainty::Seen),
        "not the one that has waited longest"
    );
    assert_eq!(event_loops.sent(by(helper, 9), (y, 1)), Sent::For(CLIENTS[0], Certainty::Seen));
    // A test is for one question, and for as long as that is open.
    event_loops.read(by(helper, 10), y);
    event_loops.tests(by(first, 11), y);
    event_loops.sent(by(first, 12), (CLIENTS[0], 1));
    let sent = event_loops.sent(by(helper, 13), (y, 1));
    assert_eq!(sent, Sent::AsSeen(Certainty::OnlyCandidate));
}

#[test]
fn what_nobody_closes_is_forgotten_in_the_end() {
    let mut event_loops = EventLoops::default();
    for n in 0..3 * KNOWN_MAX as u64 {
        event_loops.read(At { process: 1, thread: 2, ns: n }, n);
        event_loops.sent(At { process: 1, thread: 2, ns: n }, (u64::MAX - n, 1));
    }
    assert!(
        event_loops.questions.len() <= KNOWN_MAX + 1
            && event_loops.exchanges.len() <= KNOWN_MAX + 1
    );
    // Every one that is waited for was decided.
    assert!(event_loops.decisions().count() >= KNOWN_MAX);
}
