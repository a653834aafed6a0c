//! What is known of an open request: a log of small entries, which is read when it is complete.
//!
//! With many requests open, what the engine does most is to wait for their memory, and what happens to
//! a request is written once and read once. So it is written one behind the other, most of it in one
//! word: what happened, and how long after the request's last event. Times and numbers that do not fit
//! follow in words of their own.
//!
//! A request that is not asked for ([`crate::Options::only`]) has no log: events are counted, and there
//! is nothing but the places of the sections that it came to.

use std::cmp::Reverse;

use crate::request::{Request, RequestEvent, RequestSection, Span};
use crate::state::{Code, State, Wait};
use crate::transitions::{TRANSITION_BITS, Transition, Transitions};

/// The words that a log begins with: the request's number, when it began, the place of its first event
/// among all, and its class with its label.
const HEAD: usize = 4;

// The lowest two bits of an entry say what happened.
/// An event: what it does, its actor, and how many events there were since the last.
const EVENT: u64 = 0;
/// An actor's state from then on, and what it expects.
const STATE: u64 = 1;
/// A section is left.
const LEAVE: u64 = 2;
/// A section is joined, whose actor is in a state. Its number and its key follow.
const JOIN: u64 = 3;
/// The time follows in a word of its own, and of an event its place among all.
const WIDE: u64 = 1 << 2;
/// It is of other requests too.
const SHARED: u64 = 1 << 3;
/// Of a section that is left: what its actor waited for then was not the request's.
const IDLE: u64 = SHARED;
/// Where what else there is to say begins; and, in entries that are not [`WIDE`], the time.
const WHAT: u32 = 4;
const TIME: u32 = 36;
const TIME_BITS: u32 = u64::BITS - TIME;

const ACTOR: u32 = WHAT + TRANSITION_BITS;
const ACTOR_BITS: u32 = 4;
const ORDINAL: u32 = ACTOR + ACTOR_BITS;
const ORDINAL_BITS: u32 = TIME - ORDINAL;
const _: () = assert!(crate::Catalog::MAX <= 1 << TRANSITION_BITS);

/// Of a state: itself, then its section. Of a section: after two flags its state, then its timeline.
const CODE_BITS: u32 = 5;
const _: () = assert!(Code::COUNT == 1 << CODE_BITS);

/// The log of an open request.
#[derive(Default)]
pub(crate) struct Log {
    words: Vec<u64>,
    /// When its last event was, or it began.
    last_ns: u64,
    /// The last event's place among all, or where that of the first will be.
    last_ordinal: u64,
    events: u32,
    /// How many it joined; from [`UNTOLD`] on if it has no log.
    sections: u32,
}

/// More sections than a request joins.
const UNTOLD: u32 = 1 << 31;

/// A section that a request joins.
#[derive(Clone, Copy)]
pub(crate) struct JoinedSection {
    pub timeline: u16,
    pub actor: bool,
    pub code: Code,
    pub key: u128,
    pub serial: u64,
}

/// An event of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub ns: u64,
    pub ordinal: u64,
    pub transition: Transition,
    /// Place of its actor among the request's sections.
    pub actor: Option<u32>,
    pub shared: bool,
}

/// What entries say, to their readers.
trait Reader {
    fn event(&mut self, event: Entry) {
        let _ = event;
    }

    fn state(&mut self, section: u32, code: Code, at_ns: u64, shared: bool) {
        let _ = (section, code, at_ns, shared);
    }

    fn leave(&mut self, section: u32, at_ns: u64, idle: bool);

    fn join(&mut self, joined_section: JoinedSection, at_ns: u64);
}

impl Log {
    /// Begins a request, with a log or without.
    pub fn begin(
        &mut self,
        id: u64,
        class: (usize, Option<u32>),
        (ns, ordinal): (u64, u64),
        reported: bool,
    ) {
        let (class, label) =
            (class.0 as u64, class.1.map_or(0, |label| 1 << 32 | u64::from(label)));
        self.words.extend_from_slice(&[id, ns, ordinal, class << 33 | label]);
        (self.last_ns, self.last_ordinal) = (ns, ordinal);
        (self.events, self.sections) = (0, if reported { 0 } else { UNTOLD });
    }

