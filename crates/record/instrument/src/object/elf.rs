//! Object files as they are written: sections, symbols and relocations that can be added to.
//!
//! Sections keep their numbers; new ones come last. New local symbols have to come before the
//! first global one, so symbols get their final numbers only when the file is written, and
//! everything that names one holds a [`SymbolId`] until then.

use std::collections::HashMap;

use crate::elf::{SHDR, get, set};

pub const SHT_NULL: u32 = 0;
pub const SHT_PROGBITS: u32 = 1;
pub const SHT_SYMTAB: u32 = 2;
pub const SHT_RELA: u32 = 4;
pub const SHT_NOTE: u32 = 7;
pub const SHT_NOBITS: u32 = 8;
pub const SHT_REL: u32 = 9;
pub const SHT_GROUP: u32 = 17;
pub const SHT_SYMTAB_SHNDX: u32 = 18;
const SHT_LLVM_ADDRSIG: u32 = 0x6fff_4c03;

pub const SHF_WRITE: u64 = 1;
pub const SHF_ALLOC: u64 = 2;
pub const SHF_EXECINSTR: u64 = 4;
pub const SHF_INFO_LINK: u64 = 0x40;
pub const SHF_LINK_ORDER: u64 = 0x80;
pub const SHF_GROUP: u64 = 0x200;
pub const SHF_COMPRESSED: u64 = 0x800;

pub const STB_LOCAL: u8 = 0;
pub const STB_GLOBAL: u8 = 1;
pub const STT_OBJECT: u8 = 1;
pub const STT_FUNC: u8 = 2;
pub const STT_SECTION: u8 = 3;
pub const STT_GNU_IFUNC: u8 = 10;
pub const STV_INTERNAL: u8 = 1;
pub const STV_HIDDEN: u8 = 2;
/// Section numbers from here on are reserved.
pub const SHN_LORESERVE: usize = 0xff00;

/// Bytes of a symbol, and of a relocation.
pub const ENTRY: usize = 24;

/// A symbol before symbols have their final numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SymbolId {
    /// One of the file's.
    Old(u32),
    /// A new local one.
    Local(u32),
    /// A new global one.
    Global(u32),
}

/// A symbol.
#[derive(Clone, Debug)]
pub struct Symbol {
    /// Offset of its name in the table of names.
    pub name: u32,
    pub info: u8,
    pub other: u8,
    /// Number of its section; 0 if it is defined elsewhere.
    pub section: u16,
    pub value: u64,
    pub size: u64,
}

impl Symbol {
    pub fn bind(&self) -> u8 {
        self.info >> 4
    }

    pub fn kind(&self) -> u8 {
        self.info & 0xf
    }

    /// The section that defines it.
    pub fn home(&self) -> Option<usize> {
        let section = usize::from(self.section);
        (section != 0 && section < SHN_LORESERVE).then_some(section)
    }
}

/// A relocation.
#[derive(Clone, Copy, Debug)]
pub struct Reloc {
    pub offset: u64,
    pub kind: u32,
    pub symbol: SymbolId,
    pub addend: i64,
}

/// A section with its relocations.
#[derive(Clone, Debug, Default)]
pub struct Section {
    pub name: String,
    /// Offset of the name in the table of sections' names.
    pub name_at: u32,
    pub kind: u32,
    pub flags: u64,
    pub size: u64,
    pub link: u32,
    pub info: u32,
    pub align: u64,
    pub entry_size: u64,
    /// Empty for sections without bytes in the file.
    pub data: Vec<u8>,
    pub relocs: Vec<Reloc>,
    /// Number of the section that holds the relocations in the file.
    pub rela: Option<usize>,
    /// Number of the group that it belongs to.
    pub group: Option<usize>,
}

