//! NATS: lines of words, some with bytes of a given length behind. The server speaks first. What is
//! published with a place for an answer is a question, and what comes to that place is its answer; either
//! end may ask, for the server passes questions on to those who answer them.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::counts::Reason;
use crate::decoder::{Answer, Ask, By, Decoder, Input, Open, Reply, Step};
use crate::ids::{self, Headers};
use crate::message::Ids;
use crate::text::{number, reported, words};

/// The longest message that is believed; servers take 64 MiB at most.
const MESSAGE_MAX: i64 = 1 << 27;
/// Questions without an answer at once, of one end. There may be more that never get one.
const OPEN: usize = 1 << 14;
/// Bytes of the line in headers that says how a request went.
const STATUS: u64 = 128;
/// Bytes of headers in which an id is looked for.
const HEADERS: u64 = 1024;
/// What clients' places for answers begin with.
const INBOX: &[u8] = b"_INBOX.";
/// What JetStream is asked for messages by: these come by their own subjects, not to the place.
const PULL: &[u8] = b"$JS.API.CONSUMER.MSG.NEXT.";

/// A connection.
#[derive(Debug, Default)]
pub struct Nats {
    /// It was found by what the server said; and that is the first that it says.
    server_began: bool,
    greets: bool,
    /// Places for answers that have not come, hashed, of the client's questions and of those passed on to it.
    open: [FxHashMap<u64, u64>; 2],
    exchanges: u64,
}

/// A message.
struct Published<'a> {
    subject: &'a [u8],
    answers_go_to: Option<&'a [u8]>,
    /// Of headers, which are the first of the bytes.
    headers: u64,
    bytes: u64,
}

/// A decoder, if these are the first bytes of a server, or a client's, or a whole line of either.
pub fn recognise(bytes: &[u8]) -> Option<Nats> {
    let found = |server_began, greets| Some(Nats { server_began, greets, ..Nats::default() });
    if bytes.starts_with(b"INFO {") {
        return found(true, true);
    }
    if bytes.starts_with(b"CONNECT {") {
        return found(false, false);
    }
    let (line, _) = Input { bytes, last: false }.line()?;
    if !line.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return None;
    }
    let words = words(line);
    match words.as_slice() {
        [b"PUB" | b"HPUB", rest @ ..] if published(By::Client, &words, rest).is_some() => {
            found(false, false)
        }
        [b"MSG" | b"HMSG", rest @ ..] if published(By::Server, &words, rest).is_some() => {
            found(true, false)
        }
        [b"SUB", _, sid] | [b"SUB", _, _, sid] if number(sid).is_some() => found(false, false),
        _ => None,
    }
}

