//! The critical path: what the request would have had to do faster to be done earlier.
//!
//! Walked backwards from the last event. Where the actor ran or could have run, it stays with it. Where
//! it waited, the link that ended the wait says which actor was waited for: if that is an actor of the
//! request, the path goes on there from the time at which it let go; if not, the wait itself is on the
//! path, with the name of the actor that caused it. What lies between letting go and going on (a
//! wake-up, bytes under way) is on the path too. So the steps of a path cover the request's time without
//! gaps from the first time that can be explained to the last at which an actor works on it, and no two
//! overlap.

use std::collections::HashMap;

use crate::request::{Link, LinkKind, Peer, Request, RequestEvent, RequestSection, Span};
use crate::state::{State, Wait};

/// A part of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Place in [`Request::sections`] of the actor.
    pub section: u32,
    /// What it did.
    pub state: State,
    /// From then on.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
    /// The actor that ended the wait, if one is known that did not work on this request.
    pub waited_for: Option<Peer>,
}

impl Request {
    /// Its critical path, first step first. Empty if no actor is known.
    pub fn critical_path(&self) -> Vec<Step> {
        let Some(last) = self.last_actor() else { return Vec::new() };
        let mut walk = Walk::new(self, last);
        // Each round goes back in time, or to another section at the same time; the numbers of spans,
        // links and sections bound both.
        for _ in 0..=(self.spans.len() + self.links.len() + self.sections.len()) * 2 {
            if !walk.back() {
                break;
            }
        }
        walk.steps.reverse();
        walk.steps
    }

    /// The actor that the last event happened to.
    fn last_actor(&self) -> Option<u32> {
        let of_event = self.events.iter().rev().find_map(RequestEvent::actor);
        let by_time = || {
            let spans = self.spans.iter().max_by_key(|span| span.to_ns);
            spans.map(|span| span.section)
        };
        of_event.or_else(by_time)
    }
}

struct Walk<'a> {
    request: &'a Request,
    /// Spans and links of each section, in order of time.
    spans: Vec<Vec<Span>>,
    links: Vec<Vec<Link>>,
    left: Departures,
    section: u32,
    at_ns: u64,
    steps: Vec<Step>,
}

/// Sections of actors in the order in which they were left; of those that were at once, the later one
/// comes later.
struct Departures {
    all: Vec<u32>,
    by_actor: HashMap<(usize, u128), Vec<u32>>,
}

impl Departures {
    fn new(sections: &[RequestSection]) -> Departures {
        let actors = (0..).zip(sections).filter(|(_, section)| section.actor);
        let mut all: Vec<u32> = actors.map(|(n, _)| n).collect();
        all.sort_by_key(|n| sections[*n as usize].left_ns);
        let mut by_actor: HashMap<_, Vec<u32>> = HashMap::new();
        for n in &all {
            let RequestSection { timeline, key, .. } = sections[*n as usize];
            by_actor.entry((timeline, key)).or_default().push(*n);
        }
        Departures { all, by_actor }
    }

    /// A section of an actor, and those that it left later.
    fn since(&self, sections: &[RequestSection], section: u32) -> impl Iterator<Item = u32> {
        let RequestSection { timeline, key, left_ns, .. } = sections[section as usize];
        let of_actor = self.by_actor.get(&(timeline, key)).map_or(&[][..], Vec::as_slice);
        let from = of_actor.partition_point(|n| sections[*n as usize].left_ns < left_ns);
        of_actor[from..].iter().copied().skip_while(move |n| *n != section)
    }
}

