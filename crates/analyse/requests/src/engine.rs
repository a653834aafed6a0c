//! The engine: one pass over events in order of time.
//!
//! Each event goes to the first rule of each schema whose filter lets it. The rule finds sections by
//! key, and *the requests of the event* are those of its sections, of the bytes it receives, and the
//! one it seeds. From then on these requests are in each of its sections: this is the flood fill,
//! done forward as events come, so nothing has to be kept for later. A section without a request
//! costs its place in a table and no more.

use crate::clock::Clock;
use crate::event::Batch;
use crate::feed::Feed;
use crate::program::Program;
use crate::request::Outcome;
use crate::requests::Complete;
#[cfg(test)]
use crate::run::Run;
use crate::steps::Piece;

/// What the engine may take, and what it should assume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A request to which nothing happens for so long is taken to be complete. Time of events, not
    /// of the engine: the result does not depend on how fast events are fed.
    pub quiet_ns: Option<u64>,
    /// Time that goes back by more than this is a clock that was set, by less an event that comes
    /// too late. Time that goes forward by more is counted as a gap.
    pub jump_ns: u64,
    /// Most open sections of a schema; beyond, one that was not touched for long is given up.
    pub sections_max: usize,
    /// Most open requests of a schema; beyond, seeds begin none.
    pub requests_max: usize,
    /// Most events of a request; then it is taken to be complete.
    pub events_max: usize,
    /// Most ranges of bytes on their way in a stream.
    pub ranges_max: usize,
    /// Most requests that share a section or an event.
    pub sharers_max: usize,
    /// Whether events tell when actors are switched out. If not, an actor that `expects` something
    /// waits for it from then on.
    pub switches: bool,
    /// Of each schema, only the request of this number is told. Others are followed as ever, and it is
    /// counted how many events each has, but nothing is written down of them.
    pub only: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            quiet_ns: Some(60_000_000_000),
            jump_ns: 1_000_000_000,
            sections_max: 1 << 20,
            requests_max: 1 << 20,
            events_max: 1 << 20,
            ranges_max: 4096,
            sharers_max: 16,
            switches: true,
            only: None,
        }
    }
}

/// What did not go as it should: nothing is left out silently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Events fed.
    pub events: u64,
    /// Events that came too late; they are taken to happen with the event before.
    pub out_of_order: u64,
    /// Times that the clock was set back; it goes on from where it was.
    pub clock_jumps: u64,
    /// Times that nothing happened for longer than [`Options::jump_ns`].
    pub gaps: u64,
    /// Events of kinds that the program's catalog does not have.
    pub unknown: u64,
}

/// What did not go as it should in one schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaCounts {
    /// Events that a rule took.
    pub matched: u64,
    /// Requests begun.
    pub begun: u64,
    /// Seeds that began none because [`Options::requests_max`] were open.
    pub refused: u64,
    /// Bindings to sections that were not open.
    pub unbound: u64,
    /// STOPs of sections that were not open.
    pub unmatched_stops: u64,
    /// Sections closed by a START of their key: STOPs that are missing, where the schema has any.
    pub restarted: u64,
    /// Bindings left out because a value does not fit into its key.
    pub unfit: u64,
    /// Sections given up because [`Options::sections_max`] were open.
    pub evicted: u64,
    /// Bytes received that nobody was seen to send.
    pub bytes_unsent: u64,
    /// Bytes sent twice, or given up because of [`Options::ranges_max`].
    pub bytes_dropped: u64,
    /// Bytes in flight when their stream was started or stopped.
    pub bytes_unread: u64,
    /// Requests left out of a section or event because of [`Options::sharers_max`].
    pub sharers_cut: u64,
    /// Requests completed because of [`Options::events_max`].
    pub too_long: u64,
    /// Requests completed because they were quiet.
    pub quiet: u64,
}

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
