//! What a whole image says of its tables.

use std::ops::Range;

use fettle_image::{Image, LinkAddr, Reloc};
use gimli::UnwindSection;

/// What resolving a jump needs to know of the image.
#[derive(Debug)]
pub struct TableContext<'a> {
    pub(crate) image: &'a Image,
    /// Code addresses that data holds, sorted.
    pub(super) labels: Vec<LinkAddr>,
    /// Ranges that only ever are a part of another function, sorted.
    pub(super) cold: Vec<Range<LinkAddr>>,
    /// Where tables of addresses begin, for they are named by instructions of fixed-address code;
    /// sorted.
    pub(super) named: Vec<LinkAddr>,
}

impl<'a> TableContext<'a> {
    /// Gathers code addresses in data.
    pub fn new(image: &'a Image, cold: Vec<Range<LinkAddr>>) -> TableContext<'a> {
        let filled = image.relocs().iter().filter_map(Reloc::address);
        let mut labels: Vec<LinkAddr> = filled.filter(|value| image.is_code(*value)).collect();
        if image.kind() == fettle_image::Kind::Executable {
            // No relocations are left to go by; every aligned word that could be a code address
            // may be one.
            for segment in image.segments().iter().filter(|s| !s.executable) {
                let len = usize::try_from(segment.file_size).unwrap_or(0);
                let Some(bytes) = image.read(segment.start, len) else { continue };
                let skew = segment.start.0.wrapping_neg() as usize & 7;
                for word in bytes.get(skew..).unwrap_or_default().chunks_exact(8) {
                    let value = LinkAddr(u64::from_le_bytes(word.try_into().unwrap()));
                    if value.0 != 0 && image.is_code(value) {
                        labels.push(value);
                    }
                }
            }
        }
        labels.sort_unstable();
        labels.dedup();
        TableContext { image, labels, cold, named: named_tables(image) }
    }

    /// Code addresses that data holds, sorted.
    pub fn labels(&self) -> &[LinkAddr] {
        &self.labels
    }

    /// Code addresses that data holds and that lie in `range`.
    pub fn labels_in(&self, range: &Range<LinkAddr>) -> &[LinkAddr] {
        let from = self.labels.partition_point(|a| *a < range.start);
        let to = self.labels.partition_point(|a| *a < range.end);
        &self.labels[from..to.max(from)]
    }

    /// Whether a table of `range` may lead to `target`.
    pub(super) fn may_lead(&self, range: &Range<LinkAddr>, target: LinkAddr) -> bool {
        // A cold part leads back to the function that it belongs to, wherever that is.
        let from_cold = || self.cold.binary_search_by_key(&range.start, |r| r.start).is_ok();
        range.contains(&target) || (from_cold() && self.image.is_code(target)) || {
            let i = self.cold.partition_point(|r| r.end <= target);
            self.cold.get(i).is_some_and(|r| r.contains(&target))
        }
    }

    pub(super) fn read_u32(&self, at: LinkAddr) -> Option<u32> {
        Some(u32::from_le_bytes(self.image.read(at, 4)?.try_into().ok()?))
    }

    /// Whether the stack pointer at `at` is where it was at the function's entry, by the unwind
    /// table; `None` where that does not say.
    pub(super) fn at_entry_level(&self, at: LinkAddr) -> Option<bool> {
        let fdes = self.image.fdes();
        let i = fdes.partition_point(|f| f.end <= at);
        let fde = fdes.get(i).filter(|f| f.start <= at)?;
        let (_, bytes) = self.image.eh_frame()?;
        let mut section = gimli::EhFrame::new(bytes, gimli::LittleEndian);
        section.set_address_size(8);
        let bases = self.image.unwind_bases();
        let entry = section
            .fde_from_offset(
                &bases,
                gimli::EhFrameOffset(fde.offset),
                gimli::EhFrame::cie_from_offset,
            )
            .ok()?;
        let mut context = gimli::UnwindContext::new();
        let row = entry.unwind_info_for_address(&section, &bases, &mut context, at.0).ok()?;
        match row.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } => {
                Some(*register == gimli::X86_64::RSP && *offset == 8)
            }
            gimli::CfaRule::Expression(_) => None,
        }
    }
}

/// The addresses of tables that instructions of fixed-address code name: `jmp [table + index*8]`, or
/// `mov` with the same operand. They are looked for at every byte: one too many would have to look
/// like the very place where a table seems to end.
fn named_tables(image: &Image) -> Vec<LinkAddr> {
    if image.kind() != fettle_image::Kind::Executable {
        return Vec::new();
    }
    let mut named = Vec::new();
    for segment in image.segments().iter().filter(|s| s.executable) {
        let len = usize::try_from(segment.file_size).unwrap_or(0);
        let code = image.read(segment.start, len).unwrap_or_default();
        // Hardly any stretch has such an operand, which many bytes at once can be asked for.
        for from in (0..code.len()).step_by(STRETCH) {
            let modrm = &code[from..code.len().min(from + STRETCH)];
            let sib = &code[code.len().min(from + 1)..];
            let any = modrm.iter().zip(sib).fold(false, |any, (m, s)| any | is_scaled(*m, *s));
            if any {
                named.extend((from..from + STRETCH).filter_map(|at| table_named(code, at)));
            }
        }
    }
    named.sort_unstable();
    named.dedup();
    named
}

/// Bytes of code that are looked at together.
const STRETCH: usize = 64;

/// Whether the bytes behind an opcode show an operand at an index times eight, and no base.
fn is_scaled(modrm: u8, sib: u8) -> bool {
    (modrm & 0xc7 == 0x04) & (sib & 0xc7 == 0xc5)
}

/// The table that a jump or load names whose opcode is before `at`.
fn table_named(code: &[u8], at: usize) -> Option<LinkAddr> {
    const JUMP: u8 = 0xff;
    const LOAD: u8 = 0x8b;
    let instruction = code.get(at.checked_sub(1)?..at + 6)?;
    let [opcode, modrm, sib, displacement @ ..] = instruction else { return None };
    let names = (*opcode, *modrm) == (JUMP, 0x24) || *opcode == LOAD;
    let displacement = i32::from_le_bytes(displacement.try_into().ok()?);
    let at = LinkAddr(i64::from(displacement) as u64);
    (names && is_scaled(*modrm, *sib)).then_some(at)
}
