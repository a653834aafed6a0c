//! The dynamic section and the dynamic relocations.
//!
//! Dynamic relocations are the list of places in memory that the dynamic linker fills in, so they
//! tell where the program keeps addresses: in its GOT, in tables of function pointers, in
//! vtables. `DT_RELR` packs the most common kind, "add the load address to the word there", into
//! a bitmap; its addend is the word itself.

use object::elf;

use crate::elf::{Elf, Kind, SectionKind};
use crate::error::Warnings;
use crate::{LinkAddr, Warning, raw};

/// What the dynamic linker does to a place.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum RelocKind {
    /// Load address plus addend.
    Relative,
    /// The result of calling the resolver at load address plus addend.
    Irelative,
    /// Address of a symbol, in a GOT slot.
    GlobDat,
    /// Address of a function, in a GOT slot of the PLT; perhaps filled on first use.
    JumpSlot,
    /// Address of a symbol plus addend.
    Abs64,
    /// Copy of the symbol's bytes from a library.
    Copy,
    /// Module of a thread-local variable.
    DtpMod64,
    /// Offset of a thread-local variable in its module.
    DtpOff64,
    /// Offset of a thread-local variable from the thread pointer.
    TpOff64,
    /// Any other, by its number.
    Other(u32),
}

impl RelocKind {
    fn from_raw(value: u32) -> RelocKind {
        match elf::RelocationType(value) {
            elf::R_X86_64_RELATIVE => RelocKind::Relative,
            elf::R_X86_64_IRELATIVE => RelocKind::Irelative,
            elf::R_X86_64_GLOB_DAT => RelocKind::GlobDat,
            elf::R_X86_64_JUMP_SLOT => RelocKind::JumpSlot,
            elf::R_X86_64_64 => RelocKind::Abs64,
            elf::R_X86_64_COPY => RelocKind::Copy,
            elf::R_X86_64_DTPMOD64 => RelocKind::DtpMod64,
            elf::R_X86_64_DTPOFF64 => RelocKind::DtpOff64,
            elf::R_X86_64_TPOFF64 => RelocKind::TpOff64,
            elf::RelocationType(other) => RelocKind::Other(other),
        }
    }
}

/// One dynamic relocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reloc {
    /// The place that is filled in.
    pub addr: LinkAddr,
    /// How.
    pub kind: RelocKind,
    /// Name of the symbol, if it refers to one.
    pub symbol: Option<String>,
    /// Value of the symbol in this file; zero for one that is defined elsewhere.
    pub symbol_value: u64,
    /// Constant part. For a packed relative relocation, the word in place.
    pub addend: i64,
}

impl Reloc {
    /// The address that it fills in where the image is loaded at its link address, if it does that;
    /// symbols that are defined elsewhere are zero.
    pub fn address(&self) -> Option<LinkAddr> {
        match self.kind {
            RelocKind::Relative => Some(LinkAddr(self.addend as u64)),
            RelocKind::Abs64 => Some(LinkAddr(self.symbol_value).offset(self.addend)),
            _ => None,
        }
    }
}

/// What the dynamic section says, with tables still unread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dynamic {
    pub soname: Option<String>,
    pub needed: Vec<String>,
    pub runpath: Option<String>,
    pub init: Option<LinkAddr>,
    pub fini: Option<LinkAddr>,
    /// Address and size in bytes of `DT_PREINIT_ARRAY`, `DT_INIT_ARRAY` and `DT_FINI_ARRAY`.
    pub arrays: [(LinkAddr, u64); 3],
    pub symtab: Option<LinkAddr>,
    pub strtab: (LinkAddr, u64),
    pub hash: Option<LinkAddr>,
    pub gnu_hash: Option<LinkAddr>,
    pub pltgot: Option<LinkAddr>,
    pub rela: (LinkAddr, u64),
    pub jmprel: (LinkAddr, u64),
    pub relr: (LinkAddr, u64),
}

