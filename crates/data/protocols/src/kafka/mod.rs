//! Kafka: requests behind their lengths, of a kind, a version and a number that the answer repeats.

use crate::decoder::{Answer, Ask, Decoder, Input, Open, Reply, Step};
use crate::exchanges::Exchanges;
use crate::fields::Fields;
use crate::text::reported;

use self::layout::{APIS_MAX, Api, VERSIONS_MAX, api};

mod layout;

/// The bytes of a length, and of what stands before a client's name.
const LENGTH: u64 = 4;
const HEAD: usize = 12;
/// Bytes of a message that say what it is, at most.
const WANTED: u64 = 1024;
/// The longest message that is believed; brokers take 100 MiB.
const MESSAGE_MAX: u32 = 1 << 27;
/// Numbers of requests are counted up from 0, so their first digits are.
const NUMBERS_MAX: u32 = 1 << 29;

/// A connection.
#[derive(Debug, Default)]
pub struct Kafka {
    /// By number: the kind of request, and its version.
    open: Exchanges<u32, (u16, i16)>,
}

/// What stands before a request.
struct Head<'a> {
    key: u16,
    version: i16,
    number: u32,
    client: Option<&'a [u8]>,
    /// What is behind.
    rest: Fields<'a>,
}

impl<'a> Head<'a> {
    fn read(message: &'a [u8]) -> Option<Head<'a>> {
        let mut rest = Fields(message);
        let (key, version, number) = (rest.be16()?, rest.be16()?, rest.be32()?);
        let fits = key <= APIS_MAX && version <= VERSIONS_MAX && number < NUMBERS_MAX;
        let client = match rest.be16().filter(|_| fits)? {
            u16::MAX => None,
            length => Some(rest.take(length.into())?),
        };
        Some(Head { key, version: version as i16, number, client, rest })
    }
}

/// A message: its length with that of the length, and as much of it as is known and wanted. `None` while more
/// bytes are needed, an error where it is none.
fn message(input: Input<'_>) -> Option<Result<(u64, &[u8])>> {
    let length = input.be32(0)?;
    if !(LENGTH as u32..MESSAGE_MAX).contains(&length) {
        return Some(Err(()));
    }
    let bytes = LENGTH + u64::from(length);
    let wanted = bytes.min(LENGTH + WANTED);
    input.has(wanted).then(|| Ok((bytes, input.part(LENGTH, wanted))))
}

type Result<T> = std::result::Result<T, ()>;

/// A decoder, if a request begins here, of a client that says its name.
pub fn recognise(bytes: &[u8]) -> Option<Kafka> {
    begins(bytes).then(Kafka::default)
}

fn begins(bytes: &[u8]) -> bool {
    let Some(Ok((_, message))) = message(Input { bytes, last: true }) else { return false };
    let is_name = |name: &[u8]| !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    Head::read(message).and_then(|head| head.client).is_some_and(is_name)
}

/// Whether these bytes may be what stands before a request, and were read alone.
pub fn may_begin(bytes: &[u8]) -> bool {
    let mut fields = Fields(bytes);
    let mut read = || {
        let length = fields.be32()?;
        let (key, version, number) = (fields.be16()?, fields.be16()?, fields.be32()?);
        let fits = key <= APIS_MAX && version <= VERSIONS_MAX && number < NUMBERS_MAX;
        Some(fits && (HEAD as u32..MESSAGE_MAX).contains(&length))
    };
    bytes.len() == HEAD && read() == Some(true)
}

impl Decoder for Kafka {
    fn protocol(&self) -> &'static str {
        "kafka"
    }

    fn begins(&self, bytes: &[u8]) -> bool {
        begins(bytes)
    }

    fn ask(&mut self, input: Input<'_>) -> Step {
        let (bytes, message) = match message(input) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(found)) => found,
        };
        let Some(Head { key, version, number, rest, .. }) = Head::read(message) else {
            return Step::Lost;
        };
        let known = api(key);
        let (about, is_answered) =
            known.map_or((&[][..], true), |known| known.about(version, rest));
        let command = known.map_or_else(|| format!("Api{key}"), |known| known.name.to_owned());
        let (exchange, reply) = match is_answered {
            true => match self.open.open(number, (key, version)) {
                Ok(exchange) => (exchange, Reply::Yes),
                Err(reason) => return Step::Stop(reason),
            },
            false => (self.open.number(), Reply::No),
        };
        let text = reported(about);
        Step::Ask(bytes, Ask { command, text, exchange: Some(exchange), reply, ..Ask::default() })
    }

    fn answer(&mut self, input: Input<'_>, _: Option<&str>) -> Step {
        let (bytes, message) = match message(input) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(found)) => found,
        };
        let mut fields = Fields(message);
        let Some(number) = fields.be32() else { return Step::Lost };
        // Asked before the recording began.
        let Some((exchange, (key, version))) = self.open.close(number) else {
            return Step::Skip(bytes);
        };
        let code = api(key).and_then(|known| code(known, version, fields));
        let status = code.map_or_else(String::new, |code| match code {
            0 => "OK".to_owned(),
            code => format!("error {code}"),
        });
        let ok = code.is_none_or(|code| code == 0);
        let exchange = Some(exchange);
        Step::Answer(bytes, Answer { ok, status, exchange, ..Answer::default() })
    }

    fn take_open(&mut self) -> Vec<Open> {
        self.open.take("kafka", |_| false)
    }

    /// Clients may ask before they are answered; one that never has goes on with a request.
    fn restart(&mut self) -> bool {
        !self.open.had_several()
    }
}

fn code(known: &Api, version: i16, fields: Fields<'_>) -> Option<i16> {
    match known.is_produce() {
        true => known.produced(version, fields),
        false => known.code(version, fields),
    }
}
