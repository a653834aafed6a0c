//! PLT entries: the little jumps through which a program calls functions of its libraries.
//!
//! An entry is one indirect jump through a GOT slot; the slot's relocation names the function.
//! Linkers put other instructions around the jump (`endbr64`, the push of the lazy binder), so we
//! look for the jump itself and go back to the start of the entry:
//!
//! ```text
//!         ff 25 disp32              jmp *slot(%rip)
//!      f2 ff 25 disp32              bnd jmp *slot(%rip)
//!         ff 24 25 abs32            jmp *slot
//!      4c 8b 1d disp32              mov slot(%rip), %r11     (retpoline)
//! ```

use crate::dynamic::{Reloc, RelocKind};
use crate::elf::{Elf, Kind, Section};
use crate::{LinkAddr, raw};

/// One entry of a procedure linkage table (PLT).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PltEntry {
    /// First address.
    pub start: LinkAddr,
    /// Size in bytes.
    pub size: u64,
    /// Name of the function it leads to; `*ifunc*` when a resolver decides at start-up.
    pub target: String,
    /// Where the address lies that it jumps to, if it does nothing else: a jump there by that
    /// address at once does the same.
    pub slot: Option<LinkAddr>,
}

/// Target of an entry whose function is decided by a resolver.
pub const IFUNC_TARGET: &str = "*ifunc*";

/// Whether a section holds PLT entries.
pub(crate) fn is_plt_section(name: &str) -> bool {
    matches!(name, ".plt" | ".plt.sec" | ".plt.got" | ".plt.bnd" | ".iplt")
}

/// All entries, sorted by address.
pub(crate) fn entries(elf: &Elf, relocs: &[Reloc]) -> Vec<PltEntry> {
    if elf.kind == Kind::Relocatable {
        return Vec::new();
    }
    let mut entries = Vec::new();
    let mut sectioned = false;
    for section in elf.sections.iter().filter(|section| is_plt_section(&section.name)) {
        sectioned = true;
        scan(elf, section, relocs, &mut entries);
    }
    if !sectioned && relocs.iter().any(|reloc| reloc.kind == RelocKind::JumpSlot) {
        // Without sections, any such jump through a slot that only the PLT uses is an entry.
        let slots: Vec<Reloc> = relocs
            .iter()
            .filter(|reloc| matches!(reloc.kind, RelocKind::JumpSlot | RelocKind::Irelative))
            .cloned()
            .collect();
        for segment in elf.segments.iter().filter(|segment| segment.executable) {
            if let Some(code) = elf.read_from(segment.start) {
                search(code, segment.start, &slots, &mut entries);
            }
        }
    }
    entries.sort_by_key(|entry| entry.start);
    entries.dedup_by_key(|entry| entry.start);
    entries
}

/// Entries in a PLT section, which are all of one size.
fn scan(elf: &Elf, section: &Section, relocs: &[Reloc], entries: &mut Vec<PltEntry>) {
    let Some(code) = elf.section_data(section) else { return };
    let jumps: Vec<(usize, LinkAddr, String)> = (0..code.len())
        .filter_map(|at| {
            let slot = slot_of_jump(code, at, section.start)?;
            Some((at, slot, target_of_slot(relocs, slot)?))
        })
        .collect();
    // The header often does not state the size, so the jumps' distance does. Entries of eight
    // bytes leave no room for more than the jump.
    let nearest = jumps.iter().zip(jumps.iter().skip(1)).map(|(jump, next)| next.0 - jump.0).min();
    let stated = usize::try_from(section.entry_size).unwrap_or(0);
    let size = match (nearest, stated) {
        (Some(size @ (8 | 16 | 32)), _) | (_, size @ (8 | 16 | 32)) => size,
        _ if code.len() % 16 == 8 => 8,
        _ => 16,
    };
    entries.extend(jumps.into_iter().map(|(at, slot, target)| PltEntry {
        start: section.start + (at - at % size) as u64,
        size: size as u64,
        target,
        slot: Some(slot).filter(|_| is_plain(code, at - at % size, at)),
    }));
}

