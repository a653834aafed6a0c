//! Open sections of timelines: the only thing besides open requests that the engine remembers.

use crate::event::EventId;
use crate::handles::PeerMark;
use crate::keys::Keys;
use crate::log::JoinedSection;
use crate::requests::Open;
use crate::state::Code;

/// A request in a section. Sections hold open requests only, so no generation is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub slot: u32,
    /// Place of the stay among [`crate::Request::sections`].
    pub local: u32,
}

/// Stands for the slot of a request where there is none.
pub(crate) const NOBODY: u32 = u32::MAX - 3;
/// Stands for the slot of a section's request where no section is open.
const CLOSED: u32 = u32::MAX - 1;
/// Stands for the slot of a section's request where there are several.
const SEVERAL: u32 = u32::MAX;

/// What is open at a place: what every event bound to it reads or writes, in one cache line.
#[repr(align(64))]
pub(crate) struct Section {
    /// Its number among all of the schema, from 1.
    pub serial: u64,
    /// Its only request, which takes one comparison to find out; or, as the slot, [`NOBODY`],
    /// [`SEVERAL`] with their place in [`Sections::crowds`], or [`CLOSED`].
    pub member: Member,
    /// The last event bound to it.
    pub last_event: EventOrdinal,
    /// When an actor touched it last that is none itself.
    pub touched_ns: u64,
    /// The number of the actor that touched it last, 0 for none. An actor is its own: so what it
    /// meets alone is as if it had been touched by it before.
    pub touched_by: u64,
    pub code: Code,
    pub actor: bool,
}

const _: () = assert!(size_of::<Section>() == 64);

/// An event in one word: its place among all, then its kind. So a later one is a larger number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventOrdinal(u64);

impl EventOrdinal {
    const KIND_BITS: u32 = 12;

    #[inline]
    pub fn new(event: EventId, ordinal: u64) -> EventOrdinal {
        EventOrdinal(ordinal << EventOrdinal::KIND_BITS | u64::from(event.0))
    }

    /// The kind of the event.
    #[inline]
    pub fn event(self) -> EventId {
        EventId(self.0 as u16 % (1 << EventOrdinal::KIND_BITS))
    }
}

const _: () = assert!(crate::Catalog::MAX <= 1 << EventOrdinal::KIND_BITS);

impl Section {
    /// Nothing is open.
    fn none() -> Section {
        Section {
            serial: 0,
            member: Member { slot: CLOSED, local: 0 },
            last_event: EventOrdinal(0),
            touched_ns: 0,
            touched_by: 0,
            code: Code::FIRST,
            actor: false,
        }
    }

    /// Whether a section is open.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.member.slot != CLOSED
    }

    /// Its only request, [`NOBODY`] if there is none, or what is neither if there are several.
    #[inline]
    pub fn slot(&self) -> u32 {
        if self.is_open() { self.member.slot } else { NOBODY }
    }

    /// The same of a section that ends before the event: none, unless there are several.
    #[inline]
    pub fn slot_ending(&self) -> u32 {
        if self.member.slot == SEVERAL { SEVERAL } else { NOBODY }
    }

    /// Its only request leaves it.
    #[inline(always)]
    pub fn leave(&mut self, open: &mut Open, at_ns: u64) {
        open.log.leave(self.member.local, at_ns, false);
        open.release();
    }

    /// What a request that comes here logs, by the name of the place.
    #[inline]
    pub fn joined_section(&self, (timeline, key): (u16, u128)) -> JoinedSection {
        JoinedSection { timeline, actor: self.actor, code: self.code, key, serial: self.serial }
    }

    /// Whether a request, or [`NOBODY`], is the only one of a section that is open.
    #[inline]
    pub fn is_only(&self, slot: u32) -> bool {
        self.member.slot == slot
    }
}

