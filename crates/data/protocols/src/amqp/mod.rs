//! AMQP 0-9-1 (RabbitMQ): frames of channels. A frame has a method, what is said of a message that goes with it, or
//! a part of that. Most methods are answered by their own, in order on their channel; messages that are published by
//! a confirmation, and messages that are delivered by an acknowledgement, both by number and several at once.

use rustc_hash::FxHashMap;

use crate::decoder::{Answer, Ask, By, Decoder, Input, Open, Reply, Step};
use crate::exchanges::Exchanges;
use crate::fields::Fields;
use crate::ids::{self, Headers};
use crate::message::Ids;
use crate::text::reported;

use self::methods::{GET_OK, Method, Talk, method};

mod methods;

/// How a connection begins.
const PREFACE: &[u8] = b"AMQP\0\0\x09\x01";
const HEAD: u64 = 7;
const END: u8 = 0xce;
/// The class of methods that are about the connection.
const CONNECTION: u16 = 10;
/// Bytes of a frame that say what it is, at most.
const WANTED: u64 = 4096;
/// The longest frame that is believed.
const FRAME: u64 = 16 << 20;
/// Channels, and those who want messages, that are remembered; beyond, all are forgotten.
const KNOWN: usize = 1 << 14;

/// What an answer names its question by: the channel, and the number of a message or the method that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Name {
    Published(u16, u64),
    Delivered(u16, u64),
    Method(u16, bool, (u16, u16)),
}

impl Name {
    fn channel(self) -> u16 {
        match self {
            Name::Published(channel, _) | Name::Delivered(channel, _) => channel,
            Name::Method(channel, ..) => channel,
        }
    }
}

/// A message that begins, until it is known what is said of it.
#[derive(Debug)]
struct Message {
    command: &'static str,
    text: String,
    /// How it is acknowledged, if it is.
    name: Option<Name>,
}

/// A channel.
#[derive(Debug, Default)]
struct Channel {
    /// The number of the next message that is published, if these are confirmed.
    published: Option<u64>,
    /// Something that was delivered was acknowledged.
    acknowledges: bool,
    /// Who wants messages under a name that the server will give: whether they are acknowledged.
    unnamed: Option<bool>,
    /// The same under names of their own.
    consumers: FxHashMap<Vec<u8>, bool>,
    /// The messages that begin, of either end.
    of_client: Option<Message>,
    of_server: Option<Message>,
}

impl Channel {
    fn message(&mut self, by: By) -> &mut Option<Message> {
        match by {
            By::Client => &mut self.of_client,
            By::Server => &mut self.of_server,
        }
    }
}

/// A connection.
#[derive(Debug, Default)]
pub struct Amqp {
    /// It was found by what the server said.
    server_began: bool,
    open: Exchanges<Name>,
    channels: FxHashMap<u16, Channel>,
    /// What the rest of a frame asks, of whose beginning it was reported that it answers others: who says so, how many
    /// bytes it has.
    rest: Option<(By, u64, Ask)>,
}

/// A frame: its kind, channel, length, and as much of what is in it as is known and wanted.
struct Frame<'a> {
    kind: u8,
    channel: u16,
    bytes: u64,
    body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame that begins here: `None` while more bytes are needed, an error where there is none.
    fn read(input: Input<'a>) -> Option<Result<Frame<'a>, ()>> {
        let kind = *input.bytes.first()?;
        let channel = u16::from_be_bytes([*input.bytes.get(1)?, *input.bytes.get(2)?]);
        let length = u64::from(input.be32(3)?);
        if !matches!(kind, 1..=3 | 8) || length > FRAME {
            return Some(Err(()));
        }
        let bytes = HEAD + length + 1;
        // Of the parts of messages nothing is wanted.
        let wanted = if kind == 3 { 0 } else { length.min(WANTED) };
        // Of a short frame its end, too.
        let end = u64::from(kind != 3 && length <= WANTED);
        if !input.has(HEAD + wanted + end) {
            return None;
        }
        let body = input.part(HEAD, HEAD + wanted);
        if input.part(HEAD + length, bytes).first().is_some_and(|end| *end != END) {
            return Some(Err(()));
        }
        Some(Ok(Frame { kind, channel, bytes, body }))
    }
}

