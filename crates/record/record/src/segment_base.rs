//! Programs that need the `gs` base themselves.
//!
//! Probes reach their thread's memory through it. Code that has WebAssembly compiled to machine code
//! ahead of time may keep the address of its linear memory there ("Segue", as in `wasm2c` and in the
//! Firefox that is built with it): where a probe runs then, it would write into that memory. Such code
//! sets the base by `wrgsbase`, an instruction that nothing else in a process has a use for. A program
//! that opens such a library only when it runs is known by the library's name among its constants: by
//! then probes would be in place, and their calls in progress.

use std::fs::File;
use std::path::{Path, PathBuf};

use fettle_image::{Image, SectionKind};
use memchr::memmem;

/// A library's name is no longer: what is longer is no name (`NAME_MAX`).
const LONGEST_NAME: usize = 255;

/// The file that sets the `gs` base of the program or library `image`: that itself, at `path`, or a library
/// that it names and that lies in its folder.
pub(crate) fn setter(image: &Image, path: &Path) -> Option<PathBuf> {
    if sets_base(image) {
        return Some(path.to_owned());
    }
    // Libraries are opened by programs; what a library opens is known when it is opened.
    image.interpreter()?;
    let folder = path.parent()?;
    let named = named_libraries(image).into_iter().map(|name| folder.join(name));
    named.into_iter().find(|library| opened(library).is_some_and(|image| sets_base(&image)))
}

fn opened(library: &Path) -> Option<Image> {
    let file = File::open(library).ok()?;
    // SAFETY: the map is private to us; a file that shrinks while it is mapped would fault, as it would
    // for the program that opens it.
    let map = unsafe { memmap2::Mmap::map(&file) }.ok()?;
    Image::parse(fettle_image::Bytes::new(map)).ok()
}

/// Whether code of `image` has `wrgsbase` with 64 bits.
fn sets_base(image: &Image) -> bool {
    let code = image.sections().iter().filter(|s| s.is_executable() && s.is_alloc());
    code.filter_map(|section| image.section_data(section)).any(has_write)
}

/// Whether `wrgsbase %r64` (`f3 REX.W 0f ae /3` with a register) is among these bytes.
fn has_write(code: &[u8]) -> bool {
    memmem::find_iter(code, b"\x0f\xae").any(|at| {
        let before = at.checked_sub(2).and_then(|from| code.get(from..at));
        let operand = code.get(at + 2).copied().unwrap_or_default();
        matches!(before, Some([0xf3, 0x48 | 0x49])) && (0xd8..=0xdf).contains(&operand)
    })
}

/// Names of libraries, without a folder, that `image` needs or has among its constants.
fn named_libraries(image: &Image) -> Vec<String> {
    let mut names = image.needed().to_vec();
    let constant = |s: &&fettle_image::Section| {
        s.is_alloc() && !s.is_executable() && s.kind == SectionKind::Progbits
    };
    for section in image.sections().iter().filter(constant) {
        let Some(bytes) = image.section_data(section) else { continue };
        for end in memmem::find_iter(bytes, b".so\0") {
            let text = &bytes[end.saturating_sub(LONGEST_NAME)..end + 3];
            let start = text.iter().rposition(|b| matches!(b, 0 | b'/')).map_or(0, |at| at + 1);
            names.extend(std::str::from_utf8(&text[start..]).ok().map(str::to_owned));
        }
    }
    names.retain(|name| !name.is_empty() && !name.contains('/'));
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::has_write;

    #[test]
    fn what_sets_the_base_is_known_by_its_instruction() {
        assert!(has_write(b"\x90\xf3\x48\x0f\xae\xdb\xc3"), "wrgsbase %rbx");
        assert!(has_write(b"\xf3\x49\x0f\xae\xdf"), "wrgsbase %r15");
        assert!(!has_write(b"\xf3\x48\x0f\xae\xcb"), "rdgsbase %rbx");
        assert!(!has_write(b"\xf3\x48\x0f\xae\xd3"), "wrfsbase %rbx");
        assert!(!has_write(b"\x0f\xae\x5c\x24\x08"), "stmxcsr 8(%rsp)");
        assert!(!has_write(b"\xf3\x48\x0f\xae"), "cut off");
    }
}
