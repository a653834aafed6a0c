//! The ELF file itself: header, segments, sections, and the map from addresses to bytes.
//!
//! An ELF file describes its contents twice. *Segments* (program headers) say what the loader
//! maps where, and are all that is needed to run. *Sections* name the parts for the linker and
//! the debugger, and may be missing. We take the segments as the truth and the sections as help.
//! An object file (`.o`, `.ko`) has only sections, all at address zero: here they are laid out
//! one after another, so that an address means one place.

use std::ops::Range;

use object::elf;

use crate::error::Warnings;
use crate::{Bytes, Error, LinkAddr, Warning, raw};

/// What sort of ELF file it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A program linked to fixed addresses (`ET_EXEC`).
    Executable,
    /// A position-independent program.
    Pie,
    /// A shared library.
    SharedLibrary,
    /// An object file or a kernel module (`ET_REL`).
    Relocatable,
}

/// A part of the file that the loader maps (`PT_LOAD`), or the thread-local template (`PT_TLS`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First address.
    pub start: LinkAddr,
    /// Bytes in memory; those past `file_size` are zero.
    pub mem_size: u64,
    /// Where its bytes start in the file.
    pub file_offset: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Mapped readable.
    pub readable: bool,
    /// Mapped writable.
    pub writable: bool,
    /// Mapped executable.
    pub executable: bool,
}

impl Segment {
    /// First address past the segment.
    pub fn end(&self) -> LinkAddr {
        self.start.saturating_add(self.mem_size)
    }

    /// Whether `addr` lies in the segment's memory.
    pub fn contains(&self, addr: LinkAddr) -> bool {
        addr >= self.start && addr - self.start < self.mem_size
    }
}

/// What a section holds (`sh_type`).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The names are those of the ELF specification.
pub enum SectionKind {
    Null,
    Progbits,
    Symtab,
    Strtab,
    Rela,
    Hash,
    Dynamic,
    Note,
    Nobits,
    Rel,
    Dynsym,
    InitArray,
    FiniArray,
    PreinitArray,
    Group,
    SymtabShndx,
    Relr,
    GnuHash,
    X86Unwind,
    Other(u32),
}

impl SectionKind {
    fn from_raw(value: u32) -> SectionKind {
        match elf::SectionType(value) {
            elf::SHT_NULL => SectionKind::Null,
            elf::SHT_PROGBITS => SectionKind::Progbits,
            elf::SHT_SYMTAB => SectionKind::Symtab,
            elf::SHT_STRTAB => SectionKind::Strtab,
            elf::SHT_RELA => SectionKind::Rela,
            elf::SHT_HASH => SectionKind::Hash,
            elf::SHT_DYNAMIC => SectionKind::Dynamic,
            elf::SHT_NOTE => SectionKind::Note,
            elf::SHT_NOBITS => SectionKind::Nobits,
            elf::SHT_REL => SectionKind::Rel,
            elf::SHT_DYNSYM => SectionKind::Dynsym,
            elf::SHT_INIT_ARRAY => SectionKind::InitArray,
            elf::SHT_FINI_ARRAY => SectionKind::FiniArray,
            elf::SHT_PREINIT_ARRAY => SectionKind::PreinitArray,
            elf::SHT_GROUP => SectionKind::Group,
            elf::SHT_SYMTAB_SHNDX => SectionKind::SymtabShndx,
            elf::SHT_RELR => SectionKind::Relr,
            elf::SHT_GNU_HASH => SectionKind::GnuHash,
            elf::SHT_X86_64_UNWIND => SectionKind::X86Unwind,
            elf::SectionType(other) => SectionKind::Other(other),
        }
    }
}

/// A section of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Name, such as `.text`.
    pub name: String,
    /// First address; for an object file the address this crate laid it out at.
    pub start: LinkAddr,
    /// Size in bytes, in memory as in the file.
    pub size: u64,
    /// Where its bytes start in the file.
    pub file_offset: u64,
    /// What it holds.
    pub kind: SectionKind,
    /// The raw `sh_flags`.
    pub flags: u64,
    /// Index of a related section (`sh_link`).
    pub link: u32,
    /// Extra information (`sh_info`).
    pub info: u32,
    /// Required alignment (`sh_addralign`), as the file states it.
    pub align: u64,
    /// Size of one entry, for tables.
    pub entry_size: u64,
}

