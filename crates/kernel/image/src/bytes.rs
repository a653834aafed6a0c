//! Numbers in bytes that may end anywhere.

/// The bytes at `at`, if there are so many.
pub(crate) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// A little-endian number of 16 bits.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    chunk(bytes, at).map(u16::from_le_bytes)
}

/// A little-endian number of 32 bits.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    chunk(bytes, at).map(u32::from_le_bytes)
}

/// A signed little-endian number of 32 bits.
pub(crate) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    chunk(bytes, at).map(i32::from_le_bytes)
}

/// A little-endian number of 64 bits.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    chunk(bytes, at).map(u64::from_le_bytes)
}
