//! What is known of an open request: a log of small entries, which is read when it is complete.
//!
//! With many requests open, what the engine does most is to wait for their memory, and what happens to
//! a request is written once and read once. So it is written one behind the other, most of it in one
//! word: what happened, and how long after the request's last event. Times and numbers that do not fit
//! follow in words of their own.

use crate::event::EventId;
use crate::request::{Request, RequestEvent, RequestSection, Span};
use crate::state::{Code, State};

/// The words that a log begins with: the request's number, when it began, the place of its first event
/// among all, and its class with its label.
const HEAD: usize = 4;

// The lowest two bits of an entry say what happened.
/// An event: its kind, its actor, and how many events there were since the last.
const EVENT: u64 = 0;
/// The end of an actor's time in one state.
const STATE: u64 = 1;
/// A section is left.
const LEAVE: u64 = 2;
/// A section is joined. Its number and its key follow.
const JOIN: u64 = 3;
/// The time follows in a word of its own, and of an event its place among all.
const WIDE: u64 = 1 << 2;
/// It is of other requests too.
const SHARED: u64 = 1 << 3;
/// Where what else there is to say begins; and, in entries that are not [`WIDE`], the time.
const WHAT: u32 = 4;
const TIME: u32 = 36;
const TIME_BITS: u32 = u64::BITS - TIME;

// Of an event: its kind comes first, then its actor.
const KIND_BITS: u32 = 12;
const ACTOR: u32 = WHAT + KIND_BITS;
const ACTOR_BITS: u32 = 4;
const ORDINAL: u32 = ACTOR + ACTOR_BITS;
const ORDINAL_BITS: u32 = TIME - ORDINAL;
const _: () = assert!(crate::Catalog::MAX <= 1 << KIND_BITS);

/// Of a state: itself, then its section.
const STATE_BITS: u32 = 3;

/// The log of an open request.
#[derive(Default)]
pub(crate) struct Log {
    words: Vec<u64>,
    /// When its last event was, or it began.
    last_ns: u64,
    /// The last event's place among all, or where that of the first will be.
    last_ordinal: u64,
    events: u32,
    sections: u32,
}

/// A section that a request joins.
#[derive(Clone, Copy)]
pub(crate) struct Stay {
    pub timeline: u16,
    pub actor: bool,
    pub key: u128,
    pub serial: u64,
}

/// What entries say, to whoever reads them.
trait Reader {
    fn event(&mut self, event: RequestEvent) {
        let _ = event;
    }

    fn state(&mut self, section: u32, state: State, at_ns: u64, shared: bool) {
        let _ = (section, state, at_ns, shared);
    }

    fn leave(&mut self, section: u32, at_ns: u64);

    fn join(&mut self, stay: Stay, at_ns: u64);
}

impl Log {
    /// Begins to write.
    pub fn begin(&mut self, id: u64, class: (usize, Option<u32>), (ns, ordinal): (u64, u64)) {
        let (class, label) =
            (class.0 as u64, class.1.map_or(0, |label| 1 << 32 | u64::from(label)));
        self.words.extend([id, ns, ordinal, class << 33 | label]);
        (self.last_ns, self.last_ordinal) = (ns, ordinal);
        (self.events, self.sections) = (0, 0);
    }

    /// Whether nothing is written: then it is of no request.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Keeps the memory.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    /// The number of the request.
    pub fn id(&self) -> u64 {
        self.words[0]
    }

    /// When its last event was, or it began.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// The place of its last event among all.
    pub fn last_ordinal(&self) -> Option<u64> {
        (self.events > 0).then_some(self.last_ordinal)
    }

    /// Adds an event; returns how many there are.
    #[inline]
    pub fn event(&mut self, event: RequestEvent) -> usize {
        let RequestEvent { time_ns, ordinal, .. } = event;
        // Nobody is 0.
        let actor = u64::from(event.actor_code().wrapping_add(1));
        let head = EVENT | shared(event.shared) | (event.kind.index() as u64) << WHAT;
        let (later_ns, later) = (time_ns - self.last_ns, ordinal - self.last_ordinal);
        let beyond = later_ns >> TIME_BITS | later >> ORDINAL_BITS | actor >> ACTOR_BITS;
        if beyond == 0 {
            let what = actor << ACTOR | later << ORDINAL;
            self.words.push(later_ns << TIME | what | head);
        } else {
            self.extend(&[WIDE | actor << ACTOR | head, time_ns, ordinal]);
        }
        (self.last_ns, self.last_ordinal) = (time_ns, ordinal);
        self.events += 1;
        self.events as usize
    }