impl Section {
    /// First address past the section.
    pub fn end(&self) -> LinkAddr {
        self.start.saturating_add(self.size)
    }

    /// Whether `addr` lies in the section's memory.
    pub fn contains(&self, addr: LinkAddr) -> bool {
        self.is_alloc() && addr >= self.start && addr - self.start < self.size
    }

    /// Whether it occupies memory in a running program.
    pub fn is_alloc(&self) -> bool {
        self.flags & elf::SHF_ALLOC.0 != 0
    }

    /// Whether it holds machine code.
    pub fn is_executable(&self) -> bool {
        self.flags & elf::SHF_EXECINSTR.0 != 0
    }

    /// Whether the program may write to it.
    pub fn is_writable(&self) -> bool {
        self.flags & elf::SHF_WRITE.0 != 0
    }

    /// Whether its bytes in the file are compressed.
    pub fn is_compressed(&self) -> bool {
        self.flags & elf::SHF_COMPRESSED.0 != 0
    }

    /// Whether it is a per-thread template rather than memory at its address.
    pub fn is_tls(&self) -> bool {
        self.flags & elf::SHF_TLS.0 != 0
    }
}

/// The parsed headers, and reads by address. Everything else in the crate is computed from this.
#[derive(Clone, Debug)]
pub(crate) struct Elf {
    pub bytes: Bytes,
    pub kind: Kind,
    pub entry: LinkAddr,
    pub program_headers: (u64, usize),
    /// Sorted by address.
    pub segments: Vec<Segment>,
    /// In file order: other tables refer to sections by index.
    pub sections: Vec<Section>,
    /// Indices of sections in memory, sorted by address.
    by_addr: Vec<(LinkAddr, u32)>,
    pub tls: Option<Segment>,
    pub interpreter: Option<String>,
    pub dynamic: Option<Segment>,
    pub eh_frame_hdr: Option<Segment>,
    pub notes: Vec<Segment>,
    /// The file holds only what was stripped from another one.
    pub debug_only: bool,
    code: Code,
}

/// Where code is.
#[derive(Clone, Debug)]
struct Code {
    /// Sections tell.
    by_sections: bool,
    /// All of it lies in here: most values that are looked up do not.
    bounds: Range<LinkAddr>,
}

impl Code {
    fn of(sections: &[Section], segments: &[Segment]) -> Code {
        let by_sections = sections.iter().any(|s| s.is_alloc() && s.is_executable());
        let sections = sections.iter().filter(|s| s.is_executable()).map(|s| s.start..s.end());
        let segments = segments.iter().filter(|s| s.executable).map(|s| s.start..s.end());
        let all = sections.chain(segments).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        Code { by_sections, bounds: all.unwrap_or(LinkAddr(0)..LinkAddr(0)) }
    }
}

/// A program header count that means: see the first section header.
const PN_XNUM: u64 = 0xffff;
const HEADER_SIZE: usize = 64;
const PROGRAM_HEADER_SIZE: usize = 56;
const SECTION_HEADER_SIZE: usize = 64;