impl Walk<'_> {
    fn new(request: &Request, section: u32) -> Walk<'_> {
        let mut spans = vec![Vec::new(); request.sections.len()];
        for span in &request.spans {
            let Some(section) = request.sections.get(span.section as usize) else { continue };
            // How the work came to it, and how long it was queued there, follows from links.
            let from_ns = span.from_ns.max(section.joined_ns);
            if from_ns < span.to_ns {
                spans[span.section as usize].push(Span { from_ns, ..*span });
            }
        }
        let mut links = vec![Vec::new(); request.sections.len()];
        for link in &request.links {
            if let Some(list) = links.get_mut(link.to as usize) {
                list.push(*link);
            }
        }
        let left = Departures::new(&request.sections);
        Walk { request, spans, links, left, section, at_ns: request.end_ns, steps: Vec::new() }
    }

    fn step(&mut self, state: State, from_ns: u64, waited_for: Option<Peer>) {
        let (section, to_ns) = (self.section, self.at_ns);
        // A link may come from a time at which its actor had not got the request yet.
        let from_ns = from_ns.max(self.request.begin_ns);
        if from_ns >= to_ns {
            return;
        }
        self.at_ns = from_ns;
        let step = Step { section, state, from_ns, to_ns, waited_for };
        match self.steps.last_mut() {
            // Steps are met last first, so this one lies before the one on top.
            Some(later)
                if (later.section, later.state, later.waited_for)
                    == (section, state, waited_for)
                    && later.from_ns == to_ns =>
            {
                later.from_ns = from_ns;
            }
            _ => self.steps.push(step),
        }
    }

    /// Takes a step; `false` at the beginning.
    fn back(&mut self) -> bool {
        let at = self.at_ns;
        if at <= self.request.begin_ns {
            return false;
        }
        let here = self.section as usize;
        let before = self.spans[here].partition_point(|span| span.from_ns < at);
        let Some((n, span)) = before.checked_sub(1).map(|n| (n, self.spans[here][n])) else {
            return self.arrive();
        };
        if span.to_ns < at && self.steps.is_empty() {
            // No actor that is seen works on it at the end: a peer has yet to take the last bytes, or to
            // close the connection. That is no step of any actor.
            self.at_ns = span.to_ns;
            return true;
        }
        if span.to_ns < at {
            // Nothing is known of the time since: it was counted before it could be, at the end.
            self.step(State::Running, span.to_ns, None);
            return true;
        }
        let State::Waiting(_) = span.state else {
            self.step(span.state, span.from_ns, None);
            return true;
        };
        // The actor that ended this wait: the last that let go during it.
        let ended = |link: &&Link| {
            link.from_ns > span.from_ns
                && link.from_ns <= span.to_ns.min(at)
                && link.to_ns >= span.from_ns
        };
        let link = self.links[here].iter().filter(ended).max_by_key(|link| link.from_ns).copied();
        match link.or_else(|| self.ended_by_call(n)) {
            Some(link) => self.follow(link, span.state, span.from_ns),
            None => self.step(span.state, span.from_ns, None),
        }
        true
    }

    /// What ended a wait for the network that no link has ended by its end, span `n` of this section:
    /// the link of a sender has the time at which its call returns, and it has woken the reader before
    /// that. The first to send of those whose bytes the actor took before its next wait.
    fn ended_by_call(&self, n: usize) -> Option<Link> {
        let wait = self.spans[self.section as usize][n];
        if wait.state != State::Waiting(Wait::Network) {
            return None;
        }
        let mut until_ns = u64::MAX;
        let mut first: Option<Link> = None;
        for section in self.left.since(&self.request.sections, self.section) {
            let spans = &self.spans[section as usize];
            let after = spans.partition_point(|span| span.from_ns < wait.to_ns);
            let next = spans[after..].iter().find(|span| matches!(span.state, State::Waiting(_)));
            until_ns = next.map_or(until_ns, |next| next.from_ns);
            let taken = |link: &&Link| {
                link.kind == LinkKind::Bytes && link.from_ns > wait.to_ns && link.to_ns <= until_ns
            };
            let links = self.links[section as usize].iter().filter(taken).copied();
            first = first.into_iter().chain(links).min_by_key(|link| link.from_ns);
            if next.is_some() {
                break;
            }
        }
        first
    }

    /// Goes over to the actor that a link comes from, or stays if it is an outsider.
    fn follow(&mut self, link: Link, waiting: State, since_ns: u64) {
        match link.from {
            Peer::Section(from) if from != self.section => {
                self.step(link.between, link.from_ns, None);
                self.section = from;
            }
            Peer::Section(_) => self.step(waiting, since_ns, None),
            outsider => self.step(waiting, since_ns, Some(outsider)),
        }
    }

    /// At the beginning of a section: goes to where the request came from.
    fn arrive(&mut self) -> bool {
        let here = self.section as usize;
        let Some(RequestSection { joined_ns, .. }) = self.request.sections.get(here).copied()
        else {
            return false;
        };
        // The same actor may have had the request just before: its section was cut, not left.
        let earlier = self.left_until(joined_ns, Some(here), |n, _| n < here);
        if let Some((earlier, _)) = earlier.filter(|(_, left_ns)| *left_ns == joined_ns) {
            self.section = earlier;
            return true;
        }
        let came = self.links[here].iter().filter(|link| {
            matches!(link.from, Peer::Section(_))
                && link.to_ns <= joined_ns
                && link.from_ns <= self.at_ns
        });
        let came = came.max_by_key(|link| link.from_ns).copied();
        // Each section is entered this way once.
        self.links[here].clear();
        // An actor that comes back to what it has let go itself goes on from the one that worked for it
        // last; so does one that was given nothing. What it was given may have lain there until it had
        // done something else for it.
        let given = came.is_some_and(|link| match link.from {
            Peer::Section(from) => !self.is_same_actor(from as usize, here),
            Peer::Outsider { .. } => false,
        });
        let until_ns = joined_ns.min(self.at_ns);
        let left = self.left_until(until_ns, given.then_some(here), |_, section| {
            section.joined_ns < joined_ns
        });
        let (from, from_ns, between) = match (came, left) {
            (Some(Link { from_ns, between, .. }), Some((left, left_ns))) if left_ns > from_ns => {
                (left, left_ns, between)
            }
            (Some(Link { from: Peer::Section(from), from_ns, between, .. }), _) => {
                (from, from_ns, between)
            }
            (_, Some((left, left_ns))) => (left, left_ns, State::Waiting(Wait::Sleeping)),
            // It has it from outside: it may have lain there.
            _ => {
                let lay = |span: &&Span| span.section as usize == here && span.to_ns == joined_ns;
                let lay = self.request.spans.iter().find(lay).copied();
                lay.inspect(|span| self.step(span.state, span.from_ns, None));
                return lay.is_some();
            }
        };
        self.step(between, from_ns, None);
        self.section = from;
        true
    }

    /// Of actors' sections, or those of the actor of one, the last that was left by then and is `wanted`,
    /// and when it was left.
    fn left_until(
        &self,
        until_ns: u64,
        actor_of: Option<usize>,
        wanted: impl Fn(usize, &RequestSection) -> bool,
    ) -> Option<(u32, u64)> {
        let sections = &self.request.sections;
        let left = match actor_of.map(|n| &sections[n]) {
            Some(RequestSection { timeline, key, .. }) => {
                self.left.by_actor.get(&(*timeline, *key)).map_or(&[][..], Vec::as_slice)
            }
            None => &self.left.all,
        };
        let end = left.partition_point(|n| sections[*n as usize].left_ns <= until_ns);
        let mut left = left[..end].iter().rev().map(|n| (*n, &sections[*n as usize]));
        let last = left.find(|(n, section)| wanted(*n as usize, section));
        last.map(|(n, section)| (n, section.left_ns))
    }

    /// Whether two sections are one actor's.
    fn is_same_actor(&self, one: usize, other: usize) -> bool {
        let [one, other] = [one, other].map(|n| &self.request.sections[n]);
        (one.timeline, one.key) == (other.timeline, other.key)
    }
}