impl Dynamic {
    /// Reads `PT_DYNAMIC`.
    pub(crate) fn parse(elf: &Elf, warnings: &mut Warnings) -> Option<Dynamic> {
        let segment = elf.dynamic.as_ref()?;
        if elf.debug_only || segment.file_size == 0 {
            return None;
        }
        let Some(table) = raw::slice(&elf.bytes, segment.file_offset, segment.file_size) else {
            let why = format!("its bytes at {:#x} lie outside of the file", segment.file_offset);
            warnings.push(Warning::Dynamic(why));
            return None;
        };
        let mut dynamic = Dynamic::default();
        let mut needed = Vec::new();
        let (mut soname, mut runpath) = (None, None);
        for entry in table.chunks_exact(16) {
            let tag = raw::u64(entry, 0).unwrap_or_default() as i64;
            let value = raw::u64(entry, 8).unwrap_or_default();
            let addr = LinkAddr(value);
            match elf::DynamicTag(tag) {
                elf::DT_NULL => break,
                elf::DT_NEEDED => needed.push(value),
                elf::DT_SONAME => soname = Some(value),
                elf::DT_RUNPATH => runpath = Some(value),
                elf::DT_RPATH => runpath = runpath.or(Some(value)),
                elf::DT_INIT => dynamic.init = Some(addr),
                elf::DT_FINI => dynamic.fini = Some(addr),
                elf::DT_PREINIT_ARRAY => dynamic.arrays[0].0 = addr,
                elf::DT_PREINIT_ARRAYSZ => dynamic.arrays[0].1 = value,
                elf::DT_INIT_ARRAY => dynamic.arrays[1].0 = addr,
                elf::DT_INIT_ARRAYSZ => dynamic.arrays[1].1 = value,
                elf::DT_FINI_ARRAY => dynamic.arrays[2].0 = addr,
                elf::DT_FINI_ARRAYSZ => dynamic.arrays[2].1 = value,
                elf::DT_SYMTAB => dynamic.symtab = Some(addr),
                elf::DT_STRTAB => dynamic.strtab.0 = addr,
                elf::DT_STRSZ => dynamic.strtab.1 = value,
                elf::DT_HASH => dynamic.hash = Some(addr),
                elf::DT_GNU_HASH => dynamic.gnu_hash = Some(addr),
                elf::DT_PLTGOT => dynamic.pltgot = Some(addr),
                elf::DT_RELA => dynamic.rela.0 = addr,
                elf::DT_RELASZ => dynamic.rela.1 = value,
                elf::DT_JMPREL => dynamic.jmprel.0 = addr,
                elf::DT_PLTRELSZ => dynamic.jmprel.1 = value,
                elf::DT_RELR => dynamic.relr.0 = addr,
                elf::DT_RELRSZ => dynamic.relr.1 = value,
                _ => {}
            }
        }
        let mut names = raw::Names::new(dynamic.strings(elf));
        let mut name = |offset: u64| names.get(usize::try_from(offset).ok()?);
        dynamic.needed = needed.into_iter().filter_map(&mut name).collect();
        dynamic.soname = soname.and_then(&mut name);
        dynamic.runpath = runpath.and_then(&mut name);
        Some(dynamic)
    }

    /// The dynamic string table, as much of it as there is.
    pub(crate) fn strings<'a>(&self, elf: &'a Elf) -> &'a [u8] {
        table(elf, self.strtab).unwrap_or_default()
    }

    /// Number of entries in the dynamic symbol table. Nothing states it: without sections it
    /// follows from the hash tables that look symbols up.
    pub(crate) fn symbol_count(&self, elf: &Elf) -> usize {
        if let Some(hash) = self.hash
            && let Some(count) = elf.read(hash + 4, 4).and_then(|word| raw::u32(word, 0))
        {
            return count as usize;
        }
        self.gnu_hash.and_then(|hash| gnu_hash_symbol_count(elf.read_from(hash)?)).unwrap_or(0)
    }
}

/// The highest symbol that a bucket starts at, then the end of its chain.
fn gnu_hash_symbol_count(table: &[u8]) -> Option<usize> {
    let buckets = raw::u32(table, 0)? as usize;
    let first = raw::u32(table, 4)? as usize;
    let bloom_words = raw::u32(table, 8)? as usize;
    let buckets_at = bloom_words.checked_mul(8)?.checked_add(16)?;
    let chains_at = buckets_at.checked_add(buckets.checked_mul(4)?)?;
    let heads = table.get(buckets_at..chains_at)?;
    let last = heads.chunks_exact(4).filter_map(|head| raw::u32(head, 0)).max()? as usize;
    if last < first {
        return Some(first);
    }
    let chain = table.get(chains_at.checked_add((last - first).checked_mul(4)?)?..)?;
    let length = chain.chunks_exact(4).position(|h| raw::u32(h, 0).is_some_and(|h| h & 1 == 1))?;
    Some(last + length + 1)
}

