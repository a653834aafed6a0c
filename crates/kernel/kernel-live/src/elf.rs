//! A relocatable ELF file, as the kernel's module loader takes it: sections, symbols, relocations.
//!
//! Written from nothing, so symbols need no renumbering but for one rule: local ones come first.

/// Types of sections.
pub const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_RELA: u32 = 4;
/// A section without bytes in the file.
pub const SHT_NOBITS: u32 = 8;

/// Flags of sections.
pub const SHF_WRITE: u64 = 1;
/// It is loaded.
pub const SHF_ALLOC: u64 = 2;
/// It is text.
pub const SHF_EXECINSTR: u64 = 4;
const SHF_INFO_LINK: u64 = 0x40;

/// Types of relocations: eight bytes of an address.
pub const R_X86_64_64: u32 = 1;
/// Four bytes of a distance.
pub const R_X86_64_PC32: u32 = 2;
/// Four bytes of an address, sign-extended.
pub const R_X86_64_32S: u32 = 11;
/// Eight bytes of a distance.
pub const R_X86_64_PC64: u32 = 24;

/// Types of symbols.
pub const STT_NOTYPE: u8 = 0;
/// Data.
pub const STT_OBJECT: u8 = 1;
/// A function.
pub const STT_FUNC: u8 = 2;
const STT_SECTION: u8 = 3;

const SHN_ABS: u16 = 0xfff1;
const EM_X86_64: u16 = 62;
const HEADER: usize = 64;
const SYMBOL: u64 = 24;
const RELOCATION: u64 = 24;

/// A section of an [`Object`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SectionId(usize);

/// A symbol of an [`Object`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SymbolId(usize);

/// The symbol without a name, whose value is 0: what is relative to it is an address.
pub const NOTHING: SymbolId = SymbolId(usize::MAX);

/// A relocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Where, as an offset in its section.
    pub at: u64,
    /// Its type.
    pub kind: u32,
    /// What it refers to.
    pub symbol: SymbolId,
    /// What is added.
    pub addend: i64,
}

/// A section.
#[derive(Clone, Debug, Default)]
pub struct Section {
    name: String,
    kind: u32,
    flags: u64,
    align: u64,
    /// Its bytes.
    pub data: Vec<u8>,
    /// Bytes of a section that has none in the file.
    empty: u64,
    /// Its relocations.
    pub relocations: Vec<Relocation>,
}

impl Section {
    /// How long it is, in bytes.
    pub fn bytes(&self) -> u64 {
        self.empty + self.data.len() as u64
    }

    /// Adds zeros up to a multiple of a power of two, and gives the offset of what comes next.
    pub fn pad(&mut self, align: usize, with: u8) -> u64 {
        let end = self.data.len().next_multiple_of(align.max(1));
        self.data.resize(end, with);
        end as u64
    }
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Absolute(u64),
    Inside(SectionId, u64),
}

#[derive(Clone, Debug)]
struct Symbol {
    name: String,
    place: Place,
    size: u64,
    kind: u8,
    is_global: bool,
}

/// The file that is being put together.
#[derive(Clone, Debug, Default)]
pub struct Object {
    sections: Vec<Section>,
    symbols: Vec<Symbol>,
    /// Of each section, the symbol that stands for it.
    starts: Vec<SymbolId>,
}

impl Object {
    /// Adds an empty section.
    pub fn section(&mut self, name: &str, kind: u32, flags: u64, align: u64) -> SectionId {
        let id = SectionId(self.sections.len());
        self.sections.push(Section {
            name: name.to_string(),
            kind,
            flags,
            align,
            ..Section::default()
        });
        let start = self.symbol("", id, 0, 0, STT_SECTION, false);
        self.starts.push(start);
        id
    }

    /// Adds a section of zeros that has no bytes in the file.
    pub fn empty_section(&mut self, name: &str, align: u64, bytes: u64) -> SectionId {
        let id = self.section(name, SHT_NOBITS, SHF_ALLOC | SHF_WRITE, align);
        self.sections[id.0].empty = bytes;
        id
    }

    /// A section.
    pub fn get(&mut self, id: SectionId) -> &mut Section {
        &mut self.sections[id.0]
    }

    /// The symbol at a section's begin.
    pub fn start(&self, id: SectionId) -> SymbolId {
        self.starts[id.0]
    }

    /// Adds a symbol in a section.
    pub fn symbol(
        &mut self,
        name: &str,
        section: SectionId,
        offset: u64,
        size: u64,
        kind: u8,
        is_global: bool,
    ) -> SymbolId {
        self.add(name, Place::Inside(section, offset), size, kind, is_global)
    }

    /// Adds a symbol whose value is known.
    pub fn absolute(&mut self, name: &str, value: u64) -> SymbolId {
        self.add(name, Place::Absolute(value), 0, STT_NOTYPE, true)
    }

    fn add(&mut self, name: &str, place: Place, size: u64, kind: u8, is_global: bool) -> SymbolId {
        self.symbols.push(Symbol { name: name.to_string(), place, size, kind, is_global });
        SymbolId(self.symbols.len() - 1)
    }

