//! Messages between two traces: bytes that one of them sent and the other received.
//!
//! A connection is known by its two ends, which both sides name alike. Both have to have seen it
//! begin, the one with `connect` and the other with `accept`; from then on the n-th byte of a
//! direction is the same one on both sides. Ends are used again: the n-th connection between two ends
//! is the n-th of the other trace only if both saw as many.
//!
//! What is recorded of a call is when it *returned*. Bytes had arrived by then at the latest. They
//! may have left much earlier: not before the thread's previous call returned, and not before the
//! connection was established. That is what bounds the clocks; when a call began to wait says
//! nothing.

use rustc_hash::{FxHashMap, FxHashSet};

use fettle_trace::{EventKind, EventRun, Strings, Trace};

use crate::clock::Bounds;
use crate::error::Result;

/// Two ends of a connection, this side's first, by the texts of all traces.
pub(crate) type Pair = (u32, u32);

/// How often connections began in a trace.
#[derive(Default)]
pub(crate) struct Openings {
    /// By their ends: connected, accepted.
    of: FxHashMap<Pair, (u32, u32)>,
}

/// Whether an end is local to a machine: it cannot be reached from another one.
pub(crate) fn is_own(end: &str) -> bool {
    end.starts_with("127.") || end.starts_with("[::1]") || end.starts_with("unix:")
}

/// The value of a field, by its number, in a row; each field of a run has one for each row.
pub(crate) fn value(run: &EventRun<'_>, field: usize, row: usize) -> u64 {
    run.values(field).get(row).copied().unwrap_or_default()
}

/// The result of a connection on its way.
const IN_PROGRESS: i64 = -115;

impl Openings {
    /// Reads them.
    pub(crate) fn read(trace: &Trace, texts: &mut Strings) -> Result<Openings> {
        let mut openings = Openings::default();
        let mut roles = Vec::new();
        let (mut stream, _) = trace.events(&mut |kind| {
            let (role, places) = role(kind)?;
            let opens = matches!(role, Role::Connect | Role::Accept);
            opens.then(|| roles.push(role))?;
            Some(places)
        })?;
        while let Some(run) = stream.next(u64::MAX, &mut |text| texts.code(text))? {
            let role = roles.get(run.kind).copied();
            let pairs = run.values(1).iter().zip(run.values(2));
            for (row, (here, there)) in pairs.enumerate() {
                let count = openings.of.entry((*here as u32, *there as u32)).or_default();
                match role {
                    Some(Role::Connect) if opened(value(&run, 3, row)) => count.0 += 1,
                    Some(Role::Accept) => count.1 += 1,
                    _ => {}
                }
            }
        }
        Ok(openings)
    }

    /// Connections of which both sides are here.
    pub(crate) fn inner(&self) -> FxHashSet<Pair> {
        let both = |(here, there): &Pair| {
            let accepted = self.of.get(&(*there, *here)).is_some_and(|(_, accepted)| *accepted > 0);
            self.of.get(&(*here, *there)).is_some_and(|(connected, _)| *connected > 0) && accepted
        };
        let inner = self.of.keys().filter(|pair| both(pair));
        inner.flat_map(|(here, there)| [(*here, *there), (*there, *here)]).collect()
    }

    /// Connections that were opened here and accepted there.
    pub(crate) fn shared(&self, there: &Openings, texts: &Strings) -> Vec<Pair> {
        let matches = |((a, b), (connected, accepted)): (&Pair, &(u32, u32))| {
            let other = there.of.get(&(*b, *a)).copied().unwrap_or_default();
            let own = [a, b].iter().any(|end| is_own(texts.text(**end).unwrap_or_default()));
            // A machine that both opens and accepts it knows both sides by itself.
            let once = *accepted == 0 && !self.of.contains_key(&(*b, *a));
            let there_too = other == (0, *connected) && !there.of.contains_key(&(*a, *b));
            !own && once && *connected > 0 && there_too
        };
        let shared = self.of.iter().filter(|(pair, count)| matches((pair, count)));
        let mut shared: Vec<Pair> = shared.map(|(pair, _)| *pair).collect();
        shared.sort_unstable();
        shared
    }
}

fn opened(result: u64) -> bool {
    matches!(result as i64, 0 | IN_PROGRESS)
}

/// What a kind of event says here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Connect,
    Accept,
    Sent,
    Received,
    /// A thread returned from a call.
    Returned,
}

/// Events of a thread that may happen within a call of its.
const WITHIN: [&str; 4] = ["page_fault", "page_fault_done", "signal_delivered", "fork"];

/// What a kind says, and the places of the fields that it takes: `tid` first.
fn role(kind: &EventKind) -> Option<(Role, Vec<usize>)> {
    match kind.name.as_str() {
        "connect" => Some((Role::Connect, kind.places(&["tid", "local", "remote", "result"])?)),
        "accept" => Some((Role::Accept, kind.places(&["tid", "local", "remote"])?)),
        "sent" => Some((Role::Sent, kind.places(&["tid", "local", "remote", "bytes"])?)),
        "received" => Some((Role::Received, kind.places(&["tid", "local", "remote", "bytes"])?)),
        // That a call has to wait is recorded when it does.
        name if name.ends_with("_begin") || WITHIN.contains(&name) => None,
        _ => {
            kind.place("pid")?;
            Some((Role::Returned, kind.places(&["tid"])?))
        }
    }
}

