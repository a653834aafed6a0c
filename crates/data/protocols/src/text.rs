//! Texts of messages as they are reported: without control characters, and not too long.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_clean_and_short() {
        assert_eq!(reported(b" SELECT\n1 "), "SELECT 1");
        assert_eq!(reported(&[b'x'; 300]).len(), TEXT + '…'.len_utf8());
        assert_eq!(reported("ä".as_bytes()), "ä");
        assert_eq!(zero_ended(b"ab\0c"), Some((&b"ab"[..], &b"c"[..])));
        assert_eq!((number(b"-12"), number(b"1x"), number(b"")), (Some(-12), None, None));
    }
}
