//! Open sections of timelines: the only thing besides open requests that the engine remembers.

use crate::event::EventId;
use crate::few::Few;
use crate::keys::Keys;
use crate::state::{Code, State, Wait};

/// A request that may be complete by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestRef {
    pub slot: u32,
    /// Slots are used again; this tells whether it is still the same request.
    pub generation: u32,
}

/// A request in a section. Sections hold open requests only, so no generation is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub slot: u32,
    /// Place of the stay among [`crate::Request::sections`].
    pub local: u32,
}

/// An actor to remember after its section is closed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerMark {
    /// Number of the section; 0 for nobody.
    pub serial: u64,
    pub key: u128,
    pub timeline: u16,
    /// The request it worked on, or one of them.
    pub request: Option<u64>,
}

/// What is open at a place: what every event bound to it reads or writes, in one cache line.
#[repr(align(64))]
pub(crate) struct Section {
    /// Its number among all of the schema, from 1; 0 if nothing is open here.
    pub serial: u64,
    pub members: Few<Member>,
    /// Of an actor: since when it is in its state, as far as its members were told. Of others: when
    /// an actor touched it last.
    pub since_ns: u64,
    pub touched_ns: u64,
    /// Of others than actors: the number of the actor that touched it last, 0 for none.
    pub touched_by: u64,
    /// Where it stands in [`Sections::seats`].
    seat: u32,
    /// The last event bound to it.
    pub last: EventId,
    pub state: Code,
    pub expects: Wait,
    pub actor: bool,
}

const _: () = assert!(size_of::<Section>() == 64);

impl Section {
    /// Nothing is open.
    fn none() -> Section {
        Section {
            serial: 0,
            members: Few::Nobody,
            since_ns: 0,
            touched_ns: 0,
            touched_by: 0,
            seat: VACANT,
            last: EventId(0),
            state: State::Running.into(),
            expects: Wait::Sleeping,
            actor: false,
        }
    }

    /// Whether a section is open.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.serial != 0
    }
}

/// All open sections of a schema.
pub(crate) struct Sections {
    pub keys: Keys,
    /// By place.
    pub all: Vec<Section>,
    /// Who touched each last that is no actor: what [`Section::touched_by`] is the number of.
    pub touches: Vec<PeerMark>,
    /// Keys of which something was noted, by place.
    marked: Vec<bool>,
    marks: usize,
    /// Places of open sections, and [`VACANT`]. Which section is given up follows from this, and so
    /// from events alone, not from how they are cut into batches.
    seats: Vec<u32>,
    free_seats: Vec<u32>,
    serials: u64,
    hand: usize,
}

/// Most marks; beyond, all are forgotten.
const MARKS_MAX: usize = 1 << 20;
/// A seat without a section.
const VACANT: u32 = u32::MAX;

impl Sections {
    /// For timelines whose keys have so many bits.
    pub fn new(bits: impl IntoIterator<Item = u32>) -> Sections {
        Sections {
            keys: Keys::new(bits),
            all: Vec::new(),
            touches: Vec::new(),
            marked: Vec::new(),
            marks: 0,
            seats: Vec::new(),
            free_seats: Vec::new(),
            serials: 0,
            hand: 0,
        }
    }

    /// Number of open sections.
    pub fn len(&self) -> usize {
        self.seats.len() - self.free_seats.len()
    }

    /// Makes room for all places.
    pub fn grow(&mut self) {
        let places = self.keys.len();
        if self.all.len() < places {
            self.all.resize_with(places, Section::none);
            self.touches.resize_with(places, PeerMark::default);
            self.marked.resize(places, false);
        }
    }

    /// Gives up places where nothing is.
    pub fn sweep(&mut self) {
        let (all, marked) = (&self.all, &self.marked);
        self.keys.sweep(|place| all[place as usize].is_open() || marked[place as usize]);
    }

    /// Opens a section where none is open.
    pub fn open(&mut self, place: u32, actor: bool, event: EventId, at_ns: u64) {
        self.serials += 1;
        let seat = match self.free_seats.pop() {
            Some(seat) => {
                self.seats[seat as usize] = place;
                seat
            }
            None => {
                self.seats.push(place);
                self.seats.len() as u32 - 1
            }
        };
        self.all[place as usize] = Section {
            serial: self.serials,
            members: Few::Nobody,
            since_ns: at_ns,
            touched_ns: at_ns,
            touched_by: 0,
            seat,
            last: event,
            state: State::Running.into(),
            expects: Wait::Sleeping,
            actor,
        };
    }

    /// Forgets a section.
    pub fn close(&mut self, place: u32) {
        let section = &mut self.all[place as usize];
        section.serial = 0;
        section.members = Few::Nobody;
        self.seats[section.seat as usize] = VACANT;
        self.free_seats.push(section.seat);
        self.keys.idle(place);
    }

    /// Whether something was noted of a key.
    pub fn is_marked(&self, place: u32) -> bool {
        self.marked[place as usize]
    }

    /// Notes a fact about a key; returns how many were forgotten for it.
    pub fn mark(&mut self, place: u32) -> u64 {
        let forgotten = if self.marks >= MARKS_MAX { self.forget_marks() } else { 0 };
        let marked = &mut self.marked[place as usize];
        self.marks += usize::from(!*marked);
        *marked = true;
        forgotten
    }

    /// Forgets a fact about a key.
    pub fn unmark(&mut self, place: u32) {
        if std::mem::take(&mut self.marked[place as usize]) {
            self.marks -= 1;
            self.keys.idle(place);
        }
    }

    fn forget_marks(&mut self) -> u64 {
        for (marked, place) in self.marked.iter_mut().zip(0..) {
            if std::mem::take(marked) {
                self.keys.idle(place);
            }
        }
        std::mem::take(&mut self.marks) as u64
    }

    /// A section that was not touched for long: the least recent of some. Cheap, and good enough
    /// for what should not be needed.
    pub fn stale(&mut self) -> Option<u32> {
        const SOME: usize = 8;
        let mut found: Option<u32> = None;
        let mut seen = 0;
        let touched_ns = |place: u32| self.all[place as usize].touched_ns;
        for _ in 0..self.seats.len() {
            self.hand = (self.hand + 1) % self.seats.len();
            let place = self.seats[self.hand];
            if place == VACANT {
                continue;
            }
            if found.is_none_or(|best| touched_ns(place) < touched_ns(best)) {
                found = Some(place);
            }
            seen += 1;
            if seen == SOME {
                break;
            }
        }
        found
    }
}
