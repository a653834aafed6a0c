//! HTTP/1.0 and 1.1: a head of lines, and a body whose length the head gives, or in chunks that
//! give theirs.

use crate::counts::Reason;
use crate::decoder::{Answer, Ask, Decoder, Input, Read, Step};
use crate::ids::Headers;
use crate::message::Ids;
use crate::text::{begins_like, number, reported, split_at_byte, words};

const METHODS: [&[u8]; 9] =
    [b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT"];
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Whether a request begins here.
pub fn begins(bytes: &[u8]) -> bool {
    METHODS.iter().any(|method| {
        let rest = bytes.strip_prefix(*method).and_then(|rest| rest.strip_prefix(b" "));
        rest.is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_graphic))
    })
}

/// What comes next in one direction.
#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// Chunks of a body.
    Chunks,
    /// The body ends with the connection.
    ToEnd,
}

/// A connection.
#[derive(Debug, Default)]
pub struct Http1 {
    ask: State,
    answer: State,
    /// Of the answer whose chunks come.
    reported: Answer,
    /// What was asked for last by a request that wants to go on with another protocol.
    wants: Option<String>,
}

/// What a head says of the body.
#[derive(Debug, Default)]
struct Head {
    bytes: u64,
    length: Option<u64>,
    chunked: bool,
    ids: Headers,
    /// The protocol with which the connection is to go on.
    upgrade: Upgrade,
}

/// Another protocol.
#[derive(Debug, Default, PartialEq, Eq)]
enum Upgrade {
    #[default]
    None,
    WebSocket,
    Other,
}

/// Reads a head: its first line and what it says of the body.
fn head(input: Input<'_>) -> Read<(Vec<&[u8]>, Head)> {
    let end = input.bytes.windows(4).position(|four| four == HEAD_END)?;
    let mut lines = input.part(0, end as u64).split(|byte| *byte == b'\n');
    let first = words(lines.next()?.trim_ascii_end());
    let mut head = Head { bytes: end as u64 + 4, ..Head::default() };
    for line in lines {
        let Some((name, value)) = split_at_byte(line, b':') else { continue };
        let value = value.trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let Some(length) = number(value).and_then(|n| u64::try_from(n).ok()) else {
                return Some(Err(()));
            };
            head.length = Some(length);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            head.chunked = value.to_ascii_lowercase().ends_with(b"chunked");
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            let is_known = value.eq_ignore_ascii_case(b"websocket");
            head.upgrade = if is_known { Upgrade::WebSocket } else { Upgrade::Other };
        } else {
            head.ids.look(name, value);
        }
    }
    Some(Ok((first, head)))
}

/// What a target is without its query.
fn path(target: &[u8]) -> String {
    reported(split_at_byte(target, b'?').map_or(target, |(path, _)| path))
}

/// A chunk: `Ok` of its bytes, whether it is the last one.
fn chunk(input: Input<'_>) -> Read<(u64, bool)> {
    let (line, bytes) = input.line()?;
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let size = std::str::from_utf8(digits).ok().and_then(|d| u64::from_str_radix(d, 16).ok());
    match size {
        // Lines may follow; the last one is empty.
        Some(0) => {
            let end = input.bytes.windows(4).position(|four| four == HEAD_END)?;
            Some(Ok((end as u64 + 4, true)))
        }
        Some(size) if size < 1 << 60 => Some(Ok((bytes + size + 2, false))),
        _ => Some(Err(())),
    }
}

impl Decoder for Http1 {
    fn protocol(&self) -> &'static str {
        "http1"
    }

    fn begins(&self, bytes: &[u8]) -> bool {
        begins(bytes)
    }

    fn ask(&mut self, input: Input<'_>) -> Step {
        if self.ask == State::Chunks {
            return match chunk(input) {
                None => Step::More,
                Some(Err(())) => Step::Lost,
                Some(Ok((bytes, last))) => {
                    self.ask = if last { State::Head } else { State::Chunks };
                    Step::Skip(bytes)
                }
            };
        }
        if !begins(input.bytes) {
            // Lines before a request that say nothing are permitted; half a method may be one.
            return match input.bytes {
                [b'\r', b'\n', ..] => Step::Skip(2),
                bytes if bytes.len() < 9 => Step::More,
                _ => Step::Lost,
            };
        }
        let (first, head) = match head(input) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(found)) => found,
        };
        let [method, target, version] = first[..] else { return Step::Lost };
        if !version.starts_with(b"HTTP/1.") {
            return Step::Lost;
        }
        if head.chunked {
            self.ask = State::Chunks;
        }
        let body = if head.chunked { 0 } else { head.length.unwrap_or(0) };
        let (command, text) = (reported(method), reported(target));
        let is_upgrade = head.upgrade == Upgrade::WebSocket;
        self.wants = is_upgrade.then(|| path(target));
        let ids = Ids { trace: head.ids.id(), ..Ids::default() };
        Step::Ask(head.bytes.saturating_add(body), Ask { command, text, ids, ..Ask::default() })
    }

    fn answer(&mut self, input: Input<'_>, command: Option<&str>) -> Step {
        match self.answer {
            State::Head => {}
            State::ToEnd => return Step::Skip(input.bytes.len() as u64),
            State::Chunks => {
                return match chunk(input) {
                    None => Step::More,
                    Some(Err(())) => Step::Lost,
                    Some(Ok((bytes, false))) => Step::Skip(bytes),
                    Some(Ok((bytes, true))) => {
                        self.answer = State::Head;
                        Step::Answer(bytes, std::mem::take(&mut self.reported))
                    }
                };
            }
        }
        if !begins_like(input.bytes, b"HTTP/1.") {
            return Step::Lost;
        }
        let (first, head) = match head(input) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(found)) => found,
        };
        let Some(status) = first.get(1).and_then(|word| number(word)) else { return Step::Lost };
        if status == 101
            && head.upgrade == Upgrade::WebSocket
            && let Some(path) = self.wants.take()
        {
            let answer = Answer { ok: true, status: status.to_string(), ..Answer::default() };
            return Step::WebSocket(head.bytes, answer, path);
        }
        if status == 101 || (command == Some("CONNECT") && status < 300) {
            return Step::Stop(Reason::Upgraded);
        }
        if status < 200 {
            return Step::Skip(head.bytes);
        }
        let answer = Answer { ok: status < 400, status: status.to_string(), ..Answer::default() };
        if command == Some("HEAD") || status == 204 || status == 304 {
            return Step::Answer(head.bytes, answer);
        }
        if head.chunked {
            self.answer = State::Chunks;
            self.reported = answer;
            return Step::Skip(head.bytes);
        }
        if head.length.is_none() {
            self.answer = State::ToEnd;
        }
        Step::Answer(head.bytes.saturating_add(head.length.unwrap_or(0)), answer)
    }

    fn restart(&mut self) -> bool {
        *self = Http1::default();
        true
    }
}
