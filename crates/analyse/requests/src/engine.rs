//! The engine: one pass over events in order of time.
//!
//! Each event goes to the first rule of each schema whose filter lets it. The rule finds sections by
//! key, and *the requests of the event* are those of its sections, of the bytes it receives, and the
//! one it seeds. From then on these requests are in each of its sections: this is the flood fill,
//! done forward as events come, so nothing has to be kept for later. A section without a request
//! costs its place in a table and no more.

use crate::clock::Clock;
use crate::counts::{Counts, SchemaCounts};
use crate::event::Batch;
use crate::feed::Feed;
use crate::options::Options;
use crate::piece::Piece;
use crate::program::Program;
use crate::request::Outcome;
use crate::requests::Complete;
#[cfg(test)]
use crate::run::Run;

/// Runs the schemas of a program over events.
///
/// Feed batches in order of time; requests come out when they are complete. How events are cut
/// into batches makes no difference.
pub struct Engine {
    program: Program,
    options: Options,
    clock: Clock,
    feeds: Vec<Feed>,
    events: u64,
    unknown: u64,
}

impl Engine {
    /// An engine before its first event.
    pub fn new(program: Program, options: Options) -> Engine {
        let schemas = program.schemas.iter().enumerate();
        let feeds = schemas.map(|(n, schema)| Feed::new(n, schema, &options)).collect();
        Engine { program, options, clock: Clock::default(), feeds, events: 0, unknown: 0 }
    }

    /// Takes in events. `out` gets the requests that are complete, each schema's in the order of
    /// their completion.
    ///
    /// # Panics
    ///
    /// If the batch was made for the events of another program and has fewer columns.
    pub fn feed(&mut self, batch: &Batch, out: &mut dyn FnMut(Complete<'_>)) {
        let width = self.program.catalog.width();
        assert!(batch.columns.len() >= width, "this batch is not for the events of this program");
        let times = self.clock.straighten(&batch.times_ns, self.options.jump_ns);
        let kinds = &batch.kinds;
        let events = Piece { times_ns: &times, kinds, columns: &batch.columns, first: 0 };
        for (feed, schema) in self.feeds.iter_mut().zip(&self.program.schemas) {
            feed.feed(schema, &self.options, events, self.events, out);
        }
        let known = self.program.catalog.events().len();
        // Hardly ever is there one.
        let last = batch.kinds.iter().fold(0, |last, kind| last.max(kind.0));
        if usize::from(last) >= known {
            self.unknown += batch.kinds.iter().filter(|kind| kind.index() >= known).count() as u64;
        }
        self.events += batch.len() as u64;
    }

    /// Completes the requests that are still open, as [`Outcome::Unfinished`].
    pub fn finish(&mut self, out: &mut dyn FnMut(Complete<'_>)) {
        for feed in &mut self.feeds {
            feed.run.finish_all(Outcome::Unfinished, out);
        }
    }

    /// What it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What did not go as it should with the events.
    pub fn counts(&self) -> Counts {
        let Clock { out_of_order, clock_jumps, gaps, .. } = self.clock;
        Counts { events: self.events, out_of_order, clock_jumps, gaps, unknown: self.unknown }
    }

    /// What did not go as it should in a schema.
    pub fn schema_counts(&self, schema: usize) -> SchemaCounts {
        self.feeds.get(schema).map_or_else(SchemaCounts::default, |feed| feed.run.counts)
    }

    /// Sends every event the way that is always right, without the short ones.
    #[cfg(test)]
    pub(crate) fn general(mut self) -> Engine {
        self.feeds.iter_mut().for_each(|feed| feed.ways.fill_with(Default::default));
        self
    }

    #[cfg(test)]
    pub(crate) fn run(&self, schema: usize) -> &Run {
        &self.feeds[schema].run
    }

    /// Open sections, open requests and streams with bytes in flight, of all schemas: what memory
    /// depends on.
    pub fn open(&self) -> (usize, usize, usize) {
        self.feeds
            .iter()
            .map(|feed| feed.run.open())
            .fold((0, 0, 0), |sum, open| (sum.0 + open.0, sum.1 + open.1, sum.2 + open.2))
    }
}
