//! Modules that are loaded: their text, and their tables about it.
//!
//! `kallsyms` names each module's own `struct module`; where its memory and tables are stands in there, at
//! offsets that the kernel's types say. Until 6.3 a module's memory is one piece, with its text first; since then
//! it is several.

use std::io::{Read, Seek};
use std::ops::Range;

use fettle_btf::Btf;

use crate::bytes::{u32_at, u64_at};
use crate::core::{Core, Memory};
use crate::error::Error;
use crate::functions::Functions;
use crate::orc::Orc;
use crate::symbols::Symbol;
use crate::tables::{Raw, Tables};

/// The name of Fettle's module, whose text is rewritten text itself.
pub const OWN: &str = "fettle_kernel";

/// A module whose text can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: Box<str>,
    /// Where its `struct module` lies.
    pub address: u64,
    /// Its text, that of its start not included.
    pub text: Range<u64>,
}

/// A module with all that an image takes from it.
pub(crate) struct Loaded {
    pub module: Module,
    pub memory: Vec<Memory>,
    pub sealed: Range<u64>,
    pub tables: Tables,
    pub orc: Orc,
    pub functions: Functions,
}

/// Where fields of `struct module` are.
#[derive(Debug)]
pub(crate) struct Layout {
    size: u32,
    state: u32,
    place: Place,
    /// Of each table of [`TABLES`]: where its address is, and its length.
    tables: [(u32, u32); TABLES.len()],
}

/// Where memory of a module is.
#[derive(Debug)]
enum Place {
    /// One piece: offsets of its address, its size, and of the sizes up to the ends of its text, of what is read
    /// only, and of what is since its start.
    Whole([u32; 5]),
    /// Pieces: the offset of the first, the distance to the next, and in each of its address and size.
    Pieces([u32; 4]),
}

/// Tables: the field with the address, the one with the number of entries, and how many bytes each has.
const TABLES: [(&str, &str, u64); 6] = [
    ("extable", "num_exentries", 12),
    ("jump_entries", "num_jump_entries", 16),
    ("static_call_sites", "num_static_call_sites", 8),
    ("bug_table", "num_bugs", 12),
    ("arch.orc_unwind_ip", "arch.num_orcs", 4),
    ("arch.orc_unwind", "arch.num_orcs", 6),
];
/// `enum mod_mem_type`: text, data, read-only data, and what is read only since the module's start.
const PIECES: usize = 4;
const SEALED: usize = 3;
/// `MODULE_STATE_LIVE`.
const LIVE: u32 = 0;
/// No module is larger.
const MOST: u64 = 1 << 28;

impl Layout {
    /// As the kernel's types have it.
    ///
    /// # Errors
    /// If there is no such field.
    pub fn find(types: &Btf) -> Result<Layout, Error> {
        let offset = |of: &str, path: &str| types.field(of, path).map(|field| field.offset);
        let place = match offset("module", "core_layout") {
            Ok(whole) => {
                let mut fields = [0; 5];
                let names = ["base", "size", "text_size", "ro_size", "ro_after_init_size"];
                for (field, name) in fields.iter_mut().zip(names) {
                    *field = whole + offset("module_layout", name)?;
                }
                Place::Whole(fields)
            }
            Err(_) => Place::Pieces([
                offset("module", "mem")?,
                types.struct_size("module_memory")?,
                offset("module_memory", "base")?,
                offset("module_memory", "size")?,
            ]),
        };
        let mut tables = [(0, 0); TABLES.len()];
        for (table, (address, count, _)) in tables.iter_mut().zip(TABLES) {
            *table = (offset("module", address)?, offset("module", count)?);
        }
        let (size, state) = (types.struct_size("module")?, offset("module", "state")?);
        Ok(Layout { size, state, place, tables })
    }

