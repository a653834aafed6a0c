//! Which client's call a server's call is that carried no id.
//!
//! For which call another one is made, stubs know themselves, within a process. Between two processes both sides
//! report the same call: the server's side lies within the client's, messages are as long on both, and fields that
//! are marked have the same values. Where several fit, all are chosen together, so that they are likeliest.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{Hash, Hasher};

use fettle_abi::rpc;
use fettle_reconstruct::{Link, Span};
use rustc_hash::FxHasher;

use super::call::Call;
use super::wires::{End, Wire};
use crate::spans::Found;

/// Calls of a process by which it is found out what both sides count alike.
const LOOK: usize = 4_000;
/// Calls of the other side that are compared with one of them.
const LOOK_AT: usize = 256;
/// Clocks of two processes may differ by this.
const ROUNDED_NS: u64 = 2_000;
/// A call that ended with a status: its place in [`rpc::ENDED`].
const FINISHED: u8 = 1;

/// What came of it.
#[derive(Debug, Default)]
pub struct Joined {
    /// Traces that are a part of another one, and of which one.
    pub traces: HashMap<[u64; 2], [u64; 2]>,
    /// Calls of servers without an id: those with no client's call that they could be, one, and several.
    counts: [usize; 3],
}

impl Joined {
    /// What there is to say of it.
    pub fn note(&self) -> Option<String> {
        let [none, one, several] = self.counts;
        let all = none + one + several;
        (all > 0).then(|| {
            format!(
                "of {all} calls that came to servers without an id, {one} had one possible client's call, \
                 {several} several, {none} none"
            )
        })
    }
}

/// Calls of servers that carried no id, and calls of clients that can be the same: places in the calls.
fn loose(calls: &[Call]) -> (Vec<usize>, Vec<usize>) {
    let named: HashSet<u64> =
        calls.iter().filter(|call| call.is_server()).map(|call| call.parent).collect();
    let places = |of: &dyn Fn(&Call) -> bool| -> Vec<usize> {
        calls.iter().enumerate().filter(|(_, call)| of(call)).map(|(at, _)| at).collect()
    };
    (
        places(&|call| call.is_server() && call.parent == 0),
        places(&|call| !call.is_server() && !named.contains(&call.span)),
    )
}

/// What to say of calls that are not to be joined, though they could be.
pub fn note_of_loose(calls: &[Call]) -> Option<String> {
    let (asked, asking) = loose(calls);
    let of = |at: &usize| calls.get(*at).map(|call| (call.what.service, call.what.method));
    let known: HashSet<_> = asking.iter().filter_map(of).collect();
    let count = asked.iter().filter_map(of).filter(|method| known.contains(method)).count();
    (count > 0).then(|| {
        format!(
            "{count} calls came to servers without an id: --without-ids looks for their clients' calls"
        )
    })
}

