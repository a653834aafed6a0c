//! What extraction found, against what the servers of `tests/requests` wrote down.
//!
//! The servers say which requests went over which connection, in order. On each end of a connection one
//! exchange follows the other, so the truth about every event of a socket follows from counting
//! exchanges, without a clock: a client begins one by sending after it received, a server by receiving
//! after it sent. On a connection that carries many at once, these are its messages' events (`ask`, `answer`), and the
//! events of its bytes count for none.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use fettle_follow::Session;

/// How well requests were found.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// Requests that were made.
    pub made: usize,
    /// Requests that were found, with events of those that were made.
    pub found: usize,
    /// Events of sockets whose request is known.
    pub events: usize,
    /// Of the events of a request that was found, those that are its; on average.
    pub precision: f64,
    /// Of the events of a request that was made, those that were found; on average.
    pub recall: f64,
    /// Share of requests of which exactly their events were found, in one piece.
    pub exact: f64,
    /// Requests that were found not exactly, and those of them that are marked as resting on a choice.
    pub wrong: usize,
    pub wrong_marked: usize,
    /// The numbers of those that were found not exactly.
    pub wrong_numbers: Vec<u64>,
    /// All that are marked so.
    pub marked: usize,
    /// Choices by how likely they were said to be right, in tenths: how many, how many were right.
    pub choices: [(usize, usize); 11],
}

/// A connection: the asking port, and the answering one.
type Ports = (u16, u16);
/// One end of a connection, and whether it asks.
type End = (Ports, bool);

fn port(address: &str) -> u16 {
    address.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0)
}

/// The numbers of the requests that went over each connection, one after the other.
fn exchanges(truth: &Path) -> HashMap<Ports, Vec<Option<u64>>> {
    let mut numbers = HashMap::new();
    for line in std::fs::read_to_string(truth).unwrap().lines() {
        // An exchange of no request, a greeting, is `-`.
        let mut words = line.split(' ').map(|word| word.parse::<u64>().ok());
        let mut port = || words.next().flatten().unwrap() as u16;
        let ports = (port(), port());
        numbers.insert(ports, words.collect());
    }
    numbers
}

/// Of connections that carry many questions at once.
#[derive(Default)]
struct Messages {
    /// Questions so far, by end of a connection; and whose question each exchange is.
    asked: HashMap<End, usize>,
    of: HashMap<(End, u64), u64>,
    truths: HashMap<u64, u64>,
    connections: HashSet<Ports>,
    /// Events of the bytes of each connection.
    bytes: HashMap<Ports, Vec<u64>>,
}

impl Messages {
    fn add(
        &mut self,
        numbers: &HashMap<Ports, Vec<Option<u64>>>,
        ((own, other), is_sent): ((u16, u16), bool),
        (asks, exchange): (bool, u64),
        ordinal: u64,
    ) {
        // The end that sends questions, and gets answers, is the asking one.
        let is_asker = is_sent == asks;
        let name = if is_asker { (own, other) } else { (other, own) };
        let Some(of) = numbers.get(&name) else { return };
        self.connections.insert(name);
        let end = (name, is_asker);
        if asks {
            let next = self.asked.entry(end).or_default();
            if let Some(number) = of.get(*next).copied().flatten() {
                self.of.insert((end, exchange), number);
            }
            *next += 1;
        }
        if let Some(number) = self.of.get(&(end, exchange)) {
            self.truths.insert(ordinal, *number);
        }
    }

    fn take_over(self, truths: &mut HashMap<u64, u64>) {
        for connection in self.connections {
            for ordinal in self.bytes.get(&connection).into_iter().flatten() {
                truths.remove(ordinal);
            }
        }
        truths.extend(self.truths);
    }
}