/// A decoder, if a connection begins here, or these are whole frames of one that is old.
pub fn recognise(bytes: &[u8]) -> Option<Amqp> {
    if bytes.starts_with(PREFACE) {
        return Some(Amqp::default());
    }
    let server_began = are_frames(bytes)?.is_servers();
    Some(Amqp { server_began, ..Amqp::default() })
}

/// The first method in whole frames.
fn are_frames(mut bytes: &[u8]) -> Option<&'static Method> {
    let mut first = None;
    while !bytes.is_empty() {
        let frame = Frame::read(Input { bytes, last: false })?.ok()?;
        let (of_frame, rest) = bytes.split_at_checked(frame.bytes as usize)?;
        if of_frame.last() != Some(&END) {
            return None;
        }
        let found = method(&mut Fields(frame.body)).filter(|_| frame.kind == 1);
        first = first.or(found);
        bytes = rest;
    }
    first
}

/// What is said of a message: the properties, of which each flag says whether it is there.
fn properties(body: &[u8]) -> Option<Ids> {
    let mut fields = Fields(body);
    // The class, which was said before, a weight, and how long the message is.
    fields.take(12)?;
    let flags = fields.be16()?;
    let (mut found, mut headers) = (Ids::default(), Headers::default());
    let mut read = || {
        for flag in (10..16).rev().filter(|flag| flags >> flag & 1 != 0) {
            match flag {
                13 => table(fields.long_text()?, &mut headers),
                11 | 12 => drop(fields.byte()?),
                10 => found.correlation = ids::correlation(fields.short_text()?),
                _ => drop(fields.short_text()?),
            }
        }
        Some(())
    };
    read();
    found.trace = headers.id();
    Some(found)
}

/// The texts in a table.
fn table(entries: &[u8], headers: &mut Headers) {
    let mut fields = Fields(entries);
    let mut read = || -> Option<()> {
        loop {
            let name = fields.short_text()?;
            match fields.byte()? {
                b'S' => headers.look(name, fields.long_text()?),
                b'x' | b'F' | b'A' => drop(fields.long_text()?),
                b't' | b'b' | b'B' => drop(fields.take(1)?),
                b's' | b'u' | b'U' => drop(fields.take(2)?),
                b'I' | b'i' | b'f' => drop(fields.take(4)?),
                b'D' => drop(fields.take(5)?),
                b'L' | b'l' | b'd' | b'T' => drop(fields.take(8)?),
                b'V' => {}
                _ => return None,
            }
        }
    };
    read();
}

impl Amqp {
    fn channel(&mut self, number: u16) -> &mut Channel {
        if self.channels.len() >= KNOWN {
            self.channels.clear();
        }
        self.channels.entry(number).or_default()
    }

    fn asks(&mut self, bytes: u64, name: Option<Name>, ask: Ask) -> Step {
        let (exchange, reply) = match name {
            Some(name) => match self.open.open(name, ()) {
                Ok(exchange) => (exchange, Reply::Yes),
                Err(reason) => return Step::Stop(reason),
            },
            None => (self.open.number(), Reply::No),
        };
        Step::Ask(bytes, Ask { exchange: Some(exchange), reply, ..ask })
    }

    /// The questions that are answered, of those that were seen.
    fn answers(&mut self, bytes: u64, names: &[Name], ok: bool, status: &str) -> Step {
        let closed = names.iter().filter_map(|name| self.open.close(*name));
        let answer = |(exchange, ())| Answer {
            ok,
            status: status.to_owned(),
            exchange: Some(exchange),
            ..Answer::default()
        };
        let answers: Vec<Answer> = closed.map(answer).collect();
        if answers.is_empty() { Step::Skip(bytes) } else { Step::Answers(bytes, answers) }
    }

