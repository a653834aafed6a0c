//! What an engine may take, and what it should assume.

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
    /// Events from which on a request is looked at for how many of all events it has: one that goes on to
    /// take a quarter of them while many others begin has swallowed these, and is complete.
    pub swallow_min: usize,
    /// Most ranges of bytes in flight in a stream.
    pub ranges_max: usize,
    /// Most requests that share a section or an event.
    pub sharers_max: usize,
    /// Whether events report when actors are switched out. If not, an actor that `expects` something
    /// waits for it from then on.
    pub switches: bool,
    /// Of each schema, only the request of this number is recorded whole. Others are followed as ever,
    /// and their events are counted, but they have no log.
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
            swallow_min: 1 << 12,
            ranges_max: 4096,
            sharers_max: 16,
            switches: true,
            only: None,
        }
    }
}
