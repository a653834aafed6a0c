//! PostgreSQL, version 3 of its protocol: messages of a letter and a length. One exchange is what
//! one ReadyForQuery answers: the start, a simple query, or what stands before a Sync.

use rustc_hash::FxHashMap;

use crate::counts::Reason;
use crate::decoder::{Answer, Ask, Decoder, Input, Read, Step};
use crate::ids::{STATEMENT, statement_with_id};
use crate::text::{TEXT, named, reported, statement, zero_ended};

/// Codes in place of a version, in messages without a letter.
const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSS: u32 = 80_877_104;
/// The longest of those.
const START_MAX: u32 = 10_000;
/// The longest message that a server takes.
const MESSAGE_MAX: u32 = 1 << 30;
/// Prepared statements that are remembered; beyond, all are forgotten.
const STATEMENTS: usize = 4096;

/// A connection.
#[derive(Debug, Default)]
pub struct Postgres {
    /// The first message, without a letter, has not come.
    starting: bool,
    /// The client wants encryption; the answer is one letter.
    wants_tls: bool,
    /// Parts of an exchange were reported, its Sync was not.
    in_exchange: bool,
    /// What prepared statements say, by name.
    statements: FxHashMap<Vec<u8>, String>,
    /// The last error, or what was last completed.
    error: Option<String>,
    completed: String,
}

/// A decoder, if the bytes are the start of a connection, or whole messages of one that is old.
pub fn recognise(bytes: &[u8]) -> Option<Postgres> {
    let input = Input { bytes, last: false };
    if let (Some(length @ 8..=START_MAX), Some(code)) = (input.be32(0), input.be32(4))
        && (code >> 16 == 3 || ((CANCEL..=GSS).contains(&code) && length <= 16))
    {
        return Some(Postgres { starting: true, ..Postgres::default() });
    }
    begins(bytes).then(Postgres::default)
}

/// Whether these are whole messages of a client, the last of which wants an answer.
fn begins(bytes: &[u8]) -> bool {
    let mut at = 0;
    let mut last = 0;
    while let Some(kind) = bytes.get(at) {
        let length = Input { bytes, last: false }.be32(at + 1);
        let Some(length @ 4..MESSAGE_MAX) = length else { return false };
        if !b"QPBEDCSH".contains(kind) {
            return false;
        }
        (last, at) = (*kind, at + 1 + length as usize);
    }
    at == bytes.len() && matches!(last, b'Q' | b'S' | b'H')
}

impl Postgres {
    fn start(&mut self, input: Input<'_>) -> Step {
        let (Some(length), Some(code)) = (input.be32(0), input.be32(4)) else { return Step::More };
        if !(8..=START_MAX).contains(&length) {
            return Step::Lost;
        }
        let bytes = u64::from(length);
        match code {
            TLS | GSS => {
                self.wants_tls = true;
                Step::Skip(bytes)
            }
            CANCEL => Step::Skip(bytes),
            _ if code >> 16 != 3 => Step::Lost,
            _ if !input.has(bytes) => Step::More,
            _ => {
                self.starting = false;
                let body = input.part(8, length.into());
                let mut words = body.split(|byte| *byte == 0);
                let mut said = Vec::new();
                while let (Some(name), Some(value)) = (words.next(), words.next()) {
                    if matches!(name, b"user" | b"database") {
                        said.push(format!("{}={}", reported(name), reported(value)));
                    }
                }
                Step::Ask(bytes, Ask { text: said.join(" "), ..named("START") })
            }
        }
    }

    /// A part of an exchange: the first one asks.
    fn part(&mut self, bytes: u64, ask: Ask) -> Step {
        match std::mem::replace(&mut self.in_exchange, true) {
            true => Step::Skip(bytes),
            false => Step::Ask(bytes, ask),
        }
    }
}

