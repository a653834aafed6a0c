//! An object file laid out as if it were linked alone, so that code that reads programs can read
//! it.
//!
//! Sections get addresses in the lowest 2 GiB and their relocations are applied. A symbol that the
//! link resolves, one that is defined elsewhere or whose definition another file may replace, gets
//! a *stand-in*: an address of its own where nothing is. The compiler knew as little about it, so
//! no analysis of the rest depends on it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use fettle_image::{Image, LinkAddr};

use crate::elf::{PHDR, PT_LOAD, Phdr, SHDR, set};
use crate::object::elf::{
    ENTRY, Object, Reloc, SHF_ALLOC, SHF_COMPRESSED, SHF_EXECINSTR, SHF_WRITE, SHT_NOBITS,
    SHT_NULL, SHT_PROGBITS, SHT_SYMTAB, STB_GLOBAL, STB_LOCAL, STT_GNU_IFUNC, STT_OBJECT,
    STT_SECTION, Section, SymbolId,
};

/// Address of the first section.
const BASE: u64 = 0x40_0000;
/// No address is as high as this.
const TOP: u64 = 1 << 30;
/// From one stand-in to the next.
const STAND_IN: u64 = 256;
/// Bytes of a slot of the table of addresses that the linker would make.
const SLOT: u64 = 16;

/// How the value of a relocation is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// Symbol plus addend.
    Address(u8),
    /// The same less the place.
    Distance(u8),
    /// A slot of the linker's plus addend, less the place.
    SlotDistance(u8),
    /// Something that has no address: an offset of thread-local memory, a size, a marker.
    Other(u8),
}

impl Value {
    /// `None` for kinds that are not known.
    fn of(kind: u32) -> Option<Value> {
        Some(match kind {
            1 => Value::Address(8),
            10 | 11 => Value::Address(4),
            12 => Value::Address(2),
            14 => Value::Address(1),
            2 | 4 => Value::Distance(4),
            13 => Value::Distance(2),
            15 => Value::Distance(1),
            24 => Value::Distance(8),
            // GOTPCREL and the relaxable ones; TLSGD, TLSLD, GOTTPOFF, TLSDESC.
            9 | 41 | 42 | 19 | 20 | 22 | 34 => Value::SlotDistance(4),
            28 => Value::SlotDistance(8),
            // GOT32, DTPOFF32, TPOFF32, GOTPC32, SIZE32.
            3 | 21 | 23 | 26 | 32 => Value::Other(4),
            16 | 17 | 18 | 25 | 27 | 29 | 31 | 33 | 36 => Value::Other(8),
            0 | 35 => Value::Other(0),
            _ => return None,
        })
    }

    fn width(self) -> u8 {
        match self {
            Value::Address(n) | Value::Distance(n) | Value::SlotDistance(n) | Value::Other(n) => n,
        }
    }
}

/// Bytes that a relocation fills in; `None` if its kind is not known.
pub fn width(kind: u32) -> Option<u8> {
    Value::of(kind).map(Value::width)
}

/// An address in a form that lasts until the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An offset in a section of the file.
    In { section: usize, offset: u64 },
    /// A symbol's address.
    Symbol(SymbolId),
}

/// A file laid out.
pub struct Layout {
    /// The image.
    pub image: Image,
    /// First address of each section; 0 of those without one.
    starts: Vec<u64>,
    /// Addresses of sections with their numbers, sorted.
    by_address: Vec<(Range<u64>, usize)>,
    /// The first stand-in, and the symbols that have one, in order.
    stand_ins: (u64, Vec<u32>),
}