    /// Messages are confirmed, acknowledged or refused, by number: that one, or all up to it.
    fn acknowledges(
        &mut self,
        by: By,
        frame: &Frame<'_>,
        fields: &mut Fields<'_>,
        known: &Method,
    ) -> Step {
        let Some(number) = fields.be64() else { return Step::Lost };
        let all = known.name != "basic.reject" && fields.byte().is_some_and(|bits| bits & 1 != 0);
        let of = frame.channel;
        let name = |number| match by {
            By::Server => Name::Published(of, number),
            By::Client => Name::Delivered(of, number),
        };
        if by == By::Client {
            self.channel(of).acknowledges = true;
        }
        let names = match all {
            false => vec![name(number)],
            true => {
                // Number 0 means all that there are.
                let (first, last) = (name(0), name(if number == 0 { u64::MAX } else { number }));
                let mut names: Vec<Name> =
                    self.open.names().filter(|name| (first..=last).contains(name)).collect();
                names.sort_unstable();
                names
            }
        };
        let status = known.name.trim_start_matches("basic.");
        self.answers(frame.bytes, &names, known.name == "basic.ack", status)
    }

    /// A client wants messages: under which name, and whether it will acknowledge them.
    fn consumes(&mut self, frame: &Frame<'_>, mut fields: Fields<'_>) {
        let mut read = || {
            fields.be16()?;
            fields.short_text()?;
            Some((fields.short_text()?, fields.byte()? & 2 == 0))
        };
        let Some((tag, acknowledges)) = read() else { return };
        let channel = self.channel(frame.channel);
        match tag {
            [] => channel.unnamed = Some(acknowledges),
            tag if channel.consumers.len() < KNOWN => {
                channel.consumers.insert(tag.to_vec(), acknowledges);
            }
            _ => {}
        }
    }

    /// What a message is for, until it is known what is said of it.
    fn message(
        &mut self,
        by: By,
        frame: &Frame<'_>,
        mut fields: Fields<'_>,
        known: &Method,
    ) -> Option<()> {
        let of = frame.channel;
        let channel = self.channel(of);
        let name = match by {
            By::Client => {
                fields.be16()?;
                let number = channel.published;
                channel.published = number.map(|number| number + 1);
                number.map(|number| Name::Published(of, number))
            }
            By::Server => {
                let tag = fields.short_text()?;
                let number = fields.be64()?;
                fields.byte()?;
                let acknowledges = channel.consumers.get(tag).copied();
                let acknowledges = acknowledges.unwrap_or(channel.acknowledges);
                acknowledges.then_some(Name::Delivered(of, number))
            }
        };
        let (exchange, key) = (reported(fields.short_text()?), reported(fields.short_text()?));
        let text = if exchange.is_empty() { key } else { format!("{exchange}/{key}") };
        *channel.message(by) = Some(Message { command: known.name, text, name });
        Some(())
    }

    /// A channel is closed, or the connection with all of them: nothing that waits there is answered any more.
    fn closes(
        &mut self,
        by: By,
        frame: &Frame<'_>,
        mut fields: Fields<'_>,
        known: &Method,
    ) -> Step {
        let code = fields.be16().unwrap_or(0);
        let text = fields.short_text().map(reported).unwrap_or_default();
        let of = Some(frame.channel).filter(|_| known.class != CONNECTION);
        let is_over = |name: &Name| of.is_none_or(|of| of == name.channel());
        let mut names: Vec<Name> = self.open.names().filter(is_over).collect();
        names.sort_unstable();
        let status = format!("{code} {text}");
        // The first bytes end what waited, the rest asks.
        let over = self.answers(HEAD, &names, false, &status);
        let Talk::Asks { reply, .. } = known.talk else { return Step::Lost };
        let name = Name::Method(frame.channel, by == By::Server, (known.class, reply));
        let ask = Ask { command: known.name.into(), text: status, ..Ask::default() };
        match (over, self.asks(frame.bytes, Some(name), ask)) {
            (over @ Step::Answers(..), Step::Ask(bytes, ask)) => {
                self.rest = Some((by, bytes - HEAD, ask));
                over
            }
            (_, asks) => asks,
        }
    }

