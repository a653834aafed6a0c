//! Events of threads, as rows to draw below their calls: what the thread did, what lasted from one
//! event to another, and each event by itself.

use std::cmp::Reverse;

use fettle_follow::{SpanCodes, ThreadEvent, for_each_thread_doing, for_each_thread_event};
use fettle_requests::{Activity, State, Wait};
use fettle_trace::{Thread, Trace};
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::label::{Label, Named};
use crate::track::{Span, Track};

/// Events held at most.
const EVENTS_MAX: u64 = 1 << 28;

/// Rows of one thread.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// What it did; `None` if no event says.
    pub states: Vec<Span>,
    /// What lasted, in any order.
    pub lasting: Vec<Span>,
    /// Each event, in order of time.
    pub events: Track,
}

/// Tracks made from a trace's events.
#[derive(Debug, Default)]
pub(crate) struct Reporting {
    /// By index of the thread.
    pub threads: FxHashMap<u32, Reported>,
    /// Threads that the trace's table does not have.
    pub unknown: Vec<Thread>,
    /// What is drawn, behind the labels that there were.
    pub labels: Vec<Label>,
    pub warnings: Vec<String>,
    pub left_out: u64,
}

/// Makes tracks from events. Labels are numbered from `first_label` on.
pub(crate) fn read(trace: &Trace, threads: &[Thread], first_label: u32) -> Result<Reporting> {
    if trace.manifest().events.rows() == 0 {
        return Ok(Reporting::default());
    }
    let tasks = Tasks::new(threads, trace.manifest().duration_ns);
    let mut reader = Reader {
        tasks,
        telling: Reporting::default(),
        open: FxHashMap::default(),
        spans: FxHashMap::default(),
        named: Spans::default(),
    };
    reader.events(trace, first_label)?;
    let behind = first_label + reader.telling.labels.len() as u32;
    reader.states(trace, behind)?;
    let Reader { tasks, mut telling, .. } = reader;
    telling.unknown = tasks.unknown;
    Ok(telling)
}

/// Which thread a number was at a time: numbers are used again.
struct Tasks {
    /// By number: since when, and the index.
    known: FxHashMap<u32, Vec<(u64, u32)>>,
    next: u32,
    unknown: Vec<Thread>,
    end_ns: u64,
}

impl Tasks {
    fn new(threads: &[Thread], end_ns: u64) -> Tasks {
        let mut known: FxHashMap<u32, Vec<(u64, u32)>> = FxHashMap::default();
        for thread in threads {
            known.entry(thread.tid).or_default().push((thread.start_ns, thread.index));
        }
        known.values_mut().for_each(|times| times.sort_unstable());
        let next = threads.iter().map(|thread| thread.index + 1).max().unwrap_or(0);
        Tasks { known, next, unknown: Vec::new(), end_ns }
    }

    /// The thread that a number is known as.
    fn find(&self, tid: u32, time_ns: u64) -> Option<u32> {
        let times = self.known.get(&tid)?;
        let after = times.partition_point(|(start_ns, _)| *start_ns <= time_ns);
        Some(times[after.saturating_sub(1)].1)
    }

    /// The same; a new one if it is of none.
    fn at(&mut self, tid: u32, time_ns: u64) -> u32 {
        self.find(tid, time_ns).unwrap_or_else(|| {
            let (index, end_ns) = (self.next, self.end_ns);
            self.next += 1;
            self.unknown.push(Thread { index, tid, end_ns, ..Thread::default() });
            self.known.insert(tid, vec![(0, index)]);
            index
        })
    }
}

struct Reader {
    tasks: Tasks,
    telling: Reporting,
    /// What has begun and not ended, by index of the thread: since when, and what.
    open: FxHashMap<u32, Vec<(u64, usize)>>,
    /// Spans of tracing libraries that have begun and not ended, by what tells them apart: since when, and the
    /// name's code.
    spans: FxHashMap<(u32, u32), (u64, u32)>,
    named: Spans,
}

