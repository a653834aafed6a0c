//! MQTT 3.1, 3.1.1 and 5: packets of a kind and a length. Either end publishes, and what it publishes is
//! acknowledged by its number, or not at all.

use rustc_hash::FxHashMap;

use crate::decoder::{Answer, Ask, By, Decoder, Input, Open, Reply, Step};
use crate::exchanges::Exchanges;
use crate::fields::Fields;
use crate::ids::{self, Headers};
use crate::message::Ids;
use crate::text::reported;

/// Bytes of a packet that say what it is, at most: a topic, and properties.
const WANTED: u64 = 4096;
/// Numbers for topics that are remembered; beyond, all are forgotten.
const ALIASES: usize = 1 << 12;

/// What packets are.
mod kind {
    pub const CONNECT: u8 = 1;
    pub const CONNACK: u8 = 2;
    pub const PUBLISH: u8 = 3;
    pub const PUBACK: u8 = 4;
    pub const PUBREC: u8 = 5;
    pub const PUBREL: u8 = 6;
    pub const PUBCOMP: u8 = 7;
    pub const SUBSCRIBE: u8 = 8;
    pub const SUBACK: u8 = 9;
    pub const UNSUBSCRIBE: u8 = 10;
    pub const UNSUBACK: u8 = 11;
    pub const PINGREQ: u8 = 12;
    pub const PINGRESP: u8 = 13;
    pub const DISCONNECT: u8 = 14;
    pub const AUTH: u8 = 15;
}

/// What an answer names its question by: who has asked, and which number it gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Name {
    Connect,
    Ping,
    Numbered(By, u16),
}

/// A connection.
#[derive(Debug, Default)]
pub struct Mqtt {
    /// The version of the protocol, once it is known.
    version: Option<u8>,
    open: Exchanges<Name>,
    /// What numbers stand for topics.
    aliases: FxHashMap<(By, u16), String>,
}

/// A packet: its kind and flags, length with its head, and as much of the rest as is known and wanted.
struct Packet<'a> {
    kind: u8,
    flags: u8,
    bytes: u64,
    body: &'a [u8],
}

impl<'a> Packet<'a> {
    /// The packet that begins here: `None` while more bytes are needed, an error where there is none.
    fn read(input: Input<'a>) -> Option<Result<Packet<'a>, ()>> {
        let first = *input.bytes.first()?;
        let mut length = 0;
        for (n, byte) in input.bytes.iter().skip(1).enumerate() {
            if n == 4 {
                return Some(Err(()));
            }
            length |= u64::from(byte & 0x7f) << (7 * n);
            if byte & 0x80 == 0 {
                let head = n as u64 + 2;
                let bytes = head + length;
                let (kind, flags) = (first >> 4, first & 15);
                let body = input.part(head, bytes.min(head + WANTED));
                let is_enough = input.has(head + length.min(WANTED));
                return is_enough.then_some(Ok(Packet { kind, flags, bytes, body }));
            }
        }
        None
    }
}

/// What properties say that matters here.
#[derive(Debug, Default)]
struct Properties {
    alias: Option<u16>,
    ids: Ids,
}

/// The properties that begin here, as far as they are known.
fn properties(fields: &mut Fields<'_>) -> Option<Properties> {
    let length = fields.number()? as usize;
    let mut inside = Fields(fields.take(length.min(fields.0.len()))?);
    let (mut found, mut headers) = (Properties::default(), Headers::default());
    while let Some(()) = property(&mut inside, &mut found, &mut headers) {}
    found.ids.trace = headers.id();
    Some(found)
}

/// One of them; `None` behind the last one.
fn property(fields: &mut Fields<'_>, found: &mut Properties, headers: &mut Headers) -> Option<()> {
    match fields.byte()? {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28..=0x2a => drop(fields.byte()?),
        0x13 | 0x21 | 0x22 => drop(fields.be16()?),
        0x23 => found.alias = Some(fields.be16()?),
        0x02 | 0x11 | 0x18 | 0x27 => drop(fields.take(4)?),
        0x0b => drop(fields.number()?),
        0x09 => found.ids.correlation = ids::correlation(fields.text()?),
        0x26 => {
            let name = fields.text()?;
            headers.look(name, fields.text()?);
        }
        0x03 | 0x08 | 0x12 | 0x15 | 0x16 | 0x1a | 0x1c | 0x1f => drop(fields.text()?),
        _ => return None,
    }
    Some(())
}

/// The version that a client says it speaks, with what is behind.
fn version(body: &[u8]) -> Option<(u8, Fields<'_>)> {
    let mut fields = Fields(body);
    let name = fields.text()?;
    let version = fields.byte()?;
    matches!((name, version), (b"MQTT", 4 | 5) | (b"MQIsdp", 3)).then_some((version, fields))
}

/// A decoder, if a client begins a connection here, or these are whole packets that publish something.
pub fn recognise(bytes: &[u8]) -> Option<Mqtt> {
    let input = Input { bytes, last: true };
    let packet = Packet::read(input)?.ok()?;
    let is_connect = packet.kind == kind::CONNECT && packet.flags == 0;
    let version = version(packet.body).filter(|_| is_connect).map(|(version, _)| version);
    let is_old = packet.kind == kind::PUBLISH && are_published(bytes);
    (version.is_some() || is_old).then(|| Mqtt { version, ..Mqtt::default() })
}

/// Whether these are whole packets, which publish something under names that can be read.
fn are_published(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let input = Input { bytes, last: false };
        let Some(Ok(packet)) = Packet::read(input) else { return false };
        let topic = Fields(packet.body).text().unwrap_or_default();
        let is_name = |byte: &u8| byte.is_ascii_graphic() && !b"#+".contains(byte);
        let is_one = packet.kind == kind::PUBLISH && packet.flags >> 1 & 3 < 3;
        if !is_one || topic.len() < 3 || !topic.iter().all(is_name) {
            return false;
        }
        let Some(rest) = bytes.get(packet.bytes as usize..) else { return false };
        bytes = rest;
    }
    true
}

