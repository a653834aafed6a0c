//! Thread-specific values of glibc's: where in a thread's structure the value of a key stands.

use fettle_image::Image;

use super::modules::symbol;

/// Values of the first keys stand in `struct pthread` itself, before the table that leads to all, each with a
/// number before it. Later keys are not looked for.
pub(super) const FIRST_KEYS: u32 = 32;
const KEY_BYTES: u64 = 16;
const VALUE_AT: u64 = 8;

/// Whether a file of this name may be the one that says where values are.
pub(super) fn is_library(name: &str) -> bool {
    name == "libc.so.6" || name.starts_with("libpthread")
}

/// What glibc tells debuggers, where the table of values is: bits, number and offset of a field, 32 bits each.
pub(super) fn specific(image: &Image) -> Option<u64> {
    let at = symbol(image, "_thread_db_pthread_specific")?;
    let words = image.read(at, 12)?;
    let offset = u64::from(u32::from_le_bytes(words[8..].try_into().ok()?));
    (offset >= u64::from(FIRST_KEYS) * KEY_BYTES).then_some(offset)
}

/// From a thread's `fs` base to the value of one of the first keys, where the table is at `specific`.
pub(super) fn slot(specific: u64, key: u32) -> i64 {
    let first = specific - u64::from(FIRST_KEYS) * KEY_BYTES;
    (first + u64::from(key) * KEY_BYTES + VALUE_AT).cast_signed()
}