/// A table in memory, cut to what the file really has.
fn table(elf: &Elf, (addr, size): (LinkAddr, u64)) -> Option<&[u8]> {
    let rest = elf.read_from(addr)?;
    Some(raw::first(rest, usize::try_from(size).unwrap_or(usize::MAX)))
}

/// All dynamic relocations, sorted by address.
pub(crate) fn relocs(elf: &Elf, dynamic: Option<&Dynamic>, warnings: &mut Warnings) -> Vec<Reloc> {
    if elf.kind == Kind::Relocatable || elf.debug_only {
        return Vec::new();
    }
    let mut relocs = Vec::new();
    match dynamic {
        Some(dynamic) => {
            let symtab = dynamic.symtab.and_then(|at| elf.read_from(at)).unwrap_or_default();
            let mut names = raw::Names::new(dynamic.strings(elf));
            // Some linkers count the PLT's relocations among the others.
            let nested = dynamic.jmprel.0 >= dynamic.rela.0
                && dynamic.jmprel.0 < dynamic.rela.0.saturating_add(dynamic.rela.1);
            let plt = if nested { (LinkAddr(0), 0) } else { dynamic.jmprel };
            for what in [dynamic.rela, plt] {
                if what.1 == 0 {
                    continue;
                }
                match table(elf, what) {
                    Some(table) => read_rela(table, symtab, &mut names, &mut relocs),
                    None => warnings
                        .push(Warning::Dynamic(format!("no relocation table at {}", what.0))),
                }
            }
            if dynamic.relr.1 > 0 {
                match table(elf, dynamic.relr) {
                    Some(table) => read_relr(elf, table, &mut relocs),
                    None => warnings
                        .push(Warning::Dynamic(format!("no relocations at {}", dynamic.relr.0))),
                }
            }
        }
        // A static program still has its indirect functions' relocations, which its start-up
        // code applies; only the section table or symbols tell where they are.
        None => {
            for section in &elf.sections {
                if section.kind == SectionKind::Rela
                    && section.is_alloc()
                    && let Some(table) = elf.section_data(section)
                {
                    read_rela(table, &[], &mut raw::Names::new(&[]), &mut relocs);
                }
            }
        }
    }
    relocs.sort_by_key(|reloc| reloc.addr);
    relocs
}

fn read_rela(table: &[u8], symtab: &[u8], names: &mut raw::Names<'_>, relocs: &mut Vec<Reloc>) {
    relocs.reserve(table.len() / 24);
    for entry in table.chunks_exact(24) {
        let word = |at| raw::u64(entry, at).unwrap_or_default();
        let info = word(8);
        let index = (info >> 32) as usize;
        let mut reloc = Reloc {
            addr: LinkAddr(word(0)),
            kind: RelocKind::from_raw(info as u32),
            symbol: None,
            symbol_value: 0,
            addend: word(16) as i64,
        };
        if index != 0
            && let Some(symbol) = index.checked_mul(24).and_then(|at| symtab.get(at..at + 24))
        {
            reloc.symbol = names.get(raw::u32(symbol, 0).unwrap_or_default() as usize);
            if raw::u16(symbol, 6) != Some(0) {
                reloc.symbol_value = raw::u64(symbol, 8).unwrap_or_default();
            }
        }
        relocs.push(reloc);
    }
}

/// Unpacks `DT_RELR`: an even word is a place, an odd word a bitmap over the 63 words after it.
fn read_relr(elf: &Elf, table: &[u8], relocs: &mut Vec<Reloc>) {
    let mut push = |addr: LinkAddr| {
        // A place outside of the file's bytes cannot hold an addend.
        if let Some(word) = elf.read_u64(addr) {
            relocs.push(Reloc {
                addr,
                kind: RelocKind::Relative,
                symbol: None,
                symbol_value: 0,
                addend: word as i64,
            });
        }
    };
    let mut next = LinkAddr(0);
    for entry in table.chunks_exact(8) {
        let entry = raw::u64(entry, 0).unwrap_or_default();
        if entry & 1 == 0 {
            push(LinkAddr(entry));
            next = LinkAddr(entry) + 8;
        } else {
            for bit in 1..64 {
                if entry >> bit & 1 == 1 {
                    push(next + (bit - 1) * 8);
                }
            }
            next += 63 * 8;
        }
    }
}
