//! The wire format of Protocol Buffers, as far as a compiler plugin needs it.
//!
//! Custom options are fields that a compiled-in description of `descriptor.proto` does not have; so messages
//! are read field by field here, and nothing that a file says is dropped on the way. All bytes are claims.

use crate::error::{Error, Result};

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number, of any of the types that are written as one.
    Number(u64),
    /// A text, a message, or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// As a number; 0 if it is none.
    pub fn number(self) -> u64 {
        match self {
            Value::Number(number) => number,
            Value::Bytes(_) => 0,
        }
    }

    /// As bytes; none if it is a number.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Value::Number(_) => &[],
            Value::Bytes(bytes) => bytes,
        }
    }

    /// As a text; what is no UTF-8 is replaced.
    pub fn text(self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

/// The fields of a message, in the order in which they are written.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Those of a message.
    pub fn of(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    fn varint(&mut self) -> Result<u64> {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let (byte, rest) = self.rest.split_first().ok_or(Error::Wire("it is cut off"))?;
            self.rest = rest;
            if shift > 63 {
                return Err(Error::Wire("a number is longer than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.rest.len() {
            return Err(Error::Wire("a field is longer than its message"));
        }
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }

    fn step(&mut self) -> Result<(u32, Value<'a>)> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Error::Wire("a field has no number"))?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Number(little(self.take(8)?)),
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Number(little(self.take(4)?)),
            _ => return Err(Error::Wire("groups and unknown kinds of fields cannot be read")),
        };
        Ok((number, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.rest = &[];
        }
        Some(step)
    }
}

fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Numbers that are packed into one field, or the one number that the field is.
pub fn packed(value: Value<'_>) -> Result<Vec<u64>> {
    match value {
        Value::Number(number) => Ok(vec![number]),
        Value::Bytes(bytes) => {
            let mut fields = Fields::of(bytes);
            let mut numbers = Vec::new();
            while !fields.rest.is_empty() {
                numbers.push(fields.varint()?);
            }
            Ok(numbers)
        }
    }
}

/// Writes a number.
pub fn put_number(out: &mut Vec<u8>, field: u32, number: u64) {
    put_varint(out, u64::from(field) << 3);
    put_varint(out, number);
}

/// Writes a text or a message.
pub fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_as_they_were_written() {
        let mut message = Vec::new();
        put_number(&mut message, 7, u64::MAX);
        put_bytes(&mut message, 82_118, b"\x01\x02\x80\x01");
        message.extend([5 << 3 | 5, 1, 0, 0, 0]);
        let fields: Vec<_> = Fields::of(&message).map(|field| field.unwrap()).collect();
        assert_eq!(fields[0], (7, Value::Number(u64::MAX)));
        assert_eq!(packed(fields[1].1).unwrap(), [1, 2, 128]);
        assert_eq!(fields[2], (5, Value::Number(1)));
    }

    #[test]
    fn what_is_cut_off_is_an_error_and_the_end() {
        for bytes in [&b"\x0a\x05ab"[..], b"\x80", b"\x0b", b"\x09abc", &[0xff; 12]] {
            let mut fields = Fields::of(bytes);
            assert!(fields.next().unwrap().is_err(), "{bytes:?}");
            assert!(fields.next().is_none());
        }
    }
}
