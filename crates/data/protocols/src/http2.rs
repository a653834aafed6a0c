//! HTTP/2, and gRPC over it: frames of streams, each of which is an exchange. Heads of requests and
//! answers are packed with tables that both ends keep, so none of them may be missed.

use rustc_hash::FxHashMap;

use crate::decoder::{Answer, Ask, Decoder, Input, Open, Step};
use crate::hpack::Table;
use crate::ids::Headers;
use crate::message::Ids;
use crate::text::{begins_like, reported};

/// How every connection begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME: usize = 9;
/// Streams that are remembered at once.
const STREAMS: usize = 1 << 14;
/// A packed head is not larger.
const BLOCK: usize = 256 << 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const PUSH: u8 = 5;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// Whether a connection begins here.
pub fn begins(bytes: &[u8]) -> bool {
    bytes.len() >= 16 && begins_like(bytes, PREFACE)
}

/// One direction.
#[derive(Debug, Default)]
struct Half {
    table: Table,
    /// A head whose frames are not all there: its stream, whether the stream ends with it.
    block: Vec<u8>,
    ends: bool,
}

/// An exchange under way.
#[derive(Debug, Default)]
struct Stream {
    grpc: bool,
    status: String,
    grpc_status: Option<String>,
}

/// A connection.
#[derive(Debug, Default)]
pub struct Http2 {
    started: bool,
    asks: Half,
    answers: Half,
    streams: FxHashMap<u64, Stream>,
}

/// A frame: its kind, flags, stream, length with its head, and as much of it as is known.
struct Frame<'a> {
    kind: u8,
    flags: u8,
    stream: u64,
    bytes: u64,
    body: &'a [u8],
}

impl<'a> Frame<'a> {
    fn read(input: Input<'a>) -> Option<Frame<'a>> {
        let head = input.bytes.get(..FRAME)?;
        let length = input.be32(0)? >> 8;
        let stream = u64::from(input.be32(5)? & 0x7fff_ffff);
        let &[_, _, _, kind, flags, ..] = head else { return None };
        let bytes = FRAME as u64 + u64::from(length);
        Some(Frame { kind, flags, stream, bytes, body: input.part(FRAME as u64, bytes) })
    }

    fn is_whole(&self) -> bool {
        (self.body.len() + FRAME) as u64 == self.bytes
    }

    /// The packed head within, without padding and priority.
    fn fragment(&self) -> Option<&'a [u8]> {
        let mut body = self.body;
        if self.kind != CONTINUATION && self.flags & PADDED != 0 {
            let (padding, rest) = body.split_first()?;
            body = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
        }
        let skip = match self.kind {
            HEADERS if self.flags & PRIORITY != 0 => 5,
            PUSH => 4,
            _ => 0,
        };
        body.get(skip..)
    }
}

/// A head, unpacked: what matters of it.
#[derive(Debug, Default)]
struct Fields {
    method: String,
    path: String,
    kind: String,
    status: String,
    grpc_status: Option<String>,
    ids: Headers,
}

impl Half {
    /// Takes a frame of a head in. `Some` when that is whole, with the fields or nothing if they
    /// cannot be read.
    fn head(&mut self, frame: &Frame<'_>) -> Option<Option<Fields>> {
        let Some(fragment) = frame.fragment() else { return Some(None) };
        if frame.kind != CONTINUATION {
            self.block.clear();
            self.ends = frame.flags & END_STREAM != 0;
        }
        if self.block.len() + fragment.len() > BLOCK {
            return Some(None);
        }
        self.block.extend_from_slice(fragment);
        if frame.flags & END_HEADERS == 0 {
            return None;
        }
        let mut fields = Fields::default();
        let block = std::mem::take(&mut self.block);
        let read = self.table.read(&block, |name, value| match name {
            b":method" => fields.method = reported(value),
            b":path" => fields.path = reported(value),
            b":status" => fields.status = reported(value),
            b"content-type" => fields.kind = reported(value),
            b"grpc-status" => fields.grpc_status = Some(reported(value)),
            _ => fields.ids.look(name, value),
        });
        Some(read.then_some(fields))
    }
}

