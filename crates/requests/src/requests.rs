//! Open requests, and how they become [`Request`]s.

use crate::request::{Link, LinkKind, Outcome, Peer, Request, RequestEvent, RequestSection, Span};
use crate::sections::{Member, PeerMark, RequestRef, Section};
use crate::state::State;

/// Stands in [`Stay::left_ns`] as long as the request has not left.
const STAYS: u64 = u64::MAX;

/// An open request, as small as it can be: with many open, most of what the engine does is to wait for
/// their memory. What nearly every event reads or writes comes first, in one line of the cache.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Open {
    /// [`Request::events`].
    events: Vec<RequestEvent>,
    /// [`Request::spans`].
    spans: Vec<Span>,
    /// Open sections it is in, and ranges of its bytes on their way.
    refs: u32,
    generation: u32,
    open: bool,
    /// Whether spans may follow each other that are one.
    cut: bool,
    stays: Vec<Stay>,
    id: u64,
    begin_ns: u64,
    class: u32,
    label: Option<u32>,
    /// What few requests have.
    rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<Open>() == 128);

/// What few requests have.
#[derive(Default)]
struct Rare {
    links: Vec<(Arrival, u32, u64)>,
    shared_with: Vec<u64>,
}

/// A stay in a section: what will be a [`RequestSection`].
pub(crate) struct Stay {
    pub key: u128,
    pub serial: u64,
    pub joined_ns: u64,
    left_ns: u64,
    /// Where the section is, if the request still is in it.
    pub place: u32,
    pub timeline: u16,
    pub actor: bool,
}

impl Stay {
    /// In a section from then on.
    pub fn new(section: &Section, place: u32, (timeline, key): (u16, u128), at_ns: u64) -> Stay {
        let Section { serial, actor, .. } = *section;
        Stay { key, serial, joined_ns: at_ns, left_ns: STAYS, place, timeline, actor }
    }
}

impl Open {
    /// Adds an event; returns how many there are.
    #[inline]
    pub fn event(&mut self, event: RequestEvent) -> usize {
        self.events.push(event);
        self.events.len()
    }

    /// Adds what an actor did.
    #[inline]
    pub fn span(
        &mut self,
        (section, state): (u32, State),
        (from_ns, to_ns): (u64, u64),
        shared: bool,
    ) {
        // One that is alone there goes into another state at each end, unless that took no time.
        self.cut |= shared | (from_ns >= to_ns);
        if from_ns < to_ns {
            self.spans.push(Span { section, state, from_ns, to_ns, shared });
        }
    }