impl Section {
    pub fn is(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Appends bytes at the next multiple of `align`, over `filler`; gives their offset.
    pub fn append(&mut self, align: u64, filler: u8, bytes: &[u8]) -> u64 {
        let at = (self.data.len() as u64).next_multiple_of(align);
        self.data.resize(at as usize, filler);
        self.data.extend_from_slice(bytes);
        self.size = self.data.len() as u64;
        self.align = self.align.max(align);
        at
    }

    pub fn reloc(&mut self, offset: u64, kind: u32, symbol: SymbolId, addend: i64) {
        self.relocs.push(Reloc { offset, kind, symbol, addend });
    }
}

/// An object file.
#[derive(Clone, Debug)]
pub struct Object {
    header: Vec<u8>,
    names: usize,
    symtab: usize,
    strtab: usize,
    first_global: u32,
    pub sections: Vec<Section>,
    pub symbols: Vec<Symbol>,
    locals: Vec<Symbol>,
    globals: Vec<Symbol>,
    /// Symbols that stand for sections' starts.
    starts: HashMap<usize, SymbolId>,
}

type Parsed<T> = Result<T, &'static str>;

impl Object {
    /// Reads an object file for x86-64.
    ///
    /// # Errors
    ///
    /// What is malformed in it, or not supported.
    pub fn parse(file: &[u8]) -> Parsed<Object> {
        const CUT: &str = "its headers are cut off";
        const OUTSIDE: &str = "a section lies outside of the file";
        let header = file.get(..64).ok_or(CUT)?.to_vec();
        let word = |at, n| get(file, at, n).ok_or(CUT);
        if word(0, 4)? != 0x464c_457f || word(4, 2)? != 0x0102 {
            return Err("it is no ELF file of 64 bits, low byte first");
        }
        if word(16, 2)? != 1 || word(18, 2)? != 62 {
            return Err("it is no object file for x86-64");
        }
        let (table, count, names) = (word(40, 8)?, word(60, 2)? as usize, word(62, 2)? as usize);
        if count == 0 || names >= count || word(58, 2)? as usize != SHDR {
            return Err("its section headers make no sense, or are too many");
        }
        let table = usize::try_from(table).map_err(|_| OUTSIDE)?;
        let headers = file.get(table..).and_then(|t| t.get(..count * SHDR)).ok_or(OUTSIDE)?;
        let mut sections = Vec::with_capacity(count);
        let mut room = file.len();
        for h in headers.chunks_exact(SHDR) {
            let field = |at, n| get(h, at, n).expect("inside");
            let kind = field(4, 4) as u32;
            let (offset, size) = (field(24, 8), field(32, 8));
            let data = if matches!(kind, SHT_NULL | SHT_NOBITS) {
                Vec::new()
            } else {
                let (from, len) = (offset as usize, size as usize);
                // Sections do not share bytes; many that do would make much of a small file.
                room = room.checked_sub(len).ok_or("its sections overlap")?;
                file.get(from..from.checked_add(len).ok_or(OUTSIDE)?).ok_or(OUTSIDE)?.to_vec()
            };
            let align = field(48, 8).max(1);
            if !align.is_power_of_two() || align > 1 << 16 || size > 1 << 40 {
                return Err("a section's size or alignment makes no sense");
            }
            sections.push(Section {
                name_at: field(0, 4) as u32,
                kind,
                flags: field(8, 8),
                size,
                link: field(40, 4) as u32,
                info: field(44, 4) as u32,
                align,
                entry_size: field(56, 8),
                data,
                ..Section::default()
            });
        }
        for i in 0..count {
            sections[i].name = text_at(&sections[names].data, sections[i].name_at);
        }
        let of_kind = |kind| sections.iter().position(|s| s.kind == kind);
        let symtab = of_kind(SHT_SYMTAB).ok_or("it has no symbols")?;
        if sections.iter().filter(|s| s.kind == SHT_SYMTAB).count() > 1 {
            return Err("it has several tables of symbols");
        }
        if of_kind(SHT_SYMTAB_SHNDX).is_some() {
            return Err("it has too many sections");
        }
        if of_kind(SHT_REL).is_some() {
            return Err("it has relocations without addends");
        }
        let strtab = sections[symtab].link as usize;
        if strtab == 0 || strtab >= count {
            return Err("its symbols have no names");
        }
        let symbols: Vec<Symbol> = sections[symtab].data.chunks_exact(ENTRY).map(symbol).collect();
        if symbols.iter().any(|s| s.home().is_some_and(|home| home >= count)) {
            return Err("a symbol's section does not exist");
        }
        let first_global = sections[symtab].info;
        if first_global as usize > symbols.len() {
            return Err("its symbols are out of order");
        }
        let mut object = Object {
            header,
            names,
            symtab,
            strtab,
            first_global,
            sections,
            symbols,
            locals: Vec::new(),
            globals: Vec::new(),
            starts: HashMap::new(),
        };
        for (i, s) in object.symbols.iter().enumerate().take(first_global as usize) {
            if let (STT_SECTION, Some(home)) = (s.kind(), s.home()) {
                object.starts.entry(home).or_insert(SymbolId::Old(i as u32));
            }
        }
        object.attach_relocs()?;
        object.attach_groups()?;
        Ok(object)
    }

