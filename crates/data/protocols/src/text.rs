//! Texts of messages as they are reported: without control characters, and not too long.

use crate::decoder::Ask;

/// Most bytes of a text.
pub const TEXT: usize = 256;

/// A text from bytes, cut, with `…` where it is.
pub fn reported(bytes: &[u8]) -> String {
    let cut = bytes.len() > TEXT;
    let bytes = bytes.get(..TEXT).unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    let clean = |c: char| if c.is_control() || c == '\u{fffd}' { ' ' } else { c };
    let mut text: String = text.trim().chars().map(clean).collect();
    if cut {
        text.push('…');
    }
    text
}

/// The bytes before a zero, and those behind it.
pub fn zero_ended(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    split_at_byte(bytes, 0)
}

/// What stands before the first byte of a kind, and behind it.
pub fn split_at_byte(bytes: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == kind)?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

/// Whether bytes begin with others, as far as they go.
pub fn begins_like(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.iter().zip(wanted).all(|(is, wanted)| is == wanted)
}

/// A decimal number.
pub fn number(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// The words of a line.
pub fn words(line: &[u8]) -> Vec<&[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect()
}

/// The first word of a statement, which says what sort of statement it is. Programs put comments before it,
/// and MySQL's may be for some versions only: `/*!40101 SET …`.
fn verb(text: &str) -> String {
    let mut rest = text.trim_start();
    while let Some(comment) = rest.strip_prefix("/*").filter(|comment| !comment.starts_with('!'))
        && let Some((_, behind)) = comment.split_once("*/")
    {
        rest = behind.trim_start();
    }
    let mut words = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let word = words.find(|word| word.starts_with(|c: char| !c.is_ascii_digit()));
    word.unwrap_or("").to_ascii_uppercase()
}

/// A request that is a statement.
pub fn statement(text: String) -> Ask {
    Ask { command: verb(&text), text, ..Ask::default() }
}

/// A request of which no more is known than what sort of one it is.
pub fn named(command: &str) -> Ask {
    Ask { command: command.into(), ..Ask::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_before_statements_are_no_words() {
        let command = |text: &str| statement(text.to_owned()).command;
        assert_eq!(command(" (select 1)"), "SELECT");
        assert_eq!(command("/* app='x' */ /**/update t set a = 1"), "UPDATE");
        assert_eq!(command("/*!40101 SET NAMES utf8 */"), "SET");
        assert_eq!(command("/* without an end"), "WITHOUT");
        assert_eq!((command(""), command("7 ")), (String::new(), String::new()));
    }

    #[test]
    fn texts_are_clean_and_short() {
        assert_eq!(reported(b" SELECT\n1 "), "SELECT 1");
        assert_eq!(reported(&[b'x'; 300]).len(), TEXT + '…'.len_utf8());
        assert_eq!(reported("ä".as_bytes()), "ä");
        assert_eq!(zero_ended(b"ab\0c"), Some((&b"ab"[..], &b"c"[..])));
        assert_eq!((number(b"-12"), number(b"1x"), number(b"")), (Some(-12), None, None));
    }
}