    /// An actor was in a state until then: since it was told before, or the section joined.
    #[inline]
    pub fn state(&mut self, (section, code): (u32, Code), at_ns: u64, is_shared: bool) {
        let what = (u64::from(section) << STATE_BITS | code.state_index()) << WHAT;
        self.add(STATE | shared(is_shared) | what, at_ns);
    }

    /// A section is left.
    #[inline]
    pub fn leave(&mut self, section: u32, at_ns: u64) {
        self.add(LEAVE | u64::from(section) << WHAT, at_ns);
    }

    /// A section is joined; returns its place among the request's.
    #[inline(always)]
    pub fn join(&mut self, stay: Stay, at_ns: u64) -> u32 {
        let Stay { timeline, actor, key, serial } = stay;
        let (low, high) = (key as u64, (key >> 64) as u64);
        let what = u64::from(timeline) << 2 | u64::from(actor) << 1 | u64::from(high != 0);
        self.add(JOIN | what << WHAT, at_ns);
        self.words.extend_from_slice(&[serial, low]);
        if high != 0 {
            self.extend(&[high]);
        }
        self.sections += 1;
        self.sections - 1
    }

    #[inline]
    fn add(&mut self, head: u64, at_ns: u64) {
        // A time before the last event is a very large number, and does not fit either.
        let later_ns = at_ns.wrapping_sub(self.last_ns);
        match (head >> TIME) | (later_ns >> TIME_BITS) {
            0 => self.words.push(later_ns << TIME | head),
            _ => self.extend(&[WIDE | head, at_ns]),
        }
    }

    #[cold]
    fn extend(&mut self, words: &[u64]) {
        self.words.extend_from_slice(words);
    }

    /// The sections that it is in, by their places among the request's.
    pub fn staying(&self) -> Vec<(u32, Stay)> {
        let mut all: Vec<Option<Stay>> = Vec::new();
        self.tell(&mut all);
        let all = (0u32..).zip(all);
        all.filter_map(|(section, stay)| Some((section, stay?))).collect()
    }

    /// Makes a request of it, in the memory of another.
    pub fn read(&self, request: &mut Request) {
        request.events.clear();
        request.sections.clear();
        request.spans.clear();
        request.events.reserve(self.events());
        self.tell(request);
    }

    /// Tells all entries in the order in which they were written.
    #[inline(always)]
    fn tell(&self, reader: &mut impl Reader) {
        let (head, words) = self.words.split_at(HEAD);
        let (mut last_ns, mut last_ordinal) = (head[1], head[2]);
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let mut next = || words.next().unwrap_or_default();
            let wide = word & WIDE != 0;
            let at_ns = if wide { next() } else { last_ns + (word >> TIME) };
            // What stands before the time.
            let what = if wide { word } else { word & ((1 << TIME) - 1) };
            let shared = word & SHARED != 0;
            match word & 3 {
                EVENT => {
                    let (actor, ordinal) = match wide {
                        true => (what >> ACTOR, next()),
                        false => {
                            let actor = what >> ACTOR & ((1 << ACTOR_BITS) - 1);
                            (actor, last_ordinal + (what >> ORDINAL))
                        }
                    };
                    (last_ns, last_ordinal) = (at_ns, ordinal);
                    let kind = EventId((what >> WHAT) as u16 % (1 << KIND_BITS));
                    let actor = (actor as u32).wrapping_sub(1);
                    reader.event(RequestEvent::of_code((at_ns, ordinal, kind), actor, shared));
                }
                STATE => {
                    let state = State::ALL[(what >> WHAT) as usize % (1 << STATE_BITS)];
                    reader.state((what >> (WHAT + STATE_BITS)) as u32, state, at_ns, shared);
                }
                LEAVE => reader.leave((what >> WHAT) as u32, at_ns),
                _ => {
                    let (serial, low) = (next(), next());
                    let high = if what >> WHAT & 1 != 0 { next() } else { 0 };
                    let key = u128::from(high) << 64 | u128::from(low);
                    let actor = what >> (WHAT + 1) & 1 != 0;
                    let timeline = (what >> (WHAT + 2)) as u16;
                    reader.join(Stay { timeline, actor, key, serial }, at_ns);
                }
            }
        }
    }

    /// How many events it has.
    pub fn events(&self) -> usize {
        self.events as usize
    }

    /// When it began.
    pub fn begin_ns(&self) -> u64 {
        self.words[1]
    }

    /// The place of its class, and its label.
    pub fn class(&self) -> (usize, Option<u32>) {
        let word = self.words[HEAD - 1];
        ((word >> 33) as usize, (word >> 32 & 1 != 0).then_some(word as u32))
    }
}

