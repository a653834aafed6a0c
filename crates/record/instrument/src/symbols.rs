//! What debuggers and profilers know of rewritten text: a symbol `NAME.fettle` for each function, and
//! how to unwind it. Neither is there when the file runs; `strip` takes both out.
//!
//! Debuggers look for `.eh_frame` by its name, and that is the original text's; so the rewritten text's
//! entries are repeated in `.debug_frame`.

use fettle_rewrite::{Plan, debug_frame};

use crate::elf::{self, NewSection, SYM, Sections};
use crate::room::Moved;

/// A function with rewritten text, or a part of one: then it has no original text here.
#[derive(Clone, Copy, Debug)]
pub struct NewFunction<'a> {
    /// Its name.
    pub name: &'a str,
    /// What the name of its rewritten text ends with.
    pub suffix: &'static str,
    /// Address and size of the original text.
    pub old: (u64, u64),
    /// Address and size of the rewritten text.
    pub new: (u64, u64),
}

/// Not visible to other modules.
const HIDDEN: u8 = 2;
/// `STB_GLOBAL`, `STT_FUNC`: global ones come last, so that no other symbol's number changes.
const FUNCTION: u8 = 0x12;

/// Adds symbols of `functions`, whose rewritten text is in the section of index `text`. What a block
/// that `moved` was named by follows it.
pub fn add(
    file: &mut Vec<u8>,
    sections: &mut Sections,
    functions: &[NewFunction<'_>],
    text: usize,
    moved: Option<Moved>,
) {
    if sections.headers().is_empty() {
        return;
    }
    let is_table = |s: &elf::Shdr| s.kind() == elf::SHT_SYMTAB;
    let found = sections.headers().iter().position(is_table);
    let Some((table, mut symbols, mut strings)) = (match found {
        Some(table) => read(file, sections, table).map(|(s, names)| (table, s, names)),
        None => {
            let (symbols, strings) = old_symbols(sections, functions);
            let section =
                |name, kind, align| NewSection { name, kind, align, ..Default::default() };
            let table = sections.add(&section(".symtab", elf::SHT_SYMTAB, 8));
            let names = sections.add(&section(".strtab", elf::SHT_STRTAB, 1));
            sections.headers_mut()[table].relate(names as u32, 1, SYM as u64);
            Some((table, symbols, strings))
        }
    }) else {
        return;
    };
    if let Some(moved) = moved {
        for symbol in symbols.chunks_exact_mut(SYM) {
            let value = elf::get(symbol, 8, 8).expect("inside");
            elf::set(symbol, 8, 8, moved.address(value));
        }
    }
    for f in functions {
        push(&mut symbols, &mut strings, &[f.name, f.suffix], f.new, text);
    }
    let names = sections.headers()[table].link() as usize;
    sections.headers_mut()[names].hold(file, &strings);
    sections.headers_mut()[table].hold(file, &symbols);
}

/// The symbols that are there, and their names.
fn read(file: &[u8], sections: &Sections, table: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let header = &sections.headers()[table];
    let names = header.link() as usize;
    let strings = sections.headers().get(names).filter(|s| s.kind() == elf::SHT_STRTAB)?;
    // Names that sections and symbols share grow in one place only.
    if sections.holds_names(names) {
        return None;
    }
    Some((header.data(file)?.to_vec(), strings.data(file)?.to_vec()))
}

/// Symbols of the original text of a file that has none: tools that find some look no further.
fn old_symbols(sections: &Sections, functions: &[NewFunction<'_>]) -> (Vec<u8>, Vec<u8>) {
    let (mut symbols, mut strings) = (vec![0; SYM], vec![0]);
    for f in functions {
        let holds = |s: &elf::Shdr| {
            s.flags() & elf::SHF_ALLOC != 0 && f.old.0.wrapping_sub(s.at()) < s.size()
        };
        if let Some(section) = sections.headers().iter().position(holds) {
            push(&mut symbols, &mut strings, &[f.name], f.old, section);
        }
    }
    (symbols, strings)
}

fn push(
    symbols: &mut Vec<u8>,
    strings: &mut Vec<u8>,
    name: &[&str],
    (at, size): (u64, u64),
    section: usize,
) {
    symbols.extend_from_slice(&(strings.len() as u32).to_le_bytes());
    symbols.extend_from_slice(&[FUNCTION, HIDDEN]);
    symbols.extend_from_slice(&(section as u16).to_le_bytes());
    symbols.extend_from_slice(&at.to_le_bytes());
    symbols.extend_from_slice(&size.to_le_bytes());
    name.iter().for_each(|part| strings.extend_from_slice(part.as_bytes()));
    strings.push(0);
}

/// Adds what `plan` says about unwinding, for debuggers; its text is at `text_at`. A file that
/// has such a section already keeps it as it is.
pub fn add_frames(file: &mut Vec<u8>, sections: &mut Sections, plan: &Plan, text_at: u64) {
    const NAME: &str = ".debug_frame";
    if sections.headers().is_empty() || sections.has(NAME) {
        return;
    }
    let bytes = debug_frame([(plan, text_at)]);
    let section =
        NewSection { name: NAME, kind: elf::SHT_PROGBITS, align: 8, ..Default::default() };
    let index = sections.add(&section);
    sections.headers_mut()[index].hold(file, &bytes);
}