/// Joins calls: what is found is in them. Where the kernel saw a call, its connection and its stream say which ends are
/// one call's, and only which call of a stub's an end is has to be found.
pub fn join(calls: &mut [Call], wires: &[Wire]) -> Joined {
    let (mut asked, mut asking) = loose(calls);
    asked.sort_by_key(|at| calls.get(*at).map(|call| call.began_ns));
    let marks = marks(calls, &asking, &asked);
    let mut found: Vec<(usize, usize, Link)> = Vec::new();
    if !wires.is_empty() {
        found = by_wires(calls, &asking, &asked, wires);
        // What both sides say of a call counts more than when they say so.
        let differ = |one: &usize, other: &usize| match (marks.get(one), marks.get(other)) {
            (Some(one), Some(other)) => one != other,
            _ => false,
        };
        found.retain(|(server, client, _)| !differ(server, client));
        let done: HashSet<usize> = found.iter().flat_map(|found| [found.0, found.1]).collect();
        asked.retain(|at| !done.contains(at));
        asking.retain(|at| !done.contains(at));
    }
    let mut numbers = Numbers::default();
    let mut span = |at: &usize| {
        let Some(call) = calls.get(*at) else { return Span::default() };
        let method = (call.what.service, call.what.method);
        let process = numbers.of((u64::from(call.file) << 32 | u64::from(call.pid), 0));
        let name = numbers.of((u64::from(method.0), 1 + u64::from(method.1)));
        let connection = marks.get(at).copied();
        Span { process, name, connection, ..times(call.began_ns, call.time_ns) }
    };
    let callers: Vec<Span> = asking.iter().map(&mut span).collect();
    let callees: Vec<Span> = asked.iter().map(&mut span).collect();
    let links = fettle_reconstruct::sides(&callers, &callees);
    let mut joined = Joined::default();
    let by_times = asked.iter().zip(links).map(|(at, link)| {
        let client = link.parent.and_then(|parent| asking.get(parent as usize).copied());
        (*at, client, link)
    });
    let by_wires = found.into_iter().map(|(server, client, link)| (server, Some(client), link));
    for (server, client, link) in by_wires.chain(by_times) {
        joined.link(calls, server, client, &link);
    }
    for call in calls {
        call.trace = joined.whole(call.trace);
    }
    let parts: Vec<_> = joined.traces.keys().copied().collect();
    joined.traces = parts.into_iter().map(|part| (part, joined.whole(part))).collect();
    joined
}

/// Servers' calls with the clients' that the kernel's events lead to: places in the calls, and how certain that is.
fn by_wires(
    calls: &[Call],
    asking: &[usize],
    asked: &[usize],
    wires: &[Wire],
) -> Vec<(usize, usize, Link)> {
    // At one process, calls of one method are alike.
    let mut numbers = Numbers::default();
    let mut name = |method: (u32, u16), pid: u32| {
        numbers.of((u64::from(method.0) << 32 | u64::from(method.1), u64::from(pid)))
    };
    let mut of_calls = |places: &[usize]| -> Vec<Span> {
        let of = |call: &Call| Span {
            name: name((call.what.service, call.what.method), call.pid),
            ..times(call.began_ns, call.time_ns)
        };
        places.iter().filter_map(|at| calls.get(*at)).map(of).collect()
    };
    let (callers, callees) = (of_calls(asking), of_calls(asked));
    let mut of_wires = |end: fn(&Wire) -> End| -> Vec<Span> {
        let of = |wire: &Wire| {
            let end = end(wire);
            Span { name: name(wire.method, end.pid), ..times(end.asked_ns, end.answered_ns) }
        };
        wires.iter().map(of).collect()
    };
    let sent = fettle_reconstruct::sides(&callers, &of_wires(|wire| wire.client));
    let received = fettle_reconstruct::sides(&of_wires(|wire| wire.server), &callees);
    let mut found = Vec::new();
    for (server, of_server) in asked.iter().zip(&received) {
        let of_client = of_server.parent.and_then(|wire| sent.get(wire as usize));
        let client = of_client.and_then(|link| link.parent).and_then(|at| asking.get(at as usize));
        if let (Some(client), Some(of_client)) = (client, of_client) {
            let link = Link {
                parent: None,
                candidates: of_server.candidates.max(of_client.candidates),
                likely: of_server.likely * of_client.likely,
            };
            found.push((*server, *client, link));
        }
    }
    found
}

/// A span of which only the times are known.
fn times(begin_ns: u64, end_ns: u64) -> Span {
    Span { begin_ns, end_ns, ..Span::default() }
}

/// Numbers for what is the same.
#[derive(Debug, Default)]
struct Numbers {
    known: HashMap<(u64, u64), u32>,
}

impl Numbers {
    fn of(&mut self, of: (u64, u64)) -> u32 {
        let next = self.known.len() as u32;
        *self.known.entry(of).or_insert(next)
    }
}

