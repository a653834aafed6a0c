//! What a decoder is: it looks at the bytes at which a message, or a part of one, begins, and says
//! how long that is and what it means. It never sees what is behind; the caller skips that.

use crate::counts::Reason;
use crate::message::Ids;

/// What a message of a given form says: `None` while more bytes are needed, an error where it is
/// no such message.
pub type Read<T> = Option<Result<T, ()>>;

/// Bytes at which something begins.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// As many as there are.
    pub bytes: &'a [u8],
    /// The next ones are missing: what is not here will never be.
    pub last: bool,
}

impl<'a> Input<'a> {
    /// Whether there are `bytes`, or all that will ever come.
    pub fn has(&self, bytes: u64) -> bool {
        self.last || self.bytes.len() as u64 >= bytes
    }

    /// The bytes before a line's end, and how many the line has with it.
    pub fn line(&self) -> Option<(&'a [u8], u64)> {
        let end = self.bytes.windows(2).position(|two| two == b"\r\n")?;
        Some((self.part(0, end as u64), end as u64 + 2))
    }

    /// As much of the bytes from one place to another as there is.
    pub fn part(&self, from: u64, to: u64) -> &'a [u8] {
        let to = to.min(self.bytes.len() as u64);
        self.bytes.get(from.min(to) as usize..to as usize).unwrap_or_default()
    }

    /// A number of four bytes, the most significant first.
    pub fn be32(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }
}

/// Who says something, where either end may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    Client,
    Server,
}

impl By {
    /// The other end.
    pub fn other(self) -> By {
        match self {
            By::Client => By::Server,
            By::Server => By::Client,
        }
    }
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    pub command: String,
    pub text: String,
    /// Its number, where the protocol has one; otherwise answers come in order.
    pub exchange: Option<u64>,
    /// Other than the decoder's own.
    pub protocol: Option<&'static str>,
    /// What its answer repeats, if anything; or [`MARK`].
    pub key: Option<u64>,
    pub reply: Reply,
    pub ids: Ids,
}

/// The key of a request that nothing is answered by but what is of its kind alone: it only says that
/// all before it is answered.
pub const MARK: u64 = u64::MAX;

/// Whether a request is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reply {
    #[default]
    Yes,
    No,
    /// Only if there is something to say.
    Perhaps,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub ok: bool,
    pub status: String,
    pub exchange: Option<u64>,
    pub protocol: Option<&'static str>,
    pub key: Option<u64>,
    pub ids: Ids,
    /// Requests that need no answer would not have got this one.
    pub needed: bool,
}

/// A request with a number of its own that is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    pub exchange: u64,
    pub protocol: &'static str,
    /// The server asks, and the client answers.
    pub by_server: bool,
}

/// What stands at the beginning of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// That needs more of them.
    More,
    /// So many that say nothing, or nothing yet.
    Skip(u64),
    /// All that came at once says nothing, as far as it is known and beyond.
    Rest,
    /// A request, and how many bytes from here on are known to be its.
    Ask(u64, Ask),
    /// The end of an answer, which comes after so many bytes.
    Answer(u64, Answer),
    /// The ends of several answers at once.
    Answers(u64, Vec<Answer>),
    /// The end of an answer, behind which both ends go on with WebSocket, by this path.
    WebSocket(u64, Answer, String),
    /// Nothing that can be.
    Lost,
    /// There is no use in going on.
    Stop(Reason),
}

/// Reads one connection of one protocol. It may be given bytes again after [`Step::More`] only.
pub trait Decoder: std::fmt::Debug + Send {
    /// The protocol's name.
    fn protocol(&self) -> &'static str;

    /// Whether the bytes that it was found by are the server's.
    fn server_began(&self) -> bool {
        false
    }

    /// Whether a request certainly begins here.
    fn begins(&self, bytes: &[u8]) -> bool;

    /// What the client says next.
    fn ask(&mut self, input: Input<'_>) -> Step;

    /// What the server says next. `command` is that of the request that waits longest.
    fn answer(&mut self, input: Input<'_>, command: Option<&str>) -> Step;

    /// Takes out the exchanges with numbers of their own that are not over.
    fn take_open(&mut self) -> Vec<Open> {
        Vec::new()
    }

    /// Bytes are missing, both directions begin anew; `false` if that cannot be.
    fn restart(&mut self) -> bool;
}
