//! Arguments of a system call, as far as a trace has them.
//!
//! Kernel tracepoints give numbers, by place or by name. strace gives texts such as
//! `3<TCP:[127.0.0.1:80->127.0.0.1:4711]>`, which hold more. Both are read through the same functions.

use crate::value::{self, Field, Value};

/// Arguments. Those without names are in order.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a>(pub &'a [Field<'a>]);

/// A descriptor, with what strace says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fd<'a> {
    /// Its number.
    pub number: i32,
    /// What stood behind it in angle brackets.
    pub of: Option<&'a str>,
}

impl<'a> Args<'a> {
    /// The argument of one of these names, or, where the trace has no names, the one at `place`.
    pub fn get(&self, place: usize, names: &[&str]) -> Option<Value<'a>> {
        let Args(fields) = self;
        value::find(fields, names).or_else(|| {
            let unnamed = fields.get(place).filter(|(name, _)| name.is_empty());
            unnamed.map(|(_, value)| *value)
        })
    }

    /// An argument that is a number.
    pub fn number(&self, place: usize, names: &[&str]) -> Option<u64> {
        match self.get(place, names)? {
            Value::Text(text) => {
                let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                value::number(&text[..end.unwrap_or(text.len())])?.bits()
            }
            value => value.bits(),
        }
    }

    /// An argument that is a descriptor.
    pub fn fd(&self, place: usize, names: &[&str]) -> Option<Fd<'a>> {
        match self.get(place, names)? {
            Value::Text(text) => fd(text),
            value => Some(Fd { number: value.bits()? as i32, of: None }),
        }
    }

    /// An argument that is a text or is printed as one.
    pub fn text(&self, place: usize, names: &[&str]) -> Option<&'a str> {
        match self.get(place, names)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A path, without quotes.
    pub fn path(&self, place: usize, names: &[&str]) -> Option<String> {
        self.text(place, names).map(unquoted)
    }

    /// Two descriptors in brackets, as `pipe` gives them.
    pub fn pair(&self, place: usize) -> Option<[Fd<'a>; 2]> {
        let text = self.text(place, &[])?.strip_prefix('[')?;
        let first = fd(text)?;
        // Behind the first, whose description may have commas.
        let behind = match first.of {
            Some(of) => &text[text.find(of)? + of.len() + 1..],
            None => &text[text.find(',')?..],
        };
        let second = fd(behind.trim_start_matches([',', ' ']))?;
        Some([first, second])
    }

    /// Whether these are arguments of a call that receives, with flags by which it only looks.
    pub fn peeks(&self, call: &str) -> bool {
        /// `MSG_PEEK`.
        const PEEK: u64 = 2;
        let place = match call {
            "recvfrom" => 3,
            "recvmsg" => 2,
            _ => return false,
        };
        // Where a line was cut in two, the flags are not where they would be.
        let named = self.0.iter().any(|(_, value)| {
            matches!(value, Value::Text(text) if text.starts_with("MSG_") && text.contains("MSG_PEEK"))
        });
        let bits = || self.number(place, &["flags"]).is_some_and(|flags| flags & PEEK != 0);
        named || bits()
    }

    /// All of them, as a text of at most 255 bytes.
    pub fn rendered(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.0 {
            if !text.is_empty() {
                text.push_str(", ");
            }
            if !name.is_empty() {
                text.push_str(name);
                text.push('=');
            }
            text.push_str(&value.to_string());
            if text.len() > 255 {
                break;
            }
        }
        cut(&mut text, 255);
        text
    }
}

/// Shortens a text to so many bytes, and marks that.
pub fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let mut end = most;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
}

/// A number, and what stands behind it in angle brackets.
pub fn fd(text: &str) -> Option<Fd<'_>> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    let of = text[end..].strip_prefix('<').and_then(|of| Some(&of[..closing(of)?]));
    Some(Fd { number, of })
}

/// Where the angle bracket closes that was open before the text. Descriptions hold `->`, and pairs
/// of brackets of their own.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut before = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if before == b'-' => {}
            b'>' if depth == 0 => return Some(at),
            b'>' => depth -= 1,
            _ => {}
        }
        before = byte;
    }
    None
}

/// A text as strace quotes it: without quotes, escapes resolved; a cut one ends with `…`.
pub fn unquoted(text: &str) -> String {
    let Some(rest) = text.strip_prefix('"') else { return text.to_owned() };
    let mut bytes = Vec::new();
    let mut input = rest.bytes().peekable();
    while let Some(byte) = input.next() {
        match byte {
            b'"' => break,
            b'\\' => match input.next() {
                Some(b'n') => bytes.push(b'\n'),
                Some(b't') => bytes.push(b'\t'),
                Some(b'r') => bytes.push(b'\r'),
                Some(first @ (b'0'..=b'7' | b'x')) => {
                    let radix = if first == b'x' { 16 } else { 8 };
                    let mut value = char::from(first).to_digit(radix).unwrap_or(0);
                    for _ in 0..2 {
                        let digit = input.peek().and_then(|next| char::from(*next).to_digit(radix));
                        let Some(digit) = digit else { break };
                        value = value * radix + digit;
                        input.next();
                    }
                    bytes.push(value as u8);
                }
                Some(other) => bytes.push(other),
                None => break,
            },
            other => bytes.push(other),
        }
    }
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if rest.ends_with("\"...") {
        text.push('…');
    }
    cut(&mut text, 255);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_say_what_they_are() {
        let of = |text| fd(text).map(|fd| (fd.number, fd.of));
        assert_eq!(of("3"), Some((3, None)));
        assert_eq!(of("-1"), Some((-1, None)));
        assert_eq!(of("1</dev/pts/0<char 136:0>>"), Some((1, Some("/dev/pts/0<char 136:0>"))));
        let tcp = "5<TCP:[127.0.0.1:80->127.0.0.1:4711]>";
        assert_eq!(of(tcp), Some((5, Some("TCP:[127.0.0.1:80->127.0.0.1:4711]"))));
        assert_eq!(of("AT_FDCWD"), None);
        assert_eq!(of("3<unclosed"), Some((3, None)));
    }

    #[test]
    fn pairs_come_with_descriptions_or_without() {
        for text in ["[3, 4]", "[3<pipe:[77]>, 4<pipe:[77]>]", "[3<UNIX:[1->2,\"x\"]>, 4<a>]"] {
            let args = [("", Value::Text(text))];
            let pair = Args(&args).pair(0).map(|pair| pair.map(|fd| fd.number));
            assert_eq!(pair, Some([3, 4]), "{text}");
        }
    }

    #[test]
    fn quotes_and_escapes_go() {
        assert_eq!(unquoted(r#""/tmp/a\"b""#), "/tmp/a\"b");
        assert_eq!(unquoted(r#""\303\244\n\0""#), "ä\n\0");
        assert_eq!(unquoted(r#""\xc3\xa4\x5c\x22\0""#), "ä\\\"\0");
        assert_eq!(unquoted(r#""cut"..."#), "cut…");
        assert_eq!(unquoted("0x7ffd"), "0x7ffd");
        assert_eq!(unquoted(&format!("\"{}\"", "ä".repeat(200))).len(), 254 + "…".len());
    }
}
