//! memcached: lines of text, some with bytes of a given length behind, among them the meta commands;
//! or the older binary messages, which have a head of 24 bytes.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use crate::decoder::{Answer, Ask, Decoder, Input, MARK, Read, Reply, Step};
use crate::text::{number, reported, words};

const COMMANDS: [&[u8]; 25] = [
    b"get",
    b"gets",
    b"gat",
    b"gats",
    b"set",
    b"add",
    b"replace",
    b"append",
    b"prepend",
    b"cas",
    b"delete",
    b"incr",
    b"decr",
    b"touch",
    b"flush_all",
    b"version",
    b"verbosity",
    b"stats",
    b"quit",
    b"mg",
    b"ms",
    b"md",
    b"ma",
    b"mn",
    b"me",
];
/// The longest value that is believed.
const VALUE_MAX: i64 = 1 << 31;

/// Whether a request in text begins here.
pub fn text_begins(bytes: &[u8]) -> bool {
    let input = Input { bytes, last: false };
    let Some((line, _)) = input.line() else { return false };
    let known = words(line).first().is_some_and(|word| COMMANDS.contains(word));
    known && line.iter().all(|byte| (b' '..=b'~').contains(byte))
}

/// A connection that talks in text.
#[derive(Debug, Default)]
pub struct Text {
    /// Values of the answer so far.
    values: u32,
}

impl Decoder for Text {
    fn protocol(&self) -> &'static str {
        "memcached"
    }

    fn begins(&self, bytes: &[u8]) -> bool {
        text_begins(bytes)
    }

    fn ask(&mut self, input: Input<'_>) -> Step {
        let Some((line, mut bytes)) = input.line() else { return Step::More };
        let words = words(line);
        let [command, rest @ ..] = words.as_slice() else { return Step::Lost };
        if !COMMANDS.contains(command) {
            return Step::Lost;
        }
        let value = match *command {
            b"quit" => return Step::Skip(bytes),
            b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => rest.get(3),
            b"ms" => rest.get(1),
            _ => None,
        };
        if matches!(
            *command,
            b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" | b"ms"
        ) {
            let Some(length @ 0..VALUE_MAX) = value.and_then(|word| number(word)) else {
                // The server answers with an error and reads the value as commands.
                return Step::Lost;
            };
            bytes += length as u64 + 2;
        }
        let meta = matches!(*command, b"mg" | b"ms" | b"md" | b"ma");
        let flags = if meta { rest.get(1..).unwrap_or_default() } else { &[] };
        let reply = match rest.last() {
            _ if flags.contains(&&b"q"[..]) => Reply::Perhaps,
            Some(&b"noreply") => Reply::No,
            _ => Reply::Yes,
        };
        let name = rest.first().copied().unwrap_or_default();
        let repeated = match *command {
            b"mn" => Some(MARK),
            _ if flags.contains(&&b"k"[..]) => repeated(flags, Some(name)),
            _ => repeated(flags, None),
        };
        let command = reported(command);
        let text = format!("{command} {}", reported(name)).trim_end().to_owned();
        Step::Ask(bytes, Ask { command, text, key: repeated, reply, ..Ask::default() })
    }

    fn answer(&mut self, input: Input<'_>, _: Option<&str>) -> Step {
        let Some((line, mut bytes)) = input.line() else { return Step::More };
        let words = words(line);
        let [word, rest @ ..] = words.as_slice() else { return Step::Lost };
        let mut ok = true;
        let mut status = reported(word);
        let (mut key, mut needed) = (None, false);
        let value = |n: usize| rest.get(n).and_then(|word| number(word));
        match *word {
            b"VALUE" => {
                let Some(length @ 0..VALUE_MAX) = value(2) else { return Step::Lost };
                self.values = self.values.saturating_add(1);
                return Step::Skip(bytes + length as u64 + 2);
            }
            b"STAT" => return Step::Skip(bytes),
            b"END" => status = format!("{} values", std::mem::take(&mut self.values)),
            b"VA" => {
                let Some(length @ 0..VALUE_MAX) = value(0) else { return Step::Lost };
                bytes += length as u64 + 2;
                key = echoed(rest.get(1..).unwrap_or_default());
            }
            b"HD" | b"NS" | b"EX" | b"NF" => key = echoed(rest),
            // That there is nothing is what quiet requests get no answer for.
            b"EN" => needed = true,
            b"MN" => key = Some(MARK),
            b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => {
                ok = false;
                status = reported(line);
            }
            b"ME" | b"STORED" | b"NOT_STORED" | b"EXISTS" | b"NOT_FOUND" | b"DELETED"
            | b"TOUCHED" | b"OK" | b"VERSION" | b"RESET" | b"BUSY" => {}
            word if number(word).is_some() => status = "NUMBER".into(),
            _ => return Step::Lost,
        }
        Step::Answer(bytes, Answer { ok, status, key, needed, ..Answer::default() })
    }

    fn restart(&mut self) -> bool {
        *self = Text::default();
        true
    }
}

