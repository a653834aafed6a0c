//! Go: goroutines.
//!
//! A thread's `fs` base has a pointer to the running `g` before it; `g` is a structure of the runtime. Where
//! its fields stand follows from the version, which every binary names in `.go.buildinfo`. Where a binary has
//! symbols, the names of what goroutines wait for are read from its own table, for their numbers change.
//!
//! Offsets were compared with the debug information of binaries of each version.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fettle_image::{Image, LinkAddr};

use super::layout::{At, Layout, Place, Runtime};
use super::modules::{file_offset, symbol};

/// Of `runtime.g` and `runtime.m`, from a minor version of Go 1 on: `goid`, `parentGoid`, `curg`.
const OFFSETS: [(u32, u64, u64, u64); 5] = [
    (17, 152, 0, 192),
    (21, 152, 272, 192),
    (23, 160, 280, 192),
    (25, 152, 272, 184),
    (26, 152, 280, 184),
];
/// The last version that this was seen with; later ones are not known.
const LAST: u32 = 26;
/// `g.m`, in all of them.
const THREAD: u64 = 48;
/// From `goid` to `waitreason`, in all of them.
const TO_REASON: u64 = 24;
/// From `fs` to the pointer to `g`, unless the binary was linked with C.
const SLOT: i64 = -8;

/// What begins `.go.buildinfo`.
const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Where its text begins, and the flag that says that there is one.
const TEXT_AT: usize = 32;
const HAS_TEXT: u8 = 2;

/// What goroutines wait for that is given to them by another one.
const TAKES: [&str; 3] = ["chan receive", "select", "sync.Cond.Wait"];
/// What they wait for until another one takes what they have.
const GIVES: [&str; 1] = ["chan send"];

/// Whether a file is one of Go's, as far as its first bytes say: they have a note or section of the linker's.
pub fn is_likely(file: &File) -> bool {
    let mut head = [0; 8192];
    let Ok(read) = file.read_at(&mut head, 0) else { return false };
    let has = |name: &[u8]| head[..read].windows(name.len()).any(|at| at == name);
    // The note of the build id that Go's linker writes near the beginning.
    has(b"\x04\0\0\0Go\0\0")
}

/// The runtime of an executable, if it is Go's and of a version that is known.
pub fn identify(image: &Image, path: &Path) -> Option<Runtime> {
    let minor = version(image)?;
    let known = OFFSETS.iter().rev().find(|(from, ..)| *from <= minor);
    let (_, number, parent, running) = *known.filter(|_| minor <= LAST)?;
    let table = image.symbols().iter().find(|symbol| symbol.name == "runtime.waitReasonStrings");
    let reasons = table.map(|table| reasons(image, table.addr, table.size));
    let [takes, gives] = reasons.unwrap_or_default();
    let reason = number + TO_REASON;
    let (slot, thread) = (SLOT, THREAD);
    let layout =
        Layout { slot, number, parent, running, reason, thread, takes, gives, ..Layout::default() };
    // Without the table it is not known whose work goes on.
    let ready = symbol(image, "runtime.ready").filter(|_| takes != 0);
    let ready = ready.and_then(|at| file_offset(image, at));
    let place = |offset| Place { at: At::Ready, path: path.to_owned(), offset };
    Some(Runtime { layout, places: ready.into_iter().map(place).collect() })
}

/// The minor version of Go 1 that a binary was built with.
fn version(image: &Image) -> Option<u32> {
    let section = image.section(".go.buildinfo")?;
    minor(image.section_data(section)?)
}

/// Of what `.go.buildinfo` holds.
fn minor(info: &[u8]) -> Option<u32> {
    if !info.starts_with(MAGIC) || info.get(MAGIC.len() + 1)? & HAS_TEXT == 0 {
        return None;
    }
    // The length is a varint; names of versions are short.
    let length = usize::from(*info.get(TEXT_AT)?);
    let text = info.get(TEXT_AT + 1..)?.get(..length.min(127))?;
    let rest = std::str::from_utf8(text).ok()?.strip_prefix("go1.")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Numbers of the reasons that count, from the runtime's table of their names: pointers and lengths.
fn reasons(image: &Image, table: LinkAddr, size: u64) -> [u64; 2] {
    /// Bytes of a text's pointer and length.
    const TEXT: u64 = 16;
    let mut masks = [0; 2];
    // A byte says which one it is; a mask has a bit for 64.
    for number in 0..(size / TEXT).min(64) {
        let word = |at: u64| {
            let bytes = image.read(table.checked_add(number * TEXT + at)?, 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let (Some(at), Some(length)) = (word(0), word(8)) else { break };
        let length = usize::try_from(length).ok().filter(|length| *length < 64);
        let Some(text) = length.and_then(|length| image.read(LinkAddr(at), length)) else {
            continue;
        };
        for (mask, names) in masks.iter_mut().zip([&TAKES[..], &GIVES[..]]) {
            if names.iter().any(|name| name.as_bytes() == text) {
                *mask |= 1 << number;
            }
        }
    }
    masks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_linker_wrote() {
        let info = |flags: u8, text: &str| {
            let mut info = MAGIC.to_vec();
            info.extend([8, flags]);
            info.resize(TEXT_AT, 0);
            info.push(text.len() as u8);
            info.extend(text.as_bytes());
            info
        };
        assert_eq!(minor(&info(2, "go1.21.4")), Some(21));
        assert_eq!(minor(&info(2, "go1.26-devel_abc")), Some(26));
        assert_eq!(minor(&info(0, "go1.21.4")), None);
        assert_eq!(minor(&info(2, "devel")), None);
        let cut = info(2, "go1.21.4");
        assert!((0..cut.len()).all(|length| minor(&cut[..length]).is_none_or(|n| n <= 21)));
        assert!(OFFSETS.is_sorted_by_key(|(from, ..)| *from));
    }
}