impl Elf {
    pub(crate) fn parse(bytes: Bytes, warnings: &mut Warnings) -> Result<Elf, Error> {
        let data: &[u8] = &bytes;
        check_identity(data)?;
        let short = || Error::Truncated {
            what: "the ELF header".into(),
            end: HEADER_SIZE as u64,
            len: data.len() as u64,
        };
        let header = data.get(..HEADER_SIZE).ok_or_else(short)?;
        // The header is whole: these reads cannot fail.
        let file_type = raw::u16(header, 16).unwrap_or_default();
        let entry = raw::u64(header, 24).unwrap_or_default();
        let mut kind = match elf::FileType(file_type) {
            elf::ET_EXEC => Kind::Executable,
            elf::ET_DYN => Kind::SharedLibrary,
            elf::ET_REL => Kind::Relocatable,
            elf::ET_CORE => return Err(Error::FileType("a core dump".into())),
            other => return Err(Error::FileType(format!("ELF type {}", other.0))),
        };

        let mut sections = match read_sections(data, header, warnings) {
            Ok(sections) => sections,
            Err(error) if kind == Kind::Relocatable => return Err(error),
            Err(error) => {
                warnings.push(Warning::Sections(error.to_string()));
                Vec::new()
            }
        };
        let debug_only = sections
            .iter()
            .any(|s| s.is_executable() && s.size > 0 && s.kind == SectionKind::Nobits);
        if kind == Kind::Relocatable {
            lay_out(&mut sections);
        }

        let table = read_program_headers(data, header)?;
        let mut segments = Vec::new();
        let (mut tls, mut dynamic, mut eh_frame_hdr, mut interp) = (None, None, None, None);
        let mut notes = Vec::new();
        for (index, header) in table.chunks_exact(PROGRAM_HEADER_SIZE).enumerate() {
            let (tag, mut segment) = read_segment(header);
            // A debug file keeps the program headers of its origin without their bytes.
            if debug_only {
                segment.file_size = 0;
            }
            match elf::ProgramType(tag) {
                elf::PT_LOAD => {
                    let end = segment.file_offset.saturating_add(segment.file_size);
                    if segment.file_size > 0 && end > data.len() as u64 {
                        let what = format!("segment {index} at {}", segment.start);
                        return Err(Error::Truncated { what, end, len: data.len() as u64 });
                    }
                    if segment.mem_size > 0 {
                        segments.push(segment);
                    }
                }
                elf::PT_TLS => tls = Some(segment),
                elf::PT_DYNAMIC => dynamic = Some(segment),
                elf::PT_INTERP => interp = Some(segment),
                elf::PT_GNU_EH_FRAME => eh_frame_hdr = Some(segment),
                elf::PT_NOTE => notes.push(segment),
                _ => {}
            }
        }
        segments.sort_by_key(|segment| segment.start);
        for (segment, next) in segments.iter().zip(segments.iter().skip(1)) {
            if next.start < segment.end() {
                warnings.push(Warning::SegmentsOverlap(next.start));
            }
        }

        let interpreter = interp.and_then(|segment| {
            let bytes = raw::slice(data, segment.file_offset, segment.file_size)?;
            let text = bytes.split(|&byte| byte == 0).next()?;
            std::str::from_utf8(text).ok().filter(|text| !text.is_empty()).map(str::to_owned)
        });
        let mut by_addr: Vec<(LinkAddr, u32)> = (0u32..)
            .zip(&sections)
            .filter(|(_, section)| {
                let phantom = section.is_tls() && section.kind == SectionKind::Nobits;
                section.is_alloc() && section.size > 0 && !phantom
            })
            .map(|(index, section)| (section.start, index))
            .collect();
        by_addr.sort_by_key(|(start, _)| *start);
        let code = Code::of(&sections, &segments);
        if kind == Kind::Relocatable {
            segments.clear();
        } else if kind == Kind::SharedLibrary
            && is_program(data, dynamic.as_ref(), interpreter.is_some())
        {
            kind = Kind::Pie;
        }

        let program_headers =
            (raw::u64(header, 32).unwrap_or_default(), table.len() / PROGRAM_HEADER_SIZE);
        Ok(Elf {
            bytes,
            kind,
            entry: LinkAddr(entry),
            program_headers,
            segments,
            sections,
            by_addr,
            tls,
            interpreter,
            dynamic,
            eh_frame_hdr,
            notes,
            debug_only,
            code,
        })
    }

    /// The first section of that name.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The bytes a section has in the file.
    pub(crate) fn section_data(&self, section: &Section) -> Option<&[u8]> {
        if matches!(section.kind, SectionKind::Nobits | SectionKind::Null) {
            return None;
        }
        raw::slice(&self.bytes, section.file_offset, section.size)
    }

