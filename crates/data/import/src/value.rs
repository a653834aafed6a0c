//! Values of foreign events.

use fettle_trace::FieldType;

/// A value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number without a sign.
    Unsigned(u64),
    /// A number that has a sign.
    Signed(i64),
    /// A number with a fraction: a text in the trace, whose events have none.
    Float(f64),
    /// Text.
    Text(&'a str),
}

/// A named value.
pub type Field<'a> = (&'a str, Value<'a>);

impl Value<'_> {
    /// As a number of 64 bits, whatever its sign; texts are none.
    pub fn bits(self) -> Option<u64> {
        match self {
            Value::Unsigned(value) => Some(value),
            Value::Signed(value) => Some(value as u64),
            Value::Float(_) | Value::Text(_) => None,
        }
    }

    /// The type of a column that is made for it. Numbers may well become negative later.
    pub(crate) fn column(self) -> FieldType {
        match self {
            Value::Unsigned(value) if value > i64::MAX as u64 => FieldType::U64,
            Value::Unsigned(_) | Value::Signed(_) => FieldType::I64,
            Value::Float(_) | Value::Text(_) => FieldType::Text,
        }
    }

    /// Whether a column of that type can hold it.
    pub(crate) fn fits(self, column: FieldType) -> bool {
        match (self, column) {
            (Value::Unsigned(_), FieldType::U64) => true,
            (Value::Unsigned(value), FieldType::U16) => u16::try_from(value).is_ok(),
            (Value::Unsigned(value), FieldType::I64) => i64::try_from(value).is_ok(),
            (Value::Signed(value), FieldType::U64) => value >= 0,
            (Value::Signed(_), FieldType::I64) => true,
            (Value::Float(_) | Value::Text(_), FieldType::Text) => true,
            _ => false,
        }
    }
}

impl std::fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Unsigned(value) => write!(f, "{value}"),
            Value::Signed(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// The field of one of these names.
pub fn find<'a>(fields: &[Field<'a>], names: &[&str]) -> Option<Value<'a>> {
    fields.iter().find(|(name, _)| names.contains(name)).map(|(_, value)| *value)
}

/// A number as programs print it: decimal with or without a sign, or hexadecimal after `0x`.
pub fn number(text: &str) -> Option<Value<'static>> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(Value::Unsigned);
    }
    if let Some(digits) = text.strip_prefix('-') {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        return text.parse().ok().filter(|_| plain).map(Value::Signed);
    }
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain).map(Value::Unsigned)
}

/// A number, or the text if it is none.
pub fn number_or_text(text: &str) -> Value<'_> {
    number(text).unwrap_or(Value::Text(text))
}

/// Seconds with a fraction, as nanoseconds; digits beyond the ninth are cut off.
pub fn seconds_ns(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let mut ns = 0;
    for place in 0..9 {
        ns = ns * 10 + fraction.as_bytes().get(place).map_or(0, |digit| u64::from(digit - b'0'));
    }
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_programs_print() {
        assert_eq!(number("17"), Some(Value::Unsigned(17)));
        assert_eq!(number("-2"), Some(Value::Signed(-2)));
        assert_eq!(number("0xffffffffffffffea").and_then(Value::bits), Some((-22_i64) as u64));
        for text in ["", "-", "+5", "0x", "1.5", "seventeen", "--3"] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }

    #[test]
    fn seconds_keep_every_digit() {
        assert_eq!(seconds_ns("1700000000.123456"), Some(1_700_000_000_123_456_000));
        assert_eq!(seconds_ns("0.000000001"), Some(1));
        assert_eq!(seconds_ns("5"), Some(5_000_000_000));
        for text in ["", ".5", "1.x", "-1.0", "99999999999999.0"] {
            assert_eq!(seconds_ns(text), None, "{text:?}");
        }
    }

    #[test]
    fn columns_hold_what_they_are_made_for() {
        for value in [Value::Unsigned(0), Value::Unsigned(u64::MAX), Value::Signed(-1)] {
            assert!(value.fits(value.column()), "{value:?}");
        }
        assert!(!Value::Signed(-1).fits(FieldType::U64));
        assert!(!Value::Unsigned(u64::MAX).fits(FieldType::I64));
        assert!(!Value::Text("7").fits(FieldType::I64));
    }
}