    /// When its last event was.
    fn last_ns(&self) -> u64 {
        self.events.last().map_or(self.begin_ns, |event| event.time_ns)
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
    /// The last one that was complete: one is given out at a time, and its memory is used again.
    complete: Request,
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

    pub fn begin(&mut self, (class, label): (usize, Option<u32>), at_ns: u64) -> RequestRef {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.all.push(Open::default());
            self.all.len() as u32 - 1
        });
        let open = &mut self.all[slot as usize];
        open.open = true;
        open.refs = 0;
        open.id = self.begun;
        open.class = class as u32;
        open.label = label;
        open.begin_ns = at_ns;
        self.begun += 1;
        RequestRef { slot, generation: open.generation }
    }

    pub fn id(&self, slot: u32) -> u64 {
        self.all[slot as usize].id
    }

    /// When its last event was.
    pub fn last_ns(&self, slot: u32) -> u64 {
        self.all[slot as usize].last_ns()
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
        self.all[slot as usize].events.last().map(|event| event.ordinal)
    }

    /// Whether nothing holds it any more.
    pub fn is_loose(&self, slot: u32) -> bool {
        let open = &self.all[slot as usize];
        open.open && open.refs == 0
    }

    /// It comes into a section; returns the place of the stay.
    pub fn join(&mut self, slot: u32, stay: Stay) -> u32 {
        let open = &mut self.all[slot as usize];
        open.refs += 1;
        open.stays.push(stay);
        open.stays.len() as u32 - 1
    }

    /// It leaves a section, which was closed; `loose` gets it if nothing else holds it.
    pub fn leave(&mut self, member: Member, at_ns: u64, loose: &mut Vec<u32>) {
        self.depart(member, at_ns);
        self.release(member.slot, loose);
    }

    /// It leaves a section because it is complete.
    pub fn depart(&mut self, member: Member, at_ns: u64) {
        self.all[member.slot as usize].stays[member.local as usize].left_ns = at_ns;
    }

    /// What its events write.
    #[inline]
    pub fn open(&mut self, slot: u32) -> &mut Open {
        &mut self.all[slot as usize]
    }

    pub fn link(&mut self, to: Member, arrival: Arrival, to_ns: u64) {
        let open = &mut self.all[to.slot as usize];
        if open.stays[to.local as usize].serial != arrival.from.serial {
            open.rare().links.push((arrival, to.local, to_ns));
        }
    }

    /// These cannot be told from each other.
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

    /// Number of its stays, ended or not.
    pub fn stays(&self, slot: u32) -> u32 {
        self.all[slot as usize].stays.len() as u32
    }

    /// The place of the section of a stay that has not ended.
    pub fn stays_at(&self, stay: Member) -> Option<u32> {
        let stay = &self.all[stay.slot as usize].stays[stay.local as usize];
        (stay.left_ns == STAYS).then_some(stay.place)
    }

    /// It is complete and has left its sections: `out` gets it.
    pub fn end(
        &mut self,
        (schema, slot): (usize, u32),
        outcome: Outcome,
        out: &mut dyn FnMut(&Request),
    ) {
        let Requests { all, complete: request, free, .. } = self;
        let open = &mut all[slot as usize];
        open.open = false;
        open.generation = open.generation.wrapping_add(1);
        free.push(slot);
        request.id = open.id;
        request.schema = schema;
        request.class = open.class as usize;
        request.label = open.label;
        request.begin_ns = open.begin_ns;
        request.end_ns = open.last_ns();
        request.outcome = outcome;
        std::mem::swap(&mut request.events, &mut open.events);
        std::mem::swap(&mut request.spans, &mut open.spans);
        if std::mem::take(&mut open.cut) {
            request.spans.dedup_by(|next, last| last.goes_on(next));
        }
        request.sections.clear();
        request.sections.extend(open.stays.drain(..).map(RequestSection::from));
        request.links.clear();
        request.shared_with.clear();
        if let Some(rare) = open.rare.take() {
            request.links.extend(links(rare.links, &request.sections));
            request.shared_with.extend(rare.shared_with);
        }
        out(request);
        // Its memory stays for the next one.
        request.events.clear();
        request.spans.clear();
        std::mem::swap(&mut request.events, &mut open.events);
        std::mem::swap(&mut request.spans, &mut open.spans);
    }
}

impl From<Stay> for RequestSection {
    fn from(stay: Stay) -> RequestSection {
        let Stay { key, serial, joined_ns, left_ns, timeline, actor, .. } = stay;
        RequestSection { timeline: usize::from(timeline), key, serial, joined_ns, left_ns, actor }
    }
}

/// Links between the sections of a request, and from others.
fn links(
    links: Vec<(Arrival, u32, u64)>,
    sections: &[RequestSection],
) -> impl Iterator<Item = Link> {
    let sections = sections.iter().map(|section| section.serial).zip(0u32..);
    let mut sections: Vec<(u64, u32)> = sections.collect();
    sections.sort_unstable();
    links.into_iter().map(move |(arrival, to, to_ns)| {
        let Arrival { kind, from, from_ns, between } = arrival;
        Link { kind, from: peer(from, &sections), from_ns, to, to_ns, between }
    })
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