impl Joined {
    /// The trace that a trace is a part of in the end.
    fn whole(&self, trace: [u64; 2]) -> [u64; 2] {
        let mut at = trace;
        // There are no circles: see `link`.
        while let Some(next) = self.traces.get(&at) {
            at = *next;
        }
        at
    }

    fn link(&mut self, calls: &mut [Call], server: usize, client: Option<usize>, link: &Link) {
        let parent = client.and_then(|at| calls.get(at));
        let parent = parent.map(|call| (self.whole(call.trace), call.span));
        let Some(call) = calls.get_mut(server) else { return };
        let mut found = Found::of(link);
        if let Some((whole, span)) = parent {
            // A call is not made for what it makes itself; calls of no length can look so. And no trace has two
            // beginnings: only a program that is no stub of ours reports such.
            if whole == self.whole(call.trace) || self.traces.contains_key(&call.trace) {
                found = match link.candidates {
                    ..=1 => Found { candidates: 0, likely: 1000 },
                    candidates => Found { candidates, likely: 0 },
                };
            } else {
                self.traces.insert(call.trace, whole);
                call.parent = span;
            }
        }
        if let Some(count) = self.counts.get_mut((found.candidates as usize).min(2)) {
            *count += 1;
        }
        call.found = Some(found);
    }
}

/// What both sides say of a call with one question and one answer: how long these are, and the fields.
fn parts(call: &Call) -> Option<[u64; 3]> {
    let streams = call.what.flags & (rpc::CLIENT_STREAMS | rpc::SERVER_STREAMS) != 0;
    if streams || call.what.status != 0 || call.what.ended != FINISHED {
        return None;
    }
    let (question, answer) = match call.is_server() {
        true => (call.received_bytes, call.sent_bytes),
        false => (call.sent_bytes, call.received_bytes),
    };
    let said = call.values.iter().rposition(|value| *value != 0).map_or(0, |last| last + 1);
    let mut fields = FxHasher::default();
    call.values.get(..said).hash(&mut fields);
    Some([question, answer, fields.finish()])
}

/// A number for calls that say something: both sides of one call have the same.
fn marks(calls: &[Call], asking: &[usize], asked: &[usize]) -> HashMap<usize, u64> {
    let mut by_method: BTreeMap<(u32, u16), [Vec<usize>; 2]> = BTreeMap::new();
    for (side, places) in [asking, asked].into_iter().enumerate() {
        for at in places {
            let Some(call) = calls.get(*at) else { continue };
            let sides = by_method.entry((call.what.service, call.what.method)).or_default();
            if let Some(of) = sides.get_mut(side) {
                of.push(*at);
            }
        }
    }
    let mut marks = HashMap::new();
    for [asking, asked] in by_method.into_values() {
        let asking = spoken(calls, &asking);
        let asked = spoken(calls, &asked);
        let used = alike(&asking, &asked);
        if used == [false; 3] {
            continue;
        }
        let without = without_equals(&asking, &asked, used);
        let all = asking.iter().chain(&asked);
        marks.extend(
            all.filter(|said| !without.contains(&said.process()))
                .map(|said| (said.at, said.mark(used))),
        );
    }
    marks
}

/// A call that says something.
struct Said<'a> {
    at: usize,
    call: &'a Call,
    parts: [u64; 3],
}

/// A side of a process: whether it is asked, the file, and the process.
type Process = (bool, u32, u32);

impl Said<'_> {
    fn process(&self) -> Process {
        (self.call.is_server(), self.call.file, self.call.pid)
    }

    /// Whether it is like another one in a part.
    fn is_like(&self, other: &Said<'_>, part: usize) -> bool {
        self.parts.get(part) == other.parts.get(part)
    }

    /// A number for the parts that are used. It is not 0, which stands for no mark.
    fn mark(&self, used: [bool; 3]) -> u64 {
        let mut hasher = FxHasher::default();
        let parts = self.parts.iter().zip(used).filter(|(_, used)| *used);
        parts.for_each(|(part, _)| part.hash(&mut hasher));
        hasher.finish() | 1
    }
}

