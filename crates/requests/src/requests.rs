//! Open requests, and how they become [`Request`]s.

use crate::request::{Link, LinkKind, Outcome, Peer, Request, RequestEvent, RequestSection, Span};
use crate::sections::{Member, PeerMark, RequestRef};
use crate::state::State;

/// Stands in [`RequestSection::left_ns`] as long as the request has not left.
const STAYS: u64 = u64::MAX;

#[derive(Default)]
struct Open {
    generation: u32,
    open: bool,
    /// Open sections it is in, and ranges of its bytes on their way.
    refs: u32,
    request: Request,
    /// Where the sections of [`Request::sections`] are, if it still is in them.
    places: Vec<u32>,
    links: Vec<(Arrival, u32, u64)>,
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

/// A section that a request comes into.
pub(crate) struct Joined {
    pub place: u32,
    pub timeline: u16,
    pub key: u128,
    pub serial: u64,
    pub at_ns: u64,
    pub actor: bool,
}

/// All open requests of a schema.
#[derive(Default)]
pub(crate) struct Requests {
    all: Vec<Open>,
    free: Vec<u32>,
    begun: u64,
}

impl Requests {
    /// Number of open ones.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Slots of the open ones, oldest request first.
    pub fn slots(&self) -> Vec<u32> {
        let mut slots: Vec<u32> = (0..self.all.len() as u32).collect();
        slots.retain(|slot| self.all[*slot as usize].open);
        slots.sort_by_key(|slot| self.id(*slot));
        slots
    }

    pub fn begin(
        &mut self,
        schema: usize,
        (class, label): (usize, Option<u32>),
        at_ns: u64,
    ) -> RequestRef {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.all.push(Open::default());
            self.all.len() as u32 - 1
        });
        let open = &mut self.all[slot as usize];
        open.open = true;
        open.refs = 0;
        open.request.id = self.begun;
        open.request.schema = schema;
        open.request.class = class;
        open.request.label = label;
        open.request.begin_ns = at_ns;
        self.begun += 1;
        RequestRef { slot, generation: open.generation }
    }

    pub fn id(&self, slot: u32) -> u64 {
        self.all[slot as usize].request.id
    }

    /// When its last event was.
    pub fn last_ns(&self, slot: u32) -> u64 {
        let request = &self.all[slot as usize].request;
        request.events.last().map_or(request.begin_ns, |event| event.time_ns)
    }

    pub fn is_open(&self, request: RequestRef) -> bool {
        let open = &self.all[request.slot as usize];
        open.open && open.generation == request.generation
    }

    pub fn reference(&mut self, slot: u32) -> RequestRef {
        let open = &mut self.all[slot as usize];
        open.refs += 1;
        RequestRef { slot, generation: open.generation }
    }

    /// Gives back what [`Requests::reference`] took; `loose` gets it if that was all.
    pub fn release(&mut self, slot: u32, loose: &mut Vec<u32>) {
        let open = &mut self.all[slot as usize];
        open.refs = open.refs.saturating_sub(1);
        if open.refs == 0 {
            loose.push(slot);
        }
    }

    pub fn is_slot_open(&self, slot: u32) -> bool {
        self.all[slot as usize].open
    }

    /// The place of its last event among all events.
    pub fn last_ordinal(&self, slot: u32) -> Option<u64> {
        self.all[slot as usize].request.events.last().map(|event| event.ordinal)
    }

    /// Whether nothing holds it any more.
    pub fn is_loose(&self, slot: u32) -> bool {
        let open = &self.all[slot as usize];
        open.open && open.refs == 0
    }

    /// It comes into a section; returns the place of the stay.
    pub fn join(&mut self, slot: u32, joined: Joined) -> u32 {
        let Joined { place, timeline, key, serial, at_ns, actor } = joined;
        let open = &mut self.all[slot as usize];
        open.refs += 1;
        open.places.push(place);
        open.request.sections.push(RequestSection {
            timeline: usize::from(timeline),
            key,
            serial,
            joined_ns: at_ns,
            left_ns: STAYS,
            actor,
        });
        open.places.len() as u32 - 1
    }

    /// It leaves a section, which was closed; `loose` gets it if nothing else holds it.
    pub fn leave(&mut self, member: Member, at_ns: u64, loose: &mut Vec<u32>) {
        self.depart(member, at_ns);
        self.release(member.slot, loose);
    }

    /// It leaves a section because it is complete.
    pub fn depart(&mut self, member: Member, at_ns: u64) {
        let open = &mut self.all[member.slot as usize];
        open.request.sections[member.local as usize].left_ns = at_ns;
    }

    pub fn span(&mut self, member: Member, state: State, times: (u64, u64), shared: bool) {
        let (from_ns, to_ns) = times;
        let spans = &mut self.all[member.slot as usize].request.spans;
        let span = Span { section: member.local, state, from_ns, to_ns, shared };
        match spans.last_mut() {
            Some(last)
                if (last.section, last.state, last.shared, last.to_ns)
                    == (span.section, state, shared, from_ns) =>
            {
                last.to_ns = to_ns;
            }
            _ => spans.push(span),
        }
    }

    pub fn link(&mut self, to: Member, arrival: Arrival, to_ns: u64) {
        let open = &mut self.all[to.slot as usize];
        if open.request.sections[to.local as usize].serial != arrival.from.serial {
            open.links.push((arrival, to.local, to_ns));
        }
    }

    /// Adds an event; returns how many there are.
    #[inline]
    pub fn event(&mut self, slot: u32, event: RequestEvent) -> usize {
        let events = &mut self.all[slot as usize].request.events;
        events.push(event);
        events.len()
    }

    /// These cannot be told from each other.
    pub fn share(&mut self, slots: impl Iterator<Item = u32> + Clone) {
        for slot in slots.clone() {
            for other in slots.clone().filter(|other| *other != slot) {
                let id = self.id(other);
                let shared = &mut self.all[slot as usize].request.shared_with;
                if let Err(place) = shared.binary_search(&id) {
                    shared.insert(place, id);
                }
            }
        }
    }

    /// Number of its stays, ended or not.
    pub fn stays(&self, slot: u32) -> u32 {
        self.all[slot as usize].places.len() as u32
    }

    /// The place of the section of a stay that has not ended.
    pub fn stays_at(&self, stay: Member) -> Option<u32> {
        let Open { request, places, .. } = &self.all[stay.slot as usize];
        let stays = request.sections[stay.local as usize].left_ns == STAYS;
        stays.then(|| places[stay.local as usize])
    }

    /// It is complete and has left its sections: `out` gets it.
    pub fn end(&mut self, slot: u32, outcome: Outcome, out: &mut dyn FnMut(&Request)) {
        let end_ns = self.last_ns(slot);
        let open = &mut self.all[slot as usize];
        open.open = false;
        open.generation = open.generation.wrapping_add(1);
        open.places.clear();
        self.free.push(slot);
        let request = &mut open.request;
        request.outcome = outcome;
        request.end_ns = end_ns;
        if !open.links.is_empty() {
            let sections = request.sections.iter().map(|section| section.serial).zip(0u32..);
            let mut sections: Vec<(u64, u32)> = sections.collect();
            sections.sort_unstable();
            let links = open.links.drain(..).map(|(arrival, to, to_ns)| {
                let Arrival { kind, from, from_ns, between } = arrival;
                Link { kind, from: peer(from, &sections), from_ns, to, to_ns, between }
            });
            request.links.extend(links);
        }
        out(request);
        // What it took stays for the next one.
        request.events.clear();
        request.sections.clear();
        request.spans.clear();
        request.links.clear();
        request.shared_with.clear();
    }
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
