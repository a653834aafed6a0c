//! Open requests, and what becomes of them: a [`Complete`], and, if it is read, a [`Request`].

use crate::certainty::{Certainty, Choice, Choices};
use crate::gaps;
use crate::handles::{PeerMark, RequestRef};
use crate::log::{Activity, JoinedSection, Log};
use crate::request::{Link, LinkKind, Outcome, Peer, Request, RequestSection};
use crate::state::State;
use crate::transitions::Transitions;

/// An open request, as small as it can be: one line of the cache and its log. With many open, most of
/// what the engine does is to wait for their memory.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Open {
    pub log: Log,
    /// Open sections it is in, and ranges of its bytes on their way.
    refs: u32,
    generation: u32,
    /// What few requests have.
    rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<Open>() == 64);

/// How many requests begin while another swallows them, at least.
const SWALLOWED: u64 = 64;
/// One event in so many is its then.
const SHARE: u64 = 4;

/// What few requests have.
#[derive(Default)]
struct Rare {
    links: Vec<(Arrival, u32, u64)>,
    shared_with: Vec<u64>,
    /// It has what it asked for.
    settled: bool,
    /// Of its sections in which it was settled the one that it came to first, and when that was last.
    answered: Option<(u32, u64)>,
    /// For how long it had been there when its first event was.
    queued_ns: u64,
    choices: Choices,
    has_swallowed: bool,
}

impl Open {
    fn is_open(&self) -> bool {
        !self.log.is_empty()
    }

    /// It comes into a section; returns the place of the stay.
    #[inline]
    pub fn join(&mut self, joined_section: JoinedSection, place: u32, at_ns: u64) -> u32 {
        self.refs += 1;
        self.log.join(joined_section, place, at_ns)
    }

    /// One of its sections, or ranges, holds it no more; returns whether nothing does.
    #[inline]
    pub fn release(&mut self) -> bool {
        self.refs = self.refs.saturating_sub(1);
        self.refs == 0
    }

    /// Whether nothing holds it.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.refs == 0
    }

    /// One of its actors, by its place among its sections, got something.
    pub fn link(&mut self, to: u32, arrival: Arrival, to_ns: u64) {
        if self.log.is_reported() {
            self.rare().links.push((arrival, to, to_ns));
        }
    }

    /// It has what it asked for, or has not after all.
    pub fn settle(&mut self, settled: bool) {
        if settled || self.rare.is_some() {
            self.rare().settled = settled;
        }
    }

    /// It had been there for some time when its first event was.
    pub fn queue(&mut self, queued_ns: u64) {
        self.rare().queued_ns = queued_ns;
    }

    /// An event of it may be another's.
    pub fn choose(&mut self, choice: Choice) {
        self.rare().choices.add(choice);
    }

    /// Whether it has taken so many of all events since it began, while so many others began, that these
    /// must be others'.
    #[cold]
    pub fn swallows(&mut self, events: usize, begun: u64, ordinal: u64) -> bool {
        let since = ordinal.saturating_sub(self.log.first_ordinal());
        let others = begun.saturating_sub(self.log.id());
        let swallows = others >= SWALLOWED && (events as u64).saturating_mul(SHARE) >= since;
        if swallows {
            self.rare().has_swallowed = true;
        }
        swallows
    }

    /// Whether that was found of it.
    pub fn has_swallowed(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.has_swallowed)
    }

    /// It is settled by an event in one of its sections.
    pub fn answer(&mut self, section: u32, at_ns: u64) {
        let answered = &mut self.rare().answered;
        if answered.is_none_or(|(first, _)| section <= first) {
            *answered = Some((section, at_ns));
        }
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}

/// Where an actor got something from.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub kind: LinkKind,
    pub from: PeerMark,
    pub from_ns: u64,
    /// What the time since then is called.
    pub between: State,
}