/// Labels of spans and their events, by what they are, the kind of their events and the name's code. Their
/// numbers are behind those of kinds.
#[derive(Default)]
struct Spans {
    known: FxHashMap<(Role, usize, u32), u32>,
    order: Vec<(Role, usize, u32)>,
}

/// What is called like a span.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    Lasting,
    Event,
}

/// Names of spans at most: with more of them, they are no names of kinds of work.
const SPAN_NAMES_MAX: usize = 1 << 16;

impl Spans {
    /// The number among these labels; `None` if there are too many.
    fn label(&mut self, role: Role, kind: usize, name: u32) -> Option<u32> {
        let key = (role, kind, name);
        if let Some(known) = self.known.get(&key) {
            return Some(*known);
        }
        if self.order.len() >= SPAN_NAMES_MAX {
            return None;
        }
        let number = self.order.len() as u32;
        self.known.insert(key, number);
        self.order.push(key);
        Some(number)
    }
}

impl Reader {
    /// What threads did, by events that say so.
    fn states(&mut self, trace: &Trace, first_label: u32) -> Result<()> {
        let label = |state: State| first_label + state.index() as u32;
        let mut now: FxHashMap<u32, (u64, State)> = FxHashMap::default();
        let (tasks, telling) = (&self.tasks, &mut self.telling);
        let problems = for_each_thread_doing(trace, &mut |time_ns, tid, doing| {
            // Threads that are not in the trace are woken, too: they have no row.
            let Some(index) = tasks.find(tid, time_ns) else { return };
            let states = &mut telling.threads.entry(index).or_default().states;
            let new = match doing {
                Activity::Was(wait) => return corrected(states, &mut now, index, wait, label),
                Activity::Is(state) => Some((time_ns, state)),
                Activity::Gone => None,
            };
            let old = match new {
                Some((_, state)) if now.get(&index).is_some_and(|(_, was)| *was == state) => return,
                Some(new) => now.insert(index, new),
                None => now.remove(&index),
            };
            states.extend(old.map(|(since_ns, state)| plain(since_ns, time_ns, label(state))));
        })?;
        let end_ns = trace.manifest().duration_ns;
        for (index, (since_ns, state)) in now {
            let states = &mut telling.threads.entry(index).or_default().states;
            states.push(plain(since_ns, end_ns.max(since_ns), label(state)));
        }
        telling.warnings.extend(problems);
        let named = |state: State| Label { name: state.name().to_owned(), named: Named::State };
        telling.labels.extend(State::ALL.map(named));
        Ok(())
    }

    /// Each event, and what lasted from one to another.
    fn events(&mut self, trace: &Trace, first_label: u32) -> Result<()> {
        let (kinds, _) = trace.event_kinds()?;
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
        let pairs = Pairs::new(&names);
        let lasting = first_label + names.len() as u32;
        let spans = lasting + pairs.ends().count() as u32;
        let labels = FirstLabels { kinds: first_label, lasting, spans };
        let mut count = 0;
        let reported = for_each_thread_event(trace, &mut |event| {
            count += 1;
            if count > EVENTS_MAX {
                self.telling.left_out += 1;
                return;
            }
            let index = self.tasks.at(event.tid, event.time_ns);
            self.event(event, index, &pairs, labels);
        })?;
        self.telling.warnings.extend(reported.problems);
        let label = |name: &str, named| Label { name: name.to_owned(), named };
        let labels = &mut self.telling.labels;
        labels.extend(names.iter().map(|name| label(name, Named::Event)));
        labels.extend(pairs.ends().map(|kind| label(names[kind], Named::Lasting)));
        labels.extend(self.named.order.iter().map(|&(role, kind, name)| {
            let kind = names[kind].to_owned();
            let named = match role {
                Role::Lasting => Named::Span { kind },
                Role::Event => Named::OfSpan { kind },
            };
            label(reported.texts.text(name).unwrap_or_default(), named)
        }));
        Ok(())
    }