/// All open sections of a schema.
pub(crate) struct Sections {
    pub keys: Keys,
    /// By place.
    pub all: Vec<Section>,
    /// The actor that touched each last that is no actor: what [`Section::touched_by`] is the number of.
    pub touches: Vec<PeerMark>,
    /// Requests of sections that have several.
    crowds: Vec<Vec<Member>>,
    free_crowds: Vec<u32>,
    /// Keys of which something was noted, by place.
    marked: Vec<bool>,
    marks: usize,
    pub opener: Opener,
    /// Open sections that were met least recently when they were looked for, the first at the end:
    /// the last event of each, its number and its place.
    stale: Vec<(EventOrdinal, u64, u32)>,
}

/// Opens and closes sections.
#[derive(Default)]
pub(crate) struct Opener {
    /// How many were opened.
    serials: u64,
    /// How many are.
    open: usize,
}

impl Opener {
    /// Number of open sections.
    #[inline]
    pub fn len(&self) -> usize {
        self.open
    }

    /// Opens a section, instead of one that was open there, of which nothing is left.
    #[inline]
    pub fn open(&mut self, section: &mut Section, actor: bool, last_event: EventOrdinal) {
        self.open += usize::from(!section.is_open());
        self.serials += 1;
        *section = Section {
            serial: self.serials,
            member: Member { slot: NOBODY, local: 0 },
            last_event,
            touched_ns: 0,
            touched_by: if actor { self.serials } else { 0 },
            code: Code::FIRST,
            actor,
        };
    }

    /// Closes one of which nothing is left.
    #[inline]
    pub fn close(&mut self, section: &mut Section) {
        section.member.slot = CLOSED;
        self.open -= 1;
    }
}

/// Most marks; beyond, all are forgotten.
const MARKS_MAX: usize = 1 << 20;
/// One of so many sections is looked for at once when sections have to be given up.
const STALE: usize = 16;

impl Sections {
    /// For timelines whose keys have so many bits.
    pub fn new(bits: impl IntoIterator<Item = u32>) -> Sections {
        Sections {
            keys: Keys::new(bits),
            all: Vec::new(),
            touches: Vec::new(),
            crowds: Vec::new(),
            free_crowds: Vec::new(),
            marked: Vec::new(),
            marks: 0,
            opener: Opener::default(),
            stale: Vec::new(),
        }
    }

    /// Number of open sections.
    pub fn len(&self) -> usize {
        self.opener.len()
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
        if !self.keys.has_many_idle(self.opener.len() + self.marks) {
            return;
        }
        let all = self.all.iter().zip(&self.marked);
        self.keys.sweep(all.map(|(section, marked)| section.is_open() | marked));
    }

    /// Opens a section, instead of one that was open there, of which nothing is left.
    #[inline]
    pub fn open(&mut self, place: u32, actor: bool, last_event: EventOrdinal) {
        self.vacate(place);
        let Sections { all, opener, .. } = self;
        opener.open(&mut all[place as usize], actor, last_event);
    }

    /// No request is at a place any more.
    #[inline]
    fn vacate(&mut self, place: u32) {
        let member = &mut self.all[place as usize].member;
        if member.slot == SEVERAL {
            self.free_crowds.push(member.local);
            member.slot = NOBODY;
        }
    }

    /// Forgets a section.
    #[inline]
    pub fn close(&mut self, place: u32) {
        self.vacate(place);
        self.opener.close(&mut self.all[place as usize]);
    }

    /// The requests of a section.
    #[inline]
    pub fn members(&self, place: u32) -> &[Member] {
        let member = &self.all[place as usize].member;
        match member.slot {
            NOBODY | CLOSED => &[],
            SEVERAL => &self.crowds[member.local as usize],
            _ => std::slice::from_ref(member),
        }
    }

