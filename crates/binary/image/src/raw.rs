//! Bounded little-endian reads. Everything the crate takes from a file passes through here or
//! through a checked slice, so that no offset in a file can reach outside of it.

/// `len` bytes at `offset`.
pub(crate) fn slice(data: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    data.get(start..end)
}

fn array<const N: usize>(data: &[u8], offset: usize) -> Option<[u8; N]> {
    data.get(offset..)?.first_chunk::<N>().copied()
}

pub(crate) fn u16(data: &[u8], offset: usize) -> Option<u16> {
    array(data, offset).map(u16::from_le_bytes)
}

pub(crate) fn u32(data: &[u8], offset: usize) -> Option<u32> {
    array(data, offset).map(u32::from_le_bytes)
}

pub(crate) fn i32(data: &[u8], offset: usize) -> Option<i32> {
    array(data, offset).map(i32::from_le_bytes)
}

pub(crate) fn u64(data: &[u8], offset: usize) -> Option<u64> {
    array(data, offset).map(u64::from_le_bytes)
}

/// Reads NUL-terminated names out of a string table.
///
/// Names may share bytes, so a small hostile table can promise any amount of text: a long string
/// that every symbol points to. What is handed out is therefore bounded by a multiple of the
/// table's size, which no honest table comes near.
pub(crate) struct Names<'a> {
    table: &'a [u8],
    budget: usize,
}

/// So many bytes of the beginning, or all where there are fewer.
pub(crate) fn first(bytes: &[u8], most: usize) -> &[u8] {
    bytes.get(..most).unwrap_or(bytes)
}

/// Longest name worth reading. C++ names of some ten thousand characters do occur.
const NAME_LEN_MAX: usize = 1 << 20;

impl<'a> Names<'a> {
    pub(crate) fn new(table: &'a [u8]) -> Names<'a> {
        Names { table, budget: table.len().saturating_mul(64).saturating_add(1 << 20) }
    }

    /// The name at `offset`.
    pub(crate) fn bytes(&mut self, offset: usize) -> Option<&'a [u8]> {
        let rest = self.table.get(offset..)?;
        let rest = first(rest, self.budget.min(NAME_LEN_MAX));
        let name = rest.get(..rest.iter().position(|&byte| byte == 0)?)?;
        self.budget -= name.len();
        Some(name)
    }

    /// The name at `offset` as text; what is not UTF-8 is replaced.
    pub(crate) fn get(&mut self, offset: usize) -> Option<String> {
        self.bytes(offset).map(text)
    }
}

fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}
