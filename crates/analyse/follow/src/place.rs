//! Parts of a trace's events, and where events lie in it.

/// One of several parts of a trace's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which one, from 0.
    pub index: usize,
    /// How many there are.
    pub of: usize,
}

/// Where an event lies in a trace. Events of one time are in the order of their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its row group among all.
    pub source: u32,
    /// Its row there.
    pub row: u64,
}
