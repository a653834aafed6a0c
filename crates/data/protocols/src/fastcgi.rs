//! FastCGI, which web servers ask others by (PHP-FPM): records of a head and a content, of requests that have
//! numbers. A request's parameters, which say what is asked, are a stream of their own, which an empty record ends.

use crate::decoder::{Answer, Ask, Decoder, Input, Open, Step};
use crate::exchanges::Exchanges;
use crate::ids::Headers;
use crate::message::Ids;
use crate::text::{number, reported, split_at_byte};

const HEAD: u64 = 8;
const VERSION: u8 = 1;
/// The most of a request's parameters that is kept.
const PARAMETERS: usize = 64 << 10;
/// Bytes of an answer in which its status is looked for.
const STATUS: u64 = 1024;

/// What records are.
mod kind {
    pub const BEGIN: u8 = 1;
    pub const ABORT: u8 = 2;
    pub const END: u8 = 3;
    pub const PARAMETERS: u8 = 4;
    pub const INPUT: u8 = 5;
    pub const OUTPUT: u8 = 6;
    pub const ERRORS: u8 = 7;
    pub const DATA: u8 = 8;
    pub const VALUES: u8 = 9;
    pub const VALUES_RESULT: u8 = 10;
    pub const UNKNOWN: u8 = 11;
}

/// How a request was refused.
const REFUSED: [&str; 4] = ["", "CANT_MPX_CONN", "OVERLOADED", "UNKNOWN_ROLE"];

/// Whether a request begins here.
pub fn begins(bytes: &[u8]) -> bool {
    let is_head =
        matches!(bytes, [VERSION, kind::BEGIN, _, _, 0, 8, padding, 0, ..] if *padding < 8);
    is_head && matches!(bytes.get(8..11), None | Some([0, 1..=3, 0 | 1]))
}

/// A request that waits: what its output has said of how it went.
type Status = Option<i64>;

/// A connection.
#[derive(Debug, Default)]
pub struct FastCgi {
    open: Exchanges<u16, Status>,
    /// The parameters of the request that begins, and its number.
    begun: Option<(u16, Vec<u8>)>,
}

/// A record: its kind, request, length with its head and what fills it up, and as much of the content as is known.
struct Record<'a> {
    kind: u8,
    request: u16,
    length: u64,
    bytes: u64,
    content: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record that begins here: `None` while more bytes are needed, an error where there is none.
    fn read(input: Input<'a>) -> Option<Result<Record<'a>, ()>> {
        let &[version, kind, a, b, c, d, padding, _] = input.bytes.first_chunk::<8>()?;
        if version != VERSION {
            return Some(Err(()));
        }
        let length = u64::from(u16::from_be_bytes([c, d]));
        let bytes = HEAD + length + u64::from(padding);
        let content = input.part(HEAD, HEAD + length);
        Some(Ok(Record { kind, request: u16::from_be_bytes([a, b]), length, bytes, content }))
    }
}

/// A length, and what stands behind it.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [a @ 0..=0x7f, rest @ ..] => Some((usize::from(*a), rest)),
        [a, b, c, d, rest @ ..] => {
            Some((u32::from_be_bytes([a & 0x7f, *b, *c, *d]) as usize, rest))
        }
        _ => None,
    }
}

/// A name and its value.
fn pair<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (name, rest) = length(bytes)?;
    let (value, rest) = length(rest)?;
    let (name, rest) = rest.split_at_checked(name)?;
    let (value, rest) = rest.split_at_checked(value)?;
    *bytes = rest;
    Some((name, value))
}

/// What the parameters ask for, as far as they are known.
fn asked(mut parameters: &[u8]) -> Ask {
    let (mut method, mut path, mut script) = (None, None, None);
    let mut found = Headers::default();
    while let Some((name, value)) = pair(&mut parameters) {
        match name {
            b"REQUEST_METHOD" => method = Some(reported(value)),
            b"REQUEST_URI" => {
                path = Some(reported(split_at_byte(value, b'?').map_or(value, |(path, _)| path)));
            }
            b"SCRIPT_NAME" => script = Some(reported(value)),
            _ => {
                if let Some(header) = name.strip_prefix(b"HTTP_") {
                    let dashed = header.iter().map(|b| if *b == b'_' { b'-' } else { *b });
                    found.look(&dashed.collect::<Vec<u8>>(), value);
                }
            }
        }
    }
    let known = |text: &String| !text.is_empty();
    Ask {
        command: method.filter(known).unwrap_or_else(|| "REQUEST".to_owned()),
        text: path.filter(known).or(script).unwrap_or_default(),
        ids: Ids { trace: found.id(), ..Ids::default() },
        ..Ask::default()
    }
}