/// Whether these bytes may be the first ones of a packet whose length is not whole: some servers read it byte
/// by byte.
pub fn may_begin(bytes: &[u8]) -> bool {
    let [first, length @ ..] = bytes else { return false };
    let is_kind = *first == kind::CONNECT << 4 || first >> 4 == kind::PUBLISH;
    let goes_on = |length: &[u8]| length.iter().all(|byte| byte & 0x80 != 0);
    is_kind && length.len() <= 4 && goes_on(length.split_last().map_or(&[], |(_, before)| before))
}

/// How it went, by a reason code; those from 0x80 on are errors.
fn went(code: Option<u8>) -> (bool, String) {
    match code.unwrap_or(0) {
        0 => (true, "OK".to_owned()),
        code => (code < 0x80, format!("0x{code:02x}")),
    }
}

impl Mqtt {
    fn is_5(&self) -> bool {
        self.version == Some(5)
    }

    /// A question that waits for an answer.
    fn asks(&mut self, packet: &Packet<'_>, name: Name, ask: Ask) -> Step {
        match self.open.open(name, ()) {
            Ok(exchange) => {
                Step::Ask(packet.bytes, Ask { exchange: Some(exchange), reply: Reply::Yes, ..ask })
            }
            Err(reason) => Step::Stop(reason),
        }
    }

    /// The answer to one that was seen.
    fn answers(&mut self, packet: &Packet<'_>, name: Name, (ok, status): (bool, String)) -> Step {
        match self.open.close(name) {
            Some((exchange, ())) => {
                let exchange = Some(exchange);
                Step::Answer(packet.bytes, Answer { ok, status, exchange, ..Answer::default() })
            }
            None => Step::Skip(packet.bytes),
        }
    }

    /// A client begins.
    fn connect(&mut self, packet: &Packet<'_>) -> Step {
        let Some((version, mut fields)) = version(packet.body) else { return Step::Lost };
        self.version = Some(version);
        let mut client = || {
            fields.take(3)?;
            if version == 5 {
                properties(&mut fields)?;
            }
            fields.text().map(reported)
        };
        let text = client().unwrap_or_default();
        let ask = Ask { command: "CONNECT".into(), text, ..Ask::default() };
        self.asks(packet, Name::Connect, ask)
    }

