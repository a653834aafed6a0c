//! What is known of a call, and what is found out.

/// Which side of a call reported a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The one that was asked.
    #[default]
    Callee,
    /// The one that asked.
    Caller,
    /// None: a part of what a process does.
    Inside,
}

/// A span without ids. Names are numbers that its reader gives out: equal numbers are equal names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When it began, in nanoseconds of its process's clock.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Which side it is of.
    pub side: Side,
    /// The process that reported it: an instance of a service.
    pub process: u32,
    /// The service that the process belongs to.
    pub service: u32,
    /// The service on the other side, as far as it is known.
    pub peer: Option<u32>,
    /// What was called: an operation, a route.
    pub name: u32,
    /// The thread that worked on it, if it is known.
    pub thread: Option<u64>,
    /// The connection that it went over, as both sides name it, if that is known.
    pub connection: Option<u64>,
}

/// Where a span belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// The span that caused it, by its place in the input; `None` if it begins a trace.
    pub parent: Option<u32>,
    /// How many spans could have caused it.
    pub candidates: u32,
    /// How likely the parent is right, from 0 to 1; 1 where there was no other.
    pub likely: f32,
}

/// What came of a reconstruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reconstruction {
    /// A link for each span, in the order of the input.
    pub links: Vec<Link>,
    /// Spans that no other could have caused, though the process that asked reported what it was asked.
    pub alone: u64,
}
