//! Unwind entries: where functions start and end even when every symbol is stripped.
//!
//! On x86-64 the ABI wants unwind information for all code, so compilers emit one entry (FDE) per
//! contiguous piece of a function into `.eh_frame`. It survives stripping because C++ exceptions
//! need it at run time. `.eh_frame_hdr` is a sorted index to it that the unwinder searches.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use gimli::{
    BaseAddresses, CallFrameInstruction as Cfi, CommonInformationEntry, EhFrame, EhFrameOffset,
    EndianSlice, LittleEndian, UnwindSection,
};

use crate::elf::{Elf, Kind, Section, SectionKind};
use crate::error::Warnings;
use crate::{LinkAddr, Warning, raw};

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// An address that unwind information gives, perhaps through a word in memory.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Pointer {
    /// The address itself.
    Direct(LinkAddr),
    /// The address of a word that will hold it at run time.
    Indirect(LinkAddr),
}

/// One unwind entry: a contiguous piece of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fde {
    /// First address.
    pub start: LinkAddr,
    /// First address past it.
    pub end: LinkAddr,
    /// Language-specific data: the exception table of the function.
    pub lsda: Option<LinkAddr>,
    /// Routine that interprets the exception table.
    pub personality: Option<Pointer>,
    /// The entry describes a signal return trampoline, not a called function.
    pub signal_frame: bool,
    /// Offset of the entry in `.eh_frame`.
    pub offset: usize,
    /// The frame at the first byte is not what a call leaves (CFA = rsp + 8). True for the cold
    /// parts that GCC splits off functions with frames: they are jumped to, never called.
    pub starts_mid_frame: bool,
}

/// Where the unwind tables are, by address and by range of bytes in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnwindTables {
    pub eh_frame: Option<(LinkAddr, Range<usize>)>,
    pub eh_frame_hdr: Option<(LinkAddr, Range<usize>)>,
    pub bases: BaseAddresses,
    /// `.eh_frame` of an object file with its relocations applied.
    pub relocated: Option<Arc<[u8]>>,
}

impl UnwindTables {
    pub(crate) fn find(elf: &Elf, pltgot: Option<LinkAddr>) -> UnwindTables {
        let named = |name| {
            let section = elf.section(name).filter(|section| section.is_alloc())?;
            let known = matches!(section.kind, SectionKind::Progbits | SectionKind::X86Unwind);
            let range = known.then(|| file_range(elf, section))??;
            Some((section.start, range))
        };
        let hdr = named(".eh_frame_hdr").or_else(|| {
            let segment = elf.eh_frame_hdr.as_ref().filter(|_| !elf.debug_only)?;
            let start = usize::try_from(segment.file_offset).ok()?;
            let end = start.checked_add(usize::try_from(segment.file_size).ok()?)?;
            elf.bytes.get(start..end).map(|_| (segment.start, start..end))
        });
        let eh_frame = named(".eh_frame").or_else(|| {
            let (hdr_addr, range) = hdr.clone()?;
            let addr = eh_frame_pointer(hdr_addr, elf.bytes.get(range)?)?;
            let segment = elf.segment_at(addr)?;
            let start =
                usize::try_from(segment.file_offset.checked_add(addr - segment.start)?).ok()?;
            let len = entries_len(elf.read_from(addr)?);
            Some((addr, start..start.checked_add(len)?))
        });
        let mut bases = BaseAddresses::default();
        if let Some((addr, _)) = &hdr {
            bases = bases.set_eh_frame_hdr(addr.0);
        }
        if let Some((addr, _)) = &eh_frame {
            bases = bases.set_eh_frame(addr.0);
        }
        let text = elf.section(".text").map(|section| section.start).or_else(|| {
            elf.segments.iter().find(|segment| segment.executable).map(|segment| segment.start)
        });
        if let Some(addr) = text {
            bases = bases.set_text(addr.0);
        }
        if let Some(addr) = elf.section(".got").map(|section| section.start).or(pltgot) {
            bases = bases.set_got(addr.0);
        }
        let relocated = relocate(elf).map(Arc::from);
        UnwindTables { eh_frame, eh_frame_hdr: hdr, bases, relocated }
    }
}

/// Applies the relocations of `.eh_frame` in an object file, where every address in it is still
/// zero. Those that linkers emit there are few: distances and plain addresses.
fn relocate(elf: &Elf) -> Option<Vec<u8>> {
    if elf.kind != Kind::Relocatable {
        return None;
    }
    let mut sections = elf.sections.iter().enumerate();
    let (index, section) = sections.find(|(_, section)| section.name == ".eh_frame")?;
    let mut data = elf.section_data(section)?.to_vec();
    for relas in &elf.sections {
        if relas.kind != SectionKind::Rela || relas.info as usize != index {
            continue;
        }
        let symbols = elf.sections.get(relas.link as usize).and_then(|s| elf.section_data(s));
        let (Some(table), Some(symbols)) = (elf.section_data(relas), symbols) else { continue };
        for rela in table.chunks_exact(24) {
            relocate_one(elf, section.start, rela, symbols, &mut data);
        }
    }
    Some(data)
}

