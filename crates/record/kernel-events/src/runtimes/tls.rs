//! Thread-local storage of libraries that were loaded with the program: where it lies from a thread's `fs` base on.
//!
//! The loader keeps that for each library in its list for debuggers (`_r_debug`, `struct link_map`), in a field whose
//! place glibc tells them, too.

use fettle_image::Image;

use super::memory::Memory;
use super::modules::symbol;

/// `r_debug.r_map`, `link_map.l_addr` and `link_map.l_next`, which `<link.h>` has.
const LIST_AT: u64 = 8;
const ADDRESS_AT: u64 = 0;
const NEXT_AT: u64 = 24;

/// No process has more libraries.
const LIBRARIES_MAX: usize = 4096;

/// What glibc tells debuggers, where a library's entry has its offset: bits, number and offset of a field, 32 bits
/// each.
pub(super) fn offset_at(image: &Image) -> Option<u64> {
    let at = symbol(image, "_thread_db_link_map_l_tls_offset")?;
    let words = image.read(at, 12)?;
    Some(u64::from(u32::from_le_bytes(words[8..].try_into().ok()?)))
}

/// From the beginning of the storage of the library that was loaded at `address` to a thread's `fs` base, where
/// the loader's list begins at `debug` and its entries have the offset at `offset_at`. `None` if the library has none,
/// or only gets it when a thread asks for it.
pub(super) fn below_base(memory: &Memory, debug: u64, offset_at: u64, address: u64) -> Option<u64> {
    let mut entry = memory.word(debug.checked_add(LIST_AT)?)?;
    for _ in 0..LIBRARIES_MAX {
        if entry == 0 {
            return None;
        }
        let field = |at: u64| memory.word(entry.checked_add(at)?);
        if field(ADDRESS_AT)? == address {
            let offset = field(offset_at)?;
            return Some(offset).filter(|offset| offset.cast_signed() > 0);
        }
        entry = field(NEXT_AT)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use fettle_types::Pid;

    #[test]
    fn the_list_is_followed_to_the_library_and_no_further() {
        let memory = Memory::of(Pid::own()).unwrap();
        // Address, name, section, next, before, and the offset.
        let second = [0x7000_u64, 0, 0, 0, 0, 16];
        let first = [0x5000, 0, 0, second.as_ptr() as u64, 0, 0];
        let debug = [1, first.as_ptr() as u64];
        let found = |address| below_base(&memory, debug.as_ptr() as u64, 40, address);
        assert_eq!(found(0x7000), Some(16));
        assert_eq!(found(0x5000), None, "it has none");
        assert_eq!(found(0x6000), None);
        // One that leads to itself.
        let mut turning = [0x5000, 0, 0, 0, 0, 0];
        turning[3] = turning.as_ptr() as u64;
        let debug = [1, turning.as_ptr() as u64];
        assert_eq!(below_base(&memory, debug.as_ptr() as u64, 40, 0x7000), None);
    }
}