    /// Whether what happens to it is written down.
    #[inline]
    pub fn is_reported(&self) -> bool {
        self.sections < UNTOLD
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
    pub fn event(&mut self, event: Entry) -> usize {
        let Entry { ns, ordinal, transition, actor, .. } = event;
        // No actor is 0.
        let actor = actor.map_or(0, |actor| u64::from(actor) + 1);
        let head = EVENT | shared(event.shared) | u64::from(transition.0) << WHAT;
        let (later_ns, later) = (ns - self.last_ns, ordinal - self.last_ordinal);
        if !self.is_reported() {
            // It is counted.
        } else if later_ns < 1 << TIME_BITS && later < 1 << ORDINAL_BITS && actor < 1 << ACTOR_BITS
        {
            let what = actor << ACTOR | later << ORDINAL;
            self.words.push(later_ns << TIME | what | head);
        } else {
            self.extend(&[WIDE | actor << ACTOR | head, ns, ordinal]);
        }
        (self.last_ns, self.last_ordinal) = (ns, ordinal);
        self.events += 1;
        self.events as usize
    }

    /// An actor was in its state until then, and is in another from then on, or the same; or, if that
    /// is the number of a wait, it turns out that it waited for that. If it only expects something else, nothing is said of its time.
    #[inline]
    pub fn state(&mut self, (section, next): (u32, Code), at_ns: u64, is_shared: bool) {
        let what = (u64::from(section) << CODE_BITS | next.index() as u64) << WHAT;
        self.add(STATE | shared(is_shared) | what, at_ns);
    }

    /// A section is left; `idle` if its actor waits, and not for the request.
    #[inline]
    pub fn leave(&mut self, section: u32, at_ns: u64, idle: bool) {
        let idle = if idle { IDLE } else { 0 };
        self.add(LEAVE | idle | u64::from(section) << WHAT, at_ns);
    }

    /// A section is joined; returns its place among the request's.
    #[inline(always)]
    pub fn join(&mut self, joined_section: JoinedSection, place: u32, at_ns: u64) -> u32 {
        self.sections += 1;
        if !self.is_reported() {
            self.words.push(u64::from(place));
            return self.sections - 1;
        }
        let JoinedSection { timeline, actor, code, key, serial } = joined_section;
        let (low, high) = (key as u64, (key >> 64) as u64);
        let what = u64::from(timeline) << CODE_BITS | code.index() as u64;
        let what = what << 2 | u64::from(actor) << 1 | u64::from(high != 0);
        let head = JOIN | what << WHAT;
        let later_ns = at_ns.wrapping_sub(self.last_ns);
        match later_ns >> TIME_BITS {
            0 => self.words.extend_from_slice(&[later_ns << TIME | head, serial, low]),
            _ => self.extend(&[WIDE | head, at_ns, serial, low]),
        }
        if high != 0 {
            self.extend(&[high]);
        }
        self.sections - 1
    }

    #[inline(always)]
    fn add(&mut self, head: u64, at_ns: u64) {
        if !self.is_reported() {
            return;
        }
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

    /// Sections that it may be in, all that it is in among them: which of the request's each is, and
    /// its place, that `find` knows by timeline and key.
    pub fn staying(&self, find: impl Fn(u16, u128) -> u32) -> Vec<(u32, u32)> {
        if !self.is_reported() {
            // It may have come to a place more than once: the last time counts.
            let places = self.words[HEAD..].iter().map(|place| *place as u32);
            let mut all: Vec<(u32, u32)> = (UNTOLD..).zip(places).collect();
            all.sort_unstable_by_key(|(section, place)| (*place, Reverse(*section)));
            all.dedup_by_key(|(_, place)| *place);
            all.sort_unstable();
            return all;
        }
        let mut all: Vec<Option<JoinedSection>> = Vec::new();
        self.notify(&mut all);
        let place =
            |joined_section: JoinedSection| find(joined_section.timeline, joined_section.key);
        let all = (0u32..).zip(all);
        all.filter_map(|(section, joined_section)| Some((section, place(joined_section?))))
            .collect()
    }

    /// Makes a request of it, in the memory of another.
    pub fn read(
        &self,
        request: &mut Request,
        activity: &mut Vec<Activity>,
        transitions: &Transitions,
    ) {
        request.events.clear();
        request.sections.clear();
        request.spans.clear();
        request.events.reserve(self.events());
        activity.clear();
        if !self.is_reported() {
            return;
        }
        let mut story = Story { request, activity, transitions, renamed: false };
        self.notify(&mut story);
        if story.renamed {
            // What is of one state now is one span.
            story.request.spans.dedup_by(|next, last| last.goes_on(next));
        }
    }

    /// Gives all entries in the order in which they were written.
    #[inline(always)]
    fn notify(&self, reader: &mut impl Reader) {
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
                    let transition = Transition((what >> WHAT) as u16 % (1 << TRANSITION_BITS));
                    let actor = (actor as u32).checked_sub(1);
                    reader.event(Entry { ns: at_ns, ordinal, transition, actor, shared });
                }
                STATE => {
                    let code = Code::of_index((what >> WHAT) as usize);
                    reader.state((what >> (WHAT + CODE_BITS)) as u32, code, at_ns, shared);
                }
                LEAVE => reader.leave((what >> WHAT) as u32, at_ns, word & IDLE != 0),
                _ => {
                    let (serial, low) = (next(), next());
                    let high = if what >> WHAT & 1 != 0 { next() } else { 0 };
                    let key = u128::from(high) << 64 | u128::from(low);
                    let actor = what >> (WHAT + 1) & 1 != 0;
                    let code = Code::of_index((what >> (WHAT + 2)) as usize);
                    let timeline = (what >> (WHAT + 2 + CODE_BITS)) as u16;
                    reader.join(JoinedSection { timeline, actor, code, key, serial }, at_ns);
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

    /// The place of its first event among all.
    pub fn first_ordinal(&self) -> u64 {
        self.words[2]
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

/// A request that is put together.
struct Story<'a> {
    request: &'a mut Request,
    /// What its actors do, by section.
    activity: &'a mut Vec<Activity>,
    transitions: &'a Transitions,
    /// Some time turned out to be of another state.
    renamed: bool,
}

/// What an actor does, while its request is put together.
#[derive(Clone, Copy)]
pub(crate) struct Activity {
    code: Code,
    /// Behind the span of its last wait, while it expects the same; 0 for none.
    waited: usize,
}

impl Story<'_> {
    /// An actor was in its state until then.
    #[inline]
    fn span(&mut self, section: u32, at_ns: u64, shared: bool) {
        let Request { sections, spans, .. } = &mut *self.request;
        let activity = &mut self.activity[section as usize];
        let state = activity.code.state();
        // Until it leaves, the section has when its actor's state was last written.
        let from_ns = sections[section as usize].left_ns;
        if from_ns >= at_ns {
            return;
        }
        sections[section as usize].left_ns = at_ns;
        let span = Span { section, state, from_ns, to_ns: at_ns, shared };
        if !spans.last_mut().is_some_and(|last| last.goes_on(&span)) {
            spans.push(span);
        }
        if matches!(state, State::Waiting(_)) {
            activity.waited = spans.len();
        }
    }

    /// From then on an actor does something else, or expects it.
    #[inline]
    fn turn(&mut self, section: u32, next: Code) {
        let activity = &mut self.activity[section as usize];
        // The next wait is another one.
        if !next.expects_as(activity.code) {
            activity.waited = 0;
        }
        activity.code = next;
    }

    /// What an actor waited for last turns out to be something else.
    fn rename(&mut self, section: u32, wait: Wait, at_ns: u64, shared: bool) {
        self.span(section, at_ns, shared);
        let waited = self.activity[section as usize].waited.checked_sub(1);
        if let Some(span) = waited.and_then(|place| self.request.spans.get_mut(place)) {
            span.state = State::Waiting(wait);
            self.renamed = true;
        }
    }
}

impl Reader for Story<'_> {
    #[inline]
    fn event(&mut self, event: Entry) {
        let Entry { ns, ordinal, transition, actor, shared } = event;
        let (kind, next) = self.transitions.get(transition);
        self.request.events.push(RequestEvent::new((ns, ordinal, *kind), actor, shared));
        if let Some(actor) = actor {
            let code = self.activity[actor as usize].code;
            let next = next[code.index()];
            if !next.is_in_state_of(code) {
                self.span(actor, ns, false);
            }
            self.turn(actor, next);
        }
    }

    #[inline]
    fn state(&mut self, section: u32, next: Code, at_ns: u64, shared: bool) {
        if let Some(wait) = next.wait() {
            return self.rename(section, wait, at_ns, shared);
        }
        let code = self.activity[section as usize].code;
        if next == code || !next.is_in_state_of(code) {
            self.span(section, at_ns, shared);
        }
        self.turn(section, next);
    }

    #[inline]
    fn leave(&mut self, section: u32, at_ns: u64, idle: bool) {
        if idle {
            return;
        }
        if self.request.sections[section as usize].actor {
            self.span(section, at_ns, false);
        }
        self.request.sections[section as usize].left_ns = at_ns;
    }

    #[inline]
    fn join(&mut self, joined_section: JoinedSection, at_ns: u64) {
        let JoinedSection { timeline, actor, code, key, serial } = joined_section;
        let (timeline, joined_ns, left_ns) = (usize::from(timeline), at_ns, at_ns);
        let section = RequestSection { timeline, key, serial, joined_ns, left_ns, actor };
        self.request.sections.push(section);
        self.activity.push(Activity { code, waited: 0 });
    }
}

impl Reader for Vec<Option<JoinedSection>> {
    fn leave(&mut self, section: u32, _: u64, _: bool) {
        self[section as usize] = None;
    }

    fn join(&mut self, joined_section: JoinedSection, _: u64) {
        self.push(Some(joined_section));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventId;
    use crate::{Source, compile};

    fn joined_section(timeline: u16, key: u128) -> JoinedSection {
        let serial = 7 + u64::from(timeline);
        JoinedSection { timeline, actor: timeline == 0, code: Code::FIRST, key, serial }
    }

    /// Takes down events as they are read.
    struct Entries(Vec<Entry>);

    impl Reader for Entries {
        fn event(&mut self, event: Entry) {
            self.0.push(event);
        }

        fn leave(&mut self, _: u32, _: u64, _: bool) {}

        fn join(&mut self, _: JoinedSection, _: u64) {}
    }

    #[test]
    fn what_is_written_is_read() {
        let mut log = Log::default();
        assert!(log.is_empty());
        log.begin(5, (3, Some(u32::MAX)), (1_000, 10), true);
        assert_eq!(log.last_ordinal(), None);
        let times = [1_000, 1_001, 1_001 + (1 << 28), u64::MAX / 2];
        let ordinals = [10, 11, 11 + (1 << 16), 1 << 50];
        let actors = [None, Some(0), Some(14), Some(15), Some(1 << 30)];
        assert_eq!(log.join(joined_section(0, 1 << 100), 0, 1_000), 0);
        assert_eq!(log.join(joined_section(9, 8), 1, 1_000), 1);
        let mut written = Vec::new();
        for ((ns, ordinal), n) in times.into_iter().zip(ordinals).zip(0..) {
            for actor in actors {
                let event =
                    Entry { ns, ordinal, transition: Transition(4095 - n), actor, shared: n == 2 };
                written.push(event);
                assert_eq!(log.event(event), written.len());
            }
        }
        let mut read = Entries(Vec::new());
        log.notify(&mut read);
        assert_eq!(read.0, written);
        assert_eq!((log.id(), log.class(), log.begin_ns()), (5, (3, Some(u32::MAX)), 1_000));
        assert_eq!((log.last_ns(), log.last_ordinal()), (u64::MAX / 2, Some(1 << 50)));
    }

    #[test]
    fn states_are_reported_or_follow_from_events() {
        let schema = "event e(tid: u32) actor thread(tid: u32)
                      on e { basic thread(tid) is runnable }";
        let program = compile(&[Source::new("states", schema)], &|_| None).unwrap();
        let [kind, transition] = [Transition(0), Transition::of(&program.schemas[0], 0).unwrap()];
        let mut log = Log::default();
        log.begin(0, (0, None), (1_000, 0), true);
        log.join(joined_section(0, 1 << 100), 0, 1_000);
        log.join(joined_section(9, 8), 1, 1_000);
        let event =
            |ns, transition| Entry { ns, ordinal: ns, transition, actor: Some(0), shared: false };
        log.event(event(1_000, kind));
        log.event(event(2_000, transition));
        log.event(event(2_500, transition));
        log.leave(1, 2_500, false);
        // Nothing happens to its time where it only expects something else.
        log.state((0, Code::new(State::Runnable, Wait::Lock)), 2_700, true);
        log.state((0, Code::new(State::Waiting(Wait::Lock), Wait::Lock)), 3_000, true);
        assert_eq!(log.staying(|timeline, _| u32::from(timeline) + 7), [(0, 7)]);
        log.leave(0, u64::MAX / 2 + 1, false);
        let mut request = Request::default();
        log.read(&mut request, &mut Vec::new(), &Transitions::new(&program.schemas[0], true));
        let span =
            |state, from_ns, to_ns, shared| Span { section: 0, state, from_ns, to_ns, shared };
        let waiting = State::Waiting(Wait::Lock);
        let spans = [
            span(State::Running, 1_000, 2_000, false),
            span(State::Runnable, 2_000, 3_000, true),
            span(waiting, 3_000, u64::MAX / 2 + 1, false),
        ];
        assert_eq!(request.spans, spans);
        assert!(request.events.iter().all(|event| event.kind == EventId(0)));
        let [one, two] = request.sections.as_slice() else { panic!("{:?}", request.sections) };
        assert_eq!((one.timeline, one.key, one.left_ns), (0, 1 << 100, u64::MAX / 2 + 1));
        assert_eq!((two.serial, two.joined_ns, two.left_ns), (16, 1_000, 2_500));
        assert!(one.actor && !two.actor);
    }
}
