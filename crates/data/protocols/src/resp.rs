//! RESP, the protocol of Redis: values of a letter and a line, some with bytes of a given length
//! behind, some with more values. Requests are arrays of words, answers anything.

use crate::counts::Reason;
use crate::decoder::{Answer, Ask, Decoder, Input, Reply, Step};
use crate::text::{TEXT, number, reported, words};

/// More values within one are not believed.
const VALUES_MAX: i64 = 1 << 24;
/// Longer texts are not.
const BYTES_MAX: i64 = 1 << 32;
/// Commands after which answers come unasked, or none do.
const UNASKED: [&str; 7] =
    ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR", "PSYNC", "SYNC", "REPLCONF"];

/// Whether a request begins here.
pub fn begins(bytes: &[u8]) -> bool {
    let input = Input { bytes, last: false };
    let Some((line, at)) = input.line() else { return false };
    let Some(count) = line.strip_prefix(b"*").and_then(number) else { return false };
    let rest = Input { bytes: input.part(at, u64::MAX), last: false };
    let Some((line, at)) = rest.line() else { return false };
    let length = line.strip_prefix(b"$").and_then(number);
    let first = rest.bytes.get(at as usize);
    (1..VALUES_MAX).contains(&count)
        && length.is_some_and(|length| (1..64).contains(&length))
        && first.is_some_and(u8::is_ascii_alphabetic)
}

/// What `CLIENT REPLY` has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Replies {
    #[default]
    On,
    Off,
    /// None to the next request.
    Skip,
}

/// A connection.
#[derive(Debug, Default)]
pub struct Resp {
    /// Words of the request that are to come.
    asked_left: u64,
    /// Its first ones: the command, and a key.
    asked: Vec<String>,
    /// What answers the client wants from here on.
    replies: Replies,
    /// Values of the answer that are to come.
    left: u64,
    /// Of the answer: whether all is well, and its first line.
    first: Option<(bool, String)>,
    /// It is no answer, but something that comes unasked.
    push: bool,
}

impl Resp {
    /// A word of a request.
    fn word(&mut self, bytes: u64, word: &[u8]) -> Step {
        self.asked_left -= 1;
        let reported_before = self.asked.len() == self.wanted();
        if !reported_before {
            self.asked.push(reported(word));
        }
        if reported_before || (self.asked.len() < self.wanted() && self.asked_left > 0) {
            return Step::Skip(bytes);
        }
        let Some(command) = self.asked.first().map(|word| word.to_ascii_uppercase()) else {
            return Step::Lost;
        };
        if UNASKED.contains(&command.as_str()) {
            return Step::Stop(Reason::Unasked);
        }
        let mut text = command.clone();
        // Of most commands the second word is a key; a password is none of ours.
        if let Some(key) = self.asked.get(1) {
            text.push(' ');
            text.push_str(if matches!(command.as_str(), "AUTH" | "HELLO") { "…" } else { key });
        }
        let reply = self.reply();
        Step::Ask(bytes, Ask { command, text, reply, ..Ask::default() })
    }

    /// How many words of a request say what it is.
    fn wanted(&self) -> usize {
        let is = |n: usize, word| self.asked.get(n).is_some_and(|w| w.eq_ignore_ascii_case(word));
        if is(0, "client") && is(1, "reply") { 3 } else { 2 }
    }

    /// Whether the request is answered, and what that says of those that follow.
    fn reply(&mut self) -> Reply {
        let resets = self.asked.first().is_some_and(|word| word.eq_ignore_ascii_case("reset"));
        let said = if resets { 0 } else { 2 };
        let said = self.asked.get(said).map(|word| word.to_ascii_lowercase());
        let (now, next) = match (said.as_deref(), self.replies) {
            (Some("on" | "reset"), _) => (Reply::Yes, Replies::On),
            (Some("off"), _) | (_, Replies::Off) => (Reply::No, Replies::Off),
            (Some("skip"), _) => (Reply::No, Replies::Skip),
            (_, Replies::Skip) => (Reply::No, Replies::On),
            (_, Replies::On) => (Reply::Yes, Replies::On),
        };
        self.replies = next;
        now
    }
}

impl Decoder for Resp {
    fn protocol(&self) -> &'static str {
        "redis"
    }

    fn begins(&self, bytes: &[u8]) -> bool {
        begins(bytes)
    }

    fn ask(&mut self, input: Input<'_>) -> Step {
        let Some((line, at)) = input.line() else { return Step::More };
        let Some((kind, rest)) = line.split_first() else { return Step::Skip(at) };
        match kind {
            b'*' if self.asked_left == 0 => match number(rest) {
                Some(count) if count < VALUES_MAX => {
                    self.asked_left = count.max(0) as u64;
                    self.asked.clear();
                    Step::Skip(at)
                }
                _ => Step::Lost,
            },
            b'$' if self.asked_left > 0 => {
                let Some(length @ 0..BYTES_MAX) = number(rest) else { return Step::Lost };
                let wanted = at + (length as u64).min(TEXT as u64 + 1);
                if self.asked.len() < self.wanted() && !input.has(wanted) {
                    return Step::More;
                }
                let end = at + length as u64;
                self.word(end + 2, input.part(at, end))
            }
            // As people type them.
            b'A'..=b'Z' | b'a'..=b'z' if self.asked_left == 0 => {
                let words = words(line);
                self.asked.clear();
                self.asked_left = words.len() as u64;
                let mut step = Step::Skip(at);
                for word in &words {
                    if self.asked.len() < self.wanted() {
                        step = self.word(at, word);
                    }
                }
                self.asked_left = 0;
                step
            }
            _ => Step::Lost,
        }
    }

    fn answer(&mut self, input: Input<'_>, _: Option<&str>) -> Step {
        let Some((line, at)) = input.line() else { return Step::More };
        let Some((kind, rest)) = line.split_first() else { return Step::Lost };
        if self.left == 0 {
            self.left = 1;
            self.push = matches!(kind, b'>' | b'|');
            let ok = !matches!(kind, b'-' | b'!');
            let said = if matches!(kind, b'+' | b'-') { reported(rest) } else { String::new() };
            self.first = Some((ok, said));
        }
        let mut bytes = at;
        match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            b'$' | b'=' | b'!' => match number(rest) {
                Some(length @ 0..BYTES_MAX) => bytes += length as u64 + 2,
                Some(-1) => {}
                _ => return Step::Lost,
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => match number(rest) {
                Some(count @ -1..VALUES_MAX) => {
                    let each = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
                    self.left = self.left.saturating_add(each * count.max(0) as u64);
                }
                _ => return Step::Lost,
            },
            _ => return Step::Lost,
        }
        self.left -= 1;
        if self.left > 0 || self.push {
            return Step::Skip(bytes);
        }
        let (ok, status) = self.first.take().unwrap_or_default();
        Step::Answer(bytes, Answer { ok, status, ..Answer::default() })
    }

    fn restart(&mut self) -> bool {
        // What was missed may have asked for answers again.
        let answered = self.replies == Replies::On;
        *self = Resp::default();
        answered
    }
}