/// The status in the head of an output: what has none went well.
fn status(head: &[u8]) -> i64 {
    for line in head.split(|byte| *byte == b'\n').take_while(|line| !line.trim_ascii().is_empty()) {
        if let Some((name, value)) = split_at_byte(line, b':')
            && name.eq_ignore_ascii_case(b"status")
        {
            let code = value.trim_ascii().get(..3).and_then(number);
            return code.unwrap_or(200);
        }
    }
    200
}

impl FastCgi {
    /// A part of the parameters of the request that begins; an empty one is the last.
    fn parameters(&mut self, record: &Record<'_>, input: Input<'_>) -> Step {
        let Some((request, parameters)) = &mut self.begun else { return Step::Skip(record.bytes) };
        let is_whole = record.content.len() as u64 == record.length;
        if *request != record.request {
            return Step::Lost;
        }
        if !is_whole && !input.last {
            return Step::More;
        }
        if parameters.len() + record.content.len() > PARAMETERS {
            return Step::Lost;
        }
        parameters.extend_from_slice(record.content);
        if is_whole && record.length > 0 {
            return Step::Skip(record.bytes);
        }
        let ask = asked(parameters);
        let request = *request;
        self.begun = None;
        match self.open.open(request, None) {
            Ok(exchange) => Step::Ask(record.bytes, Ask { exchange: Some(exchange), ..ask }),
            Err(reason) => Step::Stop(reason),
        }
    }

    /// The end of an answer.
    fn ended(&mut self, record: &Record<'_>) -> Step {
        let Some(&[a, b, c, d, refused, ..]) = record.content.first_chunk::<8>() else {
            return Step::Lost;
        };
        let Some((exchange, status)) = self.open.close(record.request) else {
            return Step::Skip(record.bytes);
        };
        let exit = u32::from_be_bytes([a, b, c, d]);
        let refused = REFUSED.get(usize::from(refused)).copied().unwrap_or("REFUSED");
        let (ok, status) = match (refused, status, exit) {
            ("", Some(status), 0) => (status < 400, status.to_string()),
            ("", None, 0) => (true, "OK".to_owned()),
            ("", Some(status), exit) => (false, format!("{status} exit {exit}")),
            ("", None, exit) => (false, format!("exit {exit}")),
            (refused, ..) => (false, refused.to_owned()),
        };
        let exchange = Some(exchange);
        Step::Answer(record.bytes, Answer { ok, status, exchange, ..Answer::default() })
    }
}

impl Decoder for FastCgi {
    fn protocol(&self) -> &'static str {
        "fastcgi"
    }

    fn begins(&self, bytes: &[u8]) -> bool {
        begins(bytes)
    }

    fn ask(&mut self, input: Input<'_>) -> Step {
        let record = match Record::read(input) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(record)) => record,
        };
        match record.kind {
            kind::BEGIN => {
                self.begun = Some((record.request, Vec::new()));
                Step::Skip(record.bytes)
            }
            kind::PARAMETERS => self.parameters(&record, input),
            kind::ABORT | kind::INPUT | kind::DATA | kind::VALUES => Step::Skip(record.bytes),
            _ => Step::Lost,
        }
    }

    fn answer(&mut self, input: Input<'_>, _: Option<&str>) -> Step {
        let record = match Record::read(input) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(record)) => record,
        };
        match record.kind {
            kind::OUTPUT => {
                if let Some(said @ None) = self.open.first(record.request)
                    && record.length > 0
                {
                    let wanted = record.length.min(STATUS);
                    if !input.has(HEAD + wanted) {
                        return Step::More;
                    }
                    *said = Some(status(record.content));
                }
                Step::Skip(record.bytes)
            }
            kind::END if !input.has(HEAD + record.length) => Step::More,
            kind::END => self.ended(&record),
            kind::ERRORS | kind::VALUES_RESULT | kind::UNKNOWN => Step::Skip(record.bytes),
            _ => Step::Lost,
        }
    }

    fn take_open(&mut self) -> Vec<Open> {
        self.open.take(self.protocol(), |_| false)
    }

    /// Web servers ask one thing at a time, though they need not.
    fn restart(&mut self) -> bool {
        self.begun = None;
        !self.open.had_several()
    }
}