/// What the answer to a meta command repeats: the token that it was given, or else a key.
fn repeated(flags: &[&[u8]], key: Option<&[u8]>) -> Option<u64> {
    let token = flags.iter().find(|flag| flag.first() == Some(&b'O')).copied();
    let hashed =
        |what: (bool, &[u8])| BuildHasherDefault::<DefaultHasher>::default().hash_one(what);
    // No hash is the mark's.
    token.map(|token| (true, token)).or(key.map(|key| (false, key))).map(|what| hashed(what) >> 1)
}

/// What an answer repeats.
fn echoed(flags: &[&[u8]]) -> Option<u64> {
    repeated(flags, flags.iter().find_map(|flag| flag.strip_prefix(b"k")))
}

/// First bytes of a request and of an answer.
const ASKS: u8 = 0x80;
const ANSWERS: u8 = 0x81;
const HEAD: u64 = 24;
const STAT: u8 = 0x10;
/// Names of operations, by number, and whether they answer only if there is something to say.
const OPERATIONS: [(&str, bool); 37] = [
    ("get", false),
    ("set", false),
    ("add", false),
    ("replace", false),
    ("delete", false),
    ("incr", false),
    ("decr", false),
    ("quit", false),
    ("flush", false),
    ("get", true),
    ("noop", false),
    ("version", false),
    ("get", false),
    ("get", true),
    ("append", false),
    ("prepend", false),
    ("stat", false),
    ("set", true),
    ("add", true),
    ("replace", true),
    ("delete", true),
    ("incr", true),
    ("decr", true),
    ("quit", true),
    ("flush", true),
    ("append", true),
    ("prepend", true),
    ("verbosity", false),
    ("touch", false),
    ("gat", false),
    ("gat", true),
    ("hello", false),
    ("sasl_list", false),
    ("sasl_auth", false),
    ("sasl_step", false),
    ("gat", false),
    ("gat", true),
];

/// A head: operation, key's, extras' and body's length, status, what the answer repeats.
#[derive(Debug)]
struct Head {
    operation: u8,
    key: usize,
    extras: usize,
    body: u64,
    status: u16,
    repeated: u64,
}

fn head(input: Input<'_>, magic: u8) -> Read<Head> {
    let &[is, operation, k1, k2, extras, kind, s1, s2, ..] = input.bytes.get(..HEAD as usize)?
    else {
        return None;
    };
    let head = Head {
        operation,
        key: usize::from(u16::from_be_bytes([k1, k2])),
        extras: usize::from(extras),
        body: u64::from(input.be32(8)?),
        status: u16::from_be_bytes([s1, s2]),
        repeated: u64::from(operation) << 32 | u64::from(input.be32(12)?),
    };
    let fits = (head.key + head.extras) as u64 <= head.body && head.body < 1 << 31;
    let known = is == magic && kind == 0;
    let known = known && usize::from(head.operation) < OPERATIONS.len();
    Some(if fits && known { Ok(head) } else { Err(()) })
}

/// Whether a binary request begins here.
pub fn binary_begins(bytes: &[u8]) -> bool {
    matches!(head(Input { bytes, last: false }, ASKS), Some(Ok(head)) if head.extras <= 20)
}

/// A connection that talks in binary messages.
#[derive(Debug, Default)]
pub struct Binary;

impl Decoder for Binary {
    fn protocol(&self) -> &'static str {
        "memcached"
    }

    fn begins(&self, bytes: &[u8]) -> bool {
        binary_begins(bytes)
    }

    fn ask(&mut self, input: Input<'_>) -> Step {
        let head = match head(input, ASKS) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(head)) => head,
        };
        let key_at = HEAD as usize + head.extras;
        if !input.has((key_at + head.key) as u64) {
            return Step::More;
        }
        let end = input.bytes.len().min(key_at + head.key);
        let secret = head.operation == 0x21 || head.operation == 0x22;
        let key =
            if secret { "" } else { &reported(input.bytes.get(key_at..end).unwrap_or_default()) };
        let Some(&(name, quiet)) = OPERATIONS.get(usize::from(head.operation)) else {
            return Step::Lost;
        };
        let ask = Ask {
            command: name.into(),
            text: format!("{name} {key}").trim_end().to_owned(),
            key: Some(head.repeated),
            reply: if quiet { Reply::Perhaps } else { Reply::Yes },
            ..Ask::default()
        };
        Step::Ask(HEAD + head.body, ask)
    }

    fn answer(&mut self, input: Input<'_>, _: Option<&str>) -> Step {
        let head = match head(input, ANSWERS) {
            None => return Step::More,
            Some(Err(())) => return Step::Lost,
            Some(Ok(head)) => head,
        };
        // Statistics come one by one; the last has no name.
        if head.operation == STAT && head.key > 0 {
            return Step::Skip(HEAD + head.body);
        }
        let status = match head.status {
            0 => "OK".to_owned(),
            1 => "NOT_FOUND".to_owned(),
            2 => "EXISTS".to_owned(),
            5 => "NOT_STORED".to_owned(),
            other => format!("error {other}"),
        };
        let ok = matches!(head.status, 0 | 1 | 2 | 5);
        let key = Some(head.repeated);
        Step::Answer(HEAD + head.body, Answer { ok, status, key, ..Answer::default() })
    }

    fn restart(&mut self) -> bool {
        true
    }
}
