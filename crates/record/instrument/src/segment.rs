//! Where new segments go in a file, and its program headers with them.

use fettle_image::Image;
use fettle_types::PAGE;

use crate::elf::{self, Phdr};

/// Holes in the new file up to this size buy program headers that old kernels find.
const HOLE_MAX: u64 = 64 << 20;

/// The program headers; in words why they cannot be read.
pub fn headers(image: &Image) -> Result<Vec<Phdr>, &'static str> {
    let (offset, count) = image.phdr_bytes();
    let bytes = image
        .bytes()
        .get(offset as usize..offset as usize + count * elf::PHDR)
        .ok_or("the program headers lie outside of the file")?;
    Ok(bytes.chunks_exact(elf::PHDR).map(|c| Phdr(c.try_into().expect("exact"))).collect())
}

/// Link address and file offset of the new segments. Old kernels tell a program its program
/// headers' address as if the whole file were mapped in one piece; so it is if they are among
/// the new segments, and the hole that this leaves in the file is not too large.
pub fn place(image: &Image, headers: &[Phdr], in_place: bool) -> Result<(u64, u64), &'static str> {
    let loads = || headers.iter().filter(|h| h.kind() == elf::PT_LOAD);
    let first = loads().next().ok_or("there are no segments")?;
    let end = loads().map(|h| h.at().saturating_add(h.mem_size())).max().unwrap_or(0);
    let at = end.checked_next_multiple_of(PAGE).filter(|at| *at < 1 << 46);
    let at = at.ok_or("its segments lie too high")?;
    let offset = (image.bytes().len() as u64).next_multiple_of(PAGE);
    let base = first.at().wrapping_sub(first.offset());
    let mapped = at.wrapping_sub(base);
    Ok(if in_place {
        (at, offset)
    } else if mapped < offset {
        (base.wrapping_add(offset), offset)
    } else if mapped - offset <= HOLE_MAX {
        (at, mapped)
    } else {
        (at, offset)
    })
}

/// Address of the file's first byte.
pub fn first_address(headers: &[Phdr]) -> u64 {
    let first = headers.iter().find(|h| h.kind() == elf::PT_LOAD);
    first.map_or(0, |h| h.at().wrapping_sub(h.offset()))
}

/// Makes the unwinder's table the one at `at`.
pub fn set_frame_header(headers: &mut Vec<Phdr>, offset: u64, at: u64, len: u64) {
    let header = Phdr::new(elf::PT_GNU_EH_FRAME, 4, offset, at, len, 4);
    match headers.iter_mut().find(|h| h.kind() == elf::PT_GNU_EH_FRAME) {
        Some(h) => *h = header,
        None => headers.push(header),
    }
}

/// Writes the program headers to where there is room for them.
pub fn write_headers(file: &mut [u8], headers: &mut [Phdr], offset: u64, at: u64) {
    let len = headers.len() * elf::PHDR;
    for h in headers.iter_mut().filter(|h| h.kind() == elf::PT_PHDR) {
        *h = Phdr::new(elf::PT_PHDR, 4, offset, at, len as u64, 8);
    }
    elf::set(file, 32, 8, offset);
    elf::set(file, 56, 2, headers.len() as u64);
    for (i, header) in headers.iter().enumerate() {
        let at = offset as usize + i * elf::PHDR;
        file[at..at + elf::PHDR].copy_from_slice(&header.0);
    }
}