    /// A request comes into a section that is open.
    #[inline]
    pub fn add(&mut self, place: u32, member: Member) {
        let section = &mut self.all[place as usize];
        match section.member.slot {
            NOBODY => section.member = member,
            SEVERAL => self.crowds[section.member.local as usize].push(member),
            _ => {
                let local = self.free_crowds.pop().unwrap_or_else(|| {
                    self.crowds.push(Vec::new());
                    self.crowds.len() as u32 - 1
                });
                let crowd = &mut self.crowds[local as usize];
                crowd.clear();
                crowd.extend([section.member, member]);
                section.member = Member { slot: SEVERAL, local };
            }
        }
    }

    /// A request leaves a section, if it is there.
    pub fn remove(&mut self, place: u32, slot: u32) {
        let member = &mut self.all[place as usize].member;
        if member.slot == slot {
            member.slot = NOBODY;
        } else if member.slot == SEVERAL {
            let local = member.local;
            let crowd = &mut self.crowds[local as usize];
            crowd.retain(|other| other.slot != slot);
            if let [last] = crowd.as_slice() {
                *member = *last;
                self.free_crowds.push(local);
            }
        }
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
        }
    }

    fn forget_marks(&mut self) -> u64 {
        self.marked.fill(false);
        std::mem::take(&mut self.marks) as u64
    }

    /// The section that no event was bound to for longest.
    pub fn stale(&mut self) -> Option<u32> {
        loop {
            while let Some((last_event, serial, place)) = self.stale.pop() {
                // Those that were met since are not the first any more, and all others are later.
                let section = &self.all[place as usize];
                if section.is_open() && (section.last_event, section.serial) == (last_event, serial)
                {
                    return Some(place);
                }
            }
            let open = self.all.iter().zip(0..).filter(|(section, _)| section.is_open());
            self.stale
                .extend(open.map(|(section, place)| (section.last_event, section.serial, place)));
            if self.stale.is_empty() {
                return None;
            }
            let some = self.stale.len().div_ceil(STALE);
            self.stale.select_nth_unstable(some - 1);
            self.stale.truncate(some);
            self.stale.sort_unstable_by(|one, other| other.cmp(one));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(sections: &Sections) -> Vec<u32> {
        sections.members(0).iter().map(|member| member.slot).collect()
    }

    #[test]
    fn requests_come_and_go() {
        let mut sections = Sections::new([32]);
        sections.all.push(Section::none());
        assert!(!sections.all[0].is_open() && sections.all[0].slot() == NOBODY);
        sections.open(0, false, EventOrdinal::new(EventId(0), 5));
        assert_eq!((slots(&sections), sections.all[0].slot()), (vec![], NOBODY));
        for slot in [7, 8, 9] {
            sections.add(0, Member { slot, local: 0 });
            assert_eq!(sections.all[0].is_only(7), slot == 7);
        }
        sections.remove(0, 8);
        assert_eq!(slots(&sections), [7, 9]);
        sections.remove(0, 7);
        assert!(sections.all[0].is_only(9) && !sections.all[0].is_only(NOBODY));
        sections.add(0, Member { slot: 1, local: 0 });
        assert_eq!(slots(&sections), [9, 1]);
        // What is opened in its place has nothing of it.
        let serial = sections.all[0].serial;
        sections.open(0, false, EventOrdinal::new(EventId(0), 6));
        assert!(sections.all[0].is_only(NOBODY) && sections.all[0].serial > serial);
        assert_eq!(sections.len(), 1);
    }
    #[test]
    fn the_least_recent_is_given_up() {
        let mut sections = Sections::new([32]);
        sections.all.resize_with(100, Section::none);
        assert_eq!(sections.stale(), None);
        (0..100).for_each(|n| {
            sections.open(n, false, EventOrdinal::new(EventId(0), 1000 - u64::from(n)));
        });
        assert_eq!(sections.stale(), Some(99));
        sections.close(99);
        sections.close(98);
        sections.all[97].last_event = EventOrdinal::new(EventId(0), 2000);
        for place in (0..97).rev() {
            assert_eq!(sections.stale(), Some(place));
            sections.close(place);
        }
        assert_eq!((sections.stale(), sections.len()), (Some(97), 1));
    }
}