    fn event(&mut self, event: ThreadEvent, index: u32, pairs: &Pairs, labels: FirstLabels) {
        let ThreadEvent { time_ns, kind, .. } = event;
        if let Some(codes) = event.span
            && self.span(event, codes, index, labels)
        {
            return;
        }
        let reported = self.telling.threads.entry(index).or_default();
        reported.events.push(plain(time_ns, time_ns, labels.kinds + kind as u32));
        match pairs.0[kind] {
            Pair::Neither => {}
            Pair::Begins => self.open.entry(index).or_default().push((time_ns, kind)),
            Pair::Ends { begin, place } => {
                let Some(open) = self.open.get_mut(&index) else { return };
                let Some(at) = open.iter().rposition(|(_, kind)| *kind == begin) else { return };
                // What began within it and has not ended was cut off.
                let since_ns = open[at].0;
                open.truncate(at);
                reported.lasting.push(plain(since_ns, time_ns, labels.lasting + place));
            }
        }
    }

    /// The beginning or the end of a span that has a name; whether it is drawn by that.
    fn span(
        &mut self,
        event: ThreadEvent,
        codes: SpanCodes,
        index: u32,
        labels: FirstLabels,
    ) -> bool {
        let ThreadEvent { time_ns, kind, .. } = event;
        let begun = match codes.name {
            Some(name) => {
                self.spans.insert(codes.id, (time_ns, name));
                (time_ns, name)
            }
            None => match self.spans.remove(&codes.id) {
                Some(begun) => begun,
                None => return false,
            },
        };
        let (since_ns, name) = begun;
        let Some(label) = self.named.label(Role::Event, kind, name) else { return false };
        let lasting = match codes.name {
            Some(_) => None,
            None => match self.named.label(Role::Lasting, kind, name) {
                Some(lasting) => Some(lasting),
                None => return false,
            },
        };
        let reported = self.telling.threads.entry(index).or_default();
        reported.events.push(plain(time_ns, time_ns, labels.spans + label));
        if let Some(lasting) = lasting {
            reported.lasting.push(plain(since_ns, time_ns, labels.spans + lasting));
        }
        true
    }
}

/// Where labels begin: of kinds of events, of what lasted until one, and of spans by their names.
#[derive(Clone, Copy)]
struct FirstLabels {
    kinds: u32,
    lasting: u32,
    spans: u32,
}

/// A span of a thread that is drawn by itself.
fn plain(from_ns: u64, to_ns: u64, label: u32) -> Span {
    let duration_ns = to_ns.saturating_sub(from_ns);
    Span { start_ns: from_ns, duration_ns, label, weight: 1, off_cpu_ns: 0 }
}

/// What a thread waited for last turned out to be something else.
fn corrected(
    states: &mut [Span],
    now: &mut FxHashMap<u32, (u64, State)>,
    index: u32,
    wait: Wait,
    label: impl Fn(State) -> u32,
) {
    let is_wait = |state: State| matches!(state, State::Waiting(_));
    if let Some((_, state)) = now.get_mut(&index)
        && is_wait(*state)
    {
        *state = State::Waiting(wait);
        return;
    }
    let waits: Vec<u32> =
        State::ALL.into_iter().filter(|state| is_wait(*state)).map(&label).collect();
    if let Some(last) = states.iter_mut().rev().find(|span| waits.contains(&span.label)) {
        last.label = label(State::Waiting(wait));
    }
}

/// What a kind of event is to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pair {
    Neither,
    Begins,
    /// What began with an event of kind `begin`.
    Ends {
        begin: usize,
        /// How many kinds before it end something.
        place: u32,
    },
}

/// For each kind of event, whether it begins or ends something: `poll` ends what `poll_begin` began,
/// so does `accept_failed` what `accept_begin` did; `page_fault_done` ends `page_fault`.
#[derive(Debug)]
struct Pairs(Vec<Pair>);