/// One direction of a connection, as one side saw it.
#[derive(Default)]
struct Direction {
    /// Bytes up to and including a call's, and the bound on when they passed.
    calls: Vec<(u64, u64)>,
    /// The thread and the return of the last call.
    last: Option<(u64, u64)>,
    /// Threads called at the same time: whose bytes came first is not known.
    mixed: bool,
}

impl Direction {
    fn call(&mut self, tid: u64, began_ns: u64, returned_ns: u64, bound_ns: u64, bytes: u64) {
        if let Some((other, until_ns)) = self.last {
            self.mixed |= other != tid && began_ns < until_ns;
        }
        self.last = Some((tid, returned_ns));
        let before = self.calls.last().map_or(0, |(bytes, _)| *bytes);
        self.calls.push((before.saturating_add(bytes), bound_ns));
    }

    fn bytes(&self) -> u64 {
        self.calls.last().map_or(0, |(bytes, _)| *bytes)
    }
}

/// A connection, as one side saw it.
#[derive(Default)]
struct Side {
    opened_ns: u64,
    sent: Direction,
    received: Direction,
}

/// What one trace knows of connections: by their ends, one after the other.
pub(crate) struct Sides(FxHashMap<Pair, Vec<Side>>);

impl Sides {
    /// Reads what a trace knows of these connections.
    pub(crate) fn read(
        trace: &Trace,
        wanted: &FxHashSet<Pair>,
        texts: &mut Strings,
    ) -> Result<Sides> {
        let mut roles = Vec::new();
        let (mut stream, _) = trace.events(&mut |kind| {
            let (role, places) = role(kind)?;
            roles.push(role);
            Some(places)
        })?;
        let mut sides: FxHashMap<Pair, Vec<Side>> = FxHashMap::default();
        // When each thread returned last.
        let mut returned: FxHashMap<u64, u64> = FxHashMap::default();
        while let Some(run) = stream.next(u64::MAX, &mut |text| texts.code(text))? {
            let Some(role) = roles.get(run.kind).copied() else { continue };
            for (row, now_ns) in run.times_ns().iter().copied().enumerate() {
                let tid = value(&run, 0, row);
                let before_ns = returned.insert(tid, now_ns).unwrap_or(0);
                if role == Role::Returned {
                    continue;
                }
                let pair = (value(&run, 1, row) as u32, value(&run, 2, row) as u32);
                if !wanted.contains(&pair) {
                    continue;
                }
                let of = sides.entry(pair).or_default();
                let last = if role == Role::Accept { 0 } else { value(&run, 3, row) };
                match (role, of.last_mut()) {
                    (Role::Accept, _) => of.push(Side { opened_ns: now_ns, ..Side::default() }),
                    (Role::Connect, _) if opened(last) => {
                        of.push(Side { opened_ns: before_ns, ..Side::default() });
                    }
                    (Role::Sent, Some(side)) if last as i64 > 0 => {
                        let began_ns = before_ns.max(side.opened_ns);
                        side.sent.call(tid, began_ns, now_ns, began_ns, last);
                    }
                    (Role::Received, Some(side)) if last as i64 > 0 => {
                        let began_ns = before_ns.max(side.opened_ns);
                        side.received.call(tid, began_ns, now_ns, now_ns, last);
                    }
                    _ => {}
                }
            }
        }
        Ok(Sides(sides))
    }
}

/// Messages between two traces, as bounds on what is added to the first one's clock.
pub(crate) struct Between {
    pub(crate) lower: Bounds,
    pub(crate) upper: Bounds,
    /// Connections and directions that say nothing, for calls overlap or bytes are missing.
    pub(crate) unclear: u64,
}

impl Between {
    /// Compares what both know of the connections that the first opened to the second (`to`), and
    /// the second to the first (`from`). With `lossy`, events are missing in one of the traces.
    pub(crate) fn of(a: &Sides, b: &Sides, (to, from): (&[Pair], &[Pair]), lossy: bool) -> Between {
        let mut between = Between { lower: Bounds::lower(), upper: Bounds::upper(), unclear: 0 };
        let turned = from.iter().map(|(there, here)| (*here, *there));
        for (here, there) in to.iter().copied().chain(turned) {
            let none = Vec::new();
            let ours = a.0.get(&(here, there)).unwrap_or(&none);
            let theirs = b.0.get(&(there, here)).unwrap_or(&none);
            for (ours, theirs) in ours.iter().zip(theirs) {
                between.direction(&ours.sent, &theirs.received, lossy, true);
                between.direction(&theirs.sent, &ours.received, lossy, false);
            }
        }
        between
    }

    fn direction(&mut self, sent: &Direction, received: &Direction, lossy: bool, out: bool) {
        // Bytes were received that were not sent: the trace lacks an event. Where events were lost,
        // only complete directions are used.
        let missing = received.bytes() > sent.bytes() || lossy && received.bytes() != sent.bytes();
        if sent.mixed || received.mixed || missing {
            self.unclear += u64::from(!sent.calls.is_empty() || !received.calls.is_empty());
            return;
        }
        let mut sends = sent.calls.iter().copied().peekable();
        for (bytes, received_ns) in received.calls.iter().copied() {
            while sends.next_if(|(until, _)| *until < bytes).is_some() {}
            let Some((_, sent_ns)) = sends.peek().copied() else { return };
            let (at, limit) = (sent_ns as i64, received_ns as i64);
            match out {
                // What is added to the time of sending here leads to the time of receiving there,
                // or before it.
                true => self.upper.add(sent_ns, limit.saturating_sub(at)),
                false => self.lower.add(received_ns, at.saturating_sub(limit)),
            }
        }
    }
}
