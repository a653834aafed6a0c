//! Names and unwind entries of rewritten text, for other tools.
//!
//! gdb takes an object file (`add-symbol-file`), perf a text of address, size and name a line.
//! The rewritten text of `f` is called `f.fettle`, its chunks away from the entry `f.fettle.cold`.

use fettle_rewrite::debug_frame;

use crate::rewritten::Rewritten;

/// A piece of rewritten text with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Where it is in the process.
    pub at: u64,
    /// Bytes.
    pub size: u64,
    /// Its name, mangled.
    pub name: String,
    /// Which section of the object file it is in.
    section: u16,
}

/// Names of all pieces, in order of address.
pub fn symbols(all: &[&Rewritten]) -> Vec<Symbol> {
    let mut symbols = Vec::new();
    for (code, section) in all.iter().zip(1..) {
        for chunk in &code.plan.chunks {
            let Some(function) = code.plan.functions.get(chunk.function as usize) else { continue };
            let name = match &function.name {
                Some(name) => name.clone(),
                None => format!("sub_{:x}", function.entry.0),
            };
            let cold = if chunk.start == function.text_offset { "" } else { ".cold" };
            symbols.push(Symbol {
                at: code.text.at.0 + u64::from(chunk.start),
                size: u64::from(chunk.end - chunk.start),
                name: format!("{name}.fettle{cold}"),
                section,
            });
        }
    }
    symbols.sort_by_key(|symbol| symbol.at);
    symbols
}

/// What perf reads: a line for each piece.
pub fn perf_map(symbols: &[Symbol]) -> String {
    let line = |s: &Symbol| {
        let name =
            fettle_demangle::demangle(s.name.trim_end_matches(".cold").trim_end_matches(".fettle"));
        let cold = if s.name.ends_with(".cold") { ".cold" } else { "" };
        format!("{:x} {:x} {name}.fettle{cold}\n", s.at, s.size)
    };
    symbols.iter().map(line).collect()
}

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_NOBITS: u32 = 8;
const ALLOC_EXEC: u64 = 6;

/// Sections of an object file in the making.
struct Sections {
    file: Vec<u8>,
    headers: Vec<u8>,
    names: Vec<u8>,
}

impl Sections {
    /// Adds a section: name, type, flags; address and size if it has no bytes here; what it
    /// relates to, alignment and size of entries.
    fn add(
        &mut self,
        (name, kind, flags): (&str, u32, u64),
        bytes: Result<&[u8], (u64, u64)>,
        (link, info, align, entry): (u32, u32, u64, u64),
    ) {
        self.file.resize(self.file.len().next_multiple_of(8), 0);
        let offset = self.file.len() as u64;
        let (at, size) = match bytes {
            Ok(bytes) => {
                self.file.extend_from_slice(bytes);
                (0, bytes.len() as u64)
            }
            Err(place) => place,
        };
        let h = &mut self.headers;
        h.extend_from_slice(&(self.names.len() as u32).to_le_bytes());
        h.extend_from_slice(&kind.to_le_bytes());
        for value in [flags, at, offset, size] {
            h.extend_from_slice(&value.to_le_bytes());
        }
        h.extend_from_slice(&link.to_le_bytes());
        h.extend_from_slice(&info.to_le_bytes());
        h.extend_from_slice(&align.to_le_bytes());
        h.extend_from_slice(&entry.to_le_bytes());
        self.names.extend_from_slice(name.as_bytes());
        self.names.push(0);
    }

    fn count(&self) -> u16 {
        (self.headers.len() / 64) as u16
    }
}

/// An ELF file for debuggers that describes rewritten text: without its bytes, but with its names
/// and its unwind information.
pub fn object(all: &[&Rewritten], symbols: &[Symbol]) -> Vec<u8> {
    const HEADER: usize = 64;
    let mut sections = Sections { file: vec![0; HEADER], headers: vec![0; 64], names: vec![0] };
    for (code, n) in all.iter().zip(0..) {
        let name = if n == 0 { ".text".to_owned() } else { format!(".text.{n}") };
        let place = (code.text.at.0, code.linked.text.len() as u64);
        sections.add((&name, SHT_NOBITS, ALLOC_EXEC), Err(place), (0, 0, 16, 0));
    }
    let frames = debug_frame(all.iter().map(|code| (&*code.plan, code.text.at.0)));
    sections.add((".debug_frame", SHT_PROGBITS, 0), Ok(&frames), (0, 0, 8, 0));

    let (mut table, mut names) = (vec![0; 24], vec![0]);
    for symbol in symbols {
        table.extend_from_slice(&(names.len() as u32).to_le_bytes());
        // Global, a function.
        table.extend_from_slice(&[0x12, 0]);
        table.extend_from_slice(&symbol.section.to_le_bytes());
        table.extend_from_slice(&symbol.at.to_le_bytes());
        table.extend_from_slice(&symbol.size.to_le_bytes());
        names.extend_from_slice(symbol.name.as_bytes());
        names.push(0);
    }
    let link = u32::from(sections.count()) + 1;
    sections.add((".symtab", SHT_SYMTAB, 0), Ok(&table), (link, 1, 8, 24));
    sections.add((".strtab", SHT_STRTAB, 0), Ok(&names), (0, 0, 1, 0));
    // Its own name is the last one.
    let mut own = sections.names.clone();
    own.extend_from_slice(b".shstrtab\0");
    sections.add((".shstrtab", SHT_STRTAB, 0), Ok(&own), (0, 0, 1, 0));

    let count = sections.count();
    let Sections { mut file, headers, .. } = sections;
    file.resize(file.len().next_multiple_of(8), 0);
    let headers_at = file.len() as u64;
    file.extend_from_slice(&headers);
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    // An executable for x86-64, version 1, without entry point and program headers.
    header.extend_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    header.extend_from_slice(&[0; 16]);
    header.extend_from_slice(&headers_at.to_le_bytes());
    header.extend_from_slice(&0u32.to_le_bytes());
    for value in [HEADER as u16, 0, 0, 64, count, count - 1] {
        header.extend_from_slice(&value.to_le_bytes());
    }
    file[..HEADER].copy_from_slice(&header);
    file
}