/// A message: its letter, its length with it, and what is known of the rest.
fn message(input: Input<'_>) -> Read<(u8, u64, &[u8])> {
    let kind = *input.bytes.first()?;
    let length = input.be32(1)?;
    if !(4..MESSAGE_MAX).contains(&length) {
        return Some(Err(()));
    }
    let bytes = u64::from(length) + 1;
    // Texts stand at the beginning: two names, and a statement, at whose end an id may be.
    let texts = if matches!(kind, b'Q' | b'P') { STATEMENT } else { 2 * TEXT as u64 };
    let wanted = bytes.min(5 + texts);
    input.has(wanted).then(|| Ok((kind, bytes, input.part(5, bytes))))
}

impl Decoder for Postgres {
    fn protocol(&self) -> &'static str {
        "postgres"
    }

    fn begins(&self, bytes: &[u8]) -> bool {
        begins(bytes)
    }

    fn ask(&mut self, input: Input<'_>) -> Step {
        if self.starting {
            return self.start(input);
        }
        let (kind, bytes, body) = match message(input) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(found)) => found,
        };
        let text = |bytes| zero_ended(bytes).map_or(bytes, |(text, _)| text);
        match kind {
            b'Q' => Step::Ask(bytes, statement_with_id(text(body))),
            b'F' => Step::Ask(bytes, named("FUNCTION")),
            b'P' => {
                let Some((name, rest)) = zero_ended(body) else { return Step::Lost };
                let ask = statement_with_id(text(rest));
                if self.statements.len() >= STATEMENTS {
                    self.statements.clear();
                }
                self.statements.insert(name.to_vec(), ask.text.clone());
                self.part(bytes, ask)
            }
            b'B' => {
                let name = zero_ended(body).map_or(&[][..], |(_, rest)| text(rest));
                let said = self.statements.get(name).cloned();
                let ask = said.map_or_else(|| named("EXECUTE"), statement);
                self.part(bytes, ask)
            }
            b'E' => self.part(bytes, named("EXECUTE")),
            b'D' => self.part(bytes, named("DESCRIBE")),
            b'C' => self.part(bytes, named("CLOSE")),
            b'S' if std::mem::take(&mut self.in_exchange) => Step::Skip(bytes),
            b'S' => Step::Ask(bytes, named("SYNC")),
            b'H' | b'd' | b'c' | b'f' | b'p' | b'X' => Step::Skip(bytes),
            _ => Step::Lost,
        }
    }

    fn answer(&mut self, input: Input<'_>, _: Option<&str>) -> Step {
        if self.wants_tls {
            self.wants_tls = false;
            return match input.bytes.first() {
                Some(b'N') => Step::Skip(1),
                Some(b'S' | b'G') => Step::Stop(Reason::Tls),
                _ => Step::Lost,
            };
        }
        let (kind, bytes, body) = match message(input) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(found)) => found,
        };
        match kind {
            b'Z' => {
                let completed = std::mem::take(&mut self.completed);
                let error = self.error.take();
                let ok = error.is_none();
                let status = error.unwrap_or(completed);
                return Step::Answer(bytes, Answer { ok, status, ..Answer::default() });
            }
            b'E' => {
                let field = |letter: u8| {
                    let mut fields = body.split(|byte| *byte == 0);
                    fields.find_map(|field| field.strip_prefix(&[letter]))
                };
                let [code, text] =
                    [b'C', b'M'].map(|letter| reported(field(letter).unwrap_or(b"")));
                self.error = Some(format!("{code} {text}"));
            }
            b'C' => {
                self.completed = reported(zero_ended(body).map_or(body, |(text, _)| text));
            }
            b'A' | b'N' | b'S' | b'K' | b'R' | b'T' | b'D' | b'I' | b'1' | b'2' | b'3' | b'n'
            | b's' | b't' | b'G' | b'H' | b'W' | b'd' | b'c' | b'v' | b'V' => {}
            _ => return Step::Lost,
        }
        Step::Skip(bytes)
    }

    fn restart(&mut self) -> bool {
        let statements = std::mem::take(&mut self.statements);
        *self = Postgres { statements, ..Postgres::default() };
        true
    }
}
