//! HPACK (RFC 7541): fields of heads, by number in a table that never changes and one that grows
//! with what was sent.

use std::collections::VecDeque;

use crate::huffman;

/// What an entry of the table takes besides its bytes.
const ENTRY: usize = 32;
/// Bytes of the table, until its end says otherwise.
const SIZE: usize = 4096;
/// The largest that is believed.
const SIZE_MAX: usize = 1 << 20;

/// The table that grows, and its limit.
#[derive(Debug)]
pub struct Table {
    entries: VecDeque<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    limit: usize,
}

impl Default for Table {
    fn default() -> Table {
        Table { entries: VecDeque::new(), bytes: 0, limit: SIZE }
    }
}

impl Table {
    /// Hands the fields of a packed head to `take`; `false` if it cannot be read, after which
    /// nothing can.
    pub fn read(&mut self, mut block: &[u8], mut take: impl FnMut(&[u8], &[u8])) -> bool {
        while !block.is_empty() {
            if self.field(&mut block, &mut take).is_none() {
                return false;
            }
        }
        true
    }

    fn field(&mut self, block: &mut &[u8], take: &mut impl FnMut(&[u8], &[u8])) -> Option<()> {
        let first = *block.first()?;
        if first & 0x80 != 0 {
            let index = integer(block, 7)?;
            let (name, value) = self.entry(index)?;
            take(name, value);
        } else if first & 0xe0 == 0x20 {
            let limit = integer(block, 5)?;
            (limit <= SIZE_MAX).then_some(())?;
            self.limit = limit;
            self.shrink(limit);
        } else {
            // With 0x40 it is remembered.
            let remembered = first & 0x40 != 0;
            let name = match integer(block, if remembered { 6 } else { 4 })? {
                0 => string(block)?,
                index => self.entry(index)?.0.to_vec(),
            };
            let value = string(block)?;
            take(&name, &value);
            if remembered {
                self.add(name, value);
            }
        }
        Some(())
    }

    fn entry(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let index = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let (name, value) = self.entries.get(index - STATIC.len())?;
        Some((name, value))
    }

    fn add(&mut self, name: Vec<u8>, value: Vec<u8>) {
        let size = name.len() + value.len() + ENTRY;
        self.shrink(self.limit.saturating_sub(size));
        // What is larger than the table empties it.
        if size <= self.limit {
            self.bytes += size;
            self.entries.push_front((name, value));
        }
    }

    fn shrink(&mut self, limit: usize) {
        while self.bytes > limit {
            let Some((name, value)) = self.entries.pop_back() else { return };
            self.bytes -= name.len() + value.len() + ENTRY;
        }
    }
}

/// A number whose first part is in the lowest bits of the first byte.
fn integer(block: &mut &[u8], bits: u32) -> Option<usize> {
    let (first, rest) = block.split_first()?;
    *block = rest;
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(*first) & most;
    if value < most {
        return Some(value);
    }
    for shift in (0..28).step_by(7) {
        let (byte, rest) = block.split_first()?;
        *block = rest;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn string(block: &mut &[u8]) -> Option<Vec<u8>> {
    let packed = block.first()? & 0x80 != 0;
    let length = integer(block, 7)?;
    let (bytes, rest) = block.split_at_checked(length)?;
    *block = rest;
    if packed { huffman::unpack(bytes) } else { Some(bytes.to_vec()) }
}

#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(table: &mut Table, block: &[u8]) -> Option<Vec<String>> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        table
            .read(block, |name, value| fields.push(format!("{}: {}", text(name), text(value))))
            .then_some(fields)
    }

    /// The requests of RFC 7541, C.4, on one connection.
    #[test]
    fn the_examples_of_the_standard() {
        let mut table = Table::default();
        let first = [
            0x82, 0x86, 0x84, 0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab,
            0x90, 0xf4, 0xff,
        ];
        let host = ":authority: www.example.com";
        let expected = [":method: GET", ":scheme: http", ":path: /", host];
        assert_eq!(fields(&mut table, &first).unwrap(), expected);
        let second = [0x82, 0x86, 0x84, 0xbe, 0x58, 0x86, 0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf];
        let read = fields(&mut table, &second).unwrap();
        assert_eq!(read[3..], [host, "cache-control: no-cache"]);
        let third = [
            0x82, 0x87, 0x85, 0xbf, 0x40, 0x88, 0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f,
            0x89, 0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf,
        ];
        let read = fields(&mut table, &third).unwrap();
        assert_eq!(read[2..], [":path: /index.html", host, "custom-key: custom-value"]);
        assert_eq!((table.entries.len(), table.bytes), (3, 164));
    }

    #[test]
    fn nonsense_is_refused() {
        // Entries that are not there, numbers and texts without end.
        for block in [&[0x80][..], &[0xff, 0x80], &[0xc0], &[0x40, 0x7f, 0xff], &[0x3f, 0xff, 0xff]]
        {
            assert_eq!(fields(&mut Table::default(), block), None, "{block:02x?}");
        }
        // A table of no size holds nothing.
        let mut table = Table::default();
        assert!(fields(&mut table, &[0x20, 0x40, 1, b'a', 1, b'b']).is_some());
        assert_eq!(table.entries.len(), 0);
    }
}