    /// Reads a module by its symbols; `None` if it is none, is Fettle's own, or is coming or going.
    ///
    /// # Errors
    /// If its memory is not in the core file, or its tables are damaged.
    pub fn read<R: Read + Seek>(
        &self,
        core: &mut Core<R>,
        name: &str,
        symbols: &[Symbol],
    ) -> Result<Option<Loaded>, Error> {
        let own = symbols.iter().find(|symbol| &*symbol.name == "__this_module");
        // Programs in the kernel (`[bpf]`) and its own trampolines have none.
        let Some(address) = own.map(|own| own.address).filter(|_| name != OWN) else {
            return Ok(None);
        };
        let of = core.read(address, address + u64::from(self.size))?;
        if u32_at(&of, self.state as usize) != Some(LIVE) {
            return Ok(None);
        }
        let (pieces, text, sealed) = self.place.of(&of).ok_or(Error::Table("modules"))?;
        let mut memory = Vec::new();
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            let bytes = core.read(piece.start, piece.end)?;
            memory.push(Memory { start: piece.start, bytes });
        }
        let slice = |range: &Range<u64>| {
            let found = memory.iter().find_map(|piece| {
                piece.bytes(range.start, usize::try_from(range.end - range.start).ok()?)
            });
            found.ok_or(Error::Table("modules"))
        };
        let mut raw = [Raw { bytes: &[], at: 0 }; TABLES.len()];
        for ((raw, (at, count)), (.., bytes)) in raw.iter_mut().zip(self.tables).zip(TABLES) {
            let at = u64_at(&of, at as usize).unwrap_or(0);
            let count = u64::from(u32_at(&of, count as usize).unwrap_or(0));
            if count > 0 {
                let end = at.checked_add(count * bytes).ok_or(Error::Table("modules"))?;
                *raw = Raw { bytes: slice(&(at..end))?, at };
            }
        }
        let [exceptions, labels, static_calls, bugs, starts, rows] = raw;
        let tables = Tables::parse(exceptions, labels, static_calls, bugs)?;
        let orc = Orc::parse(starts.bytes, starts.at, rows.bytes)?;
        let functions = Functions::among(symbols, slice(&text)?, text.start);
        let module = Module { name: name.into(), address, text };
        Ok(Some(Loaded { module, memory, sealed, tables, orc, functions }))
    }
}

/// Pieces of memory, text, and what is sealed.
type Found = (Vec<Range<u64>>, Range<u64>, Range<u64>);

