//! Open sections of timelines: the only thing besides open requests that the engine remembers.

use crate::event::EventId;
use crate::few::Few;
use crate::state::{State, Wait};
use crate::table::{Table, hash};

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

/// An open section: what every event bound to it reads or writes, in one cache line.
pub(crate) struct Section {
    pub key: u128,
    /// Its number among all of the schema, from 1; 0 if this place is free.
    pub serial: u64,
    pub members: Few<Member>,
    /// Since when it is in its state, as far as its members were told.
    pub since_ns: u64,
    pub touched_ns: u64,
    pub timeline: u16,
    /// The last event bound to it.
    pub last: EventId,
    pub state: State,
    pub expects: Wait,
    pub actor: bool,
}

const _: () = assert!(size_of::<Section>() == 64);

/// Who touched a section that is no actor.
#[derive(Clone, Copy, Default)]
pub(crate) struct Touch {
    pub by: PeerMark,
    pub at_ns: u64,
}

/// All open sections of a schema.
pub(crate) struct Sections {
    tables: Vec<Table>,
    pub all: Vec<Section>,
    /// The last touch of each.
    pub touches: Vec<Touch>,
    free: Vec<u32>,
    serials: u64,
    hand: usize,
}

impl Sections {
    pub fn new(timelines: usize) -> Sections {
        let tables = (0..timelines).map(|_| Table::default()).collect();
        Sections {
            tables,
            all: Vec::new(),
            touches: Vec::new(),
            free: Vec::new(),
            serials: 0,
            hand: 0,
        }
    }

    /// Number of open sections.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    #[inline]
    pub fn find(&self, timeline: usize, key: u128) -> Option<u32> {
        self.tables[timeline].find(hash(key), |n| self.all[n as usize].key == key)
    }

    /// Opens a section that is not open.
    pub fn open(
        &mut self,
        (timeline, key): (usize, u128),
        actor: bool,
        event: EventId,
        at_ns: u64,
    ) -> u32 {
        self.serials += 1;
        let section = Section {
            key,
            serial: self.serials,
            members: Few::Nobody,
            since_ns: at_ns,
            touched_ns: at_ns,
            timeline: timeline as u16,
            last: event,
            state: State::Running,
            expects: Wait::Sleeping,
            actor,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.all[place as usize] = section;
                // Nobody has touched it; the rest does not matter then.
                self.touches[place as usize].by.serial = 0;
                place
            }
            None => {
                self.all.push(section);
                self.touches.push(Touch::default());
                self.all.len() as u32 - 1
            }
        };
        self.tables[timeline].insert(hash(key), place);
        place
    }

    /// Forgets a section.
    pub fn close(&mut self, place: u32) {
        let section = &mut self.all[place as usize];
        section.serial = 0;
        section.members = Few::Nobody;
        self.tables[usize::from(section.timeline)].remove(hash(section.key), place);
        self.free.push(place);
    }

    /// A section that was not touched for long: the least recent of some. Cheap, and good enough
    /// for what should not be needed.
    pub fn stale(&mut self) -> Option<u32> {
        const SOME: usize = 8;
        let mut found: Option<usize> = None;
        let mut seen = 0;
        for _ in 0..self.all.len() {
            self.hand = (self.hand + 1) % self.all.len();
            if self.all[self.hand].serial == 0 {
                continue;
            }
            let older = |best: usize| self.all[self.hand].touched_ns < self.all[best].touched_ns;
            if found.is_none_or(older) {
                found = Some(self.hand);
            }
            seen += 1;
            if seen == SOME {
                break;
            }
        }
        found.map(|place| place as u32)
    }
}