impl Layout {
    /// Lays out `object`.
    ///
    /// # Errors
    ///
    /// What is malformed in it.
    pub fn new(object: &Object) -> Result<Layout, &'static str> {
        let mut maker = Maker::new(object)?;
        maker.relocate()?;
        let bytes = maker.file();
        let image = Image::parse(bytes).map_err(|_| "it cannot be laid out")?;
        let mut by_address: Vec<(Range<u64>, usize)> = maker
            .starts
            .iter()
            .enumerate()
            .filter(|(_, start)| **start != 0)
            .map(|(i, start)| (*start..start + object.sections[i].size, i))
            .collect();
        by_address.sort_by_key(|(range, i)| (range.start, range.end, *i));
        let symbols = maker.stand_ins.keys().copied().collect();
        Ok(Layout {
            image,
            starts: maker.starts,
            by_address,
            stand_ins: (maker.stand_ins_at, symbols),
        })
    }

    /// The place of `addr`.
    pub fn place(&self, addr: LinkAddr) -> Option<Place> {
        let (first, symbols) = &self.stand_ins;
        if addr.0 >= *first {
            let index = (addr.0 - first) / STAND_IN;
            let exact = (addr.0 - first).is_multiple_of(STAND_IN);
            let symbol = symbols.get(index as usize).filter(|_| exact)?;
            return Some(Place::Symbol(SymbolId::Old(*symbol)));
        }
        let after = self.by_address.partition_point(|(range, _)| range.start <= addr.0);
        // The end of a section belongs to it.
        let (range, section) = self.by_address[..after]
            .iter()
            .rev()
            .take(4)
            .find(|(range, _)| addr.0 < range.end)
            .or(self.by_address[..after].last())?;
        (addr.0 <= range.end)
            .then_some(Place::In { section: *section, offset: addr.0 - range.start })
    }

    /// Where a section starts.
    pub fn start(&self, section: usize) -> Option<LinkAddr> {
        self.starts.get(section).copied().filter(|at| *at != 0).map(LinkAddr)
    }
}

struct Maker<'a> {
    object: &'a Object,
    starts: Vec<u64>,
    /// The content of each section, with relocations applied.
    data: Vec<Vec<u8>>,
    stand_ins_at: u64,
    /// Number of each symbol's stand-in.
    stand_ins: BTreeMap<u32, u64>,
    slots_at: u64,
    slots: HashMap<(SymbolId, bool), u64>,
}

/// Whether the link may take another definition of the symbol than this file's.
pub fn is_open(object: &Object, id: SymbolId) -> bool {
    let symbol = object.symbol(id);
    let Some(home) = symbol.home() else { return symbol.section == 0 || symbol.section == 0xfff2 };
    let grouped = object.sections[home].group.is_some();
    match symbol.bind() {
        STB_LOCAL => symbol.kind() == STT_GNU_IFUNC,
        STB_GLOBAL => grouped || symbol.kind() == STT_GNU_IFUNC,
        _ => true,
    }
}

impl<'a> Maker<'a> {
    fn new(object: &'a Object) -> Result<Maker<'a>, &'static str> {
        let mut starts = vec![0; object.sections.len()];
        let mut at = BASE;
        for class in 0..4 {
            at = at.next_multiple_of(0x1_0000);
            for (i, section) in object.sections.iter().enumerate() {
                if class_of(section) == Some(class) {
                    at = at.next_multiple_of(section.align);
                    starts[i] = at;
                    // The end address of a section is not the begin of the next one.
                    at = at.saturating_add(section.size).saturating_add(1);
                }
            }
            if at >= TOP {
                return Err("it is too large");
            }
        }
        let open = (1..object.symbols.len() as u32)
            .filter(|i| is_open(object, SymbolId::Old(*i)))
            .enumerate();
        let stand_ins: BTreeMap<u32, u64> = open.map(|(k, i)| (i, k as u64)).collect();
        let slots_at = at.next_multiple_of(0x1_0000);
        let slots = object.symbols.len() as u64 * 2 + 2;
        let stand_ins_at = (slots_at + slots * SLOT).next_multiple_of(0x1_0000);
        if stand_ins_at + stand_ins.len() as u64 * STAND_IN >= 1 << 31 {
            return Err("it has too many symbols");
        }
        let data = object.sections.iter().map(|s| s.data.clone()).collect();
        Ok(Maker { object, starts, data, stand_ins_at, stand_ins, slots_at, slots: HashMap::new() })
    }

