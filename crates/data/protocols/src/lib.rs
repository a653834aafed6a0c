//! Messages in the bytes that go over connections.
//!
//! A read is not a message: one read brings several, and a message comes in several reads. Besides,
//! recordings keep only the first bytes of each. [`Connections`] is told what was sent and received
//! on each socket, with as many bytes as are known, finds out which protocol it is, and tells who
//! *asks* what and when it is *answered*, under a number that both have: the *exchange*.
//!
//! ```text
//! bytes of a call ──> lane (one direction) ──> decoder: a step ──> asks and answers
//!                     what is in between              │
//!                     is skipped by its length        └ or: more bytes, lost, given up
//! ```
//!
//! Nothing is guessed. Where bytes that matter are missing, the connection is *out of step*: what
//! waits for an answer is forgotten and counted, and messages are told again from where a question
//! begins for certain. Where that cannot be known (questions that do not wait for answers, tables
//! that both ends keep) the connection is given up, with its [`Reason`].
//!
//! No I/O; bytes in, messages out, whatever the bytes.
#![forbid(unsafe_code)]

mod connection;
mod decoder;
mod hpack;
mod http1;
mod http2;
mod huffman;
mod memcached;
mod postgres;
mod resp;
mod text;

use rustc_hash::FxHashMap;

use connection::Connection;

/// Which way bytes went, seen from the end that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This end sent them.
    Sent,
    /// This end received them.
    Received,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The protocol: `http1`, `http2`, `grpc`, `postgres`, `redis`, `memcached`.
    pub protocol: &'static str,
    /// Number of the exchange on its connection; of HTTP/2 the stream's.
    pub exchange: u64,
    /// What it says.
    pub what: What<'a>,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A question, told with the bytes in which it is known what it is.
    Ask {
        /// What sort of: `GET`, `SELECT`, a method of gRPC.
        command: &'a str,
        /// Which one: a path, a statement, a command and its key; cut after 256 bytes.
        text: &'a str,
    },
    /// Its answer, told with its last bytes.
    Answer {
        /// Whether all went well.
        ok: bool,
        /// How it went, in the protocol's words.
        status: &'a str,
    },
    /// The question that was just told gets no answer: it is over when whoever reads it goes on.
    Unanswered,
    /// Nothing is known any more of a question that was told: its answer is not seen. It went this way.
    Unseen {
        /// Which way the question went.
        asked: Side,
    },
}

/// How a question went that got no answer.
pub const NO_REPLY: &str = "no reply";

/// How a question went whose answer is not seen.
pub const UNSEEN: &str = "not seen";

/// Why messages of a connection are not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// No protocol that is known.
    Unknown,
    /// Encrypted.
    Tls,
    /// It goes on with another protocol.
    Upgraded,
    /// Answers come without questions: subscriptions.
    Unasked,
    /// Questions whose answers may be left out.
    Quiet,
    /// Bytes that matter are missing, and nothing says where messages begin after them.
    Cut,
}

impl Reason {
    /// All.
    pub const ALL: [Reason; 6] = [
        Reason::Unknown,
        Reason::Tls,
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
            Reason::Upgraded => "that went on with another protocol",
            Reason::Unasked => "with answers that nobody asked for",
            Reason::Quiet => "with questions whose answers may be left out",
            Reason::Cut => "of which bytes are missing that matter",
        }
    }
}

/// What was told and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Questions.
    pub asks: u64,
    /// Answers.
    pub answers: u64,
    /// Times that a connection was out of step.
    pub out_of_step: u64,
    /// Questions whose answers were not found for that.
    pub unanswered: u64,
    /// Connections that were given up, by reason, as in [`Reason::ALL`].
    pub given_up: [u64; 6],
    /// Connections that were forgotten because there were too many.
    pub forgotten: u64,
}

/// Connections at once; beyond, one that nothing waits on is forgotten.
const CONNECTIONS: usize = 1 << 16;

/// The connections of a recording.
#[derive(Debug, Default)]
pub struct Connections {
    open: FxHashMap<u64, Connection>,
    counts: Counts,
}

impl Connections {
    /// None so far.
    pub fn new() -> Connections {
        Connections::default()
    }

    /// Bytes went over a socket: `bytes` of them, of which the first are `known`. Tells the messages
    /// that they begin or complete. Returns why the connection is given up, if that is now.
    pub fn transfer(
        &mut self,
        socket: u64,
        side: Side,
        known: &[u8],
        bytes: u64,
        tell: &mut dyn FnMut(Message<'_>),
    ) -> Option<Reason> {
        if self.open.len() >= CONNECTIONS && !self.open.contains_key(&socket) {
            self.counts.forgotten += self.open.len() as u64;
            self.open.clear();
        }
        let known = &known[..known.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))];
        let connection = self.open.entry(socket).or_default();
        let given_up = connection.transfer(side, known, bytes, &mut self.counts, tell);
        if let Some(reason) = given_up {
            self.counts.given_up[reason as usize] += 1;
        }
        given_up
    }

    /// The socket is closed, or another connection has its number.
    pub fn close(&mut self, socket: u64) {
        self.open.remove(&socket);
    }

    /// What was told so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}
