//! Messages as connections report them.

/// Which way bytes went, seen from the end that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This end sent them.
    Sent,
    /// This end received them.
    Received,
}

impl Side {
    /// The other way.
    pub(crate) fn other(self) -> Side {
        match self {
            Side::Sent => Side::Received,
            Side::Received => Side::Sent,
        }
    }
}

/// The ids of a message, hashed; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Of the request that it is a part of, which those who work for it pass on: a trace's (`traceparent`, B3), or
    /// `x-request-id`.
    pub trace: u64,
    /// What a question has its answer repeat, through all that pass the two on: the place for answers of NATS.
    pub correlation: u64,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The protocol: `http1`, `http2`, `grpc`, `fastcgi`, `postgres`, `mysql`, `redis`, `memcached`,
    /// `nats`, `mqtt`, `amqp`, `kafka`, `websocket`.
    pub protocol: &'static str,
    /// Number of the exchange on its connection; of HTTP/2 the stream's.
    pub exchange: u64,
    /// The ids in it; of an answer what it repeats of its question.
    pub ids: Ids,
    /// What it says.
    pub what: What<'a>,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A request, reported with the bytes in which it is known what it is.
    Ask {
        /// What sort of: `GET`, `SELECT`, a method of gRPC.
        command: &'a str,
        /// Which one: a path, a statement, a command and its key; cut after 256 bytes.
        text: &'a str,
    },
    /// Its answer, reported with its last bytes.
    Answer {
        /// Whether all went well.
        ok: bool,
        /// How it went, in the protocol's words.
        status: &'a str,
    },
    /// The request that was just reported gets no answer: it is over when its reader goes on.
    Unanswered,
    /// Nothing is known any more of a request that was reported: its answer is not seen. It went this way.
    Unseen {
        /// Which way the request went.
        asked: Side,
    },
}

/// How a request went that got no answer.
pub const NO_REPLY: &str = "no reply";

/// How a request went whose answer is not seen.
pub const UNSEEN: &str = "not seen";