/// Those calls that say something, by when they began.
fn spoken<'a>(calls: &'a [Call], places: &[usize]) -> Vec<Said<'a>> {
    let said = |at: &usize| {
        let call = calls.get(*at)?;
        Some(Said { at: *at, call, parts: parts(call)? })
    };
    let mut all: Vec<Said<'_>> = places.iter().filter_map(said).collect();
    all.sort_by_key(|said| said.call.began_ns);
    all
}

/// Goes through servers' calls, so many of each process, with those of the clients' calls that each can lie within. Both
/// are in order of time.
fn sweep<'a>(
    asking: &'a [Said<'a>],
    asked: &'a [Said<'a>],
    mut with: impl FnMut(&'a Said<'a>, &[&'a Said<'a>]),
) {
    let mut looks: HashMap<Process, usize> = HashMap::new();
    let (mut open, mut next): (Vec<&Said<'_>>, usize) = (Vec::new(), 0);
    for server in asked {
        let looks = looks.entry(server.process()).or_default();
        if *looks == LOOK {
            continue;
        }
        let begin = server.call.began_ns;
        let has_begun =
            |client: &&Said<'_>| client.call.began_ns <= begin.saturating_add(ROUNDED_NS);
        while let Some(client) = asking.get(next).filter(has_begun) {
            open.push(client);
            next += 1;
        }
        open.retain(|client| client.call.time_ns >= begin);
        let latest = open.get(open.len().saturating_sub(LOOK_AT)..).unwrap_or_default();
        if !latest.is_empty() {
            *looks += 1;
            with(server, latest);
        }
    }
}

/// Which parts both sides say alike. Not all languages need count alike: what most calls have alike counts.
fn alike(asking: &[Said<'_>], asked: &[Said<'_>]) -> [bool; 3] {
    let (mut all, mut same) = (0, [0; 3]);
    sweep(asking, asked, |server, clients| {
        all += 1;
        for (part, same) in same.iter_mut().enumerate() {
            *same += usize::from(clients.iter().any(|client| client.is_like(server, part)));
        }
    });
    same.map(|same| 2 * same > all)
}

/// Processes most of whose calls are like none on the other side in these parts.
fn without_equals(asking: &[Said<'_>], asked: &[Said<'_>], used: [bool; 3]) -> HashSet<Process> {
    // By process: calls that can have an equal, and those that have one.
    let mut counts: HashMap<Process, [usize; 2]> = HashMap::new();
    let mut count = |said: &Said<'_>, others: &[&Said<'_>]| {
        let [all, same] = counts.entry(said.process()).or_default();
        let is_equal = |other: &&Said<'_>| {
            (0..).zip(used).all(|(part, used)| !used || said.is_like(other, part))
        };
        *all += 1;
        *same += usize::from(others.iter().any(is_equal));
    };
    sweep(asking, asked, |server, clients| count(server, clients));
    let mut looks: HashMap<Process, usize> = HashMap::new();
    for client in asking {
        let looks = looks.entry(client.process()).or_default();
        let Call { began_ns, time_ns, .. } = *client.call;
        let is_before =
            |server: &Said<'_>| server.call.began_ns.saturating_add(ROUNDED_NS) < began_ns;
        let within = asked.iter().skip(asked.partition_point(is_before));
        let within = within.take_while(|server| server.call.began_ns <= time_ns);
        let within: Vec<&Said<'_>> = within.take(LOOK_AT).collect();
        if *looks < LOOK && !within.is_empty() {
            *looks += 1;
            count(client, &within);
        }
    }
    let without = counts.into_iter().filter(|(_, [all, same])| 2 * same <= *all);
    without.map(|(process, _)| process).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of `Shop/Buy`: when it was, in microseconds, of which process, for which call, and how long its
    /// question was. Its trace has the number of its span.
    fn call(
        server: bool,
        [from, to]: [u64; 2],
        pid: u32,
        [span, parent]: [u64; 2],
        bytes: u64,
    ) -> Call {
        let flags = if server { rpc::SERVER } else { 0 };
        let counts = if server { 1 << 32 } else { 1 };
        let [sent_bytes, received_bytes] = if server { [3, bytes] } else { [bytes, 3] };
        Call {
            began_ns: 1_000 * from,
            time_ns: 1_000 * to,
            file: 0,
            pid,
            tid: pid,
            what: rpc::What { service: 1, method: 0, status: 0, ended: FINISHED, flags },
            counts,
            sent_bytes,
            received_bytes,
            trace: [0, span],
            span,
            parent,
            values: Vec::new(),
            found: None,
        }
    }

    /// A client asks a server, which asks another one: spans are 1, 2, 3, 4 and so on.
    fn chains(count: u64, apart_us: u64) -> Vec<Call> {
        let mut calls = Vec::new();
        for number in 0..count {
            let at = |us: u64| number * apart_us + us;
            let span = 4 * number;
            calls.push(call(false, [at(0), at(1_000)], 1, [span + 1, 0], 10));
            calls.push(call(true, [at(100), at(900)], 2, [span + 2, 0], 10));
            let mut inner = call(false, [at(200), at(800)], 2, [span + 3, span + 2], 10);
            inner.trace = [0, span + 2];
            calls.push(inner);
            calls.push(call(true, [at(300), at(700)], 3, [span + 4, 0], 10));
        }
        calls
    }

    #[test]
    fn a_servers_call_is_its_clients_though_others_are_around_it() {
        let mut calls = chains(200, 5_000);
        let joined = join(&mut calls, &[]);
        for call in &calls {
            let first = (call.span - 1) % 4 == 0;
            assert_eq!(call.parent, if first { 0 } else { call.span - 1 });
        }
        assert!(calls.iter().all(|call| call.trace == [0, (call.span - 1) / 4 * 4 + 1]));
        assert_eq!(joined.counts[0], 0);
        assert!(joined.note().unwrap().starts_with("of 400 calls"), "{joined:?}");
    }

    #[test]
    fn what_has_ids_keeps_them() {
        let mut calls = chains(50, 5_000);
        for at in 0..calls.len() {
            if calls[at].is_server() {
                let client = (calls[at - 1].span, calls[at - 1].trace);
                (calls[at].parent, calls[at].trace) = client;
            }
        }
        let before: Vec<_> = calls.iter().map(|call| (call.parent, call.trace)).collect();
        assert!(note_of_loose(&calls).is_none());
        assert!(join(&mut calls, &[]).note().is_none());
        let after: Vec<_> = calls.iter().map(|call| (call.parent, call.trace)).collect();
        assert_eq!(before, after);
    }

    #[test]
    fn lengths_tell_calls_apart_that_times_do_not() {
        // All at once, and the servers' calls in any order.
        let mut calls = Vec::new();
        for number in 0..40 {
            calls.push(call(false, [number, 1_000], 1, [number + 1, 0], number));
            let other = 39 - number;
            calls.push(call(true, [100 + number, 900], 2, [other + 101, 0], other));
        }
        assert!(note_of_loose(&calls).unwrap().starts_with("40 calls"));
        join(&mut calls, &[]);
        for server in calls.iter().filter(|call| call.is_server()) {
            assert_eq!(server.parent + 100, server.span);
            assert_eq!(server.found, Some(Found { candidates: 1, likely: 1000 }));
        }
    }

    #[test]
    fn a_side_that_counts_otherwise_is_joined_by_times() {
        let mut calls = chains(100, 5_000);
        for call in calls.iter_mut().filter(|call| call.pid == 3) {
            call.received_bytes += 2;
        }
        join(&mut calls, &[]);
        let ends = calls.iter().filter(|call| call.pid == 3);
        assert!(ends.clone().all(|call| call.parent == call.span - 1) && ends.count() == 100);
    }

    /// Every call is its own client's, whatever its place.
    fn assert_joined(calls: &[Call]) {
        let servers = calls.iter().filter(|call| call.is_server());
        let wrong = servers.filter(|call| call.parent + 1 != call.span).count();
        assert_eq!(wrong, 0);
    }

    /// A client of a process asks a server of another one, which counts some bytes more.
    fn asks(calls: &mut Vec<Call>, client: u32, server: u32, more: u64) {
        let number = calls.len() as u64;
        let (at, bytes) = (1_000 * number, number % 7);
        calls.push(call(false, [at, at + 900], client, [number + 1, 0], bytes));
        calls.push(call(true, [at + 100, at + 800], server, [number + 2, 0], bytes + more));
    }

    #[test]
    fn a_client_that_counts_otherwise_is_joined_by_times() {
        let mut calls = Vec::new();
        for number in 0..200 {
            match number % 3 {
                0 => asks(&mut calls, 4, 2, 2),
                _ => asks(&mut calls, 1, 2, 0),
            }
        }
        join(&mut calls, &[]);
        assert_joined(&calls);
    }

    #[test]
    fn a_process_that_counts_otherwise_may_come_late() {
        let mut calls = Vec::new();
        (0..=LOOK).for_each(|_| asks(&mut calls, 1, 2, 0));
        (0..100).for_each(|_| asks(&mut calls, 1, 3, 2));
        join(&mut calls, &[]);
        assert_joined(&calls);
    }

    #[test]
    fn what_cannot_be_is_no_candidate() {
        let mut calls = vec![call(false, [5, 5], 1, [1, 2], 10), call(true, [5, 5], 1, [2, 0], 10)];
        calls[0].trace = [0, 2];
        let joined = join(&mut calls, &[]);
        assert_eq!((calls[1].parent, joined.counts), (0, [1, 0, 0]));
        assert_eq!(calls[1].found, Some(Found { candidates: 0, likely: 1000 }));
    }

    #[test]
    fn connections_tell_calls_apart_that_times_do_not() {
        // Clients ask one after the other, soon; their questions reach the server in any order.
        let (mut calls, mut wires) = (Vec::new(), Vec::new());
        for number in 0..40 {
            let other = 39 - number;
            let [asks, comes] = [10 * number, 1_000 + 10 * other];
            calls.push(call(false, [asks, 2_000 + asks], 1, [number + 1, 0], 10));
            calls.push(call(true, [comes + 2, comes + 500], 2, [number + 101, 0], 10));
            let end = |pid: u32, from: u64, to: u64| End {
                pid,
                asked_ns: 1_000 * from,
                answered_ns: 1_000 * to,
            };
            wires.push(Wire {
                method: (1, 0),
                client: end(1, asks + 3, 1_990 + asks),
                server: end(2, comes, comes + 510),
            });
        }
        join(&mut calls, &wires);
        for server in calls.iter().filter(|call| call.is_server()) {
            assert_eq!(server.parent + 100, server.span);
        }
    }

    #[test]
    fn what_lasts_no_time_makes_no_circle() {
        // Each is within the other.
        let mut calls = Vec::new();
        for number in 0..30 {
            let span = 2 * number + 1;
            let mut client = call(false, [5, 5], 1, [span, span + 1], 10);
            client.trace = [0, span + 1];
            calls.push(client);
            calls.push(call(true, [5, 5], 1, [span + 1, 0], 10));
        }
        join(&mut calls, &[]);
        let parents: HashMap<u64, u64> =
            calls.iter().map(|call| (call.span, call.parent)).collect();
        for call in &calls {
            let (mut at, mut steps) = (call.span, 0);
            while let Some(parent) = parents.get(&at).filter(|parent| **parent != 0) {
                at = *parent;
                steps += 1;
                assert!(steps <= calls.len(), "a circle");
            }
        }
    }
}
