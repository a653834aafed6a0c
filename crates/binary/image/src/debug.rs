//! What a file says about its own identity, and where the rest of its symbols are.
//!
//! A stripped file names its debug file twice: by build ID, a hash of its contents that both
//! files carry, and by a file name with a checksum. Some distributions also embed a compressed
//! table of the function symbols.

use object::elf;

use crate::elf::Elf;
use crate::error::Warnings;
use crate::{SymbolSource, Warning, raw, symbols, xz};

/// Most that embedded symbols may expand to; those of the largest programs take some 50 MB.
const GNU_DEBUGDATA_SIZE_MAX: usize = 512 << 20;

/// The build ID, from the note segments or, in object and debug files, the note sections.
pub(crate) fn build_id(elf: &Elf) -> Option<std::ops::Range<usize>> {
    let segments = elf.notes.iter().filter(|_| !elf.debug_only);
    let segments = segments.map(|segment| (segment.file_offset, segment.file_size));
    let sections = elf.sections.iter().filter(|s| s.kind == crate::SectionKind::Note);
    let sections = sections.map(|section| (section.file_offset, section.size));
    segments.chain(sections).find_map(|(offset, size)| {
        let start = usize::try_from(offset).ok()?;
        let found = build_id_note(raw::slice(&elf.bytes, offset, size)?)?;
        Some(start + found.start..start + found.end)
    })
}

fn build_id_note(notes: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut at = 0usize;
    loop {
        let name_len = raw::u32(notes, at)? as usize;
        let desc_len = raw::u32(notes, at + 4)? as usize;
        let kind = raw::u32(notes, at + 8)?;
        let name_at = at + 12;
        let desc_at = name_at.checked_add(name_len)?.checked_next_multiple_of(4)?;
        let desc_end = desc_at.checked_add(desc_len)?;
        let name = notes.get(name_at..name_at.checked_add(name_len)?)?;
        notes.get(desc_at..desc_end)?;
        if kind == elf::NT_GNU_BUILD_ID.0 && name == b"GNU\0" && desc_len > 0 {
            return Some(desc_at..desc_end);
        }
        at = desc_end.checked_next_multiple_of(4)?;
    }
}

/// `.gnu_debuglink`: file name, NUL, padding, CRC-32 of the debug file.
pub(crate) fn debug_link(elf: &Elf) -> Option<(String, u32)> {
    let data = elf.section_data(elf.section(".gnu_debuglink")?)?;
    let (name, _) = split_at_nul(data)?;
    let crc = raw::u32(data, (name.len() + 1).next_multiple_of(4))?;
    let name = String::from_utf8_lossy(name).into_owned();
    (!name.is_empty()).then_some((name, crc))
}

/// `.gnu_debugaltlink`: file name, NUL, build ID of the file with shared debug information.
pub(crate) fn debug_alt(elf: &Elf) -> Option<(String, Vec<u8>)> {
    let data = elf.section_data(elf.section(".gnu_debugaltlink")?)?;
    let (name, build_id) = split_at_nul(data)?;
    Some((String::from_utf8_lossy(name).into_owned(), build_id.to_vec()))
}

/// What is before the first NUL, and what is behind it.
fn split_at_nul(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = data.split_at_checked(data.iter().position(|&byte| byte == 0)?)?;
    Some((name, rest.strip_prefix(&[0])?))
}

/// `.gnu_debugdata`, decompressed: an ELF file with a symbol table and little else.
pub(crate) fn gnu_debugdata(elf: &Elf) -> Option<Result<Vec<u8>, &'static str>> {
    let data = elf.section_data(elf.section(".gnu_debugdata")?)?;
    Some(xz::decompress(data, GNU_DEBUGDATA_SIZE_MAX))
}

/// Merges the embedded symbols into `list`.
pub(crate) fn merge_gnu_debugdata(
    elf: &Elf,
    list: &mut Vec<crate::Symbol>,
    warnings: &mut Warnings,
) {
    let Some(data) = gnu_debugdata(elf) else { return };
    let mut inner_warnings = Warnings::default();
    let parsed = data.map_err(str::to_owned).and_then(|data| {
        Elf::parse(data.into(), &mut inner_warnings).map_err(|error| error.to_string())
    });
    match parsed {
        // Only the symbols are wanted: embedded symbols inside embedded symbols are not followed.
        Ok(inner) => {
            let found = symbols::read(&inner, None, &mut inner_warnings);
            symbols::merge(list, &found, SymbolSource::MiniDebugInfo);
        }
        Err(why) => warnings.push(Warning::DebugData(why)),
    }
}