impl Pairs {
    fn new(names: &[&str]) -> Pairs {
        let place = |wanted: String| names.iter().position(|name| *name == wanted);
        let begins = |name: &str| {
            let done = place(format!("{name}_done"));
            name.ends_with("_begin") || done.is_some()
        };
        let begin_of = |name: &str| {
            let plain = name.strip_suffix("_failed").unwrap_or(name);
            name.strip_suffix("_done")
                .or(name.strip_suffix("_end"))
                .and_then(|base| place(format!("{base}_begin")).or(place(base.to_owned())))
                .or(place(format!("{plain}_begin")))
                .or(match name {
                    "received" => place("receive_begin".to_owned()),
                    "sent" => place("send_begin".to_owned()),
                    _ => None,
                })
        };
        let mut places = 0..;
        let pair = |name: &&str| match begin_of(name) {
            Some(begin) => Pair::Ends { begin, place: places.next().unwrap_or_default() },
            None if begins(name) => Pair::Begins,
            None => Pair::Neither,
        };
        Pairs(names.iter().map(pair).collect())
    }

    /// The kinds that end something, in order of their places.
    fn ends(&self) -> impl Iterator<Item = usize> {
        let ends = |(_, pair): &(usize, &Pair)| matches!(pair, Pair::Ends { .. });
        self.0.iter().enumerate().filter(ends).map(|(kind, _)| kind)
    }
}

impl Reported {
    /// The rows, from top to bottom.
    pub(crate) fn rows(self) -> Vec<Track> {
        let mut states = Track::default();
        for span in self.states {
            states.push(span);
        }
        let mut rows = vec![states];
        rows.extend(nested(self.lasting));
        rows.push(self.events);
        rows.retain(|row| !row.is_empty());
        rows
    }
}

/// Spans as rows: what lies within another one is below that.
fn nested(mut spans: Vec<Span>) -> Vec<Track> {
    spans.sort_by_key(|span| (span.start_ns, Reverse(span.duration_ns)));
    let (mut rows, mut ends): (Vec<Track>, Vec<u64>) = (Vec::new(), Vec::new());
    for span in spans {
        // Spans of tracing libraries overlap without one lying within the other.
        let free = ends.iter().position(|end_ns| *end_ns <= span.start_ns);
        let depth = free.unwrap_or(rows.len());
        if rows.len() <= depth {
            rows.resize_with(depth + 1, Track::default);
            ends.push(0);
        }
        rows[depth].push(span);
        ends[depth] = span.end_ns();
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_and_ends_belong_together() {
        let names = [
            "accept",
            "accept_begin",
            "accept_failed",
            "page_fault",
            "page_fault_done",
            "poll",
            "poll_begin",
            "receive_begin",
            "received",
            "wakeup",
        ];
        let Pairs(pairs) = Pairs::new(&names);
        let ends = |name: &str| match pairs[names.iter().position(|n| *n == name).unwrap()] {
            Pair::Neither => "nothing",
            Pair::Begins => "begins",
            Pair::Ends { begin, .. } => names[begin],
        };
        assert_eq!((ends("accept"), ends("accept_failed")), ("accept_begin", "accept_begin"));
        assert_eq!((ends("page_fault"), ends("page_fault_done")), ("begins", "page_fault"));
        assert_eq!((ends("received"), ends("receive_begin")), ("receive_begin", "begins"));
        assert_eq!((ends("poll"), ends("wakeup")), ("poll_begin", "nothing"));
    }

    #[test]
    fn what_lies_within_is_below() {
        let rows = nested(vec![plain(3, 5, 1), plain(0, 10, 0), plain(5, 10, 2), plain(10, 11, 3)]);
        let labels: Vec<&[u32]> = rows.iter().map(Track::labels).collect();
        assert_eq!(labels, [&[0, 3][..], &[1, 2]]);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_thread() {
        let thread = |index, start_ns| Thread { index, tid: 7, start_ns, ..Thread::default() };
        let mut tasks = Tasks::new(&[thread(0, 100), thread(1, 200)], 900);
        assert_eq!(tasks.find(9, 0), None);
        assert_eq!([0, 100, 199, 200].map(|ns| tasks.at(7, ns)), [0, 0, 0, 1]);
        assert_eq!((tasks.at(9, 0), tasks.at(9, 500), tasks.unknown.len()), (2, 2, 1));
    }
}
