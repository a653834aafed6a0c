//! Just enough of the protobuf encoding to write other programs' formats: varints and length-prefixed
//! bytes.

/// A message being written.
#[derive(Clone, Debug, Default)]
pub struct Message(
    /// Its bytes.
    pub Vec<u8>,
);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A number.
    pub fn number(&mut self, field: u32, value: u64) -> &mut Message {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// Bytes or text.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Message {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// A message within this one.
    pub fn message(&mut self, field: u32, message: &Message) -> &mut Message {
        self.bytes(field, &message.0)
    }

    /// Numbers, packed.
    pub fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) -> &mut Message {
        let mut packed = Message::default();
        values.into_iter().for_each(|value| packed.varint(value));
        self.message(field, &packed)
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn encodes_the_examples_of_the_specification() {
        // https://protobuf.dev/programming-guides/encoding/
        assert_eq!(Message::default().number(1, 150).0, [0x08, 0x96, 0x01]);
        let testing = [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67];
        assert_eq!(Message::default().bytes(2, b"testing").0, testing);
        let packed = [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05];
        assert_eq!(Message::default().packed(6, [3, 270, 86942]).0, packed);
    }
}
