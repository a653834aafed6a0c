//! Restartable sequences (`linux/rseq.h`): code that the kernel starts again if its thread loses the
//! processor in it.
//!
//! A descriptor tells the kernel where the original is; a copy would never be started again, and two
//! threads would change one processor's data at once.

use fettle_image::{Image, Kind, LinkAddr, Segment};
use memchr::memmem;

use crate::tables::read_address;

/// What stands before the code that the kernel goes on with, or it ends the program.
const SIGNATURE: [u8; 4] = [0x53, 0x30, 0x05, 0x53];
/// Offsets in a descriptor (`struct rseq_cs`), behind a version and flags of 32 bits each.
const START: u64 = 8;
const LENGTH: u64 = 16;
const ABORT: u64 = 24;
/// Flags that the kernel has, or had.
const FLAGS: u64 = 7;

/// Where the sequences of `image` begin, and where the kernel goes on if one does not get to its end;
/// sorted.
pub(crate) fn known_to_kernel(image: &Image) -> Vec<LinkAddr> {
    let aborts = signed(image);
    if aborts.is_empty() {
        return aborts;
    }
    let named = names_of(image, &aborts);
    let sequences = named.into_iter().filter_map(|(slot, abort)| sequence(image, slot, abort));
    let mut known: Vec<LinkAddr> = sequences.flatten().collect();
    known.sort_unstable();
    known.dedup();
    known
}

/// Addresses of code with the signature before them, sorted: hardly any program has one.
fn signed(image: &Image) -> Vec<LinkAddr> {
    let mut found = Vec::new();
    for segment in image.segments().iter().filter(|s| s.executable) {
        let code = contents(image, segment);
        let signatures = memmem::find_iter(code, &SIGNATURE);
        found.extend(signatures.map(|at| segment.start + (at + SIGNATURE.len()) as u64));
    }
    found
}

/// Words in memory that hold one of `addrs`: where they are, and which.
fn names_of(image: &Image, addrs: &[LinkAddr]) -> Vec<(LinkAddr, LinkAddr)> {
    let is_one = |named: &(LinkAddr, LinkAddr)| addrs.binary_search(&named.1).is_ok();
    let filled = image.relocs().iter().filter_map(|r| Some((r.addr, r.address()?)));
    let mut names: Vec<_> = filled.filter(is_one).collect();
    if image.kind() == Kind::Executable {
        for segment in image.segments() {
            let skew = segment.start.0.wrapping_neg() & 7;
            let words = contents(image, segment).get(skew as usize..).unwrap_or_default();
            let words = words.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap()));
            let slots = (0..).map(|i| segment.start + skew + 8 * i);
            names.extend(slots.zip(words.map(LinkAddr)).filter(is_one));
        }
    }
    names
}

fn contents<'a>(image: &'a Image, segment: &Segment) -> &'a [u8] {
    let len = usize::try_from(segment.file_size).unwrap_or(0);
    image.read(segment.start, len).unwrap_or_default()
}

/// The beginning of the sequence and the address that `slot` holds, if that is the end of a descriptor
/// that the kernel would take.
fn sequence(image: &Image, slot: LinkAddr, abort: LinkAddr) -> Option<[LinkAddr; 2]> {
    let descriptor = LinkAddr(slot.0.checked_sub(ABORT)?);
    let word =
        |offset| Some(u64::from_le_bytes(image.read(descriptor + offset, 8)?.try_into().ok()?));
    let (flags, length) = (word(0)? >> 32, word(LENGTH)?);
    let start = read_address(image, descriptor + START)?;
    let last = start.checked_add(length.checked_sub(1)?)?;
    let plausible = word(0)? as u32 == 0
        && flags <= FLAGS
        && image.is_code(start)
        && image.is_code(last)
        && !(start..=last).contains(&abort);
    plausible.then_some([start, abort])
}