    /// Something is published, by either end.
    fn publish(&mut self, by: By, packet: &Packet<'_>) -> Step {
        let quality = packet.flags >> 1 & 3;
        let mut fields = Fields(packet.body);
        let Some(topic) = fields.text().filter(|_| quality < 3) else { return Step::Lost };
        let number = match quality {
            0 => None,
            _ => match fields.be16() {
                Some(number) => Some(number),
                None => return Step::Lost,
            },
        };
        let mut text = reported(topic);
        let mut ids = Ids::default();
        if self.is_5()
            && let Some(found) = properties(&mut fields)
        {
            ids = found.ids;
            text = self.topic(by, found.alias, text);
        }
        let name = number.map(|number| Name::Numbered(by, number));
        // It was sent before, and not acknowledged.
        let is_again = packet.flags & 8 != 0;
        if is_again && name.is_some_and(|name| self.open.first(name).is_some()) {
            return Step::Skip(packet.bytes);
        }
        let ask = Ask { command: "PUBLISH".into(), text, ids, ..Ask::default() };
        match name {
            Some(name) => self.asks(packet, name, ask),
            None => {
                let exchange = Some(self.open.number());
                Step::Ask(packet.bytes, Ask { exchange, reply: Reply::No, ..ask })
            }
        }
    }

    /// The topic that is meant, where a number may stand for it.
    fn topic(&mut self, by: By, alias: Option<u16>, text: String) -> String {
        let Some(alias) = alias else { return text };
        if text.is_empty() {
            return self.aliases.get(&(by, alias)).cloned().unwrap_or_default();
        }
        if self.aliases.len() >= ALIASES {
            self.aliases.clear();
        }
        self.aliases.insert((by, alias), text.clone());
        text
    }

    /// Topics that a client wants, or does not want any longer.
    fn subscribe(&mut self, by: By, packet: &Packet<'_>, command: &str) -> Step {
        let mut fields = Fields(packet.body);
        let Some(number) = fields.be16().filter(|_| packet.flags == 2) else { return Step::Lost };
        let mut ids = Ids::default();
        if self.is_5()
            && let Some(found) = properties(&mut fields)
        {
            ids = found.ids;
        }
        let text = fields.text().map(reported).unwrap_or_default();
        let ask = Ask { command: command.into(), text, ids, ..Ask::default() };
        self.asks(packet, Name::Numbered(by, number), ask)
    }

    /// What acknowledges something by its number.
    fn acknowledges(&mut self, by: By, packet: &Packet<'_>) -> Step {
        let mut fields = Fields(packet.body);
        let Some(number) = fields.be16() else { return Step::Lost };
        let name = Name::Numbered(by.other(), number);
        let has_codes = matches!(packet.kind, kind::SUBACK | kind::UNSUBACK);
        let code = match has_codes {
            // The worst one says how it went: one that is good says what was granted.
            true => {
                let known = self.is_5().then(|| properties(&mut fields));
                let codes = fields.0.iter().copied().filter(|code| *code >= 0x80).max();
                codes.filter(|_| known.is_none_or(|found| found.is_some()))
            }
            false => fields.byte(),
        };
        let (ok, status) = went(code);
        // Taken, but not yet delivered.
        if packet.kind == kind::PUBREC && ok {
            return Step::Skip(packet.bytes);
        }
        self.answers(packet, name, (ok, status))
    }

    fn says(&mut self, by: By, input: Input<'_>) -> Step {
        let packet = match Packet::read(input) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(packet)) => packet,
        };
        match packet.kind {
            kind::CONNECT => self.connect(&packet),
            kind::CONNACK => {
                let code = packet.body.get(1).copied();
                // Before version 5, all but 0 refuse.
                let (ok, status) = went(code);
                let ok = ok && (self.is_5() || code == Some(0));
                self.answers(&packet, Name::Connect, (ok, status))
            }
            kind::PUBLISH => self.publish(by, &packet),
            kind::SUBSCRIBE => self.subscribe(by, &packet, "SUBSCRIBE"),
            kind::UNSUBSCRIBE => self.subscribe(by, &packet, "UNSUBSCRIBE"),
            kind::PUBACK | kind::PUBREC | kind::PUBCOMP | kind::SUBACK | kind::UNSUBACK => {
                self.acknowledges(by, &packet)
            }
            kind::PINGREQ => {
                let ask = Ask { command: "PINGREQ".into(), ..Ask::default() };
                self.asks(&packet, Name::Ping, ask)
            }
            kind::PINGRESP => self.answers(&packet, Name::Ping, went(None)),
            kind::PUBREL | kind::DISCONNECT | kind::AUTH => Step::Skip(packet.bytes),
            _ => Step::Lost,
        }
    }
}

impl Decoder for Mqtt {
    fn protocol(&self) -> &'static str {
        "mqtt"
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
        self.open.take("mqtt", |name| matches!(name, Name::Numbered(By::Server, _)))
    }

    /// What is published does not wait for what was before, so where one begins is not known.
    fn restart(&mut self) -> bool {
        false
    }
}