    /// The file's bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut names = Names::default();
        let (symbols, numbers, first_global) = self.symbol_table(&mut names);
        let mut file = vec![0; HEADER];
        let mut headers = vec![Header::default()];
        let mut section_names = Names::default();
        for section in &self.sections {
            let offset = align(&mut file, section.align);
            file.extend_from_slice(&section.data);
            headers.push(Header {
                name: section_names.add(&section.name),
                kind: section.kind,
                flags: section.flags,
                offset,
                size: section.bytes(),
                align: section.align,
                ..Header::default()
            });
        }
        let symbol_table = headers.len() as u32
            + self.sections.iter().filter(|section| !section.relocations.is_empty()).count() as u32;
        for (number, section) in self.sections.iter().enumerate() {
            if section.relocations.is_empty() {
                continue;
            }
            let offset = align(&mut file, 8);
            for relocation in &section.relocations {
                let symbol = match relocation.symbol {
                    NOTHING => 0,
                    SymbolId(index) => u64::from(numbers[index]),
                };
                file.extend_from_slice(&relocation.at.to_le_bytes());
                file.extend_from_slice(&(symbol << 32 | u64::from(relocation.kind)).to_le_bytes());
                file.extend_from_slice(&relocation.addend.to_le_bytes());
            }
            headers.push(Header {
                name: section_names.add(&format!(".rela{}", section.name)),
                kind: SHT_RELA,
                flags: SHF_INFO_LINK,
                offset,
                size: RELOCATION * section.relocations.len() as u64,
                link: symbol_table,
                info: number as u32 + 1,
                align: 8,
                entry: RELOCATION,
            });
        }
        let offset = align(&mut file, 8);
        file.extend_from_slice(&symbols);
        headers.push(Header {
            name: section_names.add(".symtab"),
            kind: SHT_SYMTAB,
            offset,
            size: symbols.len() as u64,
            link: symbol_table + 1,
            info: first_global,
            align: 8,
            entry: SYMBOL,
            ..Header::default()
        });
        headers.push(names.write(&mut file, section_names.add(".strtab")));
        let own_name = section_names.add(".shstrtab");
        headers.push(section_names.write(&mut file, own_name));
        finish(file, &headers)
    }

    /// The table of symbols, the number that each got, and how many are local.
    fn symbol_table(&self, names: &mut Names) -> (Vec<u8>, Vec<u32>, u32) {
        let mut table = vec![0; SYMBOL as usize];
        let mut numbers = vec![0; self.symbols.len()];
        let mut number = 1;
        let mut first_global = 1;
        for wanted in [false, true] {
            for (index, symbol) in self.symbols.iter().enumerate() {
                if symbol.is_global != wanted {
                    continue;
                }
                let (section, value) = match symbol.place {
                    Place::Absolute(value) => (SHN_ABS, value),
                    Place::Inside(section, offset) => (section.0 as u16 + 1, offset),
                };
                table.extend_from_slice(&names.add(&symbol.name).to_le_bytes());
                table.extend_from_slice(&[u8::from(symbol.is_global) << 4 | symbol.kind, 0]);
                table.extend_from_slice(&section.to_le_bytes());
                table.extend_from_slice(&value.to_le_bytes());
                table.extend_from_slice(&symbol.size.to_le_bytes());
                numbers[index] = number;
                number += 1;
            }
            if !wanted {
                first_global = number;
            }
        }
        (table, numbers, first_global)
    }
}

/// A table of names. It begins with the empty one.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
}

impl Names {
    fn add(&mut self, name: &str) -> u32 {
        if self.bytes.is_empty() {
            self.bytes.push(0);
        }
        if name.is_empty() {
            return 0;
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        at
    }

    fn write(&self, file: &mut Vec<u8>, name: u32) -> Header {
        let offset = file.len() as u64;
        file.extend_from_slice(&self.bytes);
        let size = self.bytes.len() as u64;
        Header { name, kind: SHT_STRTAB, offset, size, align: 1, ..Header::default() }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Header {
    name: u32,
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
}

fn align(file: &mut Vec<u8>, to: u64) -> u64 {
    file.resize(file.len().next_multiple_of(to.max(1) as usize), 0);
    file.len() as u64
}

/// Adds the headers of sections, and fills in the file's own.
fn finish(mut file: Vec<u8>, headers: &[Header]) -> Vec<u8> {
    let table = align(&mut file, 8);
    for header in headers {
        file.extend_from_slice(&header.name.to_le_bytes());
        file.extend_from_slice(&header.kind.to_le_bytes());
        for value in [header.flags, 0, header.offset, header.size] {
            file.extend_from_slice(&value.to_le_bytes());
        }
        file.extend_from_slice(&header.link.to_le_bytes());
        file.extend_from_slice(&header.info.to_le_bytes());
        file.extend_from_slice(&header.align.to_le_bytes());
        file.extend_from_slice(&header.entry.to_le_bytes());
    }
    let mut head = Vec::with_capacity(HEADER);
    head.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    head.extend_from_slice(&1u16.to_le_bytes());
    head.extend_from_slice(&EM_X86_64.to_le_bytes());
    head.extend_from_slice(&1u32.to_le_bytes());
    for value in [0, 0, table] {
        head.extend_from_slice(&value.to_le_bytes());
    }
    head.extend_from_slice(&0u32.to_le_bytes());
    let sections = headers.len() as u16;
    for value in [HEADER as u16, 0, 0, HEADER as u16, sections, sections - 1] {
        head.extend_from_slice(&value.to_le_bytes());
    }
    file[..HEADER].copy_from_slice(&head);
    file
}