fn shared(shared: bool) -> u64 {
    if shared { SHARED } else { 0 }
}

impl Reader for Request {
    #[inline]
    fn event(&mut self, event: RequestEvent) {
        self.events.push(event);
    }

    #[inline]
    fn state(&mut self, section: u32, state: State, at_ns: u64, shared: bool) {
        // Until it leaves, the section has when its actor's state was told last.
        let told_ns = &mut self.sections[section as usize].left_ns;
        let from_ns = std::mem::replace(told_ns, at_ns);
        let span = Span { section, state, from_ns, to_ns: at_ns, shared };
        if !self.spans.last_mut().is_some_and(|last| last.goes_on(&span)) {
            self.spans.push(span);
        }
    }

    #[inline]
    fn leave(&mut self, section: u32, at_ns: u64) {
        self.sections[section as usize].left_ns = at_ns;
    }

    #[inline]
    fn join(&mut self, stay: Stay, at_ns: u64) {
        let Stay { timeline, actor, key, serial } = stay;
        let (timeline, joined_ns, left_ns) = (usize::from(timeline), at_ns, at_ns);
        self.sections.push(RequestSection { timeline, key, serial, joined_ns, left_ns, actor });
    }
}

impl Reader for Vec<Option<Stay>> {
    fn leave(&mut self, section: u32, _: u64) {
        self[section as usize] = None;
    }

    fn join(&mut self, stay: Stay, _: u64) {
        self.push(Some(stay));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Wait;

    fn stay(timeline: u16, key: u128) -> Stay {
        Stay { timeline, actor: timeline == 0, key, serial: 7 + u64::from(timeline) }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut log = Log::default();
        assert!(log.is_empty());
        log.begin(5, (3, Some(u32::MAX)), (1_000, 10));
        assert_eq!(log.last_ordinal(), None);
        let times = [1_000, 1_001, 1_001 + (1 << 28), u64::MAX / 2];
        let ordinals = [10, 11, 11 + (1 << 16), 1 << 50];
        let actors = [None, Some(0), Some(14), Some(15), Some(1 << 30)];
        assert_eq!(log.join(stay(0, 1 << 100), 1_000), 0);
        assert_eq!(log.join(stay(9, 8), 1_000), 1);
        let mut written = Vec::new();
        for ((time_ns, ordinal), n) in times.into_iter().zip(ordinals).zip(0..) {
            for actor in actors {
                let kind = EventId(4095 - n);
                let event = RequestEvent::new((time_ns, ordinal, kind), actor, n == 2);
                written.push(event);
                assert_eq!(log.event(event), written.len());
            }
        }
        let code = Code::new(State::Runnable, Wait::Lock);
        log.state((0, code), 2_000, true);
        log.state((0, code), u64::MAX / 2, true);
        assert_eq!(log.staying().len(), 2);
        log.leave(1, 2_500);
        assert_eq!(log.staying()[0].0, 0);
        log.leave(0, u64::MAX / 2 + 1);
        let mut request = Request::default();
        log.read(&mut request);
        assert_eq!(request.events, written);
        assert_eq!((log.id(), log.class(), log.begin_ns()), (5, (3, Some(u32::MAX)), 1_000));
        assert_eq!((log.last_ns(), log.last_ordinal()), (u64::MAX / 2, Some(1 << 50)));
        // Nothing happened between the two, so they are one.
        let (section, state, shared) = (0, State::Runnable, true);
        let span = Span { section, state, from_ns: 1_000, to_ns: u64::MAX / 2, shared };
        assert_eq!(request.spans, [span]);
        let [one, two] = request.sections.as_slice() else { panic!("{:?}", request.sections) };
        assert_eq!((one.timeline, one.key, one.left_ns), (0, 1 << 100, u64::MAX / 2 + 1));
        assert_eq!((two.serial, two.joined_ns, two.left_ns), (16, 1_000, 2_500));
        assert!(one.actor && !two.actor);
    }
}