/// Whose request each event of a socket is of, by its place.
fn truths(session: &Session<'_>, numbers: &HashMap<Ports, Vec<Option<u64>>>) -> HashMap<u64, u64> {
    // Exchanges so far on each end, and whether the last event began or went on with one.
    let mut ends: HashMap<End, (usize, bool)> = HashMap::new();
    let mut truths: HashMap<u64, u64> = HashMap::new();
    let mut messages = Messages::default();
    session
        .for_each_event(&mut |ordinal, event| {
            let field = |name: &str| event.fields.iter().find(|(known, _)| known == name);
            let value = |name: &str| field(name).map_or("", |(_, value)| value.as_str());
            let begins = match event.name.as_str() {
                "sent" => true,
                "received" => false,
                name @ ("ask" | "answer") if value("protocol") == "nats" => {
                    let ends = (port(value("local")), port(value("remote")));
                    let is_sent = value("sent") == "true";
                    let exchange = value("exchange").parse().unwrap();
                    messages.add(numbers, (ends, is_sent), (name == "ask", exchange), ordinal);
                    return;
                }
                _ => return,
            };
            let moved = value("bytes").parse::<i64>().is_ok_and(|bytes| bytes > 0);
            let (own, other) = (port(value("local")), port(value("remote")));
            let asks = numbers.contains_key(&(own, other));
            let name = if asks { (own, other) } else { (other, own) };
            let Some(of) = numbers.get(&name).filter(|_| moved) else { return };
            // The first event begins the first exchange, of number 0.
            let state = ends.entry((name, asks)).or_insert((usize::MAX, false));
            let opens = begins == asks;
            if opens && !state.1 {
                state.0 = state.0.wrapping_add(1);
            }
            state.1 = opens;
            if let Some(number) = of.get(state.0).copied().flatten() {
                truths.insert(ordinal, number);
                messages.bytes.entry(name).or_default().push(ordinal);
            }
        })
        .unwrap();
    messages.take_over(&mut truths);
    truths
}

/// Compares the requests of a session's first schema with the truth in a file.
pub fn score(session: &Session<'_>, truth: &Path) -> Score {
    let truths = truths(session, &exchanges(truth));
    let mut of_number: BTreeMap<u64, usize> = BTreeMap::new();
    truths.values().for_each(|number| *of_number.entry(*number).or_default() += 1);

    let mut score = Score { made: of_number.len(), events: truths.len(), ..Score::default() };
    let mut pieces: HashMap<u64, Vec<(usize, usize)>> = HashMap::new();
    let mut precision = 0.0;
    let mut marks: Vec<(u64, bool)> = Vec::new();
    session
        .for_each(&mut |request, _| {
            let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
            for event in &request.events {
                if let Some(number) = truths.get(&event.ordinal) {
                    *counts.entry(*number).or_default() += 1;
                }
            }
            let all: usize = counts.values().sum();
            let Some((number, most)) = counts.iter().max_by_key(|(_, count)| **count) else {
                return;
            };
            score.found += 1;
            let is_marked = request.certainty.is_choice();
            let of_seed = request.events.iter().find_map(|event| truths.get(&event.ordinal));
            for choice in request.choices.iter().filter(|choice| choice.certainty.is_choice()) {
                let event = request.events.iter().find(|event| event.time_ns == choice.at_ns);
                let truth = event.and_then(|event| truths.get(&event.ordinal));
                if truth.is_some() {
                    let bin = &mut score.choices[usize::from(choice.certainty.likely()) / 100];
                    *bin = (bin.0 + 1, bin.1 + usize::from(truth == of_seed));
                }
            }
            score.marked += usize::from(is_marked);
            marks.push((*number, is_marked));
            precision += *most as f64 / all as f64;
            pieces.entry(*number).or_default().push((*most, all));
        })
        .unwrap();
    score.precision = precision / score.found.max(1) as f64;
    for (number, events) in &of_number {
        let of = pieces.get(number).map_or(&[][..], Vec::as_slice);
        let best = of.iter().map(|(most, _)| *most).max().unwrap_or(0);
        score.recall += best as f64 / *events as f64;
        let is_exact = of == [(*events, *events)];
        score.exact += f64::from(u8::from(is_exact));
        if !is_exact {
            score.wrong += 1;
            score.wrong_numbers.push(*number);
            let is_marked = marks.iter().any(|(of, is_marked)| of == number && *is_marked);
            score.wrong_marked += usize::from(is_marked);
        }
    }
    score.recall /= score.made.max(1) as f64;
    score.exact /= score.made.max(1) as f64;
    score
}