/// Entries anywhere in a whole segment, which may be large: looks only at the bytes that start
/// the common form of the jump.
fn search(code: &[u8], start: LinkAddr, slots: &[Reloc], entries: &mut Vec<PltEntry>) {
    for at in memchr::memmem::find_iter(code, &[0xff, 0x25]) {
        if let Some(slot) = slot_of_jump(code, at, start)
            && let Some(target) = target_of_slot(slots, slot)
        {
            let prefix = prefix_len(code.get(..at).unwrap_or_default());
            let slot = Some(slot).filter(|_| is_plain(code, at - prefix, at));
            entries.push(PltEntry { start: start + (at - prefix) as u64, size: 16, target, slot });
        }
    }
}

/// Length of what linkers put before the jump of an entry.
fn prefix_len(before: &[u8]) -> usize {
    let rest = before.strip_suffix(&[0xf2]).unwrap_or(before);
    // mold loads the number of the slot first: 41 bb imm32.
    let rest = match rest {
        [rest @ .., 0x41, 0xbb, _, _, _, _] => rest,
        _ => rest,
    };
    before.len() - rest.strip_suffix(ENDBR64).unwrap_or(rest).len()
}

/// Whether the entry at `start` whose jump is at `at` does nothing but jump. Binders of some linkers want the
/// slot's number in a register, and retpolines are jumped to for a reason.
fn is_plain(code: &[u8], start: usize, at: usize) -> bool {
    let (Some(before), Some(jump)) = (code.get(start..at), code.get(at..)) else { return false };
    let before = before.strip_suffix(&[0xf2]).unwrap_or(before);
    jump.starts_with(&[0xff, 0x25]) && (before.is_empty() || before == ENDBR64)
}

const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];

fn slot_of_jump(code: &[u8], at: usize, start: LinkAddr) -> Option<LinkAddr> {
    let (len, relative) = match code.get(at..)? {
        [0xff, 0x25, ..] => (6, true),
        [0xff, 0x24, 0x25, ..] => (7, false),
        [0x4c, 0x8b, 0x1d, ..] => (7, true),
        _ => return None,
    };
    let value = i64::from(raw::i32(code, at + len - 4)?);
    Some(if relative { (start + (at + len) as u64).offset(value) } else { LinkAddr(value as u64) })
}

fn target_of_slot(relocs: &[Reloc], slot: LinkAddr) -> Option<String> {
    let first = relocs.partition_point(|reloc| reloc.addr < slot);
    relocs.iter().skip(first).take_while(|reloc| reloc.addr == slot).find_map(|reloc| {
        match reloc.kind {
            RelocKind::JumpSlot | RelocKind::GlobDat => reloc.symbol.clone(),
            RelocKind::Irelative => Some(IFUNC_TARGET.to_owned()),
            _ => None,
        }
    })
}

/// Whether a run of code looks like a PLT when there are no section names. Either it starts with
/// the way to the lazy binder, `push GOT+8; jmp *GOT+16`, or it is entries of eight bytes, the
/// first of which jumps through a slot of a relocation (`.plt.got`).
pub(crate) fn looks_like_plt(code: &[u8], start: LinkAddr, relocs: &[Reloc]) -> bool {
    if matches!(code, [0xff, 0x35, _, _, _, _, 0xff, 0x25, ..])
        || matches!(code, [0xff, 0x35, _, _, _, _, 0xf2, 0xff, 0x25, ..])
    {
        return true;
    }
    let mut at = if code.starts_with(ENDBR64) { ENDBR64.len() } else { 0 };
    at += usize::from(code.get(at) == Some(&0xf2));
    code.len().is_multiple_of(8)
        && slot_of_jump(code, at, start).is_some_and(|slot| target_of_slot(relocs, slot).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_plain_if_it_only_jumps() {
        let jump = [0xff, 0x25, 1, 2, 3, 4];
        let is_plain =
            |before: &[u8], jump: &[u8]| is_plain(&[before, jump].concat(), 0, before.len());
        assert!(is_plain(&[], &jump) && is_plain(&[0xf2], &jump));
        assert!(is_plain(ENDBR64, &jump) && is_plain(&[ENDBR64, &[0xf2]].concat(), &jump));
        // mov $7, %r11d; a retpoline; one that jumps elsewhere by an address that is not relative.
        assert!(!is_plain(&[0x41, 0xbb, 7, 0, 0, 0], &jump));
        assert!(!is_plain(&[], &[0x4c, 0x8b, 0x1d, 1, 2, 3, 4]));
        assert!(!is_plain(&[], &[0xff, 0x24, 0x25, 1, 2, 3, 4]));
    }
}