    /// The section in memory that holds `addr`.
    pub(crate) fn section_at(&self, addr: LinkAddr) -> Option<&Section> {
        let after = self.by_addr.partition_point(|(start, _)| *start <= addr);
        let (_, index) = self.by_addr.get(after.checked_sub(1)?)?;
        self.sections.get(*index as usize).filter(|section| section.contains(addr))
    }

    /// The loadable segment that holds `addr`.
    pub(crate) fn segment_at(&self, addr: LinkAddr) -> Option<&Segment> {
        let after = self.segments.partition_point(|segment| segment.start <= addr);
        self.segments.get(after.checked_sub(1)?).filter(|segment| segment.contains(addr))
    }

    /// File-backed bytes from `addr` to the end of what is contiguous in the file.
    pub(crate) fn read_from(&self, addr: LinkAddr) -> Option<&[u8]> {
        let (start, data) = if self.kind == Kind::Relocatable {
            let section = self.section_at(addr)?;
            (section.start, self.section_data(section)?)
        } else {
            let segment = self.segment_at(addr)?;
            let size = segment.file_size.min(segment.mem_size);
            (segment.start, raw::slice(&self.bytes, segment.file_offset, size)?)
        };
        data.get(usize::try_from(addr - start).ok()?..)
    }

    pub(crate) fn read(&self, addr: LinkAddr, len: usize) -> Option<&[u8]> {
        self.read_from(addr)?.get(..len)
    }

    pub(crate) fn read_u64(&self, addr: LinkAddr) -> Option<u64> {
        raw::u64(self.read(addr, 8)?, 0)
    }

    pub(crate) fn is_mapped(&self, addr: LinkAddr) -> bool {
        match self.kind {
            Kind::Relocatable => self.section_at(addr).is_some(),
            _ => self.segment_at(addr).is_some(),
        }
    }

    #[inline]
    pub(crate) fn is_code(&self, addr: LinkAddr) -> bool {
        // Of most that is asked about this is the answer.
        self.code.bounds.contains(&addr) && self.is_code_in_bounds(addr)
    }

    fn is_code_in_bounds(&self, addr: LinkAddr) -> bool {
        // An executable segment may also hold read-only data, which only sections tell apart.
        if self.code.by_sections || self.kind == Kind::Relocatable {
            self.section_at(addr).is_some_and(Section::is_executable)
        } else {
            self.segment_at(addr).is_some_and(|segment| segment.executable)
        }
    }

    pub(crate) fn is_writable(&self, addr: LinkAddr) -> bool {
        match self.kind {
            Kind::Relocatable => self.section_at(addr).is_some_and(Section::is_writable),
            _ => self.segment_at(addr).is_some_and(|segment| segment.writable),
        }
    }

    /// Where the run of code that holds `addr` ends: its section, or its segment without sections.
    pub(crate) fn code_end(&self, addr: LinkAddr) -> Option<LinkAddr> {
        if !self.is_code(addr) {
            return None;
        }
        match self.section_at(addr) {
            Some(section) => Some(section.end()),
            None => self.segment_at(addr).map(Segment::end),
        }
    }
}