fn relocate_one(
    elf: &Elf,
    base: LinkAddr,
    rela: &[u8],
    symbols: &[u8],
    data: &mut [u8],
) -> Option<()> {
    let place = usize::try_from(raw::u64(rela, 0)?).ok()?;
    let info = raw::u64(rela, 8)?;
    let symbol_at = usize::try_from(info >> 32).ok()?.checked_mul(24)?;
    let symbol = symbols.get(symbol_at..symbol_at.checked_add(24)?)?;
    let section = elf.sections.get(usize::from(raw::u16(symbol, 6)?))?;
    let target = section.start + raw::u64(symbol, 8)? + raw::u64(rela, 16)?;
    let distance = target - (base + place as u64);
    let (value, size) = match object::elf::RelocationType(info as u32) {
        object::elf::R_X86_64_PC32 => (distance, 4),
        object::elf::R_X86_64_PC64 => (distance, 8),
        object::elf::R_X86_64_32 | object::elf::R_X86_64_32S => (target.0, 4),
        object::elf::R_X86_64_64 => (target.0, 8),
        _ => return None,
    };
    data.get_mut(place..place.checked_add(size)?)?
        .copy_from_slice(value.to_le_bytes().get(..size)?);
    Some(())
}

fn file_range(elf: &Elf, section: &Section) -> Option<Range<usize>> {
    let start = usize::try_from(section.file_offset).ok()?;
    Some(start..start + elf.section_data(section)?.len())
}

/// Address of `.eh_frame` as its index gives it; only the encodings that linkers use.
fn eh_frame_pointer(hdr_addr: LinkAddr, hdr: &[u8]) -> Option<LinkAddr> {
    const PCREL_SDATA4: u8 = 0x1b;
    const UDATA4: u8 = 0x03;
    match (*hdr.first()?, *hdr.get(1)?) {
        (1, PCREL_SDATA4) => Some((hdr_addr + 4).offset(raw::i32(hdr, 4)?.into())),
        (1, UDATA4) => Some(LinkAddr(raw::u32(hdr, 4)?.into())),
        _ => None,
    }
}

/// Length of a run of unwind entries up to and with its terminator.
fn entries_len(data: &[u8]) -> usize {
    let mut at = 0;
    while let Some((header, len)) = entry_extent(data, at) {
        at += header + len;
        if len == 0 {
            break;
        }
    }
    at
}

/// Sizes of the length field and of what follows it.
fn entry_extent(data: &[u8], at: usize) -> Option<(usize, usize)> {
    let (header, len) = match raw::u32(data, at)? {
        u32::MAX => (12, raw::u64(data, at.checked_add(4)?)?),
        len => (4, len.into()),
    };
    let len = usize::try_from(len).ok()?;
    let end = at.checked_add(header)?.checked_add(len)?;
    (end <= data.len()).then_some((header, len))
}

/// The canonical frame address: register and offset, or an expression (`None`).
type Cfa = Option<(gimli::Register, i64)>;

/// What a call leaves: the return address on top of the stack.
const ENTRY_CFA: Cfa = Some((gimli::X86_64::RSP, 8));

/// Reads all entries, sorted by start and without overlap.
pub(crate) fn fdes(elf: &Elf, tables: &UnwindTables, warnings: &mut Warnings) -> Vec<Fde> {
    let Some((addr, range)) = &tables.eh_frame else { return Vec::new() };
    let file_data = elf.bytes.get(range.clone());
    let Some(data) = tables.relocated.as_deref().or(file_data) else { return Vec::new() };
    read_entries(elf, *addr, data, &tables.bases, warnings)
}

