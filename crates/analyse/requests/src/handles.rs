//! Small values that stand for requests and for actors, which may be gone by now.

/// A request that may be complete by now, in one word: its slot, then the slot's generation. Slots are
/// used again; the generation says whether it is still the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestRef(u64);

impl RequestRef {
    #[inline]
    pub fn new(slot: u32, generation: u32) -> RequestRef {
        RequestRef(u64::from(slot) << 32 | u64::from(generation))
    }

    #[inline]
    pub fn slot(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub fn generation(self) -> u32 {
        self.0 as u32
    }
}

/// An actor to remember after its section is closed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerMark {
    /// Number of the section; 0 for none.
    pub serial: u64,
    pub key: u128,
    pub timeline: u16,
    /// The request it worked on, or one of them.
    pub request: Option<u64>,
}