fn check_identity(data: &[u8]) -> Result<(), Error> {
    if data.is_empty() {
        return Err(Error::NotElf("the file is empty".into()));
    }
    if !data.starts_with(&elf::ELFMAG) {
        let what = match data {
            [b'#', b'!', ..] => "it is a script",
            [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => "it is an archive (.a)",
            [b'M', b'Z', ..] => "it is a Windows program",
            [0x7f, ..] if elf::ELFMAG.starts_with(data) => "it ends within the first four bytes",
            _ => "it does not start with the ELF magic",
        };
        return Err(Error::NotElf(what.into()));
    }
    let truncated =
        || Error::Truncated { what: "the ELF header".into(), end: 64, len: data.len() as u64 };
    let (&class, &order) = data.get(4).zip(data.get(5)).ok_or_else(truncated)?;
    let big = order == elf::ELFDATA2MSB.0;
    let code = data.get(18..).and_then(<[u8]>::first_chunk).copied().ok_or_else(truncated)?;
    let machine = if big { u16::from_be_bytes(code) } else { u16::from_le_bytes(code) };
    let name = machine_name(machine);
    if class == elf::ELFCLASS32.0 {
        return Err(Error::Class32 { machine: name });
    }
    if class != elf::ELFCLASS64.0 {
        return Err(Error::Malformed { what: format!("ELF class {class}"), offset: 4 });
    }
    if big {
        return Err(Error::BigEndian { machine: name });
    }
    if order != elf::ELFDATA2LSB.0 {
        return Err(Error::Malformed { what: format!("ELF byte order {order}"), offset: 5 });
    }
    if machine != elf::EM_X86_64.0 {
        return Err(Error::Machine { machine: name });
    }
    Ok(())
}

fn machine_name(machine: u16) -> String {
    let name = match elf::Machine(machine) {
        elf::EM_386 => "i386",
        elf::EM_X86_64 => "x86-64",
        elf::EM_ARM => "ARM",
        elf::EM_AARCH64 => "AArch64",
        elf::EM_MIPS => "MIPS",
        elf::EM_PPC => "PowerPC",
        elf::EM_PPC64 => "PowerPC64",
        elf::EM_RISCV => "RISC-V",
        elf::EM_S390 => "S/390",
        elf::EM_SPARC | elf::EM_SPARCV9 => "SPARC",
        elf::EM_LOONGARCH => "LoongArch",
        elf::EM_BPF => "BPF",
        elf::EM_68K => "Motorola 68000",
        elf::EM_IA_64 => "Itanium",
        elf::EM_ALPHA => "Alpha",
        other => return format!("architecture {}", other.0),
    };
    name.into()
}

/// The program header table, bounded by the file.
fn read_program_headers<'a>(data: &'a [u8], header: &[u8]) -> Result<&'a [u8], Error> {
    let offset = raw::u64(header, 32).unwrap_or_default();
    let mut count = u64::from(raw::u16(header, 56).unwrap_or_default());
    if offset == 0 || count == 0 {
        return Ok(&[]);
    }
    let entry_size = raw::u16(header, 54).unwrap_or_default();
    if usize::from(entry_size) != PROGRAM_HEADER_SIZE {
        let what = format!("program header size {entry_size}");
        return Err(Error::Malformed { what, offset: 54 });
    }
    // A count that does not fit its field is in the first section header instead.
    if count == PN_XNUM {
        let shoff = usize::try_from(raw::u64(header, 40).unwrap_or_default()).unwrap_or(usize::MAX);
        count = shoff.checked_add(44).and_then(|at| raw::u32(data, at)).map_or(count, u64::from);
    }
    let size = count * PROGRAM_HEADER_SIZE as u64;
    raw::slice(data, offset, size).ok_or_else(|| Error::Truncated {
        what: "the program header table".into(),
        end: offset.saturating_add(size),
        len: data.len() as u64,
    })
}

fn read_segment(header: &[u8]) -> (u32, Segment) {
    let word = |at| raw::u64(header, at).unwrap_or_default();
    let flags = raw::u32(header, 4).unwrap_or_default();
    let segment = Segment {
        start: LinkAddr(word(16)),
        mem_size: word(40),
        file_offset: word(8),
        file_size: word(32),
        readable: flags & elf::PF_R.0 != 0,
        writable: flags & elf::PF_W.0 != 0,
        executable: flags & elf::PF_X.0 != 0,
    };
    (raw::u32(header, 0).unwrap_or_default(), segment)
}