fn read_entries(
    elf: &Elf,
    addr: LinkAddr,
    data: &[u8],
    bases: &BaseAddresses,
    warnings: &mut Warnings,
) -> Vec<Fde> {
    let mut section = EhFrame::new(data, LittleEndian);
    section.set_address_size(8);
    let mut cies: HashMap<usize, (CommonInformationEntry<Reader<'_>>, Cfa)> = HashMap::new();
    let mut fdes = Vec::new();
    let mut at = 0;
    // Every entry states its length: one that cannot be read does not hide the next.
    while let Some((header, len)) = entry_extent(data, at) {
        let offset = at;
        at += header + len;
        // A zero length ends one linker input's entries; others may follow. A zero identifier
        // marks a CIE, which is read when an entry refers to it.
        let id_at = offset + header;
        let id =
            if header == 4 { raw::u32(data, id_at).map(u64::from) } else { raw::u64(data, id_at) };
        if len == 0 || id == Some(0) {
            continue;
        }
        let place = addr..addr.saturating_add(data.len() as u64);
        match read_fde(&section, bases, offset, place, &mut cies) {
            Ok(fde) => {
                // Entries of discarded code have no size or lie outside of the code.
                if fde.start < fde.end && elf.is_code(fde.start) && elf.is_code(fde.end - 1) {
                    fdes.push(fde);
                }
            }
            Err(error) => {
                warnings.push(Warning::Unwind { offset, why: error.to_string() });
            }
        }
    }
    without_overlap(fdes, warnings)
}

fn read_fde<'a>(
    section: &EhFrame<Reader<'a>>,
    bases: &BaseAddresses,
    offset: usize,
    place: Range<LinkAddr>,
    cies: &mut HashMap<usize, (CommonInformationEntry<Reader<'a>>, Cfa)>,
) -> gimli::Result<Fde> {
    let partial = section.partial_fde_from_offset(bases, EhFrameOffset(offset))?;
    let cie_at = partial.cie_offset().0;
    if let std::collections::hash_map::Entry::Vacant(vacant) = cies.entry(cie_at) {
        let cie = section.cie_from_offset(bases, EhFrameOffset(cie_at))?;
        let mut cfa = None;
        apply(&mut cfa, &cie, cie.instructions(section, bases))?;
        vacant.insert((cie, cfa));
    }
    let (cie, cie_cfa) = &cies[&cie_at];
    let fde = partial.parse(|_, _, _| Ok(cie.clone()))?;
    let mut cfa = *cie_cfa;
    apply(&mut cfa, cie, fde.instructions(section, bases))?;

    let start = LinkAddr(fde.initial_address());
    // An empty pointer is stored as zero, which a relative encoding turns into its own address.
    let lsda = fde.lsda().map(|pointer| LinkAddr(pointer.pointer()));
    Ok(Fde {
        start,
        end: start.saturating_add(fde.len()),
        lsda: lsda.filter(|&at| at.0 != 0 && !place.contains(&at)),
        personality: fde.personality().map(|pointer| match pointer {
            gimli::Pointer::Direct(addr) => Pointer::Direct(LinkAddr(addr)),
            gimli::Pointer::Indirect(addr) => Pointer::Indirect(LinkAddr(addr)),
        }),
        signal_frame: fde.is_signal_trampoline(),
        offset,
        starts_mid_frame: cfa != ENTRY_CFA,
    })
}

/// Runs call frame instructions up to the first that leaves the first byte.
fn apply<'a>(
    cfa: &mut Cfa,
    cie: &CommonInformationEntry<Reader<'a>>,
    mut instructions: gimli::CallFrameInstructionIter<'_, Reader<'a>>,
) -> gimli::Result<()> {
    let factor = cie.data_alignment_factor();
    let mut saved = Vec::new();
    while let Some(instruction) = instructions.next()? {
        match instruction {
            Cfi::AdvanceLoc { delta: 0 } => {}
            Cfi::AdvanceLoc { .. } | Cfi::SetLoc { .. } => break,
            Cfi::DefCfa { register, offset } => *cfa = Some((register, offset as i64)),
            Cfi::DefCfaSf { register, factored_offset } => {
                *cfa = Some((register, factored_offset.wrapping_mul(factor)));
            }
            Cfi::DefCfaRegister { register } => {
                *cfa = cfa.map(|(_, offset)| (register, offset));
            }
            Cfi::DefCfaOffset { offset } => {
                *cfa = cfa.map(|(register, _)| (register, offset as i64));
            }
            Cfi::DefCfaOffsetSf { factored_offset } => {
                *cfa = cfa.map(|(register, _)| (register, factored_offset.wrapping_mul(factor)));
            }
            Cfi::DefCfaExpression { .. } => *cfa = None,
            Cfi::RememberState => saved.push(*cfa),
            Cfi::RestoreState => *cfa = saved.pop().unwrap_or(*cfa),
            _ => {}
        }
    }
    Ok(())
}

/// Sorts, and cuts an entry short where the next one starts: the unwinder looks for the last
/// entry that starts at or below an address, so the later one is what it would find.
fn without_overlap(mut fdes: Vec<Fde>, warnings: &mut Warnings) -> Vec<Fde> {
    fdes.sort_by_key(|fde| fde.start);
    fdes.dedup_by(|next, kept| {
        if next.start == kept.start {
            warnings.push(Warning::UnwindOverlap(next.start));
            return true;
        }
        if next.start < kept.end {
            warnings.push(Warning::UnwindOverlap(next.start));
            kept.end = next.start;
        }
        false
    });
    fdes
}
