//! What was reported, and what was not and why.

/// Why messages of a connection are not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// No protocol that is known.
    Unknown,
    /// Encrypted.
    Tls,
    /// What goes over it is compressed.
    Compressed,
    /// It goes on with another protocol.
    Upgraded,
    /// Answers come without requests: subscriptions.
    Unasked,
    /// Requests whose answers may be left out.
    Quiet,
    /// Bytes that matter are missing, and nothing says where messages begin after them.
    Cut,
}

impl Reason {
    /// All.
    pub const ALL: [Reason; 7] = [
        Reason::Unknown,
        Reason::Tls,
        Reason::Compressed,
        Reason::Upgraded,
        Reason::Unasked,
        Reason::Quiet,
        Reason::Cut,
    ];

    /// In words, behind "connection".
    pub fn text(self) -> &'static str {
        match self {
            Reason::Unknown => "of a protocol that is not known",
            Reason::Tls => "that is encrypted",
            Reason::Compressed => "that is compressed",
            Reason::Upgraded => "that went on with another protocol",
            Reason::Unasked => "with answers without a question",
            Reason::Quiet => "with questions whose answers may be left out",
            Reason::Cut => "of which bytes are missing that matter",
        }
    }
}

/// What was reported and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests.
    pub asks: u64,
    /// Answers.
    pub answers: u64,
    /// Times that a connection was out of step.
    pub out_of_step: u64,
    /// Requests whose answers were not found for that.
    pub unanswered: u64,
    /// Connections that were given up, by reason, as in [`Reason::ALL`].
    pub given_up: [u64; 7],
    /// Connections that were forgotten because there were too many.
    pub forgotten: u64,
}