/// All open requests of a schema.
#[derive(Default)]
pub(crate) struct Requests {
    /// By slot.
    all: Vec<Open>,
    read: Read,
    free: Vec<u32>,
    begun: u64,
}

/// What it takes to read a request. One is given out at a time, and its memory is used again.
#[derive(Default)]
struct Read {
    transitions: Transitions,
    request: Request,
    /// What its actors do, while it is read.
    activity: Vec<Activity>,
}

impl Requests {
    /// None yet, whose events will do such things.
    pub fn new(transitions: Transitions) -> Requests {
        Requests { read: Read { transitions, ..Read::default() }, ..Requests::default() }
    }

    /// Number of open ones.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Slots of the open ones, oldest request first.
    pub fn slots(&self) -> Vec<u32> {
        let mut slots: Vec<u32> = (0..self.all.len() as u32).collect();
        slots.retain(|slot| self.is_slot_open(*slot));
        slots.sort_by_key(|slot| self.id(*slot));
        slots
    }

    pub fn begin(
        &mut self,
        class: (usize, Option<u32>),
        at: (u64, u64),
        only: Option<u64>,
    ) -> RequestRef {
        let reported = only.is_none_or(|only| only == self.begun);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.all.push(Open::default());
            self.all.len() as u32 - 1
        });
        let open = &mut self.all[slot as usize];
        open.refs = 0;
        open.log.begin(self.begun, class, at, reported);
        self.begun += 1;
        RequestRef::new(slot, open.generation)
    }

    /// How many began so far.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    pub fn id(&self, slot: u32) -> u64 {
        self.all[slot as usize].log.id()
    }

    /// Whether it has what it asked for.
    pub fn is_settled(&self, slot: u32) -> bool {
        self.all[slot as usize].rare.as_ref().is_some_and(|rare| rare.settled)
    }

    /// When its last event was.
    pub fn last_ns(&self, slot: u32) -> u64 {
        self.all[slot as usize].log.last_ns()
    }

    pub fn is_open(&self, request: RequestRef) -> bool {
        let open = &self.all[request.slot() as usize];
        open.generation == request.generation() && open.is_open()
    }

    pub fn reference(&mut self, slot: u32) -> RequestRef {
        let open = &mut self.all[slot as usize];
        open.refs += 1;
        RequestRef::new(slot, open.generation)
    }

    /// Gives back what [`Requests::reference`] took; `loose` gets it if that was all.
    pub fn release(&mut self, slot: u32, loose: &mut Vec<u32>) {
        if self.all[slot as usize].release() {
            loose.push(slot);
        }
    }

    pub fn is_slot_open(&self, slot: u32) -> bool {
        self.all[slot as usize].is_open()
    }

    /// The place of its last event among all events.
    pub fn last_ordinal(&self, slot: u32) -> Option<u64> {
        self.all[slot as usize].log.last_ordinal()
    }

    /// Whether nothing holds it any more.
    pub fn is_loose(&self, slot: u32) -> bool {
        let open = &self.all[slot as usize];
        open.is_free() && open.is_open()
    }

    /// A request that is open.
    #[inline]
    pub fn open(&mut self, slot: u32) -> &mut Open {
        &mut self.all[slot as usize]
    }

    /// These cannot be distinguished.
    pub fn share(&mut self, slots: impl Iterator<Item = u32> + Clone) {
        for slot in slots.clone() {
            for other in slots.clone().filter(|other| *other != slot) {
                let id = self.id(other);
                let shared = &mut self.all[slot as usize].rare().shared_with;
                if let Err(place) = shared.binary_search(&id) {
                    shared.insert(place, id);
                }
            }
        }
    }

    /// It is complete and has left its sections: `out` gets it.
    pub fn end(
        &mut self,
        (schema, slot): (usize, u32),
        outcome: Outcome,
        out: &mut dyn FnMut(Complete<'_>),
    ) {
        let Requests { all, read, free, .. } = self;
        let open = &mut all[slot as usize];
        let rare = open.rare.take();
        out(Complete { log: &open.log, rare, schema, outcome, read });
        // Its memory stays for the next one.
        open.log.clear();
        open.generation = open.generation.wrapping_add(1);
        free.push(slot);
    }
}

