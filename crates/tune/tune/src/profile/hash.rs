//! The hash of a profile's functions.

/// The hash of nothing.
pub(super) const START: u64 = 0xcbf2_9ce4_8422_2325;

/// Goes on with some bytes: FNV-1a.
pub(super) fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
