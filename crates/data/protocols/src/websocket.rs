//! WebSocket, once HTTP/1 has handed a connection over: frames, of which one or several make a message. Either end
//! sends messages, which nothing answers; a ping is answered by a pong, a close by another one.

use crate::decoder::{Answer, Ask, By, Decoder, Input, Open, Reply, Step};
use crate::exchanges::Exchanges;
use crate::fields::Fields;

/// Bytes of a control frame's content, at most.
const CONTROL: u64 = 125;

/// What frames are.
mod kind {
    pub const GOES_ON: u8 = 0;
    pub const TEXT: u8 = 1;
    pub const BINARY: u8 = 2;
    pub const CLOSE: u8 = 8;
    pub const PING: u8 = 9;
    pub const PONG: u8 = 10;
}

/// What waits for an answer, by who has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Name {
    Ping(By),
    Close(By),
}

/// A connection.
#[derive(Debug)]
pub struct WebSocket {
    /// The path that the client has asked for.
    path: String,
    open: Exchanges<Name>,
}

/// A frame: its kind, length with its head, and as much of its content as is known, without the mask.
struct Frame {
    kind: u8,
    bytes: u64,
    content: Vec<u8>,
}

impl Frame {
    /// The frame that begins here: `None` while more bytes are needed, an error where there is none.
    fn read(by: By, input: Input<'_>) -> Option<Result<Frame, ()>> {
        let mut fields = Fields(input.bytes);
        let (first, second) = (fields.byte()?, fields.byte()?);
        let kind = first & 15;
        let is_masked = second & 0x80 != 0;
        let length = match second & 0x7f {
            126 => u64::from(fields.be16()?),
            127 => fields.be64()?,
            length => length.into(),
        };
        let is_control = kind >= kind::CLOSE;
        // Clients mask what they send, servers do not; control frames are short and whole.
        let fits = is_masked == (by == By::Client)
            && length < 1 << 62
            && matches!(kind, kind::GOES_ON..=kind::BINARY | kind::CLOSE..=kind::PONG)
            && (!is_control || (first & 0x80 != 0 && length <= CONTROL));
        if !fits {
            return Some(Err(()));
        }
        let mask = if is_masked { fields.take(4)? } else { &[0; 4] };
        let head = (input.bytes.len() - fields.0.len()) as u64;
        let wanted = if kind == kind::CLOSE { length.min(2) } else { 0 };
        if !input.has(head + wanted) {
            return None;
        }
        let content = input.part(head, head + wanted);
        let content = content.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
        Some(Ok(Frame { kind, bytes: head + length, content: content.collect() }))
    }
}

impl WebSocket {
    /// A connection on which a client has asked for this path.
    pub fn new(path: String) -> WebSocket {
        WebSocket { path, open: Exchanges::default() }
    }

    fn asks(&mut self, bytes: u64, command: &str, name: Option<Name>) -> Step {
        let (exchange, reply) = match name {
            Some(name) => match self.open.open(name, ()) {
                Ok(exchange) => (exchange, Reply::Yes),
                Err(reason) => return Step::Stop(reason),
            },
            None => (self.open.number(), Reply::No),
        };
        let (command, text) = (command.to_owned(), self.path.clone());
        Step::Ask(bytes, Ask { command, text, exchange: Some(exchange), reply, ..Ask::default() })
    }

    fn says(&mut self, by: By, input: Input<'_>) -> Step {
        let frame = match Frame::read(by, input) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(frame)) => frame,
        };
        let bytes = frame.bytes;
        let code = frame.content.first_chunk().map(|code| u16::from_be_bytes(*code));
        match frame.kind {
            kind::TEXT => self.asks(bytes, "TEXT", None),
            kind::BINARY => self.asks(bytes, "BINARY", None),
            kind::PING => self.asks(bytes, "PING", Some(Name::Ping(by))),
            kind::PONG => match self.open.close(Name::Ping(by.other())) {
                Some((exchange, ())) => answered(bytes, exchange, true, "PONG".to_owned()),
                // One that no one has asked for.
                None => Step::Skip(bytes),
            },
            kind::CLOSE => match self.open.close(Name::Close(by.other())) {
                Some((exchange, ())) => {
                    let status = code.map_or_else(|| "CLOSE".to_owned(), |code| code.to_string());
                    answered(bytes, exchange, code.is_none_or(|code| code <= 1001), status)
                }
                None => self.asks(bytes, "CLOSE", Some(Name::Close(by))),
            },
            _ => Step::Skip(bytes),
        }
    }
}

fn answered(bytes: u64, exchange: u64, ok: bool, status: String) -> Step {
    Step::Answer(bytes, Answer { ok, status, exchange: Some(exchange), ..Answer::default() })
}

impl Decoder for WebSocket {
    fn protocol(&self) -> &'static str {
        "websocket"
    }

    fn begins(&self, _: &[u8]) -> bool {
        false
    }

    fn ask(&mut self, input: Input<'_>) -> Step {
        self.says(By::Client, input)
    }

    fn answer(&mut self, input: Input<'_>, _: Option<&str>) -> Step {
        self.says(By::Server, input)
    }

    fn take_open(&mut self) -> Vec<Open> {
        let by_server = |name| matches!(name, Name::Ping(By::Server) | Name::Close(By::Server));
        self.open.take("websocket", by_server)
    }

    /// Messages do not wait for those before, so where one begins is not known.
    fn restart(&mut self) -> bool {
        false
    }
}