/// A request that is complete. What belongs to it is put together only if it is asked for.
pub struct Complete<'a> {
    log: &'a Log,
    rare: Option<Box<Rare>>,
    schema: usize,
    outcome: Outcome,
    read: &'a mut Read,
}

impl<'a> Complete<'a> {
    /// [`Request::id`].
    pub fn id(&self) -> u64 {
        self.log.id()
    }

    /// How many events it has.
    pub fn events(&self) -> usize {
        self.log.events()
    }

    /// Why it is complete.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether it has a log: see [`crate::Options::only`].
    pub fn is_reported(&self) -> bool {
        self.log.is_reported()
    }

    /// All of it; of one without a log, nothing but its number, its class, when it was and with which it
    /// shared.
    pub fn read(self) -> &'a Request {
        let Complete { log, rare, schema, outcome, read } = self;
        let Read { transitions, request, activity } = read;
        log.read(request, activity, transitions);
        request.id = log.id();
        (request.class, request.label) = log.class();
        (request.schema, request.outcome) = (schema, outcome);
        (request.begin_ns, request.end_ns) = (log.begin_ns(), log.last_ns());
        request.links.clear();
        request.shared_with.clear();
        request.choices.clear();
        request.certainty = Certainty::Seen;
        request.answered_ns = None;
        if let Some(rare) = rare {
            let asked = request.sections.iter().position(|section| !section.actor);
            let there = |(section, _): &(u32, u64)| asked == Some(*section as usize);
            request.answered_ns = rare.answered.filter(there).map(|(_, at_ns)| at_ns);
            let choices = rare.choices.all;
            request.certainty = rare.choices.least;
            request.links.extend(links(rare.links, &request.sections, &choices));
            request.choices.extend(choices);
            request.begin_ns = request.begin_ns.saturating_sub(rare.queued_ns);
            gaps::fill(request, log.begin_ns());
            request.shared_with.extend(rare.shared_with);
        }
        request
    }
}

/// Links between the sections of a request, and from others.
fn links(
    links: Vec<(Arrival, u32, u64)>,
    sections: &[RequestSection],
    choices: &[Choice],
) -> impl Iterator<Item = Link> {
    let sections = sections.iter().map(|section| section.serial).zip(0u32..);
    let mut sections: Vec<(u64, u32)> = sections.collect();
    sections.sort_unstable();
    links.into_iter().map(move |(arrival, to, to_ns)| {
        let Arrival { kind, from, from_ns, between } = arrival;
        let certainty = match kind {
            LinkKind::Bytes => certainty_at(choices, from_ns),
            LinkKind::Handoff | LinkKind::Timeline => Certainty::Seen,
        };
        Link { kind, from: peer(from, &sections), from_ns, to, to_ns, between, certainty }
    })
}

/// How certain it is that what was sent then was the request's.
fn certainty_at(choices: &[Choice], at_ns: u64) -> Certainty {
    let first = choices.partition_point(|choice| choice.at_ns < at_ns);
    let then = choices[first..].iter().take_while(|choice| choice.at_ns == at_ns);
    then.fold(Certainty::Seen, |least, choice| least.least(choice.certainty))
}

/// An actor as its request knows it.
fn peer(mark: PeerMark, sections: &[(u64, u32)]) -> Peer {
    match sections.binary_search_by_key(&mark.serial, |(serial, _)| *serial) {
        Ok(found) => Peer::Section(sections[found].1),
        Err(_) => {
            let timeline = usize::from(mark.timeline);
            Peer::Outsider { timeline, key: mark.key, request: mark.request }
        }
    }
}
