//! What did not go as it should: nothing is left out silently.

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
    /// Times that nothing happened for longer than `Options::jump_ns`.
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
    /// Seeds that began none because `Options::requests_max` were open.
    pub refused: u64,
    /// Bindings to sections that were not open.
    pub unbound: u64,
    /// STOPs of sections that were not open.
    pub unmatched_stops: u64,
    /// Sections closed by a START of their key: STOPs that are missing, where the schema has any.
    pub restarted: u64,
    /// Bindings left out because a value does not fit into its key.
    pub unfit: u64,
    /// Sections given up because `Options::sections_max` were open.
    pub evicted: u64,
    /// Bytes received whose sending was not seen.
    pub bytes_unsent: u64,
    /// Bytes sent twice, or given up because of `Options::ranges_max`.
    pub bytes_dropped: u64,
    /// Bytes in flight when their stream was started or stopped.
    pub bytes_unread: u64,
    /// Requests left out of a section or event because of `Options::sharers_max`.
    pub sharers_cut: u64,
    /// Requests completed because of `Options::events_max`.
    pub too_long: u64,
    /// Requests cut because they took a large share of all events: see `Options::swallow_min`.
    pub swallowed: u64,
    /// Requests completed because they were quiet.
    pub quiet: u64,
}