    fn attach_relocs(&mut self) -> Parsed<()> {
        for i in 0..self.sections.len() {
            if self.sections[i].kind != SHT_RELA {
                continue;
            }
            let target = self.sections[i].info as usize;
            if target == 0 || target >= self.sections.len() || target == i {
                return Err("relocations of a section that does not exist");
            }
            if self.sections[i].link as usize != self.symtab {
                return Err("relocations without symbols");
            }
            if self.sections[target].rela.is_some() {
                return Err("two tables of relocations for one section");
            }
            let table = std::mem::take(&mut self.sections[i].data);
            let mut relocs = Vec::with_capacity(table.len() / ENTRY);
            for entry in table.chunks_exact(ENTRY) {
                let field = |at, n| get(entry, at, n).expect("inside");
                let symbol = field(12, 4) as u32;
                if symbol as usize >= self.symbols.len() {
                    return Err("a relocation's symbol does not exist");
                }
                relocs.push(Reloc {
                    offset: field(0, 8),
                    kind: field(8, 4) as u32,
                    symbol: SymbolId::Old(symbol),
                    addend: field(16, 8) as i64,
                });
            }
            self.sections[target].relocs = relocs;
            self.sections[target].rela = Some(i);
        }
        Ok(())
    }

    fn attach_groups(&mut self) -> Parsed<()> {
        for i in 0..self.sections.len() {
            if self.sections[i].kind != SHT_GROUP {
                continue;
            }
            let members: Vec<usize> = self.sections[i].data[..]
                .chunks_exact(4)
                .skip(1)
                .map(|word| get(word, 0, 4).expect("four bytes") as usize)
                .collect();
            for member in members {
                let section = self.sections.get_mut(member);
                let section = section.ok_or("a group's section does not exist")?;
                if section.group.replace(i).is_some() {
                    return Err("a section is in two groups");
                }
            }
        }
        Ok(())
    }

    /// The file's header.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// The name of a symbol.
    pub fn name(&self, symbol: &Symbol) -> String {
        text_at(&self.sections[self.strtab].data, symbol.name)
    }

    pub fn symbol(&self, id: SymbolId) -> &Symbol {
        match id {
            SymbolId::Old(i) => &self.symbols[i as usize],
            SymbolId::Local(i) => &self.locals[i as usize],
            SymbolId::Global(i) => &self.globals[i as usize],
        }
    }

    /// Adds a section; `group` is the number of the group that it belongs to.
    pub fn add_section(&mut self, group: Option<usize>, mut section: Section) -> usize {
        section.name_at = add_text(&mut self.sections[self.names].data, &section.name);
        section.size = section.size.max(section.data.len() as u64);
        let index = self.sections.len();
        self.sections.push(section);
        self.join(index, group);
        index
    }

    fn join(&mut self, index: usize, group: Option<usize>) {
        let Some(group) = group else { return };
        self.sections[index].group = Some(group);
        self.sections[index].flags |= SHF_GROUP;
        self.sections[group].data.extend_from_slice(&(index as u32).to_le_bytes());
    }

    /// Adds a symbol under a name; without one where that is empty.
    pub fn add_symbol(&mut self, name: &str, mut symbol: Symbol) -> SymbolId {
        if !name.is_empty() {
            symbol.name = add_text(&mut self.sections[self.strtab].data, name);
        }
        let local = symbol.bind() == STB_LOCAL;
        let list = if local { &mut self.locals } else { &mut self.globals };
        list.push(symbol);
        let index = list.len() as u32 - 1;
        if local { SymbolId::Local(index) } else { SymbolId::Global(index) }
    }

    /// Defines a new symbol at the place of another one.
    pub fn set_home(&mut self, id: SymbolId, at: SymbolId) {
        let section = self.symbol(at).section;
        if let SymbolId::Global(i) = id {
            self.globals[i as usize].section = section;
        }
    }

    /// The symbol that stands for a section's start.
    pub fn section_symbol(&mut self, section: usize) -> SymbolId {
        if let Some(symbol) = self.starts.get(&section) {
            return *symbol;
        }
        let symbol = Symbol {
            name: 0,
            info: STT_SECTION,
            other: 0,
            section: section as u16,
            value: 0,
            size: 0,
        };
        let id = self.add_symbol("", symbol);
        self.starts.insert(section, id);
        id
    }

    /// The file.
    ///
    /// # Errors
    ///
    /// When it has more sections than the format counts in the ordinary way.
    pub fn write(mut self) -> Parsed<Vec<u8>> {
        self.write_relocs();
        if self.sections.len() >= SHN_LORESERVE {
            return Err("it has too many sections");
        }
        self.write_symbols();
        let mut file = std::mem::take(&mut self.header);
        let mut headers = Vec::with_capacity(self.sections.len() * SHDR);
        for section in &self.sections {
            let align = section.align.max(1) as usize;
            let mut h = [0; SHDR];
            if section.kind != SHT_NULL {
                file.resize(file.len().next_multiple_of(align), 0);
                set(&mut h, 24, 8, file.len() as u64);
            }
            set(&mut h, 0, 4, u64::from(section.name_at));
            set(&mut h, 4, 4, u64::from(section.kind));
            set(&mut h, 8, 8, section.flags);
            set(
                &mut h,
                32,
                8,
                match section.kind {
                    SHT_NOBITS | SHT_NULL => section.size,
                    _ => section.data.len() as u64,
                },
            );
            set(&mut h, 40, 4, u64::from(section.link));
            set(&mut h, 44, 4, u64::from(section.info));
            set(&mut h, 48, 8, section.align);
            set(&mut h, 56, 8, section.entry_size);
            headers.extend_from_slice(&h);
            file.extend_from_slice(&section.data);
        }
        file.resize(file.len().next_multiple_of(8), 0);
        let table = file.len() as u64;
        set(&mut file, 40, 8, table);
        set(&mut file, 60, 2, self.sections.len() as u64);
        file.extend_from_slice(&headers);
        Ok(file)
    }