impl Place {
    fn of(&self, module: &[u8]) -> Option<Found> {
        let word = |at: u32| u64_at(module, at as usize);
        let half = |at: u32| u32_at(module, at as usize).map(u64::from);
        let range = |start: u64, size: u64| {
            (size <= MOST).then(|| start.checked_add(size)).flatten().map(|end| start..end)
        };
        match self {
            Place::Whole([base, size, text, read_only, sealed]) => {
                let base = word(*base)?;
                let until = |size: &u32| range(base, half(*size)?);
                let sealed = until(read_only)?.end..until(sealed)?.end;
                Some((vec![until(size)?], until(text)?, sealed))
            }
            Place::Pieces([first, distance, base, size]) => {
                let piece = |i: usize| {
                    let at = first + distance * i as u32;
                    range(word(at + base)?, half(at + size)?)
                };
                let pieces: Option<Vec<Range<u64>>> = (0..PIECES).map(piece).collect();
                let pieces = pieces?;
                let (text, sealed) = (pieces.first()?.clone(), pieces.get(SEALED)?.clone());
                Some((pieces, text, sealed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::functions::FENTRY;
    use crate::made::core_file;
    use crate::symbols::Symbols;

    /// Where the module lies in these tests, and its `struct module` in it.
    const BASE: u64 = 0xffff_ffff_c000_0000;
    const THIS: u64 = 0x200;
    /// Offsets in that structure: state, place, tables.
    const STATE: u32 = 0;
    const PLACE: u32 = 8;
    const TABLE: u32 = 128;

    /// A module of one function, whose only table is that of exceptions.
    fn memory(place: &[(u32, u64)]) -> Vec<u8> {
        let mut bytes = vec![0xcc; 0x400];
        bytes[..5].copy_from_slice(&FENTRY);
        bytes[5] = 0xc3;
        bytes[THIS as usize..].fill(0);
        let mut put = |at: u64, value: u64| {
            bytes[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
        };
        for (at, value) in place {
            put(THIS + u64::from(*at), *value);
        }
        put(THIS + u64::from(TABLE), BASE + 0x100);
        put(THIS + u64::from(TABLE) + 8, 1);
        // The instruction at the begin may fault, and goes on at the return.
        for (at, to) in [(0x100u64, 0u64), (0x104, 5)] {
            let distance = (to as i32 - at as i32).to_le_bytes();
            bytes[at as usize..at as usize + 4].copy_from_slice(&distance);
        }
        bytes
    }

    fn read(place: Place, fields: &[(u32, u64)], name: &str) -> Result<Option<Loaded>, Error> {
        let mut tables = [(TABLE + 16, TABLE + 24); TABLES.len()];
        tables[0] = (TABLE, TABLE + 8);
        let layout = Layout { size: 0x200, state: STATE, place, tables };
        let symbols = format!(
            "ffffffff81000000 T _text\n{BASE:x} t work\t[{name}]\n{:x} d __this_module\t[{name}]\n",
            BASE + THIS
        );
        let symbols = Symbols::parse(&symbols).unwrap();
        let mut core = Core::new(Cursor::new(core_file(BASE, &memory(fields)))).unwrap();
        layout.read(&mut core, name, &symbols.modules()[name])
    }

    fn whole() -> (Place, [(u32, u64); 3]) {
        let place = Place::Whole([PLACE, PLACE + 8, PLACE + 12, PLACE + 16, PLACE + 20]);
        let sizes = |low: u64, high: u64| low | high << 32;
        (place, [(PLACE, BASE), (PLACE + 8, sizes(0x400, 0x80)), (PLACE + 16, sizes(0x180, 0x1c0))])
    }

    #[test]
    fn a_module_of_one_piece_has_its_text_first() {
        let (place, fields) = whole();
        let loaded = read(place, &fields, "some").unwrap().unwrap();
        assert_eq!(loaded.module.text, BASE..BASE + 0x80);
        assert_eq!(loaded.sealed, BASE + 0x180..BASE + 0x1c0);
        let functions = loaded.functions.all();
        assert_eq!((functions.len(), functions[0].range.clone()), (1, BASE..BASE + 6));
        assert_eq!(loaded.tables.exception(BASE).map(|found| found.fixup), Some(BASE + 5));
    }

    #[test]
    fn a_module_of_several_pieces_is_read_piece_by_piece() {
        let place = Place::Pieces([PLACE, 24, 0, 8]);
        let mut fields = Vec::new();
        for (piece, (from, size)) in
            [(0, 0x80), (0x80, 0x40), (0x100, 0x80), (0x180, 0x20)].iter().enumerate()
        {
            let at = PLACE + 24 * piece as u32;
            fields.extend([(at, BASE + from), (at + 8, *size)]);
        }
        let loaded = read(place, &fields, "some").unwrap().unwrap();
        assert_eq!(loaded.module.text, BASE..BASE + 0x80);
        assert_eq!(loaded.memory.len(), 4);
        assert_eq!(loaded.sealed, BASE + 0x180..BASE + 0x1a0);
    }

    #[test]
    fn modules_that_come_and_our_own_are_left_alone() {
        let (place, mut fields) = (whole().0, whole().1.to_vec());
        fields.push((STATE, 1));
        assert!(read(place, &fields, "some").unwrap().is_none());
        assert!(read(whole().0, &whole().1, OWN).unwrap().is_none());
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        let (place, mut fields) = whole();
        // Larger than the memory that there is, and than any module.
        for size in [0x1000, 0xffff_ffff] {
            fields[1].1 = size | 0x80 << 32;
            assert!(read(whole().0, &fields, "some").is_err());
        }
        fields = whole().1;
        fields[0].1 = u64::MAX - 4;
        assert!(read(place, &fields, "some").is_err());
    }
}
