//! Where functions begin and end, and how their entries look.
//!
//! Without the file of the kernel, a function ends where the next symbol begins. Between them lie traps
//! (`int3`), or the bytes before a function that `__pfx_` symbols name.

use std::ops::Range;

use crate::symbols::{Symbol, Symbols};

/// The call of the tracer that gcc puts to a function's begin (`-mfentry`), as the running kernel has it:
/// a nop of five bytes.
pub const FENTRY: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
/// `endbr64`, where indirect calls may land.
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// What the kernel writes over an `endbr64` that nothing indirect leads to.
const SEALED: [u8; 4] = [0x66, 0x0f, 0x1f, 0x00];
const TRAP: u8 = 0xcc;
const CALL: u8 = 0xe8;

/// How a function begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// With the fentry nop, so many bytes behind the entry: 0, or 4 behind `endbr64` or where it was.
    Fentry(u32),
    /// In the nop's place there is a call: a tracer is attached.
    Attached,
    /// Without a place for tracers.
    Plain,
}

/// The code of a function, or of a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRange {
    /// Where it begins, and where its last instruction ends.
    pub range: Range<u64>,
    /// Its symbol: a global one if it has several.
    pub name: Box<str>,
    /// How it begins.
    pub entry: Entry,
    /// A part of another function that seldom runs (`.cold`).
    pub cold: bool,
}

impl FunctionRange {
    /// Its size in bytes.
    pub fn size(&self) -> u32 {
        (self.range.end - self.range.start) as u32
    }
}

/// All functions by address.
#[derive(Clone, Debug, Default)]
pub struct Functions(Vec<FunctionRange>);

impl Functions {
    /// The functions of `text`, which begins at `at`, by their symbols.
    pub fn find(symbols: &Symbols, text: &[u8], at: u64) -> Functions {
        Functions::among(symbols.all(), text, at)
    }

    /// The same by symbols in order of address.
    pub fn among(all: &[Symbol], text: &[u8], at: u64) -> Functions {
        let end = at.saturating_add(text.len() as u64);
        let from = all.partition_point(|symbol| symbol.address < at);
        let inside = &all[from..all.partition_point(|symbol| symbol.address < end)];
        let mut functions = Vec::new();
        let mut rest = inside;
        while let Some(first) = rest.first() {
            let start = first.address;
            let (here, behind) = rest.split_at(rest.partition_point(|s| s.address == start));
            rest = behind;
            let next = behind.first().map_or(end, |symbol| symbol.address);
            let named = here.iter().filter(|symbol| symbol.is_text());
            let Some(symbol) = named.min_by_key(|symbol| symbol.kind) else { continue };
            let code = &text[(start - at) as usize..(next - at) as usize];
            let size = code.iter().rposition(|byte| *byte != TRAP).map_or(0, |last| last + 1);
            if size == 0 || symbol.name.starts_with("__pfx_") {
                continue;
            }
            functions.push(FunctionRange {
                range: start..start + size as u64,
                entry: entry(&code[..size]),
                cold: symbol.name.contains(".cold"),
                name: symbol.name.clone(),
            });
        }
        Functions(functions)
    }

    /// Takes others in.
    pub fn extend(&mut self, others: Functions) {
        self.0.extend(others.0);
        self.0.sort_by_key(|function| function.range.start);
    }

    /// All of them.
    pub fn all(&self) -> &[FunctionRange] {
        &self.0
    }

    /// The one that begins at `address`.
    pub fn starting(&self, address: u64) -> Option<&FunctionRange> {
        let i = self.0.binary_search_by_key(&address, |function| function.range.start).ok()?;
        self.0.get(i)
    }

    /// The one that has `address`.
    pub fn containing(&self, address: u64) -> Option<&FunctionRange> {
        let behind = self.0.partition_point(|function| function.range.start <= address);
        let found = self.0.get(behind.checked_sub(1)?)?;
        found.range.contains(&address).then_some(found)
    }
}

fn entry(code: &[u8]) -> Entry {
    let (behind, rest) = match code.strip_prefix(&LANDING).or_else(|| code.strip_prefix(&SEALED)) {
        Some(rest) => (4, rest),
        None => (0, code),
    };
    match rest.first_chunk::<5>() {
        Some(&FENTRY) => Entry::Fentry(behind),
        Some([CALL, ..]) => Entry::Attached,
        _ => Entry::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_end_before_the_traps() {
        let mut text = Vec::new();
        text.extend_from_slice(&FENTRY);
        text.extend_from_slice(&[0xc3, TRAP, TRAP]);
        text.extend_from_slice(&[0x90; 8]);
        text.extend_from_slice(&LANDING);
        text.extend_from_slice(&FENTRY);
        text.push(0xc3);
        text.extend_from_slice(&[TRAP; 6]);
        text.push(0xc3);
        let kallsyms = "1000 t local\n1000 T global\n1008 t __pfx_second\n1010 t second\n\
                        1020 t first.cold\n1021 T _etext\n";
        let symbols = Symbols::parse(kallsyms).unwrap();
        let functions = Functions::find(&symbols, &text, 0x1000);
        let found: Vec<_> =
            functions.all().iter().map(|f| (&*f.name, f.range.clone(), f.entry, f.cold)).collect();
        let expected = [
            ("global", 0x1000..0x1006, Entry::Fentry(0), false),
            ("second", 0x1010..0x101a, Entry::Fentry(4), false),
            ("first.cold", 0x1020..0x1021, Entry::Plain, true),
        ];
        assert_eq!(found, expected);
        assert!(functions.containing(0x1006).is_none());
        assert_eq!(functions.containing(0x1012).map(|f| &*f.name), Some("second"));
    }
}