impl Http2 {
    fn answered(&mut self, stream: u64, reset: bool) -> Option<Answer> {
        let Stream { grpc, status, grpc_status } = self.streams.remove(&stream)?;
        let protocol = grpc.then_some("grpc");
        let (ok, status) = match (reset, grpc, grpc_status) {
            (true, _, _) => (false, "reset".to_owned()),
            (_, true, Some(code)) => (code == "0", code),
            (_, true, None) => (false, format!("http {status}")),
            (_, false, _) => (matches!(status.as_bytes().first(), Some(b'2' | b'3')), status),
        };
        Some(Answer { ok, status, exchange: Some(stream), protocol, ..Answer::default() })
    }

    /// What both directions have in common. `None` for a head.
    fn other(&mut self, frame: &Frame<'_>, input: Input<'_>) -> Option<Step> {
        let head = matches!(frame.kind, HEADERS | CONTINUATION | PUSH);
        if head && frame.bytes > BLOCK as u64 {
            return Some(Step::Lost);
        }
        if head && !frame.is_whole() {
            return Some(if input.last { Step::Lost } else { Step::More });
        }
        if head {
            return None;
        }
        if frame.kind == RESET
            && let Some(answer) = self.answered(frame.stream, true)
        {
            return Some(Step::Answer(frame.bytes, answer));
        }
        Some(Step::Skip(frame.bytes))
    }
}

impl Decoder for Http2 {
    fn protocol(&self) -> &'static str {
        "http2"
    }

    fn begins(&self, bytes: &[u8]) -> bool {
        begins(bytes)
    }

    fn ask(&mut self, input: Input<'_>) -> Step {
        if !self.started {
            if !begins_like(input.bytes, PREFACE) {
                return Step::Lost;
            }
            self.started = true;
            return Step::Skip(PREFACE.len() as u64);
        }
        let Some(frame) = Frame::read(input) else { return Step::More };
        if let Some(step) = self.other(&frame, input) {
            return step;
        }
        let fields = match self.asks.head(&frame) {
            None => return Step::Skip(frame.bytes),
            Some(None) => return Step::Lost,
            Some(Some(fields)) => fields,
        };
        // Heads behind a request's body ask nothing new.
        if fields.method.is_empty() || self.streams.contains_key(&frame.stream) {
            return Step::Skip(frame.bytes);
        }
        if self.streams.len() >= STREAMS {
            return Step::Lost;
        }
        let grpc = fields.kind.starts_with("application/grpc");
        self.streams.insert(frame.stream, Stream { grpc, ..Stream::default() });
        let ask = Ask {
            command: if grpc { fields.path.clone() } else { fields.method },
            text: fields.path,
            exchange: Some(frame.stream),
            protocol: grpc.then_some("grpc"),
            ids: Ids { trace: fields.ids.id(), ..Ids::default() },
            ..Ask::default()
        };
        Step::Ask(frame.bytes, ask)
    }

    fn answer(&mut self, input: Input<'_>, _: Option<&str>) -> Step {
        let Some(frame) = Frame::read(input) else { return Step::More };
        if frame.kind == DATA && frame.flags & END_STREAM != 0 {
            return match self.answered(frame.stream, false) {
                Some(answer) => Step::Answer(frame.bytes, answer),
                None => Step::Skip(frame.bytes),
            };
        }
        if let Some(step) = self.other(&frame, input) {
            return step;
        }
        let fields = match self.answers.head(&frame) {
            None => return Step::Skip(frame.bytes),
            Some(None) => return Step::Lost,
            Some(Some(fields)) => fields,
        };
        if let Some(stream) = self.streams.get_mut(&frame.stream) {
            if !fields.status.is_empty() {
                stream.status = fields.status;
            }
            stream.grpc_status = fields.grpc_status.or(stream.grpc_status.take());
        }
        let ends = frame.kind != PUSH && self.answers.ends;
        match ends.then(|| self.answered(frame.stream, false)).flatten() {
            Some(answer) => Step::Answer(frame.bytes, answer),
            None => Step::Skip(frame.bytes),
        }
    }

    fn take_open(&mut self) -> Vec<Open> {
        let protocol = |stream: &Stream| if stream.grpc { "grpc" } else { "http2" };
        let open =
            |(exchange, stream)| Open { exchange, protocol: protocol(&stream), by_server: false };
        let mut all: Vec<Open> = self.streams.drain().map(open).collect();
        all.sort_unstable_by_key(|one| one.exchange);
        all
    }

    fn restart(&mut self) -> bool {
        false
    }
}