    fn address(&self, id: SymbolId) -> u64 {
        if let SymbolId::Old(i) = id
            && let Some(k) = self.stand_ins.get(&i)
        {
            return self.stand_ins_at + k * STAND_IN;
        }
        let symbol = self.object.symbol(id);
        symbol.value.wrapping_add(symbol.home().map_or(0, |home| self.starts[home]))
    }

    fn relocate(&mut self) -> Result<(), &'static str> {
        for i in 0..self.object.sections.len() {
            let section = &self.object.sections[i];
            if section.kind == SHT_NOBITS && !section.relocs.is_empty() {
                return Err("relocations of a section without bytes");
            }
            if section.is(SHF_COMPRESSED) {
                self.data[i] = Vec::new();
                continue;
            }
            for reloc in &section.relocs {
                let Some(value) = Value::of(reloc.kind) else { continue };
                let at = usize::try_from(reloc.offset).unwrap_or(usize::MAX);
                let end = at.checked_add(usize::from(value.width()));
                if end.is_none_or(|end| end > section.data.len()) {
                    return Err("a relocation lies outside of its section");
                }
                let result = self.value(value, reloc, self.starts[i].wrapping_add(reloc.offset));
                set(&mut self.data[i], at, usize::from(value.width()), result);
            }
        }
        Ok(())
    }

    fn value(&mut self, value: Value, reloc: &Reloc, place: u64) -> u64 {
        let plus = |address: u64| address.wrapping_add_signed(reloc.addend);
        match value {
            Value::Address(_) => plus(self.address(reloc.symbol)),
            Value::Distance(_) => plus(self.address(reloc.symbol)).wrapping_sub(place),
            Value::SlotDistance(_) => {
                let plain = matches!(reloc.kind, 9 | 28 | 41 | 42);
                let next = self.slots.len() as u64;
                let slot = *self.slots.entry((reloc.symbol, plain)).or_insert(next);
                plus(self.slots_at + slot * SLOT).wrapping_sub(place)
            }
            Value::Other(_) => reloc.addend as u64,
        }
    }

    /// A program with all of this.
    fn file(&self) -> Vec<u8> {
        let sections = &self.object.sections;
        let mut file = vec![0; 64 + 6 * PHDR];
        // Bytes first: those with an address as far from each other as in memory, by class.
        let mut offsets = vec![0u64; sections.len()];
        let mut segments = Vec::new();
        for class in 0..4u8 {
            let mut members: Vec<usize> =
                (0..sections.len()).filter(|i| class_of(&sections[*i]) == Some(class)).collect();
            members.sort_by_key(|i| self.starts[*i]);
            let (Some(first), Some(last)) = (members.first(), members.last()) else { continue };
            let start = self.starts[*first];
            let size = self.starts[*last] + sections[*last].size - start;
            file.resize(file.len().next_multiple_of(0x1000), 0);
            let base = file.len() as u64;
            for i in members {
                offsets[i] = base + self.starts[i] - start;
                if sections[i].kind != SHT_NOBITS {
                    file.resize(offsets[i] as usize, 0);
                    file.extend_from_slice(&self.data[i]);
                }
            }
            let in_file = if class == 3 { 0 } else { file.len() as u64 - base };
            let flags = [5, 4, 6, 6][usize::from(class)];
            let mut header = Phdr::new(PT_LOAD, flags, base, start, size, 1);
            set(&mut header.0, 32, 8, in_file.min(size));
            segments.push(header);
        }
        let slots = self.object.symbols.len() as u64 * 2 + 2;
        let mut header = Phdr::new(PT_LOAD, 6, 0, self.slots_at, slots * SLOT, 1);
        set(&mut header.0, 32, 8, 0);
        segments.push(header);
        for i in 0..sections.len() {
            if class_of(&sections[i]).is_none() && sections[i].kind != SHT_NULL {
                offsets[i] = file.len() as u64;
                if sections[i].kind == SHT_SYMTAB {
                    file.extend_from_slice(&self.symbols());
                } else {
                    file.extend_from_slice(&self.data[i]);
                }
            }
        }
        // Headers: each section under its number, then one for the linker's slots.
        let table = file.len() as u64;
        let mut push = |fields: [u64; 10]| {
            let mut h = [0; SHDR];
            set(&mut h, 0, 4, fields[0]);
            set(&mut h, 4, 4, fields[1]);
            for (k, value) in fields[2..6].iter().enumerate() {
                set(&mut h, 8 + k * 8, 8, *value);
            }
            set(&mut h, 40, 4, fields[6]);
            set(&mut h, 44, 4, fields[7]);
            set(&mut h, 48, 8, fields[8]);
            set(&mut h, 56, 8, fields[9]);
            file.extend_from_slice(&h);
        };
        for (i, s) in sections.iter().enumerate() {
            let keep = class_of(s).is_some() || !matches!(s.kind, SHT_NULL | 4 | 9 | 17);
            let kind = if keep { s.kind } else { SHT_NULL };
            let size = match s.kind {
                SHT_NOBITS => s.size,
                SHT_SYMTAB => s.data.len() as u64,
                _ => self.data[i].len() as u64,
            };
            let flags = s.flags & !SHF_COMPRESSED;
            let fields = [
                u64::from(s.name_at),
                u64::from(kind),
                flags,
                self.starts[i],
                offsets[i],
                size,
                u64::from(s.link),
                u64::from(s.info),
                s.align,
                s.entry_size,
            ];
            push(if keep { fields } else { [0; 10] });
        }
        push([0, u64::from(SHT_NOBITS), 3, self.slots_at, 0, slots * SLOT, 0, 0, 16, 0]);
        let header = self.object.header();
        file[..64].copy_from_slice(&header[..64]);
        set(&mut file, 16, 2, 2);
        set(&mut file, 24, 8, 0);
        set(&mut file, 32, 8, 64);
        set(&mut file, 40, 8, table);
        set(&mut file, 54, 2, PHDR as u64);
        set(&mut file, 56, 2, segments.len() as u64);
        set(&mut file, 60, 2, sections.len() as u64 + 1);
        for (i, segment) in segments.iter().enumerate() {
            file[64 + i * PHDR..64 + (i + 1) * PHDR].copy_from_slice(&segment.0);
        }
        file
    }

    /// The symbols with their addresses. Those defined elsewhere are data, so that they are not
    /// taken for functions.
    fn symbols(&self) -> Vec<u8> {
        let mut table = Vec::with_capacity(self.object.symbols.len() * ENTRY);
        for (i, s) in self.object.symbols.iter().enumerate() {
            let mut section = s.section;
            let (mut info, mut value) = (s.info, s.value);
            if let Some(home) = s.home() {
                value = value.wrapping_add(self.starts[home]);
                if self.starts[home] == 0 && s.kind() != STT_SECTION {
                    info = s.info & 0xf0 | STT_OBJECT;
                }
            } else if self.stand_ins.contains_key(&(i as u32)) {
                info = STB_LOCAL << 4 | STT_OBJECT;
                section = self.object.sections.len() as u16;
                value = self.address(SymbolId::Old(i as u32));
            }
            table.extend_from_slice(&s.name.to_le_bytes());
            table.extend_from_slice(&[info, s.other]);
            table.extend_from_slice(&section.to_le_bytes());
            table.extend_from_slice(&value.to_le_bytes());
            table.extend_from_slice(&s.size.to_le_bytes());
        }
        table
    }
}

/// Sections with addresses lie in this order: code, constants, data, data without bytes.
fn class_of(section: &Section) -> Option<u8> {
    if !section.is(SHF_ALLOC) || section.kind == SHT_NULL {
        return None;
    }
    Some(match section {
        s if s.kind == SHT_NOBITS => 3,
        s if s.is(SHF_EXECINSTR) && s.kind == SHT_PROGBITS => 0,
        s if s.is(SHF_WRITE) => 2,
        _ => 1,
    })
}