    fn said(&mut self, by: By, frame: &Frame<'_>) -> Step {
        let mut fields = Fields(frame.body);
        let Some(known) = method(&mut fields) else { return Step::Skip(frame.bytes) };
        let of = frame.channel;
        match known.talk {
            Talk::Nothing => {}
            Talk::Message => {
                if self.message(by, frame, fields, known).is_none() {
                    return Step::Lost;
                }
            }
            Talk::Acknowledges => return self.acknowledges(by, frame, &mut fields, known),
            Talk::Asks { .. } if known.name.ends_with(".close") => {
                return self.closes(by, frame, fields, known);
            }
            Talk::Asks { reply, .. } => {
                match known.name {
                    "basic.consume" => self.consumes(frame, fields),
                    "confirm.select" => self.channel(of).published = Some(1),
                    "channel.open" => drop(self.channels.remove(&of)),
                    _ => {}
                }
                let (text, waits) = known.question(fields);
                let name = Name::Method(of, by == By::Server, (known.class, reply));
                let ask =
                    Ask { command: known.name.into(), text: reported(text), ..Ask::default() };
                return self.asks(frame.bytes, waits.then_some(name), ask);
            }
            Talk::Answers => {
                if known.name == "basic.consume-ok"
                    && let Some(tag) = fields.short_text()
                    && let channel = self.channel(of)
                    && !channel.consumers.contains_key(tag)
                    && let Some(acknowledges) = channel.unnamed.take()
                    && channel.consumers.len() < KNOWN
                {
                    channel.consumers.insert(tag.to_vec(), acknowledges);
                }
                // Both answer what asks for a message.
                let (number, status) = match known.name {
                    "basic.get-empty" => (GET_OK, "empty"),
                    _ => (known.number, "OK"),
                };
                let name = Name::Method(of, by == By::Client, (known.class, number));
                return self.answers(frame.bytes, &[name], true, status);
            }
        }
        Step::Skip(frame.bytes)
    }

    fn says(&mut self, by: By, input: Input<'_>) -> Step {
        if let Some((_, bytes, ask)) = self.rest.take_if(|(of, ..)| *of == by) {
            return Step::Ask(bytes, ask);
        }
        // Of a server, the version that it wants instead.
        if input.bytes.first() == Some(&b'A') {
            let is_whole = input.bytes.len() >= PREFACE.len();
            return match (is_whole, input.bytes.starts_with(b"AMQP")) {
                (false, _) => Step::More,
                (true, true) => Step::Skip(PREFACE.len() as u64),
                (true, false) => Step::Lost,
            };
        }
        let frame = match Frame::read(input) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(frame)) => frame,
        };
        match frame.kind {
            1 => self.said(by, &frame),
            2 => {
                let Some(message) = self.channel(frame.channel).message(by).take() else {
                    return Step::Skip(frame.bytes);
                };
                let ids = properties(frame.body).unwrap_or_default();
                let Message { command, text, name } = message;
                let ask = Ask { command: command.into(), text, ids, ..Ask::default() };
                self.asks(frame.bytes, name, ask)
            }
            _ => Step::Skip(frame.bytes),
        }
    }
}

impl Decoder for Amqp {
    fn protocol(&self) -> &'static str {
        "amqp"
    }

    fn server_began(&self) -> bool {
        self.server_began
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
        let by_server = |name| matches!(name, Name::Delivered(..) | Name::Method(_, true, _));
        self.open.take("amqp", by_server)
    }

    /// What is published does not wait for what was before, so where one begins is not known.
    fn restart(&mut self) -> bool {
        false
    }
}