    fn number(&self, id: SymbolId) -> u32 {
        let new_locals = self.locals.len() as u32;
        match id {
            SymbolId::Old(i) if i < self.first_global => i,
            SymbolId::Old(i) => i + new_locals,
            SymbolId::Local(i) => self.first_global + i,
            SymbolId::Global(i) => self.symbols.len() as u32 + new_locals + i,
        }
    }

    fn write_relocs(&mut self) {
        for i in 0..self.sections.len() {
            let mut relocs = std::mem::take(&mut self.sections[i].relocs);
            if relocs.is_empty() {
                continue;
            }
            // Linkers read those of the unwind tables in order.
            relocs.sort_by_key(|r| r.offset);
            let mut table = Vec::with_capacity(relocs.len() * ENTRY);
            for reloc in &relocs {
                table.extend_from_slice(&reloc.offset.to_le_bytes());
                table.extend_from_slice(&reloc.kind.to_le_bytes());
                table.extend_from_slice(&self.number(reloc.symbol).to_le_bytes());
                table.extend_from_slice(&reloc.addend.to_le_bytes());
            }
            match self.sections[i].rela {
                Some(rela) => self.sections[rela].data = table,
                None => {
                    let section = Section {
                        name: format!(".rela{}", self.sections[i].name),
                        kind: SHT_RELA,
                        flags: SHF_INFO_LINK,
                        link: self.symtab as u32,
                        info: i as u32,
                        align: 8,
                        entry_size: ENTRY as u64,
                        data: table,
                        ..Section::default()
                    };
                    self.add_section(self.sections[i].group, section);
                }
            }
        }
    }

    fn write_symbols(&mut self) {
        let (locals, globals) = self.symbols.split_at(self.first_global as usize);
        let all = locals.iter().chain(&self.locals).chain(globals).chain(&self.globals);
        let mut table = Vec::new();
        for symbol in all {
            table.extend_from_slice(&symbol.name.to_le_bytes());
            table.extend_from_slice(&[symbol.info, symbol.other]);
            table.extend_from_slice(&symbol.section.to_le_bytes());
            table.extend_from_slice(&symbol.value.to_le_bytes());
            table.extend_from_slice(&symbol.size.to_le_bytes());
        }
        for i in 0..self.sections.len() {
            match self.sections[i].kind {
                SHT_GROUP if self.sections[i].link as usize == self.symtab => {
                    let id = match self.sections[i].info {
                        // Groups of ours name their symbol after the file's.
                        info if info as usize >= self.symbols.len() => {
                            SymbolId::Global(info - self.symbols.len() as u32)
                        }
                        info => SymbolId::Old(info),
                    };
                    self.sections[i].info = self.number(id);
                }
                // A list of symbols' numbers that linkers may use, but need not.
                SHT_LLVM_ADDRSIG => self.sections[i].link = 0,
                _ => {}
            }
        }
        self.sections[self.symtab].data = table;
        self.sections[self.symtab].info = self.first_global + self.locals.len() as u32;
    }

    /// Adds a COMDAT group with a signature symbol of its own: the link keeps one of several files'
    /// groups.
    pub fn add_comdat(&mut self, signature: SymbolId) -> usize {
        let SymbolId::Global(index) = signature else { unreachable!("a new global symbol") };
        let section = Section {
            name: ".group".to_owned(),
            kind: SHT_GROUP,
            link: self.symtab as u32,
            info: self.symbols.len() as u32 + index,
            align: 4,
            entry_size: 4,
            data: vec![1, 0, 0, 0],
            ..Section::default()
        };
        self.add_section(None, section)
    }
}

fn symbol(entry: &[u8]) -> Symbol {
    let field = |at, n| get(entry, at, n).expect("inside");
    Symbol {
        name: field(0, 4) as u32,
        info: entry[4],
        other: entry[5],
        section: field(6, 2) as u16,
        value: field(8, 8),
        size: field(16, 8),
    }
}

fn text_at(table: &[u8], at: u32) -> String {
    let bytes = table.get(at as usize..).unwrap_or_default();
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn add_text(table: &mut Vec<u8>, text: &str) -> u32 {
    let at = table.len() as u32;
    table.extend_from_slice(text.as_bytes());
    table.push(0);
    at
}
