//! Following in parts: several readers, on as many machines, and one that follows.
//!
//! Reading events and looking at each takes most of the time, and can be done for each file apart.
//! What comes of it is put in order again by [`Place`] and handed to a [`Follower`], which finds what
//! [`Session::for_each`] finds.

use fettle_requests::{Batch, Complete, Engine, EventId, Options, Strings};
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::feed::Feed;
use crate::place::{Part, Place};
use crate::session::{Context, Observer, Session};

/// How long after an effect its cause may be reported, nanoseconds.
pub const LATE_NS: u64 = crate::deferred::causal::WAIT_NS;

/// Reads the events of one part.
pub struct PartReader<'a> {
    session: &'a Session<'a>,
    feed: Feed,
    who: Vec<Option<(usize, usize)>>,
    /// The process of each thread, as last reported.
    reported: FxHashMap<u64, u64>,
}

/// Follows events that others have read.
pub struct Follower<'a> {
    session: &'a Session<'a>,
    feed: Feed,
    engine: Engine,
    who: Vec<Option<(usize, usize)>>,
    out: Batch,
    looked_at: usize,
    first: u64,
}

impl<'a> Session<'a> {
    /// Reads a part of the events that the schemas use.
    pub fn read_part(&'a self, part: Part) -> Result<PartReader<'a>> {
        let mut feed = Feed::open(self.trace, &self.program, &|event| self.uses(event))?;
        feed.keep(part);
        Ok(PartReader { session: self, feed, who: self.who(), reported: FxHashMap::default() })
    }

    /// Follows events that are read elsewhere.
    pub fn follower(&'a self) -> Result<Follower<'a>> {
        let feed = Feed::open(self.trace, &self.program, &|event| self.uses(event))?;
        let options = Options { switches: feed.switches(), ..self.options() };
        let engine = Engine::new(self.program.clone(), options);
        let out = Batch::new(self.program.catalog());
        let who = self.who();
        Ok(Follower { session: self, feed, engine, who, out, looked_at: 0, first: 0 })
    }

    /// Columns of `pid` and `tid`, for each kind of event that has both.
    fn who(&self) -> Vec<Option<(usize, usize)>> {
        let kinds = self.program.catalog().events().iter();
        kinds.map(|kind| kind.place("pid").zip(kind.place("tid"))).collect()
    }
}

impl PartReader<'_> {
    /// Replaces `batch` by the next events, and `places` by where they lie; `false` when there are
    /// none.
    pub fn next(&mut self, batch: &mut Batch, places: &mut Vec<Place>) -> Result<bool> {
        let names = &mut self.session.names.borrow_mut();
        self.feed.next_placed(batch, places, names)
    }

    /// Whether a [`Follower`] has to see an event whatever the schemas do with it: it says of which
    /// process its thread is, and no event of this part has said that before; or it moves bytes.
    pub fn has_to_be_seen(&mut self, batch: &Batch, row: usize) -> bool {
        let moves_bytes = self.feed.is_transfer(batch.kind(row)).0;
        let Some((pid, tid)) = columns(&self.who, batch.kind(row)) else { return moves_bytes };
        let pid = batch.value(row, pid);
        self.reported.insert(batch.value(row, tid), pid) != Some(pid) || moves_bytes
    }

    /// Whether an event may turn out to have happened before, by [`LATE_NS`] at most: a send that is
    /// reported after the receive.
    pub fn may_be_late(&self, batch: &Batch, row: usize) -> bool {
        self.feed.is_transfer(batch.kind(row)).1
    }

    /// The texts that events name by code.
    pub fn strings(&self) -> &Strings {
        self.feed.strings()
    }

    /// What could not be read so far.
    pub fn problems(&self) -> &[String] {
        self.feed.problems()
    }
}

fn columns(who: &[Option<(usize, usize)>], event: EventId) -> Option<(usize, usize)> {
    who.get(event.index()).copied().flatten()
}

impl Follower<'_> {
    /// Where the next events go, in order of time and place, and the texts whose codes they use.
    pub fn input(&mut self) -> (&mut Batch, &mut Strings) {
        self.feed.input()
    }

    /// Follows what was put in; all of it if no more will come, and what is open is complete then.
    pub fn step(&mut self, is_last: bool, observer: &mut dyn Observer) {
        let Follower { session, feed, engine, who, out, .. } = self;
        {
            let mut names = session.names.borrow_mut();
            let (held, _) = feed.input();
            for row in self.looked_at..held.len() {
                if let Some((pid, tid)) = columns(who, held.kind(row)) {
                    names.learn(held.value(row, tid) as u32, held.value(row, pid) as u32);
                }
            }
        }
        feed.release(is_last, out);
        self.looked_at = feed.input().0.len();
        let names = &session.names.borrow();
        let context = Context { program: &session.program, strings: feed.strings(), names };
        let mut going_on = observer.events(self.first, out, &context);
        let mut notify = |request: Complete<'_>| {
            going_on = going_on && observer.request(request.read(), &context);
        };
        engine.feed(out, &mut notify);
        self.first += out.len() as u64;
        if is_last {
            engine.finish(&mut notify);
        }
    }

    /// Open sections, open requests and streams with bytes in flight: what memory depends on.
    pub fn open(&self) -> (usize, usize, usize) {
        self.engine.open()
    }
}