fn read_sections(
    data: &[u8],
    header: &[u8],
    warnings: &mut Warnings,
) -> Result<Vec<Section>, Error> {
    let offset = raw::u64(header, 40).unwrap_or_default();
    if offset == 0 {
        return Ok(Vec::new());
    }
    let entry_size = raw::u16(header, 58).unwrap_or_default();
    let mut count = u64::from(raw::u16(header, 60).unwrap_or_default());
    let mut names_index = u32::from(raw::u16(header, 62).unwrap_or_default());
    if usize::from(entry_size) != SECTION_HEADER_SIZE {
        if count == 0 {
            return Ok(Vec::new());
        }
        let what = format!("section header size {entry_size}");
        return Err(Error::Malformed { what, offset: 58 });
    }
    let len = data.len() as u64;
    let truncated = |size: u64| Error::Truncated {
        what: "the section header table".into(),
        end: offset.saturating_add(size),
        len,
    };
    // Counts that do not fit their fields are in the first section header instead.
    let first = raw::slice(data, offset, SECTION_HEADER_SIZE as u64);
    if count == 0 {
        let first = first.ok_or_else(|| truncated(SECTION_HEADER_SIZE as u64))?;
        count = raw::u64(first, 32).unwrap_or_default();
    }
    if names_index == u32::from(elf::SHN_XINDEX.0) {
        names_index = first.and_then(|first| raw::u32(first, 40)).unwrap_or_default();
    }
    let size = count.saturating_mul(SECTION_HEADER_SIZE as u64);
    let table = raw::slice(data, offset, size).ok_or_else(|| truncated(size))?;

    let headers = || table.chunks_exact(SECTION_HEADER_SIZE);
    let names = headers()
        .nth(names_index as usize)
        .and_then(|h| raw::slice(data, raw::u64(h, 24)?, raw::u64(h, 32)?))
        .unwrap_or_default();
    let mut names = raw::Names::new(names);
    let mut sections = Vec::with_capacity(headers().len());
    for header in headers() {
        let word = |at| raw::u64(header, at).unwrap_or_default();
        let half = |at| raw::u32(header, at).unwrap_or_default();
        let mut section = Section {
            name: names.get(half(0) as usize).unwrap_or_default(),
            start: LinkAddr(word(16)),
            size: word(32),
            file_offset: word(24),
            kind: SectionKind::from_raw(half(4)),
            flags: word(8),
            link: half(40),
            info: half(44),
            align: word(48),
            entry_size: word(56),
        };
        let end = section.file_offset.saturating_add(section.size);
        if !matches!(section.kind, SectionKind::Nobits | SectionKind::Null) && end > len {
            let name = section.name.clone();
            warnings.push(Warning::Section { name, start: section.file_offset, end });
            section.kind = SectionKind::Null;
        }
        sections.push(section);
    }
    Ok(sections)
}

/// Gives the sections of an object file addresses, one after another. Section zero's place stays
/// free, so that no symbol is at address zero.
fn lay_out(sections: &mut [Section]) {
    let mut next: u64 = 0x1000;
    for section in sections.iter_mut().filter(|section| section.is_alloc()) {
        let align = section.align.clamp(1, 1 << 16).next_power_of_two();
        let Some(start) = next.checked_next_multiple_of(align) else { return };
        let Some(end) = start.checked_add(section.size) else { continue };
        section.start = LinkAddr(start);
        next = end;
    }
}

/// Whether an `ET_DYN` file is a program rather than a library. Linkers mark programs with
/// `DF_1_PIE`, older ones leave only `DT_DEBUG`, which no library has. The interpreter alone
/// proves nothing: libc.so.6 has one too.
fn is_program(data: &[u8], dynamic: Option<&Segment>, has_interpreter: bool) -> bool {
    let Some(dynamic) = dynamic else { return has_interpreter };
    let Some(table) = raw::slice(data, dynamic.file_offset, dynamic.file_size) else {
        return false;
    };
    let mut soname = false;
    for entry in table.chunks_exact(16) {
        let tag = raw::u64(entry, 0).unwrap_or_default() as i64;
        let value = raw::u64(entry, 8).unwrap_or_default();
        match elf::DynamicTag(tag) {
            elf::DT_NULL => break,
            elf::DT_DEBUG => return true,
            elf::DT_FLAGS_1 if value & elf::DF_1_PIE.0 != 0 => return true,
            elf::DT_SONAME => soname = true,
            _ => {}
        }
    }
    has_interpreter && !soname
}
