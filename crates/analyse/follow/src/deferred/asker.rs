//! A question, by which attribution names whom something is for.

/// A question by its socket and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asker {
    pub socket: u64,
    pub number: u64,
}