/// What a line says of the message behind it.
fn published<'a>(by: By, words: &[&'a [u8]], rest: &[&'a [u8]]) -> Option<Published<'a>> {
    let has_headers = words.first()?.first()?.eq_ignore_ascii_case(&b'h');
    let (lengths, mut names) = match (has_headers, rest) {
        (true, [names @ .., headers, bytes]) => ([*headers, *bytes], names),
        (false, [names @ .., bytes]) => ([&b"0"[..], *bytes], names),
        _ => return None,
    };
    let subject = *names.first()?;
    names = names.get(1..)?;
    if by == By::Server {
        // The number of the subscription.
        names = names.get(1..)?;
    }
    let answers_go_to = match names {
        [] => None,
        [place] => Some(*place),
        _ => return None,
    };
    let [headers, bytes] = lengths.map(number);
    let (headers @ 0..MESSAGE_MAX, bytes @ 0..MESSAGE_MAX) = (headers?, bytes?) else {
        return None;
    };
    let fits = headers <= bytes;
    fits.then_some(Published {
        subject,
        answers_go_to,
        headers: headers as u64,
        bytes: bytes as u64,
    })
}

/// How it went, if headers say so: that there are no responders, say.
fn status(headers: &[u8]) -> Option<String> {
    let line = headers.strip_prefix(b"NATS/1.0 ")?;
    let end = line.iter().position(|byte| *byte == b'\r').unwrap_or(line.len());
    Some(reported(line.get(..end)?)).filter(|said| !said.is_empty())
}

/// The id in the lines of headers.
fn trace_id(lines: &[u8]) -> u64 {
    let mut found = Headers::default();
    found.look_at_lines(lines);
    found.id()
}

impl Nats {
    /// A message, which asks or answers.
    fn message(&mut self, by: By, input: Input<'_>, words: &[&[u8]], line: u64) -> Step {
        let rest = words.get(1..).unwrap_or_default();
        let Some(message) = published(by, words, rest) else { return Step::Lost };
        let bytes = line + message.bytes + 2;
        let [of_client, of_server] = &mut self.open;
        let (asked, answered, command) = match by {
            By::Client => (of_client, of_server, "PUB"),
            By::Server => (of_server, of_client, "MSG"),
        };
        let to = ids::correlation(message.subject);
        if answered.contains_key(&to) {
            let end = line + message.headers.min(STATUS);
            if !input.has(end) {
                return Step::More;
            }
            let exchange = answered.remove(&to);
            let said = status(input.part(line, end));
            let ok = !said.as_ref().is_some_and(|said| said.starts_with(['4', '5']));
            let status = said.unwrap_or_else(|| "OK".to_owned());
            let ids = Ids { correlation: to, ..Ids::default() };
            return Step::Answer(bytes, Answer { ok, status, exchange, ids, ..Answer::default() });
        }
        // One more answer, or one that is late.
        if message.subject.starts_with(INBOX) {
            return Step::Skip(bytes);
        }
        let headers = line + message.headers.min(HEADERS);
        if message.headers > 0 && !input.has(headers) {
            return Step::More;
        }
        let mut ids = Ids { trace: trace_id(input.part(line, headers)), ..Ids::default() };
        let exchange = self.exchanges;
        self.exchanges += 1;
        let mut reply = Reply::No;
        if let Some(name) = message.answers_go_to.filter(|_| !message.subject.starts_with(PULL)) {
            if asked.len() >= OPEN {
                return Step::Stop(Reason::Quiet);
            }
            // Of a message that goes to several subscriptions of a client, the first waits.
            ids.correlation = ids::correlation(name);
            if let Entry::Vacant(free) = asked.entry(ids.correlation) {
                free.insert(exchange);
                reply = Reply::Yes;
            }
        }
        let text = reported(message.subject);
        let ask = Ask {
            command: command.into(),
            text,
            exchange: Some(exchange),
            reply,
            ids,
            ..Ask::default()
        };
        Step::Ask(bytes, ask)
    }
}

impl Decoder for Nats {
    fn protocol(&self) -> &'static str {
        "nats"
    }

    fn server_began(&self) -> bool {
        self.server_began
    }

    fn begins(&self, _: &[u8]) -> bool {
        false
    }

    fn ask(&mut self, input: Input<'_>) -> Step {
        // No line begins like that, but a client that wants encryption does.
        if input.bytes.first() == Some(&0x16) {
            return Step::Stop(Reason::Tls);
        }
        let Some((line, bytes)) = input.line() else { return Step::More };
        let words = words(line);
        let Some(verb) = words.first() else { return Step::Lost };
        match verb.to_ascii_uppercase().as_slice() {
            b"PUB" | b"HPUB" => self.message(By::Client, input, &words, bytes),
            b"CONNECT" | b"SUB" | b"UNSUB" | b"PING" | b"PONG" => Step::Skip(bytes),
            _ => Step::Lost,
        }
    }

    fn answer(&mut self, input: Input<'_>, _: Option<&str>) -> Step {
        let greets = std::mem::replace(&mut self.greets, false);
        let Some((line, bytes)) = input.line() else {
            self.greets = greets;
            // The server waits for the client: there is nothing behind its long first line.
            return if greets && input.last { Step::Rest } else { Step::More };
        };
        let words = words(line);
        let Some(verb) = words.first() else { return Step::Lost };
        match verb.to_ascii_uppercase().as_slice() {
            b"MSG" | b"HMSG" => self.message(By::Server, input, &words, bytes),
            b"INFO" | b"PING" | b"PONG" | b"+OK" | b"-ERR" => Step::Skip(bytes),
            _ => Step::Lost,
        }
    }

    fn take_open(&mut self) -> Vec<Open> {
        let protocol = self.protocol();
        let [of_client, of_server] = std::mem::take(&mut self.open);
        let open = |exchanges: FxHashMap<u64, u64>, by_server| {
            exchanges.into_values().map(move |exchange| Open { exchange, protocol, by_server })
        };
        let mut all: Vec<Open> = open(of_client, false).chain(open(of_server, true)).collect();
        all.sort_by_key(|one| one.exchange);
        all
    }

    /// Questions do not wait for answers, so where one begins is not known.
    fn restart(&mut self) -> bool {
        false
    }
}
